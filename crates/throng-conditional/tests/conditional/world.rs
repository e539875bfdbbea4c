//! A world of virtual time. Tasks run one at a time, in an order determined by the seed.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::poll_fn,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll, Wake, Waker},
    time::{Duration, Instant},
};
use throng_conditional::Host;
use throng_journal::Later;

/// Tasks that are killed or paused together.
pub(crate) type Group = u64;
/// Requests in flight. They are never killed.
pub(crate) const NETWORK: Group = 0;
const MAIN: u64 = 0;
/// The number of polls after which the world is assumed to loop for ever.
const POLLS_MAX: u64 = 3_000_000;

pub(crate) struct World {
    inner: Mutex<Inner>,
}

struct Inner {
    rng: fastrand::Rng,
    now: u64,
    next: u64,
    tasks: BTreeMap<u64, (Group, Option<Later<'static, ()>>)>,
    ready: BTreeSet<u64>,
    timers: BTreeMap<(u64, u64), Waker>,
    paused: BTreeSet<Group>,
    /// Set if time passes as in reality, for checks that read a clock of their own.
    begun: Option<Instant>,
}

struct Wakes {
    world: Weak<World>,
    task: u64,
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        if let Some(world) = self.world.upgrade() {
            world.inner().ready.insert(self.task);
        }
    }
}

impl World {
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            inner: Mutex::new(Inner {
                rng: fastrand::Rng::with_seed(seed),
                now: 1_000_000,
                next: 1,
                tasks: BTreeMap::new(),
                ready: BTreeSet::new(),
                timers: BTreeMap::new(),
                paused: BTreeSet::new(),
                begun: None,
            }),
        })
    }

    pub(crate) fn in_real_time() -> Arc<Self> {
        let world = Self::new(1);
        world.inner().begun = Some(Instant::now());
        world
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true with this probability, in thousandths.
    pub(crate) fn chance(&self, of_thousand: u32) -> bool {
        self.inner().rng.u32(0..1000) < of_thousand
    }

    pub(crate) fn below(&self, end: u64) -> u64 {
        self.inner().rng.u64(0..end)
    }

    pub(crate) fn now(&self) -> Duration {
        Duration::from_micros(self.inner().now)
    }

    pub(crate) fn spawn(&self, group: Group, task: Later<'static, ()>) {
        let mut inner = self.inner();
        let id = inner.next;
        inner.next += 1;
        inner.tasks.insert(id, (group, Some(task)));
        inner.ready.insert(id);
    }

    /// Drops a group's tasks. Its requests remain in flight.
    pub(crate) fn kill(&self, group: Group) {
        let mut inner = self.inner();
        let (dead, living) = std::mem::take(&mut inner.tasks)
            .into_iter()
            .partition(|(_, (of, _))| *of == group);
        inner.tasks = living;
        drop(inner);
        // Dropping a task may call the world, so the lock must be free.
        drop::<BTreeMap<u64, _>>(dead);
    }

    /// Pauses a group, as SIGSTOP does to a process, or resumes it.
    pub(crate) fn pause(&self, group: Group, is_paused: bool) {
        let mut inner = self.inner();
        if is_paused {
            inner.paused.insert(group);
        } else {
            inner.paused.remove(&group);
        }
    }

    pub(crate) fn sleep(self: &Arc<Self>, time: Duration) -> Later<'static, ()> {
        let world = Arc::clone(self);
        let (mut until, mut is_set) = (None, false);
        Box::pin(poll_fn(move |context| {
            let mut inner = world.inner();
            let until = *until.get_or_insert(inner.now + time.as_micros() as u64);
            if inner.now >= until {
                return Poll::Ready(());
            }
            // One task polls this, so one timer is enough.
            if !std::mem::replace(&mut is_set, true) {
                let chance = inner.rng.u64(..);
                inner.timers.insert((until, chance), context.waker().clone());
            }
            Poll::Pending
        }))
    }

    /// Runs all tasks until this future is ready.
    pub(crate) fn run<F: Future>(self: &Arc<Self>, future: F) -> F::Output {
        let mut main = Box::pin(future);
        self.inner().ready.insert(MAIN);
        for _ in 0..POLLS_MAX {
            let mut inner = self.inner();
            inner.now = match inner.begun {
                Some(begun) => begun.elapsed().as_micros() as u64,
                None => inner.now + 1,
            };
            let inner_ref = &mut *inner;
            let can_run: Vec<u64> = inner_ref
                .ready
                .iter()
                .copied()
                .filter(|id| {
                    inner_ref
                        .tasks
                        .get(id)
                        .is_none_or(|(group, _)| !inner_ref.paused.contains(group))
                })
                .collect();
            if can_run.is_empty() {
                let Some(((at, chance), waker)) = inner.timers.pop_first() else {
                    panic!("nothing can run, and no timer is set");
                };
                if inner.begun.is_some() && at > inner.now {
                    let passes = Duration::from_micros(at - inner.now);
                    inner.timers.insert((at, chance), waker);
                    drop(inner);
                    std::thread::park_timeout(passes);
                    continue;
                }
                inner.now = inner.now.max(at);
                drop(inner);
                waker.wake();
                continue;
            }
            let picked = can_run[inner.rng.usize(0..can_run.len())];
            inner.ready.remove(&picked);
            let waker = Waker::from(Arc::new(Wakes {
                world: Arc::downgrade(self),
                task: picked,
            }));
            let mut context = Context::from_waker(&waker);
            if picked == MAIN {
                drop(inner);
                if let Poll::Ready(output) = main.as_mut().poll(&mut context) {
                    return output;
                }
                continue;
            }
            let task = inner.tasks.get_mut(&picked).and_then(|(_, task)| task.take());
            drop(inner);
            let Some(mut task) = task else { continue };
            let is_over = task.as_mut().poll(&mut context).is_ready();
            let mut inner = self.inner();
            if is_over {
                inner.tasks.remove(&picked);
            } else if let Some((_, place)) = inner.tasks.get_mut(&picked) {
                *place = Some(task);
                continue;
            }
            drop(inner);
        }
        panic!("something runs in circles");
    }
}

/// The environment of one process.
pub(crate) struct Process {
    pub(crate) world: Arc<World>,
    pub(crate) group: Group,
}

impl Host for Process {
    fn spawn(&self, task: Later<'static, ()>) {
        self.world.spawn(self.group, task);
    }

    fn pause(&self, time: Duration) -> Later<'static, ()> {
        self.world.sleep(time)
    }

    fn boot_clock(&self) -> Duration {
        self.world.now()
    }

    fn wall_micros(&self) -> i64 {
        self.world.now().as_micros() as i64
    }

    fn random(&self) -> u128 {
        self.world.inner().rng.u128(..)
    }
}

/// Waits for a future for at most this time.
pub(crate) async fn at_most<T>(
    world: &Arc<World>,
    time: Duration,
    mut future: Pin<&mut (impl Future<Output = T> + ?Sized)>,
) -> Option<T> {
    let mut late = world.sleep(time);
    poll_fn(|context| {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Some(output));
        }
        late.as_mut().poll(context).map(|()| None)
    })
    .await
}
