//! Idempotency keys. A command is accepted once under its key, and repeats get the same answer for an hour, or for a longer
//! [`KeyLife`](self::key::KeyLife).
//!
//! A refused command is not accepted under its key for ten minutes. The client may have given up after the refusal. A delayed copy of its
//! request may still arrive over another connection, or at another node. So the refusal is recorded like an acceptance. A repetition is
//! decided again each time, and refused with the reason of that time.
//!
//! Keys since the last checkpoint are in memory. Older ones are in [rows of the store](self::key_rows), indexed by four bytes of each, so
//! that a fresh key costs no read.

pub(super) mod key;
mod key_rows;

use super::SystemRow;
use crate::model::Timestamp;
use key::{Forwarded, KeptAnswer, KeptOutcome};

use key_rows::{Bucket, Stored, UnreadableKeys, bucket, read_list_row};
use std::collections::{BTreeMap, HashMap};
use throng_journal::ShardId;

/// A shard's keys.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// The keys that no checkpoint has stored yet.
    fresh: HashMap<u128, KeptOutcome>,
    /// The keys that the checkpoint under way stores.
    storing: HashMap<u128, KeptOutcome>,
    /// The lists that become part of [`stored`](Self::stored) when that checkpoint is done.
    lists: Vec<Stored>,
    /// The store's answers about some older keys; `None`: the store lacks the key. Never holds a key of `fresh` or `storing`.
    looked: HashMap<u128, Option<KeptOutcome>>,
    /// The indexes of the keys in rows, by the ten-minute bucket in which they expire.
    stored: BTreeMap<i64, Bucket>,
    /// The number of checkpoints that have stored keys. An older answer of the store is stale.
    checkpoints: u64,
    fresh_bytes: usize,
    storing_bytes: usize,
    looked_bytes: usize,
    stored_bytes: usize,
}

/// The most answers of the store that are kept for repeated lookups, and their bytes.
const LOOKED_MAX: usize = 4_096;
const LOOKED_BYTES_MAX: usize = 1 << 20;
/// The approximate bytes of a key in memory without its answer: its share of a hash table.
const KEY_BYTES: usize = 120;

/// Returns the approximate bytes of a key and its answer in memory.
fn weigh(kept: Option<&KeptOutcome>) -> usize {
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

pub(super) enum KeyLookup {
    /// Nothing was accepted or refused under this key.
    Fresh,
    /// A command was accepted or refused under this key.
    Kept(KeptOutcome),
    /// The key may be in a row of the store.
    Look,
}

/// The rows of the store in which to look for an idempotency key, see [`Shard::key_rows`](super::Shard::key_rows).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRows {
    /// The rows that may hold it, the newest first: the first one that [does](Self::find) counts.
    pub rows: Vec<Vec<u8>>,
    pub(super) key: u128,
    /// The shard's number of checkpoints. The answer counts only while it is the same.
    pub(super) checkpoints: u64,
}

impl KeyRows {
    /// Returns the outcome under the key in one of the rows.
    ///
    /// # Errors
    /// [`UnreadableKeys`]: the row is damaged, or was written by a newer program. The key may have taken effect.
    pub fn find(&self, row: &[u8]) -> Result<Option<FoundKey>, UnreadableKeys> {
        let Some(kept) = key_rows::find(row, self.key)? else {
            return Ok(None);
        };
        let kept = serde_json::from_slice(kept).map_err(|error| UnreadableKeys(error.to_string()))?;
        Ok(Some(FoundKey(kept)))
    }
}

/// The outcome that a row keeps under an idempotency key.
#[derive(Debug)]
pub struct FoundKey(KeptOutcome);

/// Returns a key of one entity as one number.
pub(super) fn id_of(hash: u64, id: &str, key: &str) -> u128 {
    let mut hasher = xxhash_rust::xxh3::Xxh3::with_seed(hash);
    hasher.update(id.as_bytes());
    hasher.update(&[0]);
    hasher.update(key.as_bytes());
    hasher.digest128()
}

impl Keys {
    //= promise 4: a key takes effect once
    pub(super) fn find(&mut self, key: u128, now: Timestamp) -> KeyLookup {
        if let Some(known) = self.known(key) {
            return match known {
                Some(kept) if kept.until > now.micros => KeyLookup::Kept(kept.clone()),
                _ => KeyLookup::Fresh,
            };
        }
        if self.may_be_stored(key, now) {
            KeyLookup::Look
        } else {
            KeyLookup::Fresh
        }
    }

    /// Looks a key up without the store. `None`: unknown; `Some(None)`: the store is known not to have it.
    fn known(&self, key: u128) -> Option<Option<&KeptOutcome>> {
        let in_memory = self.fresh.get(&key).or_else(|| self.storing.get(&key));
        let looked = || self.looked.get(&key).map(Option::as_ref);
        in_memory.map(Some).or_else(looked)
    }

    fn may_be_stored(&mut self, key: u128, now: Timestamp) -> bool {
        let mut live = self.stored.range_mut(bucket(now.micros)..);
        live.any(|(_, bucket)| bucket.may_have(key))
    }

    pub(super) fn insert(&mut self, key: u128, kept: KeptOutcome) {
        // An answer of the store about it is stale from now on.
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

    /// Returns the bytes that the next checkpoints remove from memory.
    pub(super) fn pending_bytes(&self) -> usize {
        self.fresh_bytes + self.storing_bytes
    }

    /// Returns the rows that may hold this key, in buckets that have not expired, the newest first. An older bucket may still have a row of
    /// the same key that has itself expired.
    pub(super) fn rows_of(&mut self, shard: ShardId, key: u128, now: Timestamp) -> KeyRows {
        let live = self.stored.range_mut(bucket(now.micros)..).rev();
        let rows = live.flat_map(|(number, bucket)| bucket.rows_with(key, *number, shard));
        KeyRows {
            rows: rows.collect(),
            key,
            checkpoints: self.checkpoints,
        }
    }

    /// Takes the store's answer about a key. Ignores it if the key was used or a checkpoint was completed after the store was asked: the
    /// key is then looked up again.
    pub(super) fn looked(&mut self, asked: &KeyRows, found: Option<FoundKey>) {
        let is_old = asked.checkpoints != self.checkpoints;
        if is_old || self.fresh.contains_key(&asked.key) || self.storing.contains_key(&asked.key) {
            return;
        }
        if self.looked.len() >= LOOKED_MAX || self.looked_bytes >= LOOKED_BYTES_MAX {
            self.looked.clear();
            self.looked_bytes = 0;
        }
        let kept = found.map(|FoundKey(kept)| kept);
        self.looked_bytes += weigh(kept.as_ref());
        if let Some(old) = self.looked.insert(asked.key, kept) {
            self.looked_bytes -= weigh(old.as_ref());
        }
    }

    /// Returns the prefixes of the expired rows, in the order of their removal.
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

    /// Adds the rows for a checkpoint, and forgets expired keys.
    pub(super) fn rows(&mut self, shard: ShardId, now: Timestamp, rows: &mut Vec<SystemRow>) {
        self.failed();
        self.storing = std::mem::take(&mut self.fresh);
        self.storing.retain(|_, kept| kept.until > now.micros);
        self.fresh_bytes = 0;
        self.storing_bytes = self.storing.values().map(|kept| weigh(Some(kept))).sum();
        let mut by_bucket: BTreeMap<i64, Vec<(u128, &KeptOutcome)>> = BTreeMap::new();
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
