//! Following a kind and its entities: every event once, in order, decoded once for all followers.

use crate::kinds::{Command, Counting, World, ask, failing::Failing, open};
use futures_util::future::join_all;
use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    task::{Context, Wake, Waker},
    time::Duration,
};
use throng::{
    Cursor, Engine, EntityEvent, FeedError, Follow, Follower,
    host::{Host, TokioHost},
    journal::{Journal, Position},
    model::{CommandAnswer, Entity, Error, Event, Turn},
};
use throng_testing::{HeldJournal, delegate, fixtures::Never};

/// A second kind.
#[derive(Default, serde::Serialize, serde::Deserialize)]
struct Lamp;

#[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
enum Switch {
    On,
}

#[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
enum Switched {
    On,
}
impl Event for Switched {}

impl Entity for Lamp {
    const KIND: &'static str = "lamp";
    type Id = String;
    type Command = Switch;
    type Event = Switched;
    type Reply = ();
    type Rejection = Never;

    fn decide(&self, Switch::On: Switch, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
        turn.emit(Switched::On);
        Ok(CommandAnswer::Now(()))
    }

    fn evolve(&mut self, _: &Switched) {}
}

const ACCOUNT: usize = 0;
const LAMP: usize = 1;

async fn engine(world: &World, journal: impl Journal + 'static) -> Engine {
    world.start_on(journal, World::builder().with::<Lamp>()).await
}

fn all(kind: usize, from: Cursor) -> Follow {
    Follow::Kind { kind, from }
}

fn one(id: &str, after: u64) -> Follow {
    Follow::Entity {
        kind: ACCOUNT,
        id: id.into(),
        after,
        at: None,
    }
}

async fn now(engine: &Engine) -> Cursor {
    engine.place(false).await.unwrap()
}

async fn start(engine: &Engine) -> Cursor {
    engine.place(true).await.unwrap()
}

async fn deposit(engine: &Engine, id: &str) {
    ask(engine, id, Command::Deposit { amount: 1 }).await.unwrap();
}

/// Returns the ids and sequence numbers of this many next events.
async fn take(follower: &mut Follower, count: usize) -> Vec<(String, u64)> {
    let mut seen = Vec::new();
    while seen.len() < count {
        seen.extend(ids(&soon(follower.next(100)).await.unwrap()));
    }
    assert_eq!(seen.len(), count);
    seen
}

fn ids(events: &[Arc<EntityEvent>]) -> Vec<(String, u64)> {
    events
        .iter()
        .map(|event| (event.id.to_string(), event.event.seq))
        .collect()
}

/// Bounds a future's time, so that a test ends even if it waits in vain.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_mins(1), future)
        .await
        .expect("it comes within a minute")
}

/// A future that is polled manually, and records when it was woken.
struct ManualPoll<T> {
    future: Pin<Box<dyn Future<Output = T>>>,
    woken: Arc<Woken>,
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

impl<T> ManualPoll<T> {
    fn new(future: impl Future<Output = T> + 'static) -> Self {
        Self {
            future: Box::pin(future),
            woken: Arc::default(),
        }
    }

    /// Polls it until it waits for a wake-up.
    async fn waits(&mut self) {
        loop {
            self.woken.0.store(false, SeqCst);
            let waker = self.woken.clone().into();
            assert!(self.future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            // Another task may have to act first, which takes little time.
            tokio::task::yield_now().await;
            if !self.is_woken() {
                return;
            }
        }
    }

    fn is_woken(&self) -> bool {
        self.woken.0.load(SeqCst)
    }
}

#[tokio::test]
async fn each_commit_is_read_and_decoded_once_for_all_followers() {
    const FOLLOWERS: usize = 100;
    let world = World::new();
    let journal = Counting::new(&world);
    let engine = engine(&world, journal.clone()).await;
    for id in ["a", "b"] {
        open(&engine, id, 0).await;
    }
    let place = now(&engine).await;
    let mut followers = Vec::new();
    for number in 0..FOLLOWERS {
        let follow = match number % 4 {
            0 => one("a", 1),
            1 => one("b", 1),
            _ => all(ACCOUNT, place.clone()),
        };
        followers.push(engine.follow(follow).await.unwrap());
    }
    let read = journal.commits.load(SeqCst);
    let events = async {
        for number in 0..50 {
            deposit(&engine, if number % 5 == 0 { "a" } else { "b" }).await;
        }
    };
    let seen = join_all(followers.iter_mut().enumerate().map(|(number, follower)| {
        take(
            follower,
            match number % 4 {
                0 => 10,
                1 => 40,
                _ => 50,
            },
        )
    }));
    let (seen, ()) = tokio::join!(seen, events);
    assert_eq!(journal.commits.load(SeqCst) - read, 50, "commits read");
    for (number, seen) in seen.iter().enumerate() {
        let of = |id: &str| -> Vec<u64> { seen.iter().filter(|seen| seen.0 == id).map(|seen| seen.1).collect() };
        let (a, b) = match number % 4 {
            0 => (10, 0),
            1 => (0, 40),
            _ => (10, 40),
        };
        assert_eq!((of("a"), of("b")), ((2..2 + a).collect(), (2..2 + b).collect()));
    }
    engine.stop().await;
}

#[tokio::test]
async fn recent_events_are_read_once_for_all_returning_followers() {
    let world = World::new();
    let journal = Counting::new(&world);
    let engine = engine(&world, journal.clone()).await;
    let mut places = vec![start(&engine).await];
    open(&engine, "a", 0).await;
    for _ in 0..40 {
        places.push(now(&engine).await);
        deposit(&engine, "a").await;
    }
    // Followers begin at later and earlier places, in random order.
    let mut followers = Vec::new();
    for number in 0..100 {
        let skipped = number * 7 % places.len();
        let follower = engine.follow(all(ACCOUNT, places[skipped].clone())).await.unwrap();
        followers.push((skipped, follower));
    }
    let seen = join_all(followers.iter_mut().map(async |(skipped, follower)| {
        let count = places.len() - *skipped;
        (take(follower, count).await, *skipped as u64)
    }));
    for (seen, skipped) in seen.await {
        let expected: Vec<(String, u64)> = (1 + skipped..=41).map(|seq| ("a".into(), seq)).collect();
        assert_eq!(seen, expected);
    }
    let reads = journal.reads.load(SeqCst);
    assert!(reads < 10, "{reads} reads for 100 followers");
    engine.stop().await;
}

#[tokio::test]
async fn nothing_is_read_without_followers_or_news() {
    let world = World::new();
    let journal = Counting::new(&world);
    let engine = engine(&world, journal.clone()).await;
    open(&engine, "a", 0).await;
    drop(engine.follow(all(ACCOUNT, now(&engine).await)).await.unwrap());
    deposit(&engine, "a").await;
    let mut follower = engine.follow(all(ACCOUNT, now(&engine).await)).await.unwrap();
    ManualPoll::new(async move { follower.next(1).await }).waits().await;
    assert_eq!(journal.reads.load(SeqCst), 0);
    engine.stop().await;
}

#[tokio::test]
async fn followers_of_other_kinds_or_entities_are_not_woken() {
    let world = World::new();
    let engine = engine(&world, world.journal.clone()).await;
    for id in ["a", "b"] {
        open(&engine, id, 0).await;
    }
    engine.entity::<Lamp>("l").ask(Switch::On).await.unwrap();
    let mut lamps = engine.follow(all(LAMP, now(&engine).await)).await.unwrap();
    let mut b = engine.follow(one("b", 1)).await.unwrap();
    let mut accounts = engine.follow(all(ACCOUNT, now(&engine).await)).await.unwrap();
    let mut lamps = ManualPoll::new(async move { lamps.next(9).await });
    let mut b = ManualPoll::new(async move { b.next(9).await });
    lamps.waits().await;
    b.waits().await;
    for seq in 2..=5 {
        deposit(&engine, "a").await;
        assert_eq!(take(&mut accounts, 1).await, [("a".into(), seq)]);
        assert!(!lamps.is_woken() && !b.is_woken());
    }
    engine.entity::<Lamp>("l").ask(Switch::On).await.unwrap();
    deposit(&engine, "b").await;
    assert_eq!(take(&mut accounts, 1).await, [("b".into(), 2)]);
    soon(async {
        while !lamps.is_woken() || !b.is_woken() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(ids(&soon(lamps.future).await.unwrap()), [("l".into(), 2)]);
    assert_eq!(ids(&soon(b.future).await.unwrap()), [("b".into(), 2)]);
    engine.stop().await;
}

#[tokio::test]
async fn slow_follower_replays_from_log_without_gaps() {
    // More events than are kept.
    const EVENTS: u64 = 161;
    const BATCH: u64 = 20;
    let world = World::new();
    let journal = Counting::new(&world);
    let engine = engine(&world, journal.clone()).await;
    open(&engine, "a", 0).await;
    let mut slow = engine.follow(all(ACCOUNT, start(&engine).await)).await.unwrap();
    let mut slow_of_a = engine.follow(one("a", 0)).await.unwrap();
    let mut fast = engine.follow(all(ACCOUNT, start(&engine).await)).await.unwrap();
    for follower in [&mut slow, &mut slow_of_a, &mut fast] {
        assert_eq!(take(follower, 1).await, [("a".into(), 1)]);
    }
    for batch in 0..EVENTS / BATCH {
        for _ in 0..BATCH {
            ask(&engine, "a", Command::Grow { bytes: 64 << 10 }).await.unwrap();
        }
        let first = 2 + batch * BATCH;
        let expected: Vec<(String, u64)> = (first..first + BATCH).map(|seq| ("a".into(), seq)).collect();
        assert_eq!(take(&mut fast, expected.len()).await, expected);
    }
    let expected: Vec<(String, u64)> = (2..=EVENTS).map(|seq| ("a".into(), seq)).collect();
    let reads = journal.reads.load(SeqCst);
    assert_eq!(take(&mut slow, expected.len()).await, expected);
    assert!(journal.reads.load(SeqCst) > reads, "it was behind");
    assert_eq!(take(&mut slow_of_a, expected.len()).await, expected);
    deposit(&engine, "a").await;
    for follower in [&mut slow, &mut slow_of_a, &mut fast] {
        assert_eq!(take(follower, 1).await, [("a".into(), EVENTS + 1)]);
    }
    engine.stop().await;
}

#[tokio::test]
async fn durable_events_are_told_after_another_follower_left_at_rest() {
    let world = World::new();
    let engine = engine(&world, world.journal.clone()).await;
    open(&engine, "a", 0).await;
    let mut stays = engine.follow(all(ACCOUNT, now(&engine).await)).await.unwrap();
    for seq in (2..20).step_by(2) {
        deposit(&engine, "a").await;
        assert_eq!(take(&mut stays, 1).await, [("a".into(), seq)]);
        // The reading task has come to the end, and rests for 20 ms.
        deposit(&engine, "a").await;
        let mut goes = engine.follow(all(ACCOUNT, now(&engine).await)).await.unwrap();
        let mut goes = ManualPoll::new(async move { goes.next(9).await });
        goes.waits().await;
        drop(goes);
        tokio::time::sleep(Duration::from_millis(40)).await;
        // No further commit would wake the reader.
        assert_eq!(take(&mut stays, 1).await, [("a".into(), seq + 1)]);
    }
    engine.stop().await;
}

#[tokio::test]
async fn a_follower_outlives_a_recovery_into_the_next_writer() {
    let world = World::new();
    let journal = Failing::new(&world.journal);
    let engine = engine(&world, journal.clone()).await;
    open(&engine, "a", 0).await;
    let old = start(&engine).await;
    let mut accounts = engine.follow(all(ACCOUNT, old.clone())).await.unwrap();
    let mut a = engine.follow(one("a", 0)).await.unwrap();
    for follower in [&mut accounts, &mut a] {
        assert_eq!(take(follower, 1).await, [("a".into(), 1)]);
    }
    let mut accounts = ManualPoll::new(async move { (accounts.next(9).await, accounts) });
    let mut a = ManualPoll::new(async move { (a.next(9).await, a) });
    accounts.waits().await;
    a.waits().await;
    journal.fails();
    ask(&engine, "a", Command::Deposit { amount: 1 }).await.unwrap_err();
    assert!(matches!(
        engine.follow(all(ACCOUNT, old.clone())).await,
        Err(FeedError::Engine(Error::Unavailable { .. }))
    ));
    journal.recovers();
    let durable = soon(engine.driver().changed(None)).await.unwrap();
    deposit(&engine, "a").await;
    let (seen, mut accounts) = soon(accounts.future).await;
    assert_eq!(ids(&seen.unwrap()), [("a".into(), 2)]);
    assert!(
        accounts
            .place()
            .to_string()
            .starts_with(&format!("{}.", durable.writer))
    );
    let (seen, mut a) = soon(a.future).await;
    assert_eq!(ids(&seen.unwrap()), [("a".into(), 2)]);
    let mut anew = engine.follow(all(ACCOUNT, old.clone())).await.unwrap();
    assert_eq!(take(&mut anew, 2).await, [("a".into(), 1), ("a".into(), 2)]);
    deposit(&engine, "a").await;
    for follower in [&mut accounts, &mut a, &mut anew] {
        assert_eq!(take(follower, 1).await, [("a".into(), 3)]);
    }
    engine.stop().await;
}

/// The real environment, with a clock that can be advanced.
struct Hasty {
    world: TokioHost,
    ahead_micros: Arc<AtomicU64>,
}

impl Host for Hasty {
    delegate!(Host, world: now entropy spawn sleep close);

    fn elapsed_micros(&self) -> u64 {
        self.world.elapsed_micros() + self.ahead_micros.load(SeqCst)
    }
}

#[tokio::test]
async fn one_long_recovery_ends_a_wait_but_several_short_do_not() {
    const TEN_SECONDS: u64 = 10_000_000;
    let world = World::new();
    let journal = Failing::new(&world.journal);
    let ahead_micros = Arc::new(AtomicU64::new(0));
    let host = Hasty {
        world: TokioHost::new().unwrap(),
        ahead_micros: ahead_micros.clone(),
    };
    let engine = world
        .start_on(journal.clone(), World::builder().host(Arc::new(host)))
        .await;
    open(&engine, "a", 0).await;
    let mut follower = engine.follow(all(ACCOUNT, now(&engine).await)).await.unwrap();
    let mut next = ManualPoll::new(async move { (follower.next(9).await, follower) });
    next.waits().await;
    for _ in 0..2 {
        journal.fails();
        ask(&engine, "a", Command::Deposit { amount: 1 }).await.unwrap_err();
        next.waits().await;
        journal.recovers();
        soon(engine.driver().changed(None)).await.unwrap();
        ahead_micros.fetch_add(TEN_SECONDS, SeqCst);
    }
    deposit(&engine, "a").await;
    let (seen, mut follower) = soon(next.future).await;
    assert_eq!(ids(&seen.unwrap()), [("a".into(), 2)]);
    journal.fails();
    ask(&engine, "a", Command::Deposit { amount: 1 }).await.unwrap_err();
    let gives_up = async {
        // The recovery may be noticed late.
        loop {
            ahead_micros.fetch_add(TEN_SECONDS, SeqCst);
            tokio::task::yield_now().await;
        }
    };
    let failed = soon(async {
        tokio::select! {
            seen = follower.next(9) => seen,
            () = gives_up => unreachable!("it has no end"),
        }
    });
    assert!(matches!(
        failed.await,
        Err(FeedError::Engine(Error::Unavailable { .. }))
    ));
    journal.recovers();
    engine.stop().await;
}

#[tokio::test]
async fn a_waiting_follower_hears_that_the_engine_has_stopped() {
    let world = World::new();
    let engine = engine(&world, world.journal.clone()).await;
    let mut follower = engine.follow(all(ACCOUNT, now(&engine).await)).await.unwrap();
    let mut next = ManualPoll::new(async move { follower.next(1).await });
    next.waits().await;
    engine.stop().await;
    assert!(matches!(
        soon(next.future).await,
        Err(FeedError::Engine(Error::Unavailable { .. }))
    ));
}

#[tokio::test]
async fn an_abandoned_wait_loses_nothing_and_a_peek_takes_nothing() {
    let world = World::new();
    let engine = engine(&world, world.journal.clone()).await;
    open(&engine, "a", 0).await;
    let mut followers = [
        engine.follow(all(ACCOUNT, now(&engine).await)).await.unwrap(),
        engine.follow(one("a", 1)).await.unwrap(),
    ];
    for seq in 2..20 {
        for follower in &mut followers {
            // The future is polled once, then dropped.
            let mut next = pin!(follower.next(9));
            let waker = Waker::noop();
            assert!(next.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
        }
        deposit(&engine, "a").await;
        for follower in &mut followers {
            soon(follower.ready()).await.unwrap();
            soon(follower.ready()).await.unwrap();
            assert_eq!(take(follower, 1).await, [("a".into(), seq)]);
        }
    }
    engine.stop().await;
}

#[tokio::test]
async fn a_place_this_history_does_not_have_is_lost() {
    let world = World::new();
    let engine = engine(&world, world.journal.clone()).await;
    open(&engine, "a", 0).await;
    for cursor in ["77.1", "1.999", "1.1,77.1", "1.2+1"] {
        let follow = all(ACCOUNT, cursor.parse().unwrap());
        let lost = engine.follow(follow).await.err();
        assert!(matches!(lost, Some(FeedError::Lost(lost)) if lost == cursor));
        let lost = engine.feed(ACCOUNT, cursor.parse().unwrap(), 1).await.err();
        assert!(matches!(lost, Some(FeedError::Lost(lost)) if lost == cursor));
    }
    let opened = engine.driver().durable().unwrap();
    let after_the_first = |at| Follow::Entity {
        kind: ACCOUNT,
        id: "a".into(),
        after: 1,
        at: Some(at),
    };
    assert!(engine.follow(after_the_first(opened)).await.is_ok());
    let commit = opened.commit.next();
    let lost = engine
        .follow(after_the_first(Position { commit, ..opened }))
        .await
        .err();
    assert!(matches!(lost, Some(FeedError::Lost(lost)) if lost == "1@1.2"));
    assert!(matches!(
        engine.follow(one("nobody", 0)).await,
        Err(FeedError::Engine(Error::Unknown { .. }))
    ));
    engine.stop().await;
}

#[tokio::test]
async fn number_beyond_the_last_event_is_lost() {
    let world = World::new();
    let engine = engine(&world, world.journal.clone()).await;
    open(&engine, "a", 0).await;
    deposit(&engine, "a").await;
    for (id, beyond) in [("a", 3), ("a", 99), ("a", u64::MAX), ("nobody", 1), ("nobody", 7)] {
        let number = beyond.to_string();
        let lost = engine.follow(one(id, beyond)).await.err();
        assert!(
            matches!(lost, Some(FeedError::Lost(lost)) if lost == number),
            "{id} {number}"
        );
        let lost = engine.history(ACCOUNT, id, beyond, 9).await.err();
        assert!(
            matches!(lost, Some(FeedError::Lost(lost)) if lost == number),
            "{id} {number}"
        );
    }
    for (after, limit, left) in [(2, 9, 0), (1, 9, 1), (1, 0, 0), (0, 9, 2)] {
        let page = engine.history(ACCOUNT, "a", after, limit).await.unwrap();
        assert_eq!(page.events.len(), left, "after {after}");
    }
    let mut at_the_end = engine.follow(one("a", 2)).await.unwrap();
    deposit(&engine, "a").await;
    assert_eq!(take(&mut at_the_end, 1).await, [("a".into(), 3)]);
    engine.stop().await;
}

#[tokio::test]
async fn event_on_its_way_is_waited_for_and_not_lost() {
    let world = World::new();
    let (journal, hold) = HeldJournal::new(world.journal.clone(), false);
    let engine = engine(&world, journal).await;
    open(&engine, "a", 0).await;
    hold.send(true).unwrap();
    let by = engine.clone();
    let mut depositing = ManualPoll::new(async move { deposit(&by, "a").await });
    depositing.waits().await;
    let (follower, reader) = (engine.clone(), engine.clone());
    let mut following = ManualPoll::new(async move { follower.follow(one("a", 2)).await });
    let mut reading = ManualPoll::new(async move { reader.history(ACCOUNT, "a", 2, 9).await });
    following.waits().await;
    reading.waits().await;
    hold.send(false).unwrap();
    soon(depositing.future).await;
    assert!(soon(following.future).await.is_ok());
    assert_eq!(soon(reading.future).await.unwrap().events, []);
    engine.stop().await;
}
