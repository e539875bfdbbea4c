//! Credentials of what stays open: a WebSocket, a live stream.

use super::{Caller, bearer, now};
use crate::server::Server;
use http::{HeaderMap, HeaderValue, header};
use std::time::Duration;
use tokio::time::timeout;

/// How long nobody looks at the time: it may be set.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// What a client has shown, and as whom it was let in.
pub(crate) struct Held {
    shown: HeaderValue,
    caller: Caller,
}

impl Held {
    /// Of a request that was let in as this caller; `None`: it has shown no token, so that none can expire.
    pub(crate) fn of(headers: &HeaderMap, caller: Option<&Caller>) -> Option<Self> {
        Some(Self {
            shown: headers.get(header::AUTHORIZATION)?.clone(),
            caller: caller?.clone(),
        })
    }

    /// Resolves once the token is taken no more, or is another caller's.
    async fn ends(&self, server: &Server) {
        let mut changes = server.shared().guard.version.changes();
        loop {
            changes.mark_unchanged();
            let until = match bearer(server, self.shown.as_bytes()) {
                Ok((caller, until)) if caller.name() == self.caller.name() => until,
                _ => return,
            };
            let left = until.map(|until| u64::try_from(until.saturating_sub(now())).unwrap_or(0));
            let left = left.map_or(LOOK_EVERY, Duration::from_secs).min(LOOK_EVERY);
            let _ = timeout(left, changes.changed()).await;
        }
    }
}

/// Resolves once what was shown is taken no more; never, where nothing was.
pub(crate) async fn ends(held: Option<&Held>, server: &Server) {
    match held {
        Some(held) => held.ends(server).await,
        None => std::future::pending().await,
    }
}
