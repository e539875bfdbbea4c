//! Folds the events of a batch of commits into the rows of a read model, without I/O: rows that are not in the cache are named,
//! to be fetched.

use super::{
    EventOffset, Projection, Seen,
    rows::{Outcome, RowCache, Rows},
};
use crate::model::{Entity, Timestamp};
use std::panic::{AssertUnwindSafe, catch_unwind};
use throng_core::shard::decode_event;
use throng_journal::{Commit, RecordKind};

/// An event that stops a projection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Poison {
    /// The index of its commit in the batch: nothing of that commit counts.
    pub(super) commit: usize,
    /// Which event, and why.
    pub(super) reason: String,
}

/// The events of a kind in a batch of commits, each with its commit's index, up to the first that cannot be read.
pub(super) struct Decoded<E: Entity> {
    pub(super) events: Vec<(usize, Seen<E>)>,
    pub(super) poison: Option<Poison>,
}

pub(super) fn decode<E: Entity>(commits: &[Commit]) -> Decoded<E> {
    let mut events = Vec::new();
    for (at, commit) in commits.iter().enumerate() {
        let stamp = commit.stamp();
        for (record, offset) in commit.records().zip(0_u32..) {
            let offset = EventOffset {
                position: stamp.position(),
                record: offset,
            };
            let read = match record {
                Err(damage) => Err(format!("a record of commit {}: {damage}", offset.position)),
                Ok(record) if record.record != RecordKind::Event || record.kind != E::KIND => continue,
                Ok(record) => guarded(|| {
                    let id = record.id.parse::<E::Id>().map_err(|why| format!("its id: {why}"))?;
                    let event = decode_event::<E>(record.name, record.version, record.body)?;
                    Ok(Seen {
                        id,
                        seq: record.seq,
                        offset,
                        at: Timestamp {
                            micros: stamp.at_micros,
                        },
                        event,
                    })
                })
                .map_err(|why| {
                    let (kind, id, seq, name) = (record.kind, record.id, record.seq, record.name);
                    format!("event {seq} of {kind}/{id} ({name:?}, at {offset}) cannot be read: {why}")
                }),
            };
            match read {
                Ok(seen) => events.push((at, seen)),
                Err(reason) => {
                    events.retain(|(commit, _)| *commit < at);
                    let poison = Some(Poison { commit: at, reason });
                    return Decoded { events, poison };
                }
            }
        }
    }
    Decoded { events, poison: None }
}

fn guarded<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Err(format!(
            "it panicked: {}",
            text.as_deref().unwrap_or("without a message")
        ))
    })
}

/// How far a fold has come.
pub(super) enum Step {
    /// All events are applied.
    Done,
    /// These rows have to be fetched first, then it goes on.
    Missing(Vec<Vec<u8>>),
    /// An event cannot be applied.
    Poison(Poison),
}

/// Applies the events from index `next` on, and leaves in it where to go on.
pub(super) fn fold<P: Projection>(
    projection: &P,
    events: &[(usize, Seen<P::Of>)],
    next: &mut usize,
    cache: &mut RowCache,
) -> Step {
    while let Some((commit, seen)) = events.get(*next) {
        match apply(projection, seen, cache) {
            Outcome::Changes(changes) => cache.apply(changes),
            Outcome::Missing(mut missing) => {
                // What the others will ask for is fetched with it; what they would do is done when it is their turn.
                for (_, later) in &events[*next + 1..] {
                    if let Outcome::Missing(more) = apply(projection, later, cache) {
                        missing.extend(more);
                    }
                }
                missing.sort_unstable();
                missing.dedup();
                return Step::Missing(missing);
            }
            Outcome::Poison(why) => {
                let Seen { id, seq, offset, .. } = seen;
                let kind = P::Of::KIND;
                let reason = format!("event {seq} of {kind}/{id} (at {offset}) cannot be applied: {why}");
                return Step::Poison(Poison {
                    commit: *commit,
                    reason,
                });
            }
        }
        *next += 1;
    }
    Step::Done
}

fn apply<P: Projection>(projection: &P, seen: &Seen<P::Of>, cache: &RowCache) -> Outcome {
    let mut rows = Rows::new(cache);
    match guarded(|| Ok(projection.apply(seen, &mut rows))) {
        Ok(applied) => rows.finish(applied),
        Err(panic) => Outcome::Poison(panic),
    }
}
