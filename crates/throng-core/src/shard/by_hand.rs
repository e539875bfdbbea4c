//! What a person decides of work that is left over: it will never be done. Recorded with who decided it, and why.
//!
//! A dead message is dropped by a last [`Taken`](RecordKind::Taken) named [`DROPPED`]: of several records of one message the last
//! one counts. Whoever asked for its outcome hears of it. A message that waits for a quarantined entity is dropped the same way. A timer is cancelled
//! by the record that clears it, which has a body then.

use super::{
    Common, Delivery, Shard, Stage, dead,
    messages::RecordedOutcome,
    operator_quarantine::QUARANTINE,
    records::{write_outcome, write_taken_as},
    retain::version_of_clearing,
    timers::Due,
};
use crate::{
    limits,
    model::{Error, Timestamp},
};
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, convert::Infallible};
use throng_journal::{Address, Record, RecordKind};

/// The name of the record that drops a message.
pub(super) const DROPPED: &str = "dropped";

/// Who decided it, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByHand<'a> {
    /// The caller's name, or what stands for it.
    pub by: Cow<'a, str>,
    /// Why, in a person's words.
    pub reason: Cow<'a, str>,
}

/// The body of the record of a message that was dropped before anybody took it: no dead message ends with it.
#[derive(Serialize, Deserialize)]
struct DroppedUntaken<'a> {
    #[serde(flatten)]
    by: ByHand<'a>,
    untaken: bool,
}

impl ByHand<'_> {
    /// With both no longer than a record's reason may be.
    pub(super) fn shortened(&self) -> ByHand<'_> {
        let short = |text: &str| text[..text.floor_char_boundary(limits::REASON_BYTES_MAX)].to_owned();
        ByHand {
            by: short(&self.by).into(),
            reason: short(&self.reason).into(),
        }
    }

    pub(super) fn record(&self) -> Vec<u8> {
        serde_json::to_vec(&self.shortened()).unwrap_or_default()
    }

    fn record_untaken(&self) -> Vec<u8> {
        let record = DroppedUntaken {
            by: self.shortened(),
            untaken: true,
        };
        serde_json::to_vec(&record).unwrap_or_default()
    }
}

/// Tells whether a record [by hand](is_by_hand) drops a message that was not dead.
pub(super) fn drops_untaken(record: &Record<'_>) -> bool {
    record.name == DROPPED && serde_json::from_slice::<DroppedUntaken<'_>>(record.body).is_ok()
}

/// Whether a record says what a person decided: no command of the entity has led to it.
#[must_use]
pub fn is_by_hand(record: &Record<'_>) -> bool {
    match record.record {
        RecordKind::Taken => record.name == DROPPED,
        RecordKind::TimerSet => record.name == QUARANTINE,
        RecordKind::TimerCleared => !record.body.is_empty(),
        RecordKind::Erasure => true,
        _ => false,
    }
}

impl Shard {
    /// Drops a message that is dead, or that waits for an entity which an operator has quarantined; whoever asked for its outcome hears so.
    ///
    /// # Errors
    /// What it is to hear cannot be written down: nothing was done.
    pub fn drop_message(
        &mut self,
        message: &Delivery,
        mut now: Timestamp,
        by: &ByHand<'_>,
        stage: &mut dyn Stage,
    ) -> Result<u64, String> {
        let common = &mut self.common;
        common.tick(&mut now);
        let Delivery { to, taking, .. } = message;
        let mut report = None;
        if let Some(asks) = &taking.asks {
            let told = RecordedOutcome::<(), ()>::Dropped(by.reason.clone().into_owned());
            let told = serde_json::to_string(&told).map_err(|why| why.to_string())?;
            let written: Result<Delivery, Error<Infallible>> = write_outcome(common, &self.registry, to, asks, told);
            match written {
                Ok(delivery) => {
                    common.messages.keep();
                    report = Some(delivery);
                }
                Err(why) => {
                    common.messages.give_back();
                    common.discard();
                    return Err(why.to_string());
                }
            }
        }
        let was_dead = taking.again;
        let record = if was_dead { by.record() } else { by.record_untaken() };
        write_taken_as(common, to, taking, DROPPED, &record);
        if was_dead {
            dead::over(common, to, taking);
        }
        let commit = common.stage(stage).commit;
        let report = report.map(|delivery| Delivery { commit, ..delivery });
        common.outbox.extend(report);
        Ok(commit)
    }

    /// Cancels a timer that could not be fired; `None` if there is none of this name that waits for that.
    pub fn cancel_late_timer(
        &mut self,
        of: &Address,
        name: &str,
        by: &ByHand<'_>,
        stage: &mut dyn Stage,
    ) -> Option<u64> {
        self.common
            .timers
            .is_late(of, name)
            .then(|| self.common.clear_timer(of, name, &by.record(), stage))
    }

    /// Removes a timer nobody can execute (its kind is unknown), durably.
    pub fn clear_timer(&mut self, due: &Due, stage: &mut dyn Stage) -> u64 {
        self.common.clear_timer(&due.address, &due.name, &[], stage)
    }
}

impl Common {
    pub(super) fn clear_timer(&mut self, of: &Address, name: &str, body: &[u8], stage: &mut dyn Stage) -> u64 {
        let version = version_of_clearing(self, of, name);
        self.timers.clear(of, name);
        let (shard, kind) = (self.id, RecordKind::TimerCleared);
        self.records.push(kind, shard, of, 0, name, version, body);
        self.stage(stage).commit
    }
}
