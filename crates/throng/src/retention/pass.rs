//! A retention pass: it finds expired history, has the log record the states that replace it, cuts it from the index, and removes it.

use super::{
    Retention, backend,
    cursors::Cursors,
    judge::{Going, Plan},
    limit::limit,
    scan::{Noted, scan},
    taken::covered_taken_upto,
};
use crate::{
    commit::recovering,
    epoch::Epoch,
    executor::{Target, batch, now_or_later},
    host::yield_now,
    remote::PruneReport,
};
use std::{
    collections::HashMap,
    sync::{Arc, PoisonError},
};
use throng_core::{
    limits,
    model::Keep,
    shard::{Recorded, TIMER_ROWS, base_row, dead_rows, family_row, index_row, stored_timer_print},
};
use throng_journal::{Address, CommitNo, Cut, Error, Position, Prune, Pruned, WriterId};

pub(super) use throng_journal::PruneHow as How;

/// The interval of passes over the whole journal. They remove expired records that other passes do not see.
const ALL_EVERY_MICROS: i64 = 24 * 3_600 * 1_000_000;
/// Timers read from the store at a time.
const TIMERS_MAX: usize = 1_024;

/// The purpose of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    /// Only reports what would be removed.
    Dry,
    /// Removes all that has expired, anywhere in the journal.
    Whole,
    /// Removes what has expired since the last pass. It examines the rest of the journal once a day, and for kinds that keep a number of
    /// events, whose expired records may be anywhere.
    Usual,
}

impl Pass {
    pub(super) fn by_operator(is_dry: bool) -> Self {
        if is_dry { Self::Dry } else { Self::Whole }
    }
}

/// Makes a pass over an epoch's shards. If a shard goes to another node meanwhile, that does no harm: the pass judges records of these
/// shards alone, at positions that this epoch has covered, by facts that were durable then and stay true whoever owns the shards next.
pub(super) async fn run(retention: &Arc<Retention>, epoch: &Arc<Epoch>, pass: Pass) -> Result<PruneReport, Error> {
    let is_dry = pass == Pass::Dry;
    if epoch.group_commit.shards.is_empty() {
        return Ok(PruneReport {
            is_dry,
            ..PruneReport::default()
        });
    }
    let _one_at_a_time = retention.pruning.lock().await;
    if !is_dry && retention.context().disk.is_to_finish() {
        retention.context().journal.end_segment().await?;
        // The last covered commit stays, and with it the rest of its segment. So some commits are made to follow it.
        stand_in(retention, epoch, &mut Plan::default(), false).await?;
        retention.context().disk.has_finished();
    }
    retention.epochs.checkpoint_now(epoch).await?;
    let (limit, holders) = limit(retention, epoch).await?;
    let behind = holders.iter().filter(|holder| holder.is_behind);
    let behind: Vec<String> = behind.map(|holder| holder.name.clone()).collect();
    let held = i64::try_from(behind.len()).unwrap_or(i64::MAX);
    retention.context().metrics.history_held.set(held);
    *retention.held_by.lock().unwrap_or_else(PoisonError::into_inner) = behind;
    let held_by = holders.into_iter().map(|holder| holder.name).collect();
    let mut cursors = Cursors::read(retention, epoch).await?;
    let now = retention.context().host.now();
    let is_whole = pass != Pass::Usual || now.micros.saturating_sub(cursors.looked_at_all) >= ALL_EVERY_MICROS;
    let found = scan(retention, epoch, &cursors.kinds, limit).await?;
    let mut report = PruneReport {
        is_dry,
        is_cut_short: found.is_cut_short,
        upto_micros: found.at_micros,
        held_by,
        ..PruneReport::default()
    };
    let upto = found.horizons.values().max().copied().unwrap_or_default();
    if upto == Position::default() {
        return Ok(report);
    }
    report.upto = Some(upto.to_string());
    let mut plan = Plan {
        shards: epoch.group_commit.shards.clone(),
        horizons: found.horizons.clone(),
        now,
        ..Plan::default()
    };
    let mut passing = Passing {
        retention,
        epoch,
        plan: &mut plan,
        is_dry,
        has_older: false,
    };
    for (address, noted) in &found.noted {
        go_on(epoch)?;
        passing.entity(address, *noted).await?;
    }
    // Events in the middle of an entity's history must not be removed.
    let is_whole = is_whole || passing.has_older;
    report.gone = plan.entities.values().filter(|going| going.is_gone).count() as u64;
    report.entities = plan.entities.len() as u64 - report.gone;
    stand_in(retention, epoch, &mut plan, is_dry).await?;
    if !is_dry {
        let is_going = |(address, _): &(&Address, &Noted)| plan.entities.contains_key(*address);
        let going = found.noted.iter().filter(is_going);
        cursors.announce(epoch, going.map(|(address, noted)| (address, noted.at)));
        settle(retention, epoch).await?;
    }
    plan.dead = dead(retention).await?;
    plan.is_whole = is_whole;
    if retention.context().peers.is_some() {
        plan.taken_upto = Some(covered_taken_upto(retention, &epoch.group_commit.shards).await?);
    }
    plan.known_at = epoch.group_commit.durable();
    let gone = plan.entities.iter().filter(|(_, going)| going.is_gone);
    let gone: Vec<_> = gone.map(|(address, _)| (base_row(address), None)).collect();
    let how = if is_dry { How::Dry } else { How::Remove };
    let (plan, mut pruned) = (Arc::new(plan), Pruned::default());
    let mut moved = cursors.kinds.clone();
    let stretches = match is_whole {
        true => vec![(Position::default(), upto.min(limit))],
        false => stretches(&cursors.kinds, &found.horizons, limit),
    };
    for (after, to) in stretches {
        let mut reached = after;
        prune(
            retention,
            epoch,
            Arc::clone(&plan),
            (&mut reached, to, how),
            &mut pruned,
        )
        .await?;
        for (kind, horizon) in &found.horizons {
            let cursor = moved.entry(kind.clone()).or_default();
            if *cursor >= after {
                *cursor = (*horizon).min(reached).max(*cursor);
            }
        }
    }
    (report.records, report.commits, report.bytes) = (pruned.records, pruned.commits, pruned.bytes);
    if !is_dry {
        retention.context().metrics.pruned_records.inc_by(pruned.records);
        retention.context().metrics.pruned_bytes.inc_by(pruned.bytes);
        let looked_at_all = if is_whole { now.micros } else { cursors.looked_at_all };
        cursors.store(epoch, &moved, looked_at_all);
        // Not earlier: an interrupted attempt leaves its states to the next one, which finds them by these rows.
        epoch.due().rows.extend(gone);
        if report.records > 0 {
            tracing::info!("{report}");
        }
    }
    Ok(report)
}

/// Returns the stretches between the positions up to which each kind's history was removed and has expired, in order.
fn stretches(
    cursors: &HashMap<Box<str>, Position>,
    horizons: &HashMap<Box<str>, Position>,
    limit: Position,
) -> Vec<(Position, Position)> {
    let mut all: Vec<(Position, Position)> = horizons
        .iter()
        .map(|(kind, horizon)| {
            let cursor = cursors.get(kind).copied().unwrap_or_default();
            (cursor, (*horizon).min(limit))
        })
        .filter(|(after, to)| after < to)
        .collect();
    all.sort_unstable();
    let mut merged: Vec<(Position, Position)> = Vec::new();
    for (after, to) in all {
        match merged.last_mut() {
            Some((_, last)) if after <= *last => *last = to.max(*last),
            _ => merged.push((after, to)),
        }
    }
    merged
}

/// Has a checkpoint store what is due. Only then may the history that it replaces be removed.
pub(super) async fn settle(retention: &Retention, epoch: &Arc<Epoch>) -> Result<(), Error> {
    retention.epochs.checkpoint_now(epoch).await?;
    match epoch.group_commit.is_over() || !epoch.due().is_empty() {
        true => Err(backend(&recovering())),
        false => Ok(()),
    }
}

/// True while a pass may continue: its epoch is neither over nor about to end in order.
pub(super) fn goes_on(epoch: &Epoch) -> bool {
    !epoch.group_commit.is_over() && !epoch.group_commit.is_closing()
}

fn go_on(epoch: &Epoch) -> Result<(), Error> {
    match goes_on(epoch) {
        true => Ok(()),
        false => Err(Error::backend(
            "removing history",
            "what was to be removed belongs to the next epoch of its shards; what is left goes with its next pass",
        )),
    }
}

struct Passing<'a> {
    retention: &'a Arc<Retention>,
    epoch: &'a Arc<Epoch>,
    plan: &'a mut Plan,
    is_dry: bool,
    /// True if there are expired events or states before those that were found.
    has_older: bool,
}

impl Passing<'_> {
    /// Decides what to remove of an entity, and has the log record its state.
    async fn entity(&mut self, address: &Address, mut noted: Noted) -> Result<(), Error> {
        let base = base(self.retention, address).await?;
        let horizon = self.plan.horizons.get(&address.kind).copied().unwrap_or_default();
        // A state that outlived the entity's end and events would revive it if the store is lost. So the end expires with the state.
        if base.is_some_and(|(_, at)| at > horizon) {
            noted.ended = 0;
        }
        let keeps = self.retention.context().keeps();
        let kept = match keeps.get(&*address.kind) {
            Some(Keep::Events(count)) => Some(*count),
            _ => None,
        };
        // Earlier passes have removed what came before, or there was nothing.
        let follows = noted.first <= 1 || base.is_some_and(|base| base.0 + 1 >= noted.first);
        self.has_older |= kept.is_some() || !follows;
        let is_enough = |base: &(u64, Position)| kept.is_none() && base.0 >= noted.seq;
        if let Some(base) = base.filter(is_enough).filter(|_| noted.ended == 0) {
            self.goes(address, noted.seq, base, false);
            return Ok(());
        }
        let recorded = self.record(address, noted, kept, base).await?;
        match recorded {
            Recorded::Ended { seq } => {
                // Earlier states that replaced its events may be before what earlier passes have examined.
                self.has_older |= base.is_some();
                self.goes(address, seq, (seq, Position::default()), true);
            }
            Recorded::State { seq, commit } => {
                let at = Position::new(self.epoch.group_commit.writer, CommitNo(commit));
                let upto = kept.map_or(noted.seq, |count| seq.saturating_sub(count));
                self.goes(address, upto.min(seq), (seq, at), false);
            }
            Recorded::Enough { seq } => {
                let upto = kept.map_or(noted.seq, |count| seq.saturating_sub(count));
                if let Some(base) = base {
                    self.goes(address, upto.min(base.0), base, false);
                }
            }
            Recorded::Load | Recorded::Nothing => {}
        }
        Ok(())
    }

    async fn record(
        &self,
        address: &Address,
        noted: Noted,
        kept: Option<u64>,
        base: Option<(u64, Position)>,
    ) -> Result<Recorded, Error> {
        let (retention, epoch) = (self.retention, self.epoch);
        let Some(kind) = retention.context().registry.find(&address.kind) else {
            return Ok(Recorded::Nothing);
        };
        let hash = limits::hash(&address.kind, &address.id);
        let shard = epoch.executor.shard_of(hash);
        for _ in 0..3 {
            epoch.deliverer.room_to_remove().await;
            let (group_commit, id) = (epoch.group_commit.clone(), address.id.clone());
            let how = throng_core::shard::Recording {
                ended: noted.ended,
                enough: base.map(|(seq, _)| seq.saturating_add(kept.unwrap_or(0))),
                is_dry: self.is_dry,
            };
            let recorded = epoch.executor.visit(shard, move |shard| {
                shard.record_state(kind, hash, &id, how, &mut group_commit.staging())
            });
            batch::wake_committer(retention.context());
            match recorded.await.map_err(|error| backend(&error))? {
                Recorded::Load => {}
                recorded => return Ok(recorded),
            }
            let target = Target {
                kind,
                hash,
                id: address.id.to_string().into(),
            };
            epoch.executor.load(&target).await.map_err(|error| backend(&error))?;
        }
        Ok(Recorded::Nothing)
    }

    fn goes(&mut self, address: &Address, upto: u64, base: (u64, Position), is_gone: bool) {
        if upto == 0 {
            return;
        }
        self.plan
            .entities
            .insert(address.clone(), Going { upto, base, is_gone });
        if self.is_dry {
            return;
        }
        let mut due = self.epoch.due();
        due.cuts.push(Cut {
            address: address.clone(),
            upto,
            is_gone,
        });
        if is_gone {
            due.rows.push((family_row(address), None));
            due.rows.push((index_row(address), None));
        } else {
            let (seq, at) = base;
            let value = [seq, at.writer.0, at.commit.0].map(u64::to_be_bytes).concat();
            due.rows.push((base_row(address), Some(value)));
        }
    }
}

/// Has each shard record how many messages it has taken, except in a dry pass. Adds these numbers and the pending timers to the
/// plan. All of it is durable when this returns.
pub(super) async fn stand_in(
    retention: &Arc<Retention>,
    epoch: &Arc<Epoch>,
    plan: &mut Plan,
    is_dry: bool,
) -> Result<(), Error> {
    let horizons = Arc::new(plan.horizons.clone());
    let mut has_stored_timers = false;
    for shard in epoch.executor.shards() {
        go_on(epoch)?;
        epoch.deliverer.room_to_remove().await;
        let (group_commit, horizons) = (epoch.group_commit.clone(), Arc::clone(&horizons));
        let visited = epoch.executor.visit(shard, move |shard| {
            let mut timers = std::collections::HashSet::new();
            let horizon = |kind: &str| horizons.get(kind).copied().unwrap_or_default();
            let is_all = shard.timer_prints(horizon, &mut timers);
            let (counts, commit) = shard.record_numbers(is_dry, &mut group_commit.staging());
            (counts, commit, timers, is_all)
        });
        batch::wake_committer(retention.context());
        let (counts, commit, timers, is_all) = visited.await.map_err(|error| backend(&error))?;
        let at = Position::new(epoch.group_commit.writer, CommitNo(commit));
        plan.counts.insert(shard, (counts, at));
        plan.timers.extend(timers);
        has_stored_timers |= !is_all;
    }
    // After the shards: a timer that leaves memory meanwhile has been seen there.
    if has_stored_timers {
        stored_timers(retention, epoch, plan).await?;
    }
    let last = epoch.group_commit.last();
    batch::wake_committer(retention.context());
    epoch.group_commit.wait(last).await.map_err(|_| backend(&recovering()))
}

/// Adds the timers in the store.
async fn stored_timers(retention: &Retention, epoch: &Arc<Epoch>, plan: &mut Plan) -> Result<(), Error> {
    let mut after = Vec::new();
    loop {
        go_on(epoch)?;
        let (mut rows, begin) = (0, std::mem::take(&mut after));
        let mut visit = |row: &[u8], value: &[u8]| {
            rows += 1;
            plan.timers.extend(stored_timer_print(row, value));
            row.clone_into(&mut after);
        };
        retention
            .context()
            .store
            .system_scan(TIMER_ROWS, &begin, TIMERS_MAX, &mut visit)
            .await?;
        if rows < TIMERS_MAX {
            return Ok(());
        }
        yield_now().await;
    }
}

pub(super) async fn dead(retention: &Retention) -> Result<std::collections::HashSet<Vec<u8>>, Error> {
    let mut found = std::collections::HashSet::new();
    let mut visit = |row: &[u8], _: &[u8]| _ = found.insert(row.to_vec());
    retention
        .context()
        .store
        .system_scan(&dead_rows(None), b"", usize::MAX, &mut visit)
        .await?;
    Ok(found)
}

/// Has the journal remove expired records, stream by stream. `reached` holds where that began, and is updated as it proceeds, even if
/// the journal fails.
pub(super) async fn prune(
    retention: &Retention,
    epoch: &Epoch,
    plan: Arc<Plan>,
    (reached, upto, how): (&mut Position, Position, How),
    pruned: &mut Pruned,
) -> Result<(), Error> {
    let own = epoch.group_commit.durable();
    let after = *reached;
    for end in epoch.group_commit.sealed.iter().copied().chain([own]) {
        // Each start opens a writer, and many writers have committed nothing.
        if end <= after || end.commit == CommitNo(0) {
            continue;
        }
        if end.writer > upto.writer {
            break;
        }
        let to = if end.writer == upto.writer {
            end.commit.min(upto.commit)
        } else {
            end.commit
        };
        let (plan, replaced_by) = (Arc::clone(&plan), plan.known_at);
        let done = retention.context().journal.prune(Prune {
            after: match end.writer == after.writer {
                true => after,
                false => Position::new(end.writer, CommitNo(0)),
            },
            upto: to,
            judge: Arc::new(move |record, stamp| plan.is_over(record, stamp)),
            replaced_by,
            how,
        });
        let done = done.await?;
        pruned.add(done);
        *reached = (*reached).max(Position::new(end.writer, done.upto));
        if done.upto < end.commit {
            break;
        }
    }
    Ok(())
}

/// Returns the last event whose resulting state is in the log, and that state's position.
pub(super) async fn base(retention: &Retention, address: &Address) -> Result<Option<(u64, Position)>, Error> {
    let row = now_or_later(retention.context().store.system(&base_row(address))).await?;
    let numbers = row.as_deref().and_then(|row| {
        let (numbers, []) = row.as_chunks::<8>() else {
            return None;
        };
        <[[u8; 8]; 3]>::try_from(numbers).ok()
    });
    Ok(numbers.map(|numbers| {
        let [seq, writer, commit] = numbers.map(u64::from_be_bytes);
        let at = Position::new(WriterId(writer), CommitNo(commit));
        (seq, at)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ended_records_are_looked_at() {
        let at = |commit| Position::new(WriterId(1), CommitNo(commit));
        let of = |list: &[(&str, u64)]| {
            list.iter()
                .map(|(kind, commit)| ((*kind).into(), at(*commit)))
                .collect()
        };
        let cursors: HashMap<Box<str>, Position> = of(&[("hours", 900), ("days", 300), ("weeks", 40)]);
        let horizons: HashMap<Box<str>, Position> = of(&[("hours", 950), ("days", 310), ("weeks", 40), ("new", 20)]);
        let found = stretches(&cursors, &horizons, at(940));
        assert_eq!(
            found,
            [(Position::default(), at(20)), (at(300), at(310)), (at(900), at(940))]
        );
        let overlapping = of(&[("hours", 305), ("days", 300), ("weeks", 40)]);
        let found = stretches(&overlapping, &of(&[("hours", 950), ("days", 310)]), at(2_000));
        assert_eq!(found, [(at(300), at(950))]);
    }
}
