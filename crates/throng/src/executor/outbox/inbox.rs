//! The messages in the inboxes of shards, and those held for them.

use super::message::Outgoing;
use std::collections::{HashMap, VecDeque};
use throng_journal::ShardId;

/// The messages kept for one shard whose lock somebody holds.
#[derive(Default)]
pub(super) struct Inbox {
    /// Messages in it. Below zero for a moment: one was executed before it was counted.
    pub(super) messages: i64,
    /// Somebody executes them.
    pub(super) is_emptied: bool,
    /// The messages that come after them.
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

    /// Removes what is held of these messages.
    pub(super) fn remove(&mut self, mut is_meant: impl FnMut(&mut Outgoing) -> bool) {
        for inbox in self.shards.values_mut() {
            let before = inbox.held.len();
            inbox.held.retain_mut(|outgoing| !is_meant(outgoing));
            self.held_len -= before - inbox.held.len();
        }
    }
}
