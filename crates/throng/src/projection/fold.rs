//! Applies the events of a batch of commits to the rows of a read model, without I/O. Rows that are not in the cache are reported,
//! to be fetched.

use super::{
    DurableEvent, EventOffset, Projection,
    rows::{Outcome, RowCache, Rows},
};
use crate::model::{Entity, Timestamp};
use std::panic::{AssertUnwindSafe, catch_unwind};
use throng_core::shard::decode_event;
use throng_journal::{Commit, RecordKind};

/// An event that stops a projection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Poison {
    /// The index of its commit in the batch. No part of that commit counts.
    pub(super) commit: usize,
    /// The event, as text, and why it cannot be read or applied.
    pub(super) reason: String,
    /// The event's offset; `None` if its record is damaged, so that the rest of the commit cannot be read.
    pub(super) event: Option<EventOffset>,
}

/// A kind's events in a batch of commits, without those to be skipped, each with its commit's index, up to the first that cannot be read.
pub(super) struct Decoded<E: Entity> {
    pub(super) events: Vec<(usize, DurableEvent<E>)>,
    pub(super) poison: Option<Poison>,
}

pub(super) fn decode<E: Entity>(commits: &[Commit], skipped: &[EventOffset]) -> Decoded<E> {
    let mut events = Vec::new();
    for (at, commit) in commits.iter().enumerate() {
        let stamp = commit.stamp();
        for (record, offset) in commit.records().zip(0_u32..) {
            let offset = EventOffset {
                position: stamp.position(),
                record: offset,
            };
            let read = match record {
                // After a damaged record the rest of the commit is unknown.
                Err(damage) => Err((format!("a record of commit {}: {damage}", offset.position), None)),
                Ok(record) if record.record != RecordKind::Event || record.kind != E::KIND => continue,
                Ok(_) if skipped.contains(&offset) => continue,
                Ok(record) => guarded(|| {
                    let id = record.id.parse::<E::Id>().map_err(|why| format!("its id: {why}"))?;
                    let event = decode_event::<E>(record.name, record.version, record.body)?;
                    Ok(DurableEvent {
                        id,
                        seq: record.seq,
                        offset,
                        at: Timestamp {
                            micros: stamp.at_micros,
                        },
                        event,
                        trace: None,
                    })
                })
                .map_err(|why| {
                    let (kind, id, seq, name) = (record.kind, record.id, record.seq, record.name);
                    let reason = format!("event {seq} of {kind}/{id} ({name:?}, at {offset}) cannot be read: {why}");
                    (reason, Some(offset))
                }),
            };
            match read {
                Ok(seen) => events.push((at, seen)),
                Err((reason, event)) => {
                    events.retain(|(commit, _)| *commit < at);
                    let poison = Some(Poison {
                        commit: at,
                        reason,
                        event,
                    });
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

/// The result of a fold.
pub(super) enum FoldResult {
    /// All events are applied.
    Done,
    /// These rows have to be fetched before the fold can continue.
    Missing(Vec<Vec<u8>>),
    /// An event cannot be applied.
    Poison(Poison),
}

/// Applies the events from index `next` on, and sets `next` to where to continue.
pub(super) fn fold<P: Projection>(
    projection: &P,
    events: &[(usize, DurableEvent<P::Of>)],
    next: &mut usize,
    cache: &mut RowCache,
) -> FoldResult {
    while let Some((commit, seen)) = events.get(*next) {
        match apply(projection, seen, cache) {
            Outcome::Changes(changes) => cache.apply(changes),
            Outcome::Missing(mut missing) => {
                // The first rows that later events will ask for are fetched together with this one. To find them, these events are tried
                // without any rows, because the present rows are not those that they will see.
                let nothing = RowCache::default();
                for (_, later) in &events[*next + 1..] {
                    if let Outcome::Missing(more) = apply(projection, later, &nothing) {
                        missing.extend(more);
                    }
                }
                for (_, seen) in &events[*next..] {
                    missing.extend(projection.reads(seen));
                }
                missing.retain(|key| !cache.has(key));
                missing.sort_unstable();
                missing.dedup();
                return FoldResult::Missing(missing);
            }
            Outcome::Poison(why) => {
                let DurableEvent { id, seq, offset, .. } = seen;
                let kind = P::Of::KIND;
                let reason = format!("event {seq} of {kind}/{id} (at {offset}) cannot be applied: {why}");
                return FoldResult::Poison(Poison {
                    commit: *commit,
                    reason,
                    event: Some(*offset),
                });
            }
        }
        *next += 1;
    }
    FoldResult::Done
}

fn apply<P: Projection>(projection: &P, seen: &DurableEvent<P::Of>, cache: &RowCache) -> Outcome {
    let mut rows = Rows::new(cache);
    match guarded(|| Ok(projection.apply(seen, &mut rows))) {
        Ok(applied) => rows.finish(applied),
        Err(panic) => Outcome::Poison(panic),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::{CommandAnswer, Event, Rejection, Turn},
        projection::Interrupt,
    };
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};
    use throng_journal::{CommitNo, Position, WriterId};

    #[derive(Default, Serialize, Deserialize)]
    struct Purse;
    #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
    enum Coins {
        In(u32),
        Out(u32),
    }
    impl Event for Coins {}
    #[derive(Debug, Serialize, Deserialize, JsonSchema, thiserror::Error)]
    #[error("never")]
    struct Never;
    impl Rejection for Never {
        fn code(&self) -> &'static str {
            "never"
        }
    }
    impl Entity for Purse {
        const KIND: &'static str = "purse";
        type Id = String;
        type Command = Coins;
        type Event = Coins;
        type Reply = ();
        type Rejection = Never;
        fn decide(&self, command: Coins, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
            turn.emit(command);
            Ok(CommandAnswer::Now(()))
        }
        fn evolve(&mut self, _: &Coins) {}
    }

    /// The coins in each purse, and in all of them. Never negative.
    struct Balances;
    impl Projection for Balances {
        const NAME: &'static str = "balances";
        type Of = Purse;
        fn apply(&self, seen: &DurableEvent<Purse>, rows: &mut Rows<'_>) -> Result<(), Interrupt> {
            for key in [seen.id.as_str(), "~all"] {
                let before: u32 = rows.json(key)?.unwrap_or(0);
                let after = match seen.event {
                    Coins::In(coins) => before + coins,
                    Coins::Out(coins) => before.checked_sub(coins).expect("nobody takes out what is not there"),
                };
                rows.put_json(key, &after)?;
            }
            Ok(())
        }
        fn reads(&self, seen: &DurableEvent<Purse>) -> Vec<Vec<u8>> {
            vec![seen.id.clone().into_bytes(), b"~all".to_vec()]
        }
    }

    fn seen(id: &str, seq: u64, event: Coins) -> (usize, DurableEvent<Purse>) {
        let position = Position::new(WriterId(1), CommitNo(1));
        let seen = DurableEvent {
            id: id.into(),
            seq,
            offset: EventOffset { position, record: 0 },
            at: Timestamp::default(),
            event,
            trace: None,
        };
        (0, seen)
    }

    #[test]
    fn event_waits_for_earlier_changes_of_its_rows() {
        let mut cache = RowCache::default();
        cache.fetched(b"a".to_vec(), Some(b"0".to_vec()));
        // The last event is possible only after the one before it.
        let events = [
            seen("b", 1, Coins::In(1)),
            seen("a", 1, Coins::In(5)),
            seen("a", 2, Coins::Out(5)),
        ];
        let hook = std::panic::take_hook();
        let panics = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let (count, own) = (panics.clone(), std::thread::current().id());
        std::panic::set_hook(Box::new(move |panic| {
            if std::thread::current().id() == own {
                count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            } else {
                hook(panic);
            }
        }));
        let mut next = 0;
        let FoldResult::Missing(missing) = fold(&Balances, &events, &mut next, &mut cache) else {
            panic!("the row of b is not there")
        };
        assert_eq!(missing, [b"b".to_vec(), b"~all".to_vec()], "all at once");
        missing.into_iter().for_each(|key| cache.fetched(key, None));
        assert!(matches!(
            fold(&Balances, &events, &mut next, &mut cache),
            FoldResult::Done
        ));
        assert_eq!(panics.load(std::sync::atomic::Ordering::SeqCst), 0);
    }
}
