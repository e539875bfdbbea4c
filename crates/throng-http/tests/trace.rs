//! A command with a trace context runs in a span of that trace. This is a separate program because the subscriber is process-wide.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "gateway/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "shared with the other tests")]
mod support;

use serde_json::json;
use std::{
    io,
    sync::{Arc, Mutex},
};
use support::{Client, plain, socket};
use tracing_subscriber::fmt::{MakeWriter, format::FmtSpan};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[test]
fn a_commands_span_names_the_trace_unless_it_is_malformed() {
    let log = Log::default();
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_span_events(FmtSpan::NEW)
        .with_writer(log.clone())
        .init();
    let gateway = plain();
    let mut client = Client::new(&gateway);
    let (over_http, over_socket) = ("4bf92f3577b34da6a3ce929d0e0e4736", "0af7651916cd43dd8448eb211c80319c");
    let traceparent = |trace: &str| format!("00-{trace}-00f067aa0ba902b7-01");
    let with = |value: &str, client: &mut Client| {
        let fields = [("traceparent", value)];
        let answer = client.request("POST", "/api/section/S1/open", &fields, r#"{"capacity":1}"#);
        assert_eq!(answer.status, 200, "{}", answer.text());
    };
    with(&traceparent(over_http), &mut client);
    with(&traceparent(&over_socket.to_uppercase()), &mut client);
    let mut socket = socket::Socket::new(&gateway);
    let mut command = socket::command(1, "S2", "open", &json!({ "capacity": 1 }));
    command["traceparent"] = traceparent(over_socket).into();
    socket.send(&command).expect("reply", 1);
    gateway.stop_blocking();
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let spans: Vec<&str> = text.lines().filter(|line| line.contains("command{")).collect();
    assert_eq!(spans.len(), 2, "{text}");
    for (span, trace, id) in [(spans[0], over_http, "S1"), (spans[1], over_socket, "S2")] {
        for part in [
            format!("trace_id=\"{trace}\""),
            "parent_id=\"00f067aa0ba902b7\"".into(),
            format!("id=\"{id}\""),
        ] {
            assert!(span.contains(&part), "{part}: {span}");
        }
    }
}
