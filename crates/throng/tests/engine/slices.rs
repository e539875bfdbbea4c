//! An entity that multiplies its messages gets a bounded part of its thread and of each commit, counted in messages. The whole engine runs on the
//! test's thread.

use crate::{
    credit::{Cell, Command},
    inside::largest_commit,
    kinds::eventually,
};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::SeqCst},
};
use throng::{
    Engine, Options,
    host::{Host, TokioHost},
    journal::{Journal, MemoryJournal, MemoryStore},
};
use throng_testing::{HeldJournal, delegate};
use tokio::runtime::Handle;

/// The number of clock reads in a slice. Each read advances the clock by [`STEP_MICROS`], and a message takes several reads.
const LOOKS_PER_SLICE: u64 = 50;
const STEP_MICROS: u64 = 10;
/// The number of rounds of the thread's tasks after which everything is at rest.
const ROUNDS: u32 = 1_000;

/// A host whose clock advances by a step at each read.
struct Stepped {
    host: TokioHost,
    micros: AtomicU64,
    step_micros: u64,
}

impl Stepped {
    fn new(step_micros: u64) -> Arc<Self> {
        Arc::new(Self {
            host: TokioHost::on(Handle::current()),
            micros: AtomicU64::new(1),
            step_micros,
        })
    }
}

impl Host for Stepped {
    delegate!(Host, host: now entropy spawn sleep);

    fn elapsed_micros(&self) -> u64 {
        self.micros.fetch_add(self.step_micros, SeqCst)
    }
}

async fn start(host: Arc<Stepped>, outbox_max: usize) -> Engine {
    let journal = MemoryJournal::new();
    start_on(host, outbox_max, journal.clone(), Arc::new(journal)).await
}

async fn start_on(host: Arc<Stepped>, outbox_max: usize, memory: MemoryJournal, journal: Arc<dyn Journal>) -> Engine {
    let options = Options {
        outbox_max,
        ..Options::default()
    };
    let builder = Engine::builder().with::<Cell>().options(options).host(host).shards(1);
    let store = Arc::new(MemoryStore::new(memory));
    builder.start_shared(journal, store).await.unwrap()
}

fn messages(engine: &Engine) -> u64 {
    engine.statistics().messages
}

fn timers(engine: &Engine) -> u64 {
    engine.statistics().timers_fired
}

/// Returns the most that is done between two polls of another task on the thread, until the total is reached.
async fn most_between(engine: Engine, done: fn(&Engine) -> u64, until: u64) -> u64 {
    let (mut last, mut most) = (done(&engine), 0);
    while last < until {
        next_round().await;
        let now = done(&engine);
        most = most.max(now - last);
        last = now;
    }
    most
}

/// Lets each other ready task of the thread run once.
async fn next_round() {
    let mut is_next = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut is_next, true) {
            return std::task::Poll::Ready(());
        }
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

/// Returns the number of messages once no more are taken.
async fn taken_at_rest(engine: &Engine) -> u64 {
    let engine = engine.clone();
    let at_rest = tokio::spawn(async move {
        let (mut taken, mut rounds) = (messages(&engine), 0);
        while rounds < ROUNDS {
            next_round().await;
            let now = messages(&engine);
            rounds = if now == taken { rounds + 1 } else { 0 };
            taken = now;
        }
        taken
    });
    at_rest.await.unwrap()
}

async fn divide(engine: &Engine) {
    let to = "bad".into();
    engine.entity::<Cell>("bad").ask(Command::Divide { to }).await.unwrap();
}

#[tokio::test]
async fn messages_are_delivered_in_slices() {
    let engine = start(Stepped::new(STEP_MICROS), 65_536).await;
    let most = tokio::spawn(most_between(engine.clone(), messages, 600));
    // The counter is read first, so that immediate work counts, too.
    next_round().await;
    divide(&engine).await;
    let most = most.await.unwrap();
    assert!(most <= LOOKS_PER_SLICE, "{most} messages were taken in one slice");
}

#[tokio::test]
async fn timers_are_fired_in_slices() {
    let engine = start(Stepped::new(STEP_MICROS), 65_536).await;
    let most = tokio::spawn(most_between(engine.clone(), timers, 600));
    // The counter is read first, so that immediate work counts, too.
    next_round().await;
    // The timers of several entities fire together.
    for number in 0..20 {
        let of = engine.entity::<Cell>(format!("bad-{number}"));
        of.ask(Command::Alarm {}).await.unwrap();
    }
    let most = most.await.unwrap();
    assert!(most <= LOOKS_PER_SLICE, "{most} timers were fired in one slice");
}

#[tokio::test]
async fn work_from_inside_fills_little_of_a_commit() {
    let memory = MemoryJournal::new();
    let (journal, hold) = HeldJournal::new(memory.clone(), false);
    // The clock stands still, so no commit takes long.
    let engine = start_on(Stepped::new(0), 65_536, memory.clone(), Arc::new(journal)).await;
    engine.entity::<Cell>("other").ask(Command::Note).await.unwrap();
    hold.send_replace(true);
    let first = tokio::spawn({
        let engine = engine.clone();
        async move { divide(&engine).await }
    });
    assert!(
        taken_at_rest(&engine).await > 0,
        "messages wait for no commit of their own"
    );
    hold.send_replace(false);
    first.await.unwrap();
    engine.entity::<Cell>("other").ask(Command::Note).await.unwrap();
    let largest = largest_commit(&memory).await;
    assert!(largest < 96 << 10, "a commit had {largest} bytes");
}

#[tokio::test]
async fn multiplier_takes_few_messages_at_a_time() {
    let host = Stepped::new(0);
    let engine = start(host.clone(), 1_024).await;
    divide(&engine).await;
    let taken = taken_at_rest(&engine).await;
    assert!((33..200).contains(&taken), "{taken} were taken");
    assert_eq!(engine.entity::<Cell>("other").ask(Command::Note).await.unwrap(), 1);

    host.micros.fetch_add(2_000, SeqCst);
    eventually(async || messages(&engine) > taken).await;
    let later = taken_at_rest(&engine).await;
    assert!(later <= taken + 32, "{} were taken at once", later - taken);
    assert_eq!(engine.quarantined(9).await.unwrap(), []);
}
