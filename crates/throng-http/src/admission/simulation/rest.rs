//! A connection that is alone on its loop, with rests between its requests. A request's age must not depend on the connection's earlier requests.

use super::*;
use crate::admission::{Admission, Admitted, BatchSlot, Entering, LOCAL, WaitTimes};
use std::{
    future::Future,
    pin::pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

const SECOND: Duration = Duration::from_secs(1);
/// The default time between two sweeps of a loop.
const SWEEP: Duration = SECOND;
/// The work of the loop between two checks of its sockets.
const PASS: Duration = Duration::from_millis(5);
/// The greatest age of a request that has just arrived: a few passes of the loop.
const FRESH: Duration = Duration::from_millis(20);
const BYTES: usize = 100;

impl Clock for Rc<Machine> {
    fn now(&self) -> Instant {
        self.as_ref().now()
    }

    fn cpu(&self) -> Duration {
        self.as_ref().cpu()
    }
}

/// The ways of a request through admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The fast path reads and executes it.
    Http1,
    /// Its connection is a task: HTTP/2, a WebSocket, fields that are not plain.
    Task,
    /// The fast path reads it, and a task requests admission after the batch.
    HandedOver,
    /// The same, but its body arrives after another rest.
    InTwoPackets,
    /// The fast path executes the first of two requests, and a task requests admission for the second after the batch.
    Together,
    /// The batch is full for the fast path, so the connection waits unread.
    WaitsUnread,
    /// The batch is full for a task, so it waits with its request.
    WaitsAsTask,
    /// The socket was ready, but had no data.
    Nothing,
}

const WAYS: [Way; 8] = [
    Way::Http1,
    Way::Task,
    Way::HandedOver,
    Way::InTwoPackets,
    Way::Together,
    Way::WaitsUnread,
    Way::WaitsAsTask,
    Way::Nothing,
];

/// The state of the loop while the connection rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meanwhile {
    /// The loop waits for its sockets.
    Waits,
    /// The loop works on things outside admission, and its sockets are ready at each check.
    HardlyWaits,
    /// The same, but it has so much work that it never waits.
    NeverWaits,
}

/// The waker of the task that begins batches.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Loop {
    machine: Rc<Machine>,
    wait_times: Arc<WaitTimes>,
    admission: Admission<Rc<Machine>>,
    limits: Limits,
    driver: Arc<Woken>,
    place: BatchSlot,
}

impl Loop {
    fn new() -> Self {
        let (wait_times, machine) = (Arc::<WaitTimes>::default(), Rc::new(Machine::new(Duration::ZERO, None)));
        let limits = Limits::default();
        let this = Self {
            admission: Admission::with_clock(&limits, wait_times.clone(), Default::default(), machine.clone()),
            machine,
            wait_times,
            limits,
            driver: Arc::default(),
            place: BatchSlot::default(),
        };
        this.batch(|| {});
        this
    }

    /// Runs a batch of the fast path with this work in it.
    fn batch<R>(&self, work: impl FnOnce() -> R) -> R {
        self.driver.0.store(false, Ordering::Relaxed);
        self.admission.driven_by(&Waker::from(self.driver.clone()));
        self.admission.begin_batch();
        self.machine.work(MICROSECOND * 5);
        let done = work();
        while self.admission.next().is_some() {}
        if self.admission.end_batch() {
            self.driver.0.store(true, Ordering::Relaxed);
        }
        done
    }

    /// Begins batches as long as their task is woken.
    fn drive(&self) {
        while self.driver.0.load(Ordering::Relaxed) {
            self.machine.work(BATCH_COST);
            self.batch(|| {});
        }
    }

    /// Gives the connection a place in the batch, and admits its first request if there is one.
    fn reads(&self, is_request: bool) -> Option<Admitted> {
        assert!(self.admission.goes_at_once(&self.place));
        self.machine.work(MICROSECOND * 5);
        is_request.then(|| self.admission.enter_now(&self.place, BYTES).unwrap())
    }

    /// Lets another connection use all the room of the batch.
    fn fill(&self) {
        let other = BatchSlot::default();
        assert!(self.admission.goes_at_once(&other));
        self.admission.enter_now(&other, self.limits.batch_bytes_max).unwrap();
        assert!(!self.admission.goes_at_once(&self.place));
    }

    fn enters(&self) -> Entering<'_, Rc<Machine>> {
        self.admission.enter(&self.place, BYTES, || LOCAL)
    }

    /// Lets a task's request enter, then runs the driver.
    fn task(&self) -> Option<Admitted> {
        let admitted = went(&mut pin!(self.enters()));
        self.drive();
        admitted
    }

    /// Sends requests in one way. Returns when each was complete, and its admission.
    fn asks(&self, way: Way, meanwhile: Meanwhile) -> (Instant, Vec<Admitted>) {
        let mut sent = self.machine.now();
        let went = match way {
            Way::Http1 => vec![self.batch(|| self.reads(true))],
            Way::Task => vec![self.task()],
            Way::HandedOver => {
                self.batch(|| self.reads(false));
                vec![self.task()]
            }
            Way::InTwoPackets => {
                self.batch(|| self.reads(false));
                self.rests(meanwhile, SECOND * 6);
                sent = self.machine.now();
                vec![self.task()]
            }
            Way::Together => vec![self.batch(|| self.reads(true)), self.task()],
            Way::WaitsUnread => {
                let ticket = self.batch(|| {
                    self.fill();
                    self.admission.wait_unread(1, LOCAL)
                });
                let went = self.batch(|| {
                    assert_eq!(self.admission.next(), Some(1));
                    self.admission.admit(&self.place, &ticket);
                    self.admission.enter_now(&self.place, BYTES)
                });
                self.drive();
                vec![went]
            }
            Way::WaitsAsTask => {
                let mut entering = pin!(self.batch(|| {
                    self.fill();
                    self.enters()
                }));
                assert!(went(&mut entering).is_none());
                self.drive();
                vec![went(&mut entering)]
            }
            Way::Nothing => {
                self.batch(|| self.reads(false));
                Vec::new()
            }
        };
        (sent, went.into_iter().map(|went| went.unwrap()).collect())
    }

    fn rests(&self, meanwhile: Meanwhile, rest: Duration) {
        let now = || self.machine.now();
        let wait = |wait: Duration| {
            self.wait_times.parks(now());
            self.machine.now.set(self.machine.now.get() + wait);
            self.wait_times.wakes(now());
        };
        let until = now() + rest;
        let (mut sweep, mut before) = (now(), now());
        while now() < until {
            match meanwhile {
                Meanwhile::Waits => return wait(rest),
                Meanwhile::HardlyWaits => wait(MICROSECOND * 50),
                Meanwhile::NeverWaits if now() >= sweep + SWEEP => {
                    self.admission.looked(before);
                    (sweep, before) = (now(), now());
                }
                Meanwhile::NeverWaits => {}
            }
            self.machine.work(PASS);
        }
    }
}

fn went(entering: &mut std::pin::Pin<&mut Entering<'_, Rc<Machine>>>) -> Option<Admitted> {
    match entering.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(admitted)) => Some(admitted),
        Poll::Ready(Err(refused)) => panic!("refused: {:?}", refused.reason),
        Poll::Pending => None,
    }
}

/// Sends requests in three ways with two rests between them. Checks that none is older than allowed, or younger than it is.
fn judge(ways: [Way; 3], meanwhile: Meanwhile, rests: [Duration; 2]) {
    let alone = Loop::new();
    let most = match meanwhile {
        Meanwhile::Waits | Meanwhile::HardlyWaits => FRESH,
        Meanwhile::NeverWaits => FRESH + SWEEP * 2,
    };
    for (at, way) in ways.into_iter().enumerate() {
        if at > 0 {
            alone.rests(meanwhile, rests[at - 1]);
        }
        let (sent, went) = alone.asks(way, meanwhile);
        for admitted in went {
            let (age, least) = (admitted.now - admitted.arrived, admitted.now - sent);
            let is_right = (least..=most).contains(&age);
            assert!(
                is_right,
                "{ways:?}, rests of {rests:?} ({meanwhile:?}): {at} is {age:?} old, not {least:?}"
            );
        }
        assert!(!alone.admission.is_open(), "{ways:?}: {way:?} leaves its batch open");
    }
}

fn all_ways() -> impl Iterator<Item = [Way; 3]> {
    let two = WAYS.into_iter().flat_map(|first| WAYS.map(|second| [first, second]));
    two.flat_map(|[first, second]| WAYS.map(|third| [first, second, third]))
}

#[test]
fn a_request_is_as_old_as_itself_after_any_rest() {
    const RESTS: [Duration; 4] = [
        Duration::from_millis(200),
        Duration::from_secs(2),
        Duration::from_secs(6),
        Duration::from_secs(90),
    ];
    for ways in all_ways() {
        for first in RESTS {
            for second in RESTS {
                judge(ways, Meanwhile::Waits, [first, second]);
            }
        }
    }
}

#[test]
fn a_request_is_as_old_as_itself_on_a_loop_without_rest() {
    for ways in all_ways() {
        for meanwhile in [Meanwhile::HardlyWaits, Meanwhile::NeverWaits] {
            judge(ways, meanwhile, [SECOND * 2, SECOND * 6]);
        }
    }
}
