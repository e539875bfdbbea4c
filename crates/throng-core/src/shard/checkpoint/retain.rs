//! Records that replace history before it is removed: an entity's state, and the numbers of messages that a shard has sent and taken. With
//! them the log is complete without the older records.

use super::{
    erasures::{BegunErasure, ERASED, Erasure, ErasureNote, Recorded, Recording},
    replay::NumbersRow,
};
use crate::{
    limits,
    model::Entity,
    shard::{
        Common, Shard, Stage,
        messages::{MessageCounts, dead},
        resident::{
            Entities,
            slot::{Body, encode_state},
        },
        timers::LEFT_NONE,
    },
};
use std::collections::HashSet;
use throng_journal::{Address, Position, Record, RecordKind};

impl Shard {
    /// Records an erasure; returns the number of the commit with the record.
    pub fn note_erasure(&mut self, of: &Address, note: ErasureNote, stage: &mut dyn Stage) -> u64 {
        let (common, kind) = (&mut self.common, RecordKind::Erasure);
        common.records.push(kind, common.id, of, 0, note.name(), 0, &[]);
        if note == ErasureNote::Done {
            common.erasures.done(of);
        }
        common.stage(stage).commit
    }

    /// Returns the erasures that were begun and not completed, as far as the log was read at the start.
    #[must_use]
    pub fn begun_erasures(&self) -> Vec<BegunErasure> {
        self.common.erasures.begun()
    }

    /// Forgets them: the store has noted them.
    pub fn forget_begun_erasures(&mut self) {
        self.common.erasures.clear();
    }

    /// Records the present state of an entity.
    pub fn record_state(
        &mut self,
        kind: usize,
        hash: u64,
        id: &str,
        how: Recording,
        stage: &mut dyn Stage,
    ) -> Recorded {
        self.tables[kind].record_state(&mut self.common, (hash, id), how, stage)
    }

    /// Ends an entity of which nothing is to be kept; `None`: it has to be loaded first. It has had at least `known` events, according to
    /// the store. A quarantined entity may have had more.
    pub fn erase(&mut self, kind: usize, entity: (u64, &str), known: u64, stage: &mut dyn Stage) -> Option<Erasure> {
        self.tables[kind].erase(&mut self.common, entity, known, stage)
    }

    /// Records the numbers of messages it has sent and taken, and returns them.
    pub fn record_numbers(&mut self, is_dry: bool, stage: &mut dyn Stage) -> (MessageCounts, u64) {
        let common = &mut self.common;
        let counts = common.messages.counts().clone();
        if is_dry {
            return (counts, u64::MAX);
        }
        let body = serde_json::to_vec(&NumbersRow::of(&counts)).unwrap_or_default();
        let (kind, shard) = (RecordKind::Numbers, common.id);
        common.records.push_parts(kind, shard, ("", ""), 0, ("", 0), &body);
        let staged = common.stage(stage);
        (counts, staged.commit)
    }

    /// Adds the [print](crate::shard::timer_print) of each pending timer in memory. A retention pass over a kind's records up to its
    /// horizon leaves the records of these timers. `false`: the store has further timers, which are to be left as well
    /// ([`stored_timer_print`](crate::shard::stored_timer_print)).
    pub fn timer_prints(&mut self, horizon: impl Fn(&str) -> Position, into: &mut HashSet<u64>) -> bool {
        self.common.timers.prints(self.common.writer, horizon, into)
    }
}

/// True if a record cancels an older one that an earlier retention pass may have left because it still counted then. Such records are the
/// firing or cancelling of a timer set long before, and the taking or dropping of a dead message.
#[must_use]
pub fn undoes_what_was_left(record: &Record<'_>) -> bool {
    match record.record {
        RecordKind::TimerCleared => record.version != LEFT_NONE,
        RecordKind::Taken => dead::ends_one(record),
        _ => false,
    }
}

impl<E: Entity> Entities<E> {
    pub(crate) fn record(
        &mut self,
        common: &mut Common,
        (hash, id): (u64, &str),
        how: Recording,
        stage: &mut dyn Stage,
    ) -> Recorded {
        let Some(at) = self.find(hash, id) else {
            return match self.may_know(hash) {
                true => Recorded::Load,
                false => Recorded::Nothing,
            };
        };
        if matches!(self.slot(at).body, Body::Passivated(_)) && !self.revive(common, at) {
            return Recorded::Load;
        }
        let slot = self.slot(at);
        let Body::Resident(resident) = &slot.body else {
            return Recorded::Nothing;
        };
        let (seq, is_gone) = (resident.seq, resident.is_gone);
        if seq == 0 {
            return Recorded::Nothing;
        }
        if slot.ended == seq && how.ended == seq {
            // Also for an entity that was removed: the last pass may not have reached all of its records.
            if !how.is_dry && !is_gone {
                self.forget_gone(common, at);
            }
            return Recorded::Ended { seq };
        }
        if is_gone {
            return Recorded::Nothing;
        }
        if how.enough.is_some_and(|enough| seq <= enough) {
            return Recorded::Enough { seq };
        }
        if how.is_dry {
            return Recorded::State { seq, commit: u64::MAX };
        }
        let bytes = match encode_state(&resident.state, slot.family.as_deref(), slot.ended) {
            Ok(bytes) if bytes.len() <= limits::RECORD_BYTES_MAX => bytes,
            Ok(bytes) => {
                let (length, max) = (bytes.len(), limits::RECORD_BYTES_MAX);
                tracing::warn!(
                    "the history of {}/{id} stays: its state has {length} bytes, of {max}",
                    E::KIND
                );
                return Recorded::Nothing;
            }
            Err(why) => {
                tracing::warn!(
                    "the history of {}/{id} stays: its state cannot be recorded: {why}",
                    E::KIND
                );
                return Recorded::Nothing;
            }
        };
        let shape = ("", E::STATE_VERSION);
        common
            .records
            .push_parts(RecordKind::State, common.id, (E::KIND, id), seq, shape, &bytes);
        let commit = common.stage(stage).commit;
        self.slot(at).rests_on = commit;
        self.store_state(common, at);
        Recorded::State { seq, commit }
    }

    /// Drops the state and the family of an entity that has ended. Only its end is kept.
    fn forget_gone(&mut self, common: &mut Common, at: u32) {
        let slot = self.slot(at);
        slot.family = None;
        if let Some(trace) = &mut slot.trace {
            let pending = trace.pending.take();
            common.pending_bytes -= pending.map_or(0, |pending| pending.bytes.len());
            if trace.family || trace.note.stands {
                self.keep_end(common, at);
            }
        }
        let Body::Resident(resident) = &mut self.slot(at).body else {
            return;
        };
        resident.state = E::default();
        resident.is_gone = true;
        resident.stored_seq = resident.seq;
        self.used(common, at);
    }

    pub(crate) fn erase_one(
        &mut self,
        common: &mut Common,
        (hash, id): (u64, &str),
        known: u64,
        stage: &mut dyn Stage,
    ) -> Option<Erasure> {
        let Some(at) = self.find(hash, id) else {
            return (!self.may_know(hash)).then(Erasure::default);
        };
        if matches!(self.slot(at).body, Body::Passivated(_)) && !self.revive(common, at) {
            return None;
        }
        let slot = self.slot(at);
        let (seq, is_quarantined) = match &slot.body {
            Body::Resident(resident) => (resident.seq, false),
            // It cannot be loaded, and is erased all the same.
            Body::Quarantined(aside) => (aside.last.max(known).max(1), true),
            Body::Passivated(_) => return None,
        };
        if seq == 0 {
            self.forget(common, at);
            return Some(Erasure::default());
        }
        let (record, shape) = (RecordKind::Ended, (ERASED, 0));
        common
            .records
            .push_parts(record, common.id, (E::KIND, id), seq, shape, &[]);
        let commit = common.stage(stage).commit;
        common.timers.clear_all(&Address::new(E::KIND, id));
        let slot = self.slot(at);
        (slot.rests_on, slot.ended) = (commit, seq);
        self.forget_gone(common, at);
        Some(Erasure { seq, is_quarantined })
    }
}
