//! A connection's socket. It reports moved bytes to the connection, and passes no byte beyond its request to an HTTP/1 exchange.

use crate::{
    access::cors,
    connection::{AcceptedBy, Connection, Linger, Stream},
    http1::Extent,
    problem::Problem,
    server::Server,
};
use bytes::{Buf, Bytes, BytesMut};
use http::HeaderValue;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use std::{
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

/// The longest answer of the parser's own: a status line and three header fields.
const BARE_BYTES_MAX: usize = 192;
/// The most bytes of one read.
const READ_BYTES: usize = 16 << 10;

pub(super) struct Socket {
    /// Received bytes that were not passed to hyper yet.
    came: BytesMut,
    /// The bytes that may still be passed to hyper: those of the request.
    extent: Extent,
    io: TokioIo<Stream>,
    connection: Rc<Connection>,
    /// The request of an HTTP/1 exchange.
    refused: RefusedHead,
    header_bytes_max: usize,
    /// The problem that replaces the parser's own bare error response. Once set, the connection writes nothing else.
    complaint: Option<Complaint>,
    linger_wait: Duration,
    linger: Option<Linger>,
}

struct Complaint {
    bytes: Vec<u8>,
    written: usize,
    /// The length of the response that the parser believes it has written.
    instead_of: usize,
}

impl Socket {
    pub(super) fn new(
        stream: Stream,
        came: Bytes,
        extent: Extent,
        connection: Rc<Connection>,
        server: &Server,
    ) -> Self {
        let limits = server.limits();
        Self {
            refused: RefusedHead::read(&came, server, connection.accepted_by()),
            came: came.into(),
            extent,
            io: TokioIo::new(stream),
            connection,
            header_bytes_max: limits.header_bytes_max,
            complaint: None,
            linger_wait: limits.linger_wait,
            linger: None,
        }
    }

    /// True if all of the request was passed on.
    pub(super) fn is_over(&self) -> bool {
        self.extent.is_over()
    }

    /// Returns the stream, and received bytes that were not passed on.
    pub(super) fn into_parts(self) -> (Stream, Bytes) {
        (self.io.into_inner(), self.came.freeze())
    }

    /// Reads more bytes; returns true at the end of the stream.
    fn poll_more(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut room = [0; READ_BYTES];
        let mut read = tokio::io::ReadBuf::new(&mut room);
        let polled = tokio::io::AsyncRead::poll_read(Pin::new(self.io.inner_mut()), context, &mut read);
        ready!(polled)?;
        self.connection.came_in_pieces();
        self.came.extend_from_slice(read.filled());
        Poll::Ready(Ok(read.filled().is_empty()))
    }

    /// Checks whether the client has gone, after its request has arrived. Only an endless response needs that: other requests are answered
    /// even if the client has announced its end.
    fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Further bytes belong to the next request, and are read again once this one is answered.
        while self.connection.is_streaming() && self.came.len() < READ_BYTES {
            if ready!(self.poll_more(context))? {
                return Poll::Ready(Ok(()));
            }
        }
        Poll::Pending
    }

    /// Returns the problem to send instead of the parser's bare status for a request it cannot read.
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
            bytes: plain(&problem, &self.refused),
            written: 0,
            instead_of: bare.len(),
        })
    }
}

/// The parts of an HTTP/1 request that a refusal of it needs.
pub(super) struct RefusedHead {
    /// The method is `HEAD`.
    is_head: bool,
    /// The origin of the page, if pages of that origin may send requests.
    origin: Option<HeaderValue>,
}

impl RefusedHead {
    /// Reads the head as far as it has arrived.
    pub(super) fn read(came: &[u8], server: &Server, accepted_by: AcceptedBy) -> Self {
        Self {
            is_head: came.starts_with(b"HEAD "),
            origin: cors::allowed_in(came, &server.shared().guard.names, accepted_by),
        }
    }
}

/// Returns a problem as an HTTP/1.1 response after which the connection closes.
pub(super) fn plain(problem: &Problem, refused: &RefusedHead) -> Vec<u8> {
    let status = problem.http_status();
    let body = serde_json::to_string(problem).unwrap_or_default();
    let mut fields = String::new();
    if problem.is_overload() {
        fields.push_str("retry-after: 1\r\n");
    }
    for (name, value) in refused.origin.iter().cloned().flat_map(cors::fields) {
        let value = String::from_utf8_lossy(value.as_bytes());
        fields.push_str(&format!("{name}: {value}\r\n"));
    }
    let reason = status.canonical_reason().unwrap_or("");
    let length = body.len();
    let body = if refused.is_head { "" } else { &body };
    format!(
        "HTTP/1.1 {} {reason}\r\ncontent-type: application/problem+json\r\n{fields}connection: close\r\ncontent-length: {length}\r\n\r\n{body}",
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
        let this = &mut *self;
        if this.extent.is_over() {
            return this.poll_gone(context);
        }
        if let Extent::All = this.extent
            && this.came.is_empty()
        {
            let read = Pin::new(&mut this.io).poll_read(context, buffer);
            if read.is_ready() {
                this.connection.came_in_pieces();
            }
            return read;
        }
        if this.came.is_empty() {
            ready!(this.poll_more(context))?;
        }
        let fits = this.came.len().min(buffer.remaining());
        let given = this.extent.take(&this.came[..fits]);
        buffer.put_slice(&this.came[..given]);
        this.came.advance(given);
        Poll::Ready(Ok(()))
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
                let wrote = Pin::new(&mut this.io).poll_write(context, &complaint.bytes[complaint.written..]);
                complaint.written += ready!(this.connection.wrote(wrote))?;
            }
            return Poll::Ready(Ok(complaint.instead_of.min(bytes.len())));
        }
        let wrote = Pin::new(&mut this.io).poll_write(context, bytes);
        this.connection.wrote(wrote)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(context);
        if let Poll::Ready(Ok(())) = flushed {
            self.connection.flushed();
        }
        flushed
    }

    /// After the announced end, the other side may still send.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.connection.is_owed_its_end() {
            return Pin::new(&mut this.io).poll_shutdown(context);
        }
        if this.linger.is_none() {
            this.linger = Linger::begin(this.io.inner_mut(), this.linger_wait);
        }
        match &mut this.linger {
            Some(linger) => linger.poll(this.io.inner(), context).map(Ok),
            None => Poll::Ready(Ok(())),
        }
    }

    fn is_write_vectored(&self) -> bool {
        false
    }
}

impl Connection {
    fn wrote(&self, wrote: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &wrote {
            Poll::Ready(wrote) => self.went(*wrote.as_ref().unwrap_or(&0)),
            Poll::Pending => self.blocks(),
        }
        wrote
    }
}
