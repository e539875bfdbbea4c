//! The messages in the inboxes of shards, and those held back for them.

use super::message::Outgoing;
use std::collections::{HashMap, VecDeque};
use throng_journal::ShardId;

/// The messages for one shard whose lock is busy.
#[derive(Default)]
pub(super) struct Inbox {
    /// The number of messages in it. Negative for a moment if one is executed before it is counted.
    pub(super) messages: i64,
    /// Somebody executes them.
    pub(super) is_emptied: bool,
    /// The messages that come after those in the inbox.
    pub(super) held: VecDeque<Box<Outgoing>>,
}

/// The shards that have messages in their inboxes.
#[derive(Default)]
pub(super) struct Inboxes {
    pub(super) shards: HashMap<ShardId, Inbox>,
    pub(super) held_len: usize,
}

impl Inboxes {
    pub(super) fn held_len(&self) -> usize {
        self.held_len
    }

    pub(super) fn held(&self) -> impl Iterator<Item = &Box<Outgoing>> {
        self.shards.values().flat_map(|inbox| &inbox.held)
    }

    /// Removes these messages from those held back.
    pub(super) fn remove(&mut self, mut is_meant: impl FnMut(&mut Outgoing) -> bool) {
        for inbox in self.shards.values_mut() {
            let before = inbox.held.len();
            inbox.held.retain_mut(|outgoing| !is_meant(outgoing));
            self.held_len -= before - inbox.held.len();
        }
    }
}
