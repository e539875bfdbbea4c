//! The received and outgoing bytes of a connection.

use crate::{
    connection::{BUFFER_BYTES, Coming, Connection, Input, KEPT_BYTES, Received, Stream, is_passing},
    problem::{Answered, Problem},
    server::Server,
};
use bytes::Bytes;
use std::{
    io,
    rc::Rc,
    task::{Context, Poll, ready},
};
use throng::driver::Charge;

/// The least room for one read.
const READ_BYTES: usize = BUFFER_BYTES / 4;

/// The outcome of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadOutcome {
    Bytes,
    /// The client has announced its end, or the connection is to end.
    End,
}

/// A body that arrives in pieces. It counts as in flight until this is dropped.
pub(crate) struct ComingBody {
    /// The end of its request among the received bytes.
    end: usize,
    coming: Coming<Rc<Connection>>,
    taken: Option<Charge>,
}

impl ComingBody {
    /// Returns the charge for a complete body.
    pub(super) fn into_charge(self) -> Option<Charge> {
        self.taken
    }
}

/// A connection's socket, with received bytes and those to be sent.
pub(crate) struct Wire {
    stream: Stream,
    server: Rc<Server>,
    connection: Rc<Connection>,
    pub(super) input: Input,
    /// The number of bytes to be discarded when they arrive.
    unwanted: usize,
    output: Vec<u8>,
    /// The number of bytes that were sent.
    sent: usize,
    /// The memory of large replies in it.
    charge: Option<Charge>,
}

impl Wire {
    pub(crate) fn new(mut stream: Stream, server: Rc<Server>, connection: Rc<Connection>) -> Self {
        let mut input = Input::default();
        input.bytes = stream.take_came();
        if !input.is_empty() {
            connection.came();
        }
        Self {
            stream,
            server,
            connection,
            input,
            unwanted: 0,
            output: Vec::new(),
            sent: 0,
            charge: None,
        }
    }

    /// Does the same with bytes that were already received.
    pub(crate) fn with(mut self, came: Bytes) -> Self {
        if !came.is_empty() {
            let behind = std::mem::replace(&mut self.input.bytes, came.into());
            self.input.bytes.extend_from_slice(&behind);
        }
        self
    }

    pub(super) fn into_parts(self) -> (Stream, Bytes) {
        (self.stream, self.input.into_vec().into())
    }

    /// Consumes this many of the received bytes.
    pub(super) fn advance(&mut self, count: usize) {
        self.input.advance(count);
        self.give_back_input();
    }

    /// Does the same, including bytes that have yet to arrive.
    pub(super) fn pass_over(&mut self, count: usize) {
        self.unwanted = count.saturating_sub(self.input.len());
        self.advance(count - self.unwanted);
    }

    /// Copies the first received bytes, as far as they fit, without consuming any.
    pub(super) fn peek<'a>(&self, first: &'a mut [u8]) -> &'a [u8] {
        let count = if self.input.is_empty() {
            self.stream.peek(first)
        } else {
            let count = self.input.len().min(first.len());
            first[..count].copy_from_slice(&self.input[..count]);
            count
        };
        first.get(..count).unwrap_or_default()
    }

    fn give_back_input(&mut self) {
        if self.input.is_empty() {
            self.server.buffers.take_back(&mut self.input.bytes);
        }
    }

    /// Returns the buffer that answers are written into.
    pub(super) fn output(&mut self) -> &mut Vec<u8> {
        self.server.buffers.lend(&mut self.output);
        &mut self.output
    }

    /// Keeps the charge for a reply until it is sent.
    pub(super) fn hold(&mut self, charge: Option<Charge>) {
        match (&mut self.charge, charge) {
            (Some(held), Some(charge)) => held.join(charge),
            (held, Some(charge)) => *held = Some(charge),
            (_, None) => {}
        }
    }

    /// True if written bytes were not sent yet.
    pub(super) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Notes that all written bytes were sent.
    pub(super) fn is_gone(&mut self) {
        self.charge = None;
    }

    /// Answers that are to go still, and their memory.
    pub(super) fn take_output(&mut self) -> (Vec<u8>, Option<Charge>) {
        (std::mem::take(&mut self.output), self.charge.take())
    }

    /// Begins the body of a request that ends there and has not fully arrived.
    pub(super) fn body(&self, end: usize) -> ComingBody {
        ComingBody {
            end,
            coming: Coming::new(self.connection.clone()),
            taken: None,
        }
    }

    /// Reads until a body is complete; a problem if it is late, ends early, or finds no room.
    pub(super) fn poll_body(
        &mut self,
        body: &mut ComingBody,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Answered<()>>> {
        loop {
            match self.server.takes_body(body.taken.take(), self.input.bytes.capacity()) {
                Ok(taken) => body.taken = Some(taken),
                Err(problem) => return Poll::Ready(Ok(Err(problem))),
            }
            let before = self.input.len();
            if before >= body.end {
                return Poll::Ready(Ok(Ok(())));
            }
            self.input.reserve((body.end - before).min(KEPT_BYTES));
            match self.poll_read(context) {
                Poll::Ready(came) => {
                    self.connection.came_in_pieces();
                    if came? == ReadOutcome::End {
                        let detail = "The body ended before it was complete. Nothing was done.";
                        return Poll::Ready(Ok(Err(Problem::malformed(detail).boxed())));
                    }
                    body.coming.came(self.input.len().saturating_sub(before));
                }
                Poll::Pending if body.coming.waits(context.waker()) => return Poll::Pending,
                Poll::Pending => return Poll::Ready(Ok(Err(self.server.late_body()))),
            }
        }
    }

    /// Reads what is there.
    pub(super) fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<ReadOutcome>> {
        loop {
            let Poll::Ready(ready) = self.stream.poll_read_ready(context) else {
                self.give_back_input();
                return Poll::Pending;
            };
            ready?;
            self.server.buffers.lend(&mut self.input.bytes);
            self.input.reserve(READ_BYTES);
            let Received { count, tried } = self.stream.try_read(&mut self.input.bytes);
            match (count, tried) {
                (Some(count), _) => {
                    self.connection.came();
                    if self.unwanted > 0 {
                        self.pass_over(self.unwanted);
                    }
                    return Poll::Ready(Ok(if count == 0 {
                        ReadOutcome::End
                    } else {
                        ReadOutcome::Bytes
                    }));
                }
                (None, Err(error)) if !is_passing(&error) => return Poll::Ready(Err(error)),
                _ => {}
            }
        }
    }

    /// Has this context woken once there is something to read; `false`: there may be something already.
    pub(super) fn arm(&self, context: &mut Context<'_>) -> bool {
        self.stream.poll_read_ready(context).is_pending()
    }

    /// Sends as many bytes as possible at once. Nothing else must be waiting before them.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.stream.send_now(bytes) {
            Ok(count) => {
                self.connection.went(count);
                Ok(count)
            }
            Err(error) if is_passing(&error) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// True if some of what was sent still waits.
    pub(super) fn has_backlog(&self) -> bool {
        self.stream.has_backlog()
    }

    pub(super) fn is_tls(&self) -> bool {
        self.stream.is_tls()
    }

    /// Writes all that is to go.
    pub(super) fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.output.is_empty() || self.has_backlog() {
            ready!(self.poll_write(context))?;
            self.sent = 0;
            self.server.buffers.take_back(&mut self.output);
        }
        self.is_gone();
        Poll::Ready(Ok(()))
    }

    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.output.len() {
            let Poll::Ready(sent) = self.stream.poll_send(context, &self.output[self.sent..]) else {
                self.connection.blocks();
                return Poll::Pending;
            };
            match sent? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => {
                    self.connection.went(count);
                    self.sent += count;
                }
            }
        }
        let flushed = self.stream.poll_flushed(context);
        match flushed.is_ready() {
            true => self.connection.went(0),
            false => self.connection.blocks(),
        }
        flushed
    }

    /// Writes what is available of a slow response; ready when the client has left.
    pub(super) fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        let wrote = self.poll_write(context);
        self.output.drain(..std::mem::take(&mut self.sent));
        if let Poll::Ready(Err(error)) = wrote {
            return Poll::Ready(error);
        }
        // Further bytes from the client are read after it has its answer.
        while self.input.len() < KEPT_BYTES {
            match ready!(self.poll_read(context)) {
                Ok(ReadOutcome::Bytes) => {}
                Ok(ReadOutcome::End) => return Poll::Ready(io::ErrorKind::UnexpectedEof.into()),
                Err(error) => return Poll::Ready(error),
            }
        }
        Poll::Pending
    }
}
