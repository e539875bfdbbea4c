//! HTTP/2 on one connection, sans I/O: the crate `h2` between two buffers.
//!
//! The worker's loop is the same as for HTTP/1.1. It reads the available bytes, passes them to the [`Session`], lets it work, ends the answered
//! requests, and sends the session's output. `h2` needs no runtime for that, so requests are sent as punctually as those of HTTP/1.1.

mod exchange;
mod pipe;
mod request;
mod wake;

use std::cell::RefCell;
use std::future::Future as _;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::client::{Connection, SendRequest};

use super::connection::InFlight;
use crate::ErrorKind;
use exchange::Exchange;
pub(crate) use exchange::Finished;
use pipe::{Pipe, PipeEnd};
pub(crate) use request::Translator;
use wake::Woken;

/// The flow-control window of a stream.
const STREAM_WINDOW_BYTES: u32 = 1024 * 1024;
/// The flow-control window of a connection.
const CONNECTION_WINDOW_BYTES: u32 = 16 * 1024 * 1024;
const HEAD_BYTES_MAX: u32 = 64 * 1024;
/// The number of streams cancelled here whose late frames are not taken for an error.
const RESETS_REMEMBERED: usize = 1024;

/// The HTTP/2 session of a connection.
pub(crate) struct Session {
    pipe: Rc<RefCell<Pipe>>,
    sender: SendRequest<Bytes>,
    connection: Connection<PipeEnd, Bytes>,
    woken: Arc<Woken>,
    connection_waker: Waker,
    exchanges: Vec<Option<Exchange>>,
    wakers: Vec<Waker>,
    vacant: Vec<u32>,
    streams_max: usize,
    /// The streams that the peer allows; 0 until its settings have arrived.
    peer_streams_max: usize,
    /// True while new streams can be opened: there was no GOAWAY, and numbers are left.
    accepting: bool,
    /// True once the peer has sent GOAWAY.
    gone_away: bool,
    over: Option<ErrorKind>,
    /// A request that is sent when the peer's settings arrive.
    pub(crate) parked: Vec<u8>,
    /// All bytes received from the peer.
    heard: u64,
    /// The bytes received since the last request that ended.
    bytes_in: u64,
    bytes_out: u64,
}

impl Session {
    /// Begins a connection with at most `streams` requests at once. Its first bytes can be sent at once.
    pub(crate) fn new(streams: usize, parked: Vec<u8>) -> Result<Self, ErrorKind> {
        let pipe = Rc::new(RefCell::new(Pipe::default()));
        let mut builder = h2::client::Builder::new();
        builder
            .enable_push(false)
            // No request is sent before the peer's settings, because streams beyond its limit would be refused.
            .initial_max_send_streams(0)
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_header_list_size(HEAD_BYTES_MAX)
            .max_concurrent_reset_streams(RESETS_REMEMBERED);
        let handshake = pin!(builder.handshake(PipeEnd(pipe.clone())));
        let Poll::Ready(Ok((sender, connection))) = handshake.poll(&mut Context::from_waker(Waker::noop())) else {
            return Err(ErrorKind::Protocol);
        };
        let woken = Arc::new(Woken::default());
        woken.wake_connection();
        Ok(Session {
            pipe,
            sender,
            connection,
            connection_waker: woken.connection_waker(),
            woken,
            exchanges: Vec::new(),
            wakers: Vec::new(),
            vacant: Vec::new(),
            streams_max: streams,
            peer_streams_max: 0,
            accepting: true,
            gone_away: false,
            over: None,
            parked,
            heard: 0,
            bytes_in: 0,
            bytes_out: 0,
        })
    }

    /// Returns true once the peer's settings have arrived, so that it speaks HTTP/2.
    pub(crate) fn is_ready(&self) -> bool {
        self.peer_streams_max > 0
    }

    /// Returns the number of requests in flight.
    pub(crate) fn len(&self) -> usize {
        self.exchanges.len() - self.vacant.len()
    }

    /// Returns the number of requests it takes now.
    pub(crate) fn room(&self) -> usize {
        match self.accepting && self.over.is_none() {
            true => self.streams_max.min(self.peer_streams_max).saturating_sub(self.len()),
            false => 0,
        }
    }

    /// Returns the reason why the connection is over, if it is.
    pub(crate) fn over(&self) -> Option<ErrorKind> {
        match self.over {
            None if !self.accepting && self.len() == 0 => Some(ErrorKind::GoAway),
            over => over,
        }
    }

    /// Receives bytes from the peer.
    pub(crate) fn receive(&mut self, data: &[u8]) {
        self.bytes_in += data.len() as u64;
        self.heard += data.len() as u64;
        self.pipe.borrow_mut().input(data);
        self.woken.wake_connection();
    }

    /// Notes that the peer has closed.
    pub(crate) fn receive_end(&mut self) {
        self.pipe.borrow_mut().end_input();
        self.woken.wake_connection();
    }

    /// Sends a request on a new stream. [`Session::next_finished`] reports a failure to send like any other failure.
    pub(crate) fn send(&mut self, in_flight: InFlight, bytes: &[u8], scheme_tls: bool, translator: &mut Translator) {
        let exchange = match translator.translate(bytes, scheme_tls) {
            Ok(translated) => Exchange::begin(&mut self.sender, in_flight, self.heard, bytes, translated),
            Err(kind) => Exchange::broken(in_flight, kind, bytes),
        };
        let number = self.vacant.pop().unwrap_or_else(|| {
            self.exchanges.push(None);
            let number = self.exchanges.len() as u32 - 1;
            self.wakers.push(self.woken.stream_waker(number));
            number
        });
        self.exchanges[number as usize] = Some(exchange);
        // The first poll registers its waker.
        self.wakers[number as usize].wake_by_ref();
        self.woken.wake_connection();
    }

    /// Lets the connection process its input and produce output.
    pub(crate) fn work(&mut self) {
        let mut context = Context::from_waker(&self.connection_waker);
        if self.over.is_none() {
            while self.woken.take_connection() {
                if let Poll::Ready(result) = Pin::new(&mut self.connection).poll(&mut context) {
                    self.over = Some(match result {
                        Ok(()) if self.pipe.borrow().has_ended() => ErrorKind::Closed,
                        Ok(()) => ErrorKind::GoAway,
                        Err(error) if !self.is_ready() && error.is_library() => ErrorKind::NoHttp2,
                        Err(error) => exchange::kind_of(&error, false),
                    });
                    break;
                }
            }
        }
        self.peer_streams_max = self.sender.current_max_send_streams();
        if let Poll::Ready(Err(error)) = self.sender.poll_ready(&mut context) {
            self.accepting = false;
            self.gone_away |= error.is_go_away() && error.is_remote();
        }
    }

    /// Returns the next request that has ended, if any.
    pub(crate) fn next_finished(&mut self) -> Option<Finished> {
        while let Some(number) = self.woken.next_stream() {
            let index = number as usize;
            let Some(exchange) = &mut self.exchanges[index] else {
                continue;
            };
            let mut context = Context::from_waker(&self.wakers[index]);
            if let Poll::Ready(result) = exchange.poll(&mut context) {
                // `h2` reports this only for a stream beyond the last one in the GOAWAY, and for a request that it does not send.
                let is_given_back = result == Err(ErrorKind::GoAway);
                return self.finish(index, result, is_given_back);
            }
        }
        let kind = self.over?;
        // The connection is over, so no further answers come.
        let index = self.exchanges.iter().position(Option::is_some)?;
        self.finish(index, Err(kind), false)
    }

    /// Gives up the first request that was sent before `sent_before_nanos`, if any.
    pub(crate) fn next_expired(&mut self, sent_before_nanos: u64) -> Option<Finished> {
        let expired = |exchange: &Option<Exchange>| {
            exchange
                .as_ref()
                .is_some_and(|exchange| exchange.in_flight.sent_nanos <= sent_before_nanos)
        };
        let index = self.exchanges.iter().position(expired)?;
        if let Some(exchange) = &mut self.exchanges[index] {
            exchange.cancel();
            if exchange.heard_before == self.heard {
                // Nothing was received since then, so further requests on this connection would wait in vain as well.
                self.accepting = false;
            }
        }
        self.woken.wake_connection();
        self.finish(index, Err(ErrorKind::Timeout), false)
    }

    /// Returns the time when the oldest request in flight was sent.
    pub(crate) fn oldest_nanos(&self) -> Option<u64> {
        let under_way = self.exchanges.iter().flatten();
        under_way.map(|exchange| exchange.in_flight.sent_nanos).min()
    }

    fn finish(&mut self, index: usize, result: Result<(), ErrorKind>, is_given_back: bool) -> Option<Finished> {
        let exchange = self.exchanges[index].take()?;
        let result = result.map_err(|kind| self.reason(kind));
        self.vacant.push(index as u32);
        let bytes_in = std::mem::take(&mut self.bytes_in);
        let bytes_out = std::mem::take(&mut self.bytes_out);
        Some(exchange.finish(result, is_given_back, (bytes_in, bytes_out)))
    }

    /// Corrects the kind of an end: a peer that has sent GOAWAY may then close or reset.
    pub(crate) fn reason(&self, kind: ErrorKind) -> ErrorKind {
        match kind {
            ErrorKind::Closed | ErrorKind::Reset if self.gone_away => ErrorKind::GoAway,
            kind => kind,
        }
    }

    /// Takes the bytes to be sent.
    pub(crate) fn outgoing(&mut self, out: &mut Vec<u8>) {
        let (taken, waited) = self.pipe.borrow_mut().take_output(out);
        self.bytes_out += taken as u64;
        if waited {
            self.woken.wake_connection();
        }
    }

    /// Returns true if there is more work after [`Session::work`].
    pub(crate) fn wants_work(&self) -> bool {
        self.over.is_none() && self.woken.is_connection()
    }

    /// Returns the requests in flight, without answers.
    pub(crate) fn into_in_flight(self) -> impl Iterator<Item = InFlight> {
        self.exchanges.into_iter().flatten().map(|exchange| exchange.in_flight)
    }
}
