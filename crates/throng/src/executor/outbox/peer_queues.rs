//! Messages that are sent in queues, each by somebody of its own, from the first on until it was taken: those to a shard that another node owns,
//! and those of one entity to another one whose program does not understand the first of them. Of a queue whose first message nobody takes
//! most is left to the log: it takes nobody else's room.

use super::{
    Outbox, Window,
    message::{Behind, Outgoing},
    peer_queue::{Next, PeerQueue, Waiting},
    receiver::StuckEntity,
};
use std::collections::VecDeque;
use throng_core::model::Timestamp;
use throng_journal::{Address, Position, ShardId};

/// The part of the outbox in memory that one unreachable shard may fill: one in so many messages and bytes.
/// All shards together may take a quarter.
const KEPT_PART: usize = 1_024;
/// Queues of pairs, at most, as a part of the messages that memory may hold: each keeps one. Beyond, a message that is not understood holds
/// up those of other pairs to its shard.
const PAIRS_PART: usize = 16;

impl Window {
    /// Returns whether this message has to wait behind others, though its receiver is at hand.
    pub(super) fn is_behind(&self, to: ShardId, outgoing: &Outgoing) -> bool {
        self.queues.contains_key(&PeerQueue::to_shard(to))
            || self.pairs > 0 && self.queues.contains_key(&PeerQueue::of_pair(to, outgoing))
    }

    /// Returns whether a message that has to wait does so in a peer queue. Messages to its receiver may wait for that one to be loaded.
    /// They may be before this one, so it does not overtake them in its shard's queue. Once the receiver is loaded, all of them come there.
    pub(super) fn goes_into_line(&self, to: ShardId, outgoing: &Outgoing) -> bool {
        let queue = self.queue_of(to, outgoing);
        let receiver = &outgoing.delivery.to;
        let is_loaded = self.parked.contains_key(receiver) || self.stuck.contains_key(receiver);
        self.queues.contains_key(&queue) && (queue.pair.is_some() || !is_loaded)
    }

    /// The queue in which this message waits: its pair's if there is one, else its shard's.
    pub(super) fn queue_of(&self, to: ShardId, outgoing: &Outgoing) -> PeerQueue {
        match self.pairs {
            0 => PeerQueue::to_shard(to),
            _ => {
                let pair = PeerQueue::of_pair(to, outgoing);
                if self.queues.contains_key(&pair) {
                    pair
                } else {
                    PeerQueue::to_shard(to)
                }
            }
        }
    }

    /// Puts a message behind those of a queue; `true`: it is the first.
    pub(super) fn join(&mut self, queue: &PeerQueue, mut outgoing: Box<Outgoing>) -> bool {
        let is_new = !self.queues.contains_key(queue);
        if queue.pair.is_some() {
            self.pairs += usize::from(is_new);
            // Nobody knows when it is taken: whoever asked is told so.
            outgoing.waiter = None;
        }
        let of = self.queues.entry(queue.clone()).or_default();
        of.messages += 1;
        // Memory holds only the first message of a queue that waits for a newer program.
        of.is_unreachable |= is_new && queue.pair.is_some();
        let is_left = queue.pair.is_some() && of.is_unreachable && !of.waiting.is_empty();
        match &mut of.behind {
            Some(behind) => {
                behind.add(outgoing.sent);
                outgoing.give_back(&mut self.credit);
            }
            None if is_left => {
                of.behind = Some(Behind::of(outgoing.sent));
                outgoing.give_back(&mut self.credit);
            }
            None => {
                self.lined_len += 1;
                self.bytes += outgoing.bytes();
                of.waiting.push_back(outgoing);
            }
        }
        is_new
    }

    /// Begins a pair's queue with this message. What is only in the log of those that follow it, as far as others wait for the same, the
    /// queue reads itself; what stands in its shard's queue comes after it. Otherwise those that come next would be before them.
    fn begin_pair(&mut self, to: ShardId, outgoing: Box<Outgoing>) -> PeerQueue {
        let (shard, pair) = (PeerQueue::to_shard(to), PeerQueue::of_pair(to, &outgoing));
        let of_shard = self.queues.get(&shard).and_then(|of| of.behind);
        let of_receiver = self.stuck.get(&outgoing.delivery.to).and_then(|stuck| stuck.behind);
        let behind = of_shard.into_iter().chain(of_receiver).reduce(|one, other| Behind {
            read: one.read.min(other.read),
            upto: one.upto.max(other.upto),
        });
        self.join(&pair, outgoing);
        if let (Some(behind), Some(of)) = (behind, self.queues.get_mut(&pair)) {
            of.behind = Some(behind);
        }
        self.sort_out(&shard);
        pair
    }

    /// This message goes, if it is the first of a queue.
    fn pop(&mut self, queue: &PeerQueue, number: (ShardId, u64)) -> Option<Box<Outgoing>> {
        let first = &mut self.queues.get_mut(queue)?.waiting;
        let outgoing = first.pop_front_if(|first| first.number() == number)?;
        self.lined_len -= 1;
        self.bytes -= outgoing.bytes();
        Some(outgoing)
    }

    /// Moves messages of a shard's queue to the queues of their pairs, where there are any. Such messages were read from the log.
    fn sort_out(&mut self, queue: &PeerQueue) {
        if queue.pair.is_some() || self.pairs == 0 {
            return;
        }
        let Some(of) = self.queues.get_mut(queue) else { return };
        let waiting = std::mem::take(&mut of.waiting);
        for outgoing in waiting {
            self.lined_len -= 1;
            self.bytes -= outgoing.bytes();
            let own = self.queue_of(queue.to, &outgoing);
            match own.pair {
                Some(_) => _ = self.join(&own, outgoing),
                None => self.put_last(queue, outgoing),
            }
        }
    }

    /// A message that was read from the log, or stood in the queue before.
    fn put_last(&mut self, queue: &PeerQueue, outgoing: Box<Outgoing>) {
        if let Some(of) = self.queues.get_mut(queue) {
            self.lined_len += 1;
            self.bytes += outgoing.bytes();
            of.waiting.push_back(outgoing);
        }
    }
}

impl Outbox {
    /// Keeps a message for a shard that another node owns, behind those that wait for the same. Returned is a queue that begins with it:
    /// somebody has to send that.
    pub(crate) fn send_remote(&self, to: ShardId, mut outgoing: Box<Outgoing>) -> Option<PeerQueue> {
        let (queue, is_first) = self.with(|window| {
            window.let_go(&mut outgoing);
            let queue = window.queue_of(to, &outgoing);
            let is_first = window.join(&queue, outgoing);
            (queue, is_first)
        });
        self.leave(&queue);
        is_first.then_some(queue)
    }

    /// Keeps a message that the program of this node does not understand, until a newer one does, and what follows it behind it. Returned
    /// is a queue that begins with it: somebody has to send that.
    pub(crate) fn keep_for_upgrade(
        &self,
        to: ShardId,
        mut outgoing: Box<Outgoing>,
        (why, now): (&str, Timestamp),
    ) -> Option<PeerQueue> {
        self.with(|window| {
            window.let_go(&mut outgoing);
            let queue = window.queue_of(to, &outgoing);
            let (queue, is_first) = match queue.pair.is_none() && window.pairs < self.messages_max / PAIRS_PART {
                true => (window.begin_pair(to, outgoing), true),
                false => {
                    let is_first = window.join(&queue, outgoing);
                    (queue, is_first)
                }
            };
            if let Some(of) = window.queues.get_mut(&queue) {
                of.reason.get_or_insert_with(|| (why.to_owned(), now));
            }
            is_first.then_some(queue)
        })
    }

    /// The first message of a queue was not taken, and waits for a newer program. Of a shard's queue it goes into that of its pair, and
    /// holds up no other one. `Err`: it stays where it is, the first of its queue. `Ok`: perhaps a queue that begins with it, which somebody
    /// has to send.
    pub(crate) fn first_waits(
        &self,
        queue: &PeerQueue,
        number: (ShardId, u64),
        (why, now): (&str, Timestamp),
    ) -> Result<Option<PeerQueue>, ()> {
        self.with(|window| {
            if queue.pair.is_some() || window.pairs >= self.messages_max / PAIRS_PART {
                if let Some(of) = window.queues.get_mut(queue) {
                    let since = of.reason.take().map_or(now, |(_, since)| since);
                    of.reason = Some((why.to_owned(), since));
                }
                return Err(());
            }
            // A message whose pair has a queue by now is there.
            let Some(first) = window.pop(queue, number) else {
                return Ok(None);
            };
            let pair = window.begin_pair(queue.to, first);
            if let Some(of) = window.queues.get_mut(&pair) {
                of.reason = Some((why.to_owned(), now));
            }
            Ok(Some(pair))
        })
    }

    /// Queues this message if others are before it; otherwise gives it back as `Err`.
    pub(crate) fn joins(&self, to: ShardId, mut outgoing: Box<Outgoing>) -> Result<(), Box<Outgoing>> {
        self.with(|window| {
            if !window.is_behind(to, &outgoing) {
                return Err(outgoing);
            }
            window.let_go(&mut outgoing);
            let queue = window.queue_of(to, &outgoing);
            window.join(&queue, outgoing);
            Ok(())
        })
    }

    /// The queues of those who wait to send to a receiver.
    pub(crate) fn pairs_to(&self, to: &Address) -> Vec<PeerQueue> {
        let is_to = |queue: &&PeerQueue| queue.pair.as_ref().is_some_and(|(_, receiver)| receiver == to);
        self.with(|window| window.queues.keys().filter(is_to).cloned().collect())
    }

    /// Returns the next step for a peer queue. `look` is given its first messages, at most `most`.
    pub(crate) fn next_of<R>(&self, queue: &PeerQueue, most: usize, mut look: impl FnMut(&Outgoing) -> R) -> Next<R> {
        self.with(|window| {
            window.sort_out(queue);
            let Some(of) = window.queues.get(queue) else {
                return Next::Nothing;
            };
            if !of.waiting.is_empty() {
                let first = of.waiting.iter().take(most);
                return Next::Send(first.map(|outgoing| look(outgoing)).collect());
            }
            if let Some(behind) = of.behind {
                return Next::Read(behind);
            }
            window.queues.remove(queue);
            window.pairs -= usize::from(queue.pair.is_some());
            Next::Nothing
        })
    }

    /// The first message of a queue, this one, was taken.
    pub(crate) fn taken_of(&self, queue: &PeerQueue, number: (ShardId, u64)) -> Option<Box<Outgoing>> {
        self.with(|window| {
            let of = window.queues.get_mut(queue)?;
            of.is_unreachable = false;
            of.reason = None;
            let mut outgoing = window.pop(queue, number)?;
            window.give_back(&mut outgoing);
            Some(outgoing)
        })
    }

    /// Nobody has taken the first message of a queue for long, or its messages take the room of others: most of them are left to the log.
    /// `true`: that is so from now on.
    pub(crate) fn set_unreachable(&self, queue: &PeerQueue) -> bool {
        let is_new = self.with(|window| {
            let of = window.queues.get_mut(queue);
            of.is_some_and(|of| !std::mem::replace(&mut of.is_unreachable, true))
        });
        self.leave(queue);
        is_new
    }

    fn leave(&self, queue: &PeerQueue) {
        let (kept, kept_bytes) = match queue.pair {
            Some(_) => (1, usize::MAX),
            None => (self.messages_max / KEPT_PART, self.bytes_max / KEPT_PART),
        };
        self.with(|window| {
            if let Some(of) = window.queues.get_mut(queue)
                && of.is_unreachable
            {
                let (left, bytes) = of.leave(kept, kept_bytes, &mut window.credit);
                window.lined_len -= left;
                window.bytes -= bytes;
            }
        });
    }

    /// The log was read for a queue, where `seen` was to be read, up to `reached`; these messages were there. All of it at once: what is
    /// [left](Waiting::leave) to the log again a moment later has to be read again.
    pub(crate) fn has_read_of(
        &self,
        queue: &PeerQueue,
        seen: Behind,
        messages: VecDeque<Box<Outgoing>>,
        (mut reached, is_end): (Position, bool),
    ) {
        self.with(|window| {
            let is_seen = |of: &Waiting| of.behind.is_some_and(|behind| behind.read == seen.read);
            if !window.queues.get(queue).is_some_and(is_seen) {
                // An earlier one was left to the log meanwhile, and comes before these.
                return;
            }
            // A commit is read whole, and at least one of them.
            let mut last = seen.read;
            for outgoing in messages {
                if outgoing.sent != last && last != seen.read && self.has_no_room(window) {
                    reached = last;
                    break;
                }
                last = outgoing.sent;
                window.put_last(queue, outgoing);
            }
            if let Some(of) = window.queues.get_mut(queue)
                && let Some(behind) = &mut of.behind
                && behind.has_read(seen, reached, is_end)
            {
                of.behind = None;
            }
        });
    }

    /// Receivers whose programs do not understand the first of the messages that wait for them, and why.
    pub(super) fn not_understood(window: &Window) -> impl Iterator<Item = StuckEntity> {
        window.queues.values().filter_map(|of| {
            let ((reason, since), first) = (of.reason.as_ref()?, of.waiting.front()?);
            Some(StuckEntity {
                address: first.delivery.to.clone(),
                reason: reason.clone(),
                since: *since,
                messages: of.messages,
            })
        })
    }
}
