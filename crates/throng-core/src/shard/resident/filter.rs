//! Sets of fingerprints that may answer "yes" for one that is not in them (in less than 1 of 100 cases), but never "no" for one that is.

use std::ops::RangeInclusive;

/// A scalable Bloom filter (Almeida et al., "Scalable Bloom Filters", 2007). Each layer holds four times as many fingerprints as the one
/// before at half its rate of false positives, so that the total rate stays below twice the first layer's.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    layers: Vec<Layer>,
}

#[derive(Debug)]
struct Layer {
    bits: Vec<u64>,
    /// The number of fingerprints it still takes.
    left: usize,
    probes: u64,
}

/// Fingerprints of the first layer.
const FIRST_KEYS: usize = 64;
/// The probes of the first layer. Its rate of false positives is 2^-8, that of all layers below 2^-7.
const FIRST_PROBES: usize = 8;
/// The bits for each probe and fingerprint at which a Bloom filter of a given rate is smallest: 1 / ln 2, in thousandths.
const BITS_PER_PROBE: usize = 1_443;
/// The possible numbers of layers. The last one would hold 2^38 fingerprints.
pub(crate) const LAYERS: RangeInclusive<usize> = 0..=16;

impl Layer {
    fn empty(index: usize) -> Self {
        let (keys, probes) = (FIRST_KEYS << (2 * index), FIRST_PROBES + index);
        Self {
            bits: vec![0; (keys * probes * BITS_PER_PROBE / 1_000).div_ceil(64)],
            left: keys,
            probes: probes as u64,
        }
    }

    /// Double hashing (Kirsch, Mitzenmacher 2006): probe i is `a + i * b`.
    fn probes(&self, fingerprint: u32) -> impl Iterator<Item = (usize, u64)> + use<> {
        let bits = self.bits.len() as u64 * 64;
        let first = mixed(u64::from(fingerprint));
        let step = mixed(first) | 1;
        (0..self.probes).map(move |probe| {
            let place = u128::from(first.wrapping_add(probe.wrapping_mul(step)));
            let bit = ((place * u128::from(bits)) >> 64) as u64;
            ((bit / 64) as usize, 1 << (bit % 64))
        })
    }

    fn contains(&self, fingerprint: u32) -> bool {
        self.probes(fingerprint).all(|(word, bit)| self.bits[word] & bit != 0)
    }

    fn bytes(&self) -> usize {
        self.bits.len() * 8 + std::mem::size_of::<Self>()
    }
}

/// The finalizer of SplitMix64 (Steele et al., 2014).
fn mixed(number: u64) -> u64 {
    let number = (number ^ 0x9E37_79B9_7F4A_7C15).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

impl Filter {
    /// Returns by how many bytes it has grown.
    pub(crate) fn insert(&mut self, fingerprint: u32) -> usize {
        if self.contains(fingerprint) {
            return 0;
        }
        let mut grown = 0;
        if self.layers.last().is_none_or(|layer| layer.left == 0) {
            let layer = Layer::empty(self.layers.len());
            grown = layer.bytes();
            self.layers.push(layer);
        }
        if let Some(layer) = self.layers.last_mut() {
            layer.left -= 1;
            for (word, bit) in layer.probes(fingerprint) {
                layer.bits[word] |= bit;
            }
        }
        grown
    }

    pub(crate) fn contains(&self, fingerprint: u32) -> bool {
        self.layers.iter().rev().any(|layer| layer.contains(fingerprint))
    }

    /// Returns the number of inserted fingerprints. Those that it already seemed to have are not counted, so it is a little low.
    pub(crate) fn len(&self) -> usize {
        let held = |(index, layer): (usize, &Layer)| (FIRST_KEYS << (2 * index)) - layer.left;
        self.layers.iter().enumerate().map(held).sum()
    }

    /// The number of layers.
    pub(crate) fn layers(&self) -> usize {
        self.layers.len()
    }

    /// Returns the number of layers that never change again.
    pub(crate) fn full_layers(&self) -> usize {
        let is_full = |layer: &Layer| layer.left == 0;
        self.layers.len() - usize::from(self.layers.last().is_some_and(|last| !is_full(last)))
    }

    /// Encodes a layer: how many fingerprints it still takes as `u64`, then its bits, little-endian.
    pub(crate) fn encode_layer(&self, index: usize) -> Vec<u8> {
        let layer = &self.layers[index];
        let numbers = [layer.left as u64].into_iter().chain(layer.bits.iter().copied());
        numbers.flat_map(u64::to_le_bytes).collect()
    }

    /// Restores the next layer and returns the growth in bytes; `None` if this is not the next layer.
    pub(crate) fn restore_layer(&mut self, index: usize, stored: &[u8]) -> Option<usize> {
        if index != self.layers.len() || !LAYERS.contains(&index) {
            return None;
        }
        let mut layer = Layer::empty(index);
        let (numbers, []) = stored.as_chunks::<8>() else {
            return None;
        };
        let (left, bits) = numbers.split_first()?;
        let left = usize::try_from(u64::from_le_bytes(*left)).ok()?;
        if bits.len() != layer.bits.len() || left > layer.left {
            return None;
        }
        layer.left = left;
        for (to, from) in layer.bits.iter_mut().zip(bits) {
            *to = u64::from_le_bytes(*from);
        }
        let grown = layer.bytes();
        self.layers.push(layer);
        Some(grown)
    }
}

/// Fingerprints as they are stored, little-endian.
pub(crate) fn encode_fingerprints(fingerprints: &[u32]) -> Vec<u8> {
    fingerprints
        .iter()
        .flat_map(|fingerprint| fingerprint.to_le_bytes())
        .collect()
}

/// `None` if these are not fingerprints.
pub(crate) fn decode_fingerprints(stored: &[u8]) -> Option<impl Iterator<Item = u32>> {
    let (fingerprints, []) = stored.as_chunks::<4>() else {
        return None;
    };
    Some(fingerprints.iter().map(|bytes| u32::from_le_bytes(*bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(filter: &Filter) -> usize {
        filter.layers.iter().map(Layer::bytes).sum()
    }

    fn fingerprints(of: std::ops::Range<u32>) -> impl Iterator<Item = u32> {
        of.map(|n| (crate::limits::hash("k", &n.to_string()) >> 32) as u32)
    }

    #[test]
    fn all_members_are_found_and_under_one_percent_of_others() {
        for count in [64, 300, 1_344, 10_000, 87_000] {
            let mut filter = Filter::default();
            let mut grown = 0;
            fingerprints(0..count).for_each(|fingerprint| grown += filter.insert(fingerprint));
            assert!(fingerprints(0..count).all(|fingerprint| filter.contains(fingerprint)));
            assert_eq!(grown, bytes(&filter));
            let others = fingerprints(1_000_000..1_200_000);
            let wrong = others.filter(|fingerprint| filter.contains(*fingerprint)).count();
            assert!(wrong < 2_000, "{wrong} of 200,000 others pass among {count}");
        }
    }

    #[test]
    fn a_filter_comes_back_from_its_layers_as_it_was() {
        let mut filter = Filter::default();
        fingerprints(0..1_000).for_each(|fingerprint| _ = filter.insert(fingerprint));
        assert_eq!((filter.layers(), filter.full_layers()), (3, 2));
        let mut again = Filter::default();
        for index in 0..filter.layers() {
            let stored = filter.encode_layer(index);
            assert_eq!(again.restore_layer(index + 1, &stored), None, "another layer");
            assert_eq!(again.restore_layer(index, &stored[..stored.len() - 8]), None, "cut");
            assert_eq!(again.restore_layer(index, &stored[1..]), None, "cut");
            assert!(again.restore_layer(index, &stored).is_some());
        }
        assert_eq!((bytes(&again), again.full_layers()), (bytes(&filter), 2));
        for n in fingerprints(0..200_000) {
            assert_eq!(again.contains(n), filter.contains(n));
        }
        let mut list: Vec<u32> = fingerprints(0..9).collect();
        let stored = encode_fingerprints(&list);
        assert!(decode_fingerprints(&stored[1..]).is_none());
        list.retain(|fingerprint| !decode_fingerprints(&stored).unwrap().any(|found| found == *fingerprint));
        assert!(list.is_empty());
    }
}
