//! The task that reads on while somebody waits: the tail's only tie to the engine around it.

use super::{Advance, Ends};
use crate::{
    engine::Core,
    life::{Life, Status},
};
use std::{
    future::poll_fn,
    sync::{Arc, Weak},
    task::{Context, Poll},
    time::Duration,
};

/// Once it has come to the end of what is durable, it looks again after this long, so that what has gathered is one wake.
const ADVANCE_EVERY: Duration = Duration::from_millis(20);
/// Followers outlive a recovery of this long.
const RECOVERY_MAX: Duration = Duration::from_secs(5);
/// While the engine recovers, it looks this often whether that takes too long.
const RECOVERY_LOOK: Duration = Duration::from_millis(100);

/// What there is to do.
enum Due {
    /// Something is durable and not decoded.
    Advance(Arc<Life>),
    /// There is no life to read from.
    Down(&'static str),
}

/// Reads on while somebody waits.
pub(crate) async fn task(inner: Weak<Core>) {
    // When it saw first that there is no life to read from.
    let mut down_since = None;
    loop {
        let due = poll_fn(|context| match inner.upgrade() {
            Some(inner) => due(&inner, context, &mut down_since).map(|due| Some((inner, due))),
            None => Poll::Ready(None),
        });
        let Some((inner, due)) = due.await else { return };
        let pause = match due {
            Due::Advance(life) => match inner.tail.advance(&Ends::of(&life)).await {
                Advance::More => Duration::ZERO,
                Advance::Live => ADVANCE_EVERY,
            },
            Due::Down(reason) => {
                let now = inner.context.host.elapsed_micros();
                let since = *down_since.get_or_insert(now);
                if inner.context.is_stopping() || u128::from(now - since) >= RECOVERY_MAX.as_micros() {
                    inner.tail.fail(reason);
                }
                RECOVERY_LOOK
            }
        };
        let sleep = inner.context.host.sleep(pause);
        drop(inner);
        sleep.await;
    }
}

fn due(inner: &Arc<Core>, context: &Context<'_>, down_since: &mut Option<u64>) -> Poll<Due> {
    inner.tail.wake.poll(context.waker());
    let Some(end) = inner.tail.awaited_after() else {
        // Woken by the first who waits.
        *down_since = None;
        return Poll::Pending;
    };
    inner.context.signals.watch(context.waker());
    let life = match &*inner.lives.status() {
        Status::Running(life) => life.clone(),
        Status::Down(down) => return Poll::Ready(Due::Down(down.told)),
    };
    *down_since = None;
    match Ends::of(&life).after(end) {
        Some(_) => Poll::Ready(Due::Advance(life)),
        None => Poll::Pending,
    }
}
