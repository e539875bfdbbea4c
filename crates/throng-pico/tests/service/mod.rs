//! An engine of picos in memory behind HTTP, and a client of it.

use serde_json::Value;
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    time::Duration,
};
use throng::{
    Engine,
    journal::{MemoryJournal, MemoryStore},
};
use throng_http::{Gateway, Running};
use throng_pico::{Picos, Settings};

/// A service that hangs is a failed test, not a hung one.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Service {
    running: Option<Running>,
    end: Option<Box<dyn FnOnce() + Send>>,
    journal: MemoryJournal,
    store: MemoryStore,
    settings: Settings,
}

#[allow(dead_code, reason = "shared by tests, each using some")]
pub struct Response {
    pub status: u16,
    pub headers: Vec<String>,
    pub body: String,
}

impl Response {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

#[allow(dead_code, reason = "shared by tests, each using some")]
impl Service {
    pub fn start(settings: Settings) -> Self {
        let journal = MemoryJournal::new();
        let store = MemoryStore::new(journal.clone());
        Self::on(journal, store, settings)
    }

    fn on(journal: MemoryJournal, store: MemoryStore, settings: Settings) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let starting = throng_pico::kinds(Engine::builder()).start(journal.clone(), store.clone());
        let engine = runtime.block_on(starting).unwrap();
        let picos = Picos::new(engine.clone(), settings.clone());
        let end = picos.work().unwrap();
        let gateway = Gateway::builder(engine).routes(throng_pico::routes(picos));
        let running = throng_pico::gateway(gateway).start().unwrap();
        Self {
            running: Some(running),
            end: Some(end),
            journal,
            store,
            settings,
        }
    }

    /// The same service after its end and another start.
    pub fn again(mut self) -> Self {
        self.stop();
        let (journal, store) = (self.journal.clone(), self.store.clone());
        Self::on(journal, store, self.settings.clone())
    }

    fn stop(&mut self) {
        if let Some(end) = self.end.take() {
            end();
        }
        if let Some(running) = self.running.take() {
            running.stop_blocking();
        }
    }

    pub fn get(&self, path: &str) -> Response {
        self.send("GET", path, "", "")
    }

    pub fn post(&self, path: &str, body: &Value) -> Response {
        self.send("POST", path, "content-type: application/json\r\n", &body.to_string())
    }

    /// The root's channel for the console.
    pub fn ui(&self) -> String {
        text(&self.get("/api/ui-context").json()["eci"])
    }

    /// The root's own channel, which lets everything through.
    pub fn root(&self) -> String {
        let pico = self.query(&self.ui(), "io.picolabs.pico-engine-ui", "pico", "");
        tagged(&pico, &["system", "self"])
    }

    /// What a query answers.
    pub fn query(&self, eci: &str, rid: &str, name: &str, arguments: &str) -> Value {
        let response = self.get(&format!("/c/{eci}/query/{rid}/{name}?{arguments}"));
        assert_eq!(response.status, 200, "{}", response.body);
        response.json()
    }

    /// Sends an event with these attributes and returns its directives.
    pub fn event(&self, eci: &str, domain: &str, name: &str, attributes: &Value) -> Value {
        let response = self.post(&format!("/c/{eci}/event-wait/{domain}/{name}"), attributes);
        assert_eq!(response.status, 200, "{}", response.body);
        response.json()["directives"].clone()
    }

    pub fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> Response {
        let mut stream = TcpStream::connect(self.running.as_ref().unwrap().address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = body.len();
        let request =
            format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).unwrap();
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).unwrap().parse().unwrap();
        let (mut length, mut headers) = (0, Vec::new());
        loop {
            line.clear();
            stream.read_line(&mut line).unwrap();
            if line == "\r\n" {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            headers.push(line.trim().to_owned());
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).unwrap();
        Response {
            status,
            headers,
            body: String::from_utf8(body).unwrap(),
        }
    }
}

/// The ECI of the channel with these tags, in what `pico` answers.
#[allow(dead_code, reason = "shared by tests, each using some")]
pub fn tagged(pico: &Value, tags: &[&str]) -> String {
    let channels = pico["channels"].as_array().unwrap();
    let found = channels
        .iter()
        .find(|channel| channel["tags"] == serde_json::json!(tags));
    text(&found.unwrap_or_else(|| panic!("no channel {tags:?}"))["id"])
}

pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop();
    }
}
