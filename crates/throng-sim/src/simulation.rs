//! A service in a simulated world, which is run, crashed and started again.

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

/// A running test. The future stores its result itself.
type Test<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;
type Configure = Arc<dyn Fn(Builder) -> Builder + Send + Sync>;
type Opened = (Arc<dyn Journal>, Arc<dyn Store>);
type Open = Box<dyn Fn() -> Result<Opened, Error> + Send + Sync>;

/// The settings of a simulated service.
///
/// Everything in the simulation follows from the seed: the order of tasks, delays, faults, entropy.
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
    /// A hash of everything that happened. The same seed gives the same hash.
    pub trace_hash: u64,
    /// The number of times that each thing happened.
    pub counts: BTreeMap<&'static str, u64>,
    /// The commands, outcomes and events that occurred.
    pub reached: Reached,
    /// The number of task polls.
    pub steps: u64,
    /// The virtual time that passed.
    pub elapsed: Duration,
    /// The trace, if it was kept.
    pub trace: Vec<String>,
}

/// The faults of a failed run.
#[derive(Debug)]
pub struct Failure {
    /// The faults, each as a sentence.
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
    /// Returns a service without kinds, on a journal without faults, at `fsync` durability.
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

    /// Registers a kind.
    #[must_use]
    pub fn with<E: Entity>(self) -> Self {
        self.setup(Builder::with::<E>)
    }

    /// Registers a query of a kind.
    #[must_use]
    pub fn query<E: Entity, Q: Query<E>>(self) -> Self {
        self.setup(Builder::query::<E, Q>)
    }

    /// Registers a kind that receives the outcome of its requests to another kind.
    #[must_use]
    pub fn on_outcome<E: OnOutcome<T>, T: Entity>(self) -> Self {
        self.setup(Builder::on_outcome::<E, T>)
    }

    /// Registers a kind that makes outside calls, and a fake of their provider. It replaces the worker of a builder that was [set
    /// up](Self::setup) before.
    #[must_use]
    pub fn outside<E: OnCallOutcome<W>, W: Outside>(self, provider: &Fake<W>) -> Self {
        let provider = provider.clone();
        self.setup(move |builder| builder.outside::<E, W>(provider.clone()))
    }

    /// Configures the [`Builder`], or replaces it: `setup(|_| app().into_builder())`. Journal, store, host, options and number of shards
    /// are set by the simulation.
    #[must_use]
    pub fn setup(mut self, configure: impl Fn(Builder) -> Builder + Send + Sync + 'static) -> Self {
        self.configure.push(Arc::new(configure));
        self
    }

    /// Sets the engine's limits and intervals.
    #[must_use]
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Sets the number of shards. The default is 8.
    #[must_use]
    pub fn shards(mut self, shards: u16) -> Self {
        self.shards = shards.max(1);
        self
    }

    /// Sets the number of loops of each process, like those of a gateway: each on a thread of its own, with its committer and its share of
    /// the [calls](Sim::call). The engine's tasks and callers outside loops get threads, too. If one thread stops during its work
    /// ([`busy_for`](crate::busy_for), [`Faults::sync_micros`]), the others go on.
    ///
    /// The default is none: one thread runs each poll to its end, which is faster.
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

    /// Opens a real journal and store for each process, instead of simulated ones. [`Faults`] do not apply to them; the test itself must
    /// crash them. Each call must answer at once, even if it takes real time, since otherwise virtual time would jump ahead.
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

    /// Sets the virtual time after which a run fails. The default is an hour.
    #[must_use]
    pub fn within(mut self, elapsed_max: Duration) -> Self {
        self.elapsed_max = elapsed_max;
        self
    }

    /// Keeps the lines of the trace, not only their hash.
    #[must_use]
    pub fn keep_trace(mut self, keep: bool) -> Self {
        self.keep_trace = keep;
        self
    }

    /// Starts the service, runs the test, and checks the journal at the end.
    ///
    /// # Panics
    /// If the run hangs, the engine breaks a rule of the journal, or the journal is wrong at the end.
    pub fn run<T, F: Future<Output = T>>(self, test: impl FnOnce(Sim) -> F) -> T {
        let seed = self.seed;
        match self.run_test(true, test) {
            Ok((value, _)) => value,
            Err(failure) => panic!("seed {seed}:\n{failure}"),
        }
    }

    /// Works like [`run`](Self::run), but the test starts the service, and faults are returned.
    ///
    /// # Errors
    /// [`Failure`]: the run hung, the engine broke a rule of the journal, or the journal was wrong at the end.
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

    /// Not generic, so that it is compiled only once.
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
    /// The number of shards of the next process. The test sets it between two processes.
    shards: AtomicU16,
    loops: usize,
    state: Mutex<State>,
    /// The commands and events that processes reached. Each process adds to it, on any of its threads.
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
    /// The processes. Calls go to the last one; the others were taken over from and do not know it yet.
    processes: Vec<Process>,
    wrong: Vec<String>,
    /// Why the last process could not start, if so.
    cannot_start: Option<String>,
}

struct Process {
    group: Group,
    journal: SimJournal,
    engine: Option<Engine>,
    /// The committer of each loop.
    committers: Vec<TaskId>,
}

/// The process died before it answered, so the outcome of the call is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the process died before it answered")]
pub struct Gone;

/// The simulated world, used by a test. Clones share it.
#[derive(Clone)]
pub struct Sim {
    shared: Arc<Shared>,
}

impl Sim {
    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of shards.
    #[must_use]
    pub fn shards(&self) -> u16 {
        self.shared.shards.load(Ordering::Relaxed)
    }

    /// Sets the number of shards of processes started later.
    pub fn set_shards(&self, shards: u16) {
        self.shared.shards.store(shards, Ordering::Relaxed);
    }

    /// Returns nodes of the service on a database of their own, with the faults of this world. None is started yet.
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

    /// Replaces the program: later starts are configured by this instead.
    pub fn upgrade(&self, configure: impl Fn(Builder) -> Builder + Send + Sync + 'static) {
        let mut configured = self.shared.configure.lock().unwrap_or_else(PoisonError::into_inner);
        *configured = vec![Arc::new(configure)];
    }

    /// Starts a process on the medium. A running process is not stopped: the new one takes over from it.
    ///
    /// # Errors
    /// [`StartError`]: the engine could not start. [`Gone`]: the process died meanwhile.
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

    /// Kills the running processes, and repeats a start until it succeeds.
    ///
    /// # Panics
    /// If this program can never start. The run fails with the reason.
    pub async fn restart(&self) {
        self.kill();
        while !self.has_started().await {
            self.sleep(Duration::from_millis(100)).await;
        }
    }

    /// Starts a process. Returns `false` if another attempt may succeed.
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

    /// Returns the engine that gets the calls now.
    #[must_use]
    pub fn engine(&self) -> Option<Engine> {
        self.state().processes.last()?.engine.clone()
    }

    /// Tells whether there is no process, not even one that is starting.
    pub(crate) fn is_down(&self) -> bool {
        self.state().processes.is_empty()
    }

    /// Returns the number of running processes. It is more than one if some were taken over from.
    #[must_use]
    pub fn processes(&self) -> usize {
        let state = self.state();
        let running = state.processes.iter().filter(|process| process.engine.is_some());
        running.count()
    }

    /// Runs a closure in the process that gets the calls now, and waits for its result.
    ///
    /// # Errors
    /// [`Gone`]: there is no process, or it died first.
    pub async fn call<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        call: impl FnOnce(Engine) -> F,
    ) -> Result<T, Gone> {
        self.call_at(0, call).await
    }

    /// Works like [`call`](Self::call), in a process that was taken over from. 1 is the one before the newest.
    ///
    /// # Errors
    /// [`Gone`]: there is no such process, or it died first.
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

    /// Works like [`call`](Self::call), on the thread of this loop, counted from 0.
    ///
    /// # Errors
    /// [`Gone`]: there is no process, or it died first.
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

    /// Returns a process: its tasks, its journal and its engine.
    fn process(&self, back: usize) -> Result<((Group, SimJournal), Engine), Gone> {
        let state = self.state();
        let process = state.processes.iter().rev().nth(back).ok_or(Gone)?;
        let engine = process.engine.clone().ok_or(Gone)?;
        Ok(((process.group, process.journal.clone()), engine))
    }

    /// Runs a call to its end or to the death of its process. Not generic, so that it is compiled only once.
    fn carry_out(
        &self,
        (group, process): (Group, SimJournal),
        runs_on: RunsOn,
        call: Later<'static, ()>,
    ) -> Later<'static, Result<(), Gone>> {
        let (tell, told) = tokio::sync::oneshot::channel();
        let task = async move {
            call.await;
            // A process that died during its answer does not answer.
            if !process.state.dead.load(Ordering::Relaxed) {
                let _ = tell.send(());
            }
        };
        self.shared.world.spawn(group, runs_on, Box::pin(task));
        Box::pin(async move { told.await.map_err(|_| Gone) })
    }

    /// Returns the thread for a task of a process. Without loops it is the world's thread.
    fn runs_on(&self, runs_on: RunsOn) -> RunsOn {
        if self.shared.loops == 0 {
            return RunsOn::World;
        }
        runs_on
    }

    /// Ends a loop of the newest process with its committer. Calls on its thread go on.
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

    /// Kills all processes at once, without notice. Appends in flight may or may not become durable.
    pub fn kill(&self) {
        self.die(false);
    }

    /// Works like [`kill`](Self::kill), but bytes that were not synced may be lost.
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

    /// Stops the newest process gracefully, and removes it.
    ///
    /// # Errors
    /// [`Gone`]: there is no process, or it died first.
    pub async fn stop(&self) -> Result<(), Gone> {
        self.call(|engine| async move { engine.stop().await }).await?;
        let process = self.state().processes.pop();
        if let Some(process) = process {
            process.journal.state.dead.store(true, Ordering::Relaxed);
            self.shared.world.kill(process.group);
        }
        Ok(())
    }

    /// Waits for this virtual time.
    pub async fn sleep(&self, duration: Duration) {
        self.shared.world.sleep(duration).await;
    }

    /// Runs a future beside the test. Crashes do not affect it. The receiver gets its result.
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

    /// Returns a number below this one, chosen by the seed.
    #[must_use]
    pub fn below(&self, limit: u64) -> u64 {
        self.shared.world.dice(|rng| rng.u64(..limit.max(1)))
    }

    /// Returns `true` in this share of cases.
    #[must_use]
    pub fn chance(&self, share: f64) -> bool {
        self.shared.world.chance(share)
    }

    /// Returns the virtual time since the run began.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Duration::from_micros(self.shared.world.elapsed_micros())
    }

    /// Returns the time of day.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp {
            micros: self.shared.world.now_micros(),
        }
    }

    /// Makes the time of day jump ahead by this much.
    pub fn jump(&self, duration: Duration) {
        self.shared.world.jump(duration);
    }

    /// Adds a line to the trace.
    pub fn note(&self, line: fmt::Arguments<'_>) {
        self.shared.world.note(line);
    }

    /// Counts an occurrence.
    pub fn count(&self, what: &'static str) {
        self.shared.world.count(what);
    }

    /// Returns the number of occurrences.
    #[must_use]
    pub fn counted(&self, what: &str) -> u64 {
        self.shared.world.counts().get(what).copied().unwrap_or_default()
    }

    /// Returns how often this run has reached a name so far: an event, a command or the code of a rejection ([`Reached::count`]), written
    /// `confirmed` or `order/confirmed`.
    #[must_use]
    pub fn reached(&self, name: &str) -> u64 {
        self.shared.reached().count(name)
    }

    /// Returns the number of rows of idempotency keys in the store.
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

    /// Sets the faults from now on. A [`Lie`] cannot be changed after the start.
    pub fn set_faults(&self, faults: Faults) {
        *self.shared.faults.lock().unwrap_or_else(PoisonError::into_inner) = faults;
    }

    /// Returns the promise that the medium breaks.
    #[must_use]
    pub fn lie(&self) -> Option<Lie> {
        self.shared.medium.lock().lie
    }

    /// Loses the store with all checkpoints. The journal can rebuild it. Call this between two processes.
    pub fn lose_store(&self) {
        self.shared.medium.lock().rows = Rows::default();
        self.shared.world.note(format_args!("the store is lost"));
        self.shared.world.count("store lost");
    }

    /// Damages a commit, so that it can no longer be read.
    pub fn damage(&self, position: Position) {
        self.shared.medium.lock().damaged = Some(position);
    }

    /// Damages an entity's row, so that the store can no longer read it.
    pub fn damage_row(&self, kind: &str, id: &str) {
        self.shared.medium.lock().unreadable.insert(Address::new(kind, id));
        self.note(format_args!("the row of {kind}/{id} is damaged"));
        self.count("row damaged");
    }

    /// Repairs the row.
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

    /// Returns the commits that a process took for durable, and that a power loss removed.
    #[must_use]
    pub fn lost(&self) -> History {
        History {
            commits: self.shared.medium.lock().lost.clone(),
            is_pruned: false,
        }
    }

    /// Reports a fault. The run fails with it.
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
