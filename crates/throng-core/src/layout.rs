//! The assignment of entities to shards. Every record names its shard, so the assignment is fixed when a journal is begun.
//!
//! The store keeps the layout as a system row, written at the first start and with every checkpoint. A store without that row is not used:
//! the engine reads every record of the journal, and [`Layout::check_record`] finds the first one that names another shard. So every start
//! notices another layout, by the row or by the records.

use crate::{
    limits,
    shard::{Registry, UnreadableRecord},
};
use serde::{Deserialize, Serialize};
use throng_journal::{Address, Commit, Record, ShardId};

/// The system row that holds the [`Layout`].
pub const LAYOUT_ROW: &[u8] = b"s";

/// The prefixes of the rows that are removed, in this order, before everything is read from the journal again.
///
/// Incomplete filters would hide entities and keys. The notes about kinds that only another program has are removed because
/// the journal holds their content and what came after it. Rows of indexed fields are written anew as they are asked for. The layout row goes
/// first: it says that the others are complete.
pub const REBUILT: [&[u8]; 7] = [LAYOUT_ROW, b"n", b"l", b"k", b"u", b"q", b"i"];

/// The version of the engine's system rows. 2: keys are stored many to a row.
const FORMAT: u32 = 2;
/// The function behind [`limits::hash`].
const HASH: &str = "xxh3-64";

/// The assignment of entities to shards, and the format of the engine's system rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    format: u32,
    hash: String,
    shards: u16,
}

/// A journal was begun with another layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The store's row names another number.
    #[error(
        "the journal was begun with {stored} shards, this engine is set up with {given}; set it up with {stored} \
         (`Builder::shards({stored})`): the number is fixed at the first start"
    )]
    OtherShards {
        /// The number it was begun with.
        stored: u16,
        /// The number the engine was set up with.
        given: u16,
    },
    /// A record of the journal names another shard, and several numbers of shards would fit.
    #[error(
        "{address} stands in shard {found}, with the {given} shards this engine is set up with it would be in shard {expected}; \
         set it up with the number the journal was begun with (`Builder::shards`): it is fixed at the first start"
    )]
    Misplaced {
        /// The entity the record belongs to.
        address: Address,
        /// The shard the record names.
        found: ShardId,
        /// The shard in which this engine would look for the entity.
        expected: ShardId,
        /// The number the engine was set up with.
        given: u16,
    },
    /// The row was written by a program whose format this one does not know.
    #[error(
        "the store's rows have format {stored}, this program reads {expected}; use the program it was written by, or stop, \
         remove the store, and start: it is rebuilt from the journal"
    )]
    OtherFormat {
        /// The format and hash that the store names, or the reason why its row cannot be read.
        stored: String,
        /// The format and hash that this program writes.
        expected: String,
    },
    /// A record cannot be read.
    #[error(transparent)]
    Unreadable(#[from] UnreadableRecord),
}

impl Layout {
    /// The layout of an engine with these kinds and shards.
    #[must_use]
    pub fn of(registry: &Registry) -> Self {
        Self {
            format: FORMAT,
            hash: HASH.to_owned(),
            shards: registry.shards(),
        }
    }

    /// Returns true if the engine has a shard of this number.
    #[must_use]
    pub fn has(&self, shard: ShardId) -> bool {
        shard.0 < self.shards
    }

    /// The value of the [`LAYOUT_ROW`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Compares this layout with the value of the [`LAYOUT_ROW`]. Returns false if its rows have an older format and must be ignored.
    ///
    /// # Errors
    /// [`LayoutError`]: it is another layout.
    pub fn check(&self, stored: &[u8]) -> Result<bool, LayoutError> {
        let other = |stored: String| LayoutError::OtherFormat {
            stored,
            expected: format!("{} with {}", self.format, self.hash),
        };
        let found: Self =
            serde_json::from_slice(stored).map_err(|why| other(format!("that cannot be read ({why})")))?;
        if found.format > self.format || found.hash != self.hash {
            return Err(other(format!("{} with {}", found.format, found.hash)));
        }
        if found.shards != self.shards {
            return Err(LayoutError::OtherShards {
                stored: found.shards,
                given: self.shards,
            });
        }
        Ok(found.format == self.format)
    }

    /// Returns the hash of a record's entity, after checking that the record names the shard of that hash.
    ///
    /// # Errors
    /// [`LayoutError`]: it names another shard. The error tells the number of shards it was written with, if the commit shows it.
    pub fn check_record(&self, record: &Record<'_>, commit: &Commit) -> Result<u64, LayoutError> {
        let hash = limits::hash(record.kind, record.id);
        let expected = limits::shard_of(hash, self.shards);
        if expected == record.shard {
            return Ok(hash);
        }
        Err(match shards_of(commit) {
            Some(stored) => LayoutError::OtherShards {
                stored,
                given: self.shards,
            },
            None => LayoutError::Misplaced {
                address: Address::new(record.kind, record.id),
                found: record.shard,
                expected,
                given: self.shards,
            },
        })
    }
}

/// True if a record belongs to an entity, and so to the entity's shard. Records of the journal, of a whole shard, or of removed entities do
/// not.
fn is_of_an_entity(record: &Record<'_>) -> bool {
    use throng_journal::RecordKind::{Loss, Numbers, Removed};
    !matches!(record.record, Loss | Numbers | Removed)
}

/// Returns the number of shards a commit was written with, if only one number fits all its records.
fn shards_of(commit: &Commit) -> Option<u16> {
    let placed: Vec<(u64, ShardId)> = commit
        .records()
        .flatten()
        .filter(|record| is_of_an_entity(record))
        .map(|record| (limits::hash(record.kind, record.id), record.shard))
        .collect();
    let fits = |shards: &u16| {
        placed
            .iter()
            .all(|(hash, shard)| limits::shard_of(*hash, *shards) == *shard)
    };
    let mut fitting = (1..=u16::MAX).filter(fits);
    fitting.next().filter(|_| fitting.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use throng_journal::{CommitBuilder, CommitNo, RecordKind, Stamp, WriterId};

    fn layout(shards: u16) -> Layout {
        let mut registry = Registry::default();
        registry.set_shards(shards);
        Layout::of(&registry)
    }

    fn commit_of(entities: u32, shards: u16) -> Commit {
        let mut open = CommitBuilder::default();
        for id in 0..entities {
            let address = Address::new("account", id.to_string());
            let shard = limits::shard_of(limits::hash("account", &address.id), shards);
            open.push(RecordKind::Event, shard, &address, 1, "Opened", 1, b"{}");
        }
        open.finish(Stamp {
            writer: WriterId(1),
            number: CommitNo(1),
            synced: CommitNo(0),
            at_micros: 0,
        })
    }

    fn check(layout: &Layout, commit: &Commit) -> Result<(), LayoutError> {
        commit
            .records()
            .map(Result::unwrap)
            .try_for_each(|record| layout.check_record(&record, commit).map(drop))
    }

    #[test]
    fn a_row_of_another_layout_names_both_values() {
        let stored = layout(64).encode();
        assert_eq!(layout(64).check(&stored), Ok(true));
        let older = br#"{"format":1,"hash":"xxh3-64","shards":64}"#;
        assert_eq!(layout(64).check(older), Ok(false));
        let error = layout(48).check(&stored).unwrap_err();
        assert_eq!(error, LayoutError::OtherShards { stored: 64, given: 48 });
        let text = error.to_string();
        assert!(text.contains("64") && text.contains("48"), "{text}");
        for other in [
            &b"not json"[..],
            br#"{"format":3,"hash":"xxh3-64","shards":64}"#,
            br#"{"format":1,"hash":"siphash","shards":64}"#,
        ] {
            let error = layout(64).check(other).unwrap_err();
            assert!(matches!(error, LayoutError::OtherFormat { .. }), "{error}");
        }
    }

    #[test]
    fn records_of_another_shard_count_are_noticed_without_the_row() {
        for written in [1, 48, 256] {
            assert_eq!(check(&layout(written), &commit_of(20, written)), Ok(()));
        }
        assert_eq!(
            check(&layout(48), &commit_of(20, 64)),
            Err(LayoutError::OtherShards { stored: 64, given: 48 })
        );
        assert_eq!(
            check(&layout(64), &commit_of(20, 48)),
            Err(LayoutError::OtherShards { stored: 48, given: 64 })
        );
        let error = check(&layout(1), &commit_of(1, 64)).unwrap_err();
        assert!(
            matches!(error, LayoutError::Misplaced { given: 1, .. }),
            "one record leaves several numbers possible: {error}"
        );
    }
}
