//! History that ends while several nodes write it.

use crate::kinds::{Account, AccountEvent, Command, ask, balance, eventually};
use crate::nodes::{Cluster, Node, SHARDS, ids, shards};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};
use throng::{
    Cursor, Engine, Follow, Options,
    journal::{CommitNo, Directory, Journal, MemoryViews, Position, Record, RecordKind, WriterId},
    model::Keep,
    projection::{DurableEvent, Interrupt, Projection, Rows},
};

/// Keeps no durable history.
const NOTHING: Keep = Keep::Age(Duration::ZERO);

fn keeping(keep: Keep) -> Options {
    Options {
        keep: BTreeMap::from([("account".to_owned(), keep)]),
        // Passes run only on a test's request.
        prune_every: Some(Duration::from_hours(1)),
        checkpoint_every: Duration::from_hours(1),
        ..Options::default()
    }
}

async fn two(cluster: &Cluster, options: &Options) -> [Node; 2] {
    let node = async |name| {
        cluster
            .node_with(name, |builder| builder.options(options.clone()))
            .await
    };
    let nodes = [node("one").await, node("other").await];
    cluster.take(&nodes[0], &shards(0, 128)).await;
    cluster.take(&nodes[1], &shards(128, SHARDS)).await;
    nodes
}

/// Returns the records of all streams that match.
async fn left(cluster: &Cluster, is_it: impl Fn(&Record<'_>) -> bool) -> Vec<String> {
    let mut left = Vec::new();
    for stream in cluster.world.journal.streams(WriterId(0)).await.unwrap() {
        let start = Position::new(stream.writer, CommitNo(0));
        for commit in cluster.world.journal.read(start, usize::MAX).await.unwrap() {
            let found = commit.records().flatten().filter(|record| is_it(record));
            left.extend(found.map(|record| format!("{} {}", record.id, record.seq)));
        }
    }
    left.sort_unstable();
    left
}

async fn events(cluster: &Cluster) -> Vec<String> {
    left(cluster, |record| record.record == RecordKind::Event).await
}

fn deposit(amount: i64) -> Command {
    Command::Deposit { amount }
}

async fn open_all(engine: &Engine) {
    for id in ids() {
        ask(engine, &id, Command::Open { balance: 100 }).await.unwrap();
    }
}

/// Writes events at both nodes, so that everything before is covered.
async fn after(nodes: &[Node; 2]) {
    for _ in 0..2 {
        for id in ids() {
            ask(&nodes[0].engine, &id, deposit(1)).await.unwrap();
        }
    }
}

async fn balances(engine: &Engine) -> Vec<i64> {
    let mut found = Vec::new();
    for id in ids() {
        found.push(balance(engine, &id).await);
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_history_goes_from_all_streams_of_the_nodes() {
    let cluster = Cluster::new();
    let nodes = two(&cluster, &keeping(NOTHING)).await;
    let [one, other] = &nodes;
    open_all(&one.engine).await;
    // Streams end whose shards both nodes have owned, with messages between entities of both.
    for (from, to, moved) in [(one, other, shards(32, 64)), (other, one, shards(200, 220))] {
        for (id, to) in ids().zip(ids().skip(7)) {
            ask(&other.engine, &id, Command::Pay { to, amount: 1 }).await.unwrap();
        }
        cluster.give(from, to, &moved).await;
    }
    eventually(async || balances(&one.engine).await.iter().sum::<i64>() == 6_400).await;
    let before = balances(&one.engine).await;
    after(&nodes).await;
    let dry = one.engine.prune(true).await.unwrap();
    assert!(dry.is_dry && dry.records > 0, "{dry}");
    let all = events(&cluster).await.len();
    assert!(all > 64 * 3, "a dry run removes nothing: {all}");
    let report = other.engine.prune(false).await.unwrap();
    assert!(report.records >= dry.records && report.entities == 64, "{report}");
    assert_eq!(report.upto.unwrap().split(',').count(), 2, "one position of each node");
    let left_now = events(&cluster).await;
    assert!(
        left_now.len() <= 2 * 8,
        "what was written last of each node: {left_now:?}"
    );
    let expected: Vec<i64> = before.iter().map(|balance| balance + 2).collect();
    assert_eq!(balances(&other.engine).await, expected);

    // Both nodes end, the store is lost, and each node begins with the other's shards.
    for node in &nodes {
        node.engine.stop().await;
        cluster.directory.leave(node.id).await.unwrap();
    }
    cluster.world.store.lose();
    let node = async |name| {
        cluster
            .node_with(name, |builder| builder.options(keeping(NOTHING)))
            .await
    };
    let again = [node("third").await, node("fourth").await];
    cluster.take(&again[0], &shards(100, 200)).await;
    cluster.take(&again[1], &shards(0, 100)).await;
    cluster.take(&again[0], &shards(200, SHARDS)).await;
    assert_eq!(balances(&again[1].engine).await, expected);
    // The numbers of messages continue.
    for (id, to) in ids().zip(ids().skip(9)) {
        ask(&again[0].engine, &id, Command::Pay { to, amount: 1 })
            .await
            .unwrap();
    }
    let sum = expected.iter().sum::<i64>();
    eventually(async || balances(&again[1].engine).await.iter().sum::<i64>() == sum).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_events_of_each_entity_are_kept_of_any_writer() {
    let cluster = Cluster::new();
    let nodes = two(&cluster, &keeping(Keep::Events(3))).await;
    let [one, other] = &nodes;
    open_all(&one.engine).await;
    for moved in [shards(0, 64), shards(64, 128)] {
        for id in ids() {
            ask(&one.engine, &id, deposit(1)).await.unwrap();
        }
        cluster.give(one, other, &moved).await;
    }
    after(&nodes).await;
    // Records of another kind do not exist: what comes after is covered, and not looked at.
    for node in &nodes {
        node.engine.prune(false).await.unwrap();
    }
    for id in ids() {
        let history = one.engine.history(0, &id, 0, 100).await.unwrap();
        let seqs: Vec<u64> = history.events.iter().map(|event| event.seq).collect();
        assert!(seqs == [3, 4, 5] || seqs == [2, 3, 4, 5], "{id}: {seqs:?}");
    }
    assert!(balances(&other.engine).await.iter().all(|balance| *balance == 104));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_another_node_has_not_taken_stays() {
    let cluster = Cluster::new();
    let nodes = two(&cluster, &keeping(NOTHING)).await;
    let [one, other] = &nodes;
    open_all(&one.engine).await;
    let sent = |record: &Record<'_>| record.record == RecordKind::Sent;
    let mut all = Vec::new();
    for id in ids() {
        all.extend(one.engine.history(0, &id, 0, 1).await.unwrap().events);
    }
    let writer = one.engine.driver().durable().unwrap().writer;
    let own: Vec<String> = ids()
        .zip(all)
        .filter(|(_, event)| event.position.writer == writer)
        .map(|(id, _)| id)
        .collect();
    let to = ids().find(|id| !own.contains(id)).unwrap();
    cluster.wires.are_cut.store(true, SeqCst);
    for id in &own {
        let to = to.clone();
        ask(&one.engine, id, Command::Pay { to, amount: 1 }).await.unwrap();
    }
    for id in own.iter().chain(&own) {
        ask(&one.engine, id, deposit(0)).await.unwrap();
    }
    let refused = one.engine.prune(false).await.unwrap_err().to_string();
    assert!(refused.contains("cannot be reached"), "{refused}");
    let events_of = left(&cluster, |record| {
        record.record == RecordKind::Event && record.id == own[0]
    });
    assert!(
        events_of.await.len() < 4,
        "what this node owns was looked at all the same"
    );
    assert_eq!(left(&cluster, sent).await.len(), own.len());
    // The next owner reads them from the journal.
    cluster.give(one, other, &shards(0, 128)).await;
    cluster.wires.are_cut.store(false, SeqCst);
    let paid = 100 + i64::try_from(own.len()).unwrap();
    eventually(async || balance(&one.engine, &to).await == paid).await;
    after(&nodes).await;
    other.engine.prune(false).await.unwrap();
    assert_eq!(left(&cluster, sent).await, Vec::<String>::new());
    assert_eq!(balance(&one.engine, &to).await, paid + 2);
}

/// A projection of deposits that stops until it is allowed to go on.
struct Deposits(Arc<AtomicBool>);

impl Projection for Deposits {
    const NAME: &'static str = "deposits";
    type Of = Account;

    fn apply(&self, seen: &DurableEvent<Account>, rows: &mut Rows<'_>) -> Result<(), Interrupt> {
        match &seen.event {
            AccountEvent::Deposited { amount: 666 } if !self.0.load(SeqCst) => {
                Err(Interrupt::poison("it is not wanted"))
            }
            _ => rows.put_json(&seen.id, &seen.seq),
        }
    }
}

/// Returns two nodes whose projections have stopped, and the switch that lets them go on.
async fn stopped(left_behind_after: Option<Duration>) -> (Cluster, [Node; 2], Arc<AtomicBool>) {
    let (cluster, may_go_on, views) = (Cluster::new(), Arc::new(AtomicBool::new(false)), MemoryViews::new());
    let node = async |name| {
        let (may_go_on, views) = (may_go_on.clone(), Arc::new(views.clone()));
        let options = Options {
            left_behind_after,
            ..keeping(NOTHING)
        };
        let more = |builder: throng::Builder| builder.options(options).projection(Deposits(may_go_on)).views(views);
        cluster.node_with(name, more).await
    };
    let nodes = [node("one").await, node("other").await];
    cluster.take(&nodes[0], &shards(0, 128)).await;
    cluster.take(&nodes[1], &shards(128, SHARDS)).await;
    open_all(&nodes[0].engine).await;
    for id in ids() {
        ask(&nodes[1].engine, &id, deposit(666)).await.unwrap();
    }
    eventually(async || {
        let all = nodes.iter().flat_map(|node| node.engine.projections());
        all.into_iter()
            .any(|one| matches!(one.state, throng::projection::ProjectionState::Stopped { .. }))
    })
    .await;
    after(&nodes).await;
    (cluster, nodes, may_go_on)
}

#[tokio::test(flavor = "multi_thread")]
async fn events_a_projection_has_not_read_stay_at_all_nodes() {
    let (cluster, nodes, may_go_on) = stopped(None).await;
    for node in &nodes {
        node.engine.prune(false).await.unwrap();
    }
    let deposits = left(&cluster, |record| record.record == RecordKind::Event && record.seq == 2);
    assert_eq!(deposits.await.len(), 64);
    may_go_on.store(true, SeqCst);
    for node in &nodes {
        node.engine.resume_projection(Deposits::NAME);
    }
    for node in &nodes {
        assert!(node.engine.read_model::<Deposits>().caught_up().await);
    }
    // The projection stores its position with its rows soon.
    eventually(async || {
        nodes[0].engine.prune(false).await.unwrap();
        events(&cluster).await.len() <= 2 * 8
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retention_may_leave_a_projection_behind_on_any_node() {
    let (cluster, nodes, _) = stopped(Some(Duration::ZERO)).await;
    nodes[0].engine.prune(false).await.unwrap();
    let deposits = async || left(&cluster, |record| record.record == RecordKind::Event && record.seq == 2).await;
    assert_eq!(deposits().await.len(), 64, "nobody has waited for it yet");
    nodes[1].engine.prune(false).await.unwrap();
    assert_eq!(deposits().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_follower_at_any_node_hears_of_removed_history() {
    let cluster = Cluster::new();
    let nodes = two(&cluster, &keeping(NOTHING)).await;
    open_all(&nodes[0].engine).await;
    let begin = Follow::Kind {
        kind: 0,
        from: Cursor::default(),
    };
    let whole = nodes[1].engine.follow(begin.clone()).await.unwrap();
    assert_eq!(whole.removed_upto(), None);
    let end = nodes[1].engine.place(false).await.unwrap();
    after(&nodes).await;
    nodes[0].engine.prune(false).await.unwrap();
    for node in &nodes {
        let late = node.engine.follow(begin.clone()).await.unwrap();
        assert!(late.removed_upto().is_some(), "{}", end);
        let now = Follow::Kind {
            kind: 0,
            from: node.engine.place(false).await.unwrap(),
        };
        assert_eq!(node.engine.follow(now).await.unwrap().removed_upto(), None);
    }
}
