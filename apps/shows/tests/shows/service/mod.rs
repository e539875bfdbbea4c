//! The service on an engine in memory, and a client that returns the exact bytes of a body.

use shows::available::AvailableShows;
use throng::Engine;
use throng_http::{Gateway, Running};
use throng_testing::{JSON, block_on, in_memory, request};

pub struct Service {
    engine: Engine,
    running: Option<Running>,
}

impl Service {
    pub fn start() -> Self {
        let engine = in_memory(shows::kinds(Engine::builder()));
        let running = Gateway::builder(engine.clone())
            .routes(shows::routes(engine.clone()))
            .start()
            .unwrap();
        Self {
            engine,
            running: Some(running),
        }
    }

    pub fn address(&self) -> std::net::SocketAddr {
        self.running.as_ref().unwrap().address()
    }

    /// Waits until the read model has everything that is durable.
    pub fn caught_up(&self) {
        assert!(block_on(self.engine.read_model::<AvailableShows>().caught_up()));
    }

    pub fn get(&self, path: &str) -> (u16, String) {
        self.exchange("GET", path, "", "")
    }

    pub fn post(&self, path: &str, body: &str) -> (u16, String) {
        self.send("POST", path, body)
    }

    pub fn change(&self, show: &str, seat: i32, action: &str) -> (u16, String) {
        let body = format!(r#"{{"action":"{action}"}}"#);
        self.send("PATCH", &format!("/shows/{show}/seats/{seat}"), &body)
    }

    pub fn send(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        self.exchange(method, path, JSON, body)
    }

    pub fn exchange(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
        let headers = format!("accept: application/json\r\n{headers}");
        let response = request(self.address(), method, path, &headers, body).unwrap();
        (response.status, response.body)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop_blocking();
        }
    }
}
