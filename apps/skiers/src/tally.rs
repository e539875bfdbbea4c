//! Counts by key.

use serde::{Deserialize, Serialize};
use std::ops::RangeBounds;

/// Counts by key, sorted, in a single block of memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Tally<K> {
    /// The counts in the order of their keys. No key occurs twice, and no count is 0.
    counts: Vec<(K, u64)>,
}

impl<K> Default for Tally<K> {
    fn default() -> Self {
        Self { counts: Vec::new() }
    }
}

/// Collects distinct keys with their counts.
impl<K: Ord> FromIterator<(K, u64)> for Tally<K> {
    fn from_iter<I: IntoIterator<Item = (K, u64)>>(counts: I) -> Self {
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_unstable();
        Self { counts }
    }
}

impl<K: Copy + Ord> Tally<K> {
    /// Adds one to a key's count.
    pub(crate) fn add(&mut self, key: K) {
        match self.counts.binary_search_by_key(&key, |(key, _)| *key) {
            Ok(at) => self.counts[at].1 += 1,
            Err(at) => self.counts.insert(at, (key, 1)),
        }
    }

    /// Returns all entries, in order.
    pub(crate) fn all(&self) -> &[(K, u64)] {
        &self.counts
    }

    /// Returns the entries with keys in the range, in order.
    pub(crate) fn range(&self, range: impl RangeBounds<K>) -> &[(K, u64)] {
        use std::ops::Bound;
        let begin = self.counts.partition_point(|(key, _)| match range.start_bound() {
            Bound::Included(start) => key < start,
            Bound::Excluded(start) => key <= start,
            Bound::Unbounded => false,
        });
        let rest = &self.counts[begin..];
        let count = rest.partition_point(|(key, _)| match range.end_bound() {
            Bound::Included(end) => key <= end,
            Bound::Excluded(end) => key < end,
            Bound::Unbounded => true,
        });
        &rest[..count]
    }

    /// Returns the size in memory, without the struct itself.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.counts.capacity() * size_of::<(K, u64)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{collections::BTreeMap, ops::Bound};

    fn bound() -> impl Strategy<Value = Bound<u8>> {
        (0..12_u8, 0..3_u8).prop_map(|(key, kind)| match kind {
            0 => Bound::Included(key),
            1 => Bound::Excluded(key),
            _ => Bound::Unbounded,
        })
    }

    proptest! {
        #[test]
        fn a_tally_is_a_sorted_map_of_counts(keys in proptest::collection::vec(0..10_u8, 0..60), begin in bound(), end in bound()) {
            let (mut tally, mut expected) = (Tally::default(), BTreeMap::new());
            for key in keys {
                tally.add(key);
                *expected.entry(key).or_insert(0_u64) += 1;
            }
            prop_assert!(tally.all().iter().copied().eq(expected.iter().map(|(key, count)| (*key, *count))));
            let is_in = |key: &u8| (begin, end).contains(key);
            let found: Vec<_> = tally.range((begin, end)).iter().filter(|(key, _)| is_in(key)).collect();
            prop_assert_eq!(found.len(), tally.range((begin, end)).len());
            prop_assert_eq!(found.len(), expected.keys().filter(|key| is_in(key)).count());
            let read: Tally<u8> = serde_json::from_str(&serde_json::to_string(&tally).unwrap()).unwrap();
            prop_assert_eq!(read, tally);
        }
    }
}
