//! Sources of messages.

use crate::Message;
use std::{error::Error, future::Future, io};
use throng::driver::Charge;

/// A source of messages: a queue, a partition of a log, a file. It is told which messages are settled.
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

    /// Connects, and starts at the first message that is not settled. Called at the start, and after each error with growing pauses.
    /// Messages received and not settled should hold at most about `bytes_max`.
    ///
    /// # Errors
    /// The source cannot be reached, or refuses to be read.
    fn open(&mut self, bytes_max: usize) -> impl Future<Output = Result<(), Self::Error>>;

    /// Waits for messages, and returns them in order. It may also return none after a pause. The messages of one return are committed
    /// together unless there are too many.
    ///
    /// The future may be dropped at any await, and a new one is made. Messages taken by then must stay with the source.
    ///
    /// # Errors
    /// The connection is lost. After the next [`open`](Self::open), messages that are not settled must be received again.
    fn receive(&mut self) -> impl Future<Output = Result<Vec<Received<Self::Position>>, Self::Error>>;

    /// Notes the messages that are settled: their commands are durable, or were refused for good. They are passed in the order received,
    /// without gaps. The future is dropped only if nothing is settled afterwards.
    ///
    /// # Errors
    /// The connection is lost.
    fn settle(&mut self, settled: Vec<Settled<Self::Position>>) -> impl Future<Output = Result<(), Self::Error>>;

    /// Closes the source, after everything in flight was settled or the time for that ended.
    fn close(&mut self) -> impl Future<Output = ()> {
        std::future::ready(())
    }

    /// Returns for people why the source gives nothing or keeps something back. Read every second, and when the connection is lost.
    fn trouble(&self) -> Option<String> {
        None
    }

    /// Tells whether a retry would fail the same way. Then the start fails with this error.
    fn is_final(_error: &Self::Error) -> bool {
        false
    }
}

/// A message as its source gives it.
#[derive(Debug)]
pub struct Received<P> {
    /// The message's place at the source.
    pub position: P,
    /// The message. If it has no id and is received again after it took effect, it takes effect twice.
    pub message: Message,
    /// True if the message was received before without being settled.
    pub is_again: bool,
    /// The memory that position and message take.
    pub bytes: usize,
    /// The reason why the message may differ from what was sent. Such a message becomes a dead letter.
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

/// A message that must not be received again.
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
    /// No entity can accept the message. The source stores it aside with the reason.
    Dead(Box<Dead>),
}

/// A message that no entity can accept. Its memory is charged to the engine until this is dropped.
#[derive(Debug)]
pub struct Dead {
    /// The message as received.
    pub message: Message,
    /// The reason, for people.
    pub reason: String,
    /// The indices of the message's commands that were refused, from 0. The others took effect.
    pub refused: Vec<usize>,
    /// All commands of the message.
    pub commands: usize,
    /// The memory it takes.
    pub bytes: usize,
    pub(crate) _held: Charge,
}
