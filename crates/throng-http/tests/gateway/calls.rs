//! Operators and calls to external providers.

use crate::{
    console::until,
    support::{Client, engine_of},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{future, time::Duration};
use throng::model::*;
use throng_http::Gateway;
use throng_testing::fixtures::Never;

#[derive(Default, Serialize, Deserialize)]
struct Order {
    heard: Vec<String>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum OrderCommand {
    Pay {},
    Hear { text: String },
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum OrderEvent {
    Called { call: CallId },
    Heard { text: String },
}
impl Event for OrderEvent {}

impl Entity for Order {
    const KIND: &'static str = "order";
    const PUBLIC: &'static [&'static str] = &["pay"];
    type Id = String;
    type Command = OrderCommand;
    type Event = OrderEvent;
    type Reply = Option<CallId>;
    type Rejection = Never;

    fn decide(&self, command: OrderCommand, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
        match command {
            OrderCommand::Pay {} => {
                let call = turn.call::<Silent>(()).id();
                turn.emit(OrderEvent::Called { call });
                Ok(CommandAnswer::Now(Some(call)))
            }
            OrderCommand::Hear { text } => {
                turn.emit(OrderEvent::Heard { text });
                Ok(CommandAnswer::Now(None))
            }
        }
    }

    fn evolve(&mut self, event: &OrderEvent) {
        if let OrderEvent::Heard { text } = event {
            self.heard.push(text.clone());
        }
    }
}

impl OnCallOutcome<Silent> for Order {
    fn on_call_outcome(_: CallId, outcome: CallOutcome<(), ()>) -> OrderCommand {
        let text = format!("{outcome:?}");
        OrderCommand::Hear { text }
    }

    fn on_late_answer(_: CallId, _: Result<(), ()>) -> OrderCommand {
        let text = "late".into();
        OrderCommand::Hear { text }
    }
}

/// A provider. Its first request is not sent, and later ones are never answered.
struct Silent;

impl Outside for Silent {
    const NAME: &'static str = "silent";
    const PAUSE: (Duration, Duration) = (Duration::from_secs(3_000), Duration::from_secs(3_000));
    type Request = ();
    type Answer = ();
    type Failure = ();

    async fn call(&self, (): (), attempt: &Attempt) -> Result<(), CallError<()>> {
        match attempt.number {
            1 => Err(CallError::NotSent("no connection".into())),
            _ => future::pending().await,
        }
    }
}

#[test]
fn operator_has_a_call_attempted_and_gives_it_up() {
    let engine = engine_of(|builder| builder.with::<Order>().outside::<Order, Silent>(Silent));
    let gateway = Gateway::builder(engine).start().unwrap();
    let mut client = Client::new(&gateway);
    let call = client.post("/api/order/7/pay", "").json();
    let call = call.as_str().unwrap();
    let page = format!("/admin/entity/call-silent/{call}");
    let attempt = format!("/admin/call/attempt?kind=call-silent&id={call}");
    let give_up = format!("/admin/call/give-up?kind=call-silent&id={call}");

    let is_paused = |found: &Value| found["state"]["attempts"] == 1 && !found["state"]["stage"]["Ready"].is_null();
    let paused = until(&mut client, &page, is_paused);
    let actions = paused["actions"].as_array().unwrap().iter();
    let names: Vec<_> = actions.map(|action| action["name"].clone()).collect();
    assert_eq!(names, ["attempt", "give-up", "quarantine", "erase"]);
    assert_eq!(client.post(&attempt, "").json(), json!({ "offered": true }));
    until(&mut client, &page, |found| found["state"]["attempts"] == 2);
    let overview = until(&mut client, "/admin/overview", |overview| {
        overview["calls"][0]["failed_minute"] == 1 && overview["calls"][0]["attempts_minute"] == 2
    });
    let shown = &overview["calls"][0];
    assert_eq!(
        (&shown["worker"], &shown["kind"]),
        (&json!("silent"), &json!("call-silent"))
    );
    assert_eq!((&shown["under_way"], &shown["waiting"]), (&json!(1.0), &json!(0.0)));
    assert_eq!(shown["open"], 1.0);
    let called = client.get("/admin/entity/order/7/history").json();
    let sent = &called["events"][0]["sent"][0]["to"];
    assert_eq!(*sent, json!({ "kind": "call-silent", "id": call }));

    client.post(&attempt, "").problem(409, "under-way");
    client.post(&format!("{give_up}&reason="), "").problem(400, "malformed");
    let given_up = client.post(&format!("{give_up}&reason=gone"), "").json();
    assert_eq!(given_up, json!({ "outcome": "unknown" }));
    until(&mut client, "/admin/overview", |overview| {
        overview["calls"][0]["open"] == 0.0
    });
    client.post(&format!("{give_up}&reason=gone"), "").problem(409, "over");
    until(&mut client, "/admin/entity/order/7", |order| {
        order["state"]["heard"].to_string().contains("has given it up: gone")
    });
    client
        .post("/admin/call/attempt?kind=order&id=7", "")
        .problem(409, "no-call");
}
