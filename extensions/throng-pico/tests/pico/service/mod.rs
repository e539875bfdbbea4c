//! An engine with picos in memory behind HTTP, and a client for it.

use serde_json::Value;
use std::{
    io::{BufRead, BufReader, Lines, Write},
    net::TcpStream,
};
use throng::{
    Engine, Options,
    journal::{MemoryJournal, MemoryStore},
};
use throng_http::{Gateway, Running};
use throng_pico::{Picos, Settings};
use throng_testing::{JSON, PATIENCE, Response, request, start_on};

pub struct Service {
    running: Option<Running>,
    end: Option<Box<dyn FnOnce() + Send>>,
    journal: MemoryJournal,
    store: MemoryStore,
    settings: Settings,
    options: Options,
}

#[allow(dead_code, reason = "shared by tests, each using some")]
impl Service {
    pub fn start(settings: Settings) -> Self {
        Self::with(settings, Options::default())
    }

    pub fn with(settings: Settings, options: Options) -> Self {
        let journal = MemoryJournal::new();
        let store = MemoryStore::new(journal.clone());
        Self::on(journal, store, settings, options)
    }

    fn on(journal: MemoryJournal, store: MemoryStore, settings: Settings, options: Options) -> Self {
        let builder = throng_pico::kinds(Engine::builder()).options(options.clone());
        let engine = start_on(builder, journal.clone(), store.clone());
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
            options,
        }
    }

    /// Ends the service, and starts it again on the same data.
    pub fn again(mut self) -> Self {
        self.stop();
        let (journal, store) = (self.journal.clone(), self.store.clone());
        Self::on(journal, store, self.settings.clone(), self.options.clone())
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
        self.send("POST", path, JSON, &body.to_string())
    }

    /// Returns the root's console channel.
    pub fn ui(&self) -> String {
        text(&self.get("/api/ui-context").json()["eci"])
    }

    /// Returns the root's own channel, which allows everything.
    pub fn root(&self) -> String {
        let pico = self.query(&self.ui(), "io.picolabs.pico-engine-ui", "pico", "");
        tagged(&pico, &["system", "self"])
    }

    /// Returns the answer to a query.
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

    /// Opens a live stream of a path, and returns its events.
    pub fn live(&self, path: &str, headers: &str) -> Live {
        let mut stream = TcpStream::connect(self.running.as_ref().unwrap().address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n{headers}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        Live(BufReader::new(stream).lines())
    }

    pub fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> Response {
        request(self.running.as_ref().unwrap().address(), method, path, headers, body).unwrap()
    }
}

/// A live stream of events.
pub struct Live(Lines<BufReader<TcpStream>>);

#[allow(dead_code, reason = "shared by tests, each using some")]
impl Live {
    /// Returns the next event with its id; `None` once the stream has ended properly.
    pub fn next(&mut self) -> Option<(u64, Value)> {
        let mut id = 0;
        for line in self.0.by_ref() {
            let line = line.unwrap();
            match (line.strip_prefix("id: "), line.strip_prefix("data: "), line.as_str()) {
                (Some(number), _, _) => id = number.parse().unwrap(),
                (_, Some(json), _) => return Some((id, serde_json::from_str(json).unwrap())),
                // The last chunk.
                (_, _, "0") => return None,
                _ => {}
            }
        }
        panic!("the stream was cut")
    }
}

/// Waits for something that a message brings, since nothing signals its arrival.
#[allow(dead_code, reason = "shared by tests, each using some")]
pub fn until(what: impl Fn() -> bool) {
    throng_testing::until("it comes", what);
}

/// Returns the ECI of the channel with these tags, from an answer about the pico.
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
