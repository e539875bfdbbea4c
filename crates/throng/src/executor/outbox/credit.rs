//! The credit of each entity: a limit for the messages it has sent that are not taken yet.
//!
//! Once an entity has spent a sixteenth of its credit, messages to it are slow: they come after those to others, and only a few at a time,
//! so that what it has sent is taken before it sends more. Only an entity whose messages come back to it, directly or through others that
//! do the same, goes on to spend all of its credit while messages of its own are among the slow ones. The credit alone does not show that:
//! what an entity has sent may be only in the log, behind the messages to it that fill the memory.

use super::{
    Outbox, Window,
    message::{Outgoing, hash_of},
    peer_queue::Waiting,
};
use std::sync::atomic::Ordering;

/// The part of delivered messages that are slow, if there are slow ones: one in this many.
const SLOW_ONE_IN: u8 = 8;

impl Window {
    pub(super) fn charge(&mut self, outgoing: &Outgoing) {
        let bytes = outgoing.bytes() as u64;
        self.credit.charge(hash_of(&outgoing.delivery.taking.sender), bytes);
    }

    pub(super) fn give_back(&mut self, outgoing: &mut Outgoing) {
        outgoing.give_back(&mut self.credit);
    }

    /// Recounts the messages in memory, once there are no others. Some of those that were only in the log were dropped there, or taken by
    /// receivers that read them themselves.
    pub(super) fn recount(&mut self) {
        let mut credit = std::mem::take(&mut self.credit);
        credit.clear();
        for outgoing in self.all().filter(|outgoing| outgoing.is_charged) {
            credit.charge(hash_of(&outgoing.delivery.taking.sender), outgoing.bytes() as u64);
        }
        self.credit = credit;
    }

    /// True if the queues hold as many messages of an entity as its credit allows.
    fn fills_lines(&self, entity: u64) -> bool {
        let mut bytes = 0;
        self.queues.values().flat_map(Waiting::waiting).any(|outgoing| {
            if hash_of(&outgoing.delivery.taking.sender) == entity {
                bytes += outgoing.bytes() as u64;
            }
            bytes >= self.credit.limit()
        })
    }

    pub(super) fn has_none_next(&self) -> bool {
        self.queue.is_empty() && self.slow.len() == 0
    }

    /// Returns the next message, of any shard; a slow one only while this many slow ones may be taken.
    pub(super) fn next_in_turn(&mut self, slow: &mut usize) -> Option<Box<Outgoing>> {
        if self.slow.len() == 0 && self.credit.is_idle() {
            return self.queue.pop_front();
        }
        if self.slow.others >= SLOW_ONE_IN
            && let Some(outgoing) = self.slow.pop(slow)
        {
            return Some(outgoing);
        }
        while let Some(outgoing) = self.queue.pop_front() {
            let receiver = hash_of(&outgoing.delivery.to);
            if !self.slow.has(receiver) && !self.credit.has_spent_much(receiver) {
                self.slow.others = self.slow.others.saturating_add(1);
                return Some(outgoing);
            }
            self.slow.push_back(receiver, outgoing);
        }
        self.slow.pop(slow)
    }

    /// Puts a message back in front of the others to its receiver.
    pub(super) fn put_first(&mut self, outgoing: Box<Outgoing>) {
        if self.slow.len() > 0 {
            let receiver = hash_of(&outgoing.delivery.to);
            if self.slow.has(receiver) {
                return self.slow.push_front(receiver, outgoing);
            }
        }
        self.queue.push_front(outgoing);
    }
}

impl Outbox {
    /// True if an entity has spent its credit.
    pub(crate) fn is_spent(&self, entity: u64) -> bool {
        self.has_spenders.load(Ordering::Relaxed) && self.with(|window| window.credit.is_spent(entity))
    }

    /// True if an entity has spent its credit on messages that come back to it: they are slow themselves, or fill the peer queues.
    pub(crate) fn comes_back(&self, entity: u64) -> bool {
        self.has_spenders.load(Ordering::Relaxed)
            && self.with(|window| {
                window.credit.is_spent(entity) && (window.slow.has_sender(entity) || window.fills_lines(entity))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use throng_core::shard::Delivery;
    use throng_journal::{Address, CommitNo, Position, ShardId, WriterId};

    fn message(sender: &str, receiver: &str, number: u64) -> Box<Outgoing> {
        let body = serde_json::to_vec(&serde_json::json!({ "to": ["kind", receiver], "command": {} })).unwrap();
        let sender = Address::new("kind", sender);
        Box::new(Outgoing::new(
            Delivery::of_parts((ShardId(0), number), sender, "go", &body, number).unwrap(),
            Position::new(WriterId(1), CommitNo(number)),
        ))
    }

    /// Returns an outbox in which `big` has sent itself messages for more than half of its credit.
    fn outbox() -> Outbox {
        let outbox = Outbox::new(1, (80, usize::MAX), Arc::default());
        outbox.push((1..=50).map(|number| message("big", "big", number)));
        assert!(outbox.with(|window| window.credit.has_spent_much(hash_of(&Address::new("kind", "big")))));
        outbox
    }

    fn take(outbox: &Outbox) -> (String, u64) {
        let mut outgoing = outbox.take(&mut 1).unwrap();
        outbox.taken(&mut outgoing);
        (outgoing.delivery.to.id.to_string(), outgoing.number().1)
    }

    #[test]
    fn messages_to_a_spender_come_after_those_to_others() {
        let outbox = outbox();
        outbox.push((51..=60).map(|number| message("small", "other", number)));
        let order: Vec<_> = (0..12).map(|_| take(&outbox)).collect();
        let to_big: Vec<_> = order.iter().filter(|(to, _)| to == "big").collect();
        assert_eq!(to_big.len(), 2, "one in nine, and those after the others: {order:?}");
        assert_eq!(order[0], ("other".into(), 51));
        let rest: Vec<u64> = (0..48).map(|_| take(&outbox).1).collect();
        assert!(rest.is_sorted(), "in their order: {rest:?}");
        assert!(outbox.is_empty() && outbox.with(|window| window.credit.is_idle()));
    }

    #[test]
    fn messages_left_to_the_log_do_not_come_back() {
        let outbox = outbox();
        let big = hash_of(&Address::new("kind", "big"));
        assert!(!outbox.is_spent(big) && !outbox.comes_back(big), "it has spent a part");
        while outbox.take(&mut 1).is_some_and(|mut outgoing| {
            outbox.taken(&mut outgoing);
            true
        }) {}
        outbox.push((101..=180).map(|number| message("small", "big", number)));
        outbox.push((181..=260).map(|number| message("big", "other", number)));
        assert!(
            outbox.is_spent(big) && !outbox.comes_back(big),
            "its own are only in the log"
        );
    }

    #[test]
    fn messages_to_the_entity_itself_come_back() {
        let outbox = outbox();
        let big = hash_of(&Address::new("kind", "big"));
        let mut first = outbox.take(&mut 1).unwrap();
        outbox.taken(&mut first);
        outbox.push((51..=75).map(|number| message("big", "big", number)));
        assert!(outbox.is_spent(big) && outbox.comes_back(big));
    }

    #[test]
    fn no_more_slow_messages_are_taken_than_may_be() {
        let outbox = outbox();
        outbox.push([message("small", "other", 51)]);
        let mut slow = 2;
        let taken: Vec<u64> = std::iter::from_fn(|| outbox.take(&mut slow))
            .map(|outgoing| outgoing.number().1)
            .collect();
        assert_eq!((taken, slow), (vec![51, 1, 2], 0));
        assert!(!outbox.has_more_at_once() && outbox.has_slow());
    }

    #[test]
    fn slow_message_that_is_put_back_stays_first() {
        let outbox = outbox();
        let first = outbox.take(&mut 1).unwrap();
        let second = outbox.take(&mut 1).unwrap();
        outbox.put_back(second);
        outbox.put_back(first);
        let numbers: Vec<u64> = (0..50).map(|_| take(&outbox).1).collect();
        assert!(numbers.is_sorted(), "{numbers:?}");
    }

    #[test]
    fn quarantine_forgets_the_messages_of_the_entity() {
        let outbox = outbox();
        outbox.take(&mut 1).unwrap();
        outbox.quarantine(&Address::new("kind", "big"), "", Default::default());
        assert!(outbox.with(|window| window.credit.is_idle() && window.slow.len() == 0));
    }
}
