//! Shards and positions in the columns of tables.

use throng_journal::{Commit, CommitNo, Position, ShardId, ShardSet, WriterId};
use tokio_postgres::Row;

/// Returns the shards as a parameter, in the order in which their locks are taken.
pub(crate) fn numbers(shards: &ShardSet) -> Vec<i32> {
    shards.iter().map(|shard| i32::from(shard.0)).collect()
}

/// Returns the set in a column of `writers`; null stands for all shards.
pub(crate) fn set_of(row: &Row, index: usize) -> Option<ShardSet> {
    row.get::<_, Option<&[u8]>>(index).map(ShardSet::from_bytes)
}

/// The shard in a column.
pub(crate) fn shard(row: &Row, index: usize) -> ShardId {
    ShardId(u16::try_from(row.get::<_, i32>(index)).unwrap_or_default())
}

/// Returns the position in two columns, both null before the first.
pub(crate) fn position_of(row: &Row, writer: usize, commit: usize) -> Option<Position> {
    let number = |index| row.get::<_, Option<i64>>(index).map(i64::cast_unsigned);
    Some(Position::new(WriterId(number(writer)?), CommitNo(number(commit)?)))
}

/// The shards of a commit's records, as bits: `get_bit(shards, n)`.
pub(crate) fn shards(commit: &Commit) -> Vec<u8> {
    let mut bits = Vec::new();
    for record in commit.records().flatten() {
        let (byte, bit) = (usize::from(record.shard.0 / 8), record.shard.0 % 8);
        if byte >= bits.len() {
            bits.resize(byte + 1, 0u8);
        }
        bits[byte] |= 1 << bit;
    }
    bits
}
