//! What a connection waits for its client with: bodies that come, answers that go. On HTTP/2 there are several of each.

use super::{Connection, ticks::Bounds};
use std::{
    cell::{Cell, RefCell},
    ops::Deref,
    rc::Rc,
    task::Waker,
};

/// The waits of a connection.
#[derive(Default)]
pub(crate) struct Waits {
    bodies: RefCell<Vec<Rc<Body>>>,
    answers: RefCell<Vec<Rc<Answer>>>,
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
}

impl Waits {
    /// No answer is on its way.
    pub(crate) fn has_no_answers(&self) -> bool {
        self.answers.borrow().is_empty()
    }

    /// Wakes whoever waits for a body that is late. `true`: the client takes nothing of an answer.
    pub(crate) fn sweep(&self, now: u32, bounds: &Bounds) -> bool {
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
        let mut given = answers.iter().filter_map(|answer| answer.given.get());
        given.any(|given| now.wrapping_sub(given) > bounds.write)
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
        let answer = Rc::new(Answer { given: Cell::default() });
        connection.waits().answers.borrow_mut().push(answer.clone());
        Self { connection, answer }
    }

    /// A piece of it was given; the next one is asked for once the client has taken all before.
    pub(crate) fn given(&self) {
        self.answer.given.set(Some(self.connection.now()));
    }

    /// The next piece is asked for.
    pub(crate) fn asked(&self) {
        self.answer.given.set(None);
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        self.connection.is_answered();
        let mut answers = self.connection.waits().answers.borrow_mut();
        answers.retain(|other| !Rc::ptr_eq(&self.answer, other));
    }
}
