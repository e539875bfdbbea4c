//! What idempotency keys remember of refusals: that a command was refused under a key, so that a twin of it that comes late is not
//! accepted after its client was told "no".
//!
//! In memory alone, and bounded: what comes late comes over a connection of this process. A refusal costs no write.

use crate::model::Timestamp;
use std::collections::HashSet;

/// Refusals of one generation; two are kept.
const GENERATION_MAX: usize = 16_384;
/// A generation takes refusals for so long.
const GENERATION_MICROS: i64 = 300_000_000;
/// A number's share of a set, about.
const BYTES: usize = 16;

/// A shard's refused keys, each with its command in one number.
#[derive(Debug, Default)]
pub(super) struct Refused {
    young: HashSet<u64>,
    old: HashSet<u64>,
    /// When the young generation began.
    begun_micros: i64,
}

/// A key of an entity and the fingerprint of a command, in one number.
fn number(key: u128, fingerprint: u64) -> u64 {
    (key as u64) ^ ((key >> 64) as u64).rotate_left(32) ^ fingerprint
}

impl Refused {
    /// This command was refused under this key.
    pub(super) fn insert(&mut self, key: u128, fingerprint: u64, now: Timestamp) {
        if self.young.len() >= GENERATION_MAX || !self.is_within(now, GENERATION_MICROS) {
            self.old = match self.is_within(now, 2 * GENERATION_MICROS) {
                true => std::mem::take(&mut self.young),
                false => HashSet::new(),
            };
            self.young.clear();
            self.begun_micros = now.micros;
        }
        self.young.insert(number(key, fingerprint));
    }

    /// Whether it was, lately.
    pub(super) fn contains(&self, key: u128, fingerprint: u64, now: Timestamp) -> bool {
        let number = number(key, fingerprint);
        let is_in = |refused: &HashSet<u64>, micros| self.is_within(now, micros) && refused.contains(&number);
        is_in(&self.young, 2 * GENERATION_MICROS) || is_in(&self.old, GENERATION_MICROS)
    }

    /// Bytes they take in memory.
    pub(super) fn bytes(&self) -> usize {
        (self.young.capacity() + self.old.capacity()) * BYTES
    }

    fn is_within(&self, now: Timestamp, micros: i64) -> bool {
        (0..micros).contains(&now.micros.saturating_sub(self.begun_micros))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: i64) -> Timestamp {
        Timestamp { micros }
    }

    #[test]
    fn a_refusal_is_remembered_for_minutes_with_its_key_and_its_command() {
        let mut refused = Refused::default();
        let now = 1_000_000_000_000;
        refused.insert(7, 1, at(now));
        assert!(refused.contains(7, 1, at(now + GENERATION_MICROS)));
        assert!(!refused.contains(7, 2, at(now)) && !refused.contains(8, 1, at(now)));
        refused.insert(9, 1, at(now + GENERATION_MICROS));
        let later = at(now + GENERATION_MICROS + 1);
        assert!(refused.contains(7, 1, later) && refused.contains(9, 1, later));
        let late = at(now + 3 * GENERATION_MICROS);
        assert!(!refused.contains(7, 1, late) && !refused.contains(9, 1, late));
    }

    #[test]
    fn the_last_ones_are_remembered_however_many_there_are_and_they_are_bounded() {
        let mut refused = Refused::default();
        let now = at(1_000_000_000_000);
        let many = 10 * GENERATION_MAX as u128;
        for key in 0..many {
            refused.insert(key, 1, now);
            assert!(refused.contains(key.saturating_sub(GENERATION_MAX as u128 - 1), 1, now));
        }
        assert!(!refused.contains(0, 1, now));
        assert!(
            refused.bytes() <= 4 * GENERATION_MAX * BYTES,
            "{} bytes",
            refused.bytes()
        );
    }
}
