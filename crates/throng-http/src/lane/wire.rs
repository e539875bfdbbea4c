//! The bytes of a connection, as they come and go.

use crate::{event_loop::Connection, limits::Limits, problem::Problem};
use bytes::{Bytes, BytesMut};
use std::{
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll, ready},
};
use tokio::{
    io::{AsyncReadExt, AsyncWrite},
    net::TcpStream,
};

/// Room for what is read at once.
const READ_BYTES: usize = 4 << 10;
/// A buffer that has grown beyond this is not kept.
const KEPT_BYTES: usize = 16 << 10;

/// What reading brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    Bytes,
    /// The client has said all it will, or the connection is to end.
    End,
}

/// A connection's socket, what has come of it, and what is to go.
pub(super) struct Wire {
    stream: TcpStream,
    connection: Rc<Connection>,
    pub(super) input: BytesMut,
    pub(super) output: Vec<u8>,
}

impl Wire {
    pub(super) fn new(stream: TcpStream, connection: Rc<Connection>) -> Self {
        Self {
            stream,
            connection,
            input: BytesMut::new(),
            output: Vec::new(),
        }
    }

    pub(super) fn into_parts(self) -> (TcpStream, Bytes) {
        (self.stream, self.input.freeze())
    }

    /// Reads what is there, or waits for it; between requests, also for the connection's end.
    pub(super) async fn read(&mut self) -> io::Result<Came> {
        if self.input.is_empty() && self.input.capacity() > KEPT_BYTES {
            self.input = BytesMut::new();
        }
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
        self.input.reserve(length - self.input.len());
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

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Came>> {
        self.input.reserve(READ_BYTES / 4);
        if self.input.capacity() < READ_BYTES {
            self.input.reserve(READ_BYTES);
        }
        let read = ready!(pin!(self.stream.read_buf(&mut self.input)).poll(context))?;
        self.connection.came();
        Poll::Ready(Ok(if read == 0 { Came::End } else { Came::Bytes }))
    }

    /// Writes all that is to go.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        if self.output.is_empty() {
            return Ok(());
        }
        let mut written = 0;
        poll_fn(|context| self.poll_write(context, &mut written)).await?;
        self.output.clear();
        if self.output.capacity() > KEPT_BYTES {
            self.output = Vec::new();
        }
        Ok(())
    }

    fn poll_write(&mut self, context: &mut Context<'_>, written: &mut usize) -> Poll<io::Result<()>> {
        while *written < self.output.len() {
            match Pin::new(&mut self.stream).poll_write(context, &self.output[*written..]) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => {
                    self.connection.went();
                    *written += count;
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    self.connection.blocks();
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(Ok(()))
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
