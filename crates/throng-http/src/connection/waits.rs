//! The waits of a connection for its client: for request bodies to arrive, and for answers to leave. HTTP/2 may have several of each.

use super::ticks::Bounds;
use std::{
    cell::{Cell, OnceCell, RefCell},
    future::Future,
    rc::Rc,
    task::Waker,
};
use tokio::task::AbortHandle;

tokio::task_local! {
    /// Ends the task of an HTTP/2 stream. Set before the task begins.
    static STREAM: Rc<OnceCell<AbortHandle>>;
}

/// Spawns the task of an HTTP/2 stream. If it is [swept](Waits::sweep) before its end, the stream is reset.
pub(crate) fn spawn_stream(stream: impl Future<Output: 'static> + 'static) {
    let own = Rc::new(OnceCell::new());
    let task = tokio::task::spawn_local(STREAM.scope(own.clone(), stream));
    let _ = own.set(task.abort_handle());
}

/// The task of this HTTP/2 stream, which is reset by ending it.
pub(super) fn own_stream() -> Option<AbortHandle> {
    STREAM.try_with(|stream| stream.get().cloned()).ok().flatten()
}

/// The waits of a connection.
pub(crate) struct Waits {
    pub(super) bodies: RefCell<Vec<Rc<Body>>>,
    pub(super) answers: RefCell<Vec<Rc<TakenAnswer>>>,
    /// The last time a piece of an answer was taken.
    pub(super) taken: Cell<u32>,
}

/// Answers of which the client takes too little.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Untaken {
    /// Some: their streams are reset.
    Some,
    /// The client takes nothing at all.
    All,
}

/// The bytes that a client takes, counted while others wait for it.
#[derive(Default)]
pub(super) struct Taken {
    /// Sweeps in a row that found something waiting.
    ticks: Cell<u32>,
    /// Bytes since the first of them.
    bytes: Cell<u64>,
}

impl Taken {
    /// Counts bytes that were taken.
    pub(super) fn add(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes as u64);
    }

    /// Counts a sweep, which finds something waiting or not. The waiting answers share the least rate among them. True if over the client's
    /// whole wait it took less than its part of that rate.
    pub(super) fn is_too_little(&self, waits: bool, bounds: &Bounds, sharers: usize) -> bool {
        let ticks = self.ticks.get();
        if !waits || ticks == 0 {
            self.bytes.set(0);
            self.ticks.set(u32::from(waits));
            return false;
        }
        if ticks < bounds.write {
            self.ticks.set(ticks + 1);
            return false;
        }
        self.ticks.set(1);
        let bytes = self.bytes.take().saturating_mul(sharers as u64);
        bytes < bounds.write_bytes_a_tick.saturating_mul(u64::from(ticks))
    }
}

/// A body that is waited for.
pub(super) struct Body {
    pub(super) since: u32,
    pub(super) bytes: Cell<u64>,
    pub(super) is_late: Cell<bool>,
    pub(super) waker: RefCell<Option<Waker>>,
}

/// An answer that the client takes at its own speed.
pub(super) struct TakenAnswer {
    /// The time when the last piece was passed on, until the next one is requested.
    pub(super) given: Cell<Option<u32>>,
    pub(super) taken: Taken,
    /// Ends its stream.
    pub(super) stream: Option<AbortHandle>,
}

impl TakenAnswer {
    /// Counts a sweep; `true`: the client takes too little of the answer.
    fn is_untaken(&self, now: u32, bounds: &Bounds, waiting: usize) -> bool {
        let given = self.given.get();
        let is_slow = self.taken.is_too_little(given.is_some(), bounds, waiting);
        is_slow || given.is_some_and(|given| now.wrapping_sub(given) > bounds.write)
    }
}

impl Waits {
    pub(super) fn new(now: u32) -> Self {
        Self {
            bodies: RefCell::default(),
            answers: RefCell::default(),
            taken: Cell::new(now),
        }
    }

    /// No answer is on its way.
    pub(crate) fn has_no_answers(&self) -> bool {
        self.answers.borrow().is_empty()
    }

    /// Wakes the readers of late bodies, and ends the streams of answers of which the client takes too little.
    pub(super) fn sweep(&self, now: u32, bounds: &Bounds) -> Option<Untaken> {
        for body in self.bodies.borrow().iter() {
            let ticks = now.wrapping_sub(body.since);
            if !body.is_late.get() && bounds.is_late(ticks, body.bytes.get()) {
                body.is_late.set(true);
                if let Some(waker) = body.waker.borrow_mut().take() {
                    waker.wake();
                }
            }
        }
        let answers = self.answers.borrow();
        let waiting = answers.iter().filter(|answer| answer.given.get().is_some()).count();
        let mut untaken = None;
        for answer in answers.iter() {
            if !answer.is_untaken(now, bounds, waiting) {
                continue;
            }
            let is_moving = now.wrapping_sub(self.taken.get()) <= bounds.write;
            match &answer.stream {
                Some(stream) if is_moving => {
                    stream.abort();
                    untaken = untaken.or(Some(Untaken::Some));
                }
                _ => untaken = Some(Untaken::All),
            }
        }
        untaken
    }
}
