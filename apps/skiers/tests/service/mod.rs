//! The service on an engine in memory, and a client that shows every byte of an answer's body.

#![allow(dead_code, reason = "shared by tests, each using some")]

use skiers::{
    number::Number,
    resort::{GetResort, Resort},
    resort_day::{GetResortDay, ResortDay},
    ride::ResortDayId,
};
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
            .block_on(skiers::kinds(Engine::builder()).start(journal, store))
            .unwrap();
        let running = Gateway::builder(engine.clone())
            .routes(skiers::routes(engine.clone()))
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

    /// Waits until a day of a resort has counted so many rides.
    pub fn arrived(&self, day: &str, rides: u64) {
        let day: ResortDayId = day.parse().unwrap();
        self.until(|| self.rides_of(day) == rides);
    }

    /// Waits until a resort has a season.
    pub fn has_season(&self, resort: u32, season: u32) {
        self.until(|| {
            let found = block_on(self.engine.entity::<Resort>(Number(resort)).read(GetResort {}));
            found.is_ok_and(|found| found.seasons.contains(&season))
        });
    }

    /// Rides that all days of a season have counted.
    pub fn rides(&self, resort: u32, season: u32) -> u64 {
        let days = (1..=366).map(|day| ResortDayId { resort, season, day });
        days.map(|day| self.rides_of(day)).sum()
    }

    fn rides_of(&self, day: ResortDayId) -> u64 {
        let found = block_on(self.engine.entity::<ResortDay>(day).read(GetResortDay {}));
        found.map_or(0, |found| found.rides)
    }

    pub fn until(&self, is_so: impl Fn() -> bool) {
        let begun = std::time::Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < PATIENCE, "it did not come to be so");
            std::thread::yield_now();
        }
    }

    pub fn get(&self, path: &str) -> (u16, String) {
        self.exchange("GET", path, "", "")
    }

    pub fn post(&self, path: &str, body: &str) -> (u16, String) {
        self.send("POST", path, body)
    }

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

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(future)
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop_blocking();
        }
    }
}
