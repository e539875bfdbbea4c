//! The end of a connection whose client may still send. Closing it at once would reset it, and the client would lose answers that are on
//! their way.

use super::stream::Stream;
use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::Sleep;

/// The most bytes that are discarded.
const BYTES_MAX: usize = 16 << 20;
/// The most bytes of one read.
const READ_BYTES: usize = 16 << 10;

/// Announces the end, and discards what the client sends until it ends, too, or for a while.
pub(crate) struct Linger {
    until: Pin<Box<Sleep>>,
    left: usize,
}

impl Linger {
    /// Begins; `None` if the client has gone already.
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

/// Does the same as a single future.
pub(crate) async fn linger(stream: &mut Stream, wait: Duration) {
    if let Some(mut linger) = Linger::begin(stream, wait) {
        std::future::poll_fn(|context| linger.poll(stream, context)).await;
    }
}
