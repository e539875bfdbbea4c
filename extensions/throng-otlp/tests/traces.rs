//! Traces of an engine behind a gateway, as a collector decodes them.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod collector;
mod service;

use collector::{Received, attribute};
use service::Service;
use std::time::Duration;
use throng::spans::TraceOptions;

const TRACE: u128 = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736;
const CALLER: u64 = 0x00f0_67aa_0ba9_02b7;
/// Longer than anything in a test.
const NEVER: Duration = Duration::from_secs(3_600);

fn options(ratio: f64) -> TraceOptions {
    TraceOptions {
        ratio,
        slow: NEVER,
        names_ids: false,
    }
}

/// Returns the caller's context with these flags.
fn traceparent(flags: &str) -> String {
    format!("00-{TRACE:032x}-{CALLER:016x}-{flags}")
}

/// Returns the only span of this name.
#[track_caller]
fn only<'a>(spans: &'a [Received], name: &str) -> &'a Received {
    let found: Vec<_> = spans.iter().filter(|span| span.name == name).collect();
    assert_eq!(found.len(), 1, "{name}: {spans:#?}");
    found[0]
}

#[test]
fn request_leads_to_batch_commit_message_and_projection() {
    let (collector, mut service) = Service::traced(options(0.0));
    service.post(
        "/api/relay/secret-id/Pass",
        Some(&traceparent("01")),
        r#"{"to":"counter-1"}"#,
        200,
    );
    let projection = "projection hits";
    let spans = service.spans_with(&collector, projection);
    let request = only(&spans, "POST /api/relay/{id}/Pass");
    assert_eq!(request.parent_span_id, CALLER.to_be_bytes());
    assert_eq!(
        (request.kind, attribute(request, "http.response.status_code")),
        (2, "200".into())
    );
    let batch = spans
        .iter()
        .find(|span| span.parent_span_id == request.span_id && span.name == "batch");
    let batch = batch.expect("the request's batch");
    let commit = spans.iter().find(|span| span.parent_span_id == batch.span_id);
    assert_eq!(commit.unwrap().name, "commit");
    assert_eq!(commit.unwrap().links[0].span_id, request.span_id);
    let message = only(&spans, "message counter/Hit");
    assert_eq!((&message.parent_span_id, message.kind), (&request.span_id, 5));
    assert_eq!(attribute(message, "throng.outcome"), "done");
    let taken_in = attribute(message, "throng.commit");
    let commit_of_message = spans
        .iter()
        .find(|span| attribute(span, "throng.commit") == taken_in && span.name == "commit");
    let links = &only(&spans, projection).links;
    let parents = [&only(&spans, projection).parent_span_id]
        .into_iter()
        .chain(links.iter().map(|link| &link.span_id));
    assert!(
        parents
            .into_iter()
            .any(|parent| *parent == commit_of_message.unwrap().span_id)
    );
    for span in &spans {
        assert_eq!(span.trace_id, TRACE.to_be_bytes(), "{span:#?}");
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano && span.start_time_unix_nano > 0);
        assert!(!format!("{span:?}").contains("secret-id"), "{span:#?}");
    }
    assert_eq!(collector.service_name(), "test");
    service.stop();
}

#[test]
fn parent_that_is_not_sampled_is_followed() {
    let (collector, mut service) = Service::traced(options(1.0));
    service.post("/api/relay/a/Pass", Some(&traceparent("00")), r#"{"to":"b"}"#, 200);
    assert!(
        service
            .spans(&collector)
            .iter()
            .all(|span| span.trace_id != TRACE.to_be_bytes())
    );
    service.post("/api/relay/a/Pass", None, r#"{"to":"b"}"#, 200);
    let spans = service.spans_with(&collector, "POST /api/relay/{id}/Pass");
    assert!(only(&spans, "POST /api/relay/{id}/Pass").parent_span_id.is_empty());
    service.stop();
}

#[test]
fn slow_or_refused_requests_are_traced_at_ratio_zero() {
    let slow = TraceOptions {
        slow: Duration::ZERO,
        ..options(0.0)
    };
    let (collector, mut service) = Service::traced(slow);
    service.post("/api/counter/a/Hit", None, "{}", 200);
    let spans = service.spans_with(&collector, "POST /api/counter/{id}/Hit");
    assert!(only(&spans, "POST /api/counter/{id}/Hit").status.is_none());
    service.stop();
    let (collector, mut service) = Service::traced(options(0.0));
    service.post("/api/counter/a/Refuse", None, "{}", 409);
    service.post("/api/counter/a/Crash", None, "{}", 500);
    let spans = service.spans(&collector);
    let names: Vec<&str> = spans.iter().map(|span| &*span.name).collect();
    assert_eq!(
        names,
        ["POST /api/counter/{id}/Crash"],
        "an entity's no is no refusal of the service's"
    );
    assert_eq!(spans[0].status.as_ref().unwrap().code, 2);
    service.stop();
}

#[test]
fn ids_are_named_where_that_is_asked_for() {
    let (collector, mut service) = Service::traced(TraceOptions {
        names_ids: true,
        ..options(1.0)
    });
    service.post("/api/relay/a%20b/Pass", None, r#"{"to":"counter-1"}"#, 200);
    let spans = service.spans_with(&collector, "message counter/Hit");
    let id = |name| attribute(only(&spans, name), "throng.id");
    assert_eq!(id("POST /api/relay/{id}/Pass"), "a b");
    assert_eq!(id("message counter/Hit"), "counter-1");
    service.stop();
}

#[test]
fn websocket_command_is_part_of_its_senders_trace() {
    let (collector, service) = Service::traced(options(0.0));
    service.socket_command(&traceparent("01"));
    let spans = service.spans_with(&collector, "COMMAND /api/counter/{id}/Hit");
    let request = only(&spans, "COMMAND /api/counter/{id}/Hit");
    assert_eq!(
        (request.trace_id.as_slice(), request.parent_span_id.as_slice()),
        (&TRACE.to_be_bytes()[..], &CALLER.to_be_bytes()[..])
    );
    service.stop();
}

#[test]
fn websocket_query_is_part_of_its_senders_trace() {
    let (collector, mut service) = Service::traced(options(0.0));
    service.post(
        "/api/asker/a/Ask",
        Some(&traceparent("01")),
        r#"{"wanted":"Answer"}"#,
        200,
    );
    service.told("a");
    service.socket_query(&traceparent("01"));
    let spans = service.spans_with(&collector, "QUERY /api/asker/{id}/told");
    let request = only(&spans, "QUERY /api/asker/{id}/told");
    assert_eq!(
        (request.trace_id.as_slice(), request.parent_span_id.as_slice()),
        (&TRACE.to_be_bytes()[..], &CALLER.to_be_bytes()[..])
    );
    assert_eq!(attribute(request, "http.response.status_code"), "200");
    service.stop();
}

#[test]
fn own_route_has_a_span_that_its_commands_are_part_of() {
    let (collector, mut service) = Service::traced(options(0.0));
    service.get("/shop/secret-id/hit", &traceparent("01"), 200);
    service.get("/shop/secret-id/fail", &traceparent("01"), 502);
    service.get("/nothing/secret-id", &traceparent("01"), 404);
    let spans = service.spans_with(&collector, "projection hits");
    let request = only(&spans, "GET /shop/{id}/hit");
    assert_eq!(
        (request.parent_span_id.as_slice(), request.kind),
        (&CALLER.to_be_bytes()[..], 2)
    );
    let commits = spans.iter().filter(|span| span.name == "commit");
    assert!(
        commits
            .flat_map(|commit| &commit.links)
            .any(|link| link.span_id == request.span_id),
        "{spans:#?}"
    );
    let failed = only(&spans, "GET /shop/{id}/fail");
    assert_eq!(failed.status.as_ref().unwrap().code, 2);
    assert_eq!(attribute(only(&spans, "GET"), "http.response.status_code"), "404");
    assert!(!format!("{spans:?}").contains("secret-id"), "{spans:#?}");
    service.stop();
}

#[test]
fn attempt_is_part_of_the_turn_that_calls() {
    let (collector, mut service) = Service::traced(options(0.0));
    service.post(
        "/api/asker/secret-id/Ask",
        Some(&traceparent("01")),
        r#"{"wanted":"Answer"}"#,
        200,
    );
    let told = service.told("secret-id");
    let spans = service.spans_with(&collector, "call echo");
    let call = only(&spans, "call echo");
    let span = u64::from_be_bytes(call.span_id.as_slice().try_into().unwrap());
    assert_eq!(told, format!("00-{TRACE:032x}-{span:016x}-01"), "the provider is told");
    let begun = spans.iter().find(|span| span.span_id == call.parent_span_id).unwrap();
    assert_eq!((begun.name.as_str(), call.kind), ("message call-echo/begin", 3));
    assert_eq!(
        (attribute(call, "throng.attempt"), attribute(call, "throng.outcome")),
        ("1".into(), "answered".into())
    );
    assert!(!format!("{spans:?}").contains("secret-id"), "{spans:#?}");
    service.stop();
}

#[test]
fn attempt_without_an_answer_is_traced_at_ratio_zero() {
    let (collector, mut service) = Service::traced(options(0.0));
    service.post("/api/asker/a/Ask", None, r#"{"wanted":"Nothing"}"#, 200);
    let spans = service.spans_with(&collector, "call echo");
    let call = spans.iter().find(|span| span.name == "call echo").unwrap();
    assert_eq!(attribute(call, "throng.outcome"), "not_sent");
    assert_eq!((call.status.as_ref().unwrap().code, call.parent_span_id.len()), (2, 0));
    service.stop();
}

#[test]
fn commit_of_many_requests_is_linked_to_each() {
    let (collector, mut service) = Service::traced(options(1.0));
    service.pipelined(20, "/api/counter/", "/Hit");
    let spans = service.spans(&collector);
    let requests: Vec<_> = spans.iter().filter(|span| span.name.starts_with("POST ")).collect();
    assert_eq!(requests.len(), 20);
    let linked = |request: &Received| {
        let mut commits = spans.iter().filter(|span| span.name == "commit");
        commits.any(|commit| commit.links.iter().any(|link| link.span_id == request.span_id))
    };
    assert!(requests.into_iter().all(linked), "{spans:#?}");
    service.stop();
}
