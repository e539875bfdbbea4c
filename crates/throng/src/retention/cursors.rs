//! How far passes have come, and up to where history may be gone.
//!
//! An engine that is alone writes one row of all shards. A node of a cluster writes one of each shard it owns, since the next owner of a shard may
//! own others; of both the greater position counts, so that either may follow the other. A node says what is about to go before it goes: whoever
//! follows at another node, or begins there, reads it in the store.

use super::pass::shard_of;
use crate::{engine::Core, life::Life};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use throng_journal::{Address, CommitNo, Error, Position, ShardId};

/// The row of all shards; followed by a shard's number, of that one.
const ROW: &[u8] = b"r";
/// The name under which stands when all of the journal was looked at last, where kinds have their positions.
const LOOKED_AT_ALL: &str = "";

type Positions = BTreeMap<Box<str>, Position>;

/// What is said of a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Row {
    /// Up to where each kind's history was looked at, and what was over removed.
    looked: Positions,
    /// Up to where each kind's events may be gone.
    removed: Positions,
    /// When all of the journal was looked at, microseconds since 1970-01-01 UTC.
    looked_at_all: i64,
}

/// A shard's row as it is written.
#[derive(Serialize, Deserialize)]
struct Written {
    looked: BTreeMap<Box<str>, String>,
    removed: BTreeMap<Box<str>, String>,
    looked_at_all: i64,
}

/// How far the passes over a life's shards have come.
pub(super) struct Cursors {
    /// Up to where each kind's history was looked at, of all of these shards.
    pub(super) kinds: HashMap<Box<str>, Position>,
    /// When all of the journal was looked at, microseconds since 1970-01-01 UTC.
    pub(super) looked_at_all: i64,
    rows: BTreeMap<ShardId, Row>,
    is_of_cluster: bool,
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

fn raise(positions: &mut Positions, kind: &str, to: Position) {
    let at = positions.entry(kind.into()).or_default();
    *at = to.max(*at);
}

impl Row {
    /// As an engine that is alone writes it. What it has looked at may be gone.
    fn read_of_all(value: &[u8]) -> Self {
        let mut texts: BTreeMap<Box<str>, String> = serde_json::from_slice(value).unwrap_or_default();
        let looked_at_all = texts.remove(LOOKED_AT_ALL).and_then(|micros| micros.parse().ok());
        let looked = positions(texts);
        Self {
            removed: looked.clone(),
            looked,
            looked_at_all: looked_at_all.unwrap_or_default(),
        }
    }

    fn write_of_all(kinds: &HashMap<Box<str>, Position>, looked_at_all: i64) -> Option<Vec<u8>> {
        let mut texts: HashMap<&str, String> = kinds.iter().map(|(kind, at)| (&**kind, at.to_string())).collect();
        texts.insert(LOOKED_AT_ALL, looked_at_all.to_string());
        serde_json::to_vec(&texts).ok()
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

    fn write(&self) -> Option<Vec<u8>> {
        let written = Written {
            looked: texts(&self.looked),
            removed: texts(&self.removed),
            looked_at_all: self.looked_at_all,
        };
        serde_json::to_vec(&written).ok()
    }

    /// What either says.
    fn join(&mut self, other: &Self) {
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
type Rows = BTreeMap<Option<ShardId>, Row>;

fn read_row(row: &[u8], value: &[u8]) -> Option<(Option<ShardId>, Row)> {
    match row.strip_prefix(ROW)? {
        [] => Some((None, Row::read_of_all(value))),
        shard => {
            let shard = u16::from_be_bytes(shard.try_into().ok()?);
            Some((Some(ShardId(shard)), Row::read(value)))
        }
    }
}

/// What the store has, and what its next checkpoint of this life brings.
async fn read_rows(core: &Core, life: Option<&Life>) -> Result<Rows, Error> {
    let mut rows = Rows::new();
    let mut visit = |row: &[u8], value: &[u8]| rows.extend(read_row(row, value));
    core.context.store.system_scan(ROW, &[], usize::MAX, &mut visit).await?;
    if let Some(life) = life {
        let due = life.due();
        let due = due.rows.iter();
        rows.extend(due.filter_map(|(row, value)| read_row(row, value.as_deref()?)));
    }
    Ok(rows)
}

/// What holds of every one of these shards.
fn of_all(rows: &BTreeMap<ShardId, Row>) -> (HashMap<Box<str>, Position>, i64) {
    let mut each = rows.values();
    let mut kinds = each.next().map_or_else(Positions::new, |first| first.looked.clone());
    for row in each {
        kinds.retain(|kind, _| row.looked.contains_key(kind));
        for (kind, at) in &mut kinds {
            *at = row.looked.get(kind).map_or(*at, |other| (*at).min(*other));
        }
    }
    let looked_at_all = rows.values().map(|row| row.looked_at_all).min();
    (kinds.into_iter().collect(), looked_at_all.unwrap_or_default())
}

impl Cursors {
    pub(super) async fn read(core: &Core, life: &Life) -> Result<Self, Error> {
        let mut all = read_rows(core, Some(life)).await?;
        let shared = all.remove(&None).unwrap_or_default();
        let of_shard = |shard| {
            let mut row = all.remove(&Some(shard)).unwrap_or_default();
            row.join(&shared);
            (shard, row)
        };
        let rows: BTreeMap<ShardId, Row> = life.ledger.shards.iter().map(of_shard).collect();
        let (kinds, looked_at_all) = of_all(&rows);
        Ok(Self {
            kinds,
            looked_at_all,
            rows,
            is_of_cluster: core.context.peers.is_some(),
        })
    }

    /// Has the next checkpoint say of which entities events go, and where the last of those stands; nothing goes before that is durable. An engine
    /// that is alone says it afterwards: nobody else could ask meanwhile.
    ///
    /// Of each shard it is a place in a stream of that shard: whoever was told that was told all before it that is of the shard.
    pub(super) fn announce<'a>(&mut self, life: &Life, going: impl Iterator<Item = (&'a Address, Position)>) {
        if !self.is_of_cluster {
            return;
        }
        let mut changed = BTreeSet::new();
        for (address, last) in going {
            let (shard, _) = shard_of(life, address);
            if let Some(row) = self.rows.get_mut(&shard) {
                raise(&mut row.removed, &address.kind, last);
                changed.insert(shard);
            }
        }
        self.write(life, |shard| changed.contains(&shard));
    }

    /// Has the next checkpoint say how far passes have come.
    pub(super) fn store(mut self, life: &Life, kinds: &HashMap<Box<str>, Position>, looked_at_all: i64) {
        if !self.is_of_cluster {
            let row = Row::write_of_all(kinds, looked_at_all);
            return life.due().rows.push((ROW.to_vec(), row));
        }
        for row in self.rows.values_mut() {
            kinds.iter().for_each(|(kind, at)| raise(&mut row.looked, kind, *at));
            row.looked_at_all = row.looked_at_all.max(looked_at_all);
        }
        self.write(life, |_| true);
    }

    fn write(&self, life: &Life, is_changed: impl Fn(ShardId) -> bool) {
        let rows = self.rows.iter().filter(|(shard, _)| is_changed(**shard));
        let rows = rows.map(|(shard, row)| ([ROW, &shard.0.to_be_bytes()].concat(), row.write()));
        life.due().rows.extend(rows);
    }
}

/// Up to where the history of a kind is not whole any more, of whichever shards; nothing, where none of it was removed.
pub(crate) async fn removed_upto(core: &Core, kind: &str) -> Result<Vec<Position>, Error> {
    let life = core.lives.running();
    let rows = read_rows(core, life.as_deref()).await?;
    let found = rows.values().filter_map(|row| row.removed.get(kind).copied());
    let found: BTreeSet<Position> = found.filter(|upto| upto.commit > CommitNo(0)).collect();
    Ok(found.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn shards_of_several_owners_are_looked_at_from_where_the_first_pass_over_all_of_them_came() {
        let rows = BTreeMap::from([
            (ShardId(3), row(&[("account", "4.7"), ("diary", "2.1")], 90)),
            (ShardId(5), row(&[("account", "5.1")], 70)),
        ]);
        let (kinds, looked_at_all) = of_all(&rows);
        assert_eq!(kinds, HashMap::from([("account".into(), "4.7".parse().unwrap())]));
        assert_eq!(looked_at_all, 70);
    }

    #[test]
    fn what_one_engine_and_what_nodes_have_written_goes_together() {
        let alone = HashMap::from([("account".into(), "9.2".parse().unwrap())]);
        let written = Row::write_of_all(&alone, 50).unwrap();
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
}
