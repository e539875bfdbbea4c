//! The reads from the store at a start, and the behaviour when the store is incomplete.

use crate::kinds::*;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};
use throng::{
    Engine, Options,
    journal::{Checkpoint, Journal, Position, ShardSet, Store},
    model,
};
use throng_testing::{Fallible, delegate};

/// A store that records which rows were read.
#[derive(Clone)]
struct Noting {
    store: throng::journal::MemoryStore,
    /// The number of rows read, by their first letter.
    shown: Arc<Mutex<BTreeMap<u8, usize>>>,
}

impl Store for Noting {
    delegate!(Store, store: covers advance load history entities system remove_prefix);

    fn system_scan<'a>(
        &'a self,
        prefix: &'a [u8],
        after: &'a [u8],
        rows_max: usize,
        visit: &'a mut (dyn FnMut(&[u8], &[u8]) + Send),
    ) -> Fallible<'a, ()> {
        Box::pin(async move {
            let mut note = |key: &[u8], value: &[u8]| {
                // A shard's mark is not a timer.
                let kind = if key.starts_with(b"T\x00") { b'M' } else { key[0] };
                *self.shown.lock().unwrap().entry(kind).or_default() += 1;
                visit(key, value);
            };
            self.store.system_scan(prefix, after, rows_max, &mut note).await
        })
    }
}

async fn start(world: &World, shown: &Arc<Mutex<BTreeMap<u8, usize>>>) -> Engine {
    start_with(world, shown, Options::default()).await
}

async fn start_with(world: &World, shown: &Arc<Mutex<BTreeMap<u8, usize>>>, options: Options) -> Engine {
    let store = Noting {
        store: world.store.clone(),
        shown: Arc::clone(shown),
    };
    World::builder()
        .shards(2)
        .options(options)
        .start_shared(Arc::new(world.journal.clone()), Arc::new(store))
        .await
        .unwrap()
}

async fn deposit(engine: &Engine, id: &str, key: &str, amount: i64) -> Result<Balance, model::Error<Short>> {
    engine
        .entity::<Account>(id)
        .once(key)
        .ask(Command::Deposit { amount })
        .await
}

/// Creates 300 entities, each with 1 deposited under a key of its own. The last checkpoint covers everything.
async fn filled(world: &World) {
    let engine = start(world, &Arc::default()).await;
    for n in 0..300 {
        let id = format!("a{n}");
        open(&engine, &id, 0).await;
        deposit(&engine, &id, &id, 1).await.unwrap();
    }
    engine.stop().await;
}

/// Checks that every key and every entity is known, and no other.
async fn assert_known(engine: &Engine) {
    for n in 0..300 {
        let id = format!("a{n}");
        assert_eq!(deposit(engine, &id, &id, 1).await.unwrap().balance, 1, "{id}: again");
        let reused = deposit(engine, &id, &id, 2).await;
        assert!(matches!(reused, Err(model::Error::KeyReused(_))), "{reused:?}");
    }
    let nobody = deposit(engine, "nobody", "fresh", 1).await;
    assert!(matches!(nobody, Err(model::Error::Unknown { .. })), "{nobody:?}");
}

#[tokio::test]
async fn a_start_reads_few_rows_with_many_entities_and_keys() {
    let (world, shown) = (World::new(), Arc::default());
    filled(&world).await;
    let engine = start(&world, &shown).await;
    let rows: usize = shown.lock().unwrap().values().sum();
    assert!(rows <= 10, "{:?}", shown.lock().unwrap());
    assert_known(&engine).await;
}

#[tokio::test]
async fn a_page_of_dead_messages_reads_no_more_rows_than_it_shows() {
    let (world, shown) = (World::new(), Arc::default());
    let engine = start(&world, &shown).await;
    open(&engine, "a", 1_000).await;
    for n in 0..300 {
        let to = format!("nobody-{n}");
        ask(&engine, "a", Command::Pay { to, amount: 1 }).await.unwrap();
    }
    let all = async || engine.dead_messages(None, None, 1_000).await.unwrap().messages.len();
    eventually(async || all().await == 300).await;
    engine.checkpoint().await.unwrap();
    let (mut after, mut pages) = (None, 0);
    loop {
        shown.lock().unwrap().clear();
        let page = engine.dead_messages(None, after.as_deref(), 50).await.unwrap();
        let rows: usize = shown.lock().unwrap().values().sum();
        assert_eq!(rows, page.messages.len(), "page {pages}");
        pages += 1;
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(pages, 7, "the last one is empty");
    engine.stop().await;
}

#[tokio::test]
async fn lost_or_damaged_rows_are_read_from_the_journal_again() {
    for (row, damaged) in [
        (b"s", None),
        (b"n", Some(b"damaged")),
        (b"l", Some(b"damaged")),
        (b"m", Some(b"damaged")),
    ] {
        let world = World::new();
        filled(&world).await;
        let mut named = Vec::new();
        let mut visit = |key: &[u8], _: &[u8]| named.push(key.to_vec());
        world.store.system_scan(row, b"", usize::MAX, &mut visit).await.unwrap();
        if named.is_empty() {
            assert_eq!(row, b"m", "nobody has sent a message");
            named.push(b"m\0\0".to_vec());
        }
        let change = Checkpoint {
            upto: world.store.covers(&ShardSet::first(1)).await.unwrap()[0].upto.unwrap(),
            system: vec![(named.remove(0), damaged.map(|value: &[u8; 7]| value.to_vec()))],
            ..Checkpoint::default()
        };
        world.store.advance(change).await.unwrap();
        for _ in 0..3 {
            let engine = start(&world, &Arc::default()).await;
            assert_known(&engine).await;
            engine.stop().await;
        }
    }
}

/// Returns options for little memory: each shard keeps about twenty timers.
fn small() -> Options {
    Options {
        memory_bytes_max: 256 << 10,
        ..Options::default()
    }
}

const TIMERS: usize = 200;

/// Sets one timer for each entity.
async fn set_timers(engine: &Engine, in_ms: u64) {
    for n in 0..TIMERS {
        let id = format!("a{n}");
        let remind = Command::remind(in_ms, None);
        for command in [Command::Open { balance: 0 }, remind] {
            while matches!(
                ask(engine, &id, command.clone()).await,
                Err(model::Error::Overloaded { .. })
            ) {
                engine.checkpoint().await.unwrap();
            }
        }
    }
    engine.checkpoint().await.unwrap();
}

async fn timers_set(engine: &Engine) -> usize {
    let mut timers = 0;
    for n in 0..TIMERS {
        timers += engine.timers_of(0, &format!("a{n}"), 9).await.unwrap().len();
    }
    timers
}

/// Returns the number of the store's rows with this prefix.
async fn rows(world: &World, prefix: &[u8]) -> usize {
    let mut rows = 0;
    let mut visit = |_: &[u8], _: &[u8]| rows += 1;
    world
        .store
        .system_scan(prefix, b"", usize::MAX, &mut visit)
        .await
        .unwrap();
    rows
}

fn shown_timers(shown: &Mutex<BTreeMap<u8, usize>>) -> usize {
    let shown = shown.lock().unwrap();
    [b't', b'T'].iter().filter_map(|kind| shown.get(kind)).sum()
}

const HOUR_MS: u64 = 3_600_000;

#[tokio::test]
async fn start_reads_only_timers_that_are_due_first() {
    let (world, shown) = (World::new(), Arc::default());
    let engine = start_with(&world, &Arc::default(), small()).await;
    set_timers(&engine, HOUR_MS).await;
    engine.stop().await;
    let engine = start_with(&world, &shown, small()).await;
    assert!(shown_timers(&shown) < TIMERS / 2, "{:?}", shown.lock().unwrap());
    assert_eq!(timers_set(&engine).await, TIMERS);
    // Timers that are not in memory can be cancelled and set anew like any other.
    for n in 0..TIMERS / 2 {
        ask(&engine, &format!("a{n}"), Command::Cancel).await.unwrap();
    }
    assert_eq!(timers_set(&engine).await, TIMERS / 2);
    engine.stop().await;
    assert_eq!(
        [rows(&world, b"t").await, rows(&world, b"T\x01").await],
        [TIMERS / 2; 2]
    );
}

#[tokio::test]
async fn timers_beyond_memory_all_fire() {
    let world = World::new();
    let engine = start_with(&world, &Arc::default(), small()).await;
    set_timers(&engine, HOUR_MS).await;
    // Each is set anew while it is only in the store, and evicts the earlier ones.
    set_timers(&engine, 1).await;
    eventually(async || engine.statistics().timers_fired == TIMERS as u64).await;
    for n in 0..TIMERS {
        let id = format!("a{n}");
        let ticks = engine.entity::<Account>(id.as_str()).read(Ticks {}).await;
        assert_eq!(ticks.unwrap(), 1);
    }
    engine.stop().await;
    assert_eq!([rows(&world, b"t").await, rows(&world, b"T\x01").await], [0; 2]);
}

/// Rewrites the store as an older release leaves it, which knows only the rows of timers.
async fn older_release_was_here(world: &World, has_begun_anew: bool) {
    let prefix: &[u8] = if has_begun_anew { b"T" } else { b"T\x01" };
    while world.store.remove_prefix(prefix, b"", 9).await.unwrap().is_some() {}
}

#[tokio::test]
async fn timers_of_an_older_release_are_found() {
    for has_begun_anew in [true, false] {
        let world = World::new();
        let engine = start_with(&world, &Arc::default(), small()).await;
        set_timers(&engine, HOUR_MS).await;
        engine.stop().await;
        older_release_was_here(&world, has_begun_anew).await;
        if !has_begun_anew {
            // The older release has covered the shards with its own writer, and left the marks unchanged.
            let shards = ShardSet::first(2);
            let covered = world.store.covers(&shards).await.unwrap().remove(0).upto.unwrap();
            let opened = Journal::open(&world.journal, "node").await.unwrap();
            assert!(opened.writer > covered.writer);
            let older = Checkpoint {
                upto: Position {
                    writer: opened.writer,
                    ..Position::default()
                },
                shards,
                sealed: vec![covered],
                ..Checkpoint::default()
            };
            world.store.advance(older).await.unwrap();
        }
        for _ in 0..2 {
            let shown = Arc::default();
            let engine = start_with(&world, &shown, small()).await;
            assert_eq!(timers_set(&engine).await, TIMERS);
            engine.stop().await;
            assert_eq!(rows(&world, b"T\x01").await, TIMERS);
        }
    }
}
