//! A WebSocket's socket, which reports moved bytes to its connection.
//!
//! The socket is read into a buffer of the loop, as much as there is at once. The WebSocket library takes the bytes from here. It gets the
//! bytes of one frame at a time, so that after a message it holds nothing of the next. So another reader can continue from there.

use super::frame::Head;
use crate::{
    connection::{Coming, Connection, Input, Received, Stream, is_passing},
    server::Server,
};
use bytes::Bytes;
use std::{
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};
use throng::driver::Charge;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The least room for one read.
const READ_BYTES: usize = 1 << 10;
/// The largest message that is not charged, since the charge for its connection includes it.
const FREE_BYTES: usize = 4 << 10;

/// The reason why no more of a message is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unwelcome {
    #[error("the messages that come take all the memory they may")]
    NoRoom,
    #[error("a message comes too slowly")]
    Late,
}

pub(crate) struct Wire {
    stream: Stream,
    connection: Rc<Connection>,
    server: Rc<Server>,
    input: Input,
    /// Bytes of a frame that are still to be taken.
    left: u64,
    /// True if the frame being taken, or the last one, is not the last of its message.
    goes_on: bool,
    /// The bytes of the message's frames, including the one being taken.
    message_bytes: u64,
    /// The charge for a message that is large or comes in fragments. The library keeps its buffer after the message.
    charge: Option<Charge>,
    /// The wait for the rest of a message.
    coming: Option<Coming<Rc<Connection>>>,
    /// Bytes with precedence over everything else.
    output: Vec<u8>,
}

impl Wire {
    /// Wraps a socket. `came` has already arrived, and `output` has precedence over everything else.
    pub(crate) fn new(
        mut stream: Stream,
        connection: Rc<Connection>,
        server: Rc<Server>,
        came: Bytes,
        output: Vec<u8>,
    ) -> Self {
        let mut input = Input::default();
        input.bytes = came.into();
        input.bytes.extend(stream.take_came());
        Self {
            stream,
            connection,
            server,
            input,
            left: 0,
            goes_on: false,
            message_bytes: 0,
            charge: None,
            coming: None,
            output,
        }
    }

    /// True if the library has taken complete messages only, and the bytes with precedence were sent.
    pub(super) fn is_between_messages(&self) -> bool {
        self.left == 0 && !self.goes_on && self.output.is_empty()
    }

    /// The library holds the memory of a message that is over.
    pub(super) fn is_swollen(&self) -> bool {
        self.charge.is_some() && self.is_between_messages()
    }

    /// The library has let its memory go.
    pub(super) fn gives_back(&mut self) {
        self.charge = None;
    }

    /// Notes that nothing is read for a while, so that a late message is not its client's fault.
    pub(super) fn pauses(&mut self) {
        self.coming = None;
    }

    /// Charges the memory that the message takes with this frame, whose head has arrived.
    fn charge(&mut self, head: &Head) -> io::Result<()> {
        if head.is_control() {
            return Ok(());
        }
        let (begun, goes_on) = (self.goes_on, head.goes_on(self.goes_on));
        let before = if begun { self.message_bytes } else { 0 };
        self.message_bytes = before.saturating_add(head.length);
        let server = &self.server;
        // The library takes only the head of a message that is too large.
        let most = server.limits().socket_frame_bytes_max;
        let Some(bytes) = usize::try_from(self.message_bytes).ok().filter(|bytes| *bytes <= most) else {
            return Ok(());
        };
        let frame = usize::try_from(head.length).unwrap_or(usize::MAX);
        // Fragments are gathered in a buffer that doubles, beside the arriving frame.
        let takes = if begun || goes_on { 2 * bytes + frame } else { bytes };
        if takes <= FREE_BYTES {
            return Ok(());
        }
        let charge = self.charge.get_or_insert_with(|| server.shared().held.frames.nothing());
        match charge.grow_to(takes) {
            true => Ok(()),
            false => Err(io::Error::other(Unwelcome::NoRoom)),
        }
    }

    /// Returns the socket, and received bytes that were not taken.
    pub(super) fn into_parts(self) -> (Stream, Bytes) {
        (self.stream, self.input.into_vec().into())
    }

    /// Reads what is there; 0 bytes at the end.
    fn poll_input(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        loop {
            let Poll::Ready(ready) = self.stream.poll_read_ready(context) else {
                return self.waits(context);
            };
            ready?;
            let buffers = &self.server.buffers;
            buffers.lend(&mut self.input.bytes);
            self.input.reserve(READ_BYTES);
            let Received { count, tried } = self.stream.try_read(&mut self.input.bytes);
            if self.input.is_empty() {
                buffers.take_back(&mut self.input.bytes);
            }
            match (count, tried) {
                (Some(count), _) => {
                    self.connection.came_in_pieces();
                    if let Some(coming) = &mut self.coming {
                        coming.came(count);
                    }
                    return Poll::Ready(Ok(count));
                }
                (None, Err(error)) if !is_passing(&error) => return Poll::Ready(Err(error)),
                _ => {}
            }
        }
    }

    /// Waits for more input. The rest of a message has as much time as a body.
    fn waits<T>(&mut self, context: &Context<'_>) -> Poll<io::Result<T>> {
        let has_begun = !self.input.is_empty() || self.left > 0 || self.goes_on;
        if !has_begun {
            return Poll::Pending;
        }
        let coming = self.coming.get_or_insert_with(|| Coming::new(self.connection.clone()));
        match coming.waits(context.waker()) {
            true => Poll::Pending,
            false => Poll::Ready(Err(io::Error::other(Unwelcome::Late))),
        }
    }

    /// Makes sure that bytes of a frame are here, unless the client sends no more.
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.left == 0 {
            if let Some(head) = Head::parse(&self.input) {
                self.charge(&head)?;
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

    /// Sends the bytes with precedence.
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
        match &wrote {
            Poll::Ready(wrote) => self.connection.went(*wrote.as_ref().unwrap_or(&0)),
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
        if wire.left == 0 && !wire.goes_on {
            wire.coming = None;
        }
        if wire.input.is_empty() {
            wire.server.buffers.take_back(&mut wire.input.bytes);
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
