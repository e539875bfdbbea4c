//! Erasing an entity while several nodes run.

use crate::kinds::{Account, Command, View, ask, balance, eventually, failing::Failing};
use crate::nodes::{Cluster, Node, SHARDS, ids, shards};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};
use throng::{
    journal::{CommitNo, Directory, Journal, Position, RecordKind, Store, WriterId},
    model::Error,
};

/// The number of accounts that pay the erased account, and are paid by it.
const PAYING: usize = 24;
const SECRET: &str = "a secret that nobody else knew";

async fn two() -> (Cluster, [Node; 2]) {
    let cluster = Cluster::new();
    let nodes = [cluster.node("one").await, cluster.node("other").await];
    cluster.take(&nodes[0], &shards(0, 128)).await;
    cluster.take(&nodes[1], &shards(128, SHARDS)).await;
    (cluster, nodes)
}

/// Creates an account that lives on `node`.
async fn on(node: &Node, other: &Node, name: &str) -> String {
    for number in 0.. {
        let id = format!("{name}-{number}");
        ask(&other.engine, &id, Command::Open { balance: 1_000 }).await.unwrap();
        if is_of(node, &id).await {
            return id;
        }
    }
    unreachable!()
}

/// Returns true if the node writes the account's events.
async fn is_of(node: &Node, id: &str) -> bool {
    let event = node.engine.history(0, id, 0, 1).await.unwrap().events.remove(0);
    node.engine.driver().durable().unwrap().writer == event.position.writer
}

/// Returns the records about an account, and of messages to it, in all streams.
async fn left(cluster: &Cluster, id: &str) -> Vec<String> {
    let (mut left, quoted) = (Vec::new(), format!("{id:?}"));
    for stream in cluster.world.journal.streams(WriterId(0)).await.unwrap() {
        let start = Position::new(stream.writer, CommitNo(0));
        for commit in cluster.world.journal.read(start, usize::MAX).await.unwrap() {
            for record in commit.records().flatten() {
                let body = String::from_utf8_lossy(record.body);
                let is_to = record.record == RecordKind::Sent && body.contains(&quoted);
                let says_so = [RecordKind::Ended, RecordKind::Erasure].contains(&record.record);
                if (record.id == id && !says_so) || is_to || body.contains(SECRET) {
                    left.push(format!(
                        "{:?} of {} in {}: {body}",
                        record.record,
                        record.id,
                        commit.position()
                    ));
                }
            }
        }
    }
    left
}

/// Lets accounts on both nodes pay one account and be paid by it. Returns their balances.
async fn pays(nodes: &[Node; 2], id: &str) -> BTreeMap<String, i64> {
    let pay = |to: &str, amount| Command::Pay { to: to.into(), amount };
    for other in ids().take(PAYING) {
        ask(&nodes[0].engine, &other, pay(id, 3)).await.unwrap();
        ask(&nodes[1].engine, id, pay(&other, 1)).await.unwrap();
    }
    let paid = 1_000 + 2 * PAYING as i64;
    eventually(async || balance(&nodes[0].engine, id).await == paid).await;
    balances(nodes).await
}

async fn balances(nodes: &[Node; 2]) -> BTreeMap<String, i64> {
    let mut found = BTreeMap::new();
    for (number, id) in ids().take(PAYING).enumerate() {
        let balance = balance(&nodes[number % 2].engine, &id).await;
        found.insert(id, balance);
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn an_erased_entity_leaves_nothing_in_any_nodes_stream() {
    let (cluster, nodes) = two().await;
    for id in ids() {
        ask(&nodes[0].engine, &id, Command::Open { balance: 100 })
            .await
            .unwrap();
    }
    // Streams end whose shards both nodes have owned.
    let [one, other] = &nodes;
    cluster.give(one, other, &shards(32, 64)).await;
    let erased = [on(one, other, "one").await, on(other, one, "other").await];
    let mut before = BTreeMap::new();
    for id in &erased {
        let text = SECRET.to_owned();
        ask(&other.engine, id, Command::Heard { text }).await.unwrap();
        before = pays(&nodes, id).await;
    }
    cluster.give(other, one, &shards(32, 64)).await;
    eventually(async || {
        before = balances(&nodes).await;
        before.values().all(|balance| *balance == 100 - 2 * 3 + 2)
    })
    .await;
    // The senders learn that their messages were taken.
    eventually(async || nodes.iter().all(|node| node.engine.metrics().outbox() == 0)).await;
    let stop = Arc::new(AtomicBool::new(false));
    let busy = [one, other].map(|node| {
        let (engine, stop) = (node.engine.clone(), stop.clone());
        tokio::spawn(async move {
            let mut paid = 0;
            while !stop.load(SeqCst) {
                let (from, to) = (ids().nth(PAYING + paid % 20).unwrap(), ids().nth(PAYING + 20).unwrap());
                ask(&engine, &from, Command::Pay { to, amount: 1 }).await.unwrap();
                paid += 1;
            }
            i64::try_from(paid).unwrap()
        })
    });
    // Each at the node that does not own the account, both at once.
    let (first, second) = tokio::join!(
        other.engine.erase("account", &erased[0]),
        one.engine.erase("account", &erased[1])
    );
    for done in [first.unwrap(), second.unwrap()] {
        assert!(done.records > 2 * PAYING as u64, "{done}");
    }
    stop.store(true, SeqCst);
    let mut paid = 0;
    for busy in busy {
        paid += busy.await.unwrap();
    }
    for id in &erased {
        assert_eq!(left(&cluster, id).await, Vec::<String>::new());
    }
    let unknown = one.engine.erase("account", "nobody").await;
    assert!(matches!(unknown, Err(Error::Unknown { .. })), "{unknown:?}");
    // Both restart from the remaining records. No other account has lost anything, nor have message numbers.
    cluster.give(one, other, &shards(0, 128)).await;
    cluster.give(other, one, &shards(0, SHARDS)).await;
    for node in &nodes {
        for id in &erased {
            let late = node.engine.entity::<Account>(id.as_str()).read(View {}).await;
            assert!(matches!(late, Err(Error::Ended { .. })), "{late:?}");
        }
    }
    let collector = ids().nth(PAYING + 20).unwrap();
    eventually(async || balance(&one.engine, &collector).await == 100 + paid).await;
    assert_eq!(balances(&nodes).await, before);
    for id in ids().take(PAYING) {
        let to = collector.clone();
        ask(&other.engine, &id, Command::Pay { to, amount: 1 }).await.unwrap();
    }
    let all = 100 + paid + PAYING as i64;
    eventually(async || balance(&other.engine, &collector).await == all).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_erasure_waits_for_an_unreachable_node_and_goes_on() {
    let (cluster, nodes) = two().await;
    let [one, other] = &nodes;
    let id = on(one, other, "one").await;
    let text = SECRET.to_owned();
    ask(&one.engine, &id, Command::Heard { text }).await.unwrap();
    cluster.wires.are_cut.store(true, SeqCst);
    let refused = one.engine.erase("account", &id).await.unwrap_err().to_string();
    assert!(
        refused.contains("is not erased yet, that goes on by itself"),
        "{refused}"
    );
    let refused = other.engine.erase("account", &id).await.unwrap_err().to_string();
    assert!(refused.contains("cannot be reached"), "{refused}");
    assert!(!left(&cluster, &id).await.is_empty());
    cluster.wires.are_cut.store(false, SeqCst);
    eventually(async || left(&cluster, &id).await.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_entity_is_erased_while_a_node_cannot_erase() {
    let (cluster, nodes) = two().await;
    let [one, other] = &nodes;
    let id = on(one, other, "one").await;
    *cluster.wires.old.lock().unwrap() = Some("old".into());
    for node in &nodes {
        let refused = node.engine.erase("account", &id).await.unwrap_err().to_string();
        assert!(refused.contains("the node \"old\" runs an older program"), "{refused}");
    }
    assert_eq!(balance(&other.engine, &id).await, 1_000, "nothing was begun");
    *cluster.wires.old.lock().unwrap() = None;
    other.engine.erase("account", &id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_erasure_of_a_dead_node_goes_on_at_the_next_owner() {
    let cluster = Cluster::new();
    let journals = [(); 2].map(|()| Failing::new(&cluster.world.journal));
    let [one, other] = [
        cluster.node_on("one", Arc::new(journals[0].clone())).await,
        cluster.node_on("other", Arc::new(journals[1].clone())).await,
    ];
    cluster.take(&one, &shards(0, 128)).await;
    cluster.take(&other, &shards(128, SHARDS)).await;
    let id = on(&one, &other, "one").await;
    // The streams of both nodes have records of it.
    for id_of_other in ids().take(6) {
        let text = SECRET.to_owned();
        ask(&one.engine, &id, Command::Heard { text }).await.unwrap();
        ask(&other.engine, &id_of_other, Command::Open { balance: 100 })
            .await
            .unwrap();
        let pay = Command::pay(id.clone(), 1);
        ask(&other.engine, &id_of_other, pay).await.unwrap();
        for node in [&one, &other] {
            node.engine.driver().release().await.unwrap();
            cluster.serve(node).await;
        }
    }
    eventually(async || balance(&other.engine, &id).await == 1_006).await;
    let streams = cluster.world.journal.streams(WriterId(0)).await.unwrap();
    let fails_from = streams[streams.len() - 4].writer;
    journals[0].keep_from(fails_from);
    let refused = one.engine.erase("account", &id).await.unwrap_err().to_string();
    assert!(refused.contains("that goes on by itself"), "{refused}");
    assert!(journals[0].erasures().iter().any(|at| at.writer == fails_from));
    // A checkpoint records the progress.
    eventually(async || {
        let mut is_noted = false;
        let mut visit = |_: &[u8], _: &[u8]| is_noted = true;
        let row = [b"yaccount\0", id.as_bytes()].concat();
        let scan = cluster.world.store.system_scan(&row, b"", usize::MAX, &mut visit);
        scan.await.unwrap();
        is_noted
    })
    .await;

    let beat = cluster.directory.view().await.unwrap().node(one.id).unwrap().beat;
    let is_dead = cluster.directory.declare_dead(other.id, one.id, beat).await;
    assert!(is_dead.unwrap());
    cluster.take(&other, &shards(0, 128)).await;
    eventually(async || left(&cluster, &id).await.is_empty()).await;
    let begun = journals[1].erasures();
    let again: Vec<&Position> = begun
        .iter()
        .filter(|at| at.writer < fails_from && at.commit == CommitNo(0))
        .collect();
    assert!(!begun.is_empty() && again.is_empty(), "it began again with {again:?}");
}
