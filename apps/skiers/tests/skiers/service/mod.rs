//! The service on an engine in memory, and a client that returns the exact bytes of a body.

use skiers::{
    number::Number,
    resort::{GetResort, Resort},
    resort_day::{GetResortDay, ResortDay},
    ride::ResortDayId,
};
use throng::Engine;
use throng_http::{Gateway, Running};
use throng_testing::{JSON, block_on, in_memory, request, until};

pub struct Service {
    engine: Engine,
    running: Option<Running>,
}

impl Service {
    pub fn start() -> Self {
        let engine = in_memory(skiers::kinds(Engine::builder()));
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

    /// Waits until a resort's day has counted this many rides.
    pub fn arrived(&self, day: &str, rides: u64) {
        let day: ResortDayId = day.parse().unwrap();
        until("the rides are counted", || self.rides_of(day) == rides);
    }

    /// Waits until a resort has a season.
    pub fn has_season(&self, resort: u32, season: u32) {
        until("the resort has the season", || {
            let found = block_on(self.engine.entity::<Resort>(Number(resort)).read(GetResort {}));
            found.is_ok_and(|found| found.seasons.contains(&season))
        });
    }

    /// Returns the number of rides that all days of a season have counted.
    pub fn rides(&self, resort: u32, season: u32) -> u64 {
        let days = (1..=366).map(|day| ResortDayId { resort, season, day });
        days.map(|day| self.rides_of(day)).sum()
    }

    fn rides_of(&self, day: ResortDayId) -> u64 {
        let found = block_on(self.engine.entity::<ResortDay>(day).read(GetResortDay {}));
        found.map_or(0, |found| found.rides)
    }

    pub fn get(&self, path: &str) -> (u16, String) {
        self.exchange("GET", path, "", "")
    }

    pub fn post(&self, path: &str, body: &str) -> (u16, String) {
        self.send("POST", path, body)
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
