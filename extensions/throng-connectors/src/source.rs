//! Messages from elsewhere.

use crate::Message;
use std::{error::Error, future::Future, io};
use throng::driver::Charge;

/// Gives messages, and is told which of them are settled: a queue, a partition of a log, a file.
///
/// A source is used by one thread with a tokio runtime. Its futures need not be `Send`. The example `lines` of this crate is one.
pub trait Source: Send + 'static {
    /// Names a message at its source: a delivery tag, an offset.
    type Position;
    /// Why the source fails.
    type Error: Error + From<io::Error> + Send + 'static;

    /// The source's check and its label in metrics: `queue hits`.
    fn name(&self) -> String;

    /// The source with its address, for people.
    fn place(&self) -> String {
        self.name()
    }

    /// Connects, and begins with the first message that is not settled. Called at the start, and after each error with growing pauses.
    /// Messages that are out and not settled should hold no more than `bytes_max`, about.
    ///
    /// # Errors
    /// The source cannot be reached, or will not be read.
    fn open(&mut self, bytes_max: usize) -> impl Future<Output = Result<(), Self::Error>>;

    /// Waits for messages, and returns them in order; none at all after a pause is as good. What it returns is one commit, if it is not too much.
    ///
    /// The future is dropped at any await, and made anew: what it has taken by then must stay with the source.
    ///
    /// # Errors
    /// The connection is lost. Messages that are not settled have to come again after the next [`open`](Self::open).
    fn receive(&mut self) -> impl Future<Output = Result<Vec<Received<Self::Position>>, Self::Error>>;

    /// Takes note of messages that need not come again: their commands are durable, or were refused for good. They come in the order in which
    /// they were received, and with none left out. The future is dropped only where nothing is settled after it.
    ///
    /// # Errors
    /// The connection is lost.
    fn settle(&mut self, settled: Vec<Settled<Self::Position>>) -> impl Future<Output = Result<(), Self::Error>>;

    /// Ends, once everything in flight is settled or the time for that is over.
    fn close(&mut self) -> impl Future<Output = ()> {
        std::future::ready(())
    }

    /// The reason why a source gives nothing or keeps something back, for people. Looked at each second, and when the source is lost.
    fn trouble(&self) -> Option<String> {
        None
    }

    /// Trying again comes to the same: the start fails with this error.
    fn is_final(_error: &Self::Error) -> bool {
        false
    }
}

/// A message as its source gives it.
#[derive(Debug)]
pub struct Received<P> {
    /// The message's place at the source.
    pub position: P,
    /// The message. One without an id takes effect twice, if it comes again after it took effect.
    pub message: Message,
    /// The message was received before, and not settled.
    pub is_again: bool,
    /// The memory that position and message take.
    pub bytes: usize,
    /// Why the message cannot be trusted to be as it was sent. It is dead then.
    pub damaged: Option<String>,
}

impl<P> Received<P> {
    /// A whole message, received for the first time.
    #[must_use]
    pub fn new(position: P, message: Message) -> Self {
        Self {
            bytes: message.bytes() + size_of::<Self>(),
            position,
            message,
            is_again: false,
            damaged: None,
        }
    }
}

/// A message that need not come again.
#[derive(Debug)]
pub struct Settled<P> {
    /// The message's place at the source.
    pub position: P,
    /// The end of the message.
    pub outcome: Outcome,
}

/// The end of a message.
#[derive(Debug)]
pub enum Outcome {
    /// Its commands are durable.
    Done,
    /// Nobody can take it: the source puts it aside, with the reason.
    Dead(Box<Dead>),
}

/// A message that nobody can take. Its memory is charged to the engine until this is dropped.
#[derive(Debug)]
pub struct Dead {
    /// The message as it came.
    pub message: Message,
    /// Why nobody can take it, for people.
    pub reason: String,
    /// The commands of the message that were refused, counted from 0; the others took effect.
    pub refused: Vec<usize>,
    /// All commands of the message.
    pub commands: usize,
    /// The memory it takes.
    pub bytes: usize,
    pub(crate) _held: Charge,
}
