//! Which ids are known: a Bloom filter that grows. It may say "known" of an id that is not (about 1 in 100), never the
//! other way round, so that unknown ids cost no read.

/// Bloom filters of doubling size (Almeida et al., "Scalable Bloom Filters", 2007), 10 bits and 7 probes a key.
#[derive(Debug, Default)]
pub(super) struct Filter {
    layers: Vec<Layer>,
}

#[derive(Debug)]
struct Layer {
    bits: Vec<u64>,
    left: usize,
}

const PROBES: u64 = 7;
const BITS_PER_KEY: usize = 10;
const FIRST_KEYS: usize = 64;

impl Layer {
    fn new(keys: usize) -> Self {
        Self {
            bits: vec![0; (keys * BITS_PER_KEY).div_ceil(64)],
            left: keys,
        }
    }

    /// Double hashing (Kirsch, Mitzenmacher 2006): probe i is `a + i * b`.
    fn probes(&self, hash: u64) -> impl Iterator<Item = (usize, u64)> {
        let bits = self.bits.len() as u64 * 64;
        let mixed = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32) ^ hash;
        let step = mixed | 1;
        (0..PROBES).map(move |probe| {
            let wide = u128::from(
                hash.wrapping_add(probe.wrapping_mul(step))
                    .wrapping_mul(0xD6E8_FEB8_6659_FD93),
            );
            let bit = ((wide * u128::from(bits)) >> 64) as u64;
            ((bit / 64) as usize, 1 << (bit % 64))
        })
    }

    fn contains(&self, hash: u64) -> bool {
        self.probes(hash).all(|(word, bit)| self.bits[word] & bit != 0)
    }
}

impl Filter {
    pub(super) fn insert(&mut self, hash: u64) {
        if self.contains(hash) {
            return;
        }
        if self.layers.last().is_none_or(|layer| layer.left == 0) {
            self.layers.push(Layer::new(FIRST_KEYS << self.layers.len()));
        }
        if let Some(layer) = self.layers.last_mut() {
            layer.left -= 1;
            let probes: Vec<_> = layer.probes(hash).collect();
            for (word, bit) in probes {
                layer.bits[word] |= bit;
            }
        }
    }

    pub(super) fn contains(&self, hash: u64) -> bool {
        self.layers.iter().rev().any(|layer| layer.contains(hash))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_is_found_and_little_else() {
        let mut filter = Filter::default();
        let hash = |n: u64| crate::limits::hash("k", &n.to_string());
        (0..10_000).for_each(|n| filter.insert(hash(n)));
        assert!((0..10_000).all(|n| filter.contains(hash(n))));
        let wrong = (10_000..110_000).filter(|n| filter.contains(hash(*n))).count();
        assert!(wrong < 10_000, "{wrong} of 100,000 unknown ids pass");
    }
}
