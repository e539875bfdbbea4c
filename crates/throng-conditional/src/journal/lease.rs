//! The lease: for how long an engine may answer from memory without another look at the root.
//!
//! Counted from the *sending* of the look. Whoever opens the next stream marks the one before as ending, and then waits for longer
//! than the lease. An engine that is alone looks with a read, so an idle one puts nothing. A node's lease is its beats alone: others declare it
//! dead because they see none, and not because it reads nothing.

use super::{Inner, append::End};
use std::{sync::Arc, time::Duration};
use throng_journal::{AppendError, Error, NodeId, WriterId};

/// Looks in a lease.
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

    /// Looks after a writer until the root says where its stream ends, or the journal is dropped.
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

    /// A beat of a node has landed that was sent then: its streams have their lease from there on.
    pub(crate) fn beaten(&self, node: NodeId, sent: Duration) {
        let mut writers = self.own();
        for own in writers.values_mut().filter(|own| own.node == Some(node)) {
            own.looked = own.looked.max(sent);
        }
    }

    /// Looks if a writer of this process is still open; false once it is known where it ends.
    async fn look(&self, writer: WriterId) -> bool {
        let sent = self.host().boot_clock();
        let root = match self.roots.read().await {
            Ok(root) => root,
            Err(Error::RolledBack(why)) => {
                self.broken(writer, why);
                return false;
            }
            // The lease runs out by itself.
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
