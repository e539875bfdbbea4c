//! The service on an engine in memory, and a client that shows every byte of an answer's body.

use shows::available::AvailableShows;
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

/// A service that hangs is a failed test, not a hung one.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Service {
    engine: Engine,
    running: Option<Running>,
}

impl Service {
    pub fn start() -> Self {
        let journal = MemoryJournal::new();
        let store = MemoryStore::new(journal.clone());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let engine = runtime
            .block_on(shows::kinds(Engine::builder()).start(journal, store))
            .unwrap();
        let running = Gateway::builder(engine.clone())
            .routes(shows::routes(engine.clone()))
            .start()
            .unwrap();
        Self {
            engine,
            running: Some(running),
        }
    }

    #[allow(dead_code, reason = "shared by tests, each using some")]
    pub fn address(&self) -> std::net::SocketAddr {
        self.running.as_ref().unwrap().address()
    }

    /// Waits until the read model has everything that is durable.
    #[allow(dead_code, reason = "shared by tests, each using some")]
    pub fn caught_up(&self) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert!(runtime.block_on(self.engine.read_model::<AvailableShows>().caught_up()));
    }

    pub fn get(&self, path: &str) -> (u16, String) {
        self.exchange("GET", path, "", "")
    }

    #[allow(dead_code, reason = "shared by tests, each using some")]
    pub fn post(&self, path: &str, body: &str) -> (u16, String) {
        self.send("POST", path, body)
    }

    #[allow(dead_code, reason = "shared by tests, each using some")]
    pub fn change(&self, show: &str, seat: i32, action: &str) -> (u16, String) {
        let body = format!(r#"{{"action":"{action}"}}"#);
        self.send("PATCH", &format!("/shows/{show}/seats/{seat}"), &body)
    }

    #[allow(dead_code, reason = "shared by tests, each using some")]
    pub fn send(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        self.exchange(method, path, "content-type: application/json\r\n", body)
    }

    pub fn exchange(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.running.as_ref().unwrap().address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\naccept: application/json\r\n{headers}content-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).unwrap().parse().unwrap();
        let mut length = None;
        while line != "\r\n" {
            line.clear();
            stream.read_line(&mut line).unwrap();
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = Some(value.trim().parse().unwrap());
            }
        }
        let mut body = vec![0; length.expect("every answer says its length")];
        stream.read_exact(&mut body).unwrap();
        (status, String::from_utf8(body).unwrap())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop_blocking();
        }
    }
}
