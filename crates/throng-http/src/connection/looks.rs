//! When the loop last looked at its sockets, while it is busy with bytes that are no request yet.

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
    /// Somebody has read what is no request yet.
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
