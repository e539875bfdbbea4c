//! Idempotency keys: accepted once, answered the same for an hour, however many there are. (What they remember of refusals is
//! another matter: [`super::refused`].)
//!
//! Keys since the last checkpoint are in memory; older ones are system rows of the store, found through one filter for
//! each ten minutes, so that a fresh key costs no read. The filters come back from rows of their own, which a checkpoint writes
//! beside the keys' rows: a start reads four bytes a key, and no answers.
//!
//! ```text
//! k, bucket (8), shard (2), key (16)     → what was answered
//! l, bucket (8), shard (2), number (4)   → fingerprints of the keys of one checkpoint
//! ```
//!
//! A bucket whose hour is over goes in this order, so that its fingerprints are there for as long as there may be a key.

use super::{
    SystemRow,
    filter::{Filter, decode_fingerprints, encode_fingerprints},
};
use crate::{limits::KEY_MICROS, model::Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use throng_journal::ShardId;

/// What is kept of an accepted command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kept {
    /// Hash of the command, so that another one under the same key is noticed.
    pub(super) print: u64,
    /// Until when, microseconds.
    pub(super) until: i64,
    pub(super) answer: KeptAnswer,
    /// The commit it stands in, of this writer; the slot of an entity without events does not remember it.
    #[serde(skip)]
    pub(super) rests_on: u64,
}

/// Whether the hour of an idempotency key is over, as its record says.
#[must_use]
pub fn is_key_over(body: &[u8], now: Timestamp) -> bool {
    let kept = body
        .split_first_chunk::<16>()
        .map(|(_, kept)| serde_json::from_slice::<Kept>(kept));
    matches!(kept, Some(Ok(kept)) if kept.until <= now.micros)
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum KeptAnswer {
    /// The reply as JSON.
    Reply(String),
    /// The entity recorded something and forwarded this to another: kind, id, command's name, its content.
    Forward(String, String, String, String),
    /// The same, to create a child.
    Create(String, String, String, String),
}

/// A shard's keys.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// Those no checkpoint has stored yet.
    fresh: HashMap<u128, Kept>,
    /// What the store has of some older ones, or that it has nothing. Never of one that is in `fresh`.
    looked: HashMap<u128, Option<Kept>>,
    /// By ten-minute bucket of expiry: the keys that are rows.
    stored: BTreeMap<i64, Bucket>,
    /// How many checkpoints took over what stood in `fresh`.
    checkpoints: u64,
    fresh_bytes: usize,
    looked_bytes: usize,
    filter_bytes: usize,
}

/// The keys of ten minutes that are rows of the store.
#[derive(Debug, Default)]
struct Bucket {
    filter: Filter,
    /// How many rows hold their fingerprints.
    lists: u32,
}

const BUCKET_MICROS: i64 = 600_000_000;
/// Most answers of the store kept until they are asked for again, and their bytes.
const LOOKED_MAX: usize = 4_096;
const LOOKED_BYTES_MAX: usize = 1 << 20;

/// What an answer takes in memory, about.
fn weigh(kept: Option<&Kept>) -> usize {
    let answer = kept.map_or(0, |kept| match &kept.answer {
        KeptAnswer::Reply(json) => json.len(),
        KeptAnswer::Forward(kind, id, name, body) | KeptAnswer::Create(kind, id, name, body) => {
            kind.len() + id.len() + name.len() + body.len()
        }
    });
    answer + 160
}

pub(super) enum Found {
    /// Nothing was accepted under this key.
    Fresh,
    /// This was accepted, and is what it is answered again.
    Kept(Kept),
    /// It may be a row of the store.
    Look,
}

/// Where to look for an idempotency key in the store, see [`Shard::key_rows`](super::Shard::key_rows).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRows {
    /// The rows it may stand in, the newest first: the first one found counts.
    pub rows: Vec<Vec<u8>>,
    /// What is found counts only while the shard has the same number of checkpoints.
    pub(super) checkpoints: u64,
}

/// A key of one entity in one number.
pub(super) fn id_of(hash: u64, id: &str, key: &str) -> u128 {
    let mut hasher = xxhash_rust::xxh3::Xxh3::with_seed(hash);
    hasher.update(id.as_bytes());
    hasher.update(&[0]);
    hasher.update(key.as_bytes());
    hasher.digest128()
}

fn fingerprint(key: u128) -> u32 {
    key as u32
}

fn bucket(until: i64) -> i64 {
    until.div_euclid(BUCKET_MICROS)
}

/// What the rows of a bucket begin with, of all shards.
fn rows_of_bucket(rows: u8, bucket: i64) -> Vec<u8> {
    [&[rows][..], &bucket.to_be_bytes()].concat()
}

fn key_row(shard: ShardId, bucket: i64, key: u128) -> Vec<u8> {
    let shard = shard.0.to_be_bytes();
    [&*rows_of_bucket(b'k', bucket), &shard, &key.to_be_bytes()].concat()
}

fn list_row(shard: ShardId, bucket: i64, number: u32) -> Vec<u8> {
    let shard = shard.0.to_be_bytes();
    [&*rows_of_bucket(b'l', bucket), &shard, &number.to_be_bytes()].concat()
}

impl Keys {
    pub(super) fn find(&self, key: u128, now: Timestamp) -> Found {
        if let Some(kept) = self.fresh.get(&key) {
            return if kept.until > now.micros {
                Found::Kept(kept.clone())
            } else {
                Found::Fresh
            };
        }
        if let Some(looked) = self.looked.get(&key) {
            return match looked {
                Some(kept) if kept.until > now.micros => Found::Kept(kept.clone()),
                _ => Found::Fresh,
            };
        }
        if self.buckets_with(key, now).next().is_some() {
            Found::Look
        } else {
            Found::Fresh
        }
    }

    /// The buckets whose hour is not over and that may have this key, the newest first: an older one may still have a row of the
    /// same key whose own hour is over.
    fn buckets_with(&self, key: u128, now: Timestamp) -> impl Iterator<Item = i64> {
        let live = self.stored.range(bucket(now.micros)..);
        let may = live.filter(move |(_, bucket)| bucket.filter.contains(fingerprint(key)));
        may.map(|(bucket, _)| *bucket).rev()
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

    /// Bytes they take in memory.
    pub(super) fn bytes(&self) -> usize {
        self.fresh_bytes + self.looked_bytes + self.filter_bytes
    }

    /// The rows in which this key may stand.
    pub(super) fn rows_of(&self, shard: ShardId, key: u128, now: Timestamp) -> KeyRows {
        KeyRows {
            rows: self
                .buckets_with(key, now)
                .map(|bucket| key_row(shard, bucket, key))
                .collect(),
            checkpoints: self.checkpoints,
        }
    }

    /// What the store has of it, unless it was accepted since it was asked: then that is what counts, and is looked for again.
    pub(super) fn looked(&mut self, key: u128, asked: &KeyRows, value: Option<&[u8]>) {
        if asked.checkpoints != self.checkpoints || self.fresh.contains_key(&key) {
            return;
        }
        if self.looked.len() >= LOOKED_MAX || self.looked_bytes >= LOOKED_BYTES_MAX {
            self.looked.clear();
            self.looked_bytes = 0;
        }
        let kept: Option<Kept> = value.and_then(|value| serde_json::from_slice(value).ok());
        self.looked_bytes += weigh(kept.as_ref());
        if let Some(old) = self.looked.insert(key, kept) {
            self.looked_bytes -= weigh(old.as_ref());
        }
    }

    /// What the rows begin with whose hour is over, in the order in which they are to be removed.
    pub(super) fn expired(&self, now: Timestamp) -> Vec<Vec<u8>> {
        let expired = self.stored.range(..bucket(now.micros));
        expired
            .flat_map(|(bucket, _)| [b'k', b'l'].map(|rows| rows_of_bucket(rows, *bucket)))
            .collect()
    }

    /// The rows that begin with this are removed.
    pub(super) fn removed(&mut self, prefix: &[u8]) {
        if let [b'l', bucket @ ..] = prefix
            && let Ok(bucket) = bucket.try_into()
            && let Some(gone) = self.stored.remove(&i64::from_be_bytes(bucket))
        {
            self.filter_bytes -= gone.filter.bytes();
        }
    }

    /// Rows for a checkpoint. Those whose hour is over are forgotten: nobody asks for them any more.
    pub(super) fn rows(&mut self, shard: ShardId, now: Timestamp, rows: &mut Vec<SystemRow>) {
        let Self { fresh, fresh_bytes, .. } = self;
        fresh.retain(|_, kept| {
            let is_live = kept.until > now.micros;
            if !is_live {
                *fresh_bytes -= weigh(Some(kept));
            }
            is_live
        });
        let mut lists: BTreeMap<i64, Vec<u32>> = BTreeMap::new();
        for (key, kept) in &self.fresh {
            let bucket = bucket(kept.until);
            rows.push((key_row(shard, bucket, *key), serde_json::to_vec(kept).ok()));
            lists.entry(bucket).or_default().push(fingerprint(*key));
        }
        for (bucket, mut list) in lists {
            list.sort_unstable();
            let number = self.stored.get(&bucket).map_or(0, |bucket| bucket.lists);
            rows.push((list_row(shard, bucket, number), Some(encode_fingerprints(&list))));
        }
    }

    /// The checkpoint with those rows is done.
    pub(super) fn stored(&mut self, rows: &[SystemRow]) {
        self.checkpoints += 1;
        for (name, value) in rows {
            if let Some(key) = read_key_row(name) {
                if let Some(kept) = self.fresh.remove(&key) {
                    self.fresh_bytes -= weigh(Some(&kept));
                }
            } else if let Some(value) = value {
                self.restore(name, value);
            }
        }
    }

    /// Takes back fingerprints from their row; `false` if it cannot be read.
    pub(super) fn restore(&mut self, name: &[u8], value: &[u8]) -> bool {
        let (Some((bucket, number)), Some(fingerprints)) = (read_list_row(name), decode_fingerprints(value)) else {
            return false;
        };
        let bucket = self.stored.entry(bucket).or_default();
        bucket.lists = bucket.lists.max(number.saturating_add(1));
        self.filter_bytes += fingerprints.map(|one| bucket.filter.insert(one)).sum::<usize>();
        true
    }
}

fn read_key_row(name: &[u8]) -> Option<u128> {
    let (_, key) = name.strip_prefix(b"k")?.split_at_checked(10)?;
    Some(u128::from_be_bytes(key.try_into().ok()?))
}

/// Bucket and number of a row of fingerprints.
fn read_list_row(name: &[u8]) -> Option<(i64, u32)> {
    let (bucket, rest) = name.strip_prefix(b"l")?.split_first_chunk::<8>()?;
    let (_shard, number) = rest.split_first_chunk::<2>()?;
    Some((i64::from_be_bytes(*bucket), u32::from_be_bytes(number.try_into().ok()?)))
}

/// The shard of a row of fingerprints.
pub(super) fn shard_of_list(name: &[u8]) -> Option<ShardId> {
    read_list_row(name)?;
    Some(ShardId(u16::from_be_bytes([*name.get(9)?, *name.get(10)?])))
}

pub(super) fn until(now: Timestamp) -> i64 {
    now.micros.saturating_add(KEY_MICROS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARD: ShardId = ShardId(3);

    fn at(micros: i64) -> Timestamp {
        Timestamp { micros }
    }

    fn kept(print: u64, until: i64) -> Kept {
        Kept {
            print,
            until,
            answer: KeptAnswer::Reply("1".into()),
            rests_on: 0,
        }
    }

    fn rows(keys: &mut Keys, now: Timestamp) -> Vec<SystemRow> {
        let mut rows = Vec::new();
        keys.rows(SHARD, now, &mut rows);
        rows
    }

    fn looked(keys: &mut Keys, key: u128, now: Timestamp, value: Option<&[u8]>) {
        let asked = keys.rows_of(SHARD, key, now);
        keys.looked(key, &asked, value);
    }

    #[test]
    fn a_key_is_found_fresh_stored_and_never_after_its_hour() {
        let (mut keys, now) = (Keys::default(), at(5));
        let until = until(now);
        assert!(matches!(keys.find(1, now), Found::Fresh));
        looked(&mut keys, 1, now, None);
        keys.insert(1, kept(7, until));
        let stored = rows(&mut keys, now);
        keys.stored(&stored);
        assert!(
            matches!(keys.find(1, now), Found::Look),
            "it is a row now, whatever was looked up before"
        );
        assert_eq!(keys.rows_of(SHARD, 1, now).rows, [stored[0].0.clone()]);
        looked(&mut keys, 1, now, stored[0].1.as_deref());
        assert!(matches!(keys.find(1, now), Found::Kept(found) if found == kept(7, until)));
        assert!(matches!(keys.find(1, at(until)), Found::Fresh));
        let over = at(until + BUCKET_MICROS);
        assert!(keys.expired(now).is_empty());
        let expired = keys.expired(over);
        let names: Vec<_> = stored.iter().map(|(name, _)| name).collect();
        assert!(
            names
                .iter()
                .zip(&expired)
                .all(|(name, prefix)| name.starts_with(prefix)),
            "first the key, then its fingerprint"
        );
        assert_eq!((names.len(), expired.len()), (2, 2));
        keys.removed(&expired[0]);
        assert_eq!(keys.expired(over), expired, "until both are gone");
        keys.removed(&expired[1]);
        assert!(keys.expired(over).is_empty(), "once");
        looked(&mut keys, 1, now, None);
        keys.insert(1, kept(7, until));
        keys.rows(SHARD, over, &mut Vec::new());
        assert_eq!(keys.bytes(), 0);
    }

    #[test]
    fn filters_come_back_from_the_rows_of_fingerprints_alone() {
        let (mut keys, mut again) = (Keys::default(), Keys::default());
        for round in 0..50_i64 {
            let now = at(round * 20_000_000);
            (0..20).for_each(|n| keys.insert((round * 20 + n) as u128, kept(7, until(now))));
            let stored = rows(&mut keys, now);
            keys.stored(&stored);
            for (name, value) in stored.iter().filter(|(name, _)| name[0] == b'l') {
                assert_eq!(shard_of_list(name), Some(SHARD));
                assert!(again.restore(name, value.as_deref().unwrap()));
            }
        }
        let now = at(50 * 20_000_000);
        assert_eq!(again.bytes(), keys.bytes(), "filters are in the budget");
        for key in 0..1_000 {
            assert_eq!(again.rows_of(SHARD, key, now).rows, keys.rows_of(SHARD, key, now).rows);
            assert!(matches!(again.find(key, now), Found::Look));
        }
        assert!(!again.restore(b"l", &[]) && !again.restore(&list_row(SHARD, 1, 1), &[1]));
    }

    #[test]
    fn a_key_that_expires_before_a_checkpoint_leaves_memory() {
        let mut keys = Keys::default();
        keys.insert(1, kept(7, until(at(0))));
        keys.insert(2, kept(7, until(at(1))));
        // Checkpoints fail for an hour.
        assert_eq!(rows(&mut keys, at(5)).len(), 3);
        assert_eq!(rows(&mut keys, at(until(at(0)))).len(), 2);
        assert_eq!(keys.fresh.len(), 1);
        assert!(rows(&mut keys, at(until(at(1)))).is_empty());
        assert_eq!(keys.bytes(), 0);
    }

    #[test]
    fn what_the_store_said_before_a_key_was_accepted_does_not_count() {
        let (mut keys, now) = (Keys::default(), at(5));
        let asked = keys.rows_of(SHARD, 1, now);
        keys.insert(1, kept(7, until(now)));
        keys.looked(1, &asked, None);
        assert!(matches!(keys.find(1, now), Found::Kept(_)));
        let stored = rows(&mut keys, now);
        keys.looked(1, &asked, None);
        keys.stored(&stored);
        assert!(matches!(keys.find(1, now), Found::Look), "it is accepted and stored");
        keys.looked(1, &asked, None);
        assert!(matches!(keys.find(1, now), Found::Look), "the answer came after both");
    }
}
