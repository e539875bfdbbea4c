//! A set of skiers.

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use roaring::RoaringBitmap;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::borrow::Cow;

/// A set of skiers: two bytes for each if they are few, one bit for each if they are many.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SkierSet {
    skiers: RoaringBitmap,
    heap_bytes: usize,
    /// The number of skiers at the last measurement of `heap_bytes`.
    measured: u64,
}

impl SkierSet {
    pub(crate) fn add(&mut self, skier: u32) {
        self.skiers.insert(skier);
        let count = self.skiers.len();
        // Measuring walks over all blocks, so it is done only after a growth by an eighth.
        if count > self.measured + self.measured / 8 {
            (self.measured, self.heap_bytes) = (count, self.skiers.serialized_size());
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.skiers.len()
    }

    /// Returns the approximate size in memory, without the struct itself.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.heap_bytes
    }
}

/// Serializes as text: the portable format of roaring bitmaps in Base64.
impl Serialize for SkierSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut bytes = Vec::with_capacity(self.skiers.serialized_size());
        self.skiers
            .serialize_into(&mut bytes)
            .map_err(serde::ser::Error::custom)?;
        serializer.serialize_str(&STANDARD_NO_PAD.encode(bytes))
    }
}

impl<'de> Deserialize<'de> for SkierSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        let bytes = STANDARD_NO_PAD.decode(text.as_bytes()).map_err(D::Error::custom)?;
        let skiers = RoaringBitmap::deserialize_from(&bytes[..]).map_err(D::Error::custom)?;
        Ok(Self {
            heap_bytes: bytes.len(),
            measured: skiers.len(),
            skiers,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_set_of_skiers_counts_each_once_and_survives_its_text(
            skiers in proptest::collection::vec(prop_oneof![0..50_u32, 0..100_000_u32, any::<u32>()], 0..300),
        ) {
            let mut set = SkierSet::default();
            skiers.iter().for_each(|skier| set.add(*skier));
            let expected: BTreeSet<u32> = skiers.into_iter().collect();
            prop_assert_eq!(set.len(), expected.len() as u64);
            let read: SkierSet = serde_json::from_str(&serde_json::to_string(&set).unwrap()).unwrap();
            prop_assert_eq!(read.len(), set.len());
            prop_assert!(read.skiers.iter().eq(expected));
        }
    }

    #[test]
    fn a_hundred_thousand_skiers_take_little_more_than_a_bit_each() {
        let mut set = SkierSet::default();
        (1..=100_000).for_each(|skier| set.add(skier));
        assert!(set.heap_bytes() < 20_000, "{}", set.heap_bytes());
        assert!(serde_json::to_string(&set).unwrap().len() < 30_000);
    }
}
