//! Messages to shards that other nodes own. Those to a shard that nobody reaches are left to the log, but for the first few: they take
//! nobody else's room.

use super::{Behind, Outbox, Outgoing};
use std::collections::VecDeque;
use throng_journal::{Position, ShardId};

/// What an unreachable shard's messages may take of the outbox in memory, its messages and its bytes: with all shards together a quarter.
const KEPT_PART: usize = 1_024;

/// Messages to one shard of another node; somebody sends them for as long as this is here.
#[derive(Default)]
pub(super) struct Elsewhere {
    /// The next ones, in order.
    waiting: VecDeque<Box<Outgoing>>,
    /// Those that follow are only in the log.
    behind: Option<Behind>,
    is_unreachable: bool,
}

/// What there is to do for a shard of another node.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<R> {
    /// These are the next to be sent.
    Send(Vec<R>),
    /// The next ones are to be read from the log.
    Read(Behind),
    /// Nobody has to send any more.
    Nothing,
}

impl Elsewhere {
    pub(super) fn waiting(&self) -> &VecDeque<Box<Outgoing>> {
        &self.waiting
    }

    pub(super) fn behind(&self) -> Option<Behind> {
        self.behind
    }

    /// Leaves what is beyond these bounds to the log; how many messages, and bytes, that were.
    fn leave(&mut self, kept: usize, kept_bytes: usize) -> (usize, usize) {
        let mut bytes: usize = self.waiting.iter().map(|outgoing| outgoing.bytes()).sum();
        let before = (self.waiting.len(), bytes);
        while (self.waiting.len() > kept || bytes > kept_bytes)
            && let Some(last) = self.waiting.pop_back()
        {
            bytes -= last.bytes();
            match &mut self.behind {
                Some(behind) => behind.add(last.sent),
                None => self.behind = Some(Behind::of(last.sent)),
            }
        }
        (before.0 - self.waiting.len(), before.1 - bytes)
    }
}

impl Outbox {
    /// Keeps a message for a shard that another node owns, behind those that wait for the same. `true`: it is the first, and somebody
    /// has to send it.
    pub(crate) fn send_elsewhere(&self, to: ShardId, outgoing: Box<Outgoing>) -> bool {
        let is_first = self.with(|window| {
            window.let_go(outgoing.sent);
            let is_first = !window.elsewhere.contains_key(&to);
            let elsewhere = window.elsewhere.entry(to).or_default();
            match &mut elsewhere.behind {
                Some(behind) => behind.add(outgoing.sent),
                None => {
                    window.elsewhere_len += 1;
                    window.bytes += outgoing.bytes();
                    elsewhere.waiting.push_back(outgoing);
                }
            }
            is_first
        });
        self.leave_elsewhere(to);
        is_first
    }

    /// What comes next for a shard of another node: a look at the first messages, at most so many.
    pub(crate) fn next_elsewhere<R>(&self, to: ShardId, most: usize, mut look: impl FnMut(&Outgoing) -> R) -> Next<R> {
        self.with(|window| {
            let Some(elsewhere) = window.elsewhere.get(&to) else {
                return Next::Nothing;
            };
            if !elsewhere.waiting.is_empty() {
                let first = elsewhere.waiting.iter().take(most);
                return Next::Send(first.map(|outgoing| look(outgoing)).collect());
            }
            if let Some(behind) = elsewhere.behind {
                return Next::Read(behind);
            }
            window.elsewhere.remove(&to);
            Next::Nothing
        })
    }

    /// The first message for a shard of another node was taken there.
    pub(crate) fn taken_elsewhere(&self, to: ShardId) -> Option<Box<Outgoing>> {
        self.with(|window| {
            let elsewhere = window.elsewhere.get_mut(&to)?;
            elsewhere.is_unreachable = false;
            let outgoing = elsewhere.waiting.pop_front()?;
            window.elsewhere_len -= 1;
            window.bytes -= outgoing.bytes();
            Some(outgoing)
        })
    }

    /// Nobody has reached a shard of another node for long, or its messages take the room of others: most of them are left to the log.
    /// `true`: that is so from now on.
    pub(crate) fn set_unreachable(&self, to: ShardId) -> bool {
        let is_new = self.with(|window| {
            let elsewhere = window.elsewhere.get_mut(&to);
            elsewhere.is_some_and(|elsewhere| !std::mem::replace(&mut elsewhere.is_unreachable, true))
        });
        self.leave_elsewhere(to);
        is_new
    }

    fn leave_elsewhere(&self, to: ShardId) {
        let (kept, kept_bytes) = (self.messages_max / KEPT_PART, self.bytes_max / KEPT_PART);
        self.with(|window| {
            if let Some(elsewhere) = window.elsewhere.get_mut(&to)
                && elsewhere.is_unreachable
            {
                let (left, bytes) = elsewhere.leave(kept, kept_bytes);
                window.elsewhere_len -= left;
                window.bytes -= bytes;
            }
        });
    }

    /// Messages to a shard of another node, read from the log, of one commit; `false`: no more are wanted now.
    pub(crate) fn append_elsewhere(
        &self,
        to: ShardId,
        messages: impl IntoIterator<Item = Box<Outgoing>>,
        most: usize,
    ) -> bool {
        self.with(|window| {
            let Some(elsewhere) = window.elsewhere.get_mut(&to) else {
                return false;
            };
            for outgoing in messages {
                window.elsewhere_len += 1;
                window.bytes += outgoing.bytes();
                elsewhere.waiting.push_back(outgoing);
            }
            elsewhere.waiting.len() < most && !self.has_no_room(window)
        })
    }

    /// The log was read up to here for a shard of another node, where `seen` was to be read.
    pub(crate) fn has_read_elsewhere(&self, to: ShardId, seen: Behind, read: Position, is_end: bool) {
        self.with(|window| {
            if let Some(elsewhere) = window.elsewhere.get_mut(&to)
                && let Some(behind) = &mut elsewhere.behind
                && behind.has_read(seen, read, is_end)
            {
                elsewhere.behind = None;
            }
        });
    }
}
