//! A service whose relays send messages to counters, and a projection of the counters.

use crate::collector::{Collector, Received};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};
use throng::{
    Engine,
    model::*,
    projection::{DurableEvent, Interrupt, Projection, Rows},
    spans::{TraceOptions, Tracer},
};
use throng_http::{Gateway, Running};
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

    fn decide(&self, Command::Pass { to }: Command, turn: &mut Turn<'_, Self>) -> Result<Answer<Self>, Dislike> {
        turn.emit(RelayEvent::Passed {});
        turn.send::<Counter>(to, fixtures::Command::Hit {});
        Ok(Answer::after(|_: &Self| ()))
    }

    fn evolve(&mut self, _: &RelayEvent) {}
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
    /// Starts one that is traced, and its collector.
    pub(crate) fn traced(options: TraceOptions) -> (Collector, Self) {
        let collector = Collector::start("200 OK");
        let exporter = Arc::new(Exporter::start(&collector.url(), "test").unwrap());
        let tracer = Arc::new(Tracer::new(exporter.clone(), options));
        let builder = Engine::builder().with::<Relay>().with::<Counter>().projection(Hits);
        let engine = throng_testing::in_memory(builder.tracer(tracer));
        let gateway = Gateway::builder(engine.clone()).start().unwrap();
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

    /// Hits a counter over a WebSocket.
    pub(crate) fn socket_command(&self, traceparent: &str) {
        let stream = std::net::TcpStream::connect(self.gateway.address()).unwrap();
        let request = format!("ws://{}/api/ws", self.gateway.address());
        let mut request = request.into_client_request().unwrap();
        let protocol = "throng.v1".parse().unwrap();
        request.headers_mut().insert("sec-websocket-protocol", protocol);
        let (mut socket, _) = tungstenite::client::client(request, stream).unwrap();
        let command = serde_json::json!({
            "type": "command", "id": 1, "kind": "counter", "entity": "a", "command": "Hit", "body": {},
            "traceparent": traceparent,
        });
        socket.send(tungstenite::Message::text(command.to_string())).unwrap();
        loop {
            let told = socket.read().unwrap().into_text().unwrap();
            if told.contains("\"reply\"") {
                return;
            }
            assert!(!told.contains("problem"), "{told}");
        }
    }

    /// The spans that have come by now.
    pub(crate) fn spans(&self, collector: &Collector) -> Vec<Received> {
        // A gateway exports a request's span before its answer, and the loop that of its batch soon after.
        assert!(self.exporter.flush(PATIENCE));
        collector.spans()
    }

    /// The spans that have come, once one of this name has.
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
