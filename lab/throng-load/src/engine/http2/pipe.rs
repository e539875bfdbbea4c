//! The in-memory socket of `h2`.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The bytes that may wait for the socket before writes of `h2` have to wait.
const OUTPUT_BYTES_MAX: usize = 1024 * 1024;

#[derive(Debug, Default)]
pub(super) struct Pipe {
    input: Vec<u8>,
    input_at: usize,
    ended: bool,
    output: Vec<u8>,
    /// True if a write had to wait.
    blocked: bool,
}

impl Pipe {
    pub(super) fn input(&mut self, data: &[u8]) {
        if self.input_at == self.input.len() {
            self.input.clear();
            self.input_at = 0;
        }
        self.input.extend_from_slice(data);
    }

    pub(super) fn end_input(&mut self) {
        self.ended = true;
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Moves the output to `out`. Returns the number of bytes, and true if a write had to wait.
    pub(super) fn take_output(&mut self, out: &mut Vec<u8>) -> (usize, bool) {
        let taken = self.output.len();
        out.append(&mut self.output);
        (taken, std::mem::take(&mut self.blocked))
    }
}

/// The end of the pipe that `h2` holds. It wakes nobody: after the pipe was filled or emptied, the caller polls.
pub(super) struct PipeEnd(pub(super) Rc<RefCell<Pipe>>);

impl AsyncRead for PipeEnd {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut pipe = self.0.borrow_mut();
        let waiting = &pipe.input[pipe.input_at..];
        if waiting.is_empty() && !pipe.ended {
            return Poll::Pending;
        }
        let taken = waiting.len().min(buffer.remaining());
        buffer.put_slice(&waiting[..taken]);
        pipe.input_at += taken;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for PipeEnd {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let mut pipe = self.0.borrow_mut();
        if pipe.output.len() >= OUTPUT_BYTES_MAX {
            pipe.blocked = true;
            return Poll::Pending;
        }
        pipe.output.extend_from_slice(data);
        Poll::Ready(Ok(data.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
