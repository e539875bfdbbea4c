//! An exporter with a slow or missing collector.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[allow(dead_code, reason = "shared with the other tests")]
mod collector;

use collector::Collector;
use std::{net::TcpListener, time::Duration};
use throng::spans::{Attribute, Span, SpanKind, SpanSink as _, TraceContext};
use throng_otlp::{Exporter, Settings};
use throng_testing::{PATIENCE, until};

fn span(name: &str) -> Span<'_> {
    Span {
        name,
        kind: SpanKind::Internal,
        context: TraceContext::new(1, 2, true).unwrap(),
        parent: None,
        begun_micros: 1,
        ended_micros: 2,
        attributes: &[("n", Attribute::Number(-1))],
        links: &[],
        links_dropped: 300,
        is_failed: true,
    }
}

#[test]
fn spans_beyond_the_bytes_are_dropped_and_counted() {
    // Accepts connections, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let settings = Settings {
        bytes_max: 1_000,
        every: Duration::from_secs(3_600),
        ..Settings::of("test")
    };
    let exporter = Exporter::start_with(&url, settings).unwrap();
    let name = "x".repeat(300);
    // Two spans fill half of the buffer, which triggers a request.
    (0..2).for_each(|_| exporter.take(&span(&name)));
    let (_held, _) = silent.accept().unwrap();
    (0..10).for_each(|_| exporter.take(&span(&name)));
    assert_eq!((exporter.dropped(), exporter.exported()), (8, 0));
}

#[test]
fn spans_that_a_collector_refuses_are_counted() {
    let collector = Collector::start("400 Bad Request");
    let exporter = Exporter::start(&collector.url(), "test").unwrap();
    exporter.take(&span("refused"));
    assert!(exporter.flush(PATIENCE));
    assert_eq!((exporter.dropped(), exporter.exported()), (1, 0));
}

#[test]
fn batch_is_sent_again_after_the_collector_had_no_room() {
    let collector = Collector::start("503 Service Unavailable");
    let exporter = Exporter::start(&collector.url(), "test").unwrap();
    exporter.take(&span("again"));
    until("a second attempt", || collector.spans().len() >= 2);
    let spans = collector.spans();
    assert_eq!(spans[0], spans[1]);
    assert_eq!((spans[0].dropped_links_count, &*spans[0].name), (300, "again"));
    assert_eq!(collector::attribute(&spans[0], "n"), "-1");
}

#[test]
fn dropped_exporter_sends_its_last_spans() {
    let collector = Collector::start("200 OK");
    let settings = Settings {
        every: Duration::from_secs(3_600),
        ..Settings::of("test")
    };
    let exporter = Exporter::start_with(&collector.url(), settings).unwrap();
    exporter.take(&span("last"));
    drop(exporter);
    until("the last span", || collector.spans().len() == 1);
}
