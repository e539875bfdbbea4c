//! The search for expired history: up to which position, and of which entities.

use super::Retention;
use crate::epoch::{Ends, Epoch};
use std::collections::{BTreeMap, HashMap};
use throng_core::{model::Keep, shard::ended_by_state};
use throng_journal::{Address, Commit, Error, Position, RecordKind, ShardSet};

/// Bytes of commits read at a time.
const READ_BYTES: usize = 4 << 20;
/// The most entities of one pass. The next one continues at once.
const ENTITIES_MAX: usize = 20_000;

/// The expired records of one entity.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Noted {
    /// The first of its expired events; 0: none.
    pub(super) first: u64,
    /// The last of its events that are over.
    pub(super) seq: u64,
    /// The event with which the entity ended, long enough ago; 0: none.
    pub(super) ended: u64,
    /// The place of the last record that is over.
    pub(super) at: Position,
}

/// The result of a search.
#[derive(Default)]
pub(super) struct Scan {
    /// The places up to which each kind's records are looked at.
    pub(super) horizons: HashMap<Box<str>, Position>,
    /// The entities with expired records, in order, so that their states are always written in the same order.
    pub(super) noted: BTreeMap<Address, Noted>,
    /// True if there is more.
    pub(super) is_cut_short: bool,
    /// The time of the last examined commit, microseconds since 1970-01-01 UTC.
    pub(super) at_micros: i64,
}

/// Reads what the last pass has not, up to a position.
pub(super) async fn scan(
    retention: &Retention,
    epoch: &Epoch,
    cursors: &HashMap<Box<str>, Position>,
    limit: Position,
) -> Result<Scan, Error> {
    let keeps = retention.context().keeps();
    let now = retention.context().host.now().micros;
    let mut scan = Scan::default();
    // The kinds whose history is still being examined, and the time since when it is kept.
    let mut open: HashMap<Box<str>, Option<i64>> = HashMap::new();
    for (kind, keep) in &keeps {
        let since = match keep {
            Keep::Age(age) => Some(now.saturating_sub(i64::try_from(age.as_micros()).unwrap_or(i64::MAX))),
            Keep::Events(_) | Keep::Forever => None,
        };
        open.insert(kind.clone(), since);
        let cursor = cursors.get(kind).copied().unwrap_or_default();
        scan.horizons.insert(kind.clone(), cursor);
    }
    let start = Ends::of(epoch).start();
    let begin = keeps
        .keys()
        .map(|kind| cursors.get(kind).copied().unwrap_or(start))
        .min();
    let mut at = begin.unwrap_or(start).max(start);
    while !open.is_empty() {
        let Some(stretch) = Ends::of(epoch).after(at) else {
            break;
        };
        let commits = stretch.read(&*retention.context().journal, READ_BYTES).await?;
        for commit in &commits {
            at = commit.position();
            if at > limit {
                return Ok(scan);
            }
            let made = commit.stamp().at_micros;
            open.retain(|_, since| since.is_none_or(|since| made < since));
            if open.is_empty() {
                break;
            }
            scan.note(commit, &open, (cursors, &epoch.group_commit.shards));
            for kind in open.keys() {
                let horizon = scan.horizons.entry(kind.clone()).or_default();
                *horizon = at.max(*horizon);
            }
            scan.at_micros = made;
            if scan.noted.len() >= ENTITIES_MAX {
                scan.is_cut_short = true;
                return Ok(scan);
            }
        }
        // Requests have the processor in between.
        retention.context().host.sleep(std::time::Duration::ZERO).await;
    }
    Ok(scan)
}

impl Scan {
    fn note(
        &mut self,
        commit: &Commit,
        open: &HashMap<Box<str>, Option<i64>>,
        (cursors, shards): (&HashMap<Box<str>, Position>, &ShardSet),
    ) {
        let at = commit.position();
        for record in commit.records().flatten() {
            // A stream that has ended may hold records of another node's shards.
            if !shards.contains(record.shard) {
                continue;
            }
            let is_new = || cursors.get(record.kind).is_none_or(|cursor| at > *cursor);
            let ended = match record.record {
                RecordKind::Event => 0,
                RecordKind::Ended => record.seq,
                // Such a state may have kept the entity's end from expiring.
                RecordKind::State if ended_by_state(record.body) == record.seq => record.seq,
                _ => continue,
            };
            if !open.contains_key(record.kind) || !is_new() {
                continue;
            }
            let noted = self.noted.entry(Address::new(record.kind, record.id)).or_default();
            noted.at = at;
            if ended > 0 {
                noted.ended = noted.ended.max(ended);
                continue;
            }
            noted.seq = noted.seq.max(record.seq);
            noted.first = match noted.first {
                0 => record.seq,
                first => first.min(record.seq),
            };
        }
    }
}
