//! A WebSocket's socket, which tells its connection when bytes move.
//!
//! It is read into a buffer of the loop's, as much as there is at once; what takes the bytes from here may have little room for them.

use crate::{
    connection::{Connection, Received, Stream, is_passing},
    event_loop::EventLoop,
    lane::Input,
};
use std::{
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pub(crate) struct Wire {
    stream: Stream,
    connection: Rc<Connection>,
    event_loop: Rc<EventLoop>,
    input: Input,
}

impl Wire {
    pub(crate) fn new(mut stream: Stream, connection: Rc<Connection>, event_loop: Rc<EventLoop>) -> Self {
        let mut input = Input::default();
        input.bytes = stream.take_came();
        Self {
            stream,
            connection,
            event_loop,
            input,
        }
    }

    /// Reads what is there.
    fn poll_input(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(context))?;
            let buffers = &self.event_loop.buffers;
            buffers.lend(&mut self.input.bytes);
            let Received { count, tried } = self.stream.try_read(&mut self.input.bytes);
            if self.input.is_empty() {
                buffers.take_back(&mut self.input.bytes);
            }
            match (count, tried) {
                (Some(_), _) => {
                    self.connection.came_in_pieces();
                    return Poll::Ready(Ok(()));
                }
                (None, Err(error)) if !is_passing(&error) => return Poll::Ready(Err(error)),
                _ => {}
            }
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.input.is_empty() {
            ready!(self.poll_input(context))?;
        }
        let wire = &mut *self;
        let count = wire.input.len().min(buffer.remaining());
        buffer.put_slice(&wire.input[..count]);
        wire.input.advance(count);
        if wire.input.is_empty() {
            wire.event_loop.buffers.take_back(&mut wire.input.bytes);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(context, bytes);
        match wrote {
            Poll::Ready(_) => self.connection.went(),
            Poll::Pending => self.connection.blocks(),
        }
        wrote
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
