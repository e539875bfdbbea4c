//! Rows that say how far passes over history have come, and up to where history may be gone.
//!
//! An engine that is alone writes one row of all shards. A node of a cluster writes one of each shard it owns, since the next owner of a shard may
//! own others; of both the greater position counts, so that either may follow the other. An engine says what is about to go before it goes: whoever
//! begins after a crash, or follows at another node, reads it in the store. Where the store is lost, the log still says what went.

use super::{Epoch, Epochs, streams};
use crate::context::Context;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use throng_core::model::Keep;
use throng_journal::{Commit, CommitNo, Error, Position, RecordKind, ShardId, WriterId};

/// The row of all shards; followed by a shard's number, of that one.
pub(crate) const ROW: &[u8] = b"r";
/// The name under which stands when all of the journal was looked at last, where kinds have their positions.
const LOOKED_AT_ALL: &str = "";
/// No kind's name begins with this. It stands before the kinds in the row of all shards up to where their events may be gone, and alone in
/// each row that says so.
const REMOVED: char = '!';

pub(crate) type Positions = BTreeMap<Box<str>, Position>;

/// The progress of the removal of history in a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    /// Up to where each kind's history was looked at, and what was over removed.
    pub(crate) looked: Positions,
    /// Up to where each kind's events may be gone.
    pub(crate) removed: Positions,
    /// When all of the journal was looked at, microseconds since 1970-01-01 UTC.
    pub(crate) looked_at_all: i64,
}

/// A shard's row as it is written.
#[derive(Serialize, Deserialize)]
struct Written {
    looked: BTreeMap<Box<str>, String>,
    removed: BTreeMap<Box<str>, String>,
    looked_at_all: i64,
}

fn texts(positions: &Positions) -> BTreeMap<Box<str>, String> {
    let texts = positions.iter();
    texts.map(|(kind, at)| (kind.clone(), at.to_string())).collect()
}

fn positions(texts: BTreeMap<Box<str>, String>) -> Positions {
    let read = texts.into_iter();
    read.filter_map(|(kind, text)| Some((kind, text.parse().ok()?)))
        .collect()
}

pub(crate) fn raise(positions: &mut Positions, kind: &str, to: Position) {
    let at = positions.entry(kind.into()).or_default();
    *at = to.max(*at);
}

impl Row {
    /// Reads the row of an engine that is alone. An older one did not say what is gone: it may be all that it has looked at.
    fn read_of_all(value: &[u8]) -> Self {
        let mut texts: BTreeMap<Box<str>, String> = serde_json::from_slice(value).unwrap_or_default();
        let looked_at_all = texts.remove(LOOKED_AT_ALL).and_then(|micros| micros.parse().ok());
        let (removed, looked): (BTreeMap<_, _>, _) = texts.into_iter().partition(|(name, _)| name.starts_with(REMOVED));
        let looked = positions(looked);
        let is_said = removed.keys().any(|name| name.len() == REMOVED.len_utf8());
        let removed = removed
            .into_iter()
            .map(|(name, at)| (name[REMOVED.len_utf8()..].into(), at));
        Self {
            removed: if is_said {
                positions(removed.collect())
            } else {
                looked.clone()
            },
            looked,
            looked_at_all: looked_at_all.unwrap_or_default(),
        }
    }

    pub(crate) fn write_of_all(&self) -> Option<Vec<u8>> {
        let mut all = texts(&self.looked);
        let removed = texts(&self.removed).into_iter();
        all.extend(removed.map(|(kind, at)| (format!("{REMOVED}{kind}").into(), at)));
        all.insert(String::from(REMOVED).into(), String::new());
        all.insert(LOOKED_AT_ALL.into(), self.looked_at_all.to_string());
        serde_json::to_vec(&all).ok()
    }

    fn read(value: &[u8]) -> Self {
        serde_json::from_slice(value).map_or_else(
            |_| Self::default(),
            |written: Written| Self {
                looked: positions(written.looked),
                removed: positions(written.removed),
                looked_at_all: written.looked_at_all,
            },
        )
    }

    pub(crate) fn write(&self) -> Option<Vec<u8>> {
        let written = Written {
            looked: texts(&self.looked),
            removed: texts(&self.removed),
            looked_at_all: self.looked_at_all,
        };
        serde_json::to_vec(&written).ok()
    }

    /// Joins another row: of each entry the later one counts.
    pub(crate) fn join(&mut self, other: &Self) {
        other
            .looked
            .iter()
            .for_each(|(kind, at)| raise(&mut self.looked, kind, *at));
        other
            .removed
            .iter()
            .for_each(|(kind, at)| raise(&mut self.removed, kind, *at));
        self.looked_at_all = self.looked_at_all.max(other.looked_at_all);
    }
}

/// The rows of all shards together (`None`), and of each.
pub(crate) type Rows = BTreeMap<Option<ShardId>, Row>;

fn read_row(row: &[u8], value: &[u8]) -> Option<(Option<ShardId>, Row)> {
    match row.strip_prefix(ROW)? {
        [] => Some((None, Row::read_of_all(value))),
        shard => {
            let shard = u16::from_be_bytes(shard.try_into().ok()?);
            Some((Some(ShardId(shard)), Row::read(value)))
        }
    }
}

/// Reads the rows that the store has, and those that the next checkpoint of this epoch brings.
pub(crate) async fn read_rows(context: &Context, epoch: Option<&Epoch>) -> Result<Rows, Error> {
    let mut rows = Rows::new();
    let mut visit = |row: &[u8], value: &[u8]| rows.extend(read_row(row, value));
    context.store.system_scan(ROW, &[], usize::MAX, &mut visit).await?;
    if let Some(epoch) = epoch {
        let due = epoch.due();
        let due = due.rows.iter();
        rows.extend(due.filter_map(|(row, value)| read_row(row, value.as_deref()?)));
    }
    Ok(rows)
}

/// Up to where the history of a kind is not whole any more, of whichever shards; nothing, where none of it was removed.
pub(crate) async fn removed_upto(epochs: &Epochs, kind: &str) -> Result<Vec<Position>, Error> {
    let epoch = epochs.running();
    let rows = read_rows(&epochs.context, epoch.as_deref()).await?;
    let found = rows.values().filter_map(|row| row.removed.get(kind).copied());
    // Before its first commit a stream has nothing to remove: what is meant is the end of those before it.
    let (begun, mut found): (BTreeSet<_>, BTreeSet<_>) = found.partition(|upto| upto.commit == CommitNo(0));
    if begun.iter().any(|upto| upto.writer > WriterId(0)) {
        let streams = streams(&epochs.context, epoch.as_deref(), WriterId(0)).await?;
        let ends = streams
            .iter()
            .filter(|stream| stream.last > CommitNo(0))
            .map(|stream| Position::new(stream.writer, stream.last));
        let ends: Vec<Position> = ends.collect();
        found.extend(
            begun
                .iter()
                .filter_map(|upto| ends.iter().rfind(|end| **end < *upto).copied()),
        );
    }
    Ok(found.into_iter().collect())
}

/// Removed history as a log tells it, read from its first commit on.
#[derive(Default)]
pub(crate) struct Removals {
    /// The last commit from which something was taken.
    last: Option<Position>,
    removed: Positions,
}

impl Removals {
    /// Reads the next commit. A record of what an entity is, or that it has ended, stands behind what was taken of it, or with the last of that.
    pub(crate) fn read(&mut self, commit: &Commit, keeps: &HashMap<Box<str>, Keep>) {
        if commit.removal().is_some() {
            self.last = Some(commit.position());
        }
        for record in commit.records().flatten() {
            let stands_in = match record.record {
                RecordKind::State => true,
                RecordKind::Ended => keeps.contains_key(record.kind),
                _ => false,
            };
            if let Some(last) = self.last.filter(|_| stands_in) {
                raise(&mut self.removed, record.kind, last);
            }
        }
    }

    /// The row of an engine whose store is lost, if anything was removed.
    pub(crate) fn row(self) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        let row = Row {
            removed: self.removed,
            ..Row::default()
        };
        (!row.removed.is_empty()).then(|| (ROW.to_vec(), row.write_of_all()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use throng_journal::{Address, CommitBuilder, Record, Rest, Stamp};

    fn row(looked: &[(&str, &str)], looked_at_all: i64) -> Row {
        let looked: Positions = looked
            .iter()
            .map(|(kind, at)| ((*kind).into(), at.parse().unwrap()))
            .collect();
        Row {
            removed: looked.clone(),
            looked,
            looked_at_all,
        }
    }

    #[test]
    fn removals_of_one_engine_and_of_nodes_go_together() {
        let written = row(&[("account", "9.2")], 50).write_of_all().unwrap();
        let (of, shared) = read_row(ROW, &written).unwrap();
        assert_eq!((of, &shared), (None, &row(&[("account", "9.2")], 50)));
        let own = row(&[("account", "4.7"), ("diary", "2.1")], 90);
        let name = [ROW, &7u16.to_be_bytes()].concat();
        let (of, mut read) = read_row(&name, &own.write().unwrap()).unwrap();
        assert_eq!((of, &read), (Some(ShardId(7)), &own));
        read.join(&shared);
        assert_eq!(read, row(&[("account", "9.2"), ("diary", "2.1")], 90));
        assert!(read_row(b"r1", b"").is_none(), "no row of a shard has one byte more");
    }

    #[test]
    fn end_in_a_commit_with_removed_events_is_told() {
        let keeps = HashMap::from([("diary".into(), Keep::Events(3))]);
        let of_commit = |number, left: &[RecordKind]| {
            let mut open = CommitBuilder::default();
            let own = Address::new("diary", "a");
            let mut push = |record| open.push(record, ShardId(0), &own, 1, "", 0, b"");
            left.iter().for_each(|record| push(*record));
            open.finish(Stamp::new(WriterId(1), CommitNo(number), 0))
        };
        let is_event = |record: &Record<'_>| record.record == RecordKind::Event;
        let mut removals = Removals::default();
        removals.read(&of_commit(1, &[RecordKind::Ended]), &keeps);
        assert!(removals.removed.is_empty(), "nothing was taken");
        let whole = of_commit(2, &[RecordKind::Event, RecordKind::Ended]);
        let Rest::Part(left) = whole.without(Position::default(), is_event) else {
            panic!("the end stays")
        };
        removals.read(&left, &keeps);
        assert_eq!(removals.removed, Positions::from([("diary".into(), whole.position())]));
    }

    #[test]
    fn row_of_all_shards_tells_removed_from_examined_history() {
        let looked_at = row(&[("account", "9.2")], 50);
        for removed in [
            Positions::new(),
            Positions::from([("account".into(), "4.1".parse().unwrap())]),
        ] {
            let row = Row {
                removed,
                ..looked_at.clone()
            };
            assert_eq!(Row::read_of_all(&row.write_of_all().unwrap()), row);
        }
        assert_eq!(
            Row::read_of_all(br#"{"":"50","account":"9.2"}"#),
            looked_at,
            "of an older program"
        );
    }
}
