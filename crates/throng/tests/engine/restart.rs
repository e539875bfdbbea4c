//! What a start reads of the store, and what it does when that is not all there.

use crate::kinds::*;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};
use throng::{
    Engine,
    journal::{Address, Checkpoint, Covered, EntityHead, Error, Later, Loaded, Maybe, ShardSet, Store, StoredEvent},
    model,
};

/// A store that notes which rows it was asked to show.
#[derive(Clone)]
struct Noting {
    store: throng::journal::MemoryStore,
    /// By their first letter.
    shown: Arc<Mutex<BTreeMap<u8, usize>>>,
}

impl Store for Noting {
    fn covers<'a>(&'a self, shards: &'a ShardSet) -> Later<'a, Result<Vec<Covered>, Error>> {
        self.store.covers(shards)
    }
    fn advance(&self, checkpoint: Checkpoint) -> Later<'_, Result<(), Error>> {
        self.store.advance(checkpoint)
    }
    fn load(&self, address: &Address, state_version: u16) -> Maybe<'_, Result<Loaded, Error>> {
        self.store.load(address, state_version)
    }
    fn history(
        &self,
        address: &Address,
        after: u64,
        limit: usize,
        bytes_max: usize,
    ) -> Later<'_, Result<Vec<StoredEvent>, Error>> {
        self.store.history(address, after, limit, bytes_max)
    }
    fn entities(&self, kind: &str, after: Option<&str>, limit: usize) -> Later<'_, Result<Vec<EntityHead>, Error>> {
        self.store.entities(kind, after, limit)
    }
    fn system(&self, key: &[u8]) -> Maybe<'_, Result<Option<Vec<u8>>, Error>> {
        self.store.system(key)
    }
    fn system_scan<'a>(
        &'a self,
        prefix: &'a [u8],
        after: &'a [u8],
        rows_max: usize,
        visit: &'a mut (dyn FnMut(&[u8], &[u8]) + Send),
    ) -> Later<'a, Result<(), Error>> {
        Box::pin(async move {
            let mut note = |key: &[u8], value: &[u8]| {
                *self.shown.lock().unwrap().entry(key[0]).or_default() += 1;
                visit(key, value);
            };
            self.store.system_scan(prefix, after, rows_max, &mut note).await
        })
    }
    fn remove_prefix<'a>(
        &'a self,
        prefix: &'a [u8],
        after: &'a [u8],
        rows_max: usize,
    ) -> Later<'a, Result<Option<Vec<u8>>, Error>> {
        self.store.remove_prefix(prefix, after, rows_max)
    }
}

async fn start(world: &World, shown: &Arc<Mutex<BTreeMap<u8, usize>>>) -> Engine {
    let store = Noting {
        store: world.store.clone(),
        shown: Arc::clone(shown),
    };
    Engine::builder()
        .with::<Account>()
        .on_outcome::<Account, Account>()
        .query::<Account, View>()
        .shards(2)
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

/// 300 entities, each with 1 deposited under a key of its own; all of it covered by the last checkpoint.
async fn filled(world: &World) {
    let engine = start(world, &Arc::default()).await;
    for n in 0..300 {
        let id = format!("a{n}");
        open(&engine, &id, 0).await;
        deposit(&engine, &id, &id, 1).await.unwrap();
    }
    engine.stop().await;
}

/// Every key and every entity is known, and no other.
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
async fn a_start_reads_a_few_rows_however_many_entities_and_keys_there_are() {
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
async fn rows_that_are_lost_or_damaged_are_read_from_the_journal_again() {
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
