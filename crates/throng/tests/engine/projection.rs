//! Projections and sinks: each durable event once, in order, despite restarts, failures and rebuilds.

use crate::kinds::{Account, AccountEvent, Command, Counting, World, ask, eventually, failing::Failing, open};
use std::{
    borrow::Cow,
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};
use throng::{
    Builder, Engine, OperatorDecision,
    journal::{Applied, Error, Later, MemoryViews, ViewBatch, ViewOffset, ViewRange, ViewRow, Views},
    projection::{DurableEvent, EventOffset, Interrupt, Projection, ProjectionState, Rows, Sink, SinkError, SkipError},
};

/// A projection of the balance of each account, and under `#` the number of events.
#[derive(Default)]
struct Balances {
    /// The amount at which it fails.
    poison: Arc<AtomicU64>,
    panics: bool,
}

impl Projection for Balances {
    const NAME: &'static str = "balances";
    type Of = Account;

    fn apply(&self, seen: &DurableEvent<Account>, rows: &mut Rows<'_>) -> Result<(), Interrupt> {
        let events: u64 = rows.json("#")?.unwrap_or(0);
        rows.put_json("#", &(events + 1))?;
        let change = match &seen.event {
            AccountEvent::Opened { balance } => *balance,
            AccountEvent::Deposited { amount } => *amount,
            AccountEvent::Withdrawn { amount } => -amount,
            _ => return Ok(()),
        };
        if change != 0 && change.unsigned_abs() == self.poison.load(SeqCst) {
            assert!(!self.panics, "{change} is too much");
            return Err(Interrupt::poison(format!("{change} is too much")));
        }
        let balance: i64 = rows.json(&seen.id)?.unwrap_or(0);
        rows.put_json(&seen.id, &(balance + change))
    }
}

async fn start(world: &World, views: Arc<dyn Views>, more: impl FnOnce(Builder) -> Builder) -> Engine {
    world.start(more(World::builder()).views(views)).await.unwrap()
}

async fn start_balances(world: &World, views: &MemoryViews) -> Engine {
    start(world, Arc::new(views.clone()), |builder| {
        builder.projection(Balances::default())
    })
    .await
}

async fn rows(engine: &Engine) -> BTreeMap<String, i64> {
    let rows = engine
        .read_model::<Balances>()
        .scan(ViewRange::default())
        .await
        .unwrap();
    rows.into_iter()
        .map(|(key, value)| (String::from_utf8(key).unwrap(), serde_json::from_slice(&value).unwrap()))
        .collect()
}

async fn caught_up(engine: &Engine) -> BTreeMap<String, i64> {
    assert!(
        engine.read_model::<Balances>().caught_up().await,
        "{:?}",
        engine.projections()
    );
    rows(engine).await
}

fn expected(rows: &[(&str, i64)]) -> BTreeMap<String, i64> {
    rows.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect()
}

async fn deposit(engine: &Engine, id: &str, amount: i64) {
    ask(engine, id, Command::Deposit { amount }).await.unwrap();
}

#[tokio::test]
async fn a_read_model_follows_and_goes_on_after_a_restart() {
    let (world, views) = (World::new(), MemoryViews::new());
    let engine = start_balances(&world, &views).await;
    open(&engine, "ann", 10).await;
    open(&engine, "bob", 20).await;
    deposit(&engine, "ann", 5).await;
    assert_eq!(
        caught_up(&engine).await,
        expected(&[("#", 3), ("ann", 15), ("bob", 20)])
    );
    engine.stop().await;

    let engine = start_balances(&world, &views).await;
    assert_eq!(caught_up(&engine).await["#"], 3, "nothing is counted again");
    deposit(&engine, "bob", 1).await;
    assert_eq!(
        caught_up(&engine).await,
        expected(&[("#", 4), ("ann", 15), ("bob", 21)])
    );
    let progress = &engine.projections()[0];
    assert_eq!(
        (progress.name, progress.kind, &progress.state),
        ("balances", "account", &ProjectionState::Running)
    );
    assert_eq!((progress.lag_commits, progress.events), (0, 1));
    engine.stop().await;
}

#[tokio::test]
async fn the_next_engine_goes_on_where_a_killed_one_ended() {
    let (world, views) = (World::new(), MemoryViews::new());
    let mut total = 0;
    for round in 0..20 {
        let engine = start_balances(&world, &views).await;
        if round == 0 {
            open(&engine, "ann", 0).await;
            total += 1;
        }
        for _ in 0..round {
            deposit(&engine, "ann", 1).await;
            total += 1;
        }
        if round % 3 == 0 {
            // Sometimes in the middle.
            let _ = engine.read_model::<Balances>().caught_up().await;
        }
        drop(engine);
    }
    let engine = start_balances(&world, &views).await;
    assert_eq!(caught_up(&engine).await, expected(&[("#", total), ("ann", total - 1)]));
    engine.stop().await;
}

#[tokio::test]
async fn a_wait_to_catch_up_ends_after_a_quiet_recovery() {
    let world = World::new();
    let journal = Failing::new(&world.journal);
    let engine = world
        .start_on(journal.clone(), World::builder().projection(Balances::default()))
        .await;
    open(&engine, "ann", 10).await;
    let before = caught_up(&engine).await;
    journal.fails();
    ask(&engine, "ann", Command::Deposit { amount: 1 }).await.unwrap_err();
    assert_eq!(engine.driver().durable(), None);
    let model = engine.read_model::<Balances>();
    let recovers = async {
        tokio::task::yield_now().await;
        journal.recovers();
    };
    let (is_there, ()) = tokio::time::timeout(Duration::from_mins(1), async {
        tokio::join!(model.caught_up(), recovers)
    })
    .await
    .unwrap();
    assert!(is_there, "{:?}", model.progress());
    assert_eq!(rows(&engine).await, before);
    engine.stop().await;
}

#[tokio::test]
async fn a_rebuild_while_it_runs_comes_to_the_same() {
    let (world, views) = (World::new(), MemoryViews::new());
    let engine = start_balances(&world, &views).await;
    for id in ["a", "b", "c"] {
        open(&engine, id, 1).await;
        deposit(&engine, id, 2).await;
    }
    let before = caught_up(&engine).await;
    assert!(engine.rebuild_projection("balances") && !engine.rebuild_projection("others"));
    deposit(&engine, "a", 1).await;
    let mut after = before.clone();
    after.insert("#".into(), 7);
    after.insert("a".into(), 4);
    assert_eq!(caught_up(&engine).await, after);
    engine.stop().await;
}

#[tokio::test]
async fn rebuilt_rows_are_incomplete_until_done_also_over_a_restart() {
    let (world, views) = (World::new(), MemoryViews::new());
    let engine = start_balances(&world, &views).await;
    open(&engine, "ann", 1).await;
    deposit(&engine, "ann", 2).await;
    deposit(&engine, "ann", 13).await;
    caught_up(&engine).await;
    eventually(async || !engine.projections()[0].is_rebuilding).await;
    assert_eq!(engine.health().troubles, [""; 0]);
    engine.stop().await;
    // The projection stops half way.
    let poison = Arc::new(AtomicU64::new(13));
    let half_way = async || {
        let balances = Balances {
            poison: poison.clone(),
            panics: false,
        };
        start(&world, Arc::new(views.clone()), |builder| builder.projection(balances)).await
    };
    let is_stopped = |engine: &Engine| matches!(engine.projections()[0].state, ProjectionState::Stopped { .. });
    let engine = half_way().await;
    assert!(engine.rebuild_projection("balances"));
    assert!(!engine.read_model::<Balances>().caught_up().await);
    assert!(engine.projections()[0].is_rebuilding && is_stopped(&engine));
    assert_eq!(rows(&engine).await, expected(&[("#", 2), ("ann", 3)]));
    engine.stop().await;
    let engine = half_way().await;
    eventually(async || is_stopped(&engine)).await;
    let progress = engine.projections().remove(0);
    assert!(progress.is_rebuilding && progress.events == 0, "{progress:?}");
    let told = throng::projection::Progress {
        state: ProjectionState::Running,
        ..progress
    };
    assert_eq!(
        told.trouble().as_deref(),
        Some("the projection balances is rebuilt and not complete, 1 commits are left")
    );
    poison.store(0, SeqCst);
    assert!(engine.resume_projection("balances"));
    assert_eq!(caught_up(&engine).await, expected(&[("#", 3), ("ann", 16)]));
    eventually(async || !engine.projections()[0].is_rebuilding).await;
    engine.stop().await;
    // Complete rows are complete for the next start, too.
    poison.store(5, SeqCst);
    let engine = half_way().await;
    deposit(&engine, "ann", 5).await;
    eventually(async || is_stopped(&engine)).await;
    assert!(!engine.projections()[0].is_rebuilding);
    engine.stop().await;
}

#[tokio::test]
async fn rows_cleared_by_somebody_else_are_rebuilt() {
    let (world, views) = (World::new(), MemoryViews::new());
    let engine = start_balances(&world, &views).await;
    open(&engine, "ann", 1).await;
    let before = caught_up(&engine).await;
    views.clear("balances").await.unwrap();
    deposit(&engine, "ann", 1).await;
    eventually(async || rows(&engine).await.get("#") == Some(&2)).await;
    assert_eq!(before["ann"] + 1, rows(&engine).await["ann"]);
    views.clear("balances").await.unwrap();
    // Without new events as well, at the next check.
    eventually(async || {
        engine.read_model::<Balances>().caught_up().await;
        rows(&engine).await.get("#") == Some(&2)
    })
    .await;
    engine.stop().await;
}

#[tokio::test]
async fn another_version_rebuilds_from_the_first_event() {
    struct Count;
    impl Projection for Count {
        const NAME: &'static str = "balances";
        const VERSION: u32 = 2;
        type Of = Account;
        fn apply(&self, seen: &DurableEvent<Account>, rows: &mut Rows<'_>) -> Result<(), Interrupt> {
            rows.put_json("last", &seen.seq)
        }
    }
    let (world, views) = (World::new(), MemoryViews::new());
    let engine = start_balances(&world, &views).await;
    open(&engine, "ann", 1).await;
    deposit(&engine, "ann", 1).await;
    caught_up(&engine).await;
    engine.stop().await;
    let engine = start(&world, Arc::new(views), |builder| builder.projection(Count)).await;
    assert!(engine.read_model::<Count>().caught_up().await);
    assert_eq!(
        rows(&engine).await,
        expected(&[("last", 2)]),
        "no row of the other version is left"
    );
    engine.stop().await;
}

#[tokio::test]
async fn stopped_projection_lags_also_when_it_has_taken_nothing() {
    let world = World::new();
    let engine = world.engine().await;
    open(&engine, "ann", 13).await;
    engine.stop().await;
    let balances = Balances {
        poison: Arc::new(AtomicU64::new(13)),
        panics: false,
    };
    let views = Arc::new(MemoryViews::new());
    let engine = start(&world, views, |builder| builder.projection(balances)).await;
    stopped_at(&engine).await;
    let first = engine.projections()[0].lag_seconds;
    assert!(first > 0.0);
    eventually(async || engine.projections()[0].lag_seconds > first).await;
    engine.stop().await;
}

async fn poisoned(panics: bool) {
    let (world, views) = (World::new(), MemoryViews::new());
    let poison = Arc::new(AtomicU64::new(13));
    let balances = Balances {
        poison: poison.clone(),
        panics,
    };
    let engine = start(&world, Arc::new(views), |builder| builder.projection(balances)).await;
    open(&engine, "ann", 1).await;
    deposit(&engine, "ann", 2).await;
    deposit(&engine, "ann", 13).await;
    deposit(&engine, "ann", 4).await;
    assert!(!engine.read_model::<Balances>().caught_up().await);
    let ProjectionState::Stopped { reason, .. } = engine.projections()[0].state.clone() else {
        panic!("{:?}", engine.projections())
    };
    for part in ["event 3 of account/ann", "13 is too much"] {
        assert!(reason.contains(part), "{reason}");
    }
    assert_eq!(
        rows(&engine).await,
        expected(&[("#", 2), ("ann", 3)]),
        "what came before it counts"
    );
    let mut text = String::new();
    engine.metrics().encode(&mut text).unwrap();
    assert!(
        text.contains("throng_projection_stopped{projection=\"balances\"} 1"),
        "{text}"
    );
    deposit(&engine, "ann", 5).await;
    let health = engine.health();
    assert!(health.ready, "commands are taken: {health:?}");
    assert_eq!(health.troubles, ["the projection balances has stopped"]);
    let behind = || engine.projections()[0].behind_seconds;
    assert!(behind() > 0.0);
    poison.store(0, SeqCst);
    assert!(engine.resume_projection("balances"));
    assert_eq!(caught_up(&engine).await, expected(&[("#", 5), ("ann", 25)]));
    assert!(behind() == 0.0 && engine.health().troubles.is_empty());
    engine.stop().await;
}

#[tokio::test]
async fn an_unappliable_event_stops_its_projection_and_is_named() {
    poisoned(false).await;
}

#[tokio::test]
async fn a_panic_stops_its_projection_and_not_the_engine() {
    poisoned(true).await;
}

/// A store of rows in which one call in eight fails, before or after its work. The seed determines which.
struct Shaky {
    views: MemoryViews,
    calls: AtomicU32,
    seed: u64,
}

impl Shaky {
    /// Returns the answer, or a failure instead. With `lost`, the work is already done.
    fn maybe<'a, T: Send + 'a>(
        &self,
        answer: impl FnOnce() -> Later<'a, Result<T, Error>>,
    ) -> Later<'a, Result<T, Error>> {
        let call = self.calls.fetch_add(1, SeqCst);
        let failed = || Error::backend("writing rows", "the disk is on fire");
        let dice = (u64::from(call) + self.seed)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29)
            .wrapping_mul(0xbf58_476d_1ce4_e5b9)
            >> 60;
        if dice >= 2 {
            return answer();
        }
        if dice == 0 {
            return Box::pin(async move { Err(failed()) });
        }
        let done = answer();
        Box::pin(async move { done.await.and_then(|_| Err(failed())) })
    }
}

impl Views for Shaky {
    fn offset(&self, view: &str) -> Later<'_, Result<Option<ViewOffset>, Error>> {
        self.maybe(|| self.views.offset(view))
    }
    fn apply(&self, view: &str, batch: ViewBatch) -> Later<'_, Result<Applied, Error>> {
        self.maybe(|| self.views.apply(view, batch))
    }
    fn get(&self, view: &str, keys: Vec<Vec<u8>>) -> Later<'_, Result<Vec<Option<Vec<u8>>>, Error>> {
        self.maybe(|| self.views.get(view, keys))
    }
    fn scan(&self, view: &str, range: ViewRange) -> Later<'_, Result<Vec<ViewRow>, Error>> {
        self.views.scan(view, range)
    }
    fn clear(&self, view: &str) -> Later<'_, Result<(), Error>> {
        self.maybe(|| self.views.clear(view))
    }
    fn names(&self) -> Later<'_, Result<Vec<String>, Error>> {
        self.views.names()
    }
}

#[tokio::test]
async fn unwritable_rows_are_retried_and_no_event_counts_twice() {
    for seed in [100, 200, 300] {
        let world = World::new();
        let shaky = Arc::new(Shaky {
            views: MemoryViews::new(),
            calls: AtomicU32::new(0),
            seed,
        });
        let mut total = 0;
        for round in 0..2 {
            let engine = start(&world, shaky.clone(), |builder| builder.projection(Balances::default())).await;
            if round == 0 {
                open(&engine, "ann", 0).await;
                total += 1;
            }
            for _ in 0..3 {
                deposit(&engine, "ann", 1).await;
                total += 1;
                assert!(engine.read_model::<Balances>().caught_up().await);
            }
            assert_eq!(
                rows(&engine).await,
                expected(&[("#", total), ("ann", total - 1)]),
                "seed {seed}"
            );
            engine.stop().await;
        }
    }
}

#[tokio::test]
async fn a_history_that_was_lost_is_noticed_and_only_a_rebuild_helps() {
    let (world, views) = (World::new(), MemoryViews::new());
    let engine = start_balances(&world, &views).await;
    open(&engine, "ann", 1).await;
    deposit(&engine, "ann", 1).await;
    caught_up(&engine).await;
    engine.stop().await;

    // An older copy, with a different history since.
    let other = World::new();
    let engine = start_balances(&other, &MemoryViews::new()).await;
    open(&engine, "bob", 7).await;
    deposit(&engine, "bob", 1).await;
    engine.stop().await;
    let engine = start_balances(&other, &views).await;
    assert!(!engine.read_model::<Balances>().caught_up().await);
    let ProjectionState::Stopped { reason, .. } = engine.projections()[0].state.clone() else {
        panic!("{:?}", engine.projections())
    };
    assert!(reason.contains("commit 1.2") && reason.contains("rebuild"), "{reason}");
    assert!(engine.rebuild_projection("balances"));
    assert_eq!(caught_up(&engine).await, expected(&[("#", 2), ("bob", 8)]));
    engine.stop().await;

    // A history that has lost its end.
    let empty = World::new();
    let engine = start_balances(&empty, &views).await;
    assert!(!engine.read_model::<Balances>().caught_up().await);
    assert!(
        matches!(&engine.projections()[0].state, ProjectionState::Stopped { reason, .. } if reason.contains("lost its end"))
    );
    engine.stop().await;
}

#[tokio::test]
async fn with_nothing_new_the_journal_is_not_read() {
    let world = World::new();
    let counting = Counting::new(&world);
    let engine = world
        .start_on(counting.clone(), World::builder().projection(Balances::default()))
        .await;
    open(&engine, "ann", 1).await;
    caught_up(&engine).await;
    let reads = counting.reads.load(SeqCst);
    for _ in 0..100 {
        // Each call wakes the projection.
        caught_up(&engine).await;
    }
    assert_eq!(counting.reads.load(SeqCst), reads);
    for _ in 0..50 {
        deposit(&engine, "ann", 1).await;
    }
    caught_up(&engine).await;
    let more = counting.reads.load(SeqCst) - reads;
    assert!(
        more < 50,
        "{more} reads for 50 commits: what has gathered is read at once"
    );
    engine.stop().await;
}

const BY_ANN: OperatorDecision<'static> = OperatorDecision {
    by: Cow::Borrowed("ann"),
    reason: Cow::Borrowed("it was entered twice"),
};

/// Waits until the projection has stopped, and returns the event.
async fn stopped_at(engine: &Engine) -> EventOffset {
    let at = || match engine.projections()[0].state {
        ProjectionState::Stopped { at, .. } => at,
        _ => None,
    };
    eventually(async || at().is_some()).await;
    at().unwrap()
}

#[tokio::test]
async fn a_skipped_event_is_gone_past_alone_and_for_good() {
    let (world, views) = (World::new(), MemoryViews::new());
    let poison = Arc::new(AtomicU64::new(13));
    let begin = async || {
        let balances = Balances {
            poison: poison.clone(),
            panics: false,
        };
        start(&world, Arc::new(views.clone()), |builder| builder.projection(balances)).await
    };
    let engine = begin().await;
    open(&engine, "ann", 1).await;
    assert_eq!(caught_up(&engine).await, expected(&[("#", 1), ("ann", 1)]));
    let nothing = "1.1.0".parse().unwrap();
    assert_eq!(
        engine.skip_event("balances", nothing, BY_ANN).await,
        Err(SkipError::Running)
    );
    assert_eq!(
        engine.skip_event("none", nothing, BY_ANN).await,
        Err(SkipError::Unknown)
    );
    // Sent together, so they are in one commit, or in few.
    let deposits = [13, 2, 13, 4].map(|amount| deposit(&engine, "ann", amount));
    futures_util::future::join_all(deposits).await;
    let first = stopped_at(&engine).await;
    assert_eq!(
        engine.skip_event("balances", nothing, BY_ANN).await,
        Err(SkipError::Other(first))
    );
    assert!(engine.projections()[0].skipped.is_empty());
    engine.skip_event("balances", first, BY_ANN).await.unwrap();
    eventually(
        async || matches!(engine.projections()[0].state, ProjectionState::Stopped { at: Some(at), .. } if at > first),
    )
    .await;
    let second = stopped_at(&engine).await;
    assert_eq!(
        engine.skip_event("balances", first, BY_ANN).await,
        Err(SkipError::Other(second))
    );
    engine.skip_event("balances", second, BY_ANN).await.unwrap();
    eventually(async || engine.projections()[0].skipped.len() == 2).await;
    let without = expected(&[("#", 3), ("ann", 7)]);
    assert_eq!(caught_up(&engine).await, without);
    let skipped = engine.projections().remove(0).skipped;
    assert_eq!(
        (skipped[0].event, skipped[1].event, skipped[1].number),
        (first, second, 2)
    );
    assert_eq!((&*skipped[0].by, &*skipped[0].reason), ("ann", "it was entered twice"));
    assert!(skipped[0].why.contains("13 is too much"), "{skipped:?}");
    let mut text = String::new();
    engine.metrics().encode(&mut text).unwrap();
    assert!(
        text.contains("throng_projection_skipped_total{projection=\"balances\"} 2"),
        "{text}"
    );
    drop(engine);

    // Continues as after a crash. The rows have the projection's position, and the events they lack.
    let engine = begin().await;
    assert_eq!(caught_up(&engine).await, without);
    deposit(&engine, "ann", 5).await;
    assert_eq!(caught_up(&engine).await, expected(&[("#", 4), ("ann", 12)]));
    assert_eq!(engine.projections()[0].skipped, skipped);

    // A rebuild meets these events again.
    assert!(engine.rebuild_projection("balances"));
    assert_eq!(stopped_at(&engine).await, first);
    assert!(engine.projections()[0].skipped.is_empty());
    poison.store(0, SeqCst);
    assert!(engine.resume_projection("balances"));
    assert_eq!(caught_up(&engine).await, expected(&[("#", 6), ("ann", 38)]));
    engine.stop().await;
}

/// Rows in their state of the last sync.
#[derive(Default)]
struct Unsynced {
    views: MemoryViews,
    kept: Mutex<MemoryViews>,
}

impl Views for Unsynced {
    fn offset(&self, view: &str) -> Later<'_, Result<Option<ViewOffset>, Error>> {
        self.views.offset(view)
    }
    fn apply(&self, view: &str, batch: ViewBatch) -> Later<'_, Result<Applied, Error>> {
        self.views.apply(view, batch)
    }
    fn get(&self, view: &str, keys: Vec<Vec<u8>>) -> Later<'_, Result<Vec<Option<Vec<u8>>>, Error>> {
        self.views.get(view, keys)
    }
    fn scan(&self, view: &str, range: ViewRange) -> Later<'_, Result<Vec<ViewRow>, Error>> {
        self.views.scan(view, range)
    }
    fn clear(&self, view: &str) -> Later<'_, Result<(), Error>> {
        self.views.clear(view)
    }
    fn names(&self) -> Later<'_, Result<Vec<String>, Error>> {
        self.views.names()
    }
    fn sync(&self) -> Later<'_, Result<(), Error>> {
        Box::pin(async {
            let (view, kept) = ("balances", MemoryViews::new());
            if let Some(offset) = self.views.offset(view).await? {
                let rows = self.views.scan(view, ViewRange::default()).await?;
                let batch = ViewBatch {
                    expected: None,
                    offset,
                    changes: rows.into_iter().map(|(key, value)| (key, Some(value))).collect(),
                };
                kept.apply(view, batch).await?;
            }
            *self.kept.lock().unwrap() = kept;
            Ok(())
        })
    }
}

#[tokio::test]
async fn decision_to_skip_is_durable_when_it_is_answered() {
    let (world, views) = (World::new(), Arc::new(Unsynced::default()));
    let balances = || Balances {
        poison: Arc::new(AtomicU64::new(13)),
        panics: false,
    };
    let engine = start(&world, views.clone(), |builder| builder.projection(balances())).await;
    open(&engine, "ann", 1).await;
    // Sent together, so they are in one commit, or in few.
    let deposits = [13, 2, 13].map(|amount| deposit(&engine, "ann", amount));
    futures_util::future::join_all(deposits).await;
    let first = stopped_at(&engine).await;
    engine.skip_event("balances", first, BY_ANN).await.unwrap();
    let kept = views.kept.lock().unwrap().clone();
    engine.stop().await;

    // Continues as after a power loss.
    let engine = start(&world, Arc::new(kept), |builder| builder.projection(balances())).await;
    let second = stopped_at(&engine).await;
    assert!(second > first, "{second} {first}");
    engine.skip_event("balances", second, BY_ANN).await.unwrap();
    assert_eq!(caught_up(&engine).await, expected(&[("#", 2), ("ann", 3)]));
    let skipped = engine.projections().remove(0).skipped;
    assert_eq!(skipped.iter().map(|one| one.event).collect::<Vec<_>>(), [first, second]);
    engine.stop().await;
}

#[tokio::test]
async fn a_failure_without_event_cannot_be_skipped() {
    let (world, views) = (World::new(), MemoryViews::new());
    let engine = start_balances(&world, &views).await;
    open(&engine, "ann", 1).await;
    caught_up(&engine).await;
    engine.stop().await;
    let engine = start_balances(&World::new(), &views).await;
    assert!(!engine.read_model::<Balances>().caught_up().await);
    let skipped = engine.skip_event("balances", "1.1.0".parse().unwrap(), BY_ANN).await;
    assert!(
        matches!(&skipped, Err(SkipError::NoEvent(why)) if why.contains("rebuild")),
        "{skipped:?}"
    );
    engine.stop().await;
}

/// Returns an engine with four events. The sink's receiver refuses the third for good.
async fn with_a_refused_event() -> (Engine, Courier) {
    let (world, views) = (World::new(), MemoryViews::new());
    let courier = Courier::default();
    courier.poison.store(3, SeqCst);
    let engine = start(&world, Arc::new(views), |builder| builder.sink(courier.clone())).await;
    open(&engine, "ann", 1).await;
    for _ in 0..3 {
        deposit(&engine, "ann", 1).await;
    }
    (engine, courier)
}

#[tokio::test]
async fn a_sink_goes_past_an_event_that_its_receiver_refuses() {
    let (engine, courier) = with_a_refused_event().await;
    let at = stopped_at(&engine).await;
    engine.skip_event("courier", at, BY_ANN).await.unwrap();
    eventually(async || courier.once().len() == 3).await;
    let taken: Vec<u64> = courier.once().into_iter().map(|(_, seq)| seq).collect();
    assert_eq!(taken, [1, 2, 4]);
    eventually(async || engine.projections()[0].skipped.len() == 1).await;
    engine.stop().await;
}

/// A sink's receiver that remembers its deliveries, and fails on request.
#[derive(Clone, Default)]
struct Courier {
    delivered: Arc<Mutex<Vec<(EventOffset, String, u64)>>>,
    fails: Arc<AtomicBool>,
    poison: Arc<AtomicU64>,
    attempts: Arc<AtomicU32>,
}

impl Sink for Courier {
    const NAME: &'static str = "courier";
    type Of = Account;

    fn deliver(&self, batch: Vec<DurableEvent<Account>>) -> Later<'_, Result<(), SinkError>> {
        self.attempts.fetch_add(1, SeqCst);
        for seen in batch {
            if seen.seq == self.poison.load(SeqCst) {
                let refused = SinkError::Poison {
                    offset: seen.offset,
                    reason: "it is not for me".into(),
                };
                return Box::pin(async move { Err(refused) });
            }
            // The event is delivered, even if the batch fails.
            self.delivered.lock().unwrap().push((seen.offset, seen.id, seen.seq));
        }
        let fails = self.fails.load(SeqCst);
        Box::pin(async move {
            if fails {
                return Err(SinkError::Retry("nobody is at home".into()));
            }
            Ok(())
        })
    }
}

impl Courier {
    /// Returns each event once, by offset, in order.
    fn once(&self) -> Vec<(String, u64)> {
        let (mut last, mut taken) = (None, Vec::new());
        for (offset, id, seq) in self.delivered.lock().unwrap().iter() {
            if last.is_none_or(|last| *offset > last) {
                taken.push((id.clone(), *seq));
                last = Some(*offset);
            }
        }
        taken
    }
}

#[tokio::test]
async fn a_sink_gets_events_at_least_once_with_offsets() {
    let (world, views) = (World::new(), MemoryViews::new());
    let courier = Courier::default();
    let begin = async || start(&world, Arc::new(views.clone()), |builder| builder.sink(courier.clone())).await;
    let engine = begin().await;
    open(&engine, "ann", 1).await;
    eventually(async || courier.once().len() == 1).await;
    courier.fails.store(true, SeqCst);
    deposit(&engine, "ann", 2).await;
    eventually(
        async || matches!(&engine.projections()[0].state, ProjectionState::Retrying { reason } if reason == "nobody is at home"),
    )
    .await;
    let attempts = courier.attempts.load(SeqCst);
    eventually(async || courier.attempts.load(SeqCst) > attempts).await;
    drop(engine);
    courier.fails.store(false, SeqCst);
    let engine = begin().await;
    deposit(&engine, "ann", 3).await;
    eventually(async || courier.once().len() == 3).await;
    engine.stop().await;
    let expected: Vec<(String, u64)> = (1..=3).map(|seq| ("ann".to_owned(), seq)).collect();
    assert_eq!(courier.once(), expected);
    assert!(courier.delivered.lock().unwrap().len() > 3, "some came twice");
}

#[tokio::test]
async fn an_event_a_sink_refuses_for_good_stops_it_after_those_before() {
    let (engine, courier) = with_a_refused_event().await;
    eventually(async || matches!(engine.projections()[0].state, ProjectionState::Stopped { .. })).await;
    let ProjectionState::Stopped { reason, .. } = engine.projections()[0].state.clone() else {
        unreachable!()
    };
    assert!(reason.contains("it is not for me"), "{reason}");
    assert_eq!(courier.once().len(), 2);
    courier.poison.store(0, SeqCst);
    engine.resume_projection("courier");
    eventually(async || courier.once().len() == 4).await;
    engine.stop().await;
}

#[tokio::test]
async fn large_histories_are_read_in_batches() {
    let (world, views) = (World::new(), MemoryViews::new());
    let engine = world.engine().await;
    open(&engine, "ann", 0).await;
    for _ in 0..40 {
        ask(&engine, "ann", Command::Grow { bytes: 100_000 }).await.unwrap();
    }
    engine.stop().await;
    let engine = start_balances(&world, &views).await;
    assert_eq!(caught_up(&engine).await, expected(&[("#", 41), ("ann", 0)]));
    engine.stop().await;
}
