//! Idempotency keys as rows of the store: one list for each bucket, shard and checkpoint.
//!
//! ```text
//! k, bucket (8), shard (2), list (4), slice (2)  → for each key in order: the key (16), length (4), what was answered (JSON)
//! l, bucket (8), shard (2), list (4)             → bits of a slice's number (1), the tag of each key in order (4)
//! ```
//! Names are big-endian, so that they sort by their numbers; values are little-endian. A slice holds the keys that begin with its number,
//! about a page of them. So a checkpoint changes few pages of the store, however many keys there are, and reading one key reads one page. A
//! tag is the last three bytes of a key and the last byte of the list's number. A start reads all tags, and no answers.
//!
//! The rows of an expired bucket are removed in this order, so that the tags exist as long as any key does.

use super::key::{BUCKET_MICROS, KeptOutcome};
use crate::shard::SystemRow;
use throng_journal::ShardId;

/// The approximate bytes of a slice.
const SLICE_BYTES: usize = 4 << 10;
const SLICE_BITS_MAX: u8 = 16;
/// More lists than checkpoints can be made while a bucket is open.
const LISTS_MAX: u32 = 1 << 20;
/// The part of a tag that is of its list's number.
const LIST_MASK: u32 = 0xff;
/// The bytes of a key and a length before each answer.
const ENTRY_HEADER_BYTES: usize = 16 + 4;

pub(crate) fn bucket(until: i64) -> i64 {
    until.div_euclid(BUCKET_MICROS)
}

fn prefix(rows: u8, bucket: i64) -> Vec<u8> {
    [&[rows][..], &bucket.to_be_bytes()].concat()
}

/// Returns the prefixes of a bucket's rows, for all shards, in the order in which they are removed.
pub(crate) fn prefixes_of_bucket(bucket: i64) -> [Vec<u8>; 2] {
    [prefix(b'k', bucket), prefix(b'l', bucket)]
}

/// Reads the bucket from the prefix of its lists.
pub(crate) fn read_prefix_of_lists(prefix: &[u8]) -> Option<i64> {
    let bucket = prefix.strip_prefix(b"l")?;
    Some(i64::from_be_bytes(bucket.try_into().ok()?))
}

/// The list of a row of tags.
pub(crate) fn read_list_row(name: &[u8]) -> Option<List> {
    let (bucket, rest) = name.strip_prefix(b"l")?.split_first_chunk::<8>()?;
    let (shard, list) = rest.split_first_chunk::<2>()?;
    Some(List {
        bucket: i64::from_be_bytes(*bucket),
        shard: ShardId(u16::from_be_bytes(*shard)),
        list: u32::from_be_bytes(list.try_into().ok()?),
    })
}

/// The keys of one checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct List {
    pub(crate) bucket: i64,
    pub(crate) shard: ShardId,
    /// Counted from 0 in its bucket and shard.
    pub(crate) list: u32,
}

/// The part of a stored list that is kept in memory.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) bucket: i64,
    list: u32,
    slice_bits: u8,
    tags: Vec<u32>,
}

impl List {
    fn row(self) -> Vec<u8> {
        let (shard, list) = (self.shard.0.to_be_bytes(), self.list.to_be_bytes());
        [&*prefix(b'l', self.bucket), &shard, &list].concat()
    }

    fn slice_row(self, slice: u16) -> Vec<u8> {
        let mut row = self.row();
        row[0] = b'k';
        row.extend_from_slice(&slice.to_be_bytes());
        row
    }

    /// The rows of these keys.
    pub(crate) fn write(self, mut keys: Vec<(u128, &KeptOutcome)>, rows: &mut Vec<SystemRow>) -> Stored {
        keys.sort_unstable_by_key(|(key, _)| *key);
        let mut entries = Vec::with_capacity(keys.len());
        let mut bytes = 0;
        for (key, kept) in keys {
            // An outcome that cannot be written would not be kept, and its command could be taken again. JSON of texts and numbers can
            // always be written.
            let answer = serde_json::to_vec(kept).unwrap_or_default();
            bytes += ENTRY_HEADER_BYTES + answer.len();
            entries.push((key, answer));
        }
        let bits = slice_bits(bytes);
        let is_same_slice =
            |(one, _): &(u128, _), (other, _): &(u128, _)| slice_of(*one, bits) == slice_of(*other, bits);
        for slice in entries.chunk_by(is_same_slice) {
            let mut value = Vec::with_capacity(SLICE_BYTES);
            for (key, answer) in slice {
                value.extend_from_slice(&key.to_le_bytes());
                value.extend_from_slice(&(answer.len() as u32).to_le_bytes());
                value.extend_from_slice(answer);
            }
            rows.push((self.slice_row(slice_of(slice[0].0, bits)), Some(value)));
        }
        let mut tags: Vec<u32> = entries.iter().map(|(key, _)| tag(*key, self.list)).collect();
        tags.sort_unstable();
        let stored = Stored {
            bucket: self.bucket,
            list: self.list,
            slice_bits: bits,
            tags,
        };
        rows.push((self.row(), Some(stored.encode())));
        stored
    }
}

impl Stored {
    fn encode(&self) -> Vec<u8> {
        let mut value = vec![self.slice_bits];
        value.extend(self.tags.iter().flat_map(|tag| tag.to_le_bytes()));
        value
    }

    /// `None` if the row is none of a list.
    pub(crate) fn read(name: &[u8], value: &[u8]) -> Option<Self> {
        let List { bucket, list, .. } = read_list_row(name)?;
        let (slice_bits, tags) = value.split_first()?;
        let (tags, []) = tags.as_chunks::<4>() else {
            return None;
        };
        (*slice_bits <= SLICE_BITS_MAX && list < LISTS_MAX).then(|| Self {
            bucket,
            list,
            slice_bits: *slice_bits,
            tags: tags.iter().map(|tag| u32::from_le_bytes(*tag)).collect(),
        })
    }
}

/// Returns the number of bits in the slice numbers of a list with this many bytes.
fn slice_bits(bytes: usize) -> u8 {
    let slices = bytes.div_ceil(SLICE_BYTES).next_power_of_two();
    (slices.trailing_zeros() as u8).min(SLICE_BITS_MAX)
}

fn slice_of(key: u128, bits: u8) -> u16 {
    key.checked_shr(u128::BITS - u32::from(bits)).unwrap_or(0) as u16
}

fn tag(key: u128, list: u32) -> u32 {
    key as u32 & !LIST_MASK | list & LIST_MASK
}

/// A row of idempotency keys that is damaged, or was written by a newer program.
#[derive(Debug, thiserror::Error)]
#[error("a row of idempotency keys cannot be read: {0}")]
pub struct UnreadableKeys(pub(super) String);

/// Finds a key's answer in a slice.
///
/// # Errors
/// [`UnreadableKeys`]: the slice ends in the middle of an answer.
pub(crate) fn find(slice: &[u8], key: u128) -> Result<Option<&[u8]>, UnreadableKeys> {
    let mut rest = slice;
    while !rest.is_empty() {
        let (found, answer, after) = split_answer(rest).ok_or_else(|| UnreadableKeys("it is cut off".into()))?;
        if found == key {
            return Ok(Some(answer));
        }
        rest = after;
    }
    Ok(None)
}

/// Splits the first key and its answer off.
fn split_answer(slice: &[u8]) -> Option<(u128, &[u8], &[u8])> {
    let (key, after) = slice.split_first_chunk::<16>()?;
    let (length, after) = after.split_first_chunk::<4>()?;
    let (answer, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    Some((u128::from_le_bytes(*key), answer, after))
}

/// The keys of ten minutes that are in the store.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    tags: Vec<u32>,
    /// The number of leading tags that are in order.
    sorted: usize,
    /// The number of bits in the slice numbers of each list.
    slice_bits: Vec<u8>,
}

impl Bucket {
    /// The number of the next list.
    pub(crate) fn lists(&self) -> u32 {
        self.slice_bits.len() as u32
    }

    /// Takes a list in. Returns by how many bytes it has grown.
    pub(crate) fn add(&mut self, list: Stored) -> usize {
        let before = self.bytes();
        let number = list.list as usize;
        if self.slice_bits.len() <= number {
            self.slice_bits.resize(number + 1, 0);
        }
        self.slice_bits[number] = list.slice_bits;
        self.tags.extend(list.tags);
        self.bytes() - before
    }

    /// Bytes it takes in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.tags.len() * size_of::<u32>() + self.slice_bits.len()
    }

    /// The tags like this key's, of whichever lists.
    fn tags_like(&mut self, key: u128) -> &[u32] {
        if self.sorted < self.tags.len() {
            // Merges the lists, each of which is in order.
            self.tags.sort();
            self.tags.shrink_to_fit();
            self.sorted = self.tags.len();
        }
        let (first, last) = (tag(key, 0), tag(key, LIST_MASK));
        let begin = self.tags.partition_point(|tag| *tag < first);
        let like = &self.tags[begin..];
        &like[..like.iter().take_while(|tag| **tag <= last).count()]
    }

    /// Returns true if a list may have this key; false positives are rare.
    pub(crate) fn may_have(&mut self, key: u128) -> bool {
        !self.tags_like(key).is_empty()
    }

    /// The rows a key may be in, the newest first.
    pub(crate) fn rows_with(&mut self, key: u128, bucket: i64, shard: ShardId) -> Vec<Vec<u8>> {
        let ends: Vec<u32> = self.tags_like(key).iter().map(|tag| tag & LIST_MASK).collect();
        let lists = (0..self.lists())
            .rev()
            .filter(|list| ends.contains(&(list & LIST_MASK)));
        let row = |list: u32| {
            let slice = slice_of(key, self.slice_bits[list as usize]);
            List { bucket, shard, list }.slice_row(slice)
        };
        lists.map(row).collect()
    }
}
