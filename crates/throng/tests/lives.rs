//! A stop that meets a recovery: whatever comes first, nothing is written after it.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

mod kinds;

use kinds::{Account, Command, World, ask, eventually, open};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
};
use throng::{
    Engine,
    journal::{
        Append, AppendError, Appended, Commit, CommitNo, Durability, Error as JournalError, Journal, Later, Maybe,
        MemoryJournal, Opened, Place, Position, ShardId, Taken, WriterId,
    },
    model::Error,
};
use tokio::sync::Semaphore;

/// A journal that fails once when it is told to, and whose next opening takes as long as it is told to.
struct Failing {
    journal: MemoryJournal,
    fails: Arc<AtomicBool>,
    opened: Arc<AtomicU32>,
    may_open: Arc<Semaphore>,
}

impl Journal for Failing {
    fn open(&self, node: &str) -> Later<'_, Result<Opened, JournalError>> {
        let (node, may_open) = (node.to_owned(), self.may_open.clone());
        self.opened.fetch_add(1, SeqCst);
        Box::pin(async move {
            may_open.acquire().await.unwrap().forget();
            self.journal.open(&node).await
        })
    }

    fn append(&self, commit: Commit) -> Append {
        if !self.fails.swap(false, SeqCst) {
            return self.journal.append(commit);
        }
        Append::Done(Appended {
            result: Err(AppendError::InDoubt("the disk is gone".into())),
            buffer: Default::default(),
        })
    }

    fn take<'a>(&'a self, by: WriterId, shards: &'a [ShardId]) -> Later<'a, Result<Vec<Taken>, JournalError>> {
        self.journal.take(by, shards)
    }
    fn seal(&self, writer: WriterId) -> Later<'_, Result<CommitNo, JournalError>> {
        self.journal.seal(writer)
    }
    fn read(&self, after: Position, bytes_max: usize) -> Later<'_, Result<Vec<Commit>, JournalError>> {
        self.journal.read(after, bytes_max)
    }
    fn read_at<'a>(&'a self, places: &'a [Place]) -> Maybe<'a, Result<Vec<Vec<u8>>, JournalError>> {
        self.journal.read_at(places)
    }
    fn forget(&self, upto: Position) {
        self.journal.forget(upto);
    }
    fn depth(&self) -> usize {
        1
    }
    fn durability(&self) -> Durability {
        self.journal.durability()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_was_stopped_while_it_recovered_begins_no_other_life() {
    let world = World::new();
    let failing = Failing {
        journal: world.journal.clone(),
        fails: Arc::default(),
        opened: Arc::default(),
        may_open: Arc::new(Semaphore::new(1)),
    };
    let (fails, opened, may_open) = (failing.fails.clone(), failing.opened.clone(), failing.may_open.clone());
    let engine = Engine::builder()
        .with::<Account>()
        .hears::<Account, Account>()
        .start_shared(Arc::new(failing), Arc::new(world.store.clone()))
        .await
        .unwrap();
    open(&engine, "a", 1).await;

    fails.store(true, SeqCst);
    let lost = ask(&engine, "a", Command::Deposit { amount: 1 }).await;
    assert!(matches!(lost, Err(Error::Unavailable { .. })), "{lost:?}");
    eventually(async || opened.load(SeqCst) == 2).await;

    let stopping = tokio::spawn({
        let engine = engine.clone();
        async move { engine.stop().await }
    });
    eventually(async || engine.health().reason.is_some()).await;
    may_open.add_permits(1);
    stopping.await.unwrap();
    let health = engine.health();
    assert!(!health.ready && health.position.is_none(), "{health:?}");
    let refused = ask(&engine, "a", Command::Deposit { amount: 1 }).await;
    assert!(matches!(refused, Err(Error::Unavailable { .. })), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_whose_journal_failed_once_runs_again_with_all_that_was_acknowledged() {
    let world = World::new();
    let failing = Failing {
        journal: world.journal.clone(),
        fails: Arc::default(),
        opened: Arc::default(),
        may_open: Arc::new(Semaphore::new(2)),
    };
    let fails = failing.fails.clone();
    let engine = Engine::builder()
        .with::<Account>()
        .hears::<Account, Account>()
        .start_shared(Arc::new(failing), Arc::new(world.store.clone()))
        .await
        .unwrap();
    open(&engine, "a", 1).await;
    fails.store(true, SeqCst);
    assert!(ask(&engine, "a", Command::Deposit { amount: 1 }).await.is_err());
    eventually(async || engine.health().ready).await;
    let balance = ask(&engine, "a", Command::Deposit { amount: 10 })
        .await
        .unwrap()
        .balance;
    assert_eq!(balance, 11, "what was refused took no effect");
}
