//! Sets of shards, for the streams that may hold their records and the nodes that own them.

use crate::{Error, ShardId, WriterId};
use std::{fmt, str::FromStr};

/// A set of shards. As bytes, bit n (from the lowest of the first byte on) is shard n. Zeros at the end are left out, so that equal sets
/// have equal bytes.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct ShardSet {
    bits: Vec<u8>,
}

impl ShardSet {
    /// Returns the first `shards` shards: all shards of an engine with this number.
    #[must_use]
    pub fn first(shards: u16) -> Self {
        (0..shards).map(ShardId).collect()
    }

    /// Reads the result of [`bytes`](Self::bytes).
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut set = Self { bits: bytes.to_vec() };
        set.trim();
        set
    }

    /// The set as bytes, for a row or a frame.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bits
    }

    /// True if the shard is in the set.
    #[must_use]
    pub fn contains(&self, shard: ShardId) -> bool {
        let (byte, bit) = place(shard);
        self.bits.get(byte).is_some_and(|bits| bits & bit != 0)
    }

    /// Adds a shard; `false` if it was present.
    pub fn insert(&mut self, shard: ShardId) -> bool {
        let (byte, bit) = place(shard);
        if byte >= self.bits.len() {
            self.bits.resize(byte + 1, 0);
        }
        let is_new = self.bits[byte] & bit == 0;
        self.bits[byte] |= bit;
        is_new
    }

    /// Removes a shard; `false` if it was not present.
    pub fn remove(&mut self, shard: ShardId) -> bool {
        let is_there = self.contains(shard);
        if is_there {
            let (byte, bit) = place(shard);
            self.bits[byte] &= !bit;
            self.trim();
        }
        is_there
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = ShardId> + '_ {
        let bytes = self.bits.iter().enumerate();
        bytes.flat_map(|(byte, bits)| {
            let set = (0..8).filter(move |bit| bits & (1 << bit) != 0);
            set.map(move |bit| ShardId((byte * 8 + bit) as u16))
        })
    }

    /// Returns the number of shards.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bits.iter().map(|bits| bits.count_ones() as usize).sum()
    }

    /// True for the empty set, of a node that has just joined or has given all away.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bits.is_empty()
    }

    /// True if a shard is in both sets.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.bits.iter().zip(&other.bits).any(|(own, others)| own & others != 0)
    }

    /// Returns the shards in either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut union = self.clone();
        other.iter().for_each(|shard| _ = union.insert(shard));
        union
    }

    /// Returns the shards that are not in the other set.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        self.iter().filter(|shard| !other.contains(*shard)).collect()
    }

    /// Refuses a checkpoint for shards that its stream cannot hold: their owners cover these.
    ///
    /// # Errors
    /// [`Error::Refused`] with the stream and the shards.
    pub fn refuse_beyond(&self, writer: WriterId, covered: &Self) -> Result<(), Error> {
        let others = covered.without(self);
        match others.is_empty() {
            true => Ok(()),
            false => Err(Error::Refused(format!(
                "the stream of writer {writer} holds nothing of the shards {others}, and a checkpoint of it cannot cover them"
            ))),
        }
    }

    fn trim(&mut self) {
        let used = self.bits.iter().rposition(|bits| *bits != 0).map_or(0, |last| last + 1);
        self.bits.truncate(used);
    }
}

fn place(shard: ShardId) -> (usize, u8) {
    (usize::from(shard.0 / 8), 1 << (shard.0 % 8))
}

impl FromIterator<ShardId> for ShardSet {
    fn from_iter<I: IntoIterator<Item = ShardId>>(shards: I) -> Self {
        let mut set = Self::default();
        shards.into_iter().for_each(|shard| _ = set.insert(shard));
        set
    }
}

/// Writes ranges, `0-84,200`; nothing for an empty set.
impl fmt::Display for ShardSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shards = self.iter().map(|shard| shard.0).peekable();
        let mut comma = "";
        while let Some(first) = shards.next() {
            let mut last = first;
            while let Some(next) = shards.next_if(|next| *next == last + 1) {
                last = next;
            }
            match last == first {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
            comma = ",";
        }
        Ok(())
    }
}

/// Parses a number that consists of digits alone.
fn number(word: &str) -> Option<u16> {
    let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| word.parse().ok()).flatten()
}

/// Parses the form that `Display` writes.
impl FromStr for ShardSet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let unread = |word: &str| match word.is_empty() {
                true => format!("{text:?} names no shards: write numbers and ranges, as 0-9,17"),
                false => format!("{word:?} in {text:?} is the number of no shard: write numbers and ranges, as 0-9,17"),
            };
            let number = |word: &str| number(word).ok_or_else(|| unread(word));
            let (first, last) = (number(first)?, number(last)?);
            match first <= last {
                true => Ok(first..=last),
                false => Err(format!("the range {part} in {text:?} ends before it begins")),
            }
        };
        let ranges: Result<Vec<_>, String> = text.split(',').map(range).collect();
        Ok(ranges?.into_iter().flatten().map(ShardId).collect())
    }
}

impl fmt::Debug for ShardSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn set(of: &[u16]) -> ShardSet {
        of.iter().copied().map(ShardId).collect()
    }

    #[test]
    fn sets_are_written_as_ranges() {
        assert_eq!(set(&[]).to_string(), "");
        assert_eq!(set(&[7]).to_string(), "7");
        assert_eq!(set(&[0, 1, 2, 9, 300, 301]).to_string(), "0-2,9,300-301");
        assert_eq!(ShardSet::first(256).to_string(), "0-255");
    }

    #[test]
    fn text_that_names_no_shards_is_refused() {
        for (text, said) in [
            ("", "names no shards"),
            ("1,,2", "names no shards"),
            ("3-", "names no shards"),
            ("-3", "names no shards"),
            ("1-2-3", "\"2-3\""),
            ("0-9;17", "\"9;17\""),
            ("+1", "\"+1\""),
            ("1, 2", "\" 2\""),
            ("65536", "\"65536\""),
            ("9-3", "the range 9-3"),
        ] {
            let why = text.parse::<ShardSet>().expect_err(text);
            assert!(why.contains(said), "{text:?}: {why}");
        }
        assert_eq!("7,0-2,2,1".parse(), Ok(set(&[0, 1, 2, 7])));
    }

    proptest! {
        #[test]
        fn a_shard_set_is_a_set(one in proptest::collection::vec(0u16..600, 0..40), other in proptest::collection::vec(0u16..600, 0..40)) {
            let (ours, theirs) = (set(&one), set(&other));
            let (one, other): (BTreeSet<u16>, BTreeSet<u16>) = (one.into_iter().collect(), other.into_iter().collect());
            let is = |set: &ShardSet, of: BTreeSet<u16>| set.iter().map(|shard| shard.0).collect::<BTreeSet<_>>() == of;
            prop_assert!(is(&ours, one.clone()));
            prop_assert!(is(&ours.union(&theirs), &one | &other));
            prop_assert!(is(&ours.without(&theirs), &one - &other));
            prop_assert_eq!(ours.overlaps(&theirs), !one.is_disjoint(&other));
            prop_assert_eq!(ours.len(), one.len());
            let mut less = ours.union(&theirs);
            other.iter().for_each(|shard| _ = less.remove(ShardId(*shard)));
            let without = ours.without(&theirs);
            prop_assert_eq!(less.bytes(), without.bytes());
            prop_assert!(ours.is_empty() || ours.to_string().parse() == Ok(ours.clone()));
            prop_assert_eq!(ShardSet::from_bytes(ours.bytes()), ours);
        }
    }
}
