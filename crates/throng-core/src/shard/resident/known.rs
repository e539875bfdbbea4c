//! The ids of a kind that exist in a shard, so that an unknown id costs neither a slot nor a read of the store.
//!
//! The store keeps them as system rows, so that a start reads two bytes for each entity and not the entities. A checkpoint adds a row with
//! the fingerprints of the new ids. Once there are many such rows, the changed layers of the filter replace them. So a checkpoint writes a
//! few bytes for each new id, and now and then one shard's filter.
//!
//! ```text
//! n, kind, 0, shard (2), number of the layer (1)   → a layer of the filter
//! n, kind, 0, shard (2), 255, number (4)           → fingerprints
//! ```

use super::filter::{Filter, LAYERS, decode_fingerprints, encode_fingerprints};
use crate::shard::SystemRow;
use throng_journal::ShardId;

#[derive(Debug, Default)]
pub(crate) struct Known {
    filter: Filter,
    /// Fingerprints that no checkpoint has stored yet.
    fresh: Vec<u32>,
    /// The number of them in the last [`rows`](Self::rows).
    given: usize,
    /// Rows of fingerprints in the store, numbered from 0.
    lists: u32,
    /// Layers the store has as they will always be.
    layers: usize,
    /// The new value of [`layers`](Self::layers) once the last [`rows`](Self::rows) are stored, if they replace the lists.
    folds: Option<usize>,
}

/// The number of lists in the store before layers replace them. It is up to twice as many, depending on the shard, so that not all shards
/// write their layers in the same checkpoint.
const LISTS_MAX: u32 = 64;
/// The mark of a list's row, in the place where the row of a layer has its number.
const LIST: u8 = u8::MAX;
const _: () = assert!(*LAYERS.end() < LIST as usize);

fn fingerprint(hash: u64) -> u32 {
    (hash >> 32) as u32
}

impl Known {
    /// True if this id may exist; never false for one that does.
    pub(crate) fn contains(&self, hash: u64) -> bool {
        self.filter.contains(fingerprint(hash))
    }

    /// Returns about how many ids exist.
    pub(crate) fn len(&self) -> usize {
        self.filter.len()
    }

    /// Adds a new id, whatever the filter says of it, because another engine's filter may differ. Returns the growth in bytes.
    pub(crate) fn insert(&mut self, hash: u64) -> usize {
        self.fresh.push(fingerprint(hash));
        self.filter.insert(fingerprint(hash)) + std::mem::size_of::<u32>()
    }

    /// Rows for a checkpoint.
    pub(crate) fn rows(&mut self, kind: &str, shard: ShardId, rows: &mut Vec<SystemRow>) {
        (self.given, self.folds) = (self.fresh.len(), None);
        if self.given == 0 {
            return;
        }
        let begin = rows_of(kind, shard);
        let list = |number: u32| [&*begin, &[LIST], &number.to_be_bytes()].concat();
        if self.lists < LISTS_MAX + u32::from(shard.0) % LISTS_MAX {
            rows.push((list(self.lists), Some(encode_fingerprints(&self.fresh))));
            return;
        }
        self.folds = Some(self.filter.full_layers());
        for index in self.layers..self.filter.layers() {
            let row = [&*begin, &[index as u8]].concat();
            rows.push((row, Some(self.filter.encode_layer(index))));
        }
        rows.extend((0..self.lists).map(|number| (list(number), None)));
    }

    /// Completes the checkpoint with these rows. Returns the bytes freed.
    pub(crate) fn stored(&mut self) -> usize {
        let given = std::mem::take(&mut self.given);
        self.fresh.drain(..given);
        if self.fresh.is_empty() {
            self.fresh = Vec::new();
        }
        match self.folds.take() {
            Some(layers) => (self.lists, self.layers) = (0, layers),
            None => self.lists += u32::from(given > 0),
        }
        given * std::mem::size_of::<u32>()
    }

    /// Restores a row, named by what follows the shard in its key, in the order of the names. Returns the growth in bytes; `None` if it
    /// cannot be read.
    pub(crate) fn restore(&mut self, name: &[u8], value: &[u8]) -> Option<usize> {
        match name {
            [LIST, number @ ..] => {
                let number = u32::from_be_bytes(number.try_into().ok()?);
                self.lists = self.lists.max(number.checked_add(1)?);
                Some(decode_fingerprints(value)?.map(|one| self.filter.insert(one)).sum())
            }
            [index] => {
                let grown = self.filter.restore_layer(usize::from(*index), value)?;
                self.layers = self.filter.full_layers();
                Some(grown)
            }
            _ => None,
        }
    }
}

fn rows_of(kind: &str, shard: ShardId) -> Vec<u8> {
    [b"n", kind.as_bytes(), &[0], &shard.0.to_be_bytes()].concat()
}

/// Returns the kind and the shard of a row, and the rest of its key.
pub(crate) fn read_row(row: &[u8]) -> Option<(&str, ShardId, &[u8])> {
    let (b'n', rest) = row.split_first()? else { return None };
    let end = rest.iter().position(|byte| *byte == 0)?;
    let (shard, name) = rest[end + 1..].split_first_chunk::<2>()?;
    Some((
        std::str::from_utf8(&rest[..end]).ok()?,
        ShardId(u16::from_be_bytes(*shard)),
        name,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits;
    use std::collections::BTreeMap;

    const SHARD: ShardId = ShardId(3);

    fn hash(n: u32) -> u64 {
        limits::hash("k", &n.to_string())
    }

    /// The rows of a store, by name.
    type Stored = BTreeMap<Vec<u8>, Vec<u8>>;

    fn checkpoint(known: &mut Known, stored: &mut Stored) -> usize {
        let mut rows = Vec::new();
        known.rows("k", SHARD, &mut rows);
        let bytes = rows.iter().map(|(_, value)| value.as_ref().map_or(0, Vec::len)).sum();
        for (name, value) in rows {
            match value {
                Some(value) => stored.insert(name, value),
                None => stored.remove(&name),
            };
        }
        bytes
    }

    fn restored(stored: &Stored) -> Known {
        let mut known = Known::default();
        for (row, value) in stored {
            let (kind, shard, name) = read_row(row).unwrap();
            assert_eq!((kind, shard), ("k", SHARD));
            assert!(known.restore(name, value).is_some());
        }
        known
    }

    #[test]
    fn ids_of_a_completed_checkpoint_are_known_after_any_restart() {
        let (mut known, mut stored, mut most) = (Known::default(), Stored::new(), 0);
        for round in 0..400 {
            (round * 10..round * 10 + 10).for_each(|n| _ = known.insert(hash(n)));
            let written = checkpoint(&mut known, &mut stored);
            match round % 7 {
                // The checkpoint failed, or succeeded although it seemed to fail. The next one contains all of it again.
                0 => continue,
                // The process ends.
                1 => known = restored(&stored),
                _ => _ = known.stored(),
            }
            most = most.max(stored.len());
            assert!(written < 12_000, "{written} bytes in round {round}");
            let again = restored(&stored);
            assert!((0..round * 10 + 10).all(|n| again.contains(hash(n))), "round {round}");
        }
        assert!((60..90).contains(&most), "{most} rows");
    }

    #[test]
    fn ids_that_come_while_a_checkpoint_is_made_are_in_the_next_one() {
        let (mut known, mut stored) = (Known::default(), Stored::new());
        known.insert(hash(1));
        checkpoint(&mut known, &mut stored);
        known.insert(hash(2));
        known.stored();
        assert!(!restored(&stored).contains(hash(2)));
        checkpoint(&mut known, &mut stored);
        known.stored();
        assert!(restored(&stored).contains(hash(2)));
        assert_eq!(checkpoint(&mut known, &mut stored), 0, "nothing is new");
    }

    #[test]
    fn damaged_rows_are_noticed() {
        let mut known = Known::default();
        for (name, value) in [
            (&[LIST, 0, 0, 0, 0][..], &[1, 2, 3][..]),
            (&[LIST, 0], &[]),
            (&[1], &[0; 8]),
            (&[0], &[0; 8]),
            (&[], &[]),
        ] {
            assert_eq!(known.restore(name, value), None, "{name:?}");
        }
    }
}
