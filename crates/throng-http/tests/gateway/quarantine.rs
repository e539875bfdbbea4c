//! An operator stops an entity that fills the engine with its own messages.

use crate::{
    console::until,
    support::{Client, engine_of},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use throng::{
    Options,
    model::{CommandAnswer, Entity, Event, Turn},
};
use throng_http::{Gateway, Running};
use throng_testing::fixtures::Never;

#[derive(Default, Serialize, Deserialize)]
struct Yeast {}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Command {
    Open {},
    /// Sends itself a hundred of these for a client, and one for each that arrives. They fill the engine without growing further.
    Divide {},
}

#[derive(Serialize, Deserialize, JsonSchema)]
enum YeastEvent {
    Opened {},
}
impl Event for YeastEvent {}

impl Entity for Yeast {
    const KIND: &'static str = "yeast";
    const PUBLIC: &'static [&'static str] = &["open", "divide"];
    type Id = String;
    type Command = Command;
    type Event = YeastEvent;
    type Reply = ();
    type Rejection = Never;

    fn decide(&self, command: Command, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
        match command {
            Command::Open {} => turn.emit(YeastEvent::Opened {}),
            Command::Divide {} => {
                let own = turn.id().clone();
                let copies = if turn.from().is_client() { 100 } else { 1 };
                (0..copies).for_each(|_| turn.send::<Self>(own.clone(), Command::Divide {}));
            }
        }
        Ok(CommandAnswer::Now(()))
    }

    fn evolve(&mut self, _: &YeastEvent) {}
}

/// Returns a service that yeast has filled.
fn full() -> (Running, Client) {
    let options = Options {
        outbox_max: 64,
        ..Options::default()
    };
    let engine = engine_of(|builder| builder.with::<Yeast>().options(options));
    let gateway = Gateway::builder(engine).start().unwrap();
    let mut client = Client::new(&gateway);
    for path in ["/api/yeast/bad/open", "/api/yeast/bad/divide"] {
        assert_eq!(client.post(path, "{}").status, 200);
    }
    while client.post("/api/section/S1/open", r#"{"capacity":9}"#).status == 200 {}
    client
        .post("/api/section/S1/open", r#"{"capacity":9}"#)
        .problem(503, "overloaded");
    (gateway, client)
}

fn is_served(client: &mut Client) {
    while client.post("/api/section/S1/open", r#"{"capacity":9}"#).status == 503 {}
}

fn named<'a>(items: &'a Value, member: &str, name: &str) -> &'a Value {
    let mut items = items.as_array().unwrap().iter();
    items.find(|item| item[member] == name).unwrap()
}

/// Does what the console's button of this name does, with a reason.
fn press(client: &mut Client, actions: &Value, name: &str) -> Value {
    let path = named(actions, "name", name)["path"].as_str().unwrap();
    let needs_reason = named(actions, "name", name)["needs_reason"] == true;
    let answer = client.post(
        &format!("{path}{}", if needs_reason { "&reason=it%20divides" } else { "" }),
        "",
    );
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

#[test]
fn entity_that_fills_the_engine_is_stopped_by_its_routes() {
    let (_gateway, mut client) = full();
    let of = "kind=yeast&id=bad";
    client
        .post(&format!("/admin/quarantine?{of}"), "")
        .problem(400, "malformed");
    let reasoned = format!("{of}&reason=it%20divides");
    let messages = format!("/admin/messages/drop?{reasoned}");
    client.post(&messages, "").problem(409, "not-quarantined");
    let quarantine = format!("/admin/quarantine?{reasoned}");
    client.get(&quarantine).problem(405, "method-not-allowed");
    assert_eq!(client.post(&quarantine, "").json(), json!({ "quarantined": true }));
    assert_eq!(client.post(&quarantine, "").json(), json!({ "quarantined": false }));
    is_served(&mut client);
    let refused = client.post("/api/yeast/bad/divide", "{}");
    refused.problem(500, "quarantined");
    assert!(refused.text().contains("by an operator") && !refused.text().contains("it divides"));
    // Messages that are only in the log are counted once they were read.
    let is_counted = |stuck: &Value| stuck["entities"][0]["waiting"].as_u64() >= Some(64);
    let stuck = until(&mut client, "/admin/stuck", is_counted);
    let listed = &stuck["entities"][0];
    assert_eq!(
        (&stuck["quarantined"], &listed["state"]),
        (&json!(1), &json!("quarantined"))
    );
    assert_eq!(
        (&listed["by"], &listed["reason"]),
        (&json!("local"), &json!("it divides"))
    );
    let dropped = client.post(&messages, "").json();
    assert!(dropped["dropped"].as_u64() >= Some(64), "{dropped}");
    assert_eq!(client.post(&messages, "").json(), json!({ "dropped": 0 }));
    let release = format!("/admin/release?{of}&reason=mended");
    assert_eq!(
        client.post(&release, "").json(),
        json!({ "released": true, "loaded": true, "reason": null })
    );
    assert_eq!(client.post("/api/yeast/bad/open", "{}").status, 200);
    assert_eq!(client.get("/admin/stuck").json()["entities"], json!([]));
    client
        .post("/admin/quarantine?kind=yeast&id=nobody&reason=x", "")
        .problem(404, "unknown-entity");
}

#[test]
fn console_names_the_entity_that_fills_the_engine() {
    let (_gateway, mut client) = full();
    let is_named = |trouble: &Value| {
        let items = trouble["items"].as_array().unwrap();
        items.iter().any(|item| item["type"] == "crowding")
    };
    let trouble = until(&mut client, "/admin/trouble", is_named);
    let crowding = named(&trouble["items"], "type", "crowding");
    assert_eq!((&crowding["kind"], &crowding["id"]), (&json!("yeast"), &json!("bad")));
    press(&mut client, &crowding["actions"], "quarantine");
    is_served(&mut client);
    let is_counted = |of_it: &Value| of_it["quarantine"]["waiting"].as_u64() >= Some(64);
    let of_it = until(&mut client, "/admin/entity/yeast/bad", is_counted);
    assert_eq!((&of_it["status"], &of_it["state"]), (&json!("quarantined"), &json!({})));
    assert_eq!(of_it["quarantine"]["by"], "local");
    assert_eq!(of_it["timers"], json!([]));
    let trouble = client.get("/admin/trouble").json();
    let quarantined = named(&trouble["items"], "type", "quarantined");
    assert!(quarantined["what"].as_str().unwrap().starts_with("by local; about "));
    assert!(press(&mut client, &quarantined["actions"], "drop-messages")["dropped"].as_u64() >= Some(64));
    assert!(press(&mut client, &of_it["actions"], "erase")["records"].as_u64() > Some(0));
    client.post("/api/yeast/bad/divide", "{}").problem(410, "ended");
    assert_eq!(client.get("/admin/stuck").json()["entities"], json!([]));
}

#[test]
fn full_engine_erases_the_entity_that_fills_it() {
    let (_gateway, mut client) = full();
    let erased = client.post("/admin/erase?kind=yeast&id=bad", "").json();
    assert!(erased["records"].as_u64() > Some(0), "{erased}");
    is_served(&mut client);
}
