//! The connections of a loop.

use super::{
    Connection, Verdict,
    linger::linger,
    looks::Looks,
    stream::Stream,
    ticks::{Bounds, Ticks},
};
use crate::{clients::Counted, metrics::Limit, places::Taken};
use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    pin::pin,
    rc::Rc,
    time::Duration,
};
use throng::driver::Charge;

/// A connection of a loop, until this is dropped.
pub(crate) struct OpenConnection {
    /// A number that no other connection of the loop has or had.
    pub(crate) number: u64,
    pub(crate) connection: Rc<Connection>,
    of: Rc<Connections>,
    _places: Places,
}

/// The places that a connection takes of the limits.
#[derive(Default)]
pub(crate) struct Places {
    /// The charge for one within the limits.
    memory: Option<Charge>,
    _of_address: Option<Counted>,
    /// A spare place beyond the limits.
    _spare: Option<Taken>,
}

impl Places {
    pub(crate) fn new(memory: Charge, of_address: Option<Counted>) -> Self {
        Self {
            memory: Some(memory),
            _of_address: of_address,
            _spare: None,
        }
    }

    /// A place beyond the limits.
    pub(crate) fn spare(spare: Taken) -> Self {
        Self {
            _spare: Some(spare),
            ..Self::default()
        }
    }

    pub(crate) fn is_spare(&self) -> bool {
        self.memory.is_none()
    }
}

impl OpenConnection {
    /// Ends a connection whose last answer was sent.
    pub(crate) async fn linger(self, mut stream: Stream, wait: Duration) {
        self.connection.unless_dropped(pin!(linger(&mut stream, wait))).await;
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.of.remove(self.number);
    }
}

/// The connections of a loop.
#[derive(Default)]
pub(crate) struct Connections {
    ticks: Rc<Ticks>,
    looks: Rc<Looks>,
    open: RefCell<HashMap<u64, Rc<Connection>>>,
    next: Cell<u64>,
    emptied: tokio::sync::Notify,
}

impl Connections {
    pub(crate) fn add(self: &Rc<Self>, places: Places) -> OpenConnection {
        let number = self.next.replace(self.next.get() + 1);
        let connection = Rc::new(Connection::new(self.ticks.clone(), self.looks.clone()));
        self.open.borrow_mut().insert(number, connection.clone());
        OpenConnection {
            number,
            connection,
            of: self.clone(),
            _places: places,
        }
    }

    fn remove(&self, number: u64) {
        let mut open = self.open.borrow_mut();
        open.remove(&number);
        if open.is_empty() {
            self.emptied.notify_waiters();
        }
    }

    pub(crate) fn condemn(&self, verdict: Verdict) {
        self.open
            .borrow()
            .values()
            .for_each(|connection| connection.condemn(verdict));
    }

    pub(crate) async fn empty(&self) {
        loop {
            let emptied = self.emptied.notified();
            if self.open.borrow().is_empty() {
                return;
            }
            emptied.await;
        }
    }

    /// Advances the clock by a tick, and ends connections that wait too long for their clients, with the limit.
    pub(crate) fn sweep(&self, bounds: &Bounds, mut limited: impl FnMut(Limit)) {
        self.ticks.tick();
        let open = self.open.borrow();
        let limits = open.values().filter_map(|connection| connection.sweep(bounds));
        limits.for_each(&mut limited);
    }

    /// Calls `looked` after each look of the loop at its sockets that follows bytes which are no complete request. Never ends.
    pub(crate) async fn watch_looks(&self, looked: impl Fn()) {
        self.looks.watch(looked).await;
    }
}
