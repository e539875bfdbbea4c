//! What a connection waits for its client with: bodies that come, answers that go. On HTTP/2 there are several of each.

use super::{Connection, ticks::Bounds};
use std::{
    cell::{Cell, OnceCell, RefCell},
    future::Future,
    ops::Deref,
    rc::Rc,
    task::Waker,
};
use tokio::task::AbortHandle;

tokio::task_local! {
    /// Ends the task of an HTTP/2 stream. Set before the task begins.
    static STREAM: Rc<OnceCell<AbortHandle>>;
}

/// Spawns the task of an HTTP/2 stream. The stream is reset where it is [swept](Waits::sweep) before it is done.
pub(crate) fn spawn_stream(stream: impl Future<Output: 'static> + 'static) {
    let own = Rc::new(OnceCell::new());
    let task = tokio::task::spawn_local(STREAM.scope(own.clone(), stream));
    let _ = own.set(task.abort_handle());
}

/// The waits of a connection.
pub(crate) struct Waits {
    bodies: RefCell<Vec<Rc<Body>>>,
    answers: RefCell<Vec<Rc<Answer>>>,
    /// When a piece of an answer was last taken.
    taken: Cell<u32>,
}

/// Answers of which the client takes too little.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Untaken {
    /// Some: their streams are reset.
    Some,
    /// The client takes nothing at all.
    All,
}

/// Bytes that a client takes, counted while others wait for it.
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

    /// Counts a sweep that finds something waiting or not. `true`: over the whole wait that a client has, it took less than its part of the
    /// least rate. So many answers share the rate.
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
struct Body {
    since: u32,
    bytes: Cell<u64>,
    is_late: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// An answer whose client takes it in its own time.
struct Answer {
    /// When the last piece was given, until the next one is asked for.
    given: Cell<Option<u32>>,
    taken: Taken,
    /// Ends its stream.
    stream: Option<AbortHandle>,
}

impl Answer {
    /// Counts a sweep; whether the client takes too little of it.
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

    /// Wakes whoever waits for a body that is late, and ends the streams of answers of which the client takes too little.
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

/// A body that comes. Only one that has to be waited for is known to its connection.
pub(crate) struct Coming<C: Deref<Target = Connection>> {
    connection: C,
    body: Option<Rc<Body>>,
    bytes: u64,
}

impl<C: Deref<Target = Connection>> Coming<C> {
    pub(crate) fn new(connection: C) -> Self {
        Self {
            connection,
            body: None,
            bytes: 0,
        }
    }

    /// More of it has come.
    pub(crate) fn came(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        if let Some(body) = &self.body {
            body.bytes.set(self.bytes);
        }
    }

    /// More of it has to come; `false` if it has taken too long already.
    pub(crate) fn waits(&mut self, waker: &Waker) -> bool {
        let connection = &*self.connection;
        let body = self.body.get_or_insert_with(|| {
            let body = Rc::new(Body {
                since: connection.now(),
                bytes: Cell::new(self.bytes),
                is_late: Cell::default(),
                waker: RefCell::default(),
            });
            connection.waits().bodies.borrow_mut().push(body.clone());
            body
        });
        if body.is_late.get() {
            return false;
        }
        *body.waker.borrow_mut() = Some(waker.clone());
        true
    }
}

impl<C: Deref<Target = Connection>> Drop for Coming<C> {
    fn drop(&mut self) {
        if let Some(body) = &self.body {
            let waits = self.connection.waits();
            waits.bodies.borrow_mut().retain(|other| !Rc::ptr_eq(body, other));
        }
    }
}

/// An answer that goes, known to its connection until this is dropped.
pub(crate) struct Going {
    connection: Rc<Connection>,
    answer: Rc<Answer>,
}

impl Going {
    pub(crate) fn new(connection: Rc<Connection>) -> Self {
        let answer = Rc::new(Answer {
            given: Cell::default(),
            taken: Taken::default(),
            stream: STREAM.try_with(|stream| stream.get().cloned()).ok().flatten(),
        });
        connection.waits().answers.borrow_mut().push(answer.clone());
        Self { connection, answer }
    }

    /// A piece of so many bytes was given; the next one is asked for once the client has taken all before.
    pub(crate) fn given(&self, bytes: usize) {
        self.answer.taken.add(bytes);
        self.answer.given.set(Some(self.connection.now()));
    }

    /// The next piece is asked for.
    pub(crate) fn asked(&self) {
        if self.answer.given.take().is_some() {
            self.connection.waits().taken.set(self.connection.now());
        }
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        self.connection.is_answered();
        let mut answers = self.connection.waits().answers.borrow_mut();
        answers.retain(|other| !Rc::ptr_eq(&self.answer, other));
    }
}
