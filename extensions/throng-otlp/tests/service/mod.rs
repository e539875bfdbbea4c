//! A service whose relays send messages to counters, and a projection of the counters.

use crate::collector::{Collector, Received};
use axum::{
    Extension,
    extract::{Path, State},
    http::StatusCode,
    routing::get,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};
use throng::{
    Engine,
    model::*,
    projection::{DurableEvent, Interrupt, Projection, Rows},
    spans::{TraceContext, TraceOptions, Tracer},
};
use throng_http::{Described, Gateway, Route, Running};
use throng_otlp::Exporter;
use throng_testing::{
    Client, PATIENCE,
    fixtures::{self, Counter, Dislike},
};
use tokio_tungstenite::tungstenite::{self, client::IntoClientRequest as _};

#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Relay;

#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) enum Command {
    Pass { to: String },
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) enum RelayEvent {
    Passed {},
}
impl Event for RelayEvent {}

impl Entity for Relay {
    const KIND: &'static str = "relay";
    const PUBLIC: &'static [&'static str] = &["Pass"];
    type Id = String;
    type Command = Command;
    type Event = RelayEvent;
    type Reply = ();
    type Rejection = Dislike;

    fn decide(&self, Command::Pass { to }: Command, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Dislike> {
        turn.emit(RelayEvent::Passed {});
        turn.send::<Counter>(to, fixtures::Command::Hit {});
        Ok(CommandAnswer::after(|_: &Self| ()))
    }

    fn evolve(&mut self, _: &RelayEvent) {}
}

/// A provider that answers with the context it receives.
pub(crate) struct Echo;

impl Outside for Echo {
    const NAME: &'static str = "echo";
    type Request = Wanted;
    type Answer = Option<String>;
    type Failure = ();

    async fn call(&self, wanted: Wanted, attempt: &Attempt) -> Result<Option<String>, CallError<()>> {
        match wanted {
            Wanted::Answer => Ok(attempt.trace.map(|trace| trace.to_string())),
            Wanted::Nothing => Err(CallError::NotSent("nobody is there".into())),
        }
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) enum Wanted {
    Answer,
    Nothing,
}

/// Makes calls, and keeps the context that the provider received.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Asker {
    told: Option<String>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) enum AskerCommand {
    Ask { wanted: Wanted },
    Tell { told: Option<String> },
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) enum AskerEvent {
    Told { told: Option<String> },
}
impl Event for AskerEvent {}

impl Entity for Asker {
    const KIND: &'static str = "asker";
    const PUBLIC: &'static [&'static str] = &["Ask"];
    type Id = String;
    type Command = AskerCommand;
    type Event = AskerEvent;
    type Reply = ();
    type Rejection = Dislike;

    fn decide(&self, command: AskerCommand, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Dislike> {
        match command {
            AskerCommand::Ask { wanted } => drop(turn.call::<Echo>(wanted)),
            AskerCommand::Tell { told } => turn.emit(AskerEvent::Told { told }),
        }
        Ok(CommandAnswer::after(|_: &Self| ()))
    }

    fn evolve(&mut self, AskerEvent::Told { told }: &AskerEvent) {
        self.told.clone_from(told);
    }
}

impl OnCallOutcome<Echo> for Asker {
    fn on_call_outcome(_: CallId, outcome: CallOutcome<Option<String>, ()>) -> AskerCommand {
        let told = match outcome {
            CallOutcome::Answered(told) => told,
            _ => None,
        };
        AskerCommand::Tell { told }
    }

    fn on_late_answer(_: CallId, _: Result<Option<String>, ()>) -> AskerCommand {
        AskerCommand::Tell { told: None }
    }
}

/// The query for the context that an asker's provider received.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
struct Told {}

impl Query<Asker> for Told {
    const NAME: &'static str = "told";
    type Answer = Option<String>;

    fn answer(self, asker: &Asker, _: &Moment<'_, Asker>) -> Result<Option<String>, Dislike> {
        Ok(asker.told.clone())
    }
}

/// Returns the service's own routes.
fn routes() -> axum::Router<Engine> {
    let hit = async |State(engine): State<Engine>, Path(id): Path<String>, span: Option<Extension<TraceContext>>| {
        let counter = engine.entity::<Counter>(id).traced(span.map(|Extension(span)| span));
        match counter.ask(fixtures::Command::Hit {}).await {
            Ok(hits) => Ok(hits.to_string()),
            Err(_) => Err(StatusCode::INTERNAL_SERVER_ERROR),
        }
    };
    axum::Router::new()
        .route("/shop/{id}/hit", get(hit))
        .route("/shop/{id}/fail", get(async || StatusCode::BAD_GATEWAY))
}

struct Hits;

impl Projection for Hits {
    const NAME: &'static str = "hits";
    type Of = Counter;

    fn apply(&self, seen: &DurableEvent<Counter>, rows: &mut Rows<'_>) -> Result<(), Interrupt> {
        rows.put_json(&seen.id, &seen.seq)
    }
}

pub(crate) struct Service {
    engine: Engine,
    gateway: Running,
    client: Client,
    exporter: Arc<Exporter>,
}

impl Service {
    /// Starts a traced service, and its collector.
    pub(crate) fn traced(options: TraceOptions) -> (Collector, Self) {
        let collector = Collector::start("200 OK");
        let exporter = Arc::new(Exporter::start(&collector.url(), "test").unwrap());
        let tracer = Arc::new(Tracer::new(exporter.clone(), options));
        let builder = Engine::builder()
            .with::<Relay>()
            .with::<Counter>()
            .with::<Asker>()
            .query::<Asker, Told>()
            .outside::<Asker, _>(Echo)
            .projection(Hits);
        let engine = throng_testing::in_memory(builder.tracer(tracer));
        let routes = routes().with_state(engine.clone());
        let described = Described::new("shop", "Its counters")
            .route(Route::get("/shop/{id}/hit", "Hits a counter"))
            .route(Route::get("/shop/{id}/fail", "Fails"));
        let gateway = Gateway::builder(engine.clone()).routes(routes).describe(described);
        let gateway = gateway.start().unwrap();
        let client = Client::connect(gateway.address()).unwrap();
        let service = Self {
            engine,
            gateway,
            client,
            exporter,
        };
        (collector, service)
    }

    #[track_caller]
    pub(crate) fn post(&mut self, path: &str, parent: Option<&str>, body: &str, status: u16) {
        let json = "content-type: application/json\r\n";
        let headers = match parent {
            Some(parent) => format!("{json}traceparent: {parent}\r\n"),
            None => json.to_owned(),
        };
        let response = self.client.request("POST", path, &headers, body).unwrap();
        assert_eq!(response.status, status, "{response:?}");
    }

    /// Sends this many requests at once, each to an entity of its own.
    pub(crate) fn pipelined(&mut self, count: usize, before: &str, after: &str) {
        let json = "content-type: application/json\r\n";
        for id in 0..count {
            self.client
                .send("POST", &format!("{before}{id}{after}"), json, "{}")
                .unwrap();
        }
        for _ in 0..count {
            assert_eq!(self.client.response().unwrap().status, 200);
        }
    }

    #[track_caller]
    pub(crate) fn get(&mut self, path: &str, parent: &str, status: u16) {
        let headers = format!("traceparent: {parent}\r\n");
        let response = self.client.request("GET", path, &headers, "").unwrap();
        assert_eq!(response.status, status, "{response:?}");
    }

    /// Waits for the context that an asker's provider received, and returns it.
    pub(crate) fn told(&self, asker: &str) -> String {
        let mut told = None;
        throng_testing::until("the provider's answer", || {
            let state = throng_testing::block_on(self.engine.entity::<Asker>(asker).read(Told {}));
            told = state.unwrap_or_default();
            told.is_some()
        });
        told.unwrap()
    }

    /// Hits a counter over a WebSocket.
    pub(crate) fn socket_command(&self, traceparent: &str) {
        self.socket(&serde_json::json!({
            "type": "command", "id": 1, "kind": "counter", "entity": "a", "command": "Hit", "body": {},
            "traceparent": traceparent,
        }));
    }

    /// Asks an asker over a WebSocket.
    pub(crate) fn socket_query(&self, traceparent: &str) {
        self.socket(&serde_json::json!({
            "type": "query", "id": 1, "kind": "asker", "entity": "a", "query": "told", "traceparent": traceparent,
        }));
    }

    /// Sends a message, and waits for its answer.
    fn socket(&self, message: &serde_json::Value) {
        let stream = std::net::TcpStream::connect(self.gateway.address()).unwrap();
        let request = format!("ws://{}/api/ws", self.gateway.address());
        let mut request = request.into_client_request().unwrap();
        let protocol = "throng.v1".parse().unwrap();
        request.headers_mut().insert("sec-websocket-protocol", protocol);
        let (mut socket, _) = tungstenite::client::client(request, stream).unwrap();
        socket.send(tungstenite::Message::text(message.to_string())).unwrap();
        loop {
            let told = socket.read().unwrap().into_text().unwrap();
            if told.contains("\"reply\"") {
                return;
            }
            assert!(!told.contains("problem"), "{told}");
        }
    }

    /// Returns the spans received by now.
    pub(crate) fn spans(&self, collector: &Collector) -> Vec<Received> {
        // A gateway exports a request's span before its answer, and the loop exports its batch's span soon after.
        assert!(self.exporter.flush(PATIENCE));
        collector.spans()
    }

    /// Waits for a span of this name. Returns all spans received by then.
    pub(crate) fn spans_with(&self, collector: &Collector, name: &str) -> Vec<Received> {
        throng_testing::until(name, || self.spans(collector).iter().any(|span| span.name == name));
        self.spans(collector)
    }

    pub(crate) fn stop(self) {
        self.gateway.stop_blocking();
        throng_testing::block_on(self.engine.stop());
        assert!(self.exporter.flush(Duration::from_secs(60)));
        assert_eq!(self.exporter.dropped(), 0);
    }
}
