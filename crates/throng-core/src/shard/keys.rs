//! Idempotency keys: accepted once, answered the same for an hour, however many there are.
//!
//! Keys since the last checkpoint are in memory; older ones are system rows of the store, found through one filter for
//! each ten minutes, so that a fresh key costs no read.

use super::filter::Filter;
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
    fresh: HashMap<u128, Kept>,
    /// What `looked` found or did not find in the store, for the next ask.
    looked: HashMap<u128, Option<Kept>>,
    /// By ten-minute bucket of expiry: the keys that are rows.
    stored: BTreeMap<i64, Filter>,
    fresh_bytes: usize,
    looked_bytes: usize,
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
    /// This was.
    Kept(Kept),
    /// It may be a row of the store.
    Look,
}

/// A key of one entity in one number.
pub(super) fn id_of(hash: u64, id: &str, key: &str) -> u128 {
    let mut hasher = xxhash_rust::xxh3::Xxh3::with_seed(hash);
    hasher.update(id.as_bytes());
    hasher.update(&[0]);
    hasher.update(key.as_bytes());
    hasher.digest128()
}

fn bucket(until: i64) -> i64 {
    until.div_euclid(BUCKET_MICROS)
}

/// What the rows of a bucket begin with, of all shards.
fn rows_of_bucket(bucket: i64) -> Vec<u8> {
    [&b"k"[..], &bucket.to_be_bytes()].concat()
}

fn row(shard: ShardId, bucket: i64, key: u128) -> Vec<u8> {
    let mut row = rows_of_bucket(bucket);
    row.extend_from_slice(&shard.0.to_be_bytes());
    row.extend_from_slice(&key.to_be_bytes());
    row
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
        let live = bucket(now.micros);
        if self.stored.range(live..).any(|(_, filter)| filter.contains(key as u64)) {
            Found::Look
        } else {
            Found::Fresh
        }
    }

    pub(super) fn insert(&mut self, key: u128, kept: Kept) {
        // What the store had of it is old from now on, also once this has become a row.
        if let Some(looked) = self.looked.remove(&key) {
            self.looked_bytes -= weigh(looked.as_ref());
        }
        self.fresh_bytes += weigh(Some(&kept));
        if let Some(old) = self.fresh.insert(key, kept) {
            self.fresh_bytes -= weigh(Some(&old));
        }
    }

    /// Bytes they take in memory.
    pub(super) fn bytes(&self) -> usize {
        self.fresh_bytes + self.looked_bytes
    }

    /// The rows in which this key may stand.
    pub(super) fn rows_of(&self, shard: ShardId, key: u128, now: Timestamp) -> Vec<Vec<u8>> {
        let live = bucket(now.micros);
        let may = self
            .stored
            .range(live..)
            .filter(|(_, filter)| filter.contains(key as u64));
        may.map(|(bucket, _)| row(shard, *bucket, key)).collect()
    }

    /// What the store has of it.
    pub(super) fn looked(&mut self, key: u128, value: Option<&[u8]>) {
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

    /// What the rows begin with whose hour is over.
    pub(super) fn expired(&self, now: Timestamp) -> Vec<Vec<u8>> {
        let expired = self.stored.range(..bucket(now.micros));
        expired.map(|(bucket, _)| rows_of_bucket(*bucket)).collect()
    }

    /// Rows for a checkpoint.
    pub(super) fn rows(&self, shard: ShardId, now: Timestamp, rows: &mut Vec<(Vec<u8>, Option<Vec<u8>>)>) {
        for (key, kept) in self.fresh.iter().filter(|(_, kept)| kept.until > now.micros) {
            rows.push((row(shard, bucket(kept.until), *key), serde_json::to_vec(kept).ok()));
        }
    }

    /// The checkpoint with those rows is done.
    pub(super) fn stored(&mut self, rows: &[(Vec<u8>, Option<Vec<u8>>)], expired: &[Vec<u8>]) {
        for (name, _) in rows {
            self.known(name, |keys, key| {
                if let Some(kept) = keys.fresh.remove(&key) {
                    keys.fresh_bytes -= weigh(Some(&kept));
                }
            });
        }
        self.stored
            .retain(|bucket, _| !expired.contains(&rows_of_bucket(*bucket)));
    }

    /// A row of the store, at recovery.
    pub(super) fn restore(&mut self, name: &[u8]) {
        self.known(name, |_, _| {});
    }

    fn known(&mut self, name: &[u8], then: impl FnOnce(&mut Self, u128)) {
        if let Some((bucket, key)) = read_row(name) {
            self.stored.entry(bucket).or_default().insert(key as u64);
            then(self, key);
        }
    }
}

fn read_row(name: &[u8]) -> Option<(i64, u128)> {
    let (b'k', rest) = name.split_first()? else { return None };
    let (bucket, rest) = rest.split_first_chunk::<8>()?;
    let (_shard, rest) = rest.split_first_chunk::<2>()?;
    Some((i64::from_be_bytes(*bucket), u128::from_be_bytes(rest.try_into().ok()?)))
}

pub(super) fn until(now: Timestamp) -> i64 {
    now.micros.saturating_add(KEY_MICROS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(print: u64, until: i64) -> Kept {
        Kept {
            print,
            until,
            answer: KeptAnswer::Reply("1".into()),
            rests_on: 0,
        }
    }

    #[test]
    fn a_key_is_found_fresh_stored_and_never_after_its_hour() {
        let (mut keys, now, shard) = (Keys::default(), Timestamp { micros: 5 }, ShardId(3));
        let until = until(now);
        assert!(matches!(keys.find(1, now), Found::Fresh));
        keys.looked(1, None);
        keys.insert(1, kept(7, until));
        let mut rows = Vec::new();
        keys.rows(shard, now, &mut rows);
        keys.stored(&rows, &[]);
        assert!(
            matches!(keys.find(1, now), Found::Look),
            "it is a row now, whatever was looked up before"
        );
        assert_eq!(keys.rows_of(shard, 1, now), [rows[0].0.clone()]);
        keys.looked(1, rows[0].1.as_deref());
        assert!(matches!(keys.find(1, now), Found::Kept(found) if found == kept(7, until)));
        assert!(matches!(keys.find(1, Timestamp { micros: until }), Found::Fresh));
        let over = Timestamp {
            micros: until + BUCKET_MICROS,
        };
        assert!(keys.expired(now).is_empty());
        assert!(rows[0].0.starts_with(&keys.expired(over)[0]));
        let expired = keys.expired(over);
        keys.stored(&[], &expired);
        assert!(keys.expired(over).is_empty(), "once");
    }
}
