//! A WebSocket's socket, which tells its connection when bytes move.
//!
//! It is read into a buffer of the loop's, as much as there is at once; what takes the bytes from here may have little room for them, and is
//! given those of one frame at a time: behind a message it holds none of the next, so that another can go on from there.

use super::frame::Head;
use crate::{
    connection::{Connection, Received, Stream, is_passing},
    event_loop::EventLoop,
    lane::Input,
};
use bytes::Bytes;
use std::{
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Room for what is read at once, at least.
const READ_BYTES: usize = 1 << 10;

pub(crate) struct Wire {
    stream: Stream,
    connection: Rc<Connection>,
    event_loop: Rc<EventLoop>,
    input: Input,
    /// Bytes of a frame that are still to be taken.
    left: u64,
    /// The frame that is taken, or was last, is not the last one of its message.
    goes_on: bool,
    /// What is to go before all else.
    output: Vec<u8>,
}

impl Wire {
    /// Of a socket of which this has come already, and to which this is to go.
    pub(crate) fn new(
        mut stream: Stream,
        connection: Rc<Connection>,
        event_loop: Rc<EventLoop>,
        came: Bytes,
        output: Vec<u8>,
    ) -> Self {
        let mut input = Input::default();
        input.bytes = came.into();
        input.bytes.extend(stream.take_came());
        Self {
            stream,
            connection,
            event_loop,
            input,
            left: 0,
            goes_on: false,
            output,
        }
    }

    /// All that was taken of it are whole messages, and all is gone that was to go before others.
    pub(super) fn is_between_messages(&self) -> bool {
        self.left == 0 && !self.goes_on && self.output.is_empty()
    }

    /// The socket, and what has come of it and was not taken.
    pub(super) fn into_parts(self) -> (Stream, Bytes) {
        (self.stream, self.input.into_vec().into())
    }

    /// Reads what is there; 0 bytes at the end.
    fn poll_input(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_read_ready(context))?;
            let buffers = &self.event_loop.buffers;
            buffers.lend(&mut self.input.bytes);
            self.input.reserve(READ_BYTES);
            let Received { count, tried } = self.stream.try_read(&mut self.input.bytes);
            if self.input.is_empty() {
                buffers.take_back(&mut self.input.bytes);
            }
            match (count, tried) {
                (Some(count), _) => {
                    self.connection.came_in_pieces();
                    return Poll::Ready(Ok(count));
                }
                (None, Err(error)) if !is_passing(&error) => return Poll::Ready(Err(error)),
                _ => {}
            }
        }
    }

    /// Has something of a frame, unless the client says no more.
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.left == 0 {
            if let Some(head) = Head::parse(&self.input) {
                self.left = head.length.saturating_add(head.bytes as u64);
                self.goes_on = head.goes_on(self.goes_on);
            } else if ready!(self.poll_input(context))? == 0 {
                self.left = self.input.len() as u64;
                return Poll::Ready(Ok(()));
            }
        }
        if self.input.is_empty() {
            ready!(self.poll_input(context))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Sends what is to go before all else.
    fn poll_output(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.output.is_empty() {
            let output = std::mem::take(&mut self.output);
            let wrote = self.poll_stream(context, &output);
            self.output = output;
            match ready!(wrote)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count if count == self.output.len() => self.output = Vec::new(),
                count => drop(self.output.drain(..count)),
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_stream(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(context, bytes);
        match wrote {
            Poll::Ready(_) => self.connection.went(),
            Poll::Pending => self.connection.blocks(),
        }
        wrote
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_frame(context))?;
        let wire = &mut *self;
        let left = usize::try_from(wire.left).unwrap_or(usize::MAX);
        let count = wire.input.len().min(buffer.remaining()).min(left);
        buffer.put_slice(&wire.input[..count]);
        wire.input.advance(count);
        wire.left -= count as u64;
        if wire.input.is_empty() {
            wire.event_loop.buffers.take_back(&mut wire.input.bytes);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_output(context))?;
        self.poll_stream(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_output(context))?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
