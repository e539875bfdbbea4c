//! Slow messages: those to entities that have spent a part of their credit. They come after the others.

use super::message::{Outgoing, hash_of};
use std::collections::{HashMap, VecDeque};
use throng_core::credit::Credit;

/// The bytes of a small message, about.
const SMALL_BYTES: usize = 768;
/// The part of its credit from which on messages to an entity are slow, as a divisor.
const SLOW_PART: u64 = 16;

/// Returns the credit of an entity: half of the messages and bytes that memory may hold.
pub(super) fn limit(messages_max: usize, bytes_max: usize) -> u64 {
    (bytes_max / 2).min((messages_max / 2).saturating_mul(SMALL_BYTES)) as u64
}

/// The credit of each entity, where it is so much.
pub(super) fn credit(limit: u64) -> Credit {
    Credit::new(limit).with_much(limit / SLOW_PART)
}

/// The slow messages.
#[derive(Default)]
pub(super) struct Slow {
    queue: VecDeque<Box<Outgoing>>,
    /// The number of slow messages for each receiver. Later messages to such a receiver join them, and stay in order.
    receivers: HashMap<u64, usize>,
    /// The number of each sender.
    senders: HashMap<u64, usize>,
    /// The number of other messages taken since the last slow one.
    pub(super) others: u8,
}

impl Slow {
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn messages(&self) -> impl Iterator<Item = &Box<Outgoing>> {
        self.queue.iter()
    }

    pub(super) fn has(&self, receiver: u64) -> bool {
        self.receivers.contains_key(&receiver)
    }

    /// True if a message of this entity is among them.
    pub(super) fn has_sender(&self, sender: u64) -> bool {
        self.senders.contains_key(&sender)
    }

    pub(super) fn push_back(&mut self, receiver: u64, outgoing: Box<Outgoing>) {
        self.has_come(receiver, &outgoing);
        self.queue.push_back(outgoing);
    }

    pub(super) fn push_front(&mut self, receiver: u64, outgoing: Box<Outgoing>) {
        self.has_come(receiver, &outgoing);
        self.queue.push_front(outgoing);
    }

    /// Returns the next one, if any may be taken.
    pub(super) fn pop(&mut self, may: &mut usize) -> Option<Box<Outgoing>> {
        let left = may.checked_sub(1)?;
        let outgoing = self.queue.pop_front()?;
        *may = left;
        self.others = 0;
        self.has_left(&outgoing);
        Some(outgoing)
    }

    fn has_come(&mut self, receiver: u64, outgoing: &Outgoing) {
        *self.receivers.entry(receiver).or_default() += 1;
        *self.senders.entry(sender_of(outgoing)).or_default() += 1;
    }

    fn has_left(&mut self, outgoing: &Outgoing) {
        count_down(&mut self.receivers, hash_of(&outgoing.delivery.to));
        count_down(&mut self.senders, sender_of(outgoing));
    }

    /// Removes these messages.
    pub(super) fn remove(&mut self, mut is_meant: impl FnMut(&mut Outgoing) -> bool) {
        let mut gone = Vec::new();
        for _ in 0..self.queue.len() {
            let Some(mut outgoing) = self.queue.pop_front() else {
                break;
            };
            if is_meant(&mut outgoing) {
                gone.push(outgoing);
            } else {
                self.queue.push_back(outgoing);
            }
        }
        gone.iter().for_each(|outgoing| self.has_left(outgoing));
    }
}

fn sender_of(outgoing: &Outgoing) -> u64 {
    hash_of(&outgoing.delivery.taking.sender)
}

fn count_down(counts: &mut HashMap<u64, usize>, of: u64) {
    if let Some(left) = counts.get_mut(&of) {
        *left -= 1;
        if *left == 0 {
            counts.remove(&of);
        }
    }
}
