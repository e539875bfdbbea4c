//! The lease: the time for which an engine may answer from memory without another check of the root.
//!
//! The lease runs from the *sending* of the check. An engine that opens the next stream marks the previous one as ending, then waits for longer than the
//! lease. An engine that is alone checks with a read, so an idle one writes nothing. A node renews its lease only by its beats: other nodes declare
//! it dead if they see no beats, and do not see its reads.

use super::{Inner, append::End};
use std::{sync::Arc, time::Duration};
use throng_journal::{AppendError, Error, NodeId, WriterId};

/// The number of checks within one lease.
const LOOKS: u32 = 5;

impl Inner {
    pub(super) fn holds(&self, writer: WriterId) -> bool {
        let now = self.host().boot_clock();
        let writers = self.own();
        let own = writers.get(&writer);
        own.is_some_and(|own| own.end.is_none() && now < own.looked + own.lease)
    }

    pub(super) fn ended(&self, writer: WriterId) -> Option<AppendError> {
        let writers = self.own();
        writers.get(&writer)?.end.as_ref().map(End::error)
    }

    /// Watches over a writer until the root says where its stream ends, or the journal is dropped.
    pub(super) fn look_after(self: &Arc<Self>, writer: WriterId) {
        let weak = Arc::downgrade(self);
        let host = Arc::clone(&self.streams.host);
        let pause = self.options.lease / LOOKS;
        self.host().spawn(Box::pin(async move {
            loop {
                host.pause(pause).await;
                let Some(inner) = weak.upgrade() else { return };
                if !inner.look(writer).await {
                    return;
                }
            }
        }));
    }

    /// Extends the lease of a node's streams: a beat that was sent at this time has landed.
    pub(crate) fn beaten(&self, node: NodeId, sent: Duration) {
        let mut writers = self.own();
        for own in writers.values_mut().filter(|own| own.node == Some(node)) {
            own.looked = own.looked.max(sent);
        }
    }

    /// Checks if a writer of this process is still open. Returns false once its end is known.
    async fn look(&self, writer: WriterId) -> bool {
        let sent = self.host().boot_clock();
        let root = match self.roots.read().await {
            Ok(root) => root,
            Err(Error::RolledBack(why)) => {
                self.broken(writer, why);
                return false;
            }
            // Without a check the lease expires by itself.
            Err(_) => return true,
        };
        let Some(entry) = root.writer(writer) else {
            self.broken(writer, format!("the root knows no writer {writer} any more"));
            return false;
        };
        let acked = {
            let mut writers = self.own();
            let Some(own) = writers.get_mut(&writer) else {
                return false;
            };
            if !entry.is_ending {
                if own.node.is_none() {
                    own.looked = own.looked.max(sent);
                }
                return true;
            }
            own.end.get_or_insert(End::Sealed);
            own.acked
        };
        if let Some(last) = entry.last
            && last < acked
        {
            let why =
                format!("commit {acked} of writer {writer} was acknowledged, and its stream ends with commit {last}");
            self.broken(writer, format!("{why}: the store let two puts of one key win"));
        }
        entry.last.is_none()
    }
}
