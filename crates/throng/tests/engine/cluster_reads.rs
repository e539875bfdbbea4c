//! Reads over all nodes of a cluster, from any node.

use crate::kinds::{Account, AccountEvent, Command, World, ask, balance, eventually, more, waits};
use crate::nodes::{Cluster, Node, ids, shards};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};
use throng::{
    Builder, Cursor, Engine, EntityEvent, FeedError, Follow,
    journal::{Directory, MemoryViews, NodeState, ShardSet, ViewRange, Views},
    model::Error,
    projection::{DurableEvent, Interrupt, Projection, ProjectionState, Rows},
};

/// A projection of the balance of each account, and the number of its events. Each event must follow the previous one.
struct Balances;

impl Projection for Balances {
    const NAME: &'static str = "balances";
    type Of = Account;

    fn apply(&self, seen: &DurableEvent<Account>, rows: &mut Rows<'_>) -> Result<(), Interrupt> {
        let (events, balance): (u64, i64) = rows.json(&seen.id)?.unwrap_or_default();
        if seen.seq != events + 1 {
            return Err(Interrupt::poison(format!("{}: {} after {events}", seen.id, seen.seq)));
        }
        let change = match &seen.event {
            AccountEvent::Opened { balance } => *balance,
            AccountEvent::Deposited { amount } => *amount,
            AccountEvent::Withdrawn { amount } => -amount,
            _ => 0,
        };
        rows.put_json(&seen.id, &(seen.seq, balance + change))
    }
}

struct Reads {
    cluster: Cluster,
    views: MemoryViews,
}

impl Reads {
    fn new() -> Self {
        let (cluster, views) = (Cluster::new(), MemoryViews::new());
        Self { cluster, views }
    }

    fn more(&self) -> impl FnOnce(Builder) -> Builder + use<> {
        let views: Arc<dyn Views> = Arc::new(self.views.clone());
        move |builder| builder.projection(Balances).views(views)
    }

    async fn node(&self, name: &str) -> Node {
        self.cluster.node_with(name, self.more()).await
    }

    async fn single(&self) -> Engine {
        let World { journal, store } = &self.cluster.world;
        let builder = self.more()(World::builder());
        let started = builder.start_shared(Arc::new(journal.clone()), Arc::new(store.clone()));
        started.await.unwrap()
    }

    async fn two(&self) -> [Node; 2] {
        let nodes = [self.node("one").await, self.node("other").await];
        self.cluster.take(&nodes[0], &shards(0, 128)).await;
        self.cluster.take(&nodes[1], &shards(128, 256)).await;
        nodes
    }
}

/// Checks that every engine reads the entities' balances, and at most one engine runs the projection.
async fn agree(engines: &[&Engine]) {
    for engine in engines {
        let rows = engine.read_model::<Balances>();
        assert!(rows.caught_up().await, "{:?}", engine.projections());
        for id in ids() {
            let row = rows.get(&id).await.unwrap().unwrap();
            let (_, told): (u64, i64) = serde_json::from_slice(&row).unwrap();
            assert_eq!(told, balance(engine, &id).await, "{id}");
        }
        assert_eq!(rows.scan(ViewRange::default()).await.unwrap().len(), ids().count());
        assert_eq!(rows.get("").await.unwrap(), None);
    }
    let runs = |engine: &&&Engine| engine.projections()[0].state == ProjectionState::Running;
    assert_eq!(engines.iter().filter(runs).count(), 1);
    for engine in engines {
        assert_eq!(engine.projections()[0].trouble(), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_projection_takes_the_events_of_all_nodes() {
    let reads = Reads::new();
    let [one, other] = reads.two().await;
    for (number, id) in ids().enumerate() {
        let asked = if number % 2 == 0 { &one } else { &other };
        ask(&asked.engine, &id, Command::Open { balance: 10 }).await.unwrap();
    }
    agree(&[&one.engine, &other.engine]).await;
    for id in ids() {
        ask(&one.engine, &id, Command::Withdraw { amount: 3 }).await.unwrap();
    }
    agree(&[&other.engine, &one.engine]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_projection_goes_on_while_shards_and_its_own_runner_move() {
    let reads = Reads::new();
    let [one, other] = reads.two().await;
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
                while !stop.load(SeqCst) {
                    ask(&engine, &id, Command::Deposit { amount: 1 }).await.unwrap();
                    deposits.fetch_add(1, SeqCst);
                }
            })
        })
        .collect();
    // All shards but one move to the other node and back, and so does the projection.
    for round in 0..6 {
        more(&deposits, 200).await;
        let (from, to) = if round % 2 == 0 { (&one, &other) } else { (&other, &one) };
        let own = reads.cluster.directory.view().await.unwrap().shards_of(Some(from.id));
        let given: ShardSet = own.iter().skip(1).collect();
        reads.cluster.give(from, to, &given).await;
    }
    stop.store(true, SeqCst);
    for client in clients {
        client.await.unwrap();
    }
    agree(&[&one.engine, &other.engine]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_projection_goes_on_where_a_dead_node_has_run_it() {
    let reads = Reads::new();
    let [one, other] = reads.two().await;
    let third = reads.node("third").await;
    for id in ids() {
        ask(&one.engine, &id, Command::Open { balance: 5 }).await.unwrap();
    }
    agree(&[&one.engine, &other.engine]).await;
    let runs = one.engine.projections()[0].state == ProjectionState::Running;
    let (dead, left) = if runs { (one, other) } else { (other, one) };
    for id in ids() {
        ask(&left.engine, &id, Command::Deposit { amount: 2 }).await.unwrap();
    }
    let view = reads.cluster.directory.beat(left.id, NodeState::Serving).await.unwrap();
    let beat = view.node(dead.id).unwrap().beat;
    assert!(
        reads
            .cluster
            .directory
            .declare_dead(left.id, dead.id, beat)
            .await
            .unwrap()
    );
    reads.cluster.take(&third, &view.shards_of(Some(dead.id))).await;
    for id in ids() {
        ask(&left.engine, &id, Command::Deposit { amount: 1 }).await.unwrap();
    }
    agree(&[&left.engine, &third.engine]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_projection_goes_from_one_engine_to_a_cluster_and_back() {
    let reads = Reads::new();
    let single = reads.single().await;
    for id in ids() {
        ask(&single, &id, Command::Open { balance: 1 }).await.unwrap();
    }
    agree(&[&single]).await;
    // Some events are read only at the end.
    for id in ids() {
        ask(&single, &id, Command::Deposit { amount: 1 }).await.unwrap();
    }
    single.stop().await;
    drop(single);
    let [one, other] = reads.two().await;
    for id in ids() {
        ask(&other.engine, &id, Command::Deposit { amount: 1 }).await.unwrap();
    }
    agree(&[&one.engine, &other.engine]).await;
    for id in ids() {
        ask(&one.engine, &id, Command::Deposit { amount: 1 }).await.unwrap();
    }
    for node in [&one, &other] {
        node.engine.stop().await;
        reads.cluster.directory.leave(node.id).await.unwrap();
    }
    drop((one, other));
    let single = reads.single().await;
    for id in ids() {
        ask(&single, &id, Command::Deposit { amount: 1 }).await.unwrap();
    }
    agree(&[&single]).await;
    // The rows about several streams are lost with them.
    let hidden = reads.views.get("balances", vec![Vec::new()]).await.unwrap();
    assert_eq!(hidden, [None]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_projection_is_rebuilt_from_any_node() {
    let reads = Reads::new();
    let [one, other] = reads.two().await;
    for id in ids() {
        ask(&one.engine, &id, Command::Open { balance: 5 }).await.unwrap();
    }
    agree(&[&one.engine, &other.engine]).await;
    for node in [&one, &other] {
        let stray = [(b"stray".to_vec(), Some(b"row".to_vec()))];
        let before = reads.views.offset("balances").await.unwrap();
        let batch = throng::journal::ViewBatch {
            expected: before,
            offset: before.unwrap(),
            changes: stray.into(),
        };
        reads.views.apply("balances", batch).await.unwrap();
        assert!(node.engine.rebuild_projection("balances"));
        eventually(async || {
            let stray = reads.views.get("balances", vec![b"stray".to_vec()]).await.unwrap();
            stray == [None] && reads.views.offset("balances").await.unwrap().is_some()
        })
        .await;
        agree(&[&one.engine, &other.engine]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn any_node_lists_all_entities_and_knows_their_history() {
    let reads = Reads::new();
    let [one, other] = reads.two().await;
    let third = reads.node("third").await;
    for (number, id) in ids().enumerate() {
        let asked = if number % 2 == 0 { &one } else { &other };
        ask(&asked.engine, &id, Command::Open { balance: 0 }).await.unwrap();
        ask(
            &asked.engine,
            &id,
            Command::Deposit {
                amount: number as i64 + 1,
            },
        )
        .await
        .unwrap();
    }
    let mut all: Vec<String> = ids().collect();
    all.sort_unstable();
    for round in 0..3 {
        for node in [&one, &other, &third] {
            if node.id == third.id && round == 0 {
                // The node owns nothing and serves nothing yet.
                continue;
            }
            let listed = node.engine.entities(0, None, 1_000).await.unwrap();
            assert!(listed.iter().all(|head| head.seq == 2 + round), "{listed:?}");
            let listed: Vec<&str> = listed.iter().map(|head| &*head.id).collect();
            assert_eq!(listed, all);
            let page = node.engine.entities(0, Some(&all[9]), 20).await.unwrap();
            let page: Vec<&str> = page.iter().map(|head| &*head.id).collect();
            assert_eq!(page, all[10..30]);
            for id in ids() {
                let history = node.engine.history(0, &id, 0, 100).await.unwrap();
                let seqs: Vec<u64> = history.events.iter().map(|event| event.seq).collect();
                assert_eq!(seqs, (1..=2 + round).collect::<Vec<_>>(), "{id}");
                let page = node.engine.history(0, &id, 1, 1).await.unwrap();
                assert_eq!(page.events, history.events[1..2]);
                assert_eq!(page.more, round > 0);
            }
            let unknown = node.engine.history(0, "nobody", 0, 1).await.unwrap_err();
            assert!(
                matches!(&unknown, FeedError::Engine(Error::Unknown { kind: "account", .. })),
                "{unknown}"
            );
        }
        match round {
            0 => reads.cluster.give(&one, &third, &shards(20, 90)).await,
            1 => reads.cluster.give(&other, &third, &shards(200, 256)).await,
            _ => break,
        }
        for id in ids() {
            ask(&third.engine, &id, Command::Deposit { amount: 1 }).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_is_whole_while_shards_move() {
    let reads = Reads::new();
    let [one, other] = reads.two().await;
    for id in ids() {
        ask(&one.engine, &id, Command::Open { balance: 0 }).await.unwrap();
    }
    let (stop, reads_done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let readers: Vec<_> = [&one, &other]
        .map(|node| {
            let (engine, stop, reads_done) = (node.engine.clone(), stop.clone(), reads_done.clone());
            tokio::spawn(async move {
                while !stop.load(SeqCst) {
                    assert_eq!(engine.entities(0, None, 1_000).await.unwrap().len(), ids().count());
                    for id in ids() {
                        assert_eq!(engine.history(0, &id, 0, 10).await.unwrap().events.len(), 1, "{id}");
                        reads_done.fetch_add(1, SeqCst);
                    }
                }
            })
        })
        .into();
    for round in 0..6 {
        more(&reads_done, 100).await;
        let (from, to) = if round % 2 == 0 { (&one, &other) } else { (&other, &one) };
        reads.cluster.give(from, to, &shards(64, 128)).await;
    }
    stop.store(true, SeqCst);
    for reader in readers {
        reader.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entity_is_followed_from_any_node() {
    let reads = Reads::new();
    let [one, other] = reads.two().await;
    for id in ids().take(8) {
        ask(&one.engine, &id, Command::Open { balance: 0 }).await.unwrap();
    }
    for node in [&one, &other] {
        for id in ids().take(8) {
            let follow = Follow::Entity {
                kind: 0,
                id: id.clone(),
                after: 0,
                at: None,
            };
            let mut follower = node.engine.follow(follow).await.unwrap();
            let first = follower.next(10).await.unwrap();
            let seen = first.last().unwrap().event.seq;
            let mut next = Box::pin(async move { follower.next(10).await.unwrap() });
            waits(&mut next).await;
            let next = tokio::spawn(next);
            ask(&other.engine, &id, Command::Deposit { amount: 1 }).await.unwrap();
            let next = next.await.unwrap();
            assert_eq!((next.len(), next[0].event.seq), (1, seen + 1));
        }
    }
}

/// The number of the last event of each account that a follower received.
#[derive(Default)]
struct Positions(BTreeMap<String, u64>);

impl Positions {
    /// Checks that each event follows the previous one of its entity.
    fn note(&mut self, events: &[Arc<EntityEvent>]) {
        for event in events {
            let last = self.0.entry(event.id.to_string()).or_default();
            assert_eq!(event.event.seq, *last + 1, "{}", event.id);
            *last += 1;
        }
    }

    fn count(&self) -> u64 {
        self.0.values().sum()
    }
}

/// Follows all accounts from a cursor until this many events were received. Returns the new cursor.
async fn follow(node: &Node, from: Cursor, told: &mut Positions, until: u64) -> Cursor {
    let mut follower = node.engine.follow(Follow::Kind { kind: 0, from }).await.unwrap();
    while told.count() < until {
        let events = tokio::time::timeout(Duration::from_mins(1), follower.next(7)).await;
        told.note(&events.expect("it is told").unwrap());
    }
    // A client stores the cursor as text, and resumes with it.
    follower.place().to_string().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_is_followed_at_one_node_and_on_at_another() {
    let reads = Reads::new();
    let [one, other] = reads.two().await;
    let start = other.engine.place(true).await.unwrap();
    let (mut told, mut at) = (Positions::default(), start.clone());
    let mut count = 0;
    for round in 0..8_u64 {
        let asked = if round % 2 == 0 { &one } else { &other };
        for id in ids() {
            let command = match round {
                0 => Command::Open { balance: 0 },
                _ => Command::Deposit { amount: 1 },
            };
            ask(&asked.engine, &id, command).await.unwrap();
            count += 1;
        }
        // From the middle and from the end of the events, at either node.
        at = follow(&one, at, &mut told, count - 30).await;
        if round % 3 == 1 {
            let (from, to) = if round % 2 == 1 { (&one, &other) } else { (&other, &one) };
            reads.cluster.give(from, to, &shards(64, 128)).await;
        }
        at = follow(&other, at, &mut told, count).await;
    }
    assert_eq!(told.count(), count);
    // From the start, both nodes deliver the same events. At the end there are no more.
    for node in [&one, &other] {
        let mut all = Positions::default();
        let end = follow(node, start.clone(), &mut all, count).await;
        assert_eq!(all.0, told.0);
        for from in [&end, &at] {
            let rest = node.engine.feed(0, from.clone(), 10).await.unwrap();
            assert_eq!((rest.events.len(), rest.more), (0, false), "{from}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn followers_that_wait_are_told_events_of_another_node() {
    let reads = Reads::new();
    let [one, other] = reads.two().await;
    for id in ids() {
        ask(&one.engine, &id, Command::Open { balance: 0 }).await.unwrap();
    }
    let now = async |node: &Node| Follow::Kind {
        kind: 0,
        from: node.engine.place(false).await.unwrap(),
    };
    let mut followers = Vec::new();
    for number in 0..20 {
        let node = if number % 2 == 0 { &one } else { &other };
        followers.push(node.engine.follow(now(node).await).await.unwrap());
    }
    let mut waiting = Vec::new();
    for mut follower in followers {
        let mut seen = Box::pin(async move {
            let mut seen = Vec::new();
            while seen.len() < 64 {
                seen.extend(follower.next(100).await.unwrap());
            }
            seen
        });
        waits(&mut seen).await;
        waiting.push(tokio::spawn(seen));
    }
    for id in ids() {
        ask(&one.engine, &id, Command::Deposit { amount: 1 }).await.unwrap();
    }
    for follower in waiting {
        let seen = tokio::time::timeout(Duration::from_mins(1), follower)
            .await
            .expect("it is told")
            .unwrap();
        assert!(seen.iter().all(|event| event.event.seq == 2) && seen.len() == 64);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_that_no_stream_of_the_cluster_has_is_refused() {
    let reads = Reads::new();
    let [one, _other] = reads.two().await;
    ask(&one.engine, "a1", Command::Open { balance: 0 }).await.unwrap();
    for cursor in ["99.1", "1.1,99.2", "1.77"] {
        let from: Cursor = cursor.parse().unwrap();
        let lost = one.engine.follow(Follow::Kind { kind: 0, from }).await.err();
        assert!(
            matches!(&lost, Some(FeedError::Lost(lost)) if lost == cursor),
            "{lost:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn number_beyond_the_last_event_is_lost_at_any_node() {
    let reads = Reads::new();
    let [one, other] = reads.two().await;
    let follow = |id: &str, after| Follow::Entity {
        kind: 0,
        id: id.into(),
        after,
        at: None,
    };
    for round in 1..4_u64 {
        for id in ids() {
            let command = match round {
                1 => Command::Open { balance: 0 },
                _ => Command::Deposit { amount: 1 },
            };
            ask(&one.engine, &id, command).await.unwrap();
            for node in [&one, &other] {
                assert!(node.engine.follow(follow(&id, round)).await.is_ok(), "{id} {round}");
                assert_eq!(node.engine.history(0, &id, round, 9).await.unwrap().events, []);
                let lost = node.engine.follow(follow(&id, round + 1)).await.err();
                assert!(matches!(lost, Some(FeedError::Lost(_))), "{id} {lost:?}");
                let lost = node.engine.history(0, &id, round + 1, 9).await.err();
                assert!(matches!(lost, Some(FeedError::Lost(_))), "{id} {lost:?}");
            }
        }
        let (from, to) = if round % 2 == 1 { (&one, &other) } else { (&other, &one) };
        reads.cluster.give(from, to, &shards(64, 128)).await;
    }
}
