//! A world of virtual time, which runs one task at a time in an order chosen by the seed.

use crate::threads::{Report, Stop, Thread, micros, on_the_worlds_own};
use fastrand::Rng;
use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    future::Future,
    panic::resume_unwind,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};
use throng::host::Task;

/// The tasks of a process, which die together.
pub(crate) type Group = u32;

/// The group of the test and its clients, which is never killed.
pub(crate) const OUTSIDE: Group = 0;
/// The virtual time of a poll. It is not 0, so that a loop cannot run without time passing.
const POLL_MICROS: u64 = 1;
/// The most calls of journal, store and host in one poll. More show a loop that never waits.
const THROWS_MAX: u64 = 100_000;
/// The most rounds in which stopped threads of a dead process may reach the end of their poll.
const ROUNDS_MAX: usize = 10_000;

/// Why a run ended before its main future was ready.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Hang {
    /// No task can run and no timer is set.
    #[error("deadlock after {elapsed_micros} µs: no task can run and no timer is set; {tasks} tasks wait")]
    Deadlock {
        /// The time in virtual microseconds.
        elapsed_micros: u64,
        /// The number of waiting tasks.
        tasks: usize,
    },
    /// The limit of virtual time was reached.
    #[error("still not done after {elapsed_micros} µs of virtual time")]
    Time {
        /// The limit, in virtual microseconds.
        elapsed_micros: u64,
    },
    /// The limit of polls was reached, so a loop is likely.
    #[error("still not done after {steps} polls, at {elapsed_micros} µs: something runs in circles")]
    Steps {
        /// The number of polls.
        steps: u64,
        /// The time in virtual microseconds.
        elapsed_micros: u64,
    },
}

/// The thread of a process on which a task runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunsOn {
    /// The world's own thread.
    World,
    /// A thread of the engine.
    Engine,
    /// A thread of callers outside loops.
    Caller,
    /// The thread of this loop.
    Loop(usize),
}

impl RunsOn {
    fn threads_max(self) -> usize {
        match self {
            Self::World | Self::Loop(_) => 1,
            Self::Engine | Self::Caller => 2,
        }
    }
}

/// A world of virtual time.
pub(crate) struct World {
    inner: Mutex<Inner>,
}

struct Inner {
    rng: Rng,
    slots: Vec<Slot>,
    free: Vec<usize>,
    ready: VecDeque<Step>,
    /// The alarms by time, then by chance.
    timers: BTreeMap<(u64, u64, u64), Alarm>,
    timer_count: u64,
    threads: BTreeMap<usize, ThreadSlot>,
    thread_count: usize,
    /// Paused processes: until when, and their tasks that were woken meanwhile.
    paused: BTreeMap<Group, (u64, Vec<usize>)>,
    /// Threads that wait for a lock, and whether another thread has run since they last tried.
    blocked: Vec<usize>,
    look_at_locks: bool,
    elapsed_micros: u64,
    /// The difference between the time of day and the virtual time.
    day_micros: i64,
    steps: u64,
    /// The share, of 256, of picks at a random place in the run queue. The others take its front.
    shuffle: u8,
    hash: u64,
    /// Lines of the trace; `None`: only their hash is kept.
    lines: Option<Vec<String>>,
    scratch: String,
    /// Random decisions since a task was picked.
    throws: u64,
    counts: BTreeMap<&'static str, u64>,
}

/// A possible next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Main,
    Poll(usize),
    /// Resumes a thread in the middle of a poll.
    Resume(usize),
}

enum Alarm {
    Wake(Waker),
    Resume(usize),
    /// Continues a paused process.
    Continue(Group),
}

struct Slot {
    group: Group,
    runs_on: RunsOn,
    /// Counts the tasks that used this slot.
    epoch: u64,
    future: Option<Task>,
    waker: Option<Waker>,
    queued: bool,
}

struct ThreadSlot {
    group: Group,
    runs_on: RunsOn,
    thread: Arc<Thread>,
    at: At,
    /// True if its process is dead, so that it ends after its current work.
    ends: bool,
}

/// The activity of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Idle,
    Runs,
    /// The thread stopped in the middle of polling this task.
    Stopped(Polled),
}

/// A task being polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Polled {
    slot: usize,
    epoch: u64,
    group: Group,
    runs_on: RunsOn,
}

/// Names a running task, to end it alone.
pub(crate) type TaskId = (usize, u64);

/// The remains of a task that ended or was killed. It is dropped on the thread where the task ran.
struct Remains {
    group: Group,
    runs_on: RunsOn,
    task: Option<Task>,
    _waker: Option<Waker>,
}

/// Wakes a task; `None`: the main future.
struct Wakeup {
    world: Weak<World>,
    task: Option<TaskId>,
}

impl Wake for Wakeup {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(world) = self.world.upgrade() {
            world.inner().wake(self.task);
        }
    }
}

impl Inner {
    fn wake(&mut self, task: Option<TaskId>) {
        let Some((slot, epoch)) = task else {
            if !self.ready.contains(&Step::Main) {
                self.ready.push_back(Step::Main);
            }
            return;
        };
        let at = &mut self.slots[slot];
        if at.epoch == epoch && !at.queued {
            at.queued = true;
            self.ready.push_back(Step::Poll(slot));
        }
    }

    /// Continues a paused process, unless it was paused for longer meanwhile.
    fn go_on(&mut self, group: Group) {
        let now = self.elapsed_micros;
        if self.paused.get(&group).is_some_and(|(until, _)| *until <= now)
            && let Some((_, woken)) = self.paused.remove(&group)
        {
            self.ready.extend(woken.into_iter().map(Step::Poll));
        }
    }

    /// Keeps back a task of a paused process.
    fn sets_aside(&mut self, step: Step) -> bool {
        let Step::Poll(slot) = step else { return false };
        let Some((_, woken)) = self.paused.get_mut(&self.slots[slot].group) else {
            return false;
        };
        woken.push(slot);
        true
    }

    fn pick(&mut self) -> Option<Step> {
        loop {
            let step = self.pick_any()?;
            if self.paused.is_empty() || !self.sets_aside(step) {
                return Some(step);
            }
        }
    }

    fn pick_any(&mut self) -> Option<Step> {
        if self.threads.values().any(|thread| thread.at != At::Idle) {
            return self.pick_for_free_thread();
        }
        let count = self.ready.len();
        if count > 1 && self.rng.u8(..) < self.shuffle {
            let at = self.rng.usize(..count);
            return self.ready.swap_remove_back(at);
        }
        self.ready.pop_front()
    }

    fn pick_for_free_thread(&mut self) -> Option<Step> {
        let can_run = |step: &Step| match step {
            Step::Main | Step::Resume(_) => true,
            Step::Poll(slot) => self.has_free_thread(&self.slots[*slot]),
        };
        let places: Vec<usize> = (0..self.ready.len()).filter(|at| can_run(&self.ready[*at])).collect();
        if places.len() > 1 && self.rng.u8(..) < self.shuffle {
            let at = places[self.rng.usize(..places.len())];
            return self.ready.remove(at);
        }
        self.ready.remove(*places.first()?)
    }

    fn has_free_thread(&self, slot: &Slot) -> bool {
        if slot.runs_on == RunsOn::World {
            return true;
        }
        let threads = self.threads.values();
        let own = threads.filter(|thread| (thread.group, thread.runs_on) == (slot.group, slot.runs_on));
        let busy = own.filter(|thread| thread.at != At::Idle).count();
        // A task in the middle of a poll is polled again afterwards.
        slot.future.is_some() && busy < slot.runs_on.threads_max()
    }

    fn set_alarm(&mut self, at_micros: u64, alarm: Alarm) -> (u64, u64, u64) {
        self.timer_count += 1;
        let key = (at_micros, self.rng.u64(..), self.timer_count);
        self.timers.insert(key, alarm);
        key
    }

    /// Takes a task out of its slot, in whatever state.
    fn clear(&mut self, slot: usize) -> Remains {
        let at = &mut self.slots[slot];
        at.epoch += 1;
        at.queued = false;
        let remains = Remains {
            group: at.group,
            runs_on: at.runs_on,
            task: at.future.take(),
            _waker: at.waker.take(),
        };
        self.free.push(slot);
        self.ready.retain(|ready| *ready != Step::Poll(slot));
        if let Some((_, woken)) = self.paused.get_mut(&remains.group) {
            woken.retain(|woken| *woken != slot);
        }
        remains
    }

    fn mix(&mut self, value: u64) {
        self.hash = (self.hash ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }
}

impl World {
    pub(crate) fn new(seed: u64, keep_lines: bool) -> Arc<Self> {
        let mut rng = Rng::with_seed(seed);
        let shuffle = *rng.choice(&[0, 16, 128, 255]).unwrap_or(&128);
        Arc::new(Self {
            inner: Mutex::new(Inner {
                rng,
                slots: Vec::new(),
                free: Vec::new(),
                ready: VecDeque::new(),
                timers: BTreeMap::new(),
                timer_count: 0,
                threads: BTreeMap::new(),
                thread_count: 0,
                paused: BTreeMap::new(),
                blocked: Vec::new(),
                look_at_locks: false,
                elapsed_micros: 0,
                day_micros: 1_780_000_000_000_000,
                steps: 0,
                shuffle,
                hash: seed,
                lines: keep_lines.then(Vec::new),
                scratch: String::new(),
                throws: 0,
                counts: BTreeMap::new(),
            }),
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a random decision.
    pub(crate) fn dice<R>(&self, throw: impl FnOnce(&mut Rng) -> R) -> R {
        let mut inner = self.inner();
        inner.throws += 1;
        if inner.throws > THROWS_MAX {
            drop(inner);
            panic!(
                "a task runs in circles: it asked the journal, the store or the host {THROWS_MAX} times in one poll"
            );
        }
        throw(&mut inner.rng)
    }

    /// Returns `true` in this share of cases.
    pub(crate) fn chance(&self, share: f64) -> bool {
        share > 0.0 && self.dice(Rng::f64) < share
    }

    pub(crate) fn elapsed_micros(&self) -> u64 {
        self.inner().elapsed_micros
    }

    pub(crate) fn now_micros(&self) -> i64 {
        let inner = self.inner();
        inner.day_micros + inner.elapsed_micros.cast_signed()
    }

    /// Makes the time of day jump. Virtual time does not change.
    pub(crate) fn jump(&self, duration: Duration) {
        self.inner().day_micros += i64::try_from(duration.as_micros()).unwrap_or(i64::MAX / 4);
        self.count("time of day jumped");
    }

    pub(crate) fn count(&self, what: &'static str) {
        self.add(what, 1);
    }

    pub(crate) fn add(&self, what: &'static str, count: u64) {
        *self.inner().counts.entry(what).or_default() += count;
    }

    pub(crate) fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.inner().counts.clone()
    }

    pub(crate) fn steps(&self) -> u64 {
        self.inner().steps
    }

    /// Adds a line to the trace.
    pub(crate) fn note(&self, line: fmt::Arguments<'_>) {
        let mut inner = self.inner();
        let mut scratch = std::mem::take(&mut inner.scratch);
        scratch.clear();
        // Writing to a string cannot fail.
        let _ = fmt::write(&mut scratch, line);
        let elapsed = inner.elapsed_micros;
        inner.mix(elapsed);
        for bytes in scratch.as_bytes().chunks(8) {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            inner.mix(u64::from_le_bytes(word));
        }
        if let Some(lines) = &mut inner.lines {
            // A trace is text, whatever an id or a reason holds: `grep` would pass over a binary file.
            let line = scratch.replace(char::is_control, "\u{fffd}");
            lines.push(format!("{:>12.6} {line}", elapsed as f64 / 1e6));
        }
        inner.scratch = scratch;
    }

    /// Returns a hash of everything that happened.
    pub(crate) fn trace_hash(&self) -> u64 {
        self.inner().hash
    }

    pub(crate) fn take_lines(&self) -> Vec<String> {
        self.inner().lines.take().unwrap_or_default()
    }

    pub(crate) fn spawn(self: &Arc<Self>, group: Group, runs_on: RunsOn, task: Task) -> TaskId {
        let mut inner = self.inner();
        let slot = inner.free.pop().unwrap_or_else(|| {
            inner.slots.push(Slot {
                group,
                runs_on,
                epoch: 0,
                future: None,
                waker: None,
                queued: false,
            });
            inner.slots.len() - 1
        });
        let at = &mut inner.slots[slot];
        at.epoch += 1;
        at.group = group;
        at.runs_on = runs_on;
        at.future = Some(task);
        at.queued = false;
        let task = (slot, at.epoch);
        at.waker = Some(Waker::from(Arc::new(Wakeup {
            world: Arc::downgrade(self),
            task: Some(task),
        })));
        inner.wake(Some(task));
        task
    }

    /// Pauses a process for this long. Its timers expire meanwhile.
    pub(crate) fn pause(&self, group: Group, duration: Duration) {
        let mut inner = self.inner();
        let until = inner.elapsed_micros.saturating_add(micros(duration));
        let (last, _) = inner.paused.entry(group).or_default();
        *last = until.max(*last);
        inner.set_alarm(until, Alarm::Continue(group));
    }

    pub(crate) fn pass(&self, micros: u64) {
        let mut inner = self.inner();
        inner.elapsed_micros = inner.elapsed_micros.saturating_add(micros);
    }

    /// Drops a task on its thread.
    pub(crate) fn end(&self, (slot, epoch): TaskId) {
        let remains = {
            let mut inner = self.inner();
            if inner.slots[slot].epoch != epoch {
                return;
            }
            inner.clear(slot)
        };
        self.drop_remains(remains);
    }

    /// Drops all tasks of a group, in whatever state.
    pub(crate) fn kill(&self, group: Group) {
        self.end_stopped(group);
        let dead: Vec<Remains> = {
            let mut inner = self.inner();
            let of_group = |slot: &usize| inner.slots[*slot].group == group && inner.slots[*slot].waker.is_some();
            let slots: Vec<usize> = (0..inner.slots.len()).filter(of_group).collect();
            slots.into_iter().map(|slot| inner.clear(slot)).collect()
        };
        // Dropping them may wake or kill other tasks, so the lock must not be held.
        for remains in dead {
            self.drop_remains(remains);
        }
        let mut inner = self.inner();
        for thread in inner.threads.values_mut().filter(|thread| thread.group == group) {
            thread.ends = true;
        }
        inner.threads.retain(|_, thread| !thread.ends || thread.at == At::Runs);
    }

    /// Runs threads that stopped in the middle of a poll to its end, so that they release what they hold. The journal of their process does
    /// nothing any more.
    fn end_stopped(&self, group: Group) {
        for _ in 0..ROUNDS_MAX {
            let stopped: Vec<(usize, Arc<Thread>, Polled)> = {
                let mut inner = self.inner();
                let of_group = inner.threads.iter_mut().filter(|(_, thread)| thread.group == group);
                let stopped = of_group.filter_map(|(index, thread)| match thread.at {
                    At::Stopped(polled) => {
                        thread.at = At::Runs;
                        Some((*index, thread.thread.clone(), polled))
                    }
                    _ => None,
                });
                stopped.collect()
            };
            if stopped.is_empty() {
                return;
            }
            for (index, thread, polled) in stopped {
                match thread.resume() {
                    Report::Stopped(_) => self.set_at(index, At::Stopped(polled)),
                    Report::Pending(task) => {
                        self.set_at(index, At::Idle);
                        self.put_back(polled, Some(task));
                    }
                    Report::Done | Report::Panicked(_) => {
                        self.set_at(index, At::Idle);
                        self.put_back(polled, None);
                    }
                }
            }
        }
    }

    fn set_at(&self, index: usize, at: At) {
        let mut inner = self.inner();
        if let Some(thread) = inner.threads.get_mut(&index) {
            thread.at = at;
        }
    }

    /// Drops the remains of a task where it ran: those of a loop's task on the loop's thread, if that is free.
    fn drop_remains(&self, remains: Remains) {
        let Remains {
            group,
            runs_on,
            task,
            _waker,
        } = remains;
        let thread = {
            let inner = self.inner();
            let is_own = |thread: &&ThreadSlot| (thread.group, thread.runs_on, thread.at) == (group, runs_on, At::Idle);
            let is_loop = matches!(runs_on, RunsOn::Loop(_));
            let own = inner.threads.values().find(is_own).filter(|_| is_loop);
            own.map(|thread| thread.thread.clone())
        };
        match (thread, task) {
            (Some(thread), Some(task)) => thread.drop_there(Box::new(task)),
            (_, task) => drop(task),
        }
    }

    /// Resolves after this long.
    pub(crate) fn sleep(self: &Arc<Self>, duration: Duration) -> Sleep {
        let at = self.elapsed_micros().saturating_add(micros(duration));
        Sleep {
            world: self.clone(),
            at,
            key: None,
        }
    }

    /// Runs a future, and all tasks beside it, until the future is ready.
    pub(crate) fn run<T>(
        self: &Arc<Self>,
        main: impl Future<Output = T>,
        elapsed_micros_max: u64,
        steps_max: u64,
    ) -> Result<T, Hang> {
        let mut main = std::pin::pin!(main);
        let main_waker = Waker::from(Arc::new(Wakeup {
            world: Arc::downgrade(self),
            task: None,
        }));
        self.inner().wake(None);
        on_the_worlds_own(self, || {
            loop {
                match self.next(elapsed_micros_max, steps_max)? {
                    Step::Main => {
                        if let Poll::Ready(value) = main.as_mut().poll(&mut Context::from_waker(&main_waker)) {
                            return Ok(value);
                        }
                    }
                    Step::Poll(slot) => self.poll(slot),
                    Step::Resume(index) => self.resume(index),
                }
            }
        })
    }

    fn poll(self: &Arc<Self>, slot: usize) {
        let (task, waker, polled) = {
            let mut inner = self.inner();
            let at = &mut inner.slots[slot];
            at.queued = false;
            let polled = Polled {
                slot,
                epoch: at.epoch,
                group: at.group,
                runs_on: at.runs_on,
            };
            (at.future.take(), at.waker.clone(), polled)
        };
        let (Some(mut task), Some(waker)) = (task, waker) else {
            return;
        };
        if polled.runs_on == RunsOn::World {
            let done = task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
            return self.put_back(polled, (!done).then_some(task));
        }
        let (index, thread) = self.free_thread(polled);
        let report = thread.poll(task, waker);
        self.hear(index, polled, report);
    }

    fn free_thread(self: &Arc<Self>, polled: Polled) -> (usize, Arc<Thread>) {
        let Polled { group, runs_on, .. } = polled;
        let mut inner = self.inner();
        let is_free = |thread: &ThreadSlot| (thread.group, thread.runs_on, thread.at) == (group, runs_on, At::Idle);
        let free = inner.threads.iter_mut().find(|(_, thread)| is_free(thread));
        if let Some((index, thread)) = free {
            thread.at = At::Runs;
            return (*index, thread.thread.clone());
        }
        let (index, thread) = (inner.thread_count, Thread::start(self));
        inner.thread_count += 1;
        inner.threads.insert(
            index,
            ThreadSlot {
                group,
                runs_on,
                thread: thread.clone(),
                at: At::Runs,
                ends: false,
            },
        );
        (index, thread)
    }

    /// Resumes a thread that stopped in the middle of a poll, unless its process was killed meanwhile.
    fn resume(&self, index: usize) {
        let (thread, polled) = {
            let mut inner = self.inner();
            let Some(slot) = inner.threads.get_mut(&index) else {
                return;
            };
            let At::Stopped(polled) = slot.at else { return };
            slot.at = At::Runs;
            (slot.thread.clone(), polled)
        };
        let report = thread.resume();
        self.hear(index, polled, report);
    }

    /// Processes a thread's report on a poll.
    fn hear(&self, index: usize, polled: Polled, report: Report) {
        let task = match report {
            Report::Stopped(why) => return self.has_stopped(index, polled, why),
            Report::Pending(task) => Some(task),
            Report::Done => None,
            Report::Panicked(panic) => resume_unwind(panic),
        };
        self.set_at(index, At::Idle);
        self.put_back(polled, task);
        let mut inner = self.inner();
        inner.look_at_locks = true;
        inner.threads.retain(|_, thread| !thread.ends || thread.at == At::Runs);
    }

    fn has_stopped(&self, index: usize, polled: Polled, why: Stop) {
        self.set_at(index, At::Stopped(polled));
        let mut inner = self.inner();
        match why {
            Stop::Busy { until_micros } => {
                inner.set_alarm(until_micros, Alarm::Resume(index));
                inner.look_at_locks = true;
            }
            Stop::Blocked => {
                inner.blocked.push(index);
                drop(inner);
                if matches!(polled.runs_on, RunsOn::Loop(_)) {
                    self.count("a loop waited for a lock");
                }
            }
        }
    }

    /// Puts a polled task back into its slot, unless it is done (`None`) or was killed meanwhile.
    fn put_back(&self, polled: Polled, task: Option<Task>) {
        let mut inner = self.inner();
        let at = &mut inner.slots[polled.slot];
        let remains = if at.epoch != polled.epoch {
            Remains {
                group: polled.group,
                runs_on: polled.runs_on,
                task,
                _waker: None,
            }
        } else if task.is_some() {
            at.future = task;
            return;
        } else {
            inner.clear(polled.slot)
        };
        drop(inner);
        self.drop_remains(remains);
    }

    /// Returns the next step. Advances the time if no task is ready.
    fn next(&self, elapsed_micros_max: u64, steps_max: u64) -> Result<Step, Hang> {
        loop {
            let mut inner = self.inner();
            let elapsed_micros = inner.elapsed_micros;
            let mut woken = Vec::new();
            while let Some((at, _, _)) = inner.timers.first_key_value().map(|(key, _)| *key)
                && at <= elapsed_micros
            {
                match inner.timers.pop_first() {
                    Some((_, Alarm::Wake(waker))) => woken.push(waker),
                    Some((_, Alarm::Resume(index))) => inner.ready.push_back(Step::Resume(index)),
                    Some((_, Alarm::Continue(group))) => inner.go_on(group),
                    None => {}
                }
            }
            if !woken.is_empty() {
                drop(inner);
                woken.into_iter().for_each(Waker::wake);
                continue;
            }
            if std::mem::take(&mut inner.look_at_locks) {
                let blocked = std::mem::take(&mut inner.blocked);
                inner.ready.extend(blocked.into_iter().map(Step::Resume));
            }
            if let Some(step) = inner.pick() {
                inner.steps += 1;
                inner.throws = 0;
                inner.elapsed_micros += POLL_MICROS;
                inner.mix(match step {
                    Step::Main => usize::MAX as u64,
                    Step::Poll(slot) => slot as u64,
                    Step::Resume(index) => (index as u64) << 32,
                });
                if inner.steps > steps_max {
                    return Err(Hang::Steps {
                        steps: steps_max,
                        elapsed_micros,
                    });
                }
                return Ok(step);
            }
            let Some((at, _, _)) = inner.timers.first_key_value().map(|(key, _)| *key) else {
                let tasks = inner.slots.iter().filter(|slot| slot.future.is_some()).count();
                return Err(Hang::Deadlock { elapsed_micros, tasks });
            };
            if at > elapsed_micros_max {
                return Err(Hang::Time {
                    elapsed_micros: elapsed_micros_max,
                });
            }
            inner.elapsed_micros = at;
        }
    }
}

/// Waits for a moment of virtual time.
pub(crate) struct Sleep {
    world: Arc<World>,
    at: u64,
    key: Option<(u64, u64, u64)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let world = self.world.clone();
        let mut inner = world.inner();
        if let Some(key) = self.key.take() {
            inner.timers.remove(&key);
        }
        if inner.elapsed_micros >= self.at {
            return Poll::Ready(());
        }
        self.key = Some(inner.set_alarm(self.at, Alarm::Wake(context.waker().clone())));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            let waker = self.world.inner().timers.remove(&key);
            drop(waker);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn world() -> Arc<World> {
        World::new(7, true)
    }

    #[test]
    fn time_passes_only_when_somebody_sleeps() {
        let world = world();
        let slept = world.run(world.sleep(Duration::from_secs(3_600)), u64::MAX, 100);
        assert_eq!(slept, Ok(()));
        assert!((3_600_000_000..3_600_000_100).contains(&world.elapsed_micros()));
    }

    #[test]
    fn waiting_for_nobody_is_a_deadlock() {
        let hang = world().run(std::future::pending::<()>(), u64::MAX, 100);
        assert!(matches!(hang, Err(Hang::Deadlock { .. })));
    }

    #[test]
    fn waiting_for_ever_and_running_in_circles_are_found() {
        let idle = world();
        let ticking = idle.clone();
        let tick = async move {
            loop {
                ticking.sleep(Duration::from_secs(1)).await;
            }
        };
        idle.spawn(1, RunsOn::World, Box::pin(tick));
        let hang = idle.run(std::future::pending::<()>(), 60_000_000, u64::MAX);
        assert_eq!(
            hang,
            Err(Hang::Time {
                elapsed_micros: 60_000_000
            })
        );
        let busy = std::future::poll_fn(|context| {
            context.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        let hang = world().run(busy, u64::MAX, 1_000);
        assert!(matches!(hang, Err(Hang::Steps { steps: 1_000, .. })));
    }

    #[test]
    fn a_group_dies_whole_and_alone() {
        let world = world();
        let alive = Arc::new(AtomicU64::new(0));
        for group in [1, 1, 2] {
            let (world_in, alive) = (world.clone(), alive.clone());
            let task = async move {
                world_in.sleep(Duration::from_millis(10)).await;
                alive.fetch_add(u64::from(group), Ordering::Relaxed);
            };
            world.spawn(group, RunsOn::World, Box::pin(task));
        }
        let (killer, sleeper) = (world.clone(), world.clone());
        let main = async move {
            sleeper.sleep(Duration::from_millis(1)).await;
            killer.kill(1);
            sleeper.sleep(Duration::from_millis(100)).await;
        };
        assert_eq!(world.run(main, u64::MAX, 1_000), Ok(()));
        assert_eq!(alive.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn tasks_run_in_an_order_of_the_seed() {
        let order = |seed| {
            let world = World::new(seed, false);
            let order = Arc::new(Mutex::new(Vec::new()));
            for number in 0..20 {
                let order = order.clone();
                let task = async move { order.lock().unwrap().push(number) };
                world.spawn(1, RunsOn::World, Box::pin(task));
            }
            assert_eq!(
                world.run(world.sleep(Duration::from_millis(1)), u64::MAX, 1_000),
                Ok(())
            );
            let order = order.lock().unwrap().clone();
            (order, world.trace_hash())
        };
        assert_eq!(order(3), order(3));
        assert!((0..50).any(|seed| order(seed).0 != order(3).0));
    }
}
