//! What a loop knows of one connection: what it is doing, and since when.

use super::{
    stream::Stream,
    ticks::{Bounds, Ticks},
};
use crate::{
    access::{Caller, Entrance},
    gate::{self, Client, Place},
};
use std::{
    cell::{Cell, RefCell},
    net::IpAddr,
    rc::Rc,
    task::Waker,
};

/// How a connection is to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Not at all.
    #[default]
    Serve,
    /// After the requests in flight.
    Finish,
    /// Now.
    Drop,
}

/// One connection. Times are ticks of its loop, so that a request costs no look at the clock.
pub(crate) struct Connection {
    ticks: Rc<Ticks>,
    /// The last time bytes came or went.
    moved: Cell<u32>,
    /// The first byte of a head has come, and no request yet.
    head_since: Cell<Option<u32>>,
    /// A body is waited for.
    body_since: Cell<Option<u32>>,
    body_waker: RefCell<Option<Waker>>,
    body_late: Cell<bool>,
    /// The client takes nothing.
    blocked_since: Cell<Option<u32>>,
    requests: Cell<u32>,
    /// A response was made of which nothing is written yet.
    owes: Cell<bool>,
    is_http2: Cell<bool>,
    verdict: Cell<Verdict>,
    waker: RefCell<Option<Waker>>,
    /// Whose it is.
    client: Cell<Client>,
    /// Its place in its loop's turn.
    pub(crate) place: Place,
    /// Once its response has gone, it is a WebSocket's.
    is_socket: Cell<bool>,
    /// Whose WebSocket it is.
    caller: RefCell<Option<Caller>>,
    /// Whose certificate its client has shown.
    certified: RefCell<Option<Caller>>,
    entrance: Cell<Entrance>,
    /// Its word is taken for whose its requests are.
    is_believed: Cell<bool>,
    /// The stream of a connection that is a WebSocket's.
    stream: RefCell<Option<Stream>>,
}

/// A request in flight.
pub(crate) struct InFlight<'a>(&'a Connection);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.ends();
    }
}

impl Connection {
    pub(super) fn new(ticks: Rc<Ticks>) -> Self {
        let now = ticks.now();
        Self {
            ticks,
            moved: Cell::new(now),
            head_since: Cell::default(),
            body_since: Cell::default(),
            body_waker: RefCell::default(),
            body_late: Cell::default(),
            blocked_since: Cell::default(),
            requests: Cell::default(),
            owes: Cell::default(),
            is_http2: Cell::default(),
            verdict: Cell::default(),
            waker: RefCell::default(),
            client: Cell::new(gate::LOCAL),
            place: Place::default(),
            is_socket: Cell::default(),
            caller: RefCell::default(),
            certified: RefCell::default(),
            entrance: Cell::new(Entrance {
                is_admin: false,
                is_loopback: true,
            }),
            is_believed: Cell::new(true),
            stream: RefCell::default(),
        }
    }

    /// Whose it is: an address, or of IPv6 its network of 64 bits; this machine's own are one.
    pub(super) fn came_from(&self, address: IpAddr, proxies: &[IpAddr]) {
        let own = address.to_canonical();
        self.is_believed.set(proxies.is_empty() || proxies.contains(&own));
        self.client.set(match address.to_canonical() {
            address if address.is_loopback() => gate::LOCAL,
            IpAddr::V4(address) => address.to_bits().into(),
            IpAddr::V6(address) => (address.to_bits() >> 64) as u64,
        });
    }

    /// It came in there.
    pub(super) fn came_by(&self, entrance: Entrance) {
        self.entrance.set(entrance);
    }

    /// Its word is taken for whose its requests are: it comes from a proxy that is trusted.
    pub(crate) fn is_believed(&self) -> bool {
        self.is_believed.get()
    }

    /// Where it came in.
    pub(crate) fn entrance(&self) -> Entrance {
        self.entrance.get()
    }

    /// Its client has shown the certificate of this caller.
    pub(super) fn shows(&self, caller: Option<Caller>) {
        *self.certified.borrow_mut() = caller;
    }

    /// Whose certificate its client has shown.
    pub(crate) fn certified(&self) -> Option<Caller> {
        self.certified.borrow().clone()
    }

    /// Whose it is.
    pub(crate) fn client(&self) -> Client {
        self.client.get()
    }

    /// The response that is made now makes a WebSocket of it.
    pub(crate) fn becomes_socket(&self, caller: Option<Caller>) {
        self.is_socket.set(true);
        *self.caller.borrow_mut() = caller;
    }

    /// Who asks over it, for as long as it is a WebSocket.
    pub(crate) fn caller(&self) -> Option<Caller> {
        self.caller.borrow().clone()
    }

    pub(super) fn is_socket(&self) -> bool {
        self.is_socket.get()
    }

    /// HTTP is done with the stream.
    pub(super) fn hand_over(&self, stream: Stream) {
        *self.stream.borrow_mut() = Some(stream);
    }

    /// The stream, if it is a WebSocket's now.
    pub(super) fn handed_over(&self) -> Option<Stream> {
        self.stream.borrow_mut().take()
    }

    /// A request's head is complete.
    pub(crate) fn begin(&self, version: http::Version) -> InFlight<'_> {
        self.is_http2.set(version == http::Version::HTTP_2);
        self.begins();
        InFlight(self)
    }

    /// The same, for who says itself when the request [ends](Self::ends).
    pub(crate) fn begins(&self) {
        self.head_since.set(None);
        self.requests.set(self.requests.get() + 1);
    }

    /// A request has its answer.
    pub(crate) fn ends(&self) {
        self.requests.set(self.requests.get() - 1);
        self.moved.set(self.ticks.now());
        self.body_since.set(None);
        self.owes.set(true);
    }

    /// More of a body has to come; `false` if it has taken too long already.
    pub(crate) fn waits_for_body(&self, waker: &Waker) -> bool {
        if self.body_since.get().is_none() {
            self.body_since.set(Some(self.ticks.now()));
        }
        if self.body_late.get() {
            return false;
        }
        // On HTTP/2 several bodies share the place; whoever is woken looks, and the last one is woken.
        *self.body_waker.borrow_mut() = Some(waker.clone());
        true
    }

    /// Bytes have come.
    pub(crate) fn came(&self) {
        self.moved.set(self.ticks.now());
        if self.requests.get() == 0 && self.head_since.get().is_none() && !self.is_http2.get() {
            self.head_since.set(Some(self.ticks.now()));
        }
    }

    /// Bytes have gone.
    pub(crate) fn went(&self) {
        self.moved.set(self.ticks.now());
        self.blocked_since.set(None);
        self.owes.set(false);
    }

    /// Bytes could not go.
    pub(crate) fn blocks(&self) {
        if self.blocked_since.get().is_none() {
            self.blocked_since.set(Some(self.ticks.now()));
        }
    }

    /// No request is in flight, and no response is to be written: what is written now is the parser's own.
    pub(super) fn is_between_requests(&self) -> bool {
        self.requests.get() == 0 && !self.owes.get() && !self.is_http2.get()
    }

    /// How it is to end.
    pub(crate) fn verdict(&self) -> Verdict {
        self.verdict.get()
    }

    /// It is to end, after the requests in flight or now.
    pub(crate) fn is_ending(&self) -> bool {
        self.verdict.get() != Verdict::Serve
    }

    /// Who to wake with a verdict.
    pub(crate) fn set_waker(&self, waker: &Waker) {
        let mut own = self.waker.borrow_mut();
        if !own.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *own = Some(waker.clone());
        }
    }

    /// Ends it.
    pub(super) fn condemn(&self, verdict: Verdict) {
        if self.verdict.get() == Verdict::Drop || self.verdict.get() == verdict {
            return;
        }
        self.verdict.set(verdict);
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }

    /// Looks whether it has waited too long for its client.
    pub(super) fn sweep(&self, bounds: &Bounds) {
        let now = self.ticks.now();
        let longer = |since: Option<u32>, bound: u32| since.is_some_and(|since| now.wrapping_sub(since) > bound);
        if longer(self.blocked_since.get(), bounds.write) || longer(self.head_since.get(), bounds.header) {
            self.condemn(Verdict::Drop);
        } else if self.requests.get() > 0 {
            if longer(self.body_since.get(), bounds.body)
                && !self.body_late.replace(true)
                && let Some(waker) = self.body_waker.borrow_mut().take()
            {
                waker.wake();
            }
        } else if longer(Some(self.moved.get()), bounds.idle) {
            self.condemn(Verdict::Finish);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        idle: 75,
        header: 10,
        body: 30,
        write: 30,
    };

    fn connection() -> (Rc<Ticks>, Connection) {
        let ticks = Rc::new(Ticks::default());
        (ticks.clone(), Connection::new(ticks))
    }

    fn after(ticks: &Ticks, connection: &Connection, count: u32) -> Verdict {
        (0..count).for_each(|_| ticks.tick());
        connection.sweep(&BOUNDS);
        connection.verdict()
    }

    #[test]
    fn an_idle_connection_finishes_after_its_bound() {
        let (ticks, connection) = connection();
        assert_eq!(after(&ticks, &connection, 75), Verdict::Serve);
        assert_eq!(after(&ticks, &connection, 1), Verdict::Finish);
    }

    #[test]
    fn a_head_that_does_not_come_to_its_end_ends_the_connection() {
        let (ticks, connection) = connection();
        connection.came();
        assert_eq!(after(&ticks, &connection, 10), Verdict::Serve);
        connection.came();
        assert_eq!(
            after(&ticks, &connection, 1),
            Verdict::Drop,
            "a byte now and then does not help"
        );
    }

    #[test]
    fn a_request_the_engine_works_on_may_take_its_time() {
        let (ticks, connection) = connection();
        connection.came();
        let in_flight = connection.begin(http::Version::HTTP_11);
        assert_eq!(after(&ticks, &connection, 1_000), Verdict::Serve);
        drop(in_flight);
        assert_eq!(after(&ticks, &connection, 75), Verdict::Serve);
    }

    #[test]
    fn a_client_that_takes_nothing_is_cut_off() {
        let (ticks, connection) = connection();
        let _in_flight = connection.begin(http::Version::HTTP_11);
        connection.blocks();
        assert_eq!(after(&ticks, &connection, 30), Verdict::Serve);
        connection.went();
        assert_eq!(after(&ticks, &connection, 30), Verdict::Serve);
        connection.blocks();
        assert_eq!(after(&ticks, &connection, 31), Verdict::Drop);
    }

    #[test]
    fn a_body_that_is_late_is_told_so_and_its_connection_lives() {
        let (ticks, connection) = connection();
        let _in_flight = connection.begin(http::Version::HTTP_11);
        assert!(connection.waits_for_body(Waker::noop()));
        assert_eq!(after(&ticks, &connection, 31), Verdict::Serve);
        assert!(!connection.waits_for_body(Waker::noop()));
    }
}
