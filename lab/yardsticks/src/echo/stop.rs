//! The flag that ends the loops.

use super::EchoError;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Ends every loop that serves with it, at once and for good.
///
/// The stop is an `eventfd` that is written once and never read. Each loop waits for it together with its sockets, so no loop has to poll it.
#[derive(Debug)]
pub struct Stop {
    event: OwnedFd,
}

impl Stop {
    /// Returns a flag that is not raised.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub fn new() -> Result<Self, EchoError> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(EchoError::failed("make the flag that stops the loops"))?;
        Ok(Self { event })
    }

    /// Ends the loops. Raising the flag again changes nothing.
    pub fn raise(&self) {
        // The only error is a counter that would overflow. Then it has been raised already.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }
}

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
