//! The bytes of a connection, as they come and go.

use super::buffers::{BUFFER_BYTES, Input, KEPT_BYTES};
use crate::{
    connection::{Connection, Received, Stream, is_passing},
    event_loop::EventLoop,
    problem::Problem,
};
use bytes::Bytes;
use std::{
    future::poll_fn,
    io,
    rc::Rc,
    task::{Context, Poll, ready},
};
use throng::driver::Charge;

/// Room for what is read at once, at least.
const READ_BYTES: usize = BUFFER_BYTES / 4;

/// What reading brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadOutcome {
    Bytes,
    /// The client has said all it will, or the connection is to end.
    End,
}

/// A connection's socket, what has come of it, and what is to go.
pub(crate) struct Wire {
    stream: Stream,
    event_loop: Rc<EventLoop>,
    connection: Rc<Connection>,
    pub(super) input: Input,
    /// So many bytes of what comes next are passed over.
    unwanted: usize,
    output: Vec<u8>,
    /// The memory of large replies in it.
    charge: Option<Charge>,
}

impl Wire {
    pub(crate) fn new(mut stream: Stream, event_loop: Rc<EventLoop>, connection: Rc<Connection>) -> Self {
        let mut input = Input::default();
        input.bytes = stream.take_came();
        if !input.is_empty() {
            connection.came();
        }
        Self {
            stream,
            event_loop,
            connection,
            input,
            unwanted: 0,
            output: Vec::new(),
            charge: None,
        }
    }

    /// The same, of which this has come already.
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

    /// So many bytes of what has come are done with.
    pub(super) fn advance(&mut self, count: usize) {
        self.input.advance(count);
        self.give_back_input();
    }

    /// The same, also of bytes that have yet to come.
    pub(super) fn pass_over(&mut self, count: usize) {
        self.unwanted = count.saturating_sub(self.input.len());
        self.advance(count - self.unwanted);
    }

    /// The first bytes that have come, as far as they fit; none are done with.
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
            self.event_loop.buffers.take_back(&mut self.input.bytes);
        }
    }

    /// Where answers are written.
    pub(super) fn output(&mut self) -> &mut Vec<u8> {
        self.event_loop.buffers.lend(&mut self.output);
        &mut self.output
    }

    /// Holds the memory of a reply until it is gone.
    pub(super) fn hold(&mut self, charge: Option<Charge>) {
        match (&mut self.charge, charge) {
            (Some(held), Some(charge)) => held.join(charge),
            (held, Some(charge)) => *held = Some(charge),
            (_, None) => {}
        }
    }

    /// All that was written is gone.
    pub(super) fn is_gone(&mut self) {
        self.charge = None;
    }

    /// Answers that are to go still, and their memory.
    pub(super) fn take_output(&mut self) -> (Vec<u8>, Option<Charge>) {
        (std::mem::take(&mut self.output), self.charge.take())
    }

    /// Reads what is there, or waits for it; between requests, also for the connection's end.
    pub(super) async fn read(&mut self) -> io::Result<ReadOutcome> {
        poll_fn(|context| {
            if self.connection.is_ending() {
                return Poll::Ready(Ok(ReadOutcome::End));
            }
            self.poll_read(context)
        })
        .await
    }

    /// Reads until so many bytes are there, which count among those of bodies in flight until what is returned is dropped.
    pub(super) async fn read_to(&mut self, length: usize) -> io::Result<Result<Charge, Box<Problem>>> {
        let (event_loop, connection) = (self.event_loop.clone(), self.connection.clone());
        let mut coming = connection.coming();
        let mut taken = match event_loop.server.takes_body(None, self.input.bytes.capacity()) {
            Ok(taken) => taken,
            Err(problem) => return Ok(Err(problem)),
        };
        while self.input.len() < length {
            let before = self.input.len();
            self.input.reserve((length - before).min(KEPT_BYTES));
            let came = poll_fn(|context| match self.poll_read(context) {
                Poll::Ready(came) => {
                    connection.came_in_pieces();
                    Poll::Ready(came.map(Some))
                }
                Poll::Pending if coming.waits(context.waker()) => Poll::Pending,
                Poll::Pending => Poll::Ready(Ok(None)),
            });
            match came.await? {
                Some(ReadOutcome::Bytes) => {
                    coming.came(self.input.len().saturating_sub(before));
                    taken = match event_loop.server.takes_body(Some(taken), self.input.bytes.capacity()) {
                        Ok(taken) => taken,
                        Err(problem) => return Ok(Err(problem)),
                    };
                }
                Some(ReadOutcome::End) => {
                    return Ok(Err(Problem::malformed(
                        "The body ended before it was complete. Nothing was done.",
                    )
                    .boxed()));
                }
                None => return Ok(Err(event_loop.server.late_body())),
            }
        }
        Ok(Ok(taken))
    }

    /// Reads what is there.
    pub(super) fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<ReadOutcome>> {
        loop {
            let Poll::Ready(ready) = self.stream.poll_read_ready(context) else {
                self.give_back_input();
                return Poll::Pending;
            };
            ready?;
            self.event_loop.buffers.lend(&mut self.input.bytes);
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

    /// Has this context woken once there is something to read; `false`: there may be already.
    pub(super) fn arm(&self, context: &mut Context<'_>) -> bool {
        self.stream.poll_read_ready(context).is_pending()
    }

    /// Sends bytes that nothing else waits before, as many as go at once.
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

    /// Some of what was sent waits all the same.
    pub(super) fn has_backlog(&self) -> bool {
        self.stream.has_backlog()
    }

    pub(super) fn is_tls(&self) -> bool {
        self.stream.is_tls()
    }

    /// Writes all that is to go.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        if self.output.is_empty() && !self.has_backlog() {
            self.is_gone();
            return Ok(());
        }
        let mut written = 0;
        poll_fn(|context| self.poll_write(context, &mut written)).await?;
        self.event_loop.buffers.take_back(&mut self.output);
        self.is_gone();
        Ok(())
    }

    fn poll_write(&mut self, context: &mut Context<'_>, written: &mut usize) -> Poll<io::Result<()>> {
        while *written < self.output.len() {
            let Poll::Ready(sent) = self.stream.poll_send(context, &self.output[*written..]) else {
                self.connection.blocks();
                return Poll::Pending;
            };
            match sent? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => {
                    self.connection.went(count);
                    *written += count;
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

    /// While a response comes slowly: writes what is there of it; ready when the client is gone.
    pub(super) fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        let mut written = 0;
        let wrote = self.poll_write(context, &mut written);
        self.output.drain(..written);
        if let Poll::Ready(Err(error)) = wrote {
            return Poll::Ready(error);
        }
        // A client that sends more than fits meanwhile is read again when it has its answer.
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
