//! An operator's decision about work that is left over, as it is recorded.

use crate::{limits, shard::timers::QUARANTINE};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use throng_journal::{Record, RecordKind};

/// The name of the record that drops a message.
pub(crate) const DROPPED: &str = "dropped";

/// An operator's name, and the reason of the decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorDecision<'a> {
    /// The operator's name.
    pub by: Cow<'a, str>,
    /// The reason, in the operator's words.
    pub reason: Cow<'a, str>,
}

impl<'a> OperatorDecision<'a> {
    /// A decision of this person, for this reason.
    pub fn new(by: impl Into<Cow<'a, str>>, reason: impl Into<Cow<'a, str>>) -> Self {
        Self {
            by: by.into(),
            reason: reason.into(),
        }
    }
}

/// The body of the record of a message that was dropped before it was taken or dead. No dead message ends with it.
#[derive(Serialize, Deserialize)]
struct DroppedUntaken<'a> {
    #[serde(flatten)]
    by: OperatorDecision<'a>,
    untaken: bool,
}

impl OperatorDecision<'_> {
    /// Returns the decision with both texts cut to the longest stored reason.
    pub(crate) fn shortened(&self) -> OperatorDecision<'_> {
        let short = |text: &str| text[..text.floor_char_boundary(limits::REASON_BYTES_MAX)].to_owned();
        OperatorDecision {
            by: short(&self.by).into(),
            reason: short(&self.reason).into(),
        }
    }

    pub(crate) fn record(&self) -> Vec<u8> {
        serde_json::to_vec(&self.shortened()).unwrap_or_default()
    }

    pub(crate) fn record_untaken(&self) -> Vec<u8> {
        let record = DroppedUntaken {
            by: self.shortened(),
            untaken: true,
        };
        serde_json::to_vec(&record).unwrap_or_default()
    }
}

/// True if the record of an [operator action](is_operator_action) drops a message that was not dead.
pub(crate) fn drops_untaken(record: &Record<'_>) -> bool {
    record.name == DROPPED && serde_json::from_slice::<DroppedUntaken<'_>>(record.body).is_ok()
}

/// True if a record holds an operator action: no command of the entity has led to it.
#[must_use]
pub fn is_operator_action(record: &Record<'_>) -> bool {
    match record.record {
        RecordKind::Taken => record.name == DROPPED,
        RecordKind::TimerSet => record.name == QUARANTINE,
        RecordKind::TimerCleared => !record.body.is_empty(),
        RecordKind::Erasure => true,
        _ => false,
    }
}
