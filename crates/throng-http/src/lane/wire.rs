//! The bytes of a connection, as they come and go.

use super::buffers::{BUFFER_BYTES, Input, KEPT_BYTES};
use crate::{
    event_loop::{Connection, Local, Received, Stream, is_passing},
    limits::Limits,
    problem::Problem,
};
use bytes::Bytes;
use std::{
    future::poll_fn,
    io,
    rc::Rc,
    task::{Context, Poll, ready},
};

/// Room for what is read at once, at least.
const READ_BYTES: usize = BUFFER_BYTES / 4;

/// What reading brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    Bytes,
    /// The client has said all it will, or the connection is to end.
    End,
}

/// A connection's socket, what has come of it, and what is to go.
pub(crate) struct Wire {
    stream: Stream,
    local: Rc<Local>,
    connection: Rc<Connection>,
    pub(super) input: Input,
    /// So many bytes of what comes next are passed over.
    unwanted: usize,
    output: Vec<u8>,
}

impl Wire {
    pub(crate) fn new(mut stream: Stream, local: Rc<Local>, connection: Rc<Connection>) -> Self {
        let mut input = Input::default();
        input.bytes = stream.take_came();
        if !input.is_empty() {
            connection.came();
        }
        Self {
            stream,
            local,
            connection,
            input,
            unwanted: 0,
            output: Vec::new(),
        }
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
            self.local.buffers.take_back(&mut self.input.bytes);
        }
    }

    /// Where answers are written.
    pub(super) fn output(&mut self) -> &mut Vec<u8> {
        self.local.buffers.lend(&mut self.output);
        &mut self.output
    }

    /// Reads what is there, or waits for it; between requests, also for the connection's end.
    pub(super) async fn read(&mut self) -> io::Result<Came> {
        poll_fn(|context| {
            if self.connection.is_ending() {
                return Poll::Ready(Ok(Came::End));
            }
            self.poll_read(context)
        })
        .await
    }

    /// Reads until so many bytes are there.
    pub(super) async fn read_to(&mut self, length: usize, limits: &Limits) -> io::Result<Result<(), Box<Problem>>> {
        self.input.reserve(length.saturating_sub(self.input.len()));
        while self.input.len() < length {
            let came = poll_fn(|context| match self.poll_read(context) {
                Poll::Ready(came) => Poll::Ready(came.map(Some)),
                Poll::Pending if self.connection.waits_for_body(context.waker()) => Poll::Pending,
                Poll::Pending => Poll::Ready(Ok(None)),
            });
            match came.await? {
                Some(Came::Bytes) => {}
                Some(Came::End) => {
                    return Ok(Err(Problem::malformed(
                        "The body ended before it was complete. Nothing was done.",
                    )
                    .boxed()));
                }
                None => return Ok(Err(Problem::request_timeout(limits.body_wait).boxed())),
            }
        }
        Ok(Ok(()))
    }

    /// Reads what is there.
    pub(super) fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Came>> {
        loop {
            let Poll::Ready(ready) = self.stream.poll_read_ready(context) else {
                self.give_back_input();
                return Poll::Pending;
            };
            ready?;
            self.local.buffers.lend(&mut self.input.bytes);
            self.input.reserve(READ_BYTES);
            let Received { count, tried } = self.stream.try_read(&mut self.input.bytes);
            match (count, tried) {
                (Some(count), _) => {
                    self.connection.came();
                    if self.unwanted > 0 {
                        self.pass_over(self.unwanted);
                    }
                    return Poll::Ready(Ok(if count == 0 { Came::End } else { Came::Bytes }));
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
                self.connection.went();
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
            return Ok(());
        }
        let mut written = 0;
        poll_fn(|context| self.poll_write(context, &mut written)).await?;
        self.local.buffers.take_back(&mut self.output);
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
                    self.connection.went();
                    *written += count;
                }
            }
        }
        let flushed = self.stream.poll_flushed(context);
        match flushed.is_ready() {
            true => self.connection.went(),
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
                Ok(Came::Bytes) => {}
                Ok(Came::End) => return Poll::Ready(io::ErrorKind::UnexpectedEof.into()),
                Err(error) => return Poll::Ready(error),
            }
        }
        Poll::Pending
    }
}
