//! Nodes that do everything at once, and the invariants between them.

use crate::{
    kit,
    nodes::{Node, SHARDS, append, open, shards, try_join},
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use throng_journal::{Directory, Error, Journal, NodeId, NodeState, ShardId, ShardSet, WriterId};
use throng_testing::{eventually_ok, pause};
use tokio_postgres::Client;

/// The least number of checks of the open streams.
const LOOKS: u64 = 1_000;
/// Other tests wait for leases.
const OPTIONS: &str = "lease=0&pool=3";

/// A generator of numbers, the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn some_of(&mut self, all: &ShardSet) -> Vec<u16> {
        all.iter().filter(|_| self.below(2) == 0).map(|shard| shard.0).collect()
    }
}

/// The versions and owners seen by the checker so far.
#[derive(Default)]
struct Seen {
    is_over: AtomicBool,
    all_leave: AtomicBool,
    /// The greatest writer of an acknowledged commit, by shard.
    acknowledged: Mutex<BTreeMap<ShardId, WriterId>>,
    /// The owners of each version.
    owners: Mutex<BTreeMap<u64, Vec<Option<NodeId>>>>,
    /// Counts of: appended, taken, opened, given, declared dead, opened alone.
    done: [AtomicU64; 6],
}

/// Returns the result, or `None` if the node was too late or not entitled. Any other error fails the test.
fn told<T>(what: &str, result: Result<T, Error>) -> Option<T> {
    match result {
        Ok(done) => Some(done),
        Err(Error::Refused(_) | Error::Gone(_) | Error::Sealed(_)) => None,
        Err(other) => panic!("{what}: {other}"),
    }
}

impl Seen {
    fn done(&self, what: usize) {
        self.done[what].fetch_add(1, Ordering::Relaxed);
    }

    fn acknowledged(&self, of: &ShardSet) -> Option<WriterId> {
        let acknowledged = self.acknowledged.lock().unwrap();
        of.iter().filter_map(|shard| acknowledged.get(&shard).copied()).max()
    }

    fn acknowledge(&self, of: &ShardSet, writer: WriterId) {
        let mut acknowledged = self.acknowledged.lock().unwrap();
        for shard in of.iter() {
            let last = acknowledged.entry(shard).or_default();
            *last = writer.max(*last);
        }
    }

    /// Appends a commit of these shards. The writers of a shard never decrease.
    async fn append(&self, node: &mut Node, of: &ShardSet) {
        let before = self.acknowledged(of);
        let events: Vec<(u16, u64)> = of.iter().map(|shard| (shard.0, 1)).collect();
        if node.append(&events).await.is_ok() {
            assert!(before <= Some(node.writer), "writer {} follows {before:?}", node.writer);
            self.acknowledge(of, node.writer);
            self.done(0);
        }
    }
}

async fn member(schema: String, number: u64, seen: Arc<Seen>) {
    let mut dice = Dice(number);
    let name = format!("node-{number}");
    let mut node = Node::join(&schema, OPTIONS, &name).await;
    while !seen.is_over.load(Ordering::Relaxed) {
        let directory = Arc::clone(&node.opened.directory);
        if seen.all_leave.load(Ordering::Relaxed) {
            told("leave", directory.leave(node.id).await);
            pause().await;
            continue;
        }
        let state = if dice.below(8) == 0 {
            NodeState::Draining
        } else {
            NodeState::Serving
        };
        let Some(view) = told("beat", directory.beat(node.id, state).await) else {
            // The node is dead or has left. Another epoch may have its name for a while, or an engine alone serves.
            node.shards = ShardSet::default();
            if let Some(id) = told("join", try_join(&node.opened, &name).await) {
                node.id = id;
            }
            continue;
        };
        let owners = seen
            .owners
            .lock()
            .unwrap()
            .entry(view.version)
            .or_insert_with(|| view.owners.clone())
            .clone();
        assert_eq!(owners, view.owners, "of version {}", view.version);
        let own = view.shards_of(Some(node.id));
        let others: Vec<_> = view.nodes.iter().filter(|other| other.id != node.id).collect();
        let other = (!others.is_empty()).then(|| others[dice.below(others.len() as u64) as usize]);
        match (dice.below(16), other) {
            (0..=3, _) => {
                let some = dice.some_of(&ShardSet::first(SHARDS));
                if told("take", directory.take(node.id, &shards(&some)).await).is_some_and(|taken| !taken.is_empty()) {
                    seen.done(1);
                }
            }
            (4..=7, _) => {
                let all: Vec<u16> = own.iter().map(|shard| shard.0).collect();
                if told("open", node.open(&all).await).is_some() {
                    seen.done(2);
                }
            }
            (8 | 9, Some(other)) => {
                let some = dice.some_of(&own);
                let rest: Vec<u16> = own.without(&shards(&some)).iter().map(|shard| shard.0).collect();
                // Sometimes the node does not end its stream before.
                if dice.below(4) > 0 {
                    told("open", node.open(&rest).await);
                }
                if told("give", directory.give(node.id, other.id, &shards(&some)).await).is_some() && !some.is_empty() {
                    seen.done(3);
                }
            }
            (10, Some(other)) => {
                if told("declare", directory.declare_dead(node.id, other.id, other.beat).await) == Some(true) {
                    seen.done(4);
                }
            }
            (11, _) => _ = told("leave", directory.leave(node.id).await),
            _ => {
                let some: ShardSet = dice.some_of(&node.shards).into_iter().map(ShardId).collect();
                if !some.is_empty() {
                    seen.append(&mut node, &some).await;
                }
            }
        }
    }
}

async fn alone(schema: String, seen: Arc<Seen>) {
    let opened = open(&schema, OPTIONS).await;
    let all = ShardSet::first(SHARDS);
    while !seen.is_over.load(Ordering::Relaxed) {
        pause().await;
        let before = seen.acknowledged(&all);
        let Some(begun) = told("open alone", opened.journal.open("alone").await) else {
            continue;
        };
        seen.done(5);
        if append(&opened, begun.writer, 1, &[(0, 1)]).await.is_ok() {
            assert!(
                before <= Some(begun.writer),
                "writer {} follows {before:?}",
                begun.writer
            );
            seen.acknowledge(&all, begun.writer);
        }
    }
}

/// Checks that no shard has two open streams that may hold it. The owner of an open stream must be alive and own all of the stream's shards.
async fn look(psql: &Client, schema: &str) -> usize {
    let rows = psql
        .query(
            &format!(
                "SELECT w.writer, w.shards, w.node_id, n.state, (SELECT array_agg(node ORDER BY shard) FROM {schema}.owners) FROM \
                 {schema}.writers w LEFT JOIN {schema}.nodes n ON n.node = w.node_id WHERE w.sealed_at IS NULL ORDER BY writer"
            ),
            &[],
        )
        .await
        .unwrap();
    let mut open: BTreeMap<ShardId, i64> = BTreeMap::new();
    for row in &rows {
        let (writer, node) = (row.get::<_, i64>(0), row.get::<_, Option<i64>>(2));
        let set = row
            .get::<_, Option<&[u8]>>(1)
            .map_or(ShardSet::first(SHARDS), ShardSet::from_bytes);
        for shard in set.iter() {
            if let Some(other) = open.insert(shard, writer) {
                panic!(
                    "the streams {other} and {writer} may both hold records of shard {}",
                    shard.0
                );
            }
            let owners: Option<Vec<Option<i64>>> = row.get(4);
            if let (Some(node), Some(owners)) = (node, owners) {
                assert_eq!(
                    owners[usize::from(shard.0)],
                    Some(node),
                    "of shard {} and stream {writer}",
                    shard.0
                );
            }
        }
        let state: Option<&str> = row.get(3);
        assert!(
            !matches!(state, Some("dead" | "left")),
            "stream {writer} of a node that is over is open"
        );
    }
    rows.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_nodes_do_at_once_no_shard_has_two_open_streams() {
    let schema = kit::schema();
    drop(open(&schema, OPTIONS).await);
    let seen = Arc::new(Seen::default());
    let mut tasks: Vec<_> = (1..=3)
        .map(|number| tokio::spawn(member(schema.clone(), number, Arc::clone(&seen))))
        .collect();
    tasks.push(tokio::spawn(alone(schema.clone(), Arc::clone(&seen))));
    let psql = kit::psql(&kit::SERVER).await;
    let (mut looks, mut several) = (0, 0);
    eventually_ok("everything is done, and streams are open side by side", async || {
        several += usize::from(look(&psql, &schema).await > 1);
        looks += 1;
        // From time to time all nodes leave and return, while an engine alone tries to begin.
        seen.all_leave.store(looks % 250 > 200, Ordering::Relaxed);
        let done: Vec<u64> = seen.done.iter().map(|done| done.load(Ordering::Relaxed)).collect();
        let has_failed = tasks.iter().any(tokio::task::JoinHandle::is_finished);
        match has_failed || looks >= LOOKS && several > 0 && done.iter().all(|done| *done > 0) {
            true => Ok(()),
            false => Err(format!("{done:?}, side by side: {several}, looks: {looks}")),
        }
    })
    .await;
    seen.is_over.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    look(&psql, &schema).await;
}
