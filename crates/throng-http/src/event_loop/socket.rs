//! A connection's socket, which tells the connection when bytes move.

use super::{Connection, stream::Stream};
use crate::problem::Problem;
use bytes::Bytes;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use std::{
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

/// The parser's own answers are a status line and three header fields.
const BARE_BYTES_MAX: usize = 192;

pub(super) struct Socket {
    /// What has come before the full lane took over.
    came: Bytes,
    /// Until a WebSocket takes it.
    io: Option<TokioIo<Stream>>,
    connection: Rc<Connection>,
    header_bytes_max: usize,
    /// What is written instead of the parser's own bare complaint: from here on it is ours.
    complaint: Option<Complaint>,
}

struct Complaint {
    bytes: Vec<u8>,
    written: usize,
    /// The length of what the parser believes it has written.
    instead_of: usize,
}

impl Socket {
    pub(super) fn new(stream: Stream, came: Bytes, connection: Rc<Connection>, header_bytes_max: usize) -> Self {
        Self {
            came,
            io: Some(TokioIo::new(stream)),
            connection,
            header_bytes_max,
            complaint: None,
        }
    }

    fn io(&mut self) -> io::Result<Pin<&mut TokioIo<Stream>>> {
        let io = self.io.as_mut();
        io.map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// The parser answers what it cannot read with a bare status; the client deserves a sentence.
    fn complaint(&self, bare: &[u8]) -> Option<Complaint> {
        if bare.len() > BARE_BYTES_MAX || !self.connection.is_between_requests() {
            return None;
        }
        let status = bare.strip_prefix(b"HTTP/1.1 ")?.get(..3)?;
        let problem = match status {
            b"431" => Problem::header_too_large(self.header_bytes_max),
            b"414" => Problem::header_too_large(self.header_bytes_max),
            b"400" => Problem::malformed(
                "These bytes are not an HTTP request, or one of its header fields is not well formed. Nothing was done.",
            ),
            _ => return None,
        };
        Some(Complaint {
            bytes: plain(&problem),
            written: 0,
            instead_of: bare.len(),
        })
    }
}

/// The stream is a WebSocket's.
fn gone<T>() -> Poll<io::Result<T>> {
    Poll::Ready(Err(io::ErrorKind::NotConnected.into()))
}

impl Drop for Socket {
    /// A WebSocket goes on where HTTP has ended, on the same stream: the protocol implementation does not give it back.
    fn drop(&mut self) {
        if !self.connection.is_socket() {
            return;
        }
        if let Some(io) = self.io.take() {
            self.connection.hand_over(io.into_inner());
        }
    }
}

/// A problem as the bytes of an HTTP/1.1 response after which the connection closes.
pub(super) fn plain(problem: &Problem) -> Vec<u8> {
    let status = problem.http_status();
    let body = serde_json::to_string(problem).unwrap_or_default();
    let retry = if problem.is_overload() {
        "retry-after: 1\r\n"
    } else {
        ""
    };
    let reason = status.canonical_reason().unwrap_or("");
    let length = body.len();
    format!(
        "HTTP/1.1 {} {reason}\r\ncontent-type: application/problem+json\r\n{retry}connection: close\r\ncontent-length: {length}\r\n\r\n{body}",
        status.as_u16()
    )
    .into_bytes()
}

impl Read for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.came.is_empty() {
            let fits = self.came.len().min(buffer.remaining());
            buffer.put_slice(&self.came.split_to(fits));
            return Poll::Ready(Ok(()));
        }
        let read = self.io()?.poll_read(context, buffer);
        if read.is_ready() {
            self.connection.came();
        }
        read
    }
}

impl Write for Socket {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if this.complaint.is_none() {
            this.complaint = this.complaint(bytes);
        }
        if let Some(complaint) = &mut this.complaint {
            while complaint.written < complaint.bytes.len() {
                let Some(io) = &mut this.io else { return gone() };
                let wrote = Pin::new(io).poll_write(context, &complaint.bytes[complaint.written..]);
                complaint.written += ready!(this.connection.wrote(wrote))?;
            }
            return Poll::Ready(Ok(complaint.instead_of.min(bytes.len())));
        }
        let wrote = this.io()?.poll_write(context, bytes);
        this.connection.wrote(wrote)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io()?.poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io()?.poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        false
    }
}

impl Connection {
    fn wrote(&self, wrote: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &wrote {
            Poll::Ready(_) => self.went(),
            Poll::Pending => self.blocks(),
        }
        wrote
    }
}
