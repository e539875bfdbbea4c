//! Entities that an operator has quarantined. None of them executes anything until it is released.
//!
//! The log and the store keep a quarantine as a timer of its entity, named [`QUARANTINE`], that is never due. So a start, a checkpoint, a
//! retention pass, a hand-off and an erasure treat it like any other timer. A program that does not know it keeps the timer, and does
//! nothing with it.

use super::{QUARANTINE, Set, Written};
use crate::{
    model::{Error, Timestamp},
    shard::{Common, Glance, Inspected, OperatorDecision, Quarantined, Shard, Stage, Whereabouts},
};
use throng_journal::{Address, RecordKind};

/// 9999-01-01T00:00:00Z: later than every clock, and still a date that programs can show.
const NEVER_MICROS: i64 = 253_370_764_800_000_000;

impl Common {
    /// Returns the error for an entity that an operator has quarantined, and the commit it rests on.
    #[inline]
    pub(crate) fn refused_by_operator<R>(&mut self, hash: u64, kind: &str, id: &str) -> Option<(Error<R>, u64)> {
        let (address, quarantine) = self.timers.quarantines.find(hash, kind, id)?;
        quarantine.refused.set(quarantine.refused.get() + 1);
        let error = Error::Quarantined {
            address: address.to_string(),
            seq: 0,
            reason: quarantine.reason.clone(),
            by_operator: true,
        };
        Some((error, quarantine.commit))
    }
}

impl Shard {
    /// Quarantines an entity until it is [released](Self::release_by_operator): it executes nothing, and messages to it and its timers
    /// wait. `None` if an operator has quarantined it already.
    pub fn quarantine_by_operator(
        &mut self,
        of: &Address,
        mut now: Timestamp,
        by: &OperatorDecision<'_>,
        stage: &mut dyn Stage,
    ) -> Option<u64> {
        let common = &mut self.common;
        common.tick(&mut now);
        if common.timers.quarantines.contains(of) {
            return None;
        }
        let by = by.shortened();
        let written = Written {
            by: by.by,
            reason: by.reason,
            since_micros: now.micros,
        };
        let set = Set {
            at: NEVER_MICROS,
            every_micros: None,
            command: QUARANTINE.to_owned(),
            body: serde_json::to_string(&written).unwrap_or_default(),
        };
        let body = serde_json::to_vec(&set).unwrap_or_default();
        let (shard, kind) = (common.id, RecordKind::TimerSet);
        common.records.push(kind, shard, of, 0, QUARANTINE, 0, &body);
        common.timers.set(of, QUARANTINE, set);
        Some(common.stage(stage).commit)
    }

    /// Ends a quarantine by [`quarantine_by_operator`](Self::quarantine_by_operator); `None` if no operator has quarantined it. Timers that
    /// have waited are due at once.
    pub fn release_by_operator(
        &mut self,
        of: &Address,
        by: &OperatorDecision<'_>,
        stage: &mut dyn Stage,
    ) -> Option<u64> {
        if !self.common.timers.quarantines.contains(of) {
            return None;
        }
        let commit = self.common.clear_timer(of, QUARANTINE, &by.record(), stage);
        self.common.timers.end_deferral(of);
        Some(commit)
    }

    /// True if an operator has quarantined the entity.
    #[must_use]
    pub fn is_quarantined_by_operator(&self, of: &Address) -> bool {
        self.common.timers.quarantines.contains(of)
    }

    /// The entities of all kinds that an operator has quarantined.
    #[must_use]
    pub fn quarantined_by_operator(&self) -> Vec<Quarantined> {
        self.common.timers.quarantines.views().collect()
    }

    /// True if an entity of this id may have events or relatives; never false for one that has.
    #[must_use]
    pub fn may_know(&self, kind: usize, hash: u64) -> bool {
        self.tables.get(kind).is_some_and(|table| table.may_know(hash))
    }

    /// Returns the entities of a kind that an operator has quarantined, at most `limit`.
    pub(crate) fn quarantined_of_kind(&self, kind: usize, limit: usize) -> Vec<Quarantined> {
        let name = self.registry.kinds()[kind].name;
        self.common.timers.quarantines.of_kind(name).take(limit).collect()
    }

    pub(crate) fn quarantined_number(&self, kind: usize) -> usize {
        let quarantines = &self.common.timers.quarantines;
        match quarantines.len() {
            0 => 0,
            _ => quarantines.of_kind(self.registry.kinds()[kind].name).count(),
        }
    }

    /// Shows an entity that an operator has quarantined as it is seen.
    pub(crate) fn glance_at_quarantined(
        &self,
        kind: usize,
        (hash, id): (u64, &str),
        seen: Option<Glance>,
    ) -> Option<Glance> {
        let name = self.registry.kinds().get(kind)?.name;
        if self.common.timers.quarantines.find(hash, name, id).is_none() {
            return seen;
        }
        let glance = seen.unwrap_or(Glance {
            whereabouts: Whereabouts::Quarantined,
            seq: 0,
            parent: None,
            children: None,
        });
        Some(Glance {
            whereabouts: Whereabouts::Quarantined,
            ..glance
        })
    }

    /// The same for all of it.
    pub(crate) fn inspect_quarantined(&self, kind: usize, (hash, id): (u64, &str), inspected: &mut Inspected) {
        let name = self.registry.kinds()[kind].name;
        if let Some((address, quarantine)) = self.common.timers.quarantines.find(hash, name, id) {
            inspected.whereabouts = Whereabouts::Quarantined;
            inspected.quarantine = Some(quarantine.view(address));
            inspected.rests_on = inspected.rests_on.max(quarantine.commit);
        }
    }
}
