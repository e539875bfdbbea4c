//! Several engines on one journal, each owning some of the shards.

use crate::kinds::{Account, Balance, Command, View, ask, balance, eventually, more, text};
use crate::nodes::{self, Cluster, Node, ids, shards};
use crate::slow::Stopwatch;
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst},
};
use throng::{
    Options,
    host::TokioHost,
    journal::{Directory, NodeState},
    limits,
    model::Error,
};

async fn two() -> (Cluster, Node, Node) {
    let cluster = Cluster::new();
    let (one, other) = (cluster.node("one").await, cluster.node("other").await);
    cluster.take(&one, &shards(0, 128)).await;
    cluster.take(&other, &shards(128, 256)).await;
    (cluster, one, other)
}

#[tokio::test(flavor = "multi_thread")]
async fn any_node_answers_for_any_entity() {
    let (cluster, one, other) = two().await;
    for (number, id) in ids().enumerate() {
        let asked = if number % 2 == 0 { &one } else { &other };
        let opened = ask(&asked.engine, &id, Command::Open { balance: 10 }).await.unwrap();
        assert_eq!(opened.balance, 10);
    }
    assert!(cluster.wires.asked.load(SeqCst) > 10, "some live elsewhere");
    for id in ids() {
        for node in [&one, &other] {
            assert_eq!(balance(&node.engine, &id).await, 10);
            let short = ask(&node.engine, &id, Command::Withdraw { amount: 11 })
                .await
                .unwrap_err();
            assert!(matches!(short, Error::Rejected(short) if short.balance == 10));
        }
    }
    for node in [&one, &other] {
        let unknown = node.engine.entity::<Account>("nobody").read(View {}).await.unwrap_err();
        assert!(matches!(unknown, Error::Unknown { kind: "account", id } if id == "nobody"));
        let crashed = ask(&node.engine, "a1", Command::PanicDeciding).await.unwrap_err();
        assert!(matches!(crashed, Error::Crashed { .. }), "{crashed}");
    }
}

//= promise 4: a key takes effect once
#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_known_to_all_nodes() {
    let (_cluster, one, other) = two().await;
    for id in ids() {
        ask(&one.engine, &id, Command::Open { balance: 0 }).await.unwrap();
        for node in [&one, &other, &one] {
            let deposit = Command::Deposit { amount: 7 };
            let account = node.engine.entity::<Account>(&*id).once("the same");
            assert_eq!(account.ask(deposit).await.unwrap().balance, 7);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn entities_reach_each_other_over_nodes() {
    let (_cluster, one, other) = two().await;
    for id in ids() {
        ask(&one.engine, &id, Command::Open { balance: 100 }).await.unwrap();
    }
    let all: Vec<String> = ids().collect();
    for (number, id) in all.iter().enumerate() {
        let next = all[(number + 1) % all.len()].clone();
        let pay = Command::pay(next.clone(), 30);
        ask(&other.engine, id, pay).await.unwrap();
        let collect = Command::Collect { from: next, amount: 1 };
        ask(&one.engine, id, collect).await.unwrap();
    }
    eventually(async || {
        let mut heard = 0;
        for id in &all {
            heard += usize::from(text(&one.engine, id).await.contains("left"));
        }
        heard == all.len()
    })
    .await;
    eventually(async || {
        let mut sum = 0;
        for id in &all {
            sum += balance(&other.engine, id).await;
        }
        sum == 99 * all.len() as i64
    })
    .await;
    // The command is forwarded, without and with an event recorded on the way.
    for (number, id) in all.iter().enumerate() {
        for note in [false, true] {
            let to = all[(number + 7) % all.len()].clone();
            let command = Box::new(Command::Deposit { amount: 1 });
            let asked = Command::Ask {
                other: to.clone(),
                command,
                note,
            };
            let answered = ask(&one.engine, id, asked).await.unwrap();
            assert_eq!(answered.balance, balance(&other.engine, &to).await);
        }
    }
}

//= promise 6: taken exactly once
#[tokio::test(flavor = "multi_thread")]
async fn messages_with_a_lost_answer_are_taken_once() {
    let (cluster, one, other) = two().await;
    for id in ids() {
        ask(&one.engine, &id, Command::Open { balance: 1_000 }).await.unwrap();
    }
    cluster.wires.lost_every.store(3, SeqCst);
    let all: Vec<String> = ids().collect();
    for round in 1..10 {
        for (number, id) in all.iter().enumerate() {
            let to = all[(number + round) % all.len()].clone();
            // The key shows if the payment was made, although its answer is lost.
            let key = format!("{round}");
            let pay = Command::Pay { to, amount: 1 };
            one.engine.entity::<Account>(&**id).once(key).ask(pay).await.unwrap();
        }
    }
    cluster.wires.lost_every.store(0, SeqCst);
    eventually(async || {
        let mut all_have = true;
        for id in &all {
            all_have &= balance(&other.engine, id).await == 1_000;
        }
        all_have
    })
    .await;
}

/// Adds a node with an outbox so small that messages to an unreachable node would fill it.
async fn node_with_small_outbox(cluster: &Cluster, name: &str) -> Node {
    let options = Options {
        outbox_max: OUTBOX_MAX as usize,
        ..Options::default()
    };
    cluster.node_with(name, |builder| builder.options(options)).await
}

const OUTBOX_MAX: u64 = 32;

#[tokio::test(flavor = "multi_thread")]
async fn messages_to_an_unreachable_node_wait_and_hold_up_no_other() {
    for is_epoch_over in [false, true] {
        let cluster = Cluster::new();
        let (one, other) = (
            node_with_small_outbox(&cluster, "one").await,
            cluster.node("other").await,
        );
        cluster.take(&one, &shards(0, 128)).await;
        cluster.take(&other, &shards(128, 256)).await;
        for id in ids() {
            ask(&one.engine, &id, Command::Open { balance: 1_000 }).await.unwrap();
        }
        cluster.wires.are_cut.store(true, SeqCst);
        let lives_here = |id: &String| limits::shard_of(limits::hash("account", id), nodes::SHARDS).0 < 128;
        let (here, there): (Vec<String>, Vec<String>) = ids().partition(lives_here);
        assert!(here.len() > 10 && there.len() > 10);
        // More payments than there is room for. Refused ones are repeated until taken.
        let mut sent = 0;
        while sent < 8 * OUTBOX_MAX {
            let from = &here[sent as usize % here.len()];
            let to = there[sent as usize % there.len()].clone();
            let pay = async || {
                let account = one.engine.entity::<Account>(&**from).once(format!("{sent}"));
                let to = to.clone();
                account.ask(Command::Pay { to, amount: 1 }).await.is_ok()
            };
            eventually(pay).await;
            sent += 1;
        }
        // Messages within this node are taken at once.
        let pay = Command::pay(here[1].clone(), 500);
        ask(&one.engine, &here[0], pay).await.unwrap();
        eventually(async || balance(&one.engine, &here[1]).await > 1_000).await;
        assert!(one.engine.statistics().outbox < OUTBOX_MAX, "they are not in memory");
        if is_epoch_over {
            let third = cluster.node("third").await;
            cluster.give(&one, &third, &shards(0, 128)).await;
        }
        cluster.wires.are_cut.store(false, SeqCst);
        let asked = &other.engine;
        eventually(async || {
            let mut sum = 0;
            for id in &there {
                sum += balance(asked, id).await - 1_000;
            }
            assert!(sum <= sent as i64, "one was taken twice: {sum}");
            sum == sent as i64
        })
        .await;
        // New payments are unaffected.
        let pay = Command::pay(there[0].clone(), 400);
        let before = balance(asked, &there[0]).await;
        ask(asked, &here[1], pay).await.unwrap();
        eventually(async || balance(asked, &there[0]).await == before + 400).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn shards_move_under_load_and_nobody_notices() {
    let (cluster, one, other) = two().await;
    for id in ids() {
        ask(&one.engine, &id, Command::Open { balance: 0 }).await.unwrap();
    }
    let (stop, deposits) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let clients: Vec<_> = ids()
        .enumerate()
        .map(|(number, id)| {
            let engine = [&one, &other][number % 2].engine.clone();
            let (stop, deposits) = (stop.clone(), deposits.clone());
            tokio::spawn(async move {
                let mut done = 0;
                while !stop.load(SeqCst) {
                    let answered = ask(&engine, &id, Command::Deposit { amount: 1 }).await;
                    let Balance { balance, .. } = answered.unwrap_or_else(|error| panic!("{id}: {error}"));
                    done += 1;
                    deposits.fetch_add(1, SeqCst);
                    assert_eq!(balance, done, "{id}");
                }
                (id, done)
            })
        })
        .collect();
    for round in 0..6 {
        more(&deposits, 200).await;
        let (from, to) = if round % 2 == 0 { (&one, &other) } else { (&other, &one) };
        cluster.give(from, to, &shards(64, 128)).await;
    }
    stop.store(true, SeqCst);
    for client in clients {
        let (id, done) = client.await.unwrap();
        assert!(done > 0);
        assert_eq!(balance(&other.engine, &id).await, done);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_nodes_answers_survive_and_it_writes_no_more() {
    let (cluster, one, other) = two().await;
    for id in ids() {
        ask(&one.engine, &id, Command::Open { balance: 5 }).await.unwrap();
        let pay = Command::pay("a0", 1);
        if id != "a0" {
            ask(&one.engine, &id, pay).await.unwrap();
        }
    }
    let view = cluster.directory.beat(other.id, NodeState::Serving).await.unwrap();
    let beat = view.node(one.id).unwrap().beat;
    assert!(cluster.directory.declare_dead(other.id, one.id, beat).await.unwrap());
    // The node does not know yet that it is dead. Its actions no longer count.
    let late = ask(&one.engine, "a1", Command::Deposit { amount: 1 }).await;
    let mine = view.shards_of(Some(one.id));
    cluster.take(&other, &mine).await;
    for id in ids().skip(1) {
        let expected = if id == "a1" && late.is_ok() { 5 } else { 4 };
        assert_eq!(balance(&other.engine, &id).await, expected, "{id}");
    }
    eventually(async || balance(&other.engine, "a0").await == 5 + 63).await;
    let gone = cluster.directory.beat(one.id, NodeState::Serving).await.unwrap_err();
    assert!(
        matches!(gone, throng::journal::Error::Gone(id) if id == one.id),
        "{gone}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn node_is_ready_while_requests_wait_for_a_handoff() {
    let cluster = Cluster::new();
    let micros = Arc::new(AtomicU64::new(1_000_000));
    let host = Stopwatch {
        host: TokioHost::new().unwrap(),
        micros: micros.clone(),
    };
    let node = cluster.node_with("one", |builder| builder.host(Arc::new(host))).await;
    cluster.take(&node, &shards(0, 256)).await;
    node.engine.driver().release().await.unwrap();
    let health = node.engine.health();
    assert!(health.ready && health.reason.is_none(), "{health:?}");
    // The requests have waited for the maximum time, and are refused.
    micros.fetch_add(2_000_000, SeqCst);
    let health = node.engine.health();
    assert!(!health.ready && health.reason.is_some(), "{health:?}");
    cluster.serve(&node).await;
    assert!(node.engine.health().ready);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_journal_goes_from_one_engine_to_a_cluster_and_back() {
    let cluster = Cluster::new();
    let single = cluster.world.engine().await;
    for id in ids() {
        ask(&single, &id, Command::Open { balance: 1 }).await.unwrap();
    }
    single.stop().await;
    drop(single);
    let (one, other) = (cluster.node("one").await, cluster.node("other").await);
    cluster.take(&one, &shards(0, 100)).await;
    cluster.take(&other, &shards(100, 256)).await;
    for id in ids() {
        ask(&one.engine, &id, Command::Deposit { amount: 1 }).await.unwrap();
    }
    assert!(
        cluster.world.try_engine().await.is_err(),
        "an engine that is alone does not begin beside nodes that live"
    );
    for node in [&one, &other] {
        node.engine.stop().await;
        cluster.directory.leave(node.id).await.unwrap();
    }
    let single = cluster.world.engine().await;
    for id in ids() {
        assert_eq!(balance(&single, &id).await, 2);
    }
}
