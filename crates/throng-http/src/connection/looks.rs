//! The time of the loop's last look at its sockets, while it handles bytes that are no complete request.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    task::{Poll, Waker},
};

/// Notes the next look at the sockets after somebody has read.
#[derive(Default)]
pub(crate) struct Looks {
    is_asked: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Looks {
    /// Asks for the time of the next look, after bytes were read that are no complete request.
    pub(crate) fn ask(&self) {
        if !self.is_asked.replace(true)
            && let Some(waker) = &*self.waker.borrow()
        {
            waker.wake_by_ref();
        }
    }

    /// Calls whenever the loop has looked at its sockets after that, for ever.
    pub(crate) async fn watch(&self, looked: impl Fn()) {
        loop {
            poll_fn(|context| {
                if self.is_asked.get() {
                    return Poll::Ready(());
                }
                *self.waker.borrow_mut() = Some(context.waker().clone());
                Poll::Pending
            })
            .await;
            // The task runs again once the loop has looked at its sockets.
            tokio::task::yield_now().await;
            self.is_asked.set(false);
            looked();
        }
    }
}
