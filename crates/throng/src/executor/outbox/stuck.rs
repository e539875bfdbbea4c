//! Receivers that take no messages now: they cannot be loaded, or an operator has quarantined them. Their messages are left to the log, and
//! delay no others.

use super::{
    Outbox, Window,
    message::{Behind, Outgoing, hash_of},
    receiver::{Stuck, StuckEntity, Why},
};
use std::collections::{BTreeMap, HashMap};
use throng_core::model::Timestamp;
use throng_journal::{Address, Position};

impl Outbox {
    /// Returns the receivers of most messages in memory, at most `limit`, while the outbox is full.
    pub(crate) fn crowding(&self, limit: usize) -> Vec<(Address, u64)> {
        if !self.is_full() {
            return Vec::new();
        }
        let mut by_receiver: HashMap<Address, u64> = HashMap::new();
        self.with(|window| {
            for outgoing in window.all() {
                match by_receiver.get_mut(&outgoing.delivery.to) {
                    Some(messages) => *messages += 1,
                    None => _ = by_receiver.insert(outgoing.delivery.to.clone(), 1),
                }
            }
        });
        let mut by_receiver: Vec<(Address, u64)> = by_receiver.into_iter().collect();
        by_receiver.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
        by_receiver.truncate(limit);
        by_receiver
    }

    /// Notes that a receiver cannot be loaded. Its messages are left to the log, so that they delay no others.
    pub(crate) fn set_stuck(&self, to: &Address, reason: String, now: Timestamp) {
        self.with(|window| {
            if let Some(stuck) = window.stuck.get_mut(to) {
                if stuck.why == Why::Load {
                    stuck.reason = reason;
                }
                return;
            }
            let mut stuck = Stuck::new(Why::Load, reason, now);
            window.leave_parked(to, &mut stuck);
            if stuck.behind.is_some() {
                window.stuck.insert(to.clone(), stuck);
            }
        });
    }

    /// Notes that an operator has quarantined a receiver. Its messages are left to the log and take no room. Most of what did not
    /// fit in memory is probably its own, so work from outside is let in again while that part of the log is read.
    pub(crate) fn quarantine(&self, to: &Address, reason: &str, now: Timestamp) {
        self.with(|window| {
            let mut stuck = window
                .stuck
                .remove(to)
                .unwrap_or_else(|| Stuck::new(Why::Quarantined, String::new(), now));
            (stuck.why, stuck.reason) = (Why::Quarantined, reason.to_owned());
            window.leave_parked(to, &mut stuck);
            window.leave_queued(to, &mut stuck);
            // The messages that this receiver has sent count again only once it is released.
            window.credit.forget(hash_of(to));
            window.stuck.insert(to.clone(), stuck);
            window.released.retain(|released| released != to);
            window.overflowed = false;
        });
    }

    /// Notes that a receiver's quarantine has ended: its messages are to be [taken up](Self::take_released).
    pub(crate) fn release(&self, to: &Address) {
        let is_waiting = self.with(|window| {
            let Some(stuck) = window.stuck.get_mut(to).filter(|stuck| stuck.why == Why::Quarantined) else {
                return false;
            };
            if stuck.behind.is_none() {
                window.stuck.remove(to);
                return false;
            }
            stuck.why = Why::Released;
            stuck.reason = "it was released, and takes up what has waited for it".to_owned();
            window.released.push(to.clone());
            true
        });
        if is_waiting {
            self.has_room.wake();
        }
    }

    /// Returns and removes the receivers that were released since the last call.
    pub(crate) fn take_released(&self) -> Vec<Address> {
        self.with(|window| std::mem::take(&mut window.released))
    }

    /// Returns the position from which the log may hold messages for a receiver that an operator has quarantined, if it may; `None`: it is
    /// not quarantined.
    pub(crate) fn waits_from(&self, to: &Address) -> Option<Option<Position>> {
        self.with(|window| {
            let stuck = window.stuck.get(to).filter(|stuck| stuck.why == Why::Quarantined)?;
            // The part of the log that was not read yet may hold some, too.
            let behind = stuck.behind.into_iter().chain(window.behind);
            Some(behind.map(|behind| behind.read).min())
        })
    }

    /// Notes that the messages to a quarantined receiver up to here were dropped.
    pub(crate) fn dropped(&self, to: &Address, upto: Position) {
        self.with(|window| {
            if let Some(stuck) = window.stuck.get_mut(to)
                && let Some(behind) = &mut stuck.behind
            {
                behind.read = behind.read.max(upto);
                if behind.upto <= upto {
                    (stuck.behind, stuck.messages) = (None, 0);
                }
            }
        });
    }

    /// Receivers that an operator has quarantined.
    pub(crate) fn quarantined(&self) -> Vec<Address> {
        self.waiting_for_quarantined().into_keys().collect()
    }

    /// Returns about how many messages each quarantined receiver has in the log. A message that was in memory may be read, and counted,
    /// again.
    pub(crate) fn waiting_for_quarantined(&self) -> BTreeMap<Address, u64> {
        self.with(|window| {
            let quarantined = window.stuck.iter().filter(|(_, stuck)| stuck.why == Why::Quarantined);
            quarantined.map(|(to, stuck)| (to.clone(), stuck.messages)).collect()
        })
    }

    /// Returns receivers that cannot be loaded, are taking up their messages, or have messages that wait for a newer program, with the
    /// reason.
    pub(crate) fn stuck(&self) -> Vec<StuckEntity> {
        self.with(|window| {
            let stuck = window.stuck.iter().filter(|(_, stuck)| stuck.why != Why::Quarantined);
            let stuck = stuck.map(|(to, stuck)| StuckEntity {
                address: to.clone(),
                reason: stuck.reason.clone(),
                since: stuck.since,
                messages: stuck.messages,
            });
            let mut found: Vec<StuckEntity> = stuck.chain(Self::not_understood(window)).collect();
            found.sort_by(|one, other| one.address.cmp(&other.address));
            // If several queues lead to it, the first one's reason is shown.
            found.dedup_by(|more, one| {
                let is_same = more.address == one.address;
                if is_same {
                    one.messages += more.messages;
                    one.since = one.since.min(more.since);
                }
                is_same
            });
            found
        })
    }

    /// Returns the part of the log with a stuck receiver's messages; `None` for a quarantined one, whose messages stay there.
    pub(crate) fn stuck_behind(&self, to: &Address) -> Option<Behind> {
        self.with(|window| {
            let stuck = window.stuck.get(to).filter(|stuck| stuck.why != Why::Quarantined);
            stuck.and_then(|stuck| stuck.behind)
        })
    }

    /// Notes that a stuck receiver took its messages up to here, starting from `seen`. True: those were all, and it is no longer stuck.
    pub(crate) fn caught_up(&self, to: &Address, seen: Behind, read: Position, is_end: bool) -> bool {
        self.with(|window| {
            let Some(stuck) = window.stuck.get_mut(to) else {
                return true;
            };
            if stuck.why == Why::Quarantined {
                return true;
            }
            let is_all = match &mut stuck.behind {
                Some(behind) => behind.has_read(seen, read, is_end),
                None => true,
            };
            if is_all {
                window.stuck.remove(to);
            }
            is_all
        })
    }
}

impl Window {
    /// Leaves a message to a stuck receiver to the log.
    pub(super) fn drop_if_stuck(&mut self, outgoing: &mut Outgoing) -> bool {
        let Some(stuck) = self.stuck.get_mut(&outgoing.delivery.to) else {
            return false;
        };
        stuck.leave(outgoing.sent);
        self.let_go(outgoing);
        self.give_back(outgoing);
        true
    }

    /// Leaves the parked messages of a receiver to the log.
    fn leave_parked(&mut self, to: &Address, stuck: &mut Stuck) {
        for mut outgoing in self.parked.remove(to).unwrap_or_default() {
            self.give_back(&mut outgoing);
            self.parked_len -= 1;
            self.bytes -= outgoing.bytes();
            stuck.leave(outgoing.sent);
        }
    }

    /// Leaves the queued messages of a receiver to the log.
    fn leave_queued(&mut self, to: &Address, stuck: &mut Stuck) {
        let (bytes, credit) = (&mut self.bytes, &mut self.credit);
        let mut leaves = |outgoing: &mut Outgoing| {
            let is_meant = outgoing.delivery.to == *to;
            if is_meant {
                *bytes -= outgoing.bytes();
                outgoing.give_back(credit);
                stuck.leave(outgoing.sent);
            }
            is_meant
        };
        self.queue.retain_mut(|outgoing| !leaves(outgoing));
        self.slow.remove(&mut leaves);
        self.inboxes.remove(leaves);
    }
}
