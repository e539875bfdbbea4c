//! The timers of a shard that are in memory: all that are due soon, and all that changed since the last checkpoint.
//!
//! The others are only in the store. They are read page by page, in the order of their due times, before the last one in memory is due.
//! After a checkpoint the last ones leave memory again, if there are too many.

use super::{
    Standing, TimerKey, Timers, TimersCount,
    rows::{
        KeyParts, StoredTimer, TIMER_ROWS, TimersStored, call_of, due_row, due_rows, entity_of, place_of, read_due_row,
        timer_row,
    },
};
use crate::model::Timestamp;
use std::ops::Bound;
use throng_journal::ShardId;

/// The most rows without a timer that are removed at a time.
const STALE_MAX: usize = 1_024;
/// A page that could not be read is read again after this.
const RETRY_MICROS: i64 = 1_000_000;

/// A page of timers to be read from the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimersPage {
    shard: ShardId,
    upto: (i64, Vec<u8>),
    generation: u64,
}

impl TimersPage {
    /// Returns the prefix of the rows that find these timers.
    #[must_use]
    pub fn prefix(&self) -> Vec<u8> {
        due_rows(self.shard)
    }

    /// The row after which the page begins.
    #[must_use]
    pub fn after(&self) -> Vec<u8> {
        let (place, key) = &self.upto;
        due_row(self.shard, *place, key)
    }

    /// Returns the row of the timer that one of the page's rows finds.
    #[must_use]
    pub fn timer_row(found: &[u8]) -> Option<Vec<u8>> {
        read_due_row(found).map(|(_, key)| timer_row(key))
    }
}

/// A page that was read.
#[derive(Clone, Debug, Default)]
pub struct TimersRead {
    /// The rows that find timers, in order, each with the value of the timer's row.
    pub found: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// True if there are no more after these.
    pub is_last: bool,
}

impl Timers {
    /// True if the store may have a timer of this key that is not in memory.
    pub(super) fn may_be_stored(&self, key: &[u8]) -> bool {
        self.window.upto.is_some() && !self.is_changed(key) && !self.has_ended(key)
    }

    /// True if the store has no timers besides those in memory.
    pub(super) fn is_all_in_memory(&self) -> bool {
        let window = &self.window;
        window.upto.is_none() && !window.is_rebuilt && self.ended.is_empty() && self.given_ended.is_empty()
    }

    /// True if the row of this key in the store is outdated.
    fn is_changed(&self, key: &[u8]) -> bool {
        self.changed.contains_key(key) || self.given.contains(key)
    }

    /// True if the entity of a key has ended since the last checkpoint.
    fn has_ended(&self, key: &[u8]) -> bool {
        let is_any = !self.ended.is_empty() || !self.given_ended.is_empty();
        is_any && {
            let entity = entity_of(key);
            self.ended.contains(entity) || self.given_ended.contains(entity)
        }
    }

    /// Notes that a page could not be read: it is due again later.
    pub(crate) fn unread(&mut self, now: Timestamp) {
        self.window.refill_at = now.micros.saturating_add(RETRY_MICROS);
    }

    /// Rows of the store do not count, and the next checkpoint replaces them.
    pub(crate) fn in_journal(&mut self) {
        self.window.is_rebuilt = true;
    }

    pub(crate) fn in_store(&mut self, count: TimersCount) {
        let window = &mut self.window;
        (window.upto, window.refill_at) = (Some((i64::MIN, Vec::new())), i64::MIN);
        (window.stored, window.is_counted) = (count, true);
        self.calls.has_changed = true;
    }

    pub(crate) fn page(&self, shard: ShardId, now: Timestamp) -> Option<TimersPage> {
        let window = &self.window;
        let upto = window.upto.clone().filter(|_| window.refill_at <= now.micros)?;
        Some(TimersPage {
            shard,
            upto,
            generation: window.generation,
        })
    }

    pub(crate) fn read(&mut self, page: &TimersPage, read: TimersRead) -> bool {
        let window = &self.window;
        let is_current = page.generation == window.generation && window.upto.as_ref() == Some(&page.upto);
        if is_current {
            self.take_over(read);
        }
        is_current
    }

    fn take_over(&mut self, read: TimersRead) {
        let middle = read.found.get(read.found.len() / 2);
        let middle = middle.and_then(|(row, _)| read_due_row(row));
        self.window.refill_at = middle.map_or(i64::MIN, |(place, _)| place);
        let last = read.found.iter().rev().find_map(|(row, _)| read_due_row(row));
        self.window.upto = last.filter(|_| !read.is_last).map(|(place, key)| (place, key.to_vec()));
        for (row, value) in read.found {
            let Some((place, key)) = read_due_row(&row) else {
                continue;
            };
            if self.is_changed(key) || self.has_ended(key) || self.set.contains_key(key) {
                continue;
            }
            let set = value.and_then(|value| serde_json::from_slice::<super::Set>(&value).ok());
            match set {
                Some(set) if place_of(key, set.at) == place => {
                    let standing = Standing {
                        set,
                        at: 0,
                        is_left: true,
                    };
                    self.put(key.into(), standing);
                }
                _ if self.window.stale.len() < STALE_MAX => self.window.stale.push(row),
                _ => {}
            }
        }
    }

    pub(crate) fn stored(&mut self, stored: &TimersStored, kept: usize) {
        for key in std::mem::take(&mut self.given) {
            self.pending_bytes -= super::weigh_change(&key);
        }
        for entity in std::mem::take(&mut self.given_ended) {
            self.pending_bytes -= super::weigh_change(&entity);
        }
        self.calls.stored();
        let window = &mut self.window;
        window.stored = stored.count.clone();
        (window.is_marked, window.is_rebuilt) = (true, false);
        (window.is_counted, window.is_unsure) = (true, false);
        self.window.generation += 1;
        stored.found.iter().for_each(|of| self.credit.give_back(*of, 1));
        self.put_away(kept);
    }

    /// Removes the timers from memory that are due last and are unchanged in the store.
    fn put_away(&mut self, kept: usize) {
        if self.set.len() > self.changed.len() + 2 * kept {
            let soon = self.order.iter().filter(|(at, key)| self.is_in_order(*at, key));
            let soon: Vec<&(i64, TimerKey)> = soon.take(kept.max(1)).collect();
            if let (Some((middle, _)), Some((at, key))) = (soon.get(soon.len() / 2), soon.last()) {
                let last = (*at, key.to_vec());
                if self.window.upto.as_ref().is_none_or(|upto| last < *upto) {
                    (self.window.upto, self.window.refill_at) = (Some(last), *middle);
                }
            }
        }
        let Some((at, key)) = &self.window.upto else {
            return;
        };
        let beyond = (Bound::Excluded((*at, TimerKey::from(&key[..]))), Bound::Unbounded);
        let beyond = self.order.range(beyond).filter(|(at, key)| self.is_in_order(*at, key));
        let beyond: Vec<TimerKey> = beyond
            .filter(|(_, key)| !self.changed.contains_key(key))
            .map(|(_, key)| TimerKey::clone(key))
            .collect();
        beyond.iter().for_each(|key| _ = self.take(key));
    }

    /// True if a timer is at the place where the store has it: it is no quarantine, and has not failed to fire.
    fn is_in_order(&self, at: i64, key: &[u8]) -> bool {
        !self.deferred.contains_key(key) && place_of(key, at) == at
    }

    /// Restores a timer from a store in which no other row finds it. The next checkpoint adds such a row. `false`: it cannot be read.
    pub(crate) fn restore(&mut self, row: &[u8], value: &[u8]) -> bool {
        let key = row.strip_prefix(TIMER_ROWS).filter(|key| KeyParts::of(key).is_some());
        let (Some(key), Ok(set)) = (key.map(TimerKey::from), serde_json::from_slice(value)) else {
            return false;
        };
        self.change(&key);
        self.changed.insert(TimerKey::clone(&key), StoredTimer::Unfound);
        // An older program has written it, and did not count it.
        if let Some(kind) = call_of(&key) {
            self.calls.add(kind, 1);
        }
        let standing = Standing {
            set,
            at: 0,
            is_left: true,
        };
        self.put(key, standing);
        true
    }
}
