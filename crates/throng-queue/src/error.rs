//! The errors of a queue: the other side is gone, or there was no room or no item in time.

use std::{error::Error, fmt};

/// Every receiver is gone. Holds the items that reached none.
pub struct SendError<T> {
    /// The items in the order they were sent: the gathered ones, and the item of the call.
    pub unsent: Vec<T>,
}

/// The reason why an item was not taken at once.
pub enum TrySendError<T> {
    /// The queue and the sender's own batch are full. Holds the item.
    Full(T),
    /// Every receiver is gone. Holds all items that reached none, that of the call last.
    Closed(Vec<T>),
}

/// The reason why a sender's items were not handed over at once.
pub enum TryFlushError<T> {
    /// The queue is full; the sender keeps its items.
    Full,
    /// Every receiver is gone. Holds the items that reached none.
    Closed(Vec<T>),
}

/// Every sender is gone and everything they sent has been received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed;

/// The reason why there is no batch now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TryReceiveError {
    /// The queue is empty.
    Empty,
    /// Every sender is gone and everything they sent has been received.
    Closed,
}

/// The reason why there was no batch in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiveTimeoutError {
    /// No item came in that time.
    TimedOut,
    /// Every sender is gone and everything they sent has been received.
    Closed,
}

fn unsent(count: usize, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(
        out,
        "every receiver of the queue is gone; {count} items were not sent and come back with this error"
    )
}

const FULL: &str = "the queue is full; wait for room, or refuse the work that led here";
const NO_MORE: &str = "every sender of the queue is gone and everything sent has been received";

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        unsent(self.unsent.len(), out)
    }
}

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SendError({} unsent)", self.unsent.len())
    }
}

impl<T> fmt::Display for TrySendError<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(_) => out.write_str(FULL),
            Self::Closed(items) => unsent(items.len(), out),
        }
    }
}

impl<T> fmt::Debug for TrySendError<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(_) => out.write_str("Full"),
            Self::Closed(items) => write!(out, "Closed({} unsent)", items.len()),
        }
    }
}

impl<T> fmt::Display for TryFlushError<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => out.write_str(FULL),
            Self::Closed(items) => unsent(items.len(), out),
        }
    }
}

impl<T> fmt::Debug for TryFlushError<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => out.write_str("Full"),
            Self::Closed(items) => write!(out, "Closed({} unsent)", items.len()),
        }
    }
}

impl fmt::Display for Closed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(NO_MORE)
    }
}

impl fmt::Display for TryReceiveError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Empty => "nothing waits in the queue",
            Self::Closed => NO_MORE,
        })
    }
}

impl fmt::Display for ReceiveTimeoutError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::TimedOut => "nothing was sent in time",
            Self::Closed => NO_MORE,
        })
    }
}

impl<T> Error for SendError<T> {}
impl<T> Error for TrySendError<T> {}
impl<T> Error for TryFlushError<T> {}
impl Error for Closed {}
impl Error for TryReceiveError {}
impl Error for ReceiveTimeoutError {}
