//! The history of a seed: clients at work, crashes and restarts of the service, quiet, and the final checks.

use crate::{
    account::{Account, KIND, Kin, Look, Relatives, View},
    book::Book,
    checker::Checker,
    client::Client,
    janitor,
    relay::Relay,
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU8, Ordering},
    },
    time::Duration,
};
use throng::{Builder, Options};
use throng_journal::{Durability, RecordKind};
use throng_sim::{Failure, Faults, History, Lie, Run, Sim, Simulation};

/// The parts of a scenario.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    pub(crate) faults: bool,
    pub(crate) crashes: bool,
    pub(crate) power_loss: bool,
    pub(crate) upgrades: bool,
    pub(crate) rivals: bool,
    /// True for several loops, each on a thread of its own.
    pub(crate) loops: bool,
    pub(crate) lie: Option<Lie>,
}

/// The most loops of a process.
const LOOPS_MAX: u64 = 4;

pub(crate) const CALM: Scenario = Scenario {
    faults: false,
    crashes: false,
    power_loss: false,
    upgrades: false,
    rivals: false,
    loops: false,
    lie: None,
};

fn generation<const G: u8>(builder: Builder) -> Builder {
    builder
        .with::<Account<G>>()
        .query::<Account<G>, Look>()
        .query::<Account<G>, Kin>()
        .on_outcome::<Account<G>, Account<G>>()
        .with::<Relay>()
}

fn options(seed: u64) -> Options {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x006F_7074);
    let mut pick = |of: &[usize]| of[rng.usize(..of.len())];
    Options {
        memory_bytes_max: pick(&[2_500, 10_000, 60_000, 1 << 26]),
        checkpoint_every: Duration::from_millis(pick(&[15, 200, 2_000, 60_000]) as u64),
        checkpoint_bytes: pick(&[1, 3_000, 1 << 26]) as u64,
        commit_bytes_max: pick(&[300, 8 << 20]),
        entity_turn: Duration::from_micros(pick(&[2, 40, 1_250]) as u64),
        outbox_max: pick(&[1, 3, 64]),
        deliveries_per_turn: pick(&[1, 2, 1_024]),
        drain: Duration::from_millis(pick(&[1, 2_000]) as u64),
        ..Options::default()
    }
}

struct Driver {
    sim: Sim,
    scenario: Scenario,
    generation: Arc<AtomicU8>,
    power_lost: Option<Duration>,
    used: [bool; 4],
}

impl Driver {
    fn upgrade(&mut self) {
        let now = self.generation.load(Ordering::Relaxed);
        match now {
            1 if self.sim.chance(0.5) => self.upgrade_to(2),
            1 | 2 => self.upgrade_to(3),
            _ => {}
        }
    }

    fn upgrade_to(&mut self, generation: u8) {
        self.generation.store(generation, Ordering::Relaxed);
        self.used[usize::from(generation)] = true;
        self.sim.count("upgraded");
        self.sim.note(format_args!("generation {generation}"));
        match generation {
            2 => self.sim.upgrade(self::generation::<2>),
            _ => self.sim.upgrade(self::generation::<3>),
        }
    }

    /// Starts the service until it runs. Sometimes it is killed during its start.
    async fn up(&mut self) {
        loop {
            if self.scenario.crashes && self.sim.chance(0.2) {
                let (sim, micros) = (self.sim.clone(), self.sim.below(50_000));
                let _killer = self.sim.spawn(async move {
                    sim.sleep(Duration::from_micros(micros)).await;
                    if sim.engine().is_none() {
                        sim.count("killed while it starts");
                        sim.kill();
                    }
                });
            }
            if matches!(self.sim.start().await, Ok(Ok(()))) {
                break;
            }
            self.sim.sleep(Duration::from_millis(20)).await;
        }
        if !self.scenario.loops && self.sim.chance(0.4) {
            // Acts as a gateway's loop does.
            let sim = self.sim.clone();
            let _committer = self.sim.spawn(async move {
                sim.call(|engine| async move { engine.driver().committer().await })
                    .await
            });
        }
    }

    async fn fall(&mut self) {
        let sim = self.sim.clone();
        match sim.below(10) {
            0..2 => {
                sim.count("stopped gracefully");
                sim.stop().await.ok();
            }
            2..4 if self.scenario.rivals => {
                // The old process is not informed.
                sim.count("taken over by a rival");
                self.up().await;
                sim.sleep(Duration::from_micros(sim.below(1_000_000))).await;
                sim.count("killed");
                sim.kill();
            }
            4..6 if self.scenario.power_loss => {
                sim.count("power lost");
                sim.power_loss();
                self.power_lost = Some(sim.elapsed());
            }
            _ => {
                sim.count("killed");
                sim.kill();
            }
        }
        if sim.chance(0.2) {
            sim.jump(Duration::from_micros(sim.below(2_000_000)));
        }
        if sim.engine().is_none() && sim.chance(0.1) {
            sim.lose_store();
        }
        if self.scenario.upgrades && sim.chance(0.6) {
            self.upgrade();
        }
        sim.sleep(Duration::from_micros(sim.below(100_000))).await;
        self.up().await;
    }

    /// Returns true if no message is in flight, and no timer is set.
    async fn quiet(&self) -> bool {
        let (mut same, mut last) = (0, 0);
        for _ in 0..600 {
            self.sim.sleep(Duration::from_millis(100)).await;
            let history = self.sim.history();
            let (messages, _) = history.messages(self.sim.shards());
            let waits = messages.iter().any(|message| message.outcome.is_none());
            let commits = history.commits.len();
            let is_ready = self.sim.engine().is_some_and(|engine| engine.health().ready);
            same = if commits == last && !waits && is_ready {
                same + 1
            } else {
                0
            };
            last = commits;
            if same > 12 {
                return true;
            }
        }
        false
    }

    async fn shown(&self) -> BTreeMap<u64, (View, Relatives)> {
        let mut shown = BTreeMap::new();
        for address in self
            .sim
            .history()
            .entities()
            .into_keys()
            .filter(|address| &*address.kind == KIND)
        {
            let id: u64 = address.id.parse().unwrap();
            let generation = self.generation.load(Ordering::Relaxed);
            let read = self.sim.call(move |engine| async move {
                if generation == 1 {
                    let view = engine.entity::<Account<1>>(id).read(Look {}).await?;
                    return Ok((view, engine.entity::<Account<1>>(id).read(Kin {}).await?));
                }
                let view = engine.entity::<Account<3>>(id).read(Look {}).await?;
                Ok((view, engine.entity::<Account<3>>(id).read(Kin {}).await?))
            });
            let read: Result<_, throng::model::Error<crate::account::No>> = read.await.unwrap();
            match read {
                Ok(read) => drop(shown.insert(id, read)),
                Err(error) => self
                    .sim
                    .wrong(format!("account {id} cannot be read in the end: {error}")),
            }
        }
        shown
    }
}

async fn live(sim: Sim, scenario: Scenario) {
    let book = Book::default();
    let mut driver = Driver {
        sim: sim.clone(),
        scenario,
        generation: Arc::new(AtomicU8::new(1)),
        power_lost: None,
        used: [false; 4],
    };
    driver.up().await;
    let clients = 2 + sim.below(7);
    let mut done = Vec::new();
    for number in 0..clients {
        let client = Client {
            sim: sim.clone(),
            book: book.clone(),
            number,
            generation: driver.generation.clone(),
            lossy: scenario.power_loss,
            back: usize::from(scenario.rivals),
        };
        done.push(sim.spawn(client.run(12)));
    }
    let most_waiting = watch_outbox(&sim);
    let janitor = sim.spawn(janitor::work(sim.clone(), 8));
    if scenario.crashes {
        for _ in 0..sim.below(5) {
            let most = [2_000, 50_000, 1_000_000][sim.below(3) as usize];
            sim.sleep(Duration::from_micros(sim.below(most))).await;
            if scenario.loops && sim.chance(0.3) {
                sim.end_loop(sim.below(LOOPS_MAX) as usize);
            } else {
                driver.fall().await;
            }
        }
    }
    for client in done {
        if client.await.is_err() {
            sim.wrong("a client panicked".into());
        }
    }
    janitor.await.ok();
    // All faults end, and everything in flight arrives.
    let lie = sim.lie();
    sim.set_faults(Faults { lie, ..Faults::none() });
    if driver.generation.load(Ordering::Relaxed) == 2 {
        driver.upgrade_to(3);
    }
    if driver.used[3] || scenario.crashes {
        sim.restart().await;
    } else if scenario.faults {
        // Timers of entities that could not be loaded are retried within 64 s.
        sim.sleep(Duration::from_secs(70)).await;
    }
    let mut quiet = driver.quiet().await;
    if quiet && sim.chance(0.5) {
        janitor::clear(&sim).await;
        quiet = driver.quiet().await;
    }
    let shown = driver.shown().await;
    if let Some(engine) = sim.engine() {
        let mut text = String::new();
        engine.metrics().encode(&mut text).unwrap();
        check_metrics(&sim, &text, shown.len());
    }
    check_outbox(&sim, &sim.history(), most_waiting.load(Ordering::Relaxed));
    sim.stop().await.ok();
    let history = sim.history();
    for wrong in history.check(sim.shards(), quiet) {
        sim.wrong(wrong);
    }
    if !quiet {
        sim.wrong("promise 6: it never gets quiet".into());
        return history
            .check(sim.shards(), true)
            .into_iter()
            .take(3)
            .for_each(|wrong| sim.wrong(wrong));
    }
    let entries = book.lock();
    let mut checker = Checker::new(&history, sim.shards(), &entries, driver.power_lost, driver.used[2]);
    checker.final_states(&shown);
    checker.check_told();
    for wrong in checker.check(scenario.rivals) {
        sim.wrong(wrong);
    }
}

/// Records the largest number of messages that wait in memory.
fn watch_outbox(sim: &Sim) -> Arc<AtomicI64> {
    let most = Arc::new(AtomicI64::new(0));
    let (sim_in, most_in) = (sim.clone(), most.clone());
    let _watching = sim.spawn(async move {
        for _ in 0..2_000 {
            sim_in.sleep(Duration::from_millis(7)).await;
            let Some(engine) = sim_in.engine() else { continue };
            most_in.fetch_max(engine.metrics().outbox(), Ordering::Relaxed);
            if engine.metrics().commands_deferred() > 0 {
                sim_in.count("commands deferred");
            }
        }
    });
    most
}

/// Promise 9: memory never holds more messages than allowed, plus those of one commit.
fn check_outbox(sim: &Sim, history: &History, most: i64) {
    let sent = |commit: &throng_journal::Commit| {
        let records = commit.records().flatten();
        records.filter(|record| record.record == RecordKind::Sent).count()
    };
    let largest = history.commits.iter().map(sent).max().unwrap_or_default();
    let Some(engine) = sim.engine() else { return };
    let allowed = (engine.options().outbox_max + largest) as i64;
    if most > allowed {
        sim.wrong(format!(
            "promise 9: {most} messages were in memory, {allowed} are allowed"
        ));
    }
}

/// Returns a value from the engine's metrics.
pub(crate) fn level(text: &str, name: &str) -> Option<i64> {
    let is_it = |line: &&str| line.starts_with(name) && line.as_bytes().get(name.len()) == Some(&b' ');
    let line = text.lines().find(is_it)?;
    line[name.len() + 1..].trim().parse().ok()
}

/// Checks the engine's own metrics.
fn check_metrics(sim: &Sim, text: &str, accounts: usize) {
    let level = |name: &str| level(text, name);
    for name in [
        "throng_entities",
        "throng_entity_bytes",
        "throng_pending_bytes",
        "throng_outbox",
        "throng_waiting",
    ] {
        match level(name) {
            Some(level) if level >= 0 => {}
            level => sim.wrong(format!("promise 9: {name} is {level:?}")),
        }
    }
    let entities = level("throng_entities").unwrap_or_default();
    if entities > accounts as i64 + 8 {
        sim.wrong(format!("promise 9: {entities} entities are in memory, of {accounts}"));
    }
    if level("throng_outbox") != Some(0) {
        sim.wrong(format!(
            "the outbox holds {:?} when all is quiet",
            level("throng_outbox")
        ));
    }
}

/// Runs one seed of a scenario.
pub(crate) fn seed(seed: u64, scenario: Scenario, keep_trace: bool) -> Result<Run, Box<Failure>> {
    quiet_panics();
    let mut faults = if scenario.faults {
        Faults::random(seed)
    } else {
        Faults::none()
    };
    faults.lie = scenario.lie;
    let loops = if scenario.loops { 1 + seed % LOOPS_MAX } else { 0 };
    if scenario.loops {
        faults.sync_micros = 0..[1, 100, 2_000][(seed / LOOPS_MAX % 3) as usize];
    }
    Simulation::new(seed)
        .setup(generation::<1>)
        .options(options(seed))
        .shards([1, 3, 8][(seed % 3) as usize])
        .loops(loops as usize)
        .durability(if scenario.power_loss {
            Durability::Os
        } else {
            Durability::Fsync
        })
        .faults(faults)
        .within(Duration::from_secs(400))
        .keep_trace(keep_trace)
        .try_run(move |sim| live(sim, scenario))
        .map(|((), run)| run)
}

/// Silences the planned panics, which the engine catches.
fn quiet_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let text = panic.payload_as_str().unwrap_or_default();
            if !text.starts_with("planned panic") {
                before(panic);
            }
        }));
    });
}
