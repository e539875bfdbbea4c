//! Waiting on a thread: the same polls as a task's, with a waker that unparks the thread.

use crate::sync::{Thread, current, park, park_timeout, yield_now};
use std::{
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    time::Instant,
};

/// The number of times a thread yields its core before it sleeps.
const YIELDS: usize = 16;

/// Lets other threads run for a moment, in the hope that one of them brings what this one would sleep for. Sleeping and being woken costs
/// more than a batch; yielding costs a tenth of that. If no other thread wants the core, it takes a few microseconds. The model checker's
/// build leaves it out, since it only changes when a thread looks again.
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
    // A thread whose locals are destroyed already (a sender may be in one) uses a waker of its own.
    let shared = WAKER.try_with(Waker::clone);
    run(&shared.unwrap_or_else(|_| waker()))
}

/// Threads of the model checker live for one execution only, so their wakers are not kept.
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

/// Polls until ready or until this time; `None` if it was not ready in time.
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
