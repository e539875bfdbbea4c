//! A worker: one thread, one epoll set, its share of the connections, and one source.
//!
//! The inner loop costs one `recv` and one `send` for each request, and one `epoll_wait` for all available answers. Sockets are registered once.
//! Requests are sent at once, and only bytes that the kernel does not take wait for writability.

mod exchange;
mod streams;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use super::connection::{Connection, ConnectionState, InFlight, Sent};
use super::http2::Translator;
use super::options::{Options, Stop};
use super::poll::Poll;
use super::resolver::Resolver;
use super::tls::TlsClient;
use crate::error::Result;
use crate::measure::Recorder;
use crate::{ErrorKind, Next, Source};

const READ_BYTES: usize = 64 * 1024;
/// The longest time between two checks of the clock and the stop switch.
const TICK_NANOS: u64 = 50_000_000;
/// The connections that are begun at once before a run.
const CONNECT_BURST: usize = 16;
/// The time until the next connections are begun.
const CONNECT_BURST_EVERY_NANOS: u64 = 1_000_000;
const REST_NANOS_MIN: u64 = 1_000_000;
const REST_NANOS_MAX: u64 = 100_000_000;
/// The longest wait for answers after Ctrl-C.
const STOPPED_DRAIN_NANOS: u64 = 1_000_000_000;

/// The settings of a worker.
#[derive(Clone)]
pub(crate) struct Orders {
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) resolver: Option<Arc<Resolver>>,
    pub(crate) tls: Option<TlsClient>,
    pub(crate) connections: usize,
    /// The number of connections that are made before the clock starts.
    pub(crate) ahead: usize,
    pub(crate) pipeline: usize,
    /// The most streams on a connection, if it uses HTTP/2.
    pub(crate) http2: Option<usize>,
    pub(crate) keep_alive: bool,
    pub(crate) give_until_nanos: u64,
    pub(crate) drain_nanos: u64,
    pub(crate) request_timeout_nanos: u64,
    pub(crate) connect_timeout_nanos: u64,
    pub(crate) stop: Stop,
}

impl Orders {
    /// Returns the settings of worker `index` of `workers`, with its share of the connections.
    pub(crate) fn new(
        options: &Options,
        resolver: Option<Arc<Resolver>>,
        index: usize,
        workers: usize,
    ) -> Result<Self> {
        let share = |whole: usize| whole / workers + usize::from(index < whole % workers);
        let connections = share(options.connections);
        let nanos = |duration: std::time::Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 4);
        let tls = options
            .target
            .tls
            .then(|| TlsClient::new(&options.tls, &options.target.host, options.http2.is_some()))
            .transpose()?;
        Ok(Orders {
            addresses: options.target.addresses.clone(),
            resolver,
            tls,
            connections,
            ahead: share(options.connections_ahead).min(connections),
            pipeline: options.pipeline,
            http2: options.http2,
            keep_alive: options.keep_alive,
            give_until_nanos: options.duration.map_or(u64::MAX, nanos),
            drain_nanos: nanos(options.drain),
            request_timeout_nanos: nanos(options.request_timeout),
            connect_timeout_nanos: nanos(options.connect_timeout),
            stop: options.stop.clone(),
        })
    }
}

/// The reason why a worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    SourceDone,
    TimeUp,
    Stopped,
    /// Repeated attempts made no connection.
    NobodyThere,
    /// Repeated attempts made no connection, because the name has no address.
    NoAddress,
    /// Repeated attempts made no connection, because the target does not speak HTTP/2.
    NoHttp2,
}

pub(crate) struct Worker<S> {
    orders: Orders,
    source: S,
    pub(crate) recorder: Recorder,
    poll: Poll,
    start: Instant,
    connections: Vec<Connection>,
    open: usize,
    /// The connections with room for a request, the longest free first.
    free: VecDeque<u32>,
    /// The slots without a connection. One is connected when a request is due and no connection is free.
    closed: VecDeque<u32>,
    in_flight: usize,
    /// The time when the source was last asked. Everything due by then was sent, or found no free connection.
    asked_nanos: u64,
    /// The time before which the source has nothing; `u64::MAX` means not before an answer.
    ask_nanos: u64,
    source_done: bool,
    /// A lower bound of the deadlines of all connections.
    scan_nanos: u64,
    address: usize,
    addresses_version: u32,
    /// True while the clock runs.
    driving: bool,
    /// True once no more requests are sent.
    has_ended: bool,
    /// Requests that a GOAWAY returned. They are sent again before others.
    given_back: VecDeque<(InFlight, Box<[u8]>)>,
    ever_connected: bool,
    failed_connects: usize,
    last_failed_connect: Option<ErrorKind>,
    buffer: Box<[u8]>,
    plain: Vec<u8>,
    /// The frames of HTTP/2 sessions that are to be written to the socket.
    frames: Vec<u8>,
    translator: Translator,
}

impl<S: Source> Worker<S> {
    pub(crate) fn new(orders: Orders, source: S, recorder: Recorder) -> Result<Self> {
        let connections = (0..orders.connections).map(|_| Connection::new()).collect();
        Ok(Worker {
            orders,
            source,
            recorder,
            poll: Poll::new()?,
            start: Instant::now(),
            connections,
            open: 0,
            free: VecDeque::new(),
            closed: VecDeque::new(),
            in_flight: 0,
            asked_nanos: 0,
            ask_nanos: 0,
            source_done: false,
            scan_nanos: 0,
            address: 0,
            addresses_version: 0,
            driving: false,
            has_ended: false,
            given_back: VecDeque::new(),
            ever_connected: false,
            failed_connects: 0,
            last_failed_connect: None,
            buffer: vec![0; READ_BYTES].into_boxed_slice(),
            plain: Vec::new(),
            frames: Vec::new(),
            translator: Translator::default(),
        })
    }

    pub(crate) fn into_parts(self) -> (S, Recorder) {
        (self.source, self.recorder)
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Makes the connections that are wanted before the clock starts, so that no request pays for them. Failures are not counted: the first request
    /// on the slot tries again.
    ///
    /// A worker begins a few every millisecond, because a server's accept queue is short. If the queue is full, a connect is repeated only after a second.
    pub(crate) fn connect_ahead(&mut self) -> Result<()> {
        let mut next = 0;
        let mut burst_nanos = 0;
        let mut give_up_nanos = u64::MAX;
        while !self.orders.stop.is_set() {
            let now = self.now();
            if next < self.orders.ahead && now >= burst_nanos {
                let end = (next + CONNECT_BURST).min(self.orders.ahead);
                for index in next..end {
                    if self.connect(index, now).is_err() {
                        self.connections[index].close();
                    }
                }
                next = end;
                burst_nanos = now + CONNECT_BURST_EVERY_NANOS;
                give_up_nanos = now.saturating_add(self.orders.connect_timeout_nanos);
            }
            let all_begun = next == self.orders.ahead;
            let connecting = |connection: &Connection| connection.state == ConnectionState::Connecting;
            if all_begun && (now >= give_up_nanos || !self.connections.iter().any(connecting)) {
                break;
            }
            let until = if all_begun { give_up_nanos } else { burst_nanos };
            self.poll.wait(until.saturating_sub(now).min(TICK_NANOS))?;
            let events = std::mem::take(&mut self.poll.events);
            for event in &events {
                self.ready(event.data.u64(), event.flags);
            }
            self.poll.events = events;
        }
        for connection in &mut self.connections {
            if connection.state == ConnectionState::Connecting {
                connection.close();
            }
        }
        Ok(())
    }

    /// Drives the load from `start` on. Returns when the last answer has arrived or was given up.
    pub(crate) fn drive(&mut self, start: Instant) -> Result<(Ended, u64)> {
        self.start = start;
        self.driving = true;
        for index in 0..self.connections.len() {
            self.set_free(index, 0);
        }
        let mut ended = None;
        let mut give_up_nanos = u64::MAX;
        loop {
            let now = self.now();
            if now >= self.scan_nanos {
                self.scan(now);
            }
            if ended.is_none() {
                ended = self.should_end(now);
                match ended {
                    Some(Ended::Stopped) => give_up_nanos = now + self.orders.drain_nanos.min(STOPPED_DRAIN_NANOS),
                    Some(_) => give_up_nanos = now.saturating_add(self.orders.drain_nanos),
                    None => {
                        self.asked_nanos = now;
                        self.give_all(now);
                    }
                }
                if ended.is_some() {
                    self.has_ended = true;
                    self.fail_given_back(now);
                }
            } else if give_up_nanos > now + STOPPED_DRAIN_NANOS && self.orders.stop.is_set() {
                give_up_nanos = now + STOPPED_DRAIN_NANOS;
            }
            if let Some(ended) = ended
                && (self.in_flight == 0 || now >= give_up_nanos)
            {
                self.abandon(now);
                self.recorder.set_connections(self.open);
                self.recorder.finish();
                let unsent_until = match ended {
                    // A request that became due after the source was last asked is not counted as unsent.
                    Ended::Stopped => self.asked_nanos,
                    _ => now.min(self.orders.give_until_nanos),
                };
                let unsent = if self.source_done {
                    0
                } else {
                    self.source.unsent(unsent_until)
                };
                return Ok((ended, unsent));
            }
            self.wait_and_read(ended.is_none(), give_up_nanos)?;
        }
    }

    fn should_end(&self, now: u64) -> Option<Ended> {
        if self.orders.stop.is_set() {
            Some(Ended::Stopped)
        } else if self.source_done && self.in_flight == 0 && self.given_back.is_empty() {
            Some(Ended::SourceDone)
        } else if now >= self.orders.give_until_nanos {
            Some(Ended::TimeUp)
        } else if !self.ever_connected && self.failed_connects >= 3 * self.connections.len().max(4) {
            Some(match self.last_failed_connect {
                _ if self.orders.addresses.is_empty() => Ended::NoAddress,
                Some(ErrorKind::NoHttp2) => Ended::NoHttp2,
                _ => Ended::NobodyThere,
            })
        } else {
            None
        }
    }

    fn wait_and_read(&mut self, giving: bool, give_up_nanos: u64) -> Result<()> {
        let now = self.now();
        let mut until = (now + TICK_NANOS).min(self.scan_nanos).min(give_up_nanos);
        if giving {
            until = until.min(self.orders.give_until_nanos);
            if self.has_free() && self.has_more() {
                until = until.min(self.ask_nanos);
            }
        }
        self.poll.wait(until.saturating_sub(now))?;
        self.recorder.set_connections(self.open);
        let events = std::mem::take(&mut self.poll.events);
        for event in &events {
            self.ready(event.data.u64(), event.flags);
            if giving && self.has_free() && self.has_more() && self.ask_nanos < u64::MAX {
                let now = self.now();
                if now >= self.ask_nanos {
                    self.give_all(now);
                }
            }
        }
        if events.is_empty() {
            let now = self.now();
            self.recorder.advance(now);
        }
        self.poll.events = events;
        Ok(())
    }

    fn has_free(&self) -> bool {
        !self.free.is_empty() || !self.closed.is_empty()
    }

    /// Returns true if there may be something to send.
    fn has_more(&self) -> bool {
        !self.source_done || !self.given_back.is_empty()
    }

    /// Returns a slot with room for a request. Connected slots come first, so that there are only as many connections as the load needs.
    fn take_free(&mut self) -> Option<usize> {
        while let Some(index) = self.free.pop_front() {
            if self.connections[index as usize].state != ConnectionState::Closed {
                return Some(index as usize);
            }
            self.closed.push_back(index); // closed by its peer while it was idle
        }
        self.closed.pop_front().map(|index| index as usize)
    }

    /// Asks the source for every free connection, until it has nothing to send now.
    fn give_all(&mut self, now: u64) {
        while self.has_more() && self.ask_nanos <= now {
            let Some(index) = self.take_free() else { return };
            self.connections[index].queued = false;
            self.give(index, now);
            let connection = &mut self.connections[index];
            if !connection.queued
                && connection.state != ConnectionState::Resting
                && connection.room(self.orders.pipeline) > 0
            {
                connection.queued = true;
                match connection.state {
                    ConnectionState::Closed => self.closed.push_front(index as u32),
                    // Streams are spread over the connections, but a pipeline is filled.
                    _ if connection.http2.is_some() => self.free.push_back(index as u32),
                    _ => self.free.push_front(index as u32),
                }
            }
        }
    }

    /// Sends requests on one connection, as many as it may have in flight and the source has.
    fn give(&mut self, index: usize, now: u64) {
        let connection = &mut self.connections[index];
        let first = connection.in_flight.is_empty();
        let room = connection.room(self.orders.pipeline);
        let mut given = 0;
        let mut sent = Sent::All;
        while given < room {
            if let Some((request, bytes)) = self.given_back.pop_front() {
                given += 1;
                let is_tls = self.orders.tls.is_some();
                match &mut connection.http2 {
                    Some(session) => session.send(request, &bytes, is_tls, &mut self.translator),
                    None => {
                        connection.in_flight.push_back(request);
                        sent = connection.send(&bytes);
                    }
                }
                continue;
            }
            if self.source_done {
                break;
            }
            match self.source.next(now) {
                Next::Send(shot) => {
                    if let Some(intended) = shot.intended_nanos {
                        let due = intended.max(connection.free_nanos);
                        self.recorder
                            .sent_late(now.saturating_sub(intended), now.saturating_sub(due));
                    }
                    let in_flight = InFlight {
                        tag: shot.tag,
                        sent_nanos: now,
                        intended_nanos: shot.intended_nanos,
                        bytes: shot.bytes.len() as u32,
                        class: shot.class,
                        no_body: shot.bytes.starts_with(b"HEAD "),
                        given_back: 0,
                    };
                    given += 1;
                    if let Some(session) = &mut connection.http2 {
                        session.send(in_flight, shot.bytes, self.orders.tls.is_some(), &mut self.translator);
                        continue;
                    }
                    connection.in_flight.push_back(in_flight);
                    if self.orders.pipeline == 1 {
                        sent = connection.send(shot.bytes);
                    } else {
                        // The requests of a pipeline share one system call.
                        match &mut connection.tls {
                            Some(tls) if connection.state == ConnectionState::Open => {
                                if tls.send(shot.bytes).is_err() {
                                    sent = Sent::Failed(ErrorKind::Tls);
                                    break;
                                }
                            }
                            _ => connection.out.extend_from_slice(shot.bytes),
                        }
                    }
                }
                Next::WaitUntil(nanos) => {
                    self.ask_nanos = nanos.max(now + 1);
                    break;
                }
                Next::WaitForAnswer => {
                    self.ask_nanos = u64::MAX;
                    break;
                }
                Next::Done => {
                    self.source_done = true;
                    break;
                }
            }
        }
        if given == 0 {
            return;
        }
        self.in_flight += given;
        if first {
            let deadline_nanos = now.saturating_add(self.orders.request_timeout_nanos);
            connection.deadline_nanos = match connection.http2 {
                Some(_) => connection.deadline_nanos.min(deadline_nanos),
                None => deadline_nanos,
            };
            self.scan_nanos = self.scan_nanos.min(connection.deadline_nanos);
        }
        if connection.http2.is_some() {
            return self.work(index);
        }
        match connection.state {
            ConnectionState::Closed => {
                if let Err(kind) = self.connect(index, now) {
                    self.fail(index, kind);
                }
            }
            ConnectionState::Open => {
                if self.orders.pipeline > 1 && sent == Sent::All {
                    if let Some(tls) = &mut connection.tls {
                        tls.outgoing(&mut connection.out);
                    }
                    sent = connection.flush();
                }
                self.after_send(index, sent);
            }
            ConnectionState::Connecting | ConnectionState::Resting => {}
        }
    }

    fn set_free(&mut self, index: usize, now: u64) {
        let connection = &mut self.connections[index];
        if !connection.queued && matches!(connection.state, ConnectionState::Open | ConnectionState::Closed) {
            connection.queued = true;
            connection.free_nanos = now;
            match connection.state {
                ConnectionState::Closed => self.closed.push_back(index as u32),
                _ => self.free.push_back(index as u32),
            }
        }
    }

    /// Handles the connections past their deadlines, and finds the next deadline.
    fn scan(&mut self, now: u64) {
        self.scan_nanos = now.saturating_add(self.orders.request_timeout_nanos).saturating_add(1);
        for index in 0..self.connections.len() {
            let connection = &mut self.connections[index];
            if connection.deadline_nanos <= now {
                match connection.state {
                    ConnectionState::Resting => {
                        connection.state = ConnectionState::Closed;
                        connection.deadline_nanos = u64::MAX;
                        self.set_free(index, now);
                    }
                    ConnectionState::Connecting => self.fail(index, ErrorKind::ConnectTimeout),
                    ConnectionState::Open if connection.http2.is_some() => self.expire(index, now),
                    ConnectionState::Open | ConnectionState::Closed => self.fail(index, ErrorKind::Timeout),
                }
            }
            self.scan_nanos = self.scan_nanos.min(self.connections[index].deadline_nanos);
        }
    }

    /// Ends the run. Requests still in flight count as unanswered.
    fn abandon(&mut self, now: u64) {
        for index in 0..self.connections.len() {
            let connection = &self.connections[index];
            let on_streams = connection.http2.as_ref().map_or(0, |session| session.len());
            if on_streams + connection.in_flight.len() > 0 {
                let bytes_in = connection.bytes_in;
                self.close(index);
                self.connections[index].bytes_in = bytes_in;
                self.fail_in_flight(index, ErrorKind::Unanswered, now);
            }
        }
    }
}
