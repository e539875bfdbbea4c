//! The end of a connection whose client may still send: closing it then would reset it, and take from the client the answers that
//! are on their way.

use super::stream::Stream;
use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::Sleep;

/// Bytes that are passed over at most.
const BYTES_MAX: usize = 16 << 20;
/// The most bytes of one read.
const READ_BYTES: usize = 16 << 10;

/// Says that nothing more comes, and passes over what the client sends until it has said so, too, or for a while.
pub(crate) struct Linger {
    until: Pin<Box<Sleep>>,
    left: usize,
}

impl Linger {
    /// `None` if there is nobody any more.
    pub(crate) fn begin(stream: &mut Stream, wait: Duration) -> Option<Self> {
        stream.finish().ok()?;
        Some(Self {
            until: Box::pin(tokio::time::sleep(wait)),
            left: BYTES_MAX,
        })
    }

    /// Ready once the connection may be closed.
    pub(crate) fn poll(&mut self, stream: &Stream, context: &mut Context<'_>) -> Poll<()> {
        let mut passed = [0; READ_BYTES];
        while self.left > 0 && stream.poll_read_ready(context).is_ready() {
            match stream.pass_over(&mut passed) {
                Ok(0) => return Poll::Ready(()),
                Ok(count) => self.left = self.left.saturating_sub(count),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return Poll::Ready(()),
            }
        }
        if self.left == 0 {
            return Poll::Ready(());
        }
        self.until.as_mut().poll(context)
    }
}

/// The same as one wait.
pub(crate) async fn linger(stream: &mut Stream, wait: Duration) {
    if let Some(mut linger) = Linger::begin(stream, wait) {
        std::future::poll_fn(|context| linger.poll(stream, context)).await;
    }
}
