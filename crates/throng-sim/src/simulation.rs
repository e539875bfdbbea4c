//! A whole service in a simulated world: set up, run, crashed, started again.

use crate::{
    fake::Fake,
    faults::{Faults, Lie},
    history::History,
    host::SimHost,
    journal::SimJournal,
    medium::{Medium, Rows},
    nodes::Nodes,
    reached::{self, Reached},
    store::SimStore,
    world::{Group, OUTSIDE, RunsOn, TaskId, World},
};
use std::{
    any::Any,
    collections::BTreeMap,
    fmt,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU16, Ordering},
    },
    time::Duration,
};
use throng::{
    Builder, CommandObserver, Engine, Options, StartError,
    model::{Entity, OnCallOutcome, OnOutcome, Outside, Query, Timestamp},
};
use throng_cluster::Timing;
use throng_journal::{Address, Durability, Error, Journal, Later, Position, Store};

/// A test that runs, and keeps what it found.
type Test<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;
type Configure = Arc<dyn Fn(Builder) -> Builder + Send + Sync>;
type Opened = (Arc<dyn Journal>, Arc<dyn Store>);
type Open = Box<dyn Fn() -> Result<Opened, Error> + Send + Sync>;

/// Sets a simulated service up.
///
/// Everything in it (the order tasks run in, delays, faults, entropy) follows from the seed.
pub struct Simulation {
    seed: u64,
    configure: Vec<Configure>,
    options: Options,
    shards: u16,
    loops: usize,
    faults: Faults,
    open: Option<Open>,
    durability: Durability,
    elapsed_max: Duration,
    steps_max: u64,
    keep_trace: bool,
}

/// The record of a run.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// A hash of everything that happened: the same seed gives the same.
    pub trace_hash: u64,
    /// The number of times that each thing happened.
    pub counts: BTreeMap<&'static str, u64>,
    /// The commands, outcomes and events that it reached.
    pub reached: Reached,
    /// Polls of tasks.
    pub steps: u64,
    /// Virtual time it took.
    pub elapsed: Duration,
    /// The trace, where it was asked for.
    pub trace: Vec<String>,
}

/// A run that failed.
#[derive(Debug)]
pub struct Failure {
    /// The faults found, each in a sentence.
    pub wrong: Vec<String>,
    /// The record of the run.
    pub run: Run,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.run.trace {
            writeln!(f, "{line}")?;
        }
        for wrong in self.wrong.iter().take(20) {
            writeln!(f, "- {wrong}")?;
        }
        Ok(())
    }
}

impl Simulation {
    /// A service without kinds on a journal without faults, at `fsync` durability.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            configure: Vec::new(),
            options: Options::default(),
            shards: 8,
            loops: 0,
            faults: Faults::none(),
            open: None,
            durability: Durability::Fsync,
            elapsed_max: Duration::from_secs(3_600),
            steps_max: 5_000_000,
            keep_trace: false,
        }
    }

    /// Gives it a kind.
    #[must_use]
    pub fn with<E: Entity>(self) -> Self {
        self.setup(Builder::with::<E>)
    }

    /// Gives a kind a query.
    #[must_use]
    pub fn query<E: Entity, Q: Query<E>>(self) -> Self {
        self.setup(Builder::query::<E, Q>)
    }

    /// Lets a kind hear the outcome of its requests to another.
    #[must_use]
    pub fn on_outcome<E: OnOutcome<T>, T: Entity>(self) -> Self {
        self.setup(Builder::on_outcome::<E, T>)
    }

    /// Lets a kind call a provider outside, which this stands for. It replaces the worker of a builder that was [set up](Self::setup) before.
    #[must_use]
    pub fn outside<E: OnCallOutcome<W>, W: Outside>(self, provider: &Fake<W>) -> Self {
        let provider = provider.clone();
        self.setup(move |builder| builder.outside::<E, W>(provider.clone()))
    }

    /// Anything else a [`Builder`] takes, or a whole one: `setup(|_| app().into_builder())`. Journal, store, host, options and the
    /// number of shards are the simulation's.
    #[must_use]
    pub fn setup(mut self, configure: impl Fn(Builder) -> Builder + Send + Sync + 'static) -> Self {
        self.configure.push(Arc::new(configure));
        self
    }

    /// The engine's limits and intervals.
    #[must_use]
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// The number of shards, 8 unless said otherwise.
    #[must_use]
    pub fn shards(mut self, shards: u16) -> Self {
        self.shards = shards.max(1);
        self
    }

    /// Each process has so many loops, as a gateway has: each on a thread of its own, with its committer and its share of the
    /// [calls](Sim::call). The engine's tasks and callers outside loops have threads, too; where one of them stops in the
    /// middle of something ([`busy_for`](crate::busy_for), [`Faults::sync_micros`]) the others go on.
    ///
    /// None unless said otherwise: everything is polled by one thread, whole, which is faster.
    #[must_use]
    pub fn loops(mut self, loops: usize) -> Self {
        self.loops = loops;
        self
    }

    /// Sets the faults.
    #[must_use]
    pub fn faults(mut self, faults: Faults) -> Self {
        self.faults = faults;
        self
    }

    /// Opens the journal and the store of each process, instead of the simulated ones. No [`Faults`] befall them; to kill them is the test's
    /// part. They must answer at once, also what takes them real time: virtual time would jump ahead of it.
    #[must_use]
    pub fn journal(
        mut self,
        open: impl Fn() -> Result<(Arc<dyn Journal>, Arc<dyn Store>), Error> + Send + Sync + 'static,
    ) -> Self {
        self.open = Some(Box::new(open));
        self
    }

    /// Sets the failures that an acknowledged commit survives.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// The run fails when it is not over after this much virtual time (an hour unless said otherwise).
    #[must_use]
    pub fn within(mut self, elapsed_max: Duration) -> Self {
        self.elapsed_max = elapsed_max;
        self
    }

    /// Keeps the trace's lines, not only their hash.
    #[must_use]
    pub fn keep_trace(mut self, keep: bool) -> Self {
        self.keep_trace = keep;
        self
    }

    /// Starts the service, runs the test beside it, and checks the journal it leaves.
    ///
    /// # Panics
    /// When the run hangs, the engine did what no journal allows, or the journal is not as it must be.
    pub fn run<T, F: Future<Output = T>>(self, test: impl FnOnce(Sim) -> F) -> T {
        let seed = self.seed;
        match self.run_test(true, test) {
            Ok((value, _)) => value,
            Err(failure) => panic!("seed {seed}:\n{failure}"),
        }
    }

    /// Runs like [`run`](Self::run), but the test starts the service, and faults are returned instead of a panic.
    ///
    /// # Errors
    /// It hung, the engine did what no journal allows, or the journal is not as it must be.
    pub fn try_run<T, F: Future<Output = T>>(self, test: impl FnOnce(Sim) -> F) -> Result<(T, Run), Box<Failure>> {
        self.run_test(false, test)
    }

    fn run_test<T, F: Future<Output = T>>(
        self,
        is_started: bool,
        test: impl FnOnce(Sim) -> F,
    ) -> Result<(T, Run), Box<Failure>> {
        let mut value = None;
        let told = &mut value;
        let test = |sim| -> Test<'_> {
            let test = test(sim);
            Box::pin(async move { *told = Some(test.await) })
        };
        let run = self.run_boxed(is_started, Box::new(test))?;
        match value {
            Some(value) => Ok((value, run)),
            None => Err(Box::new(Failure {
                wrong: vec!["the test has not ended".into()],
                run,
            })),
        }
    }

    /// Compiled once, and not for each test.
    fn run_boxed<'a>(self, is_started: bool, test: Box<dyn FnOnce(Sim) -> Test<'a> + 'a>) -> Result<Run, Box<Failure>> {
        let world = World::new(self.seed, self.keep_trace);
        let shared = Arc::new(Shared {
            medium: Medium::new(self.durability, self.faults.lie),
            world: world.clone(),
            faults: Arc::new(Mutex::new(self.faults)),
            open: self.open,
            configure: Mutex::new(self.configure),
            options: self.options,
            shards: AtomicU16::new(self.shards),
            loops: self.loops,
            state: Mutex::default(),
            reached: Arc::default(),
        });
        let sim = Sim { shared: shared.clone() };
        let elapsed_max = u64::try_from(self.elapsed_max.as_micros()).unwrap_or(u64::MAX);
        let main = {
            let sim = sim.clone();
            async move {
                if is_started {
                    sim.restart().await;
                }
                test(sim).await;
            }
        };
        let guarded = AssertUnwindSafe(|| {
            world
                .run(main, elapsed_max, self.steps_max)
                .map_err(|hang| hang.to_string())
        });
        let outcome = catch_unwind(guarded).unwrap_or_else(|panic| Err(panic_text(panic.as_ref())));
        sim.kill();
        world.kill(OUTSIDE);
        let mut wrong = sim.violations();
        let mut trace = world.take_lines();
        if self.keep_trace {
            trace.push("the journal:".into());
            trace.extend(sim.history().lines());
        }
        let reached = sim.shared.reached().clone();
        reached::add(&reached);
        let run = Run {
            trace_hash: world.trace_hash(),
            counts: world.counts(),
            reached,
            steps: world.steps(),
            elapsed: Duration::from_micros(world.elapsed_micros()),
            trace,
        };
        match outcome {
            Ok(()) if wrong.is_empty() => Ok(run),
            Ok(()) => Err(Box::new(Failure { wrong, run })),
            Err(why) => {
                wrong.push(why);
                let refused = sim.state().cannot_start.take();
                wrong.extend(refused.map(|why| format!("the last process could not start: {why}")));
                Err(Box::new(Failure { wrong, run }))
            }
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("panicked: {}", text.unwrap_or_default())
}

struct Shared {
    world: Arc<World>,
    medium: Medium,
    faults: Arc<Mutex<Faults>>,
    open: Option<Open>,
    configure: Mutex<Vec<Configure>>,
    options: Options,
    /// The shards of the next process. The test sets it between two.
    shards: AtomicU16,
    loops: usize,
    state: Mutex<State>,
    /// Every process adds to it, on whatever thread it decides.
    reached: Arc<Mutex<Reached>>,
}

impl Shared {
    fn reached(&self) -> MutexGuard<'_, Reached> {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
struct State {
    groups: Group,
    /// The last one is asked; others were taken over from and do not know it yet.
    processes: Vec<Process>,
    wrong: Vec<String>,
    /// Why the last process could not start, if it could not.
    cannot_start: Option<String>,
}

struct Process {
    group: Group,
    journal: SimJournal,
    engine: Option<Engine>,
    /// The committers, one for each loop.
    committers: Vec<TaskId>,
}

/// The process died before it answered: nobody knows what came of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the process died before it answered")]
pub struct Gone;

/// The simulated world, as a test sees it. Cheap to clone.
#[derive(Clone)]
pub struct Sim {
    shared: Arc<Shared>,
}

impl Sim {
    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of shards.
    #[must_use]
    pub fn shards(&self) -> u16 {
        self.shared.shards.load(Ordering::Relaxed)
    }

    /// Another number of shards for the processes that start from now on.
    pub fn set_shards(&self, shards: u16) {
        self.shared.shards.store(shards, Ordering::Relaxed);
    }

    /// The service on several nodes, on a database of their own, with the faults of this world: none is started yet.
    #[must_use]
    pub fn nodes(&self, timing: Timing) -> Nodes {
        Nodes::new(self.clone(), timing)
    }

    pub(crate) fn new_group(&self) -> Group {
        let mut state = self.state();
        state.groups += 1;
        state.groups
    }

    pub(crate) fn world(&self) -> &Arc<World> {
        &self.shared.world
    }

    pub(crate) fn shared_faults(&self) -> Arc<Mutex<Faults>> {
        self.shared.faults.clone()
    }

    pub(crate) fn builder(&self) -> Builder {
        let configure = self.shared.configure.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = Engine::builder().options(self.shared.options.clone());
        let configured = configure.iter().fold(begun, |builder, configure| configure(builder));
        self.shared.reached().expect(configured.registry());
        let reached = self.shared.reached.clone();
        let observer: CommandObserver = Arc::new(move |decided| {
            let mut reached = reached.lock().unwrap_or_else(PoisonError::into_inner);
            reached.decided(decided);
        });
        configured.shards(self.shards()).observe(&observer)
    }

    /// Another program: what the next start is configured with, instead of what was given so far.
    pub fn upgrade(&self, configure: impl Fn(Builder) -> Builder + Send + Sync + 'static) {
        let mut configured = self.shared.configure.lock().unwrap_or_else(PoisonError::into_inner);
        *configured = vec![Arc::new(configure)];
    }

    /// Starts a process on the medium. One that runs is not stopped: the new one takes over from it.
    ///
    /// # Errors
    /// The engine could not start; or, inside, the process died meanwhile.
    pub async fn start(&self) -> Result<Result<(), StartError>, Gone> {
        let world = self.shared.world.clone();
        let group = self.new_group();
        let journal = SimJournal {
            world: world.clone(),
            medium: self.shared.medium.clone(),
            faults: self.shared.faults.clone(),
            state: Arc::default(),
            process: group,
        };
        self.state().processes.push(Process {
            group,
            journal: journal.clone(),
            engine: None,
            committers: Vec::new(),
        });
        world.note(format_args!("process {group} starts"));
        let builder = self.builder().host(Arc::new(SimHost {
            world: world.clone(),
            group,
            runs_on: self.runs_on(RunsOn::Engine),
            day_micros: Arc::default(),
        }));
        let (tell, told) = tokio::sync::oneshot::channel();
        let opened = match &self.shared.open {
            Some(open) => open(),
            None => {
                let store = SimStore {
                    journal: journal.clone(),
                };
                Ok((Arc::new(journal) as Arc<dyn Journal>, Arc::new(store) as Arc<dyn Store>))
            }
        };
        let start = async move {
            let started = match opened {
                Ok((journal, store)) => builder.start_shared(journal, store).await,
                Err(error) => Err(error.into()),
            };
            drop(tell.send(started));
        };
        world.spawn(group, self.runs_on(RunsOn::Caller), Box::pin(start));
        let started = told.await.map_err(|_| Gone)?;
        let mut state = self.state();
        let at = state.processes.iter().position(|process| process.group == group);
        match (started, at) {
            (_, None) => Err(Gone),
            (Err(error), Some(at)) => {
                let process = state.processes.remove(at);
                state.cannot_start = Some(error.to_string());
                drop(state);
                world.note(format_args!("process {group} cannot start: {error}"));
                world.count("start failed");
                process.journal.state.dead.store(true, Ordering::Relaxed);
                world.kill(group);
                Ok(Err(error))
            }
            (Ok(engine), Some(at)) => {
                let committers = (0..self.shared.loops).map(|own| {
                    let committer = Box::pin(engine.driver().committer());
                    world.spawn(group, RunsOn::Loop(own), committer)
                });
                state.processes[at].committers = committers.collect();
                state.processes[at].engine = Some(engine);
                state.cannot_start = None;
                world.note(format_args!("process {group} runs"));
                world.count("engine started");
                Ok(Ok(()))
            }
        }
    }

    /// Kills what runs, and starts again until that succeeds.
    ///
    /// # Panics
    /// When this program cannot start at all, whatever passes: the run fails with the reason.
    pub async fn restart(&self) {
        self.kill();
        while !self.has_started().await {
            self.sleep(Duration::from_millis(100)).await;
        }
    }

    /// Starts a process; `false`: another try may succeed.
    pub(crate) async fn has_started(&self) -> bool {
        match self.start().await {
            Ok(Ok(())) => true,
            Ok(Err(error @ (StartError::Unheard { .. } | StartError::Layout(_)))) => {
                self.state().cannot_start = None;
                panic!("the service cannot start: {error}")
            }
            Ok(Err(_)) | Err(Gone) => false,
        }
    }

    /// The engine that is asked now.
    #[must_use]
    pub fn engine(&self) -> Option<Engine> {
        self.state().processes.last()?.engine.clone()
    }

    /// True if there is no process, not even one that starts.
    pub(crate) fn is_down(&self) -> bool {
        self.state().processes.is_empty()
    }

    /// Processes that run: more than one, if some were taken over from.
    #[must_use]
    pub fn processes(&self) -> usize {
        let state = self.state();
        let running = state.processes.iter().filter(|process| process.engine.is_some());
        running.count()
    }

    /// Runs something in the process that is asked now, and waits for what it says.
    ///
    /// # Errors
    /// There is no process, or it died first.
    pub async fn call<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        call: impl FnOnce(Engine) -> F,
    ) -> Result<T, Gone> {
        self.call_at(0, call).await
    }

    /// Calls like [`call`](Self::call), in a process that was taken over from: 1 is the one before the newest.
    ///
    /// # Errors
    /// There is no such process, or it died first.
    pub async fn call_at<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        back: usize,
        call: impl FnOnce(Engine) -> F,
    ) -> Result<T, Gone> {
        let runs_on = match self.shared.loops as u64 {
            0 => RunsOn::World,
            loops => match self.below(loops + 1) as usize {
                0 => RunsOn::Caller,
                own => RunsOn::Loop(own - 1),
            },
        };
        self.call_in(back, runs_on, call).await
    }

    /// Calls like [`call`](Self::call), on the thread of this loop, counted from 0.
    ///
    /// # Errors
    /// There is no process, or it died first.
    pub async fn call_on<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        own: usize,
        call: impl FnOnce(Engine) -> F,
    ) -> Result<T, Gone> {
        self.call_in(0, RunsOn::Loop(own), call).await
    }

    async fn call_in<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        back: usize,
        runs_on: RunsOn,
        call: impl FnOnce(Engine) -> F,
    ) -> Result<T, Gone> {
        let (process, engine) = self.process(back)?;
        let value = Arc::new(Mutex::new(None));
        let (call, told) = (call(engine), value.clone());
        let call = async move {
            let answer = call.await;
            *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
        };
        self.carry_out(process, runs_on, Box::pin(call)).await?;
        let told = value.lock().unwrap_or_else(PoisonError::into_inner).take();
        told.ok_or(Gone)
    }

    /// A process: its tasks, what its journal knows of it, and its engine.
    fn process(&self, back: usize) -> Result<((Group, SimJournal), Engine), Gone> {
        let state = self.state();
        let process = state.processes.iter().rev().nth(back).ok_or(Gone)?;
        let engine = process.engine.clone().ok_or(Gone)?;
        Ok(((process.group, process.journal.clone()), engine))
    }

    /// Done, or its process has died before. Compiled once, and not for each call.
    fn carry_out(
        &self,
        (group, process): (Group, SimJournal),
        runs_on: RunsOn,
        call: Later<'static, ()>,
    ) -> Later<'static, Result<(), Gone>> {
        let (tell, told) = tokio::sync::oneshot::channel();
        let task = async move {
            call.await;
            // Who dies in the middle of its answer says nothing.
            if !process.state.dead.load(Ordering::Relaxed) {
                let _ = tell.send(());
            }
        };
        self.shared.world.spawn(group, runs_on, Box::pin(task));
        Box::pin(async move { told.await.map_err(|_| Gone) })
    }

    /// Returns the thread on which something of a process runs: the world's thread, if loops have none.
    fn runs_on(&self, runs_on: RunsOn) -> RunsOn {
        if self.shared.loops == 0 {
            return RunsOn::World;
        }
        runs_on
    }

    /// A loop of the newest process ends, with its committer; what was called on its thread goes on.
    pub fn end_loop(&self, own: usize) {
        let committer = {
            let state = self.state();
            let process = state.processes.last();
            process.and_then(|process| process.committers.get(own).copied())
        };
        if let Some(committer) = committer {
            self.shared.world.end(committer);
            self.note(format_args!("loop {own} ends"));
            self.count("loop ended");
        }
    }

    /// Kills all processes at once: nothing in them is told. What the journal had under way lands or not.
    pub fn kill(&self) {
        self.die(false);
    }

    /// Kills like [`kill`](Self::kill), and unsynced bytes may be lost.
    pub fn power_loss(&self) {
        self.die(true);
    }

    fn die(&self, power_loss: bool) {
        let world = &self.shared.world;
        let processes = std::mem::take(&mut self.state().processes);
        for process in processes {
            process.journal.state.dead.store(true, Ordering::Relaxed);
            world.note(format_args!("process {} is killed", process.group));
            world.kill(process.group);
            drop(process.engine);
        }
        let mut medium = self.shared.medium.lock();
        let lost = world.dice(|rng| medium.crash(power_loss, rng));
        if lost > 0 {
            world.add("commit lost with the power", lost as u64);
            world.note(format_args!("{lost} commits are lost with the power"));
        }
    }

    /// Stops the newest process gracefully; it is gone afterwards.
    ///
    /// # Errors
    /// There is none, or it died first.
    pub async fn stop(&self) -> Result<(), Gone> {
        self.call(|engine| async move { engine.stop().await }).await?;
        let process = self.state().processes.pop();
        if let Some(process) = process {
            process.journal.state.dead.store(true, Ordering::Relaxed);
            self.shared.world.kill(process.group);
        }
        Ok(())
    }

    /// Waits in virtual time.
    pub async fn sleep(&self, duration: Duration) {
        self.shared.world.sleep(duration).await;
    }

    /// Runs something beside the test; crashes do not touch it. What it says comes out of the receiver.
    pub fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> tokio::sync::oneshot::Receiver<T> {
        let (tell, told) = tokio::sync::oneshot::channel();
        let task = async move {
            drop(tell.send(task.await));
        };
        self.shared.world.spawn(OUTSIDE, RunsOn::World, Box::pin(task));
        told
    }

    /// A number below this one, chosen by the seed.
    #[must_use]
    pub fn below(&self, limit: u64) -> u64 {
        self.shared.world.dice(|rng| rng.u64(..limit.max(1)))
    }

    /// True in this share of cases.
    #[must_use]
    pub fn chance(&self, share: f64) -> bool {
        self.shared.world.chance(share)
    }

    /// Virtual time since the run began.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Duration::from_micros(self.shared.world.elapsed_micros())
    }

    /// The time of day.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp {
            micros: self.shared.world.now_micros(),
        }
    }

    /// The time of day jumps ahead by this much.
    pub fn jump(&self, duration: Duration) {
        self.shared.world.jump(duration);
    }

    /// A line of the trace.
    pub fn note(&self, line: fmt::Arguments<'_>) {
        self.shared.world.note(line);
    }

    /// Counts that something happened.
    pub fn count(&self, what: &'static str) {
        self.shared.world.count(what);
    }

    /// Returns the number of times it happened.
    #[must_use]
    pub fn counted(&self, what: &str) -> u64 {
        self.shared.world.counts().get(what).copied().unwrap_or_default()
    }

    /// Counts how often this run has reached a name so far: an event, a command, the code of a rejection
    /// ([`Reached::count`]); `confirmed` or `order/confirmed`.
    #[must_use]
    pub fn reached(&self, name: &str) -> u64 {
        self.shared.reached().count(name)
    }

    /// Rows of idempotency keys in the store.
    #[must_use]
    pub fn rows_of_keys(&self) -> usize {
        let medium = self.shared.medium.lock();
        medium
            .rows
            .system
            .keys()
            .filter(|row| row.first() == Some(&b'k'))
            .count()
    }

    /// Sets the faults from now on. A [`Lie`] is the medium's from the beginning.
    pub fn set_faults(&self, faults: Faults) {
        *self.shared.faults.lock().unwrap_or_else(PoisonError::into_inner) = faults;
    }

    /// The promise the medium breaks.
    #[must_use]
    pub fn lie(&self) -> Option<Lie> {
        self.shared.medium.lock().lie
    }

    /// The store is gone, with all checkpoints: what is in it can be rebuilt from the journal. Between two processes.
    pub fn lose_store(&self) {
        self.shared.medium.lock().rows = Rows::default();
        self.shared.world.note(format_args!("the store is lost"));
        self.shared.world.count("store lost");
    }

    /// Damages a commit: from now on its checksum is wrong, and it cannot be read.
    pub fn damage(&self, position: Position) {
        self.shared.medium.lock().damaged = Some(position);
    }

    /// Damages an entity's row: from now on the store cannot read it.
    pub fn damage_row(&self, kind: &str, id: &str) {
        self.shared.medium.lock().unreadable.insert(Address::new(kind, id));
        self.note(format_args!("the row of {kind}/{id} is damaged"));
        self.count("row damaged");
    }

    /// The store can read the row again.
    pub fn mend_row(&self, kind: &str, id: &str) {
        self.shared.medium.lock().unreadable.remove(&Address::new(kind, id));
        self.note(format_args!("the row of {kind}/{id} is mended"));
    }

    /// Returns the durable history.
    #[must_use]
    pub fn history(&self) -> History {
        let medium = self.shared.medium.lock();
        History {
            commits: medium.history(),
            is_pruned: medium.is_pruned,
        }
    }

    /// Returns the commits that were durable for a process, and lost with the power.
    #[must_use]
    pub fn lost(&self) -> History {
        History {
            commits: self.shared.medium.lock().lost.clone(),
            is_pruned: false,
        }
    }

    /// Reports something that must not be: the run fails with it.
    pub fn wrong(&self, what: String) {
        self.note(format_args!("WRONG: {what}"));
        self.state().wrong.push(what);
    }

    fn violations(&self) -> Vec<String> {
        let mut wrong = self.shared.medium.lock().violations.clone();
        wrong.append(&mut self.state().wrong);
        wrong.extend(self.history().check(self.shards(), false));
        wrong
    }
}
