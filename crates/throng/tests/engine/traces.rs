//! Traces that continue over nodes.

use crate::kinds::{Account, Command, ask, balance, eventually};
use crate::nodes::{Cluster, Node, ids, shards};
use std::sync::{Arc, Mutex};
use throng::{
    limits,
    model::Entity as _,
    spans::{Span, SpanSink, TraceContext, TraceOptions, Tracer},
};

/// A span's name, ids and parent.
#[derive(Clone, Debug)]
struct Exported {
    name: String,
    context: TraceContext,
    parent: Option<u64>,
}

#[derive(Default)]
struct Recorder(Mutex<Vec<Exported>>);

impl SpanSink for Recorder {
    fn take(&self, span: &Span<'_>) {
        self.0.lock().unwrap().push(Exported {
            name: span.name.to_owned(),
            context: span.context,
            parent: span.parent,
        });
    }
}

impl Recorder {
    /// Returns the number of a span's children with this name.
    fn children(&self, of: TraceContext, name: &str) -> usize {
        let spans = self.0.lock().unwrap();
        let is_child = |span: &&Exported| span.parent == Some(of.span) && span.context.trace() == of.trace();
        spans.iter().filter(is_child).filter(|span| span.name == name).count()
    }
}

/// Returns two nodes with a recorder of their spans. The first owns the lower half of the shards.
async fn two() -> (Cluster, Arc<Recorder>, [Node; 2]) {
    let (cluster, recorder) = (Cluster::new(), Arc::new(Recorder::default()));
    let options = TraceOptions {
        ratio: 0.0,
        slow: std::time::Duration::MAX,
        names_ids: false,
    };
    let tracer = Arc::new(Tracer::new(recorder.clone(), options));
    let one = cluster.node_with("one", |builder| builder.tracer(tracer.clone())).await;
    let other = cluster.node_with("other", |builder| builder.tracer(tracer)).await;
    cluster.take(&one, &shards(0, 128)).await;
    cluster.take(&other, &shards(128, 256)).await;
    (cluster, recorder, [one, other])
}

/// Returns the id of an account in a shard that matches.
fn account(is_meant: impl Fn(u16) -> bool) -> String {
    let shard = |id: &String| limits::shard_of(limits::hash(Account::KIND, id), 256).0;
    ids().find(|id| is_meant(shard(id))).unwrap()
}

/// Lets an account pay another one, in this span.
async fn pay(node: &Node, from: &str, to: &str, span: TraceContext) {
    let driver = node.engine.driver();
    let kind = node.engine.kind(Account::KIND).unwrap();
    let body = format!(r#"{{"to":"{to}","amount":1}}"#).into_bytes();
    let attempt = driver.command(kind, from.to_owned(), "Pay", body).unwrap();
    driver.answer(attempt.traced(span)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_and_messages_are_traced_over_nodes() {
    let (cluster, recorder, [one, other]) = two().await;
    let (here, there) = (account(|shard| shard < 128), account(|shard| shard >= 128));
    for id in [&here, &there] {
        ask(&one.engine, id, Command::Open { balance: 10 }).await.unwrap();
    }
    let span = |number| TraceContext::new(7, number, true).unwrap();
    pay(&one, &there, &here, span(1)).await;
    eventually(async || balance(&other.engine, &here).await == 11).await;
    eventually(async || recorder.children(span(1), "message account/Deposit") == 1).await;
    assert_eq!(
        recorder.children(span(1), "commit"),
        1,
        "of the command, at the other node"
    );
    // The request to an older node omits the span.
    *cluster.wires.old.lock().unwrap() = Some("other".into());
    pay(&one, &there, &here, span(2)).await;
    eventually(async || balance(&other.engine, &here).await == 12).await;
    assert_eq!(recorder.children(span(2), "commit"), 0);
}
