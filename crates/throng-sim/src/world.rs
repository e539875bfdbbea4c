//! The world: one thread, virtual time, tasks in an order the seed chooses.

use fastrand::Rng;
use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};
use throng::host::Task;

/// Which tasks die together: a process.
pub(crate) type Group = u32;

/// The group of the test itself and its clients: nothing kills it.
pub(crate) const OUTSIDE: Group = 0;
/// Virtual time a poll takes, so that no loop stands still in time.
const POLL_MICROS: u64 = 1;
/// Calls of the journal, the store and the host in one poll: more are a loop that never waits.
const THROWS_MAX: u64 = 100_000;
/// The main future's place in the run queue.
const MAIN: usize = usize::MAX;

/// Why a run ended without its main future being ready.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Hang {
    /// No task can run and no timer is set.
    #[error("deadlock after {elapsed_micros} µs: no task can run and no timer is set; {tasks} tasks wait")]
    Deadlock {
        /// When, in virtual microseconds.
        elapsed_micros: u64,
        /// Tasks that wait.
        tasks: usize,
    },
    /// The virtual time is over.
    #[error("still not done after {elapsed_micros} µs of virtual time")]
    Time {
        /// The limit, in virtual microseconds.
        elapsed_micros: u64,
    },
    /// So many polls: something runs in circles.
    #[error("still not done after {steps} polls, at {elapsed_micros} µs: something runs in circles")]
    Steps {
        /// The limit.
        steps: u64,
        /// When, in virtual microseconds.
        elapsed_micros: u64,
    },
}

/// One thread's world.
pub(crate) struct World {
    inner: Mutex<Inner>,
}

struct Inner {
    rng: Rng,
    slots: Vec<Slot>,
    free: Vec<usize>,
    ready: VecDeque<usize>,
    /// By time, then by chance.
    timers: BTreeMap<(u64, u64, u64), Waker>,
    timer_count: u64,
    elapsed_micros: u64,
    /// What the time of day is ahead of the virtual time.
    day_micros: i64,
    steps: u64,
    /// Share of picks from anywhere in the run queue, of 256; the others come from its front.
    shuffle: u8,
    hash: u64,
    /// Lines of the trace; `None`: only their hash is kept.
    lines: Option<Vec<String>>,
    scratch: String,
    /// Throws of the dice since a task was picked.
    throws: u64,
    counts: BTreeMap<&'static str, u64>,
}

struct Slot {
    group: Group,
    /// Which of the tasks that had this slot.
    life: u64,
    future: Option<Task>,
    waker: Option<Waker>,
    queued: bool,
}

struct Wakeup {
    world: Weak<World>,
    slot: usize,
    life: u64,
}

impl Wake for Wakeup {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(world) = self.world.upgrade() {
            world.inner().wake(self.slot, self.life);
        }
    }
}

impl Inner {
    fn wake(&mut self, slot: usize, life: u64) {
        if slot == MAIN {
            if !self.ready.contains(&MAIN) {
                self.ready.push_back(MAIN);
            }
            return;
        }
        let at = &mut self.slots[slot];
        if at.life == life && !at.queued {
            at.queued = true;
            self.ready.push_back(slot);
        }
    }

    fn pick(&mut self) -> Option<usize> {
        let count = self.ready.len();
        if count > 1 && self.rng.u8(..) < self.shuffle {
            let at = self.rng.usize(..count);
            return self.ready.swap_remove_back(at);
        }
        self.ready.pop_front()
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

    /// Throws the dice.
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

    /// True in this share of cases.
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

    /// The time of day jumps; the virtual time does not.
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

    /// One line of the trace.
    pub(crate) fn note(&self, line: fmt::Arguments<'_>) {
        let mut inner = self.inner();
        let mut scratch = std::mem::take(&mut inner.scratch);
        scratch.clear();
        // A string takes everything.
        let _ = fmt::write(&mut scratch, line);
        let elapsed = inner.elapsed_micros;
        inner.mix(elapsed);
        for bytes in scratch.as_bytes().chunks(8) {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            inner.mix(u64::from_le_bytes(word));
        }
        if let Some(lines) = &mut inner.lines {
            lines.push(format!("{:>12.6} {scratch}", elapsed as f64 / 1e6));
        }
        inner.scratch = scratch;
    }

    /// One number for everything that happened.
    pub(crate) fn trace_hash(&self) -> u64 {
        self.inner().hash
    }

    pub(crate) fn take_lines(&self) -> Vec<String> {
        self.inner().lines.take().unwrap_or_default()
    }

    pub(crate) fn spawn(self: &Arc<Self>, group: Group, task: Task) {
        let mut inner = self.inner();
        let slot = inner.free.pop().unwrap_or_else(|| {
            inner.slots.push(Slot {
                group,
                life: 0,
                future: None,
                waker: None,
                queued: false,
            });
            inner.slots.len() - 1
        });
        let at = &mut inner.slots[slot];
        at.life += 1;
        at.group = group;
        at.future = Some(task);
        at.queued = false;
        let life = at.life;
        at.waker = Some(Waker::from(Arc::new(Wakeup {
            world: Arc::downgrade(self),
            slot,
            life,
        })));
        inner.wake(slot, life);
    }

    /// Drops all tasks of a group, wherever they stand.
    pub(crate) fn kill(&self, group: Group) {
        let mut dead = Vec::new();
        {
            let mut inner = self.inner();
            for slot in 0..inner.slots.len() {
                let at = &mut inner.slots[slot];
                if at.group == group && at.waker.is_some() {
                    at.life += 1;
                    at.queued = false;
                    dead.push((at.future.take(), at.waker.take()));
                    inner.free.push(slot);
                    inner.ready.retain(|ready| *ready != slot);
                }
            }
        }
        // What they hold may wake or kill others: not under the lock.
        drop(dead);
    }

    /// Resolves after this long.
    pub(crate) fn sleep(self: &Arc<Self>, duration: Duration) -> Sleep {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let at = self.elapsed_micros().saturating_add(micros);
        Sleep {
            world: self.clone(),
            at,
            key: None,
        }
    }

    /// Runs a future, and all tasks beside it, until it is ready.
    pub(crate) fn run<T>(
        self: &Arc<Self>,
        main: impl Future<Output = T>,
        elapsed_micros_max: u64,
        steps_max: u64,
    ) -> Result<T, Hang> {
        let mut main = std::pin::pin!(main);
        let main_waker = Waker::from(Arc::new(Wakeup {
            world: Arc::downgrade(self),
            slot: MAIN,
            life: 0,
        }));
        self.inner().wake(MAIN, 0);
        loop {
            let slot = self.next(elapsed_micros_max, steps_max)?;
            if slot == MAIN {
                if let Poll::Ready(value) = main.as_mut().poll(&mut Context::from_waker(&main_waker)) {
                    return Ok(value);
                }
                continue;
            }
            let (task, waker, life) = {
                let mut inner = self.inner();
                let at = &mut inner.slots[slot];
                at.queued = false;
                (at.future.take(), at.waker.clone(), at.life)
            };
            let (Some(mut task), Some(waker)) = (task, waker) else {
                continue;
            };
            let done = task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
            let mut inner = self.inner();
            let at = &mut inner.slots[slot];
            if at.life != life {
                drop(inner);
                drop(task);
            } else if done {
                at.life += 1;
                at.queued = false;
                let waker = at.waker.take();
                inner.free.push(slot);
                inner.ready.retain(|ready| *ready != slot);
                drop(inner);
                drop((task, waker));
            } else {
                at.future = Some(task);
            }
        }
    }

    /// The next task to poll; moves the time when none is ready.
    fn next(&self, elapsed_micros_max: u64, steps_max: u64) -> Result<usize, Hang> {
        loop {
            let mut inner = self.inner();
            let elapsed_micros = inner.elapsed_micros;
            let mut woken = Vec::new();
            while let Some((at, _, _)) = inner.timers.first_key_value().map(|(key, _)| *key)
                && at <= elapsed_micros
            {
                woken.extend(inner.timers.pop_first());
            }
            if !woken.is_empty() {
                drop(inner);
                woken.into_iter().for_each(|(_, waker)| waker.wake());
                continue;
            }
            if let Some(slot) = inner.pick() {
                inner.steps += 1;
                inner.throws = 0;
                inner.elapsed_micros += POLL_MICROS;
                inner.mix(slot as u64);
                if inner.steps > steps_max {
                    return Err(Hang::Steps {
                        steps: steps_max,
                        elapsed_micros,
                    });
                }
                return Ok(slot);
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

/// A moment of virtual time to wait for.
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
        inner.timer_count += 1;
        let key = (self.at, inner.rng.u64(..), inner.timer_count);
        inner.timers.insert(key, context.waker().clone());
        self.key = Some(key);
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
        idle.spawn(1, Box::pin(tick));
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
            world.spawn(group, Box::pin(task));
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
                world.spawn(1, Box::pin(async move { order.lock().unwrap().push(number) }));
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
