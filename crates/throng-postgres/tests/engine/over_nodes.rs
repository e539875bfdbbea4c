//! Several nodes on one journal: reads over all of them.

use crate::{
    counter::{Command, Counter, CounterEvent, Hits, until},
    kit,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use throng::{
    Engine, OperatorDecision, Options,
    driver::peers::{Peers, Reply, Request},
    journal::{Directory, Join, Later, NodeId, NodeState, ShardId, ShardSet, ViewRange},
    model::Keep,
    projection::{DurableEvent, Interrupt, Projection, ProjectionState, Rows},
};
use throng_postgres::{Opened, PostgresDirectory, open_postgres};
use throng_testing::eventually_ok;

const SHARDS: u16 = 256;
const COUNTERS: usize = 40;

/// A projection of the hits of each counter. It stops at an event that does not follow the previous one.
pub(crate) struct Counted;

impl Projection for Counted {
    const NAME: &'static str = "counted";
    type Of = Counter;

    fn apply(&self, seen: &DurableEvent<Counter>, rows: &mut Rows<'_>) -> Result<(), Interrupt> {
        let hits: u64 = rows.json(&seen.id)?.unwrap_or(0);
        let CounterEvent::Hit { by } = &seen.event else {
            return Ok(());
        };
        match seen.seq == hits + 1 {
            true => rows.put_json(&seen.id, &(hits + by)),
            false => Err(Interrupt::poison(format!("{}: {} after {hits}", seen.id, seen.seq))),
        }
    }
}

/// Engines that reach each other without a network.
#[derive(Default)]
pub(crate) struct Wires {
    engines: Mutex<BTreeMap<NodeId, Engine>>,
    owners: Mutex<Vec<Option<NodeId>>>,
}

impl Peers for Wires {
    fn ask(&self, shard: ShardId, request: Request, within: Duration) -> Later<'static, Reply> {
        let owner = self.owners.lock().unwrap().get(usize::from(shard.0)).copied().flatten();
        let engine = owner.and_then(|owner| self.engines.lock().unwrap().get(&owner).cloned());
        Box::pin(async move {
            match engine {
                Some(engine) => engine.driver().answer_peer(request, within).await,
                None => Reply::NotHere,
            }
        })
    }
}

pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) engine: Engine,
    pub(crate) directory: Arc<PostgresDirectory>,
}

async fn start(schema: &str, peers: Option<Arc<Wires>>) -> (Engine, Arc<PostgresDirectory>) {
    start_with(schema, peers, Options::default()).await
}

async fn start_with(schema: &str, peers: Option<Arc<Wires>>, options: Options) -> (Engine, Arc<PostgresDirectory>) {
    let Opened {
        journal,
        store,
        views,
        directory,
    } = open_postgres(kit::options(schema, "lease=1s")).unwrap();
    let builder = Engine::builder()
        .with::<Counter>()
        .query::<Counter, Hits>()
        .projection(Counted)
        .options(options)
        .views(views);
    let builder = match peers {
        Some(peers) => builder.peers(peers),
        None => builder,
    };
    (builder.start_shared(journal, store).await.unwrap(), directory)
}

async fn join(schema: &str, name: &str, wires: &Arc<Wires>) -> Node {
    join_with(schema, name, wires, Options::default()).await
}

pub(crate) async fn join_with(schema: &str, name: &str, wires: &Arc<Wires>, options: Options) -> Node {
    let (engine, directory) = start_with(schema, Some(wires.clone()), options).await;
    let join = Join {
        name: name.into(),
        shards: SHARDS,
        ..Join::default()
    };
    let id = directory.join(join).await.unwrap();
    directory.beat(id, NodeState::Serving).await.unwrap();
    wires.engines.lock().unwrap().insert(id, engine.clone());
    Node { id, engine, directory }
}

pub(crate) async fn serve(node: &Node, wires: &Wires) {
    let view = node.directory.beat(node.id, NodeState::Serving).await.unwrap();
    *wires.owners.lock().unwrap() = view.owners.clone();
    let own = view.shards_of(Some(node.id));
    node.engine.driver().serve(node.id, own).await.unwrap();
}

pub(crate) fn shards(from: u16, to: u16) -> ShardSet {
    (from..to).map(ShardId).collect()
}

async fn hit(engine: &Engine) {
    for counter in 0..COUNTERS {
        engine
            .entity::<Counter>(counter.to_string())
            .ask(Command::Hit {})
            .await
            .unwrap();
    }
}

/// Checks that each engine reads this many hits of every counter, and that one of them runs the projection.
async fn check(engines: &[&Engine], hits: u64) {
    for engine in engines {
        let rows = engine.read_model::<Counted>();
        assert!(rows.caught_up().await, "{:?}", engine.projections());
        for counter in 0..COUNTERS {
            let id = counter.to_string();
            let row = rows.get(&id).await.unwrap();
            assert_eq!(row, Some(hits.to_string().into_bytes()), "{id}");
            let history = engine.history(0, &id, 0, 100).await.unwrap();
            assert_eq!(history.events.len() as u64, hits, "{id}");
        }
        assert_eq!(rows.scan(ViewRange::default()).await.unwrap().len(), COUNTERS);
        assert_eq!(engine.entities(0, None, 1_000).await.unwrap().len(), COUNTERS);
    }
    let running = engines
        .iter()
        .filter(|engine| engine.projections()[0].state == ProjectionState::Running);
    assert_eq!(running.count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_lists_and_histories_agree_on_nodes_and_lone_engines() {
    let schema = kit::schema();
    let (single, _) = start(&schema, None).await;
    hit(&single).await;
    check(&[&single], 1).await;
    single.stop().await;
    drop(single);

    let wires = Arc::default();
    let (one, other) = (join(&schema, "one", &wires).await, join(&schema, "other", &wires).await);
    for (node, own) in [(&one, shards(0, 100)), (&other, shards(100, SHARDS))] {
        assert_eq!(node.directory.take(node.id, &own).await.unwrap(), own);
        serve(node, &wires).await;
    }
    hit(&one.engine).await;
    hit(&other.engine).await;
    check(&[&one.engine, &other.engine], 3).await;

    // All but one shard move to the other node.
    one.engine.driver().release().await.unwrap();
    one.directory.give(one.id, other.id, &shards(1, 100)).await.unwrap();
    serve(&one, &wires).await;
    serve(&other, &wires).await;
    hit(&one.engine).await;
    check(&[&one.engine, &other.engine], 4).await;

    // The other node dies without notice.
    let view = other.directory.beat(other.id, NodeState::Serving).await.unwrap();
    let is_dead = one
        .directory
        .declare_dead(one.id, other.id, view.node(other.id).unwrap().beat + 1);
    let beat = one.directory.view().await.unwrap().node(other.id).unwrap().beat;
    assert!(!is_dead.await.unwrap(), "it has not beaten so often");
    assert!(one.directory.declare_dead(one.id, other.id, beat).await.unwrap());
    let left = view.shards_of(Some(other.id));
    assert_eq!(one.directory.take(one.id, &left).await.unwrap(), left);
    serve(&one, &wires).await;
    hit(&one.engine).await;
    check(&[&one.engine], 5).await;

    hit(&one.engine).await;
    one.engine.stop().await;
    other.engine.stop().await;
    one.directory.leave(one.id).await.unwrap();
    wires.engines.lock().unwrap().clear();
    drop((one, other));
    let (single, _) = start(&schema, None).await;
    hit(&single).await;
    check(&[&single], 7).await;
    single.stop().await;
}

/// A projection of each counter's last event. It fails at the second event.
struct NoSecond;

impl Projection for NoSecond {
    const NAME: &'static str = "no-second";
    type Of = Counter;

    fn apply(&self, seen: &DurableEvent<Counter>, rows: &mut Rows<'_>) -> Result<(), Interrupt> {
        match seen.seq {
            2 => Err(Interrupt::poison("it is the second")),
            seq => rows.put_json(&seen.id, &seq),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_was_skipped_stays_skipped_for_the_next_life() {
    let schema = kit::schema();
    let start = async || {
        let opened = open_postgres(kit::options(&schema, "lease=1s")).unwrap();
        let builder = Engine::builder().with::<Counter>().projection(NoSecond);
        let engine = builder.views(opened.views).start_shared(opened.journal, opened.store);
        engine.await.unwrap()
    };
    let engine = start().await;
    for _ in 0..4 {
        engine.entity::<Counter>("one").ask(Command::Hit {}).await.unwrap();
    }
    assert!(!engine.read_model::<NoSecond>().caught_up().await);
    let ProjectionState::Stopped { at: Some(at), .. } = engine.projections()[0].state else {
        panic!("{:?}", engine.projections())
    };
    let by = OperatorDecision::new("ann", "it is of no use");
    engine.skip_event(NoSecond::NAME, at, by).await.unwrap();
    until("it is skipped", || !engine.projections()[0].skipped.is_empty()).await;
    let skipped = engine.projections().remove(0).skipped;
    engine.stop().await;

    let engine = start().await;
    let rows = engine.read_model::<NoSecond>();
    assert!(rows.caught_up().await, "{:?}", engine.projections());
    assert_eq!(rows.get("one").await.unwrap().as_deref(), Some(&b"4"[..]));
    assert_eq!(engine.projections()[0].skipped, skipped);
    assert_eq!((skipped.len(), skipped[0].event), (1, at));
    engine.stop().await;
}

/// Moves shards from one node to the other.
pub(crate) async fn give(from: &Node, to: &Node, of: &ShardSet, wires: &Wires) {
    from.engine.driver().release().await.unwrap();
    from.directory.give(from.id, to.id, of).await.unwrap();
    serve(from, wires).await;
    serve(to, wires).await;
}

/// Returns the number of remaining events of all counters.
async fn left(engine: &Engine) -> usize {
    let mut left = 0;
    for counter in 0..COUNTERS {
        let history = engine.history(0, &counter.to_string(), 0, 1_000).await.unwrap();
        left += history.events.len();
    }
    left
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_history_goes_while_shards_change_owners() {
    const ROUNDS: u16 = 8;
    let schema = kit::schema();
    let options = || Options {
        // All durable history is expired.
        keep: BTreeMap::from([("counter".to_owned(), Keep::Age(Duration::ZERO))]),
        prune_every: Some(Duration::from_hours(1)),
        checkpoint_every: Duration::from_millis(200),
        ..Options::default()
    };
    let wires = Arc::default();
    let one = join_with(&schema, "one", &wires, options()).await;
    let other = join_with(&schema, "other", &wires, options()).await;
    for (node, own) in [(&one, shards(0, 128)), (&other, shards(128, SHARDS))] {
        assert_eq!(node.directory.take(node.id, &own).await.unwrap(), own);
        serve(node, &wires).await;
    }
    hit(&one.engine).await;
    for round in 0..ROUNDS {
        let of = shards(round * 16, round * 16 + 16);
        let passes = async |engine: Engine| {
            for _ in 0..3 {
                // A pass may be cut off by a change of owners.
                if let Err(why) = engine.prune(false).await {
                    println!("a pass in round {round}: {why}");
                }
            }
        };
        tokio::join!(passes(one.engine.clone()), passes(other.engine.clone()), async {
            hit(&other.engine).await;
            give(&one, &other, &of, &wires).await;
            hit(&one.engine).await;
        },);
    }
    hit(&one.engine).await;
    hit(&other.engine).await;
    let hits = 3 + 2 * u64::from(ROUNDS);
    // The projection stores its progress with its rows within a second.
    eventually_ok("history goes", async || {
        other.engine.prune(false).await.unwrap();
        match left(&one.engine).await {
            still if still < COUNTERS => Ok(()),
            still => Err(format!("{still} events of {COUNTERS} counters are left")),
        }
    })
    .await;
    for node in [&one, &other] {
        let rows = node.engine.read_model::<Counted>();
        assert!(rows.caught_up().await, "{:?}", node.engine.projections());
        assert_eq!(rows.scan(ViewRange::default()).await.unwrap().len(), COUNTERS);
        node.engine.stop().await;
        node.directory.leave(node.id).await.unwrap();
    }
    wires.engines.lock().unwrap().clear();
    drop((one, other));
    // Only the commits remain.
    let lost = format!(
        "SET search_path TO {schema}; TRUNCATE entities, states, places, system, events, covers; UPDATE checkpoint SET writer = NULL, \
         commit = NULL, events_writer = NULL, events_commit = NULL"
    );
    kit::psql(&kit::SERVER).await.batch_execute(&lost).await.unwrap();
    let (single, _) = start_with(&schema, None, options()).await;
    for counter in 0..COUNTERS {
        let read = single.entity::<Counter>(counter.to_string()).read(Hits).await;
        assert_eq!(read.unwrap(), hits, "counter {counter}");
    }
    single.stop().await;
}
