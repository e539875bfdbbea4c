//! The outbox: messages on their way. The log holds all of them, memory the next ones.

mod credit;
mod inbox;
mod inboxes;
mod message;
mod peer_queue;
mod peer_queues;
mod receiver;
mod slow;
mod stuck;

pub use message::Pending;
pub(crate) use message::{Behind, Outgoing, Waiter};
pub(crate) use peer_queue::{Next, PeerQueue};
pub use receiver::StuckEntity;

use crate::host::Signal;
use inbox::Inboxes;
use message::before;
use peer_queue::Waiting;
use receiver::Stuck;
use slow::Slow;
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};
use throng_core::credit::Credit;
use throng_journal::{Address, Position, ShardId};

/// The outbox of one writer's epoch.
pub(crate) struct Outbox {
    shards: u16,
    messages_max: usize,
    bytes_max: usize,
    window: Mutex<Window>,
    /// True while so many messages wait that no work is let in from outside. Written with the window locked.
    is_full: AtomicBool,
    /// True while an entity has spent its credit. Written with the window locked.
    has_spenders: AtomicBool,
    /// Woken when memory has room again for messages that are only in the log.
    has_room: Arc<Signal>,
}

#[derive(Default)]
struct Window {
    queue: VecDeque<Box<Outgoing>>,
    /// The messages for entities that have spent much of their credit. They come after the others.
    slow: Slow,
    /// The bytes that each entity has sent and that are not taken, except those left to the log for a receiver that takes none.
    credit: Credit,
    /// The messages for shards whose locks are busy.
    inboxes: Inboxes,
    /// Behind a receiver that is being loaded, in order.
    parked: HashMap<Address, VecDeque<Box<Outgoing>>>,
    parked_len: usize,
    /// The messages in peer queues. A task sends the messages of each queue that is listed here.
    queues: BTreeMap<PeerQueue, Waiting>,
    /// The number of queues that are pairs'.
    pairs: usize,
    lined_len: usize,
    /// The bytes of all messages, including those under delivery.
    bytes: usize,
    /// The messages under delivery, neither queued nor taken: the commit of each, and its bytes.
    in_hand: Vec<(Position, usize)>,
    /// The part of the log from which messages are still to be read.
    behind: Option<Behind>,
    /// True if the outbox fell behind because there was no room, and not because the engine has just started.
    overflowed: bool,
    /// Receivers that take no messages now. Their messages are only in the log, and delay no others.
    stuck: BTreeMap<Address, Stuck>,
    /// Receivers among these that an operator has released, and whose messages are to be [taken up](Outbox::take_released).
    released: Vec<Address>,
}

/// The position of a message whose receiver has to be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parked {
    /// The first one for this receiver: the caller has to load it.
    First,
    /// Others for the same receiver are before it.
    Behind,
}

impl Outbox {
    pub(crate) fn new(shards: u16, (messages_max, bytes_max): (usize, usize), has_room: Arc<Signal>) -> Self {
        Self {
            shards,
            messages_max,
            bytes_max,
            window: Mutex::new(Window {
                credit: slow::credit(slow::limit(messages_max, bytes_max)),
                ..Window::default()
            }),
            is_full: AtomicBool::new(false),
            has_spenders: AtomicBool::new(false),
            has_room,
        }
    }

    fn with<R>(&self, change: impl FnOnce(&mut Window) -> R) -> R {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let could_read = self.may_read(&window);
        let changed = change(&mut window);
        let is_full = window.overflowed && window.behind.is_some() || self.has_no_room(&window);
        self.is_full.store(is_full, Ordering::Relaxed);
        self.has_spenders.store(window.credit.has_spenders(), Ordering::Relaxed);
        let can_read = self.may_read(&window);
        drop(window);
        if can_read && !could_read {
            self.has_room.wake();
        }
        changed
    }

    /// True if there is room for messages that are only in the log.
    fn may_read(&self, window: &Window) -> bool {
        window.behind.is_some() && !self.has_no_room(window)
    }

    fn has_no_room(&self, window: &Window) -> bool {
        window.len() >= self.messages_max || window.bytes > self.bytes_max
    }

    //= promise 9: everything is bounded
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// Messages in memory.
    pub(crate) fn len(&self) -> usize {
        self.with(|window| window.len())
    }

    /// True if the only messages are those for stuck receivers, and those that wait for a newer program.
    pub(crate) fn is_empty(&self) -> bool {
        self.with(|window| {
            let is_on_its_way = |(queue, of): (&PeerQueue, &Waiting)| {
                queue.pair.is_none() && (of.behind().is_some() || !of.waiting().is_empty())
            };
            let is_idle = window.has_none_next() && window.parked_len == 0 && window.in_hand.is_empty();
            is_idle
                && window.inboxes.held_len() == 0
                && window.behind.is_none()
                && !window.queues.iter().any(is_on_its_way)
        })
    }

    /// True if there is something to deliver, or to read from the log.
    pub(crate) fn has_more(&self) -> bool {
        self.with(|window| !window.has_none_next() || self.may_read(window))
    }

    /// The same, without slow messages.
    pub(crate) fn has_more_at_once(&self) -> bool {
        self.with(|window| !window.queue.is_empty() || self.may_read(window))
    }

    /// True if there are slow messages.
    pub(crate) fn has_slow(&self) -> bool {
        self.with(|window| window.slow.len() > 0)
    }

    /// Returns the commit before the oldest message that was not taken, if there is one.
    pub(crate) fn oldest(&self) -> Option<Position> {
        self.with(|window| {
            let held = window
                .all()
                .map(|outgoing| outgoing.sent)
                .chain(window.in_hand.iter().map(|(sent, _)| *sent));
            let stuck = window.stuck.values().filter_map(|stuck| stuck.behind);
            let queues = window.queues.values().filter_map(Waiting::behind);
            let behind = window.behind.into_iter().chain(stuck).chain(queues);
            held.map(before).chain(behind.map(|behind| behind.read)).min()
        })
    }

    /// Adds messages in the order they were sent. Their shard's lock is held, so that a checkpoint sees every message that
    /// was sent before it looked.
    pub(crate) fn push(&self, sent: impl IntoIterator<Item = Box<Outgoing>>) {
        self.with(|window| {
            for outgoing in sent {
                let at = outgoing.sent;
                // Messages of several shards may come in another order than their commits.
                if let Some(stuck) = window.stuck.get_mut(&outgoing.delivery.to) {
                    stuck.leave(at);
                    continue;
                }
                window.charge(&outgoing);
                if let Some(behind) = &mut window.behind {
                    behind.add(at);
                } else if self.has_no_room(window) {
                    window.behind = Some(Behind::of(at));
                    window.overflowed = true;
                } else {
                    window.append(outgoing);
                }
            }
        });
    }

    /// Takes the next message for delivery. Takes a slow one only while `slow` is above zero, and counts it there.
    pub(crate) fn take(&self, slow: &mut usize) -> Option<Box<Outgoing>> {
        self.with(|window| {
            let mut outgoing = window.next(self.shards, slow)?;
            // The message keeps its room, because it may come back.
            outgoing.is_in_hand = true;
            window.in_hand.push((outgoing.sent, outgoing.bytes()));
            Some(outgoing)
        })
    }

    /// Puts back a message that could not be delivered now: it is next again.
    pub(crate) fn put_back(&self, mut outgoing: Box<Outgoing>) {
        self.with(|window| {
            window.let_go(&mut outgoing);
            window.bytes += outgoing.bytes();
            window.put_first(outgoing);
        });
    }

    /// Removes a message that its receiver has taken.
    pub(crate) fn taken(&self, outgoing: &mut Outgoing) {
        self.with(|window| {
            window.let_go(outgoing);
            window.give_back(outgoing);
        });
    }

    /// True if earlier messages wait for the same receiver to be loaded or released, or for a newer program.
    pub(crate) fn is_awaited(&self, shard: ShardId, outgoing: &Outgoing) -> bool {
        let to = &outgoing.delivery.to;
        !outgoing.is_first_in_line
            && self.with(|window| {
                let is_loaded = window.parked.contains_key(to) || window.stuck.contains_key(to);
                is_loaded || window.is_behind(shard, outgoing)
            })
    }

    /// Parks a message until its receiver is loaded, in its sender's order, or behind those that wait for a newer program.
    pub(crate) fn park(&self, shard: ShardId, mut outgoing: Box<Outgoing>) -> Parked {
        self.with(|window| {
            if window.goes_into_line(shard, &outgoing) {
                window.let_go(&mut outgoing);
                let queue = window.queue_of(shard, &outgoing);
                window.join(&queue, outgoing);
                return Parked::Behind;
            }
            if window.drop_if_stuck(&mut outgoing) {
                return Parked::Behind;
            }
            window.park(outgoing)
        })
    }

    /// Puts the messages that waited for a receiver, which is loaded now, first.
    pub(crate) fn unpark(&self, to: &Address) {
        self.with(|window| {
            for outgoing in window.parked.remove(to).unwrap_or_default().into_iter().rev() {
                window.parked_len -= 1;
                window.put_first(outgoing);
            }
        });
    }

    /// Notes that some messages between these positions are only in the log.
    pub(crate) fn fall_behind(&self, behind: Behind) {
        self.with(|window| {
            window.behind = Some(behind);
            window.overflowed = false;
        });
    }

    /// Returns the part of the log to read next; `None` while messages in memory are still to be delivered. Slow ones delay no others.
    pub(crate) fn to_read(&self) -> Option<Behind> {
        self.with(|window| {
            let is_ready = window.queue.is_empty() && self.may_read(window);
            window.behind.filter(|_| is_ready)
        })
    }

    /// Adds the messages of one commit that were read from the log; `has_sent` is true if this epoch sent them. Returns false if no more
    /// fit.
    pub(crate) fn append(&self, messages: impl IntoIterator<Item = Box<Outgoing>>, has_sent: bool) -> bool {
        self.with(|window| {
            for mut outgoing in messages {
                outgoing.is_charged = has_sent;
                if let Some(stuck) = window.stuck.get_mut(&outgoing.delivery.to) {
                    stuck.leave(outgoing.sent);
                    window.give_back(&mut outgoing);
                } else {
                    if !has_sent {
                        window.charge(&outgoing);
                    }
                    window.append(outgoing);
                }
            }
            !self.has_no_room(window)
        })
    }

    /// Notes that the log was read up to here, starting from `seen`.
    pub(crate) fn has_read(&self, seen: Behind, read: Position, is_end: bool) {
        self.with(|window| {
            if let Some(now) = &mut window.behind
                && now.has_read(seen, read, is_end)
            {
                window.behind = None;
                window.recount();
            }
        });
    }

    /// Returns messages in memory from and to this entity, at most `limit` of each.
    pub(crate) fn pending(&self, of: &Address, limit: usize) -> (Vec<Pending>, Vec<Pending>) {
        self.with(|window| {
            let (sent, coming) = (
                window.all().filter(|outgoing| outgoing.delivery.taking.sender == *of),
                window.all().filter(|outgoing| outgoing.delivery.to == *of),
            );
            (
                sent.take(limit).map(|outgoing| outgoing.view()).collect(),
                coming.take(limit).map(|outgoing| outgoing.view()).collect(),
            )
        })
    }
}

impl Window {
    fn len(&self) -> usize {
        self.queue.len()
            + self.slow.len()
            + self.inboxes.held_len()
            + self.parked_len
            + self.lined_len
            + self.in_hand.len()
    }

    fn all(&self) -> impl Iterator<Item = &Box<Outgoing>> {
        let waiting = self.parked.values().chain(self.queues.values().map(Waiting::waiting));
        let next = self.queue.iter().chain(self.slow.messages());
        next.chain(self.inboxes.held()).chain(waiting.flatten())
    }

    fn append(&mut self, mut outgoing: Box<Outgoing>) {
        outgoing.is_charged = true;
        self.bytes += outgoing.bytes();
        self.queue.push_back(outgoing);
    }

    fn park(&mut self, mut outgoing: Box<Outgoing>) -> Parked {
        self.let_go(&mut outgoing);
        self.parked_len += 1;
        self.bytes += outgoing.bytes();
        let parked = self.parked.entry(outgoing.delivery.to.clone()).or_default();
        let is_first = parked.is_empty();
        let (from, number) = outgoing.number();
        let later = |other: &Outgoing| other.delivery.taking.from == from && other.delivery.taking.number > number;
        match parked.iter().position(|other| later(other)) {
            Some(at) => parked.insert(at, outgoing),
            None => parked.push_back(outgoing),
        }
        if is_first { Parked::First } else { Parked::Behind }
    }

    /// Ends the delivery of a message: it was taken, or put back into the outbox.
    fn let_go(&mut self, outgoing: &mut Outgoing) {
        let held = (outgoing.sent, outgoing.bytes());
        if std::mem::take(&mut outgoing.is_in_hand)
            && let Some(at) = self.in_hand.iter().position(|other| *other == held)
        {
            self.bytes -= self.in_hand.swap_remove(at).1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use throng_core::shard::Delivery;
    use throng_journal::{CommitNo, WriterId};

    fn at(commit: u64) -> Position {
        Position::new(WriterId(1), CommitNo(commit))
    }

    #[test]
    fn messages_left_to_the_log_during_a_read_are_read() {
        let mut behind = Behind::of(at(10));
        behind.add(at(20));
        let seen = behind;
        assert_eq!((seen.read, seen.upto), (at(9), at(20)));
        assert!(!behind.has_read(seen, at(15), false));
        // A message of an earlier commit, which a thread held meanwhile.
        let seen = behind;
        behind.add(at(12));
        assert!(!behind.has_read(seen, at(20), false), "it is not among what was read");
        assert_eq!(behind.read, at(11));
        let seen = behind;
        behind.add(at(30));
        assert!(!behind.has_read(seen, at(20), true), "more has come since");
        assert!(behind.has_read(behind, at(30), false));
        assert!(behind.has_read(behind, at(25), true), "nothing was left of it");
    }

    /// Returns a message of this commit, with this number in its shard.
    fn message(commit: u64, number: u64) -> Box<Outgoing> {
        let body = br#"{"to":["kind","id"],"command":{}}"#;
        let sender = Address::new("kind", "sender");
        Box::new(Outgoing::new(
            Delivery::of_parts((ShardId(0), number), sender, "go", body, commit).unwrap(),
            at(commit),
        ))
    }

    fn outbox(messages_max: usize) -> Outbox {
        Outbox::new(1, (messages_max, usize::MAX), Arc::default())
    }

    fn was_woken(outbox: &Outbox) -> bool {
        outbox.has_room.poll(std::task::Waker::noop())
    }

    #[test]
    fn a_message_in_somebodys_hands_keeps_its_room() {
        let outbox = outbox(1);
        outbox.push([message(1, 1)]);
        let first = outbox.take(&mut 1).unwrap();
        assert!(outbox.is_full());
        outbox.push([message(2, 2)]);
        outbox.put_back(first);
        assert_eq!(outbox.len(), 1, "the second is only in the log");
        let mut first = outbox.take(&mut 1).unwrap();
        assert_eq!(outbox.to_read(), None);
        outbox.taken(&mut first);
        assert_eq!((outbox.len(), outbox.with(|window| window.bytes)), (0, 0));
        assert_eq!(outbox.to_read(), Some(Behind::of(at(2))));
    }

    #[test]
    fn one_that_was_read_from_the_log_leaves_nobodys_hands() {
        let outbox = outbox(10);
        outbox.push([message(1, 1)]);
        let _held = outbox.take(&mut 1).unwrap();
        // The second message is of the same commit.
        assert_eq!(outbox.park(ShardId(1), message(1, 2)), Parked::First);
        outbox.unpark(&message(1, 2).delivery.to);
        let mut second = outbox.take(&mut 1).unwrap();
        outbox.taken(&mut second);
        assert_eq!(outbox.oldest(), Some(at(0)), "the one that is held is not taken");
    }

    #[test]
    fn room_wakes_the_reader_of_the_log() {
        let outbox = outbox(1);
        outbox.push([message(1, 1)]);
        let first = outbox.take(&mut 1).unwrap();
        let queue = outbox.send_remote(ShardId(1), first).unwrap();
        outbox.push([message(2, 2)]);
        assert!(
            !outbox.has_more() && !was_woken(&outbox),
            "the first takes all the room"
        );
        // The queue is unreachable, so it gives its room to others.
        outbox.set_unreachable(&queue);
        assert!(outbox.has_more() && was_woken(&outbox));
        assert_eq!(outbox.to_read(), Some(Behind::of(at(2))));
        assert!(!was_woken(&outbox), "once");
    }

    #[test]
    fn late_message_of_an_earlier_commit_is_read_from_the_log() {
        let outbox = outbox(1);
        outbox.push([message(5, 1), message(6, 2)]);
        assert_eq!(outbox.with(|window| window.behind), Some(Behind::of(at(6))));
        // A message of another shard, whose thread was delayed after it had recorded the message.
        outbox.push([message(3, 1)]);
        assert_eq!(
            outbox.with(|window| window.behind),
            Some(Behind {
                read: at(2),
                upto: at(6)
            })
        );
    }

    /// Returns a queue whose peer is unreachable, and whose only message is left to the log.
    fn unreachable_queue(outbox: &Outbox, first: Box<Outgoing>) -> PeerQueue {
        let queue = outbox.send_remote(ShardId(1), first).unwrap();
        outbox.set_unreachable(&queue);
        queue
    }

    fn next(outbox: &Outbox, queue: &PeerQueue) -> Next<u64> {
        outbox.next_of(queue, usize::MAX, |outgoing| outgoing.number().1)
    }

    #[test]
    fn messages_left_to_the_log_again_are_read_again() {
        let outbox = outbox(10);
        let queue = unreachable_queue(&outbox, message(1, 1));
        let seen = Behind::of(at(1));
        assert_eq!(next(&outbox, &queue), Next::Read(seen));
        outbox.has_read_of(&queue, seen, [message(1, 1)].into(), (at(1), false));
        assert_eq!(next(&outbox, &queue), Next::Send(vec![1]));
        // The next message arrives before the first was taken.
        assert_eq!(outbox.send_remote(ShardId(1), message(2, 2)), None);
        let both = Behind {
            read: at(0),
            upto: at(2),
        };
        assert_eq!(next(&outbox, &queue), Next::Read(both));
    }

    #[test]
    fn read_messages_wait_for_an_earlier_one_left_to_the_log() {
        let outbox = outbox(10);
        let queue = unreachable_queue(&outbox, message(2, 1));
        let seen = Behind::of(at(2));
        assert_eq!(next(&outbox, &queue), Next::Read(seen));
        assert_eq!(outbox.send_remote(ShardId(1), message(1, 1)), None);
        outbox.has_read_of(&queue, seen, [message(2, 1)].into(), (at(2), false));
        let both = Behind {
            read: at(0),
            upto: at(2),
        };
        assert_eq!(next(&outbox, &queue), Next::Read(both));
    }
}
