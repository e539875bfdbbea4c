//! A peer queue: messages that a task of its own sends one after the other.

use super::message::{Behind, Outgoing};
use std::collections::VecDeque;
use throng_core::{credit::Credit, model::Timestamp};
use throng_journal::{Address, ShardId};

/// Messages that have to be sent in order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PeerQueue {
    /// The receivers' shard.
    pub(crate) to: ShardId,
    /// The sender and receiver of its messages, if it is a pair's queue that waits for a newer program.
    pub(crate) pair: Option<(Address, Address)>,
}

/// The messages of one queue. A task sends them as long as this entry exists.
#[derive(Default)]
pub(super) struct Waiting {
    /// The next ones, in order.
    pub(super) waiting: VecDeque<Box<Outgoing>>,
    /// The later messages, which are only in the log.
    pub(super) behind: Option<Behind>,
    pub(super) is_unreachable: bool,
    /// Why the first one is not taken, and since when: only of a pair's queue.
    pub(super) reason: Option<(String, Timestamp)>,
    /// The number of messages that have arrived.
    pub(super) messages: u64,
}

/// The next step for a peer queue.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<R> {
    /// These are the next to be sent.
    Send(Vec<R>),
    /// The next ones are to be read from the log.
    Read(Behind),
    /// The queue is gone: its task ends.
    Nothing,
}

impl PeerQueue {
    /// Returns the peer queue of all messages to a shard.
    pub(crate) fn to_shard(to: ShardId) -> Self {
        Self { to, pair: None }
    }

    pub(super) fn of_pair(to: ShardId, outgoing: &Outgoing) -> Self {
        let (sender, receiver) = (&outgoing.delivery.taking.sender, &outgoing.delivery.to);
        let pair = Some((sender.clone(), receiver.clone()));
        Self { to, pair }
    }
}

impl Waiting {
    pub(super) fn waiting(&self) -> &VecDeque<Box<Outgoing>> {
        &self.waiting
    }

    pub(super) fn behind(&self) -> Option<Behind> {
        self.behind
    }

    /// Leaves messages beyond these bounds to the log, and returns their number and bytes.
    pub(super) fn leave(&mut self, kept: usize, kept_bytes: usize, credit: &mut Credit) -> (usize, usize) {
        let mut bytes: usize = self.waiting.iter().map(|outgoing| outgoing.bytes()).sum();
        let before = (self.waiting.len(), bytes);
        while (self.waiting.len() > kept || bytes > kept_bytes)
            && let Some(mut last) = self.waiting.pop_back()
        {
            bytes -= last.bytes();
            last.give_back(credit);
            match &mut self.behind {
                Some(behind) => behind.add(last.sent),
                None => self.behind = Some(Behind::of(last.sent)),
            }
        }
        (before.0 - self.waiting.len(), before.1 - bytes)
    }
}
