//! Retention: history that ends.

use crate::kinds::{failing::Failing, *};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering::SeqCst},
    },
    time::Duration,
};
use throng::{
    Engine, FeedError, Follow, OperatorDecision, Options,
    journal::{
        Address, Checkpoint, CommitNo, Error, Journal, Loaded, Maybe, MemoryStore, Position, RecordKind, ShardSet,
        Store, WriterId,
    },
    model::{self, Keep},
};
use throng_testing::{Fallible, delegate};

fn keeping(keep: Keep) -> Options {
    Options {
        keep: BTreeMap::from([("account".to_owned(), keep)]),
        // Passes run only on a test's request.
        prune_every: Some(Duration::from_hours(1)),
        ..Options::default()
    }
}

/// Keeps no durable history.
const NOTHING: Keep = Keep::Age(Duration::ZERO);

async fn seqs(engine: &Engine, id: &str) -> Vec<u64> {
    let history = engine.history(0, id, 0, 1_000).await.unwrap();
    history.events.iter().map(|event| event.seq).collect()
}

/// Returns the remaining records of an entity, by kind.
async fn left(world: &World, id: &str) -> Vec<(RecordKind, u64)> {
    let mut found = Vec::new();
    for writer in 1..20 {
        let start = Position::new(WriterId(writer), CommitNo(0));
        for commit in world.journal.read(start, usize::MAX).await.unwrap() {
            let own = commit.records().flatten().filter(|record| record.id == id);
            found.extend(own.map(|record| (record.record, record.seq)));
        }
    }
    found
}

/// Returns the records that remain of an erased entity.
fn left_of_erased(seq: u64) -> [(RecordKind, u64); 3] {
    [
        (RecordKind::Erasure, 0),
        (RecordKind::Ended, seq),
        (RecordKind::Erasure, 0),
    ]
}

async fn fill(engine: &Engine, ids: &[&str], deposits: usize) {
    for id in ids {
        open(engine, id, 0).await;
        for _ in 0..deposits {
            ask(engine, id, Command::Deposit { amount: 1 }).await.unwrap();
        }
    }
    // Another event follows, so a checkpoint covers everything before it.
    open(engine, "last", 0).await;
    ask(engine, "last", Command::Deposit { amount: 1 }).await.unwrap();
}

/// Restarts on the same journal, with the existing store or a new one.
async fn again(world: &mut World, engine: Engine, keep: Keep, is_store_lost: bool) -> Engine {
    engine.stop().await;
    if is_store_lost {
        world.store = MemoryStore::new(world.journal.clone());
    }
    world.engine_with(keeping(keep)).await
}

#[tokio::test]
async fn expired_history_goes_and_the_state_survives_any_loss() {
    for is_store_lost in [false, true] {
        let mut world = World::new();
        let mut engine = world.engine_with(keeping(NOTHING)).await;
        fill(&engine, &["a", "b"], 20).await;
        let dry = engine.prune(true).await.unwrap();
        assert_eq!(seqs(&engine, "a").await.len(), 21, "a dry run changes nothing");
        let pruned = engine.prune(false).await.unwrap();
        assert!(pruned.records >= 40 && pruned.bytes > 0, "{pruned}");
        assert!(dry.records <= pruned.records && dry.is_dry && dry.records > 0, "{dry}");
        assert!(seqs(&engine, "a").await.is_empty());
        assert_eq!(balance(&engine, "a").await, 20);
        for round in 0..3 {
            engine = again(&mut world, engine, NOTHING, is_store_lost).await;
            assert_eq!(balance(&engine, "b").await, 20 + round);
            ask(&engine, "b", Command::Deposit { amount: 1 }).await.unwrap();
            assert_eq!(
                *seqs(&engine, "b").await.last().unwrap(),
                22 + u64::try_from(round).unwrap()
            );
            engine.prune(false).await.unwrap();
        }
        let events = left(&world, "b")
            .await
            .into_iter()
            .filter(|(kind, _)| *kind == RecordKind::Event);
        assert!(events.count() <= 2, "what was written last may still stand there");
        engine.stop().await;
    }
}

#[tokio::test]
async fn the_last_events_of_each_entity_are_kept() {
    for is_store_lost in [false, true] {
        let mut world = World::new();
        let engine = world.engine_with(keeping(Keep::Events(5))).await;
        fill(&engine, &["a", "b"], 20).await;
        open(&engine, "short", 3).await;
        engine.prune(false).await.unwrap();
        assert_eq!(seqs(&engine, "a").await, [17, 18, 19, 20, 21]);
        assert_eq!(seqs(&engine, "short").await, [1]);
        let engine = again(&mut world, engine, Keep::Events(5), is_store_lost).await;
        assert_eq!(seqs(&engine, "a").await, [17, 18, 19, 20, 21]);
        assert_eq!((balance(&engine, "a").await, balance(&engine, "short").await), (20, 3));
        ask(&engine, "a", Command::Deposit { amount: 1 }).await.unwrap();
        assert_eq!(balance(&engine, "a").await, 21);
        fill(&engine, &[], 0).await;
        engine.prune(false).await.unwrap();
        assert_eq!(seqs(&engine, "a").await, [18, 19, 20, 21, 22]);
        engine.stop().await;
    }
}

#[tokio::test]
async fn end_of_removed_history_is_known() {
    for is_store_lost in [false, true] {
        let mut world = World::new();
        let mut engine = world.engine_with(keeping(NOTHING)).await;
        fill(&engine, &["a"], 3).await;
        engine.prune(false).await.unwrap();
        let follow = |after| Follow::Entity {
            kind: 0,
            id: "a".into(),
            after,
            at: None,
        };
        // The later rounds also have what a checkpoint has written into the new store.
        for is_lost_next in [is_store_lost, false, false] {
            let history = engine.history(0, "a", 0, 9).await.unwrap();
            assert_eq!((history.events.len(), history.removed), (0, 4));
            for after in 0..5 {
                assert!(engine.follow(follow(after)).await.is_ok(), "{after}");
                assert!(engine.history(0, "a", after, 9).await.is_ok(), "{after}");
            }
            let lost = engine.follow(follow(5)).await.err();
            assert!(matches!(lost, Some(FeedError::Lost(_))), "{lost:?}");
            engine = again(&mut world, engine, NOTHING, is_lost_next).await;
        }
        engine.stop().await;
    }
}

#[tokio::test]
async fn a_kind_that_keeps_all_keeps_all() {
    let world = World::new();
    let engine = world.engine_with(keeping(Keep::Forever)).await;
    fill(&engine, &["a"], 20).await;
    assert_eq!(engine.prune(false).await.unwrap().records, 0);
    assert_eq!(seqs(&engine, "a").await.len(), 21);
    engine.stop().await;
}

#[tokio::test]
async fn of_one_that_has_ended_nothing_is_left_but_that_it_has() {
    for is_store_lost in [false, true] {
        let mut world = World::new();
        let engine = world.engine_with(keeping(NOTHING)).await;
        fill(&engine, &["a"], 3).await;
        ask(&engine, "a", Command::Close).await.unwrap();
        fill(&engine, &["b"], 1).await;
        let pruned = engine.prune(false).await.unwrap();
        assert_eq!(pruned.gone, 1, "{pruned}");
        let mut engine = engine;
        for _ in 0..2 {
            let late = ask(&engine, "a", Command::Deposit { amount: 1 }).await;
            assert!(matches!(late, Err(model::Error::Ended { .. })), "{late:?}");
            let looked = engine.entity::<Account>("a").read(View {}).await;
            assert!(matches!(looked, Err(model::Error::Ended { .. })), "{looked:?}");
            let listed = engine.entities(0, None, 10).await.unwrap();
            assert!(listed.iter().all(|head| &*head.id != "a"), "{listed:?}");
            let rest = left(&world, "a").await;
            assert_eq!(rest, [(RecordKind::Ended, 5)]);
            engine = again(&mut world, engine, NOTHING, is_store_lost).await;
        }
        let reopened = ask(&engine, "a", Command::Reopen).await.unwrap();
        assert_eq!((reopened.balance, &*reopened.text), (1, ""));
        engine = again(&mut world, engine, NOTHING, is_store_lost).await;
        assert_eq!((balance(&engine, "a").await, seqs(&engine, "a").await), (1, vec![6]));
        engine.stop().await;
    }
}

#[tokio::test]
async fn timers_messages_and_keys_outlive_the_records_they_came_from() {
    for is_store_lost in [false, true] {
        let mut world = World::new();
        let engine = world.engine_with(keeping(NOTHING)).await;
        fill(&engine, &["a", "b"], 3).await;
        let remind = |in_ms| Command::remind(in_ms, Some(50));
        // Timers: one was set anew, one was cancelled, and one is no longer known.
        ask(&engine, "a", remind(3_600_000)).await.unwrap();
        ask(&engine, "a", remind(600)).await.unwrap();
        ask(&engine, "b", remind(600)).await.unwrap();
        ask(&engine, "b", Command::Cancel).await.unwrap();
        let pay = |to: &str| Command::pay(to, 1);
        ask(&engine, "a", pay("b")).await.unwrap();
        ask(&engine, "a", pay("nobody")).await.unwrap();
        let keyed = async |engine: &Engine| {
            let deposit = Command::Deposit { amount: 5 };
            engine
                .entity::<Account>("b")
                .once("key")
                .ask(deposit)
                .await
                .unwrap()
                .balance
        };
        assert_eq!(keyed(&engine).await, 9);
        let dead = async |engine: &Engine| engine.dead_messages(None, None, 10).await.unwrap().messages.len();
        eventually(async || dead(&engine).await == 1).await;
        let mut engine = engine;
        for _ in 0..3 {
            engine.prune(false).await.unwrap();
            engine = again(&mut world, engine, NOTHING, is_store_lost).await;
            assert_eq!((balance(&engine, "b").await, dead(&engine).await), (9, 1));
            assert_eq!(keyed(&engine).await, 9, "answered, not done again");
        }
        let ticks = async |id: &str| engine.entity::<Account>(id).read(Ticks {}).await.unwrap();
        eventually(async || ticks("a").await > 0).await;
        assert_eq!(ticks("b").await, 0);
        ask(&engine, "a", pay("b")).await.unwrap();
        eventually(async || balance(&engine, "b").await == 10).await;
        engine.stop().await;
    }
}

#[tokio::test]
async fn an_erased_entity_leaves_nothing_but_that_it_was_erased() {
    for is_store_lost in [false, true] {
        let mut world = World::new();
        let engine = world.engine_with(keeping(Keep::Forever)).await;
        fill(&engine, &["a", "b"], 3).await;
        let secret = "a secret that only a knew".to_owned();
        ask(&engine, "a", Command::Heard { text: secret.clone() })
            .await
            .unwrap();
        let pay = Command::pay("b", 1);
        ask(&engine, "a", pay).await.unwrap();
        let erased = engine.erase("account", "a").await.unwrap();
        assert!(erased.records >= 6, "{erased}");
        let unknown = engine.erase("account", "nobody").await;
        assert!(matches!(unknown, Err(model::Error::Unknown { .. })), "{unknown:?}");
        for round in 0..2 {
            assert_eq!(left(&world, "a").await, left_of_erased(6), "round {round}");
            for writer in 1..9 {
                let start = Position::new(WriterId(writer), CommitNo(0));
                for commit in world.journal.read(start, usize::MAX).await.unwrap() {
                    let text = String::from_utf8_lossy(commit.bytes()).into_owned();
                    assert!(!text.contains(&secret), "commit {} knows it", commit.position());
                }
            }
        }
        let engine = again(&mut world, engine, Keep::Forever, is_store_lost).await;
        let late = ask(&engine, "a", Command::Deposit { amount: 1 }).await;
        assert!(matches!(late, Err(model::Error::Ended { .. })), "{late:?}");
        assert_eq!(balance(&engine, "b").await, 4);
        assert_eq!(seqs(&engine, "b").await.len(), 5, "nobody else loses anything");
        // Reads from the store as the last epoch left it, too.
        let engine = again(&mut world, engine, Keep::Forever, false).await;
        let looked = engine.entity::<Account>("a").read(View {}).await;
        assert!(matches!(looked, Err(model::Error::Ended { .. })), "{looked:?}");
        engine.stop().await;
    }
}

#[tokio::test]
async fn records_of_a_gone_entity_left_by_a_pass_go_with_the_next() {
    let mut world = World::new();
    let journal = Failing::new(&world.journal);
    let engine = world
        .start_on(journal.clone(), World::builder().options(keeping(NOTHING)))
        .await;
    fill(&engine, &["a"], 3).await;
    ask(&engine, "a", Command::Close).await.unwrap();
    fill(&engine, &["b"], 0).await;
    journal.set_finished(2);
    assert_eq!(engine.prune(false).await.unwrap().gone, 1);
    assert!(left(&world, "a").await.len() > 1, "the pass did not reach all of it");
    journal.set_finished(u64::MAX);
    engine.prune(false).await.unwrap();
    assert_eq!(left(&world, "a").await, [(RecordKind::Ended, 5)]);
    let engine = again(&mut world, engine, NOTHING, true).await;
    let looked = engine.entity::<Account>("a").read(View {}).await;
    assert!(matches!(looked, Err(model::Error::Ended { .. })), "{looked:?}");
    engine.stop().await;
}

struct Reader;
impl throng::projection::Projection for Reader {
    const NAME: &'static str = "reader";
    type Of = Account;
    fn apply(
        &self,
        _: &throng::projection::DurableEvent<Account>,
        _: &mut throng::projection::Rows<'_>,
    ) -> Result<(), throng::projection::Interrupt> {
        Ok(())
    }
}

#[tokio::test]
async fn a_projection_that_does_not_run_holds_history_and_is_named() {
    let world = World::new();
    let options = Options {
        projections: false,
        ..keeping(NOTHING)
    };
    let engine = world
        .start(World::builder().projection(Reader).options(options))
        .await
        .unwrap();
    fill(&engine, &["a"], 3).await;
    let pruned = engine.prune(false).await.unwrap();
    assert_eq!((pruned.records, &pruned.held_by[..]), (0, &["reader".to_owned()][..]));
    let troubles = engine.health().troubles;
    assert!(
        troubles
            .iter()
            .any(|trouble| trouble.contains("the projection reader has not read it")),
        "{troubles:?}"
    );
    assert_eq!(seqs(&engine, "a").await.len(), 4);
    engine.stop().await;
}

/// An entity that fails to apply any event.
struct Refuses;
impl throng::projection::Projection for Refuses {
    const NAME: &'static str = "refuses";
    type Of = Account;
    fn apply(
        &self,
        _: &throng::projection::DurableEvent<Account>,
        _: &mut throng::projection::Rows<'_>,
    ) -> Result<(), throng::projection::Interrupt> {
        Err(throng::projection::Interrupt::poison("no"))
    }
}

#[tokio::test]
async fn pass_names_the_projection_that_holds_it_at_once() {
    let world = World::new();
    let engine = world
        .start(World::builder().projection(Refuses).options(keeping(NOTHING)))
        .await
        .unwrap();
    fill(&engine, &["a"], 3).await;
    let pruned = engine.prune(false).await.unwrap();
    assert_eq!((pruned.records, &pruned.held_by[..]), (0, &["refuses".to_owned()][..]));
    engine.stop().await;
}

#[tokio::test]
async fn stale_cursor_of_messages_goes_after_a_failed_checkpoint() {
    let world = World::new();
    let (engine, store) = with_refusing_store(&world).await;
    let pay = Command::pay("b", 1);
    ask(&engine, "a", pay).await.unwrap();
    let cursors = async || {
        let mut cursors = 0;
        let mut visit = |_: &[u8], _: &[u8]| cursors += 1;
        store.system_scan(b"o", b"", usize::MAX, &mut visit).await.unwrap();
        cursors
    };
    // Writes the cursor, as a checkpoint does while a message is in flight.
    let covers = store.covers(&ShardSet::first(1)).await.unwrap()[0].upto;
    store
        .store
        .advance(Checkpoint {
            upto: covers.unwrap(),
            shards: ShardSet::first(256),
            system: vec![(b"o\0\0".to_vec(), Some(vec![0; 16]))],
            ..Checkpoint::default()
        })
        .await
        .unwrap();
    assert_eq!(cursors().await, 1);
    eventually(async || {
        ask(&engine, "a", Command::Deposit { amount: 1 }).await.unwrap();
        store.left.store(0, SeqCst);
        engine.checkpoint().await.unwrap_err();
        store.left.store(i64::MAX, SeqCst);
        engine.checkpoint().await.unwrap();
        cursors().await == 0
    })
    .await;
    engine.stop().await;
}

#[tokio::test]
async fn a_follower_from_before_removed_history_is_told() {
    let world = World::new();
    let engine = world
        .start(World::builder().projection(Reader).options(keeping(NOTHING)))
        .await
        .unwrap();
    fill(&engine, &["a"], 3).await;
    let reader = || engine.projections().remove(0);
    eventually(async || reader().lag_commits == 0 && reader().reached.is_some()).await;
    let from_start = async || Follow::Kind {
        kind: 0,
        from: engine.place(true).await.unwrap(),
    };
    let whole = engine.follow(from_start().await).await.unwrap();
    assert_eq!((whole.removed_upto(), reader().missed_upto), (None, None));
    engine.prune(false).await.unwrap();
    let upto = engine.follow(from_start().await).await.unwrap().removed_upto();
    assert!(upto.is_some_and(|upto| upto > Position::default()), "{upto:?}");
    let from = engine.place(false).await.unwrap();
    let now = engine.follow(Follow::Kind { kind: 0, from }).await.unwrap();
    assert_eq!(now.removed_upto(), None);
    assert!(engine.rebuild_projection("reader"));
    eventually(async || reader().missed_upto == upto).await;
    engine.stop().await;
}

/// A store that makes this many more checkpoints, then refuses them.
#[derive(Clone)]
struct Refusing {
    store: MemoryStore,
    left: Arc<AtomicI64>,
    /// True if the store treats an index that begins after event 1 as damaged, as an earlier release did.
    is_earlier: Arc<AtomicBool>,
}

impl Store for Refusing {
    delegate!(Store, store: covers history entities system system_scan remove_prefix);

    fn advance(&self, checkpoint: Checkpoint) -> Fallible<'_, ()> {
        if self.left.fetch_sub(1, SeqCst) > 0 {
            return self.store.advance(checkpoint);
        }
        let refused = Error::backend("making a checkpoint", "the store refuses it");
        Box::pin(std::future::ready(Err(refused)))
    }

    fn load(&self, address: &Address, state_version: u16) -> Maybe<'_, Result<Loaded, Error>> {
        let Maybe::Ready(Ok(loaded)) = self.store.load(address, state_version) else {
            unreachable!("what is in memory is loaded at once");
        };
        let begins_late = loaded.state.is_none() && loaded.events.first().is_some_and(|first| first.seq > 1);
        Maybe::Ready(match begins_late && self.is_earlier.load(SeqCst) {
            true => Err(Error::Row {
                address: address.clone(),
                why: "the index of its events cannot be read".into(),
            }),
            false => Ok(loaded),
        })
    }
}

/// Returns an engine with a few accounts, whose store can refuse checkpoints.
async fn with_refusing_store(world: &World) -> (Engine, Refusing) {
    let store = Refusing {
        store: world.store.clone(),
        left: Arc::new(AtomicI64::new(i64::MAX)),
        is_earlier: Arc::default(),
    };
    let engine = engine_on(world, &store).await;
    fill(&engine, &["a", "b"], 3).await;
    (engine, store)
}

async fn engine_on(world: &World, store: &Refusing) -> Engine {
    let options = Options {
        checkpoint_every: Duration::from_hours(1),
        ..keeping(Keep::Forever)
    };
    let builder = World::builder().options(options);
    let started = builder.start_shared(Arc::new(world.journal.clone()), Arc::new(store.clone()));
    started.await.unwrap()
}

#[tokio::test]
async fn an_erasure_that_cannot_be_noted_has_not_ended_the_entity() {
    let world = World::new();
    let (engine, store) = with_refusing_store(&world).await;
    store.left.store(0, SeqCst);
    let refused = engine.erase("account", "a").await.unwrap_err().to_string();
    assert!(refused.contains("did not begin"), "{refused}");
    store.left.store(i64::MAX, SeqCst);
    engine.checkpoint().await.unwrap();
    ask(&engine, "a", Command::Deposit { amount: 1 }).await.unwrap();
    let mut noted = 0;
    store
        .system_scan(b"x", b"", usize::MAX, &mut |_, _| noted += 1)
        .await
        .unwrap();
    assert_eq!((noted, seqs(&engine, "a").await.len()), (0, 5));
    engine.erase("account", "a").await.unwrap();
    assert_eq!(left(&world, "a").await, left_of_erased(5));
    engine.stop().await;
}

#[tokio::test]
async fn an_erasure_that_the_store_cuts_off_goes_on_by_itself() {
    // With one checkpoint the erasure is recorded. With two the entity has also ended.
    for made in [1, 2] {
        let world = World::new();
        let (engine, store) = with_refusing_store(&world).await;
        store.left.store(made, SeqCst);
        let refused = engine.erase("account", "a").await.unwrap_err().to_string();
        assert!(refused.contains("goes on by itself"), "{refused}");
        store.left.store(i64::MAX, SeqCst);
        let is_left = async || {
            left(&world, "a")
                .await
                .iter()
                .any(|(kind, _)| *kind == RecordKind::Event)
        };
        eventually(async || !is_left().await).await;
        assert_eq!(balance(&engine, "b").await, 3);
        engine.stop().await;
    }
}

#[tokio::test]
async fn erasure_that_was_begun_outlives_the_loss_of_the_store() {
    // With one checkpoint the erasure is recorded. With two the entity has also ended. In the third case it was created anew since.
    for (made, is_anew) in [(1, false), (2, false), (2, true)] {
        let mut world = World::new();
        let (engine, store) = with_refusing_store(&world).await;
        store.left.store(made, SeqCst);
        engine.erase("account", "a").await.unwrap_err();
        if is_anew {
            ask(&engine, "a", Command::Reopen).await.unwrap();
        }
        store.left.store(0, SeqCst);
        let mut engine = again(&mut world, engine, Keep::Forever, true).await;
        let of_a = async || left(&world, "a").await;
        eventually(async || !of_a().await.contains(&(RecordKind::Event, 1))).await;
        let events = of_a().await.into_iter().filter(|(kind, _)| *kind == RecordKind::Event);
        assert_eq!(events.count(), usize::from(is_anew));
        // Finished erasures stay finished: a loss of the store causes no further overwrites.
        let done = async || {
            of_a()
                .await
                .iter()
                .filter(|(kind, _)| *kind == RecordKind::Erasure)
                .count()
                == 2
        };
        eventually(done).await;
        let ends = of_a().await.len();
        engine = again(&mut world, engine, Keep::Forever, true).await;
        assert_eq!(balance(&engine, "b").await, 3);
        assert_eq!(left(&world, "a").await.len(), ends);
        engine.stop().await;
    }
}

#[tokio::test]
async fn an_entity_recreated_during_its_erasure_stays() {
    let mut world = World::new();
    let (engine, store) = with_refusing_store(&world).await;
    // The erasure was recorded and the entity has ended, but nothing is overwritten yet.
    store.left.store(2, SeqCst);
    engine.erase("account", "a").await.unwrap_err();
    ask(&engine, "a", Command::Reopen).await.unwrap();
    ask(&engine, "a", Command::Deposit { amount: 1 }).await.unwrap();
    store.left.store(i64::MAX, SeqCst);
    let old = async || left(&world, "a").await.contains(&(RecordKind::Event, 1));
    eventually(async || !old().await).await;
    assert_eq!((balance(&engine, "a").await, seqs(&engine, "a").await), (2, vec![5, 6]));
    let engine = again(&mut world, engine, Keep::Forever, true).await;
    assert_eq!((balance(&engine, "a").await, seqs(&engine, "a").await), (2, vec![5, 6]));
    engine.stop().await;
}

/// An earlier release quarantined an entity because its history began after its end. It recovers by itself.
#[tokio::test]
async fn one_that_an_earlier_release_quarantined_comes_back() {
    for is_restarted in [false, true] {
        let world = World::new();
        let (engine, store) = with_refusing_store(&world).await;
        engine.erase("account", "a").await.unwrap();
        ask(&engine, "a", Command::Reopen).await.unwrap();
        ask(&engine, "a", Command::Deposit { amount: 1 }).await.unwrap();
        engine.stop().await;
        store.is_earlier.store(true, SeqCst);
        let mut engine = engine_on(&world, &store).await;
        let refused = ask(&engine, "a", Command::Deposit { amount: 1 }).await.unwrap_err();
        assert!(matches!(refused, model::Error::Quarantined { .. }), "{refused}");
        engine.checkpoint().await.unwrap();
        if is_restarted {
            engine.stop().await;
            store.is_earlier.store(false, SeqCst);
            engine = engine_on(&world, &store).await;
        } else {
            store.is_earlier.store(false, SeqCst);
            let by = OperatorDecision::new("ann", "it is mended");
            assert!(engine.release("account", "a", by).await.unwrap());
        }
        assert_eq!((balance(&engine, "a").await, seqs(&engine, "a").await), (2, vec![5, 6]));
        ask(&engine, "a", Command::Deposit { amount: 1 }).await.unwrap();
        engine.stop().await;
        let engine = engine_on(&world, &store).await;
        assert_eq!(balance(&engine, "a").await, 3);
        engine.stop().await;
    }
}

#[tokio::test]
async fn one_created_anew_is_shown_as_it_was_after_each_event() {
    for is_erased in [false, true] {
        let world = World::new();
        let engine = world.engine_with(keeping(Keep::Forever)).await;
        fill(&engine, &["a"], 3).await;
        match is_erased {
            true => _ = engine.erase("account", "a").await.unwrap(),
            false => _ = ask(&engine, "a", Command::Close).await.unwrap(),
        }
        let ended = if is_erased { 4 } else { 5 };
        ask(&engine, "a", Command::Reopen).await.unwrap();
        ask(&engine, "a", Command::Deposit { amount: 7 }).await.unwrap();
        let shown = async |seq| engine.as_of(0, "a", seq).await.map(|then| then.state);
        for (seq, balance) in [(ended + 1, "\"balance\":1,"), (ended + 2, "\"balance\":8,")] {
            let state = shown(seq).await.unwrap();
            assert!(state.contains(balance), "after event {seq}: {state}");
        }
        for seq in [0, 1, ended] {
            let refused = shown(seq).await;
            assert!(
                matches!(refused, Err(throng::TravelError::Gone { .. })),
                "{seq}: {refused:?}"
            );
        }
        engine.stop().await;
    }
}
