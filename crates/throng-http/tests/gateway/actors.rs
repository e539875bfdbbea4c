//! Actors over HTTP and WebSocket, and the checks of an app's services.

use crate::support::{Client, socket::Socket, wait};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::time::Duration;
use throng::{
    Engine,
    journal::{MemoryJournal, MemoryStore},
    model::{Actor, Rejection, Timestamp},
};
use throng_http::{Gateway, Running};

pub(crate) struct Rate(u64);

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RateCommand {
    /// Counts so many.
    CountMany { hits: u64 },
}

#[derive(Debug, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("at most 10 are counted, these would be {0}")]
pub(crate) struct TooMany(u64);

impl Rejection for TooMany {
    fn code(&self) -> &'static str {
        "too-many"
    }
    fn status(&self) -> u16 {
        429
    }
}

impl Actor for Rate {
    const KIND: &'static str = "rate";
    const PUBLIC: &'static [&'static str] = &["count_many"];
    type Id = String;
    type Command = RateCommand;
    type Reply = u64;
    type Rejection = TooMany;

    fn start(_: &String) -> Self {
        Self(0)
    }

    fn receive(&mut self, RateCommand::CountMany { hits }: RateCommand, _: Timestamp) -> Result<u64, TooMany> {
        let all = self.0 + hits;
        if all > 10 {
            return Err(TooMany(all));
        }
        self.0 = all;
        Ok(all)
    }
}

fn with_rates() -> Running {
    let journal = MemoryJournal::new();
    let store = MemoryStore::new(journal.clone());
    let engine = wait(Engine::builder().actor::<Rate>().start(journal, store)).unwrap();
    Gateway::builder(engine).start().unwrap()
}

#[test]
fn an_actor_has_the_routes_of_its_commands_only() {
    let gateway = with_rates();
    let mut client = Client::new(&gateway);
    for (hits, expected) in [(3, "3"), (4, "7")] {
        let body = json!({ "hits": hits }).to_string();
        let answer = client.post("/api/rate/anna/count-many", &body);
        assert_eq!((answer.status, answer.json().to_string()), (200, expected.to_owned()));
    }
    let refused = client.post("/api/rate/anna/count_many", r#"{"hits":4}"#);
    assert_eq!(refused.problem(429, "too-many")["rejection"], 11);
    client
        .post("/api/rate/anna/count-many", r#"{"hits":-1}"#)
        .problem(400, "malformed");
    client.post("/api/rate/anna/events", "").problem(404, "unknown-command");
    for path in ["/api/rate", "/api/rate/anna", "/api/rate/anna/events"] {
        let problem = client.get(path).problem(404, "unknown-query");
        assert!(
            problem["detail"].as_str().unwrap().contains("one of actors"),
            "{problem}"
        );
    }
    let document = client.get("/openapi.json").json();
    let post = &document["paths"]["/api/rate/{id}/count_many"]["post"];
    assert_eq!(post["summary"], "Counts so many.");
    gateway.stop_blocking();
}

#[test]
fn an_actor_is_asked_over_a_socket() {
    let gateway = with_rates();
    let mut socket = Socket::new(&gateway);
    let count = |id: u64, hits: u64| json!({ "type": "command", "id": id, "kind": "rate", "entity": "ben", "command": "count_many", "body": { "hits": hits } });
    socket.send(&json!([count(1, 5), count(2, 6), count(3, 5)]));
    let told: Vec<_> = (0..3).map(|_| socket.next()).collect();
    assert_eq!((&told[0]["body"], &told[2]["body"]), (&json!(5), &json!(10)));
    assert_eq!(told[1]["problem"]["type"], "/problems/too-many");
    gateway.stop_blocking();
}

#[test]
fn a_registered_check_decides_readiness() {
    let gateway = with_rates();
    let mut client = Client::new(&gateway);
    let bank = gateway
        .engine()
        .checks()
        .register("bank", Some(Duration::from_secs(3_600)));
    assert_eq!(client.get("/health/ready").status, 200, "nothing is known yet");
    bank.fail("it does not answer");
    let ready = client.get("/health/ready");
    assert_eq!(
        (ready.status, ready.json()["reason"].as_str()),
        (503, Some("bank fails: it does not answer"))
    );
    let metrics = client.get("/metrics");
    assert!(
        metrics.text().contains(r#"throng_check{name="bank",status="FAIL"} 1"#),
        "{}",
        metrics.text()
    );
    bank.pass();
    assert_eq!(client.get("/health/ready").status, 200);
    gateway.stop_blocking();
}
