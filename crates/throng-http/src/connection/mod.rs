//! A loop's state of one connection: its current activity, and since when.

mod buffers;
mod coming;
mod linger;
mod looks;
mod open;
mod stream;
mod ticks;
mod waits;

pub(crate) use buffers::{BUFFER_BYTES, Buffers, Input, KEPT_BYTES};
pub(crate) use coming::{Coming, Going};
pub(crate) use linger::{Linger, linger};
pub(crate) use open::{Connections, OpenConnection, Places as ConnectionPlaces};
pub(crate) use stream::{Received, Stream, is_passing};
pub(crate) use ticks::Bounds;
pub(crate) use waits::spawn_stream;

use crate::{
    admission::{self, BatchSlot, Client},
    caller::{Caller, ShownCredentials},
    metrics::Limit,
};
use looks::Looks;
use std::{
    cell::{Cell, OnceCell, RefCell},
    future::{Future, poll_fn},
    net::{IpAddr, Ipv4Addr},
    ops::Deref,
    pin::Pin,
    rc::Rc,
    task::{Poll, Waker},
};
use ticks::Ticks;
use waits::{Taken, Untaken, Waits};

/// The listener that accepted a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AcceptedBy {
    /// True for the listener for administration.
    pub(crate) is_admin: bool,
    /// Only programs of this machine reach that listener.
    pub(crate) is_loopback: bool,
}

/// The way a connection is to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Not at all.
    #[default]
    Serve,
    /// After the requests in flight.
    Finish,
    Drop,
}

/// Returns the client that an address counts as: an IPv4 address itself, or the /64 network of an IPv6 address. All loopback addresses are
/// one client.
pub(crate) fn client_at(address: IpAddr) -> Client {
    match address.to_canonical() {
        address if address.is_loopback() => admission::LOCAL,
        address => client_named(address),
    }
}

/// Does the same for an address in a trusted header. The result is never this machine itself.
pub(crate) fn client_named(address: IpAddr) -> Client {
    let client: Client = match address.to_canonical() {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => (address.to_bits() >> 64) as u64,
    };
    client.max(admission::LOCAL + 1)
}

/// The state of one connection. Times are ticks of its loop, so that a request reads no clock.
pub(crate) struct Connection {
    ticks: Rc<Ticks>,
    looks: Rc<Looks>,
    /// The last time bytes arrived or left.
    moved: Cell<u32>,
    /// The time of the first byte of a head, until there is a complete request.
    head_since: Cell<Option<u32>>,
    /// Bodies and answers that take their clients' time.
    waits: Waits,
    /// The time since when the client takes nothing.
    blocked_since: Cell<Option<u32>>,
    /// Bytes waited for the client since the last sweep.
    has_blocked: Cell<bool>,
    /// The bytes that the client takes of those that wait for it.
    taken: Taken,
    requests: Cell<u32>,
    /// True while a response exists of which nothing is written yet.
    owes: Cell<bool>,
    is_http2: Cell<bool>,
    verdict: Cell<Verdict>,
    /// The first sweep that found it idle after it was asked to finish.
    finishes_since: Cell<Option<u32>>,
    waker: RefCell<Option<Waker>>,
    /// The client that its requests count for.
    client: Cell<Client>,
    /// Its place in the loop's current batch.
    pub(crate) place: BatchSlot,
    /// True if it becomes a WebSocket once its response is sent.
    is_socket: Cell<bool>,
    is_console: Cell<bool>,
    /// True if the fast path serves its WebSocket, and has to be woken when the client is silent.
    asks_if_silent: Cell<bool>,
    is_silent: Cell<bool>,
    /// The token that opened its WebSocket is no longer accepted.
    is_expired: Cell<bool>,
    /// The progress of the response in an HTTP/1 exchange.
    exchange: Cell<Exchange>,
    /// True if a response ended after the connection was asked to end: the client has to receive it before the close.
    is_owed_its_end: Cell<bool>,
    /// The caller that opened its WebSocket.
    caller: RefCell<Option<Caller>>,
    /// The token with which its WebSocket was opened, if any.
    held: RefCell<Option<ShownCredentials>>,
    /// The caller that its client's TLS certificate names.
    certified: RefCell<Option<Caller>>,
    accepted_by: Cell<AcceptedBy>,
    /// The first `Host` of its requests that names this service. Further equal ones need no check.
    known_host: OnceCell<Box<[u8]>>,
    address: Cell<IpAddr>,
    /// The client may name the origin of its requests in a header.
    is_believed: Cell<bool>,
}

/// The progress of the response in an HTTP/1 exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Exchange {
    #[default]
    Answering,
    /// Its body is made while it is sent.
    Streaming,
    /// All of it was passed to the socket.
    Given,
    /// All of it is written.
    Written,
}

/// A request in flight.
pub(crate) struct InFlight<C: Deref<Target = Connection>>(C);

impl<C: Deref<Target = Connection>> InFlight<C> {
    /// A request's head is complete.
    pub(crate) fn begin(connection: C, version: http::Version) -> Self {
        if version == http::Version::HTTP_2 {
            connection.is_http2.set(true);
        }
        connection.begins();
        Self(connection)
    }
}

impl<C: Deref<Target = Connection>> Drop for InFlight<C> {
    fn drop(&mut self) {
        self.0.ends();
    }
}

impl Connection {
    pub(crate) fn new(ticks: Rc<Ticks>, looks: Rc<Looks>) -> Self {
        let now = ticks.now();
        Self {
            ticks,
            looks,
            moved: Cell::new(now),
            head_since: Cell::default(),
            waits: Waits::new(now),
            blocked_since: Cell::default(),
            has_blocked: Cell::default(),
            taken: Taken::default(),
            requests: Cell::default(),
            owes: Cell::default(),
            is_http2: Cell::default(),
            verdict: Cell::default(),
            finishes_since: Cell::default(),
            waker: RefCell::default(),
            client: Cell::new(admission::LOCAL),
            place: BatchSlot::default(),
            is_socket: Cell::default(),
            is_console: Cell::default(),
            asks_if_silent: Cell::default(),
            is_silent: Cell::default(),
            is_expired: Cell::default(),
            exchange: Cell::default(),
            is_owed_its_end: Cell::default(),
            caller: RefCell::default(),
            held: RefCell::default(),
            certified: RefCell::default(),
            known_host: OnceCell::new(),
            accepted_by: Cell::new(AcceptedBy {
                is_admin: false,
                is_loopback: true,
            }),
            address: Cell::new(Ipv4Addr::UNSPECIFIED.into()),
            is_believed: Cell::new(true),
        }
    }

    pub(crate) fn came_from(&self, address: IpAddr, proxies: &[IpAddr]) {
        self.is_believed
            .set(proxies.is_empty() || proxies.contains(&address.to_canonical()));
        self.client.set(client_at(address));
        self.address.set(address.to_canonical());
    }

    /// Sets the address and client that a trusted proxy names for the following bytes.
    pub(crate) fn speaks_for(&self, address: IpAddr, client: Client) {
        self.address.set(address);
        self.client.set(client);
    }

    /// Returns the address of the peer, or the one that a trusted proxy named.
    pub(crate) fn address(&self) -> IpAddr {
        self.address.get()
    }

    pub(crate) fn protocol(&self) -> &'static str {
        if self.is_http2.get() { "HTTP/2" } else { "HTTP/1.1" }
    }

    /// Returns the `Host` that was found to name this service, if a request had one.
    pub(crate) fn known_host(&self) -> Option<&[u8]> {
        self.known_host.get().map(|host| &**host)
    }

    /// A request's `Host` names this service.
    pub(crate) fn knows_host(&self, host: &[u8]) {
        self.known_host.get_or_init(|| host.into());
    }

    pub(crate) fn came_by(&self, accepted_by: AcceptedBy) {
        self.accepted_by.set(accepted_by);
    }

    /// True if a header may name the client of the peer's requests: the peer is a trusted proxy, or none is configured.
    pub(crate) fn is_believed(&self) -> bool {
        self.is_believed.get()
    }

    pub(crate) fn accepted_by(&self) -> AcceptedBy {
        self.accepted_by.get()
    }

    /// Its client has shown the certificate of this caller.
    pub(crate) fn shows(&self, caller: Option<Caller>) {
        *self.certified.borrow_mut() = caller;
    }

    /// Returns the caller that the client's TLS certificate names.
    pub(crate) fn certified(&self) -> Option<Caller> {
        self.certified.borrow().clone()
    }

    /// Returns the client that its requests count for.
    pub(crate) fn client(&self) -> Client {
        self.client.get()
    }

    /// Notes that the response being made turns the connection into a WebSocket.
    pub(crate) fn becomes_socket(&self, caller: Option<Caller>, held: Option<ShownCredentials>) {
        self.is_socket.set(true);
        *self.caller.borrow_mut() = caller;
        *self.held.borrow_mut() = held;
    }

    /// Notes that the response being made turns the connection into a console's socket.
    pub(crate) fn becomes_console(&self, held: Option<ShownCredentials>) {
        self.becomes_socket(None, held);
        self.is_console.set(true);
    }

    pub(crate) fn is_console(&self) -> bool {
        self.is_console.get()
    }

    /// Returns the token that opened the WebSocket, at the first call only.
    pub(crate) fn take_held(&self) -> Option<ShownCredentials> {
        self.held.borrow_mut().take()
    }

    /// Sets whether the waker is called once the WebSocket has been silent for as long as it may be.
    pub(crate) fn asks_if_silent(&self, asks: bool) {
        self.asks_if_silent.set(asks);
        self.is_silent.set(false);
    }

    /// True if the WebSocket was silent for too long, so that its client gets a ping.
    pub(crate) fn is_silent(&self) -> bool {
        self.is_silent.get()
    }

    /// Notes that the token which opened the WebSocket is no longer accepted, and wakes its owner.
    pub(crate) fn expires(&self) {
        self.is_expired.set(true);
        self.wake();
    }

    pub(crate) fn is_expired(&self) -> bool {
        self.is_expired.get()
    }

    /// Returns the caller that opened the WebSocket.
    pub(crate) fn caller(&self) -> Option<Caller> {
        self.caller.borrow().clone()
    }

    pub(crate) fn is_socket(&self) -> bool {
        self.is_socket.get()
    }

    /// An HTTP/1 exchange begins.
    pub(crate) fn exchanges(&self) {
        self.exchange.set(Exchange::Answering);
    }

    /// Notes that the response's body is made while it is sent. The client's leaving ends it.
    pub(crate) fn streams(&self) {
        self.exchange.set(Exchange::Streaming);
    }

    pub(crate) fn is_streaming(&self) -> bool {
        self.exchange.get() == Exchange::Streaming
    }

    /// Notes that all of the response was passed to the socket.
    pub(crate) fn gave(&self) {
        self.exchange.set(Exchange::Given);
    }

    /// Notes that all bytes passed to the socket were written.
    pub(crate) fn flushed(&self) {
        if self.exchange.get() == Exchange::Given {
            self.exchange.set(Exchange::Written);
        }
    }

    /// The exchange is over.
    pub(crate) fn is_written(&self) -> bool {
        self.exchange.get() == Exchange::Written
    }

    /// True if the connection ends with a response that its client has to receive even if it still sends.
    pub(crate) fn is_owed_its_end(&self) -> bool {
        self.verdict.get() == Verdict::Serve || self.is_owed_its_end.get()
    }

    /// A request's head is complete.
    pub(crate) fn begin(&self, version: http::Version) -> InFlight<&Self> {
        InFlight::begin(self, version)
    }

    /// Does the same for callers that report the request's [end](Self::ends) themselves.
    pub(crate) fn begins(&self) {
        self.head_since.set(None);
        self.requests.set(self.requests.get() + 1);
        self.finishes_since.set(None);
    }

    /// Waits for a future, unless the connection is to be dropped first.
    pub(crate) async fn unless_dropped<T>(&self, mut serving: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        poll_fn(|context| {
            self.set_waker(context.waker());
            if self.verdict() == Verdict::Drop {
                return Poll::Ready(None);
            }
            serving.as_mut().poll(context).map(Some)
        })
        .await
    }

    /// A request has its answer.
    pub(crate) fn ends(&self) {
        self.requests.set(self.requests.get() - 1);
        self.moved.set(self.ticks.now());
        self.owes.set(true);
        if self.is_ending() {
            self.is_owed_its_end.set(true);
        }
    }

    /// Notes that the client has sent the preface of HTTP/2.
    pub(crate) fn speaks_http2(&self) {
        self.is_http2.set(true);
        self.head_since.set(None);
    }

    pub(crate) fn waits(&self) -> &Waits {
        &self.waits
    }

    pub(crate) fn now(&self) -> u32 {
        self.ticks.now()
    }

    /// Notes that all of an answer was sent, or cannot be.
    pub(crate) fn is_answered(&self) {
        self.moved.set(self.ticks.now());
    }

    /// Notes that bytes have arrived. On HTTP/2 they may be pings, which need no answer.
    pub(crate) fn came(&self) {
        if self.is_http2.get() {
            return;
        }
        self.moved.set(self.ticks.now());
        if self.requests.get() == 0 && self.head_since.get().is_none() {
            self.head_since.set(Some(self.ticks.now()));
        }
    }

    /// Notes bytes that are no request, or not yet. Their time does not count as the age of another request.
    pub(crate) fn came_in_pieces(&self) {
        self.looks.ask();
        self.came();
    }

    /// Counts bytes that were sent.
    pub(crate) fn went(&self, bytes: usize) {
        if !self.is_http2.get() {
            self.moved.set(self.ticks.now());
        }
        self.taken.add(bytes);
        self.blocked_since.set(None);
        self.owes.set(false);
    }

    /// Bytes could not go.
    pub(crate) fn blocks(&self) {
        self.has_blocked.set(true);
        if self.blocked_since.get().is_none() {
            self.blocked_since.set(Some(self.ticks.now()));
        }
    }

    /// True if no request is in flight, and no response is to be written. What is written now is the parser's own.
    pub(crate) fn is_between_requests(&self) -> bool {
        self.requests.get() == 0 && !self.owes.get() && !self.is_http2.get()
    }

    pub(crate) fn verdict(&self) -> Verdict {
        self.verdict.get()
    }

    /// True if the connection is to end, after its requests in flight or at once.
    pub(crate) fn is_ending(&self) -> bool {
        self.verdict.get() != Verdict::Serve
    }

    /// Sets the waker that a verdict calls.
    pub(crate) fn set_waker(&self, waker: &Waker) {
        let mut own = self.waker.borrow_mut();
        if !own.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *own = Some(waker.clone());
        }
    }

    pub(crate) fn condemn(&self, verdict: Verdict) {
        if self.verdict.get() == Verdict::Drop || self.verdict.get() == verdict {
            return;
        }
        self.verdict.set(verdict);
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }

    /// Checks whether it has waited too long for its client, and returns the limit by which it ends early.
    pub(crate) fn sweep(&self, bounds: &Bounds) -> Option<Limit> {
        let now = self.ticks.now();
        let longer = |since: Option<u32>, bound: u32| since.is_some_and(|since| now.wrapping_sub(since) > bound);
        let untaken = self.waits.sweep(now, bounds);
        let is_blocked = self.blocked_since.get().is_some();
        let has_blocked = self.has_blocked.replace(is_blocked);
        let is_slow = self.taken.is_too_little(has_blocked, bounds, 1);
        let takes_nothing = longer(self.blocked_since.get(), bounds.write);
        let limit = if is_slow || takes_nothing || untaken == Some(Untaken::All) {
            Some(Limit::WriteWait)
        } else if longer(self.head_since.get(), bounds.header) {
            Some(Limit::HeaderWait)
        } else {
            None
        };
        if limit.is_some() {
            let is_news = self.verdict.get() != Verdict::Drop;
            self.condemn(Verdict::Drop);
            return limit.filter(|_| is_news);
        }
        if self.asks_if_silent.get() && longer(Some(self.moved.get()), bounds.silence) {
            self.is_silent.set(true);
            self.wake();
        }
        if self.requests.get() == 0 && self.waits.has_no_answers() {
            self.sweep_idle(now, bounds);
        }
        untaken.map(|_| Limit::WriteWait)
    }

    fn sweep_idle(&self, now: u32, bounds: &Bounds) {
        if self.verdict.get() != Verdict::Finish {
            if now.wrapping_sub(self.moved.get()) > bounds.idle {
                self.condemn(Verdict::Finish);
            }
            return;
        }
        // The client does not react to the announced end.
        let since = self.finishes_since.get().unwrap_or(now);
        self.finishes_since.set(Some(since));
        // Its end waits for a client's answer to a ping, which may never arrive.
        let bound = match self.is_http2.get() {
            true => bounds.linger.min(bounds.write),
            false => bounds.write,
        };
        if now.wrapping_sub(since) > bound {
            self.condemn(Verdict::Drop);
        }
    }
}

#[cfg(test)]
mod tests;
