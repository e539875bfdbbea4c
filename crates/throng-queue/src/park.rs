//! Waiting on a thread: the same polls as a task's, with a waker that unparks.

use crate::sync::{Thread, current, park, park_timeout, yield_now};
use std::{
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    time::Instant,
};

/// The times a thread gives its core to the others before it sleeps.
const YIELDS: usize = 16;

/// Lets the other threads work for a moment, in the hope that one of them brings what this one would sleep for: to be put to
/// sleep and woken costs more than a batch, to go to the end of the line a tenth of that. Where nobody else wants the
/// core it is over in a few microseconds. The model does without: it changes nothing but the moment at which a thread looks again.
#[cold]
pub(crate) fn linger(is_there: impl Fn() -> bool) {
    if cfg!(feature = "loom") {
        return;
    }
    for _ in 0..YIELDS {
        if is_there() {
            return;
        }
        yield_now();
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

fn waker() -> Waker {
    Waker::from(Arc::new(Unpark(current())))
}

#[cfg(not(feature = "loom"))]
fn with_waker<R>(run: impl FnOnce(&Waker) -> R) -> R {
    thread_local! {
        static WAKER: Waker = waker();
    }
    // A thread whose locals are gone already (a sender in one of them) waits with a waker of its own.
    let shared = WAKER.try_with(Waker::clone);
    run(&shared.unwrap_or_else(|_| waker()))
}

/// Threads of the model live for one execution only.
#[cfg(feature = "loom")]
fn with_waker<R>(run: impl FnOnce(&Waker) -> R) -> R {
    run(&waker())
}

/// Polls until ready, asleep in between.
pub(crate) fn wait<R>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<R>) -> R {
    with_waker(|waker| {
        let mut context = Context::from_waker(waker);
        loop {
            match poll(&mut context) {
                Poll::Ready(result) => return result,
                Poll::Pending => park(),
            }
        }
    })
}

/// Polls until ready or until then; `None` if it was not ready in time.
pub(crate) fn wait_until<R>(until: Instant, mut poll: impl FnMut(&mut Context<'_>) -> Poll<R>) -> Option<R> {
    with_waker(|waker| {
        let mut context = Context::from_waker(waker);
        loop {
            if let Poll::Ready(result) = poll(&mut context) {
                return Some(result);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            park_timeout(left);
        }
    })
}
