//! The choice of a worker by a key.

use std::hash::Hash;
use xxhash_rust::xxh3::Xxh3;

/// Returns a key's hash by xxh3, which is the same in every run of a program.
///
/// Use it with [`PoolSetup::shard_by`](crate::PoolSetup::shard_by): `shard_by(|trade: &Trade| key_of(&trade.name))`.
pub fn key_of<K: Hash + ?Sized>(key: &K) -> u64 {
    let mut hasher = Xxh3::new();
    key.hash(&mut hasher);
    hasher.digest()
}

/// Returns the place that a hash belongs to, of `count`.
pub(crate) fn place_of(hash: u64, count: usize) -> usize {
    // The high half of a product divides the range evenly, and faster than a remainder.
    let place = (u128::from(hash) * count as u128) >> 64;
    usize::try_from(place).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_spread_evenly_and_each_always_to_the_same_place() {
        for count in 1..9 {
            let mut places = vec![0_usize; count];
            for key in 0..10_000_u64 {
                places[place_of(key_of(&key), count)] += 1;
                assert_eq!(place_of(key_of(&key), count), place_of(key_of(&key), count));
            }
            let even = 10_000 / count;
            assert!(places.iter().all(|of| of.abs_diff(even) < even / 5), "{places:?}");
        }
    }

    #[test]
    fn a_hash_is_the_same_in_every_run() {
        assert_eq!(key_of(&7_u64), xxhash_rust::xxh3::xxh3_64(&7_u64.to_ne_bytes()));
        assert_ne!(key_of("anna"), key_of("ben"));
    }
}
