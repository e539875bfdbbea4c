//! Operator actions that end left-over work: a message is dropped, a timer is cancelled. The record names the operator and the reason.
//!
//! A dead message is dropped by another [`Taken`](RecordKind::Taken) record named [`DROPPED`], because the last record of a message counts.
//! The entity that asked for its outcome gets it. A message that waits for a quarantined entity is dropped the same way. A timer is
//! cancelled by the record that clears it, which then has a body.

use super::{
    Delivery, RecordedOutcome,
    dead::KnownDead,
    decision::{DROPPED, OperatorDecision},
};
use crate::{
    model::Timestamp,
    shard::{
        Common, Due, Shard, Stage,
        execute::records::{report_refusal, write_taken_as},
    },
};
use std::convert::Infallible;
use throng_journal::{Address, RecordKind};

impl Shard {
    /// Drops a message that is dead, or that waits for an entity which an operator has quarantined. The entity that asked for its outcome
    /// gets `Dropped`.
    ///
    /// # Errors
    /// The report to that entity cannot be recorded. Nothing was done.
    pub fn drop_message(
        &mut self,
        message: &Delivery,
        mut now: Timestamp,
        by: &OperatorDecision<'_>,
        stage: &mut dyn Stage,
    ) -> Result<u64, String> {
        let common = &mut self.common;
        common.tick(&mut now);
        let Delivery { to, taking, .. } = message;
        let mut report = None;
        if let Some(asks) = &taking.asks {
            let told = RecordedOutcome::<(), ()>::Dropped(by.reason.clone().into_owned());
            match report_refusal::<_, Infallible>(common, to, asks, &told) {
                Ok(delivery) => report = Some(delivery),
                Err(why) => {
                    common.discard();
                    return Err(why.to_string());
                }
            }
        }
        let was_dead = taking.died.is_some();
        let record = if was_dead { by.record() } else { by.record_untaken() };
        write_taken_as(common, to, taking, DROPPED, &record);
        if was_dead {
            common.dead.over(to, taking);
        }
        let commit = common.stage(stage).commit;
        let report = report.map(|delivery| Delivery { commit, ..delivery });
        common.outbox.extend(report);
        Ok(commit)
    }

    /// Cancels a timer that could not be fired; `None` if there is no such timer.
    pub fn cancel_late_timer(
        &mut self,
        of: &Address,
        name: &str,
        by: &OperatorDecision<'_>,
        stage: &mut dyn Stage,
    ) -> Option<u64> {
        self.common
            .timers
            .is_late(of, name)
            .then(|| self.common.clear_timer(of, name, &by.record(), stage))
    }

    /// Removes a timer that cannot be executed because its kind is unknown, durably. Returns the commit.
    pub fn clear_timer(&mut self, due: &Due, stage: &mut dyn Stage) -> u64 {
        self.common.clear_timer(&due.address, &due.name, &[], stage)
    }

    /// Returns the rows that changed since the last checkpoint, begin with `begin` and come after `after`. `None`: the message is no longer
    /// dead. At most `limit` of them are dead.
    #[must_use]
    pub fn fresh_dead(&self, begin: &[u8], after: &[u8], limit: usize) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        self.common.dead.changed(begin, after, limit)
    }

    /// Returns what the shard knows of a dead message without the store.
    #[must_use]
    pub fn known_dead(&self, row: &[u8]) -> KnownDead {
        self.common.dead.known(row)
    }
}

impl Common {
    pub(crate) fn clear_timer(&mut self, of: &Address, name: &str, body: &[u8], stage: &mut dyn Stage) -> u64 {
        let version = self.timers.version_of_clearing(of, name);
        self.timers.clear(of, name);
        let (shard, kind) = (self.id, RecordKind::TimerCleared);
        self.records.push(kind, shard, of, 0, name, version, body);
        self.stage(stage).commit
    }
}
