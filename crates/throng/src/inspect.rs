//! Read-only inspection for people: the entities there are, which of them are hot, and the state of each.

pub use crate::executor::Pending;
pub use throng_core::shard::{ChildrenPage, Glance, HotEntity, Inspect, Inspected, Load, TimerView, Whereabouts};

use crate::{
    commit::{unreadable, widen},
    engine::Engine,
    executor::{AnswerSlot, Look, NOTHING, Target, Typed, Work},
};
use std::{any::Any, collections::BTreeMap};
use throng_core::{
    model::Error,
    shard::{JsonRejection, Outcome, Ran, Shard},
};
use throng_journal::{Address, ShardId};

type Answered<T> = Result<T, Error<JsonRejection>>;

/// The number of entities of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Population {
    /// The approximate number of entities that have ever had an event.
    pub known: usize,
    /// The entities whose state is in memory; the others are loaded when they are asked.
    pub resident: usize,
    /// The quarantined entities: those in memory that cannot be loaded, and all that an operator has quarantined.
    pub quarantined: usize,
}

/// The counts and sizes of one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardNow {
    /// Its number, from 0 to one below the engine's shards.
    pub shard: ShardId,
    /// The load that counts against the memory budget.
    pub load: Load,
    /// The number of commands, queries, messages and timers executed since the engine started or recovered.
    pub done: u64,
}

impl Engine {
    /// Returns the number of entities of each kind, in the order of the kinds.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the engine is not ready.
    pub async fn populations(&self) -> Answered<Vec<Population>> {
        let kinds = self.core.context.registry.kinds().len();
        let epoch = self.core.epochs.current()?;
        let mut all = vec![Population::default(); kinds];
        for shard in epoch.executor.shards() {
            let look = epoch.executor.visit(shard, move |shard| {
                let of = |kind| (shard.known(kind), shard.resident(kind));
                (0..kinds).map(of).collect::<Vec<_>>()
            });
            for (all, (known, (resident, quarantined))) in all.iter_mut().zip(look.await.map_err(widen)?) {
                all.known += known;
                all.resident += resident;
                all.quarantined += quarantined;
            }
        }
        Ok(all)
    }

    /// Returns the counts of all shards.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the engine is not ready.
    pub async fn shards(&self) -> Answered<Vec<ShardNow>> {
        let epoch = self.core.epochs.current()?;
        let mut all = Vec::new();
        for shard in epoch.executor.shards() {
            let look = epoch.executor.visit(shard, |shard| ShardNow {
                shard: shard.id(),
                load: shard.load(),
                done: shard.done(),
            });
            all.push(look.await.map_err(widen)?);
        }
        Ok(all)
    }

    /// Returns the entities asked most in the last four to eight seconds, at most `limit`, the hottest first. `seen_per_second` is
    /// [sampled](crate::SAMPLED_ONE_IN).
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the engine is not ready.
    pub async fn hot(&self, limit: usize) -> Answered<Vec<HotEntity>> {
        let epoch = self.core.epochs.current()?;
        let now = self.core.context.host.now();
        let mut all = Vec::new();
        for shard in epoch.executor.shards() {
            let look = epoch.executor.visit(shard, move |shard| shard.hot(now));
            all.extend(look.await.map_err(widen)?);
        }
        all.sort_by(|one, other| other.seen_per_second.total_cmp(&one.seen_per_second));
        all.truncate(limit);
        Ok(all)
    }

    /// Returns what is known of these entities without loading them; `None` for an entity without any information.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the engine is not ready.
    pub async fn glances(&self, of: &[(usize, &str)]) -> Answered<Vec<Option<Glance>>> {
        let epoch = self.core.epochs.current()?;
        let mut by_shard: BTreeMap<ShardId, Vec<(usize, usize, u64, String)>> = BTreeMap::new();
        for (at, (kind, id)) in of.iter().enumerate() {
            let hash = self.core.context.target(*kind, (*id).into())?.hash;
            let asked = (at, *kind, hash, (*id).to_owned());
            by_shard.entry(epoch.executor.shard_of(hash)).or_default().push(asked);
        }
        let mut all = vec![None; of.len()];
        for (shard, asked) in by_shard {
            let look = epoch.executor.visit(shard, move |shard| {
                let found = asked
                    .into_iter()
                    .map(|(at, kind, hash, id)| (at, shard.glance(kind, hash, &id)));
                found.collect::<Vec<_>>()
            });
            for (at, glance) in look.await.map_err(widen)? {
                all[at] = glance;
            }
        }
        Ok(all)
    }

    /// Returns the details of an entity. It is loaded if necessary.
    ///
    /// # Errors
    /// [`Error::Quarantined`]: it cannot be loaded. Otherwise the engine's error.
    pub async fn inspect(&self, kind: usize, id: &str, wanted: Inspect) -> Answered<Inspected> {
        let core = &self.core;
        let look = Box::new(
            move |shard: &mut Shard, _, target: &Target<'_>, answer: &mut AnswerSlot| {
                let Some(found) = shard.inspect(target.kind, (target.hash, &target.id), &wanted) else {
                    return Ran::Load;
                };
                let AnswerSlot::Typed(answer) = answer else {
                    return NOTHING;
                };
                let rests_on = found.as_ref().map_or(0, |found| found.rests_on);
                if let Some(answer) = answer.slot.downcast_mut::<Option<Result<Inspected, String>>>() {
                    *answer = Some(found);
                }
                Ran::Done {
                    rests_on,
                    outcome: Outcome::Done,
                }
            },
        );
        let found: Option<Result<Inspected, String>> = None;
        let answer = Typed {
            slot: Box::new(found),
            // Only its own node has all the details.
            read: |_, _| {},
        };
        let target = core.context.target(kind, id.to_owned().into())?;
        let look = Look {
            look,
            remote: None,
            is_inspection: true,
        };
        let attempt = core
            .context
            .attempt(target, Work::Look(look), AnswerSlot::Typed(answer));
        let executed = core.epochs.run(attempt).await.map_err(widen)?;
        let AnswerSlot::Typed(answer) = executed.settled().await.map_err(widen)? else {
            return Err(Error::OutcomeUnknown);
        };
        let answer: Box<dyn Any> = answer.slot;
        match answer
            .downcast::<Option<Result<Inspected, String>>>()
            .map(|answer| *answer)
        {
            Ok(Some(found)) => found.map_err(Error::Malformed),
            _ => Err(Error::OutcomeUnknown),
        }
    }

    /// Returns an entity's timers, at most `limit`.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the engine is not ready.
    pub async fn timers_of(&self, kind: usize, id: &str, limit: usize) -> Answered<Vec<TimerView>> {
        let epoch = self.core.epochs.current()?;
        let shard = epoch.executor.shard_of(self.core.context.target(kind, id.into())?.hash);
        let of = Address::new(self.core.context.registry.kinds()[kind].name, id);
        let look = epoch.executor.visit(shard, move |shard| shard.timers_of(&of, limit));
        let (mut timers, away) = look.await.map_err(widen)?;
        if let Some(away) = away.filter(|_| timers.len() < limit) {
            let mut visit = |row: &[u8], value: &[u8]| timers.extend(away.view(row, value));
            let rows_max = limit.saturating_add(away.known());
            let read = self
                .core
                .context
                .store
                .system_scan(away.prefix(), b"", rows_max, &mut visit);
            let read = read.await;
            read.map_err(|error| unreadable("the timers cannot be read".into(), &error))?;
            timers.sort_by(|one, other| one.due.name.cmp(&other.due.name));
            timers.truncate(limit);
        }
        Ok(timers)
    }

    /// Returns timers that could not be fired and are being retried, at most `limit`.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the engine is not ready.
    pub async fn late_timers(&self, limit: usize) -> Answered<Vec<TimerView>> {
        let epoch = self.core.epochs.current()?;
        let mut all = Vec::new();
        for shard in epoch.executor.shards() {
            let look = epoch.executor.visit(shard, move |shard| shard.late_timers(limit));
            all.extend(look.await.map_err(widen)?);
            if all.len() >= limit {
                break;
            }
        }
        all.truncate(limit);
        Ok(all)
    }

    /// Returns messages in memory from and to an entity, at most `limit` of each.
    #[must_use]
    pub fn pending_messages(&self, kind: &str, id: &str, limit: usize) -> (Vec<Pending>, Vec<Pending>) {
        let of = Address::new(kind, id);
        let epoch = self.core.epochs.running();
        epoch.map_or_else(Default::default, |epoch| epoch.executor.outbox.pending(&of, limit))
    }
}
