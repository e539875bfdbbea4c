//! Sources of requests: the pull model that drives a run.
//!
//! A worker asks its [`Source`] for a request when a connection is free, and passes it each answer. Everything else (open or closed arrivals,
//! ordering, retries, checks) is decided by a source without I/O.

mod arrivals;
mod closed;
mod open;
mod replay;

pub use arrivals::{Arrivals, Stage};
pub use closed::Closed;
pub use open::Open;
pub use replay::{Aftermath, OrderedReplay, Trace, TraceItem};

use crate::ErrorKind;

/// Chooses the requests of one worker and gets their outcomes.
///
/// All times are nanoseconds since the start of the run. Methods are called from one thread and must not block.
pub trait Source: Send {
    /// Returns the request for a free connection.
    ///
    /// The load does not call this again after [`Next::Done`].
    fn next(&mut self, now_nanos: u64) -> Next<'_>;

    /// Gets the outcome of the request with this `tag`: an answer or a failure.
    fn answered(&mut self, tag: u64, outcome: &Outcome<'_>) -> Verdict {
        let _ = (tag, outcome);
        Verdict::ByStatus
    }

    /// Returns the number of requests that were due by `now_nanos` and not sent. It is called once if a run ends early.
    fn unsent(&self, now_nanos: u64) -> u64 {
        let _ = now_nanos;
        0
    }
}

/// The answer of a source for a free connection.
#[derive(Debug)]
pub enum Next<'a> {
    /// Send this request.
    Send(Shot<'a>),
    /// No request before this time. The worker asks again then, or after the next answer.
    WaitUntil(u64),
    /// No request before the next answer.
    WaitForAnswer,
    /// No further request.
    Done,
}

/// A request to send.
#[derive(Debug, Clone, Copy)]
pub struct Shot<'a> {
    /// The whole request as it is sent (see [`crate::Request`]).
    pub bytes: &'a [u8],
    /// A number that is returned with the outcome.
    pub tag: u64,
    /// The time when it should be sent, in an open model. Its response time counts from then.
    pub intended_nanos: Option<u64>,
    /// The index into [`crate::Options::classes`], which is its line of the report.
    pub class: u16,
}

impl<'a> Shot<'a> {
    /// Returns a request of the first class that is sent at once.
    pub const fn new(bytes: &'a [u8], tag: u64) -> Self {
        Self {
            bytes,
            tag,
            intended_nanos: None,
            class: 0,
        }
    }

    /// Returns a request of the first class that should be sent at this time.
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
    /// The time when it should have been sent; `sent_nanos` in a closed model.
    pub intended_nanos: u64,
    /// The time when the whole answer had arrived, or the failure was known.
    pub done_nanos: u64,
}

impl Outcome<'_> {
    /// Returns the time from sending to the whole answer.
    pub fn service_nanos(&self) -> u64 {
        self.done_nanos.saturating_sub(self.sent_nanos)
    }

    /// Returns the time from the intended start to the whole answer.
    pub fn response_nanos(&self) -> u64 {
        self.done_nanos.saturating_sub(self.intended_nanos)
    }

    /// Returns the status, or 0 without an answer.
    pub fn status(&self) -> u16 {
        self.result.as_ref().map_or(0, |answer| answer.status)
    }
}

/// A complete answer.
#[derive(Debug, Clone, Copy)]
pub struct ResponseParts<'a> {
    /// The status of the response, from its first line.
    pub status: u16,
    /// The status line and headers as received. Those of HTTP/2 are written in the format of HTTP/1.1.
    pub head: &'a [u8],
    /// The body without its framing, cut off at 1 MiB.
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

/// The verdict of a source on an outcome, which decides how it is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// 2xx and 304 are successes. Anything else fails under its kind.
    ByStatus,
    /// A success with any status, but never without an answer.
    Success,
    /// An answer that failed a check of the source.
    CheckFailed,
    /// An attempt that is not final, because the source sends the request again.
    Retried,
}
