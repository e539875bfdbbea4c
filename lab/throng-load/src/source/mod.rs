//! Sources of requests: the pull model that drives a run.
//!
//! A worker asks its [`Source`] for a request whenever a connection is free, and hands it each
//! answer. Everything else (open or closed arrivals, ordering, retries, checks) is a source's own
//! business, decided without I/O.

mod arrivals;
mod closed;
mod open;
mod replay;

pub use arrivals::{Arrivals, Stage};
pub use closed::Closed;
pub use open::Open;
pub use replay::{Aftermath, OrderedReplay, Trace, TraceItem};

use crate::ErrorKind;

/// Gives requests to one worker and sees what became of them.
///
/// All times are nanoseconds since the start of the run. Methods are called from one thread and
/// must not block.
pub trait Source: Send {
    /// A connection is free: what should be sent on it now?
    ///
    /// After [`Next::Done`] it is not called again.
    fn next(&mut self, now_nanos: u64) -> Next<'_>;

    /// The request tagged `tag` was answered, or failed.
    fn answered(&mut self, tag: u64, outcome: &Outcome<'_>) -> Verdict {
        let _ = (tag, outcome);
        Verdict::ByStatus
    }

    /// Requests that were due by `now_nanos` and never given, asked once when a run ends early.
    fn unsent(&self, now_nanos: u64) -> u64 {
        let _ = now_nanos;
        0
    }
}

/// The wish of a source for a free connection.
#[derive(Debug)]
pub enum Next<'a> {
    /// Send this request.
    Send(Shot<'a>),
    /// No request before this time; ask again then, or after the next answer.
    WaitUntil(u64),
    /// No request before some answer arrives.
    WaitForAnswer,
    /// No request any more.
    Done,
}

/// A request to send.
#[derive(Debug, Clone, Copy)]
pub struct Shot<'a> {
    /// The whole request as it goes over the wire (see [`crate::Request`]).
    pub bytes: &'a [u8],
    /// Comes back with the outcome.
    pub tag: u64,
    /// When it should have been sent, in an open model: response time counts from here.
    pub intended_nanos: Option<u64>,
    /// Index into [`crate::Options::classes`]: the line of the report it is counted under.
    pub class: u16,
}

impl<'a> Shot<'a> {
    /// Makes a request of the first class that is sent whenever its turn comes.
    pub const fn new(bytes: &'a [u8], tag: u64) -> Self {
        Self {
            bytes,
            tag,
            intended_nanos: None,
            class: 0,
        }
    }

    /// Makes a request of the first class that should be sent at this time.
    pub const fn due(bytes: &'a [u8], tag: u64, intended_nanos: u64) -> Self {
        Self {
            intended_nanos: Some(intended_nanos),
            ..Self::new(bytes, tag)
        }
    }
}

/// The outcome of a request.
#[derive(Debug)]
pub struct Outcome<'a> {
    /// The answer, or why there is none.
    pub result: Result<ResponseParts<'a>, ErrorKind>,
    /// When it was given to a connection.
    pub sent_nanos: u64,
    /// When it was intended to be sent; `sent_nanos` in a closed model.
    pub intended_nanos: u64,
    /// When the whole answer was there, or the failure was known.
    pub done_nanos: u64,
}

impl Outcome<'_> {
    /// Time from sending to the whole answer.
    pub fn service_nanos(&self) -> u64 {
        self.done_nanos.saturating_sub(self.sent_nanos)
    }

    /// Time from the intended start to the whole answer.
    pub fn response_nanos(&self) -> u64 {
        self.done_nanos.saturating_sub(self.intended_nanos)
    }

    /// The status, or 0 where there was no answer.
    pub fn status(&self) -> u16 {
        self.result.as_ref().map_or(0, |answer| answer.status)
    }
}

/// A whole answer.
#[derive(Debug, Clone, Copy)]
pub struct ResponseParts<'a> {
    /// The status of the response, from its first line.
    pub status: u16,
    /// Status line and headers as received; of HTTP/2 written as HTTP/1.1 would have it.
    pub head: &'a [u8],
    /// The body without its framing; cut at 1 MiB.
    pub body: &'a [u8],
}

impl ResponseParts<'_> {
    /// The first header of this name, ignoring case; `None` also where it is not UTF-8.
    pub fn header(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.head).ok()?.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.trim().eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// The count to which an outcome belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// 2xx and 304 are successes, anything else fails under its kind.
    ByStatus,
    /// A success whatever the status (but never without an answer).
    Success,
    /// An answer that failed a check of the source.
    CheckFailed,
    /// A try that is not the last word: the source sends the request again.
    Retried,
}
