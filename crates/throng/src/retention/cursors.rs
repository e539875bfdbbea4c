//! The positions that retention passes over an epoch's shards have reached.

use super::Retention;
use crate::epoch::{
    Epoch,
    removals::{Positions, ROW, Row, raise, read_rows},
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use throng_journal::{Address, Error, Position, ShardId};

/// The progress of the passes over the shards of one epoch.
pub(super) struct Cursors {
    /// The position up to which each kind's history was examined, in all of these shards.
    pub(super) kinds: HashMap<Box<str>, Position>,
    /// The time of the last pass over the whole journal, microseconds since 1970-01-01 UTC.
    pub(super) looked_at_all: i64,
    rows: BTreeMap<ShardId, Row>,
    /// The row as an engine that is alone writes it.
    shared: Row,
    is_of_cluster: bool,
}

/// Returns the positions and the time that hold for every one of these shards: the earliest of each.
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
    pub(super) async fn read(of: &Retention, epoch: &Epoch) -> Result<Self, Error> {
        let mut all = read_rows(of.context(), Some(epoch)).await?;
        let shared = all.remove(&None).unwrap_or_default();
        let of_shard = |shard| {
            let mut row = all.remove(&Some(shard)).unwrap_or_default();
            row.join(&shared);
            (shard, row)
        };
        let rows: BTreeMap<ShardId, Row> = epoch.group_commit.shards.iter().map(of_shard).collect();
        let (kinds, looked_at_all) = of_all(&rows);
        Ok(Self {
            kinds,
            looked_at_all,
            rows,
            shared,
            is_of_cluster: of.context().peers.is_some(),
        })
    }

    /// Has the next checkpoint record which entities lose events, and where the last of those is. No event is removed before that is
    /// durable.
    ///
    /// For each shard it is a position in a stream of that shard: a follower that has got that event has got all earlier ones of the shard.
    pub(super) fn announce<'a>(&mut self, epoch: &Epoch, going: impl Iterator<Item = (&'a Address, Position)>) {
        if !self.is_of_cluster {
            going.for_each(|(address, last)| raise(&mut self.shared.removed, &address.kind, last));
            return epoch.due().rows.push((ROW.to_vec(), self.shared.write_of_all()));
        }
        let mut changed = BTreeSet::new();
        for (address, last) in going {
            let (shard, _) = epoch.shard_of(address);
            if let Some(row) = self.rows.get_mut(&shard) {
                raise(&mut row.removed, &address.kind, last);
                changed.insert(shard);
            }
        }
        self.write(epoch, |shard| changed.contains(&shard));
    }

    /// Has the next checkpoint record the progress of the passes.
    pub(super) fn store(mut self, epoch: &Epoch, kinds: &HashMap<Box<str>, Position>, looked_at_all: i64) {
        if !self.is_of_cluster {
            self.shared.looked = kinds.iter().map(|(kind, at)| (kind.clone(), *at)).collect();
            self.shared.looked_at_all = looked_at_all;
            return epoch.due().rows.push((ROW.to_vec(), self.shared.write_of_all()));
        }
        for row in self.rows.values_mut() {
            kinds.iter().for_each(|(kind, at)| raise(&mut row.looked, kind, *at));
            row.looked_at_all = row.looked_at_all.max(looked_at_all);
        }
        self.write(epoch, |_| true);
    }

    fn write(&self, epoch: &Epoch, is_changed: impl Fn(ShardId) -> bool) {
        let rows = self.rows.iter().filter(|(shard, _)| is_changed(**shard));
        let rows = rows.map(|(shard, row)| ([ROW, &shard.0.to_be_bytes()].concat(), row.write()));
        epoch.due().rows.extend(rows);
    }
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
    fn shards_of_several_owners_begin_at_the_first_whole_pass() {
        let rows = BTreeMap::from([
            (ShardId(3), row(&[("account", "4.7"), ("diary", "2.1")], 90)),
            (ShardId(5), row(&[("account", "5.1")], 70)),
        ]);
        let (kinds, looked_at_all) = of_all(&rows);
        assert_eq!(kinds, HashMap::from([("account".into(), "4.7".parse().unwrap())]));
        assert_eq!(looked_at_all, 70);
    }
}
