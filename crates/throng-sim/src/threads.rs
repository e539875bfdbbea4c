//! Threads of a simulated process: real ones, of which one at a time runs, and only while the world waits for it.
//!
//! Each has thread-locals of its own, as an engine's loops need, and can stop in the middle of a poll: while it is at
//! work in virtual time, or while it waits for a lock that another one holds.

use crate::world::World;
use std::{
    any::Any,
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    rc::Rc,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        mpsc::{self, Receiver, Sender},
    },
    task::{Context, Waker},
    thread,
    time::Duration,
};
use throng::host::Task;

/// A poll that takes this long in real time waits for something that never comes.
const POLL_MAX: Duration = Duration::from_secs(20);

enum Order {
    Poll {
        task: Task,
        waker: Waker,
    },
    /// Goes on where it stopped.
    Resume,
    /// Drops this, as whoever ran there would.
    Drop(Box<dyn Any + Send>),
}

/// A thread's report after an order.
pub(crate) enum Report {
    Pending(Task),
    /// The task is done, or what was to be dropped is.
    Done,
    Panicked(Box<dyn Any + Send>),
    /// The thread stopped in the middle of a poll.
    Stopped(Stop),
}

/// Why a thread stops in the middle of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The thread is at work until then, in virtual microseconds.
    Busy { until_micros: u64 },
    /// The thread waits for a lock.
    Blocked,
}

/// A thread, as the world holds it.
pub(crate) struct Thread {
    orders: Sender<Order>,
    reports: Mutex<Receiver<Report>>,
}

/// The thread this code runs on.
struct Current {
    world: Weak<World>,
    /// `None`: the world's own, which cannot stop.
    line: Option<Line>,
}

#[derive(Clone)]
struct Line {
    reports: Sender<Report>,
    orders: Rc<Receiver<Order>>,
}

thread_local! {
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

impl Thread {
    pub(crate) fn start(world: &Arc<World>) -> Arc<Self> {
        let ((orders, ordered), (reports, reported)) = (mpsc::channel(), mpsc::channel());
        let world = Arc::downgrade(world);
        thread::spawn(move || {
            let line = Line {
                reports,
                orders: Rc::new(ordered),
            };
            CURRENT.set(Some(Current {
                world,
                line: Some(line.clone()),
            }));
            throng_commit::instead_of_blocking(Some(|| stop(Stop::Blocked)));
            while let Ok(order) = line.orders.recv() {
                if line.reports.send(carry_out(order)).is_err() {
                    break;
                }
            }
        });
        Arc::new(Self {
            orders,
            reports: Mutex::new(reported),
        })
    }

    pub(crate) fn poll(&self, task: Task, waker: Waker) -> Report {
        self.order(Order::Poll { task, waker })
    }

    pub(crate) fn resume(&self) -> Report {
        self.order(Order::Resume)
    }

    /// Drops this on the thread. What panics in it is let go.
    pub(crate) fn drop_there(&self, what: Box<dyn Any + Send>) {
        drop(self.order(Order::Drop(what)));
    }

    fn order(&self, order: Order) -> Report {
        // It lives for as long as this does.
        let _ = self.orders.send(order);
        let reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        match reports.recv_timeout(POLL_MAX) {
            Ok(report) => report,
            Err(_) => panic!(
                "a thread of the simulation stands still for {POLL_MAX:?}: it loops, or waits for a lock that another \
                 one holds while it is at work"
            ),
        }
    }
}

fn carry_out(order: Order) -> Report {
    let carry_out = AssertUnwindSafe(|| match order {
        Order::Poll { mut task, waker } => {
            if task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
                return Report::Pending(task);
            }
            Report::Done
        }
        Order::Drop(what) => {
            drop(what);
            Report::Done
        }
        Order::Resume => Report::Done,
    });
    catch_unwind(carry_out).unwrap_or_else(Report::Panicked)
}

/// Hands over to the world, until it says to go on.
fn stop(stop: Stop) {
    let line = CURRENT.with_borrow(|current| current.as_ref()?.line.clone());
    let Some(line) = line else { return };
    if line.reports.send(Report::Stopped(stop)).is_err() || line.orders.recv().is_err() {
        resume_unwind(Box::new("the world is over"));
    }
}

/// The world this code runs in, on whichever of its threads.
pub(crate) fn current_world() -> Option<Arc<World>> {
    CURRENT.with_borrow(|current| current.as_ref()?.world.upgrade())
}

/// Runs this on the thread the world itself runs on.
pub(crate) fn on_the_worlds_own<R>(world: &Arc<World>, run: impl FnOnce() -> R) -> R {
    CURRENT.set(Some(Current {
        world: Arc::downgrade(world),
        line: None,
    }));
    let result = run();
    CURRENT.take();
    result
}

/// Keeps the present thread at work for this virtual time. Other threads of the simulated process run meanwhile, where the simulation has
/// them ([`Simulation::loops`](crate::Simulation::loops)); this one does nothing else.
///
/// For an entity whose `decide` takes long. Outside a simulation nothing happens.
pub fn busy_for(duration: Duration) {
    let current = CURRENT.with_borrow(|current| {
        let current = current.as_ref()?;
        Some((current.world.upgrade()?, current.line.is_some()))
    });
    match current {
        Some((world, true)) => stop(Stop::Busy {
            until_micros: world.elapsed_micros().saturating_add(micros(duration)),
        }),
        Some((world, false)) => world.pass(micros(duration)),
        None => {}
    }
}

pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
