//! What stands in for history before it goes: the log then says what an entity is, and how many messages a shard has sent and taken,
//! without what stood before.

use super::{
    Common, Shard, Stage,
    entities::Entities,
    messages::MessageCounts,
    replay::NumbersRow,
    slot::{Body, encode_state},
    timers::read_row,
};
use crate::{limits, model::Entity};
use std::collections::{BTreeMap, HashSet};
use throng_journal::{Address, Position, Record, RecordKind};

/// How it is recorded what an entity is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recording {
    /// Nothing is kept of it if it ended with this event and was not created anew since.
    pub ended: u64,
    /// What the log says already is enough unless it has had more events than so many.
    pub enough: Option<u64>,
    /// Nothing is recorded: it is only said what would be.
    pub is_dry: bool,
}

/// What came of recording what an entity is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// It has to be loaded first.
    Load,
    /// The log says what it is after this event, from the commit of this number on.
    State {
        /// The number of its last event.
        seq: u64,
        /// The commit from which on the log says so.
        commit: u64,
    },
    /// What the log says of it already is enough.
    Enough {
        /// The number of its last event.
        seq: u64,
    },
    /// It has ended with this event, and nothing is kept of it from here on.
    Ended {
        /// The number of its last event.
        seq: u64,
    },
    /// There is nothing to record: it does not exist, is gone already, or cannot be brought back.
    Nothing,
}

/// The result of ending an entity of which nothing is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Erasure {
    /// The number of its last event; 0 if there is none.
    pub seq: u64,
    /// The entity may have had more events, and stays quarantined until it is [released](Shard::release).
    pub is_quarantined: bool,
}

/// The note of an erasure in the log: it outlives the loss of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErasureNote {
    /// The entity is to be erased.
    Begun,
    /// Nothing of it is left.
    Done,
}

impl ErasureNote {
    fn name(self) -> &'static str {
        match self {
            Self::Begun => "begun",
            Self::Done => "done",
        }
    }
}

/// An erasure that the log says was begun, and not that it was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BegunErasure {
    /// The entity to be erased.
    pub address: Address,
    /// The event with which it was ended for that, and the commit; `None`: it was not.
    pub ended: Option<(u64, Position)>,
}

/// Erasures that were read from the log: begun, and not done.
#[derive(Debug, Default)]
pub(super) struct Erasures(BTreeMap<Address, Option<(u64, Position)>>);

impl Erasures {
    pub(super) fn noted(&mut self, record: &Record<'_>) {
        let address = Address::new(record.kind, record.id);
        match record.name == ErasureNote::Begun.name() {
            // Asked for again, it ends what was begun anew since.
            true => _ = self.0.insert(address, None),
            false => _ = self.0.remove(&address),
        }
    }

    /// Ended for its erasure, an entity that begins anew is another one.
    pub(super) fn ended(&mut self, record: &Record<'_>) {
        if record.name == ERASED
            && !self.0.is_empty()
            && let Some(ended) = self.0.get_mut(&Address::new(record.kind, record.id))
        {
            *ended = Some((record.seq, record.place.position));
        }
    }
}

impl Shard {
    /// Notes an erasure; the number of the commit that says so.
    pub fn note_erasure(&mut self, of: &Address, note: ErasureNote, stage: &mut dyn Stage) -> u64 {
        let (common, kind) = (&mut self.common, RecordKind::Erasure);
        common.records.push(kind, common.id, of, 0, note.name(), 0, &[]);
        if note == ErasureNote::Done {
            // Begun anew since, the entity is another one.
            common.erasures.0.remove(of);
        }
        common.stage(stage).commit
    }

    /// The erasures that were begun and not done, as far as the log was read at the start.
    #[must_use]
    pub fn begun_erasures(&self) -> Vec<BegunErasure> {
        let all = self.common.erasures.0.iter();
        let begun = all.map(|(address, ended)| BegunErasure {
            address: address.clone(),
            ended: *ended,
        });
        begun.collect()
    }

    /// Forgets them: the store has noted them.
    pub fn forget_begun_erasures(&mut self) {
        self.common.erasures.0.clear();
    }

    /// Records what an entity is by now.
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

    /// Ends an entity and keeps nothing of it, from here on; `None`: it has to be loaded first. It has had `known` events at least, by what is
    /// stored: of one that is quarantined more need not be known.
    pub fn erase(&mut self, kind: usize, entity: (u64, &str), known: u64, stage: &mut dyn Stage) -> Option<Erasure> {
        self.tables[kind].erase(&mut self.common, entity, known, stage)
    }

    /// Records how many messages it has sent and taken, and says so.
    pub fn record_numbers(&mut self, is_dry: bool, stage: &mut dyn Stage) -> (MessageCounts, u64) {
        let common = &mut self.common;
        let counts = common.messages.counts();
        if is_dry {
            return (counts, u64::MAX);
        }
        let body = serde_json::to_vec(&NumbersRow::of(&counts)).unwrap_or_default();
        let (kind, shard) = (RecordKind::Numbers, common.id);
        common.records.push_parts(kind, shard, ("", ""), 0, ("", 0), &body);
        let staged = common.stage(stage);
        (counts, staged.commit)
    }

    /// Adds one number for each timer that is set and in memory: [`timer_print`]. A pass that looks at a kind's records up to its horizon leaves
    /// these. `false`: the store has other timers, which are to be left as well ([`stored_timer_print`]).
    pub fn timer_prints(&mut self, horizon: impl Fn(&str) -> Position, into: &mut HashSet<u64>) -> bool {
        self.common.timers.prints(self.common.writer, horizon, into)
    }
}

/// A timer in one number: its entity's kind and id, its name, what its record says, and where that stands, if that is known.
#[must_use]
pub fn timer_print((kind, id, name): (&str, &str, &str), body: &[u8], at: Option<Position>) -> u64 {
    let place = at
        .map_or([0; 2], |at| [at.writer.0, at.commit.0])
        .map(u64::to_le_bytes)
        .concat();
    let all = [
        kind.as_bytes(),
        &[0],
        id.as_bytes(),
        &[0],
        name.as_bytes(),
        &[0],
        body,
        &place,
    ]
    .concat();
    xxhash_rust::xxh3::xxh3_64(&all)
}

/// The [print](timer_print) of a timer by its row of the store, whose record may stand anywhere.
#[must_use]
pub fn stored_timer_print(row: &[u8], value: &[u8]) -> Option<u64> {
    let (of, name) = read_row(row)?;
    Some(timer_print((&of.kind, &of.id, &name), value, None))
}

/// Whether a record undoes older ones that a pass may have left, since they were not undone yet: a timer was set for long that fired or was
/// cancelled, a dead message was taken or dropped.
#[must_use]
pub fn undoes_what_was_left(record: &Record<'_>) -> bool {
    match record.record {
        RecordKind::TimerCleared => record.version != LEFT_NONE,
        RecordKind::Taken => super::dead::ends_one(record),
        _ => false,
    }
}

/// The version of the record that clears a timer of which passes have left nothing.
const LEFT_NONE: u16 = 1;

pub(super) fn version_of_clearing(common: &Common, of: &Address, name: &str) -> u16 {
    match common.timers.is_left(of, name) {
        true => 0,
        false => LEFT_NONE,
    }
}

impl<E: Entity> Entities<E> {
    pub(super) fn record(
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
            // Also of one that is gone: the last pass may not have reached all of its records.
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

    /// It has ended, and nothing is kept of it.
    fn forget_gone(&mut self, common: &mut Common, at: u32) {
        let slot = self.slot(at);
        slot.family = None;
        if let Some(trace) = &mut slot.trace {
            let pending = trace.pending.take();
            common.pending_bytes -= pending.map_or(0, |pending| pending.bytes.len());
            if trace.family || trace.note.stands {
                self.keep_end(at);
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

    pub(super) fn erase_one(
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
            // It cannot be brought back, and goes all the same.
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

/// The name of the record that says that an entity was erased.
pub const ERASED: &str = "Erased";

/// The system row of what the log says an entity is: the number of
/// its last event then, and the commit it stands in, each eight bytes, most significant first (writer, number).
#[must_use]
pub fn base_row(address: &Address) -> Vec<u8> {
    [b"b", address.kind.as_bytes(), &[0], address.id.as_bytes()].concat()
}
