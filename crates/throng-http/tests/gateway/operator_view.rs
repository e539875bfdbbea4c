//! The console's API shows the truth: load, latency, outcomes of actions, contents of dead messages.

use crate::{
    console::until,
    support::{Client, engine_of, plain, start, wait},
};
use axum::{Router, routing::get};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use throng::{
    Engine,
    journal::{MemoryJournal, MemoryStore},
    model::{CommandAnswer, Entity, Event, Rejection, Turn},
};
use throng_http::{Gateway, Running};

/// Waits for two more points. Returns all columns.
fn after_two_points(client: &mut Client) -> Value {
    let points = |all: &Value| all["times"].as_array().unwrap().len();
    let before = points(&client.get("/admin/series").json());
    until(client, "/admin/series", |all| points(all) >= before + 2)
}

fn has_latency(all: &Value) -> bool {
    let column = all["series"]["latency_p99_ms"].as_array().unwrap();
    column.iter().any(Value::is_number)
}

#[test]
fn latency_counts_the_routes_of_an_app_and_no_administration() {
    let routes = Router::new().route("/shows", get(async || "none"));
    let gateway = Gateway::builder(engine_of(|builder| builder)).routes(routes);
    let gateway = gateway.admin(([127, 0, 0, 1], 0).into()).start().unwrap();
    let mut operator = Client::of(gateway.admin_address().unwrap());
    for path in ["/admin/map", "/health/ready", "/console/", "/shows"] {
        assert_eq!(operator.get(path).status, 200, "{path}");
    }
    assert!(!has_latency(&after_two_points(&mut operator)));
    assert_eq!(Client::new(&gateway).get("/shows").status, 200);
    assert!(has_latency(&after_two_points(&mut operator)));
}

/// Enough queries that some are sampled.
const LOOKS: usize = 400;

#[test]
fn inspection_of_an_entity_is_no_load_of_the_service() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    client.post("/api/section/S1/open", r#"{"capacity":9}"#);
    let before = gateway.engine().statistics();
    for _ in 0..LOOKS {
        assert_eq!(client.get("/admin/entity/section/S1").status, 200);
    }
    let now = gateway.engine().statistics();
    assert_eq!((now.queries, now.done), (before.queries, before.done));
    // The command that opened it may be sampled once, which counts as 32 in the window of four seconds.
    let hot = client.get("/admin/hot").json();
    assert!(hot["per_second"].as_f64() <= Some(8.0), "{hot}");
    assert_eq!(client.get("/api/section/S1").status, 200);
    assert_eq!(gateway.engine().statistics().queries, before.queries + 1);
}

#[test]
fn dead_message_shows_its_content_attempts_and_first_death() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    client.post("/api/section/S1/open", r#"{"capacity":9}"#);
    client.post("/api/section/S1/recommend", r#"{"to":"S2","student":"7"}"#);
    let first = until(&mut client, "/admin/trouble", |trouble| trouble["total"] == 1)["items"][0].take();
    let message = &first["message"];
    assert_eq!(
        (&message["name"], &message["sender"], &message["attempts"]),
        (
            &json!("add_student"),
            &json!({ "kind": "section", "id": "S1" }),
            &json!(1)
        )
    );
    assert_eq!(
        (&message["body"], &message["died_at"]),
        (&json!({ "student": "7" }), &first["since"])
    );
    let tried = client.post(first["actions"][0]["path"].as_str().unwrap(), "").json();
    assert_eq!(tried["retried"][0]["outcome"], "dead");
    let again = client.get("/admin/trouble").json()["items"][0].take();
    assert_eq!(
        (&again["number"], &again["since"]),
        (&first["number"], &first["since"]),
        "it waits since its first death"
    );
    assert_eq!(again["message"]["attempts"], 2);
    let dead = client.get("/admin/dead").json()["messages"][0].take();
    assert_eq!((&dead["first_at"], &dead["attempts"]), (&first["since"], &json!(2)));
    assert_eq!(dead["at"], again["message"]["died_at"]);

    // A large body is only in the export.
    let student = "x".repeat(4_000);
    let body = json!({ "to": "S2", "student": student }).to_string();
    client.post("/api/section/S1/recommend", &body);
    let all = until(&mut client, "/admin/trouble", |trouble| trouble["total"] == 2);
    let large = &all["items"][1]["message"];
    assert_eq!(large["body"], Value::Null);
    assert!(large["body_bytes"].as_u64() > Some(4_000), "{large}");
}

#[test]
fn curves_survive_a_restart_on_the_same_directory() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().to_str().unwrap();
    let started = || start(|gateway| gateway.journal_place("directory", place));
    let gateway = started();
    let mut client = Client::new(&gateway);
    let before = until(&mut client, "/admin/series", |all| all["times"] != json!([]));
    let is_recorded =
        || std::fs::read_to_string(dir.path().join("console-series")).is_ok_and(|text| text.lines().count() > 1);
    while !is_recorded() {
        std::thread::yield_now();
    }
    gateway.stop_blocking();
    let gateway = started();
    // The earlier points are there by the gateway's second own point.
    let is_restored = |all: &Value| all["times"].as_array().unwrap().len() >= 3;
    let all = until(&mut Client::new(&gateway), "/admin/series", is_restored);
    assert_eq!(all["times"][0], before["times"][0]);
    assert_eq!(all["series"]["commands"][0], before["series"]["commands"][0]);
}

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Command {
    Grow {},
}

#[derive(Debug, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("no")]
struct Never;
impl Rejection for Never {
    fn code(&self) -> &'static str {
        "never"
    }
}

/// Defines a program, or its predecessor, which does not know the other's event.
macro_rules! program {
    ($name:ident, $event:ident, $happened:ident) => {
        #[derive(Default, Serialize, Deserialize)]
        struct $name {}

        #[derive(Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        enum $event {
            $happened {},
        }
        impl Event for $event {}

        impl Entity for $name {
            const KIND: &'static str = "fruit";
            const PUBLIC: &'static [&'static str] = &["grow"];
            type Id = String;
            type Command = Command;
            type Event = $event;
            type Reply = ();
            type Rejection = Never;

            fn decide(
                &self,
                Command::Grow {}: Command,
                turn: &mut Turn<'_, Self>,
            ) -> Result<CommandAnswer<Self>, Never> {
                turn.emit($event::$happened {});
                Ok(CommandAnswer::Now(()))
            }

            fn evolve(&mut self, _: &$event) {}
        }
    };
}
program!(Newer, NewerEvent, Ripened);
program!(Older, OlderEvent, Grown);

/// Starts a service of this program on the data of the others.
fn serve<E: Entity>(journal: &MemoryJournal, store: &MemoryStore) -> (Running, Client) {
    let engine = wait(Engine::builder().with::<E>().start(journal.clone(), store.clone())).unwrap();
    let gateway = Gateway::builder(engine).start().unwrap();
    let client = Client::new(&gateway);
    (gateway, client)
}

#[test]
fn release_tells_that_an_entity_still_cannot_be_loaded() {
    let journal = MemoryJournal::new();
    let store = MemoryStore::new(journal.clone());
    let (gateway, mut client) = serve::<Newer>(&journal, &store);
    assert_eq!(client.post("/api/fruit/fig/grow", "{}").status, 200);
    gateway.stop_blocking();

    let (gateway, mut client) = serve::<Older>(&journal, &store);
    client.post("/api/fruit/fig/grow", "{}").problem(500, "quarantined");
    let trouble = client.get("/admin/trouble").json();
    let item = &trouble["items"][0];
    assert_eq!(
        (&item["type"], &item["actions"][0]["label"]),
        (&json!("quarantined"), &json!("Load again"))
    );
    let came = client.post(item["actions"][0]["path"].as_str().unwrap(), "").json();
    assert_eq!(
        (&came["released"], &came["loaded"]),
        (&json!(true), &json!(false)),
        "{came}"
    );
    assert_eq!(came["reason"], item["reason"]);
    let again = client.get("/admin/trouble").json()["items"][0].take();
    assert_eq!((&again["id"], &again["since"]), (&json!("fig"), &item["since"]));
    gateway.stop_blocking();

    let (_gateway, mut client) = serve::<Newer>(&journal, &store);
    assert_eq!(client.post("/api/fruit/fig/grow", "{}").status, 200);
    let quarantine = "/admin/quarantine?kind=fruit&id=fig&reason=looks%20odd";
    assert_eq!(client.post(quarantine, "").json(), json!({ "quarantined": true }));
    let released = client.post("/admin/release?kind=fruit&id=fig", "").json();
    assert_eq!(released, json!({ "released": true, "loaded": true, "reason": null }));
}
