//! A connection's socket: plain, or under TLS.
//!
//! The fast path, hyper and WebSockets read and write here. A plain socket has no layer in between: the fast path reads the kernel's bytes
//! into its own buffer. Under TLS, a read decrypts everything that has arrived, so that only the socket knows whether there is more. A
//! write encrypts at once; a bounded part of the result may wait for the client.

use rustix::{
    buffer::spare_capacity,
    net::{RecvFlags, SendFlags, recv, send},
};
use rustls::{ServerConfig, ServerConnection};
use socket2::SockRef;
use std::{
    cell::RefCell,
    future::poll_fn,
    io::{self, BufRead as _, IoSlice, Write as _},
    net::Shutdown,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::TcpStream,
};

/// The most bytes of one read under TLS: a complete record.
const RECORD_BYTES: usize = 18 << 10;

thread_local! {
    /// The received bytes before their decryption. The buffer belongs to the loop.
    static ENCRYPTED: RefCell<Vec<u8>> = RefCell::new(Vec::with_capacity(RECORD_BYTES));
}

pub(crate) struct Stream {
    socket: TcpStream,
    tls: Option<Box<Tls>>,
}

struct Tls {
    session: ServerConnection,
    /// Decrypted bytes that a reader with its own buffer has not taken yet.
    came: Vec<u8>,
    taken: usize,
}

/// The outcome of an attempt to read.
pub(crate) struct Received {
    /// The number of bytes; 0 at the end of the stream, `None` if there was nothing.
    pub(crate) count: Option<usize>,
    pub(crate) tried: io::Result<()>,
}

impl Stream {
    pub(crate) fn plain(socket: TcpStream) -> Self {
        Self { socket, tls: None }
    }

    /// Opens a session of TLS on a socket.
    pub(crate) async fn accept(socket: TcpStream, config: Arc<ServerConfig>) -> io::Result<Self> {
        let session = ServerConnection::new(config).map_err(io::Error::other)?;
        let tls = Tls {
            session,
            came: Vec::new(),
            taken: 0,
        };
        let mut stream = Self {
            socket,
            tls: Some(Box::new(tls)),
        };
        poll_fn(|context| stream.poll_handshake(context)).await?;
        Ok(stream)
    }

    fn poll_handshake(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_flushed(context))?;
            if self.tls.as_ref().is_none_or(|tls| !tls.session.is_handshaking()) {
                return Poll::Ready(Ok(()));
            }
            ready!(self.socket.poll_read_ready(context))?;
            let mut came = self.take_came();
            let received = self.try_read(&mut came);
            if let Some(tls) = &mut self.tls {
                tls.came = came;
            }
            match (received.count, received.tried) {
                (Some(0), _) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                (None, Err(error)) if !is_passing(&error) => {
                    // The client gets the reason, if it still listens.
                    let _ = self.flush_now();
                    return Poll::Ready(Err(error));
                }
                _ => {}
            }
        }
    }

    /// Returns the decrypted bytes that were not read: after the handshake, the beginning of the first request.
    pub(crate) fn take_came(&mut self) -> Vec<u8> {
        self.tls.as_mut().map_or_else(Vec::new, |tls| {
            tls.came.drain(..std::mem::take(&mut tls.taken));
            std::mem::take(&mut tls.came)
        })
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns the client's certificate chain.
    pub(crate) fn certificates(&self) -> Option<&[rustls::pki_types::CertificateDer<'static>]> {
        self.tls.as_ref()?.session.peer_certificates()
    }

    pub(crate) fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_read_ready(context)
    }

    /// Copies the first received bytes without consuming them. Under TLS they are unknown.
    pub(crate) fn peek(&self, first: &mut [u8]) -> usize {
        match self.tls {
            None => recv(&self.socket, first, RecvFlags::PEEK).map_or(0, |(_, count)| count),
            Some(_) => 0,
        }
    }

    /// Reads what is there: from a plain socket as much as there is room for, under TLS all of it.
    pub(crate) fn try_read(&mut self, bytes: &mut Vec<u8>) -> Received {
        if self.tls.is_some() {
            return self.try_decrypt(bytes);
        }
        let room = bytes.capacity() - bytes.len();
        let mut count = None;
        let tried = self.socket.try_io(Interest::READABLE, || {
            let read = recv(&self.socket, spare_capacity(bytes), RecvFlags::empty())?;
            count = Some(read.0);
            read_all(read.0, room)
        });
        Received { count, tried }
    }

    fn try_decrypt(&mut self, bytes: &mut Vec<u8>) -> Received {
        let before = bytes.len();
        let Self { socket, tls } = self;
        let Some(tls) = tls else {
            return Received {
                count: None,
                tried: Ok(()),
            };
        };
        let mut is_end = false;
        let tried = ENCRYPTED.with_borrow_mut(|encrypted| {
            encrypted.clear();
            encrypted.reserve(RECORD_BYTES);
            let room = encrypted.capacity();
            let read = socket.try_io(Interest::READABLE, || {
                let (count, _) = recv(&*socket, spare_capacity(encrypted), RecvFlags::empty())?;
                is_end = count == 0;
                read_all(count, room)
            });
            tls.decrypt(encrypted, bytes, &mut is_end)?;
            read
        });
        let flushed = self.flush_now().map(drop);
        let count = match bytes.len() - before {
            0 if is_end => Some(0),
            0 => None,
            count => Some(count),
        };
        Received {
            count,
            tried: tried.and(flushed),
        }
    }

    /// Sends as many bytes as possible at once. Nothing else must be waiting before them.
    pub(crate) fn send_now(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.tls {
            None => Ok(send(&self.socket, bytes, SendFlags::NOSIGNAL)?),
            Some(_) => self.encrypt(bytes),
        }
    }

    /// Encrypts as many bytes as may wait, and sends what is possible.
    fn encrypt(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return Ok(0) };
        let count = tls.session.writer().write(bytes)?;
        self.flush_now()?;
        Ok(count)
    }

    /// Encrypted bytes wait for the client.
    pub(crate) fn has_backlog(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.session.wants_write())
    }

    /// Sends encrypted bytes as far as possible; returns true if that was all.
    fn flush_now(&mut self) -> io::Result<bool> {
        let Self { socket, tls } = self;
        let Some(tls) = tls else { return Ok(true) };
        while tls.session.wants_write() {
            match tls.session.write_tls(&mut Sender(socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Writes some of these bytes, once there is room.
    pub(crate) fn poll_send(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.tls.is_some() {
            // Bytes encrypted earlier have to be sent first.
            ready!(self.poll_flushed(context))?;
            return Poll::Ready(self.encrypt(bytes));
        }
        loop {
            ready!(self.socket.poll_write_ready(context))?;
            let sent = self.socket.try_io(Interest::WRITABLE, || {
                Ok(send(&self.socket, bytes, SendFlags::NOSIGNAL)?)
            });
            match sent {
                Err(error) if is_passing(&error) => {}
                sent => return Poll::Ready(sent),
            }
        }
    }

    /// Announces the end of the sent bytes.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            tls.session.send_close_notify();
            self.flush_now()?;
        }
        SockRef::from(&self.socket).shutdown(Shutdown::Write)
    }

    /// Reads and discards bytes, encrypted or not.
    pub(crate) fn pass_over(&self, bytes: &mut [u8]) -> io::Result<usize> {
        self.socket.try_read(bytes)
    }

    /// Is ready once no encrypted bytes wait.
    pub(crate) fn poll_flushed(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match self.flush_now() {
                Ok(true) => return Poll::Ready(Ok(())),
                Ok(false) => ready!(self.socket.poll_write_ready(context))?,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl Drop for Stream {
    /// Announces the end: under TLS an unannounced end may be an attack.
    fn drop(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.session.send_close_notify();
            let _ = self.flush_now();
        }
    }
}

impl Tls {
    /// Decrypts everything that has arrived.
    fn decrypt(&mut self, mut encrypted: &[u8], bytes: &mut Vec<u8>, is_end: &mut bool) -> io::Result<()> {
        while !encrypted.is_empty() {
            self.session.read_tls(&mut encrypted)?;
            let state = self.session.process_new_packets();
            let state = state.map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))?;
            *is_end |= state.peer_has_closed();
            let mut reader = self.session.reader();
            while let Ok(chunk) = reader.fill_buf() {
                let count = chunk.len();
                if count == 0 {
                    break;
                }
                bytes.extend_from_slice(chunk);
                reader.consume(count);
            }
            if *is_end {
                break;
            }
        }
        Ok(())
    }
}

/// The socket as a session writes to it.
struct Sender<'a>(&'a TcpStream);

impl io::Write for Sender<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Fewer bytes than there was room for are all there were: the next read would find none.
fn read_all(count: usize, room: usize) -> io::Result<()> {
    if count > 0 && count < room {
        Err(io::ErrorKind::WouldBlock.into())
    } else {
        Ok(())
    }
}

/// The attempt can be repeated: at once, or when the socket is ready.
pub(crate) fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.tls.is_none() {
            return Pin::new(&mut this.socket).poll_read(context, buffer);
        }
        loop {
            if let Some(tls) = &mut this.tls
                && tls.taken < tls.came.len()
            {
                let left = &tls.came[tls.taken..];
                let count = left.len().min(buffer.remaining());
                buffer.put_slice(&left[..count]);
                tls.taken += count;
                return Poll::Ready(Ok(()));
            }
            ready!(this.socket.poll_read_ready(context))?;
            let mut came = this.take_came();
            let received = this.try_read(&mut came);
            if let Some(tls) = &mut this.tls {
                tls.came = came;
            }
            match (received.count, received.tried) {
                (Some(0), _) => return Poll::Ready(Ok(())),
                (None, Err(error)) if !is_passing(&error) => return Poll::Ready(Err(error)),
                _ => {}
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_send(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flushed(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(tls) = &mut self.tls {
            tls.session.send_close_notify();
        }
        ready!(self.poll_flushed(context))?;
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
