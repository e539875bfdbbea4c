//! Request bodies that arrive, and answers that leave, at their client's speed.

use super::{
    Connection,
    waits::{Body, Taken, TakenAnswer, own_stream},
};
use std::{
    cell::{Cell, RefCell},
    ops::Deref,
    rc::Rc,
    task::Waker,
};

/// A body that arrives. Its connection knows only of one that has to be waited for.
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

    /// Notes that more of it has arrived.
    pub(crate) fn came(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        if let Some(body) = &self.body {
            body.bytes.set(self.bytes);
        }
    }

    /// Waits for more of it; `false` if it has taken too long already.
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

/// An answer that leaves. Its connection knows of it until this is dropped.
pub(crate) struct Going {
    connection: Rc<Connection>,
    answer: Rc<TakenAnswer>,
}

impl Going {
    pub(crate) fn new(connection: Rc<Connection>) -> Self {
        let answer = Rc::new(TakenAnswer {
            given: Cell::default(),
            taken: Taken::default(),
            stream: own_stream(),
        });
        connection.waits().answers.borrow_mut().push(answer.clone());
        Self { connection, answer }
    }

    /// Counts a piece that was passed on. The next one is requested once the client has taken all before it.
    pub(crate) fn given(&self, bytes: usize) {
        self.answer.taken.add(bytes);
        self.answer.given.set(Some(self.connection.now()));
    }

    /// Notes that the next piece is requested.
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
