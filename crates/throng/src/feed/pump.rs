//! The task that reads on while somebody waits.

use super::{Advance, LOST, SharedFeed, UNREADABLE};
use crate::epoch::{Epoch, Status};
use std::{
    future::poll_fn,
    sync::{Arc, Weak},
    task::{Context, Poll},
    time::Duration,
};

/// The interval between two extensions at the end of the durable log, so that followers are woken once for all that has gathered.
const ADVANCE_EVERY: Duration = Duration::from_millis(20);
/// The same in a cluster, where other nodes' commits send no signal.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Followers outlive a recovery of this long.
const RECOVERY_MAX: Duration = Duration::from_secs(5);
/// While the engine recovers, it looks this often whether that takes too long.
const RECOVERY_LOOK: Duration = Duration::from_millis(100);

/// The reason that followers get.
const STOPPED: &str = "the engine has stopped";

/// The next work of the task.
enum Due {
    /// There may be durable commits that are not decoded. A node of a cluster needs no epoch of its own to read them.
    Advance(Option<Arc<Epoch>>),
    /// There is no epoch to read from, or no follower.
    Down(&'static str),
}

/// Reads on while somebody waits.
pub(crate) async fn task(feed: Weak<SharedFeed>) {
    // The time since when there is no epoch to read from.
    let mut down_since = None;
    loop {
        let due = poll_fn(|context| match feed.upgrade() {
            Some(feed) => due(&feed, context, &mut down_since).map(|due| Some((feed, due))),
            None => Poll::Ready(None),
        });
        let Some((feed, due)) = due.await else { return };
        let is_alone = feed.epochs.context.peers.is_none();
        let advance = match due {
            Due::Advance(epoch) => Ok(feed.advance(epoch.as_deref()).await),
            Due::Down(reason) => Err(reason),
        };
        let pause = match advance {
            Ok(Advance::Failed) if is_alone => {
                feed.fail(UNREADABLE);
                ADVANCE_EVERY
            }
            Ok(Advance::Lost) => {
                feed.fail(LOST);
                ADVANCE_EVERY
            }
            Ok(Advance::Failed) => is_down(&feed, &mut down_since, UNREADABLE),
            Err(reason) => is_down(&feed, &mut down_since, reason),
            Ok(advance) => {
                down_since = None;
                match advance {
                    Advance::Live if is_alone => ADVANCE_EVERY,
                    Advance::Live => LOOK_EVERY,
                    _ => Duration::ZERO,
                }
            }
        };
        let sleep = feed.epochs.context.host.sleep(pause);
        drop(feed);
        sleep.await;
    }
}

/// Ends all waits once this takes too long. Returns the time until the next look.
fn is_down(feed: &SharedFeed, down_since: &mut Option<u64>, reason: &str) -> Duration {
    let now = feed.epochs.context.host.elapsed_micros();
    let since = *down_since.get_or_insert(now);
    if feed.epochs.context.is_stopping() || u128::from(now - since) >= RECOVERY_MAX.as_micros() {
        feed.fail(reason);
    }
    RECOVERY_LOOK
}

fn due(feed: &SharedFeed, context: &Context<'_>, down_since: &mut Option<u64>) -> Poll<Due> {
    // Watched before the look, so that a later change causes another look.
    feed.wake.watch(context.waker());
    if !feed.are_waiting() {
        // Woken by the first follower that waits.
        *down_since = None;
        return Poll::Pending;
    }
    feed.epochs.context.signals.watch(context.waker());
    if feed.epochs.context.peers.is_some() {
        return Poll::Ready(match feed.epochs.context.is_stopping() {
            true => Due::Down(STOPPED),
            false => Due::Advance(None),
        });
    }
    let is_at_end = feed.epochs.durable().is_some_and(|durable| feed.is_at(durable));
    match &*feed.epochs.status() {
        Status::Running(_) if is_at_end => {
            *down_since = None;
            Poll::Pending
        }
        Status::Running(epoch) => Poll::Ready(Due::Advance(Some(epoch.clone()))),
        Status::Down(down) => Poll::Ready(Due::Down(down.told)),
    }
}
