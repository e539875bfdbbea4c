//! Waiting in a task: a future that any runtime can drive.

use std::{
    future::poll_fn,
    task::{Context, Poll},
};

/// Waits with a side's poll function. If the future is dropped, the side leaves the list of waiters.
pub(crate) async fn later<S, R>(side: &mut S, poll: fn(&mut S, &mut Context<'_>) -> Poll<R>, leave: fn(&S)) -> R {
    struct Waiting<'a, S> {
        side: &'a mut S,
        is_waiting: bool,
        leave: fn(&S),
    }

    impl<S> Drop for Waiting<'_, S> {
        fn drop(&mut self) {
            if self.is_waiting {
                (self.leave)(self.side);
            }
        }
    }

    let mut waiting = Waiting {
        side,
        is_waiting: false,
        leave,
    };
    poll_fn(move |context| {
        let polled = poll(waiting.side, context);
        waiting.is_waiting = polled.is_pending();
        polled
    })
    .await
}
