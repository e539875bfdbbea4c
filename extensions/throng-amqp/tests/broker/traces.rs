//! Traces pass through the broker and the engine.

use crate::{
    counter::ask,
    egress::HitsOut,
    kit::{self, SERVER, get, header, look, message, until},
};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use throng::{
    journal::{MemoryJournal, MemoryStore},
    spans::{Span, SpanSink, TraceContext, TraceOptions, Tracer},
};
use throng_amqp::{Egress, ExchangeTarget, Message};

/// Records the names, contexts and parents of spans.
#[derive(Default)]
struct Recorder(Mutex<Vec<(String, TraceContext, Option<u64>)>>);

impl SpanSink for Recorder {
    fn take(&self, span: &Span<'_>) {
        let exported = (span.name.to_owned(), span.context, span.parent);
        self.0.lock().unwrap().push(exported);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trace_goes_from_a_message_through_the_engine_to_another() {
    let (queue, out) = (kit::name(), kit::name());
    let recorder = Arc::new(Recorder::default());
    let options = TraceOptions {
        ratio: 0.0,
        slow: Duration::MAX,
        names_ids: false,
    };
    let tracer = Arc::new(Tracer::new(recorder.clone(), options));
    let target = ExchangeTarget::new(kit::publisher(&SERVER, &out));
    let egress = Egress::new(HitsOut { queue: out.clone() }, target);
    let journal = MemoryJournal::new();
    let store = MemoryStore::new(journal.clone());
    let builder = kit::builder().sink(egress).tracer(tracer);
    let engine = builder.start(journal, store).await.unwrap();
    let ingress = kit::ingress(&engine, &SERVER, &queue);
    let parent = TraceContext::new(7, 9, true).unwrap();
    let traced = Message {
        headers: vec![("traceparent".into(), parent.to_string())],
        ..message(&queue, "1", ask("a", "Hit"))
    };
    kit::publisher(&SERVER, &queue).publish(traced).await.unwrap();
    let connection = look(&SERVER).await;
    let mut published = None;
    until("the event is published", async || {
        published = get(&connection, &out).await;
        published.is_some()
    })
    .await;
    let onwards: TraceContext = header(&published.unwrap(), "traceparent").unwrap().parse().unwrap();
    assert_eq!(onwards.trace(), parent.trace());
    ingress.stop();
    engine.stop().await;
    let spans = recorder.0.lock().unwrap();
    let is_commit = |(name, context, _): &(String, TraceContext, _)| name == "commit" && *context == onwards;
    assert!(spans.iter().any(is_commit), "{spans:?}");
    let process = format!("process queue {queue}");
    let taken = spans.iter().find(|(name, ..)| *name == process);
    assert_eq!(taken.unwrap().2, Some(parent.span));
}
