//! Peer queues. A task sends the messages of each queue, from the first on until it was taken. One kind of queue holds the messages to a
//! shard that another node owns; the other those of one entity to another whose program does not understand the first of them. If the first
//! message is not taken, most of its queue is left to the log, so that it takes no room from others.

use super::{
    Outbox, Window,
    message::{Behind, Outgoing},
    peer_queue::{Next, PeerQueue, Waiting},
    receiver::StuckEntity,
};
use std::collections::VecDeque;
use throng_core::model::Timestamp;
use throng_journal::{Address, Position, ShardId};

/// The part of the outbox in memory that one unreachable shard may fill, as a divisor of its messages and bytes.
/// All shards together may take a quarter.
const KEPT_PART: usize = 1_024;
/// The most pair queues, as a divisor of the messages that memory may hold: each keeps one message. Beyond that, a message that is not
/// understood delays those of other pairs to its shard.
const PAIRS_PART: usize = 16;

impl Window {
    /// True if this message has to wait for earlier ones, though its receiver is in memory.
    pub(super) fn is_behind(&self, to: ShardId, outgoing: &Outgoing) -> bool {
        self.queues.contains_key(&PeerQueue::to_shard(to))
            || self.pairs > 0 && self.queues.contains_key(&PeerQueue::of_pair(to, outgoing))
    }

    /// True if a message that has to wait does so in a peer queue. Messages to its receiver may be parked until that is loaded.
    /// They may be earlier than this one, which therefore must not overtake them in its shard's queue. Once the receiver is loaded, all
    /// join that queue.
    pub(super) fn goes_into_line(&self, to: ShardId, outgoing: &Outgoing) -> bool {
        let queue = self.queue_of(to, outgoing);
        let receiver = &outgoing.delivery.to;
        let is_loaded = self.parked.contains_key(receiver) || self.stuck.contains_key(receiver);
        self.queues.contains_key(&queue) && (queue.pair.is_some() || !is_loaded)
    }

    /// Returns the queue of this message: its pair's if there is one, else its shard's.
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

    /// Appends a message to a queue; returns true if it is the first.
    pub(super) fn join(&mut self, queue: &PeerQueue, mut outgoing: Box<Outgoing>) -> bool {
        let is_new = !self.queues.contains_key(queue);
        if queue.pair.is_some() {
            self.pairs += usize::from(is_new);
            // The time of its delivery is unknown, so the asker gets "outcome unknown".
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

    /// Begins a pair's queue with this message. Later messages of the pair that are only in the log are read by this queue; those
    /// in the shard's queue come after them. Otherwise later messages would overtake earlier ones.
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

    /// Removes this message if it is the first of a queue.
    fn pop(&mut self, queue: &PeerQueue, number: (ShardId, u64)) -> Option<Box<Outgoing>> {
        let first = &mut self.queues.get_mut(queue)?.waiting;
        let outgoing = first.pop_front_if(|first| first.number() == number)?;
        self.lined_len -= 1;
        self.bytes -= outgoing.bytes();
        Some(outgoing)
    }

    /// Moves messages of a shard's queue, which were read from the log, to the queues of their pairs if there are any.
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

    /// Appends a message that was read from the log, or was in the queue before.
    fn put_last(&mut self, queue: &PeerQueue, outgoing: Box<Outgoing>) {
        if let Some(of) = self.queues.get_mut(queue) {
            self.lined_len += 1;
            self.bytes += outgoing.bytes();
            of.waiting.push_back(outgoing);
        }
    }
}

impl Outbox {
    /// Queues a message for a shard that another node owns. Returns the queue if it begins with this message: the caller has to start a
    /// task that sends it.
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

    /// Queues a message that this node's program does not understand, and later ones of the pair behind it, until a newer program takes it.
    /// Returns the queue if it begins with this message: the caller has to start a task that sends it.
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

    /// Handles the first message of a queue that was not taken because it waits for a newer program. From a shard's queue it moves into
    /// that of its pair, so that it delays no other pair. `Err`: it stays the first of its queue. `Ok`: the new queue, if any, for which
    /// the caller has to start a task.
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
            // The pair has a queue by now, and the message is in it.
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

    /// Queues this message if earlier ones wait; otherwise gives it back as `Err`.
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

    /// Returns the pair queues to a receiver.
    pub(crate) fn pairs_to(&self, to: &Address) -> Vec<PeerQueue> {
        let is_to = |queue: &&PeerQueue| queue.pair.as_ref().is_some_and(|(_, receiver)| receiver == to);
        self.with(|window| window.queues.keys().filter(is_to).cloned().collect())
    }

    /// Returns the next step for a peer queue. `look` gets its first messages, at most `most`.
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

    /// Removes the first message of a queue, which was taken.
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

    /// Leaves most messages of a queue to the log, because its first one was not taken for long, or because they take the room of others.
    /// Returns true if that is new.
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

    /// Adds the messages that were read from the log for a queue, from `seen` up to `reached`. All of them are added at once: what is
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
                // An earlier message was left to the log meanwhile, and comes before these.
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

    /// Returns the receivers whose programs do not understand the first of the messages that wait for them, with the reason.
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
