//! Waiting for a signal, for as long as the engine is there.

use super::Epochs;
use crate::{
    context::Context,
    host::{Signal, Task},
};
use std::{sync::Weak, task::Poll};

/// Waits for a signal; `false` once the engine is gone.
pub(crate) async fn signalled(epochs: &Weak<Epochs>, which: impl Fn(&Context) -> &Signal) -> bool {
    std::future::poll_fn(|context| match epochs.upgrade() {
        None => Poll::Ready(false),
        Some(epochs) if which(&epochs.context).poll(context.waker()) => Poll::Ready(true),
        Some(_) => Poll::Pending,
    })
    .await
}

/// Waits for a signal, at most until a time.
pub(super) async fn signalled_within(epochs: &Weak<Epochs>, mut sleep: Task, which: impl Fn(&Context) -> &Signal) {
    let mut signal = std::pin::pin!(signalled(epochs, which));
    std::future::poll_fn(|context| {
        let slept = sleep.as_mut().poll(context).is_ready();
        if slept || signal.as_mut().poll(context).is_ready() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}
