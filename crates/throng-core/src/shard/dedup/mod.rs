//! Idempotency keys: accepted once, answered the same for an hour (or a longer [`KeyLife`](self::key::KeyLife)), however many there are.
//!
//! Refused once, a command is not accepted under its key for ten minutes: whoever was told "no" may have gone elsewhere, and a copy of
//! the request may come late, over another connection or at another node. So it is recorded as an accepted one is. Decided it is
//! again each time, and refused with the reason of that time.
//!
//! Keys since the last checkpoint are in memory; older ones stand in [rows of the store](self::key_rows), found through four
//! bytes of each, so that a fresh key costs no read.

pub(super) mod key;
mod key_rows;

use super::SystemRow;
use crate::model::Timestamp;
use key::{Forwarded, Kept, KeptAnswer};
use key_rows::{Bucket, Stored, bucket, read_list_row};
use std::collections::{BTreeMap, HashMap};
use throng_journal::ShardId;

/// A shard's keys.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// Those no checkpoint has taken yet.
    fresh: HashMap<u128, Kept>,
    /// Those the checkpoint under way stores.
    storing: HashMap<u128, Kept>,
    /// What becomes part of [`stored`](Self::stored) when it is done.
    lists: Vec<Stored>,
    /// What the store has of some older ones, or that it has nothing. Never of one that is in memory.
    looked: HashMap<u128, Option<Kept>>,
    /// By ten-minute bucket of expiry: the keys that are in rows.
    stored: BTreeMap<i64, Bucket>,
    /// How many checkpoints took over what stood in `fresh`.
    checkpoints: u64,
    fresh_bytes: usize,
    storing_bytes: usize,
    looked_bytes: usize,
    stored_bytes: usize,
}

/// Most answers of the store kept until they are asked for again, and their bytes.
const LOOKED_MAX: usize = 4_096;
const LOOKED_BYTES_MAX: usize = 1 << 20;
/// What a key takes in memory beside its answer, about: its place in a table that is not full.
const KEY_BYTES: usize = 120;

/// What an answer takes in memory, about.
fn weigh(kept: Option<&Kept>) -> usize {
    let answer = kept.map_or(0, |kept| match &kept.answer {
        KeptAnswer::Reply(json) => json.len(),
        KeptAnswer::Forward(to) | KeptAnswer::Create(to) => {
            let (kind, id, name, body) = &**to;
            size_of::<Forwarded>() + kind.len() + id.len() + name.len() + body.len()
        }
        KeptAnswer::Refused(others) => size_of_val(&**others),
    });
    answer + KEY_BYTES
}

pub(super) enum Found {
    /// Nothing was accepted or refused under this key.
    Fresh,
    /// This was.
    Kept(Kept),
    /// It may be in a row of the store.
    Look,
}

/// Where to look for an idempotency key in the store, see [`Shard::key_rows`](super::Shard::key_rows).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRows {
    /// The rows it may be in, the newest first: the first one that [has it](Self::find) counts.
    pub rows: Vec<Vec<u8>>,
    pub(super) key: u128,
    /// What is found counts only while the shard has the same number of checkpoints.
    pub(super) checkpoints: u64,
}

impl KeyRows {
    /// What one of the rows holds of the key.
    #[must_use]
    pub fn find<'a>(&self, row: &'a [u8]) -> Option<&'a [u8]> {
        key_rows::find(row, self.key)
    }
}

/// A key of one entity in one number.
pub(super) fn id_of(hash: u64, id: &str, key: &str) -> u128 {
    let mut hasher = xxhash_rust::xxh3::Xxh3::with_seed(hash);
    hasher.update(id.as_bytes());
    hasher.update(&[0]);
    hasher.update(key.as_bytes());
    hasher.digest128()
}

impl Keys {
    //= promise 4: a key takes effect once
    pub(super) fn find(&mut self, key: u128, now: Timestamp) -> Found {
        if let Some(known) = self.known(key) {
            return match known {
                Some(kept) if kept.until > now.micros => Found::Kept(kept.clone()),
                _ => Found::Fresh,
            };
        }
        if self.may_be_stored(key, now) {
            Found::Look
        } else {
            Found::Fresh
        }
    }

    /// What is known of a key without the store; inside, `None` of one that is known not to be there.
    fn known(&self, key: u128) -> Option<Option<&Kept>> {
        let in_memory = self.fresh.get(&key).or_else(|| self.storing.get(&key));
        let looked = || self.looked.get(&key).map(Option::as_ref);
        in_memory.map(Some).or_else(looked)
    }

    fn may_be_stored(&mut self, key: u128, now: Timestamp) -> bool {
        let mut live = self.stored.range_mut(bucket(now.micros)..);
        live.any(|(_, bucket)| bucket.may_have(key))
    }

    pub(super) fn insert(&mut self, key: u128, kept: Kept) {
        // What the store had of it is old from now on, also once this has become a row.
        self.forget_looked(key);
        self.fresh_bytes += weigh(Some(&kept));
        if let Some(old) = self.fresh.insert(key, kept) {
            self.fresh_bytes -= weigh(Some(&old));
        }
    }

    fn forget_looked(&mut self, key: u128) {
        if let Some(looked) = self.looked.remove(&key) {
            self.looked_bytes -= weigh(looked.as_ref());
        }
    }

    /// Bytes they take in memory for as long as they are kept.
    pub(super) fn bytes(&self) -> usize {
        self.looked_bytes + self.stored_bytes
    }

    /// Bytes of those that the next checkpoints take out of memory.
    pub(super) fn pending_bytes(&self) -> usize {
        self.fresh_bytes + self.storing_bytes
    }

    /// The rows in which this key may stand. Of the buckets whose hour is not over, the newest first: an older one may still
    /// have a row of the same key whose own hour is over.
    pub(super) fn rows_of(&mut self, shard: ShardId, key: u128, now: Timestamp) -> KeyRows {
        let live = self.stored.range_mut(bucket(now.micros)..).rev();
        let rows = live.flat_map(|(number, bucket)| bucket.rows_with(key, *number, shard));
        KeyRows {
            rows: rows.collect(),
            key,
            checkpoints: self.checkpoints,
        }
    }

    /// What the store has of a key, unless it was accepted since it was asked: then that is what counts, and is looked for again.
    pub(super) fn looked(&mut self, asked: &KeyRows, value: Option<&[u8]>) {
        let is_old = asked.checkpoints != self.checkpoints;
        if is_old || self.fresh.contains_key(&asked.key) || self.storing.contains_key(&asked.key) {
            return;
        }
        if self.looked.len() >= LOOKED_MAX || self.looked_bytes >= LOOKED_BYTES_MAX {
            self.looked.clear();
            self.looked_bytes = 0;
        }
        let kept: Option<Kept> = value.and_then(|value| serde_json::from_slice(value).ok());
        self.looked_bytes += weigh(kept.as_ref());
        if let Some(old) = self.looked.insert(asked.key, kept) {
            self.looked_bytes -= weigh(old.as_ref());
        }
    }

    /// What the rows begin with whose hour is over, in the order in which they are to be removed.
    pub(super) fn expired(&self, now: Timestamp) -> Vec<Vec<u8>> {
        let expired = self.stored.range(..bucket(now.micros));
        expired
            .flat_map(|(bucket, _)| key_rows::prefixes_of_bucket(*bucket))
            .collect()
    }

    /// The rows that begin with this are removed.
    pub(super) fn removed(&mut self, prefix: &[u8]) {
        if let Some(bucket) = key_rows::read_prefix_of_lists(prefix)
            && let Some(gone) = self.stored.remove(&bucket)
        {
            self.stored_bytes -= gone.bytes();
        }
    }

    /// Rows for a checkpoint. Those whose hour is over are forgotten: nobody asks for them any more.
    pub(super) fn rows(&mut self, shard: ShardId, now: Timestamp, rows: &mut Vec<SystemRow>) {
        self.failed();
        self.storing = std::mem::take(&mut self.fresh);
        self.storing.retain(|_, kept| kept.until > now.micros);
        self.fresh_bytes = 0;
        self.storing_bytes = self.storing.values().map(|kept| weigh(Some(kept))).sum();
        let mut by_bucket: BTreeMap<i64, Vec<(u128, &Kept)>> = BTreeMap::new();
        for (key, kept) in &self.storing {
            by_bucket.entry(bucket(kept.until)).or_default().push((*key, kept));
        }
        for (bucket, keys) in by_bucket {
            let list = self.stored.get(&bucket).map_or(0, Bucket::lists);
            let list = key_rows::List { bucket, shard, list };
            self.lists.push(list.write(keys, rows));
        }
    }

    /// The checkpoint with the last [`rows`](Self::rows) is done.
    pub(super) fn stored(&mut self) {
        self.checkpoints += 1;
        self.storing = HashMap::new();
        self.storing_bytes = 0;
        for list in std::mem::take(&mut self.lists) {
            self.stored_bytes += self.stored.entry(list.bucket).or_default().add(list);
        }
    }

    /// The checkpoint with the last [`rows`](Self::rows) has failed.
    pub(super) fn failed(&mut self) {
        self.lists.clear();
        self.storing_bytes = 0;
        for (key, kept) in std::mem::take(&mut self.storing) {
            if let std::collections::hash_map::Entry::Vacant(place) = self.fresh.entry(key) {
                self.fresh_bytes += weigh(Some(&kept));
                place.insert(kept);
            }
        }
    }

    /// Takes back the row of a list; `false` if it cannot be read.
    pub(super) fn restore(&mut self, name: &[u8], value: &[u8]) -> bool {
        let Some(list) = Stored::read(name, value) else {
            return false;
        };
        self.stored_bytes += self.stored.entry(list.bucket).or_default().add(list);
        true
    }
}

/// The shard of a list's row.
pub(super) fn shard_of_list(name: &[u8]) -> Option<ShardId> {
    read_list_row(name).map(|list| list.shard)
}

#[cfg(test)]
mod tests;
