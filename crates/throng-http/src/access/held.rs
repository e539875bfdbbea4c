//! Credentials of long-lived requests: a WebSocket, a live stream.

use super::{bearer, now};
use crate::{caller::ShownCredentials, server::Server};
use std::time::Duration;
use tokio::time::timeout;

/// The longest time between two looks at the clock. The time of day may be set meanwhile.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Resolves once the token is no longer accepted, or belongs to another caller. Without a token it never resolves.
pub(crate) async fn ends(held: Option<&ShownCredentials>, server: &Server) {
    let Some(ShownCredentials { shown, caller }) = held else {
        return std::future::pending().await;
    };
    let mut changes = server.shared().guard.version.changes();
    loop {
        changes.mark_unchanged();
        let until = match bearer(server, shown.as_bytes()) {
            Ok((known, until)) if known.name() == caller.name() => until,
            _ => return,
        };
        let left = until.map(|until| u64::try_from(until.saturating_sub(now())).unwrap_or(0));
        let left = left.map_or(LOOK_EVERY, Duration::from_secs).min(LOOK_EVERY);
        let _ = timeout(left, changes.changed()).await;
    }
}
