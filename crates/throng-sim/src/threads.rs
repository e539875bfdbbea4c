//! Real threads of a simulated process. One of them runs at a time, and only while the world waits for it.
//!
//! Each has its own thread-locals, as an engine's loops need. It can stop in the middle of a poll, while it works in virtual time or waits
//! for a lock.

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

/// A poll that takes this long in real time counts as hanging.
const POLL_MAX: Duration = Duration::from_secs(20);

enum Order {
    Poll {
        task: Task,
        waker: Waker,
    },
    /// Resumes where the thread stopped.
    Resume,
    /// Drops a value on the thread.
    Drop(Box<dyn Any + Send>),
}

/// A thread's report on an order.
pub(crate) enum Report {
    Pending(Task),
    /// The task is done, or the value was dropped.
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

/// The world's handle of a thread.
pub(crate) struct Thread {
    orders: Sender<Order>,
    reports: Mutex<Receiver<Report>>,
}

/// The thread that runs this code.
struct Current {
    world: Weak<World>,
    /// `None` for the world's own thread, which cannot stop.
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

    /// Drops a value on the thread. A panic in its drop is ignored.
    pub(crate) fn drop_there(&self, what: Box<dyn Any + Send>) {
        drop(self.order(Order::Drop(what)));
    }

    fn order(&self, order: Order) -> Report {
        // The thread outlives this handle.
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

/// Returns control to the world, and waits until it resumes this thread.
fn stop(stop: Stop) {
    let line = CURRENT.with_borrow(|current| current.as_ref()?.line.clone());
    let Some(line) = line else { return };
    if line.reports.send(Report::Stopped(stop)).is_err() || line.orders.recv().is_err() {
        resume_unwind(Box::new("the world is over"));
    }
}

/// Returns the world that this code runs in, on any of its threads.
pub(crate) fn current_world() -> Option<Arc<World>> {
    CURRENT.with_borrow(|current| current.as_ref()?.world.upgrade())
}

/// Runs a closure on the world's own thread.
pub(crate) fn on_the_worlds_own<R>(world: &Arc<World>, run: impl FnOnce() -> R) -> R {
    CURRENT.set(Some(Current {
        world: Arc::downgrade(world),
        line: None,
    }));
    let result = run();
    CURRENT.take();
    result
}

/// Keeps this thread busy for a virtual time. Other threads of the simulated process run meanwhile, if the simulation has any
/// ([`Simulation::loops`](crate::Simulation::loops)).
///
/// For an entity whose `decide` takes long. Outside a simulation it does nothing.
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
