//! Counts the work that each entity has caused and that is not done yet, in little memory.
//!
//! Entities share the counters of a small table. Once a counter reaches half of the credit, its entities are also counted one by one, from
//! zero on. So an entity is blamed for no more than it caused itself, and one that causes much is found at most that half too late.

use std::collections::HashMap;

/// The number of counters of a table by default.
const BUCKETS: usize = 4_096;

/// The counters of all entities, each known by its [hash](crate::limits::hash).
#[derive(Debug)]
pub struct Credit {
    limit: u64,
    /// The part of the limit that counts as much.
    much: u64,
    /// Counters by the hash's high bits, since the low ones choose the shard. Empty until something is charged.
    buckets: Box<[u64]>,
    /// The number of counters.
    buckets_max: usize,
    /// The entities that are counted one by one.
    apart: HashMap<u64, u64>,
    /// The number of these that have spent their credit.
    spenders: usize,
}

impl Default for Credit {
    /// Returns a credit without a limit.
    fn default() -> Self {
        Self::new(u64::MAX)
    }
}

impl Credit {
    /// Allows each entity this much.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        Self::with_buckets(limit, BUCKETS)
    }

    /// Allows each entity this much, counted in a table of this size.
    pub(crate) fn with_buckets(limit: u64, buckets: usize) -> Self {
        Self {
            limit: limit.max(1),
            much: limit / 2,
            buckets: Box::default(),
            buckets_max: buckets.max(1),
            apart: HashMap::new(),
            spenders: 0,
        }
    }

    /// Has this count as much, instead of half of the limit.
    #[must_use]
    pub fn with_much(self, much: u64) -> Self {
        Self { much, ..self }
    }

    /// The credit of each entity.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    fn bucket(&self, of: u64) -> usize {
        (of >> 32) as usize % self.buckets_max
    }

    /// Adds work that an entity has caused.
    pub fn charge(&mut self, of: u64, amount: u64) {
        if self.buckets.is_empty() {
            self.buckets = vec![0; self.buckets_max].into();
        }
        let at = self.bucket(of);
        let bucket = &mut self.buckets[at];
        *bucket = bucket.saturating_add(amount);
        if *bucket > self.much / 2 {
            let own = self.apart.entry(of).or_default();
            let had_spent = *own >= self.limit;
            *own = own.saturating_add(amount);
            self.spenders += usize::from(!had_spent && *own >= self.limit);
        }
    }

    /// Subtracts work that was done.
    pub fn give_back(&mut self, of: u64, amount: u64) {
        let (at, buckets, limit) = (self.bucket(of), self.buckets_max, self.limit);
        let Some(left) = self.buckets.get_mut(at) else {
            return;
        };
        let before = std::mem::replace(left, left.saturating_sub(amount));
        if self.apart.is_empty() {
            return;
        }
        if *left <= self.much / 4 {
            // Checked only when the amount falls below this: a check of all entries at each call would take long.
            if before > self.much / 4 {
                self.apart.retain(|other, _| (*other >> 32) as usize % buckets != at);
                self.spenders = self.apart.values().filter(|own| **own >= limit).count();
            }
        } else if let Some(own) = self.apart.get_mut(&of) {
            let had_spent = *own >= limit;
            *own = own.saturating_sub(amount);
            self.spenders -= usize::from(had_spent && *own < limit);
            if *own == 0 {
                self.apart.remove(&of);
            }
        }
    }

    /// Takes off all that an entity is counted with.
    pub fn forget(&mut self, of: u64) {
        if let Some(own) = self.apart.get(&of) {
            self.give_back(of, *own);
        }
    }

    /// Takes off everything.
    pub fn clear(&mut self) {
        self.buckets.fill(0);
        self.apart.clear();
        self.spenders = 0;
    }

    /// True if any entity has spent its credit.
    #[must_use]
    pub fn has_spenders(&self) -> bool {
        self.spenders > 0
    }

    /// True if no entity is counted one by one: then none has spent much.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.apart.is_empty()
    }

    /// True if an entity has spent much of its credit: half, unless [set otherwise](Self::with_much).
    #[must_use]
    pub fn has_spent_much(&self, of: u64) -> bool {
        self.apart.get(&of).is_some_and(|own| *own >= self.much)
    }

    /// True if an entity has spent its credit.
    #[must_use]
    pub fn is_spent(&self, of: u64) -> bool {
        self.apart.get(&of).is_some_and(|own| *own >= self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hash of entities that share one counter.
    const ONE: u64 = 7 << 32;
    const OTHER: u64 = ONE + 1;

    #[test]
    fn charges_are_spent_until_they_are_given_back() {
        let mut credit = Credit::new(100);
        (0..60).for_each(|_| credit.charge(ONE, 1));
        assert!(!credit.has_spent_much(ONE), "the first quarter is not its own alone");
        (0..16).for_each(|_| credit.charge(ONE, 1));
        assert!(credit.has_spent_much(ONE) && !credit.is_spent(ONE));
        (0..50).for_each(|_| credit.charge(ONE, 1));
        assert!(credit.is_spent(ONE));
        (0..50).for_each(|_| credit.give_back(ONE, 1));
        assert!(!credit.is_spent(ONE) && credit.has_spent_much(ONE));
        (0..80).for_each(|_| credit.give_back(ONE, 1));
        assert!(credit.is_idle());
    }

    #[test]
    fn much_may_be_a_smaller_part_of_the_credit() {
        let mut credit = Credit::new(100).with_much(10);
        (0..16).for_each(|_| credit.charge(ONE, 1));
        assert!(credit.has_spent_much(ONE) && !credit.is_spent(ONE));
        (0..14).for_each(|_| credit.give_back(ONE, 1));
        assert!(credit.is_idle());
    }

    #[test]
    fn counts_entities_of_one_counter_apart() {
        let mut credit = Credit::new(100);
        (0..150).for_each(|_| credit.charge(ONE, 1));
        credit.charge(OTHER, 20);
        assert!(credit.is_spent(ONE) && !credit.has_spent_much(OTHER));
        credit.give_back(OTHER, 20);
        assert!(credit.is_spent(ONE) && credit.has_spenders());
        credit.give_back(ONE, 50);
        assert!(!credit.has_spenders());
    }

    #[test]
    fn forgets_one_entity_or_all() {
        let mut credit = Credit::new(100);
        (0..200).for_each(|_| credit.charge(ONE, 1));
        (0..200).for_each(|_| credit.charge(OTHER, 1));
        credit.forget(ONE);
        assert!(!credit.has_spent_much(ONE) && credit.is_spent(OTHER) && credit.has_spenders());
        credit.clear();
        assert!(credit.is_idle() && !credit.has_spenders());
        credit.charge(OTHER, 20);
        assert!(credit.is_idle());
    }

    #[test]
    fn gives_back_nothing_that_was_not_charged() {
        let mut credit = Credit::new(100);
        credit.give_back(ONE, 5);
        credit.charge(ONE, 30);
        credit.give_back(ONE, 500);
        assert!(credit.is_idle());
        (0..130).for_each(|_| credit.charge(ONE, 1));
        assert!(credit.is_spent(ONE));
    }
}
