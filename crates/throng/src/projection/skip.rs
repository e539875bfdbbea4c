//! An event that an operator had a projection skip.

use super::EventOffset;
use crate::{OperatorDecision, model::Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio::sync::oneshot;

/// The number of skipped events stored with the rows, the newest ones, and the most bytes of each text. Both are small, because they are
/// written with every batch.
const KEPT_MAX: u64 = 16;
const TEXT_BYTES_MAX: usize = 500;

/// An event that a projection or sink skipped ([`Engine::skip_event`](crate::Engine::skip_event)). Its rows lack the event
/// until they are rebuilt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// 1, 2, 3, … since the rows began, so the last one's number is the count. 0: decided, but not reached yet.
    pub number: u64,
    /// The event's place in the log.
    #[serde(serialize_with = "write_offset", deserialize_with = "read_offset")]
    pub event: EventOffset,
    /// The reason why the projection had stopped there.
    pub why: String,
    /// The time of the skip.
    pub at: Timestamp,
    /// The name of the operator who skipped the event.
    pub by: String,
    /// The reason for the decision, in that person's words.
    pub reason: String,
}

fn write_offset<S: Serializer>(offset: &EventOffset, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(offset)
}

fn read_offset<'de, D: Deserializer<'de>>(from: D) -> Result<EventOffset, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map_err(serde::de::Error::custom)
}

/// The reason why an event was not skipped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SkipError {
    /// No projection or sink has the name.
    #[error("there is no projection of this name")]
    Unknown,
    /// The projection has not stopped, or has been resumed meanwhile.
    #[error("it has not stopped: there is nothing to skip")]
    Running,
    /// Another node of the cluster runs it.
    #[error("another node runs it: ask that one")]
    Remote,
    /// The projection has stopped at another event.
    #[error("it has stopped at the event {0}, look at that one first")]
    Other(EventOffset),
    /// The projection has stopped, and no event is the reason.
    #[error("it has not stopped at an event: {0}")]
    NoEvent(String),
    /// The decision may not be durable.
    #[error("the decision may not be kept ({0}); ask again")]
    Unavailable(String),
}

/// A request to go past an event.
pub(super) struct Skip {
    pub(super) event: EventOffset,
    by: String,
    reason: String,
    /// Gets the result once the decision is durable, or the reason why it is not.
    pub(super) answer: oneshot::Sender<Result<(), SkipError>>,
}

fn short(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_BYTES_MAX)].to_owned()
}

impl Skip {
    /// Returns a request and the receiver of its result.
    pub(super) fn new(
        event: EventOffset,
        by: &OperatorDecision<'_>,
    ) -> (Self, oneshot::Receiver<Result<(), SkipError>>) {
        let (answer, answered) = oneshot::channel();
        let skip = Self {
            event,
            by: short(&by.by),
            reason: short(&by.reason),
            answer,
        };
        (skip, answered)
    }

    /// Returns the record of the decision, with the reason why the projection had stopped there.
    pub(super) fn decided(&self, why: &str, at: Timestamp) -> Skipped {
        Skipped {
            number: 0,
            event: self.event,
            why: short(why),
            at,
            by: self.by.clone(),
            reason: self.reason.clone(),
        }
    }
}

/// Adds skipped events to those stored with the rows.
pub(super) fn keep(kept: &mut Vec<Skipped>, passed: impl IntoIterator<Item = Skipped>) {
    for skipped in passed {
        let number = kept.last().map_or(0, |last| last.number) + 1;
        kept.push(Skipped { number, ..skipped });
        kept.retain(|one| one.number + KEPT_MAX > number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept_and_the_last_says_how_many_there_were() {
        let by = OperatorDecision::new("ann", "x".repeat(TEXT_BYTES_MAX + 1));
        let mut kept = Vec::new();
        for commit in 1..=20 {
            let event = format!("1.{commit}.0").parse().unwrap();
            let skipped = Skip::new(event, &by).0.decided("it is bad", Timestamp::default());
            keep(&mut kept, [skipped]);
        }
        assert_eq!(kept.len(), 16);
        assert_eq!((kept[0].number, kept[15].number), (5, 20));
        assert_eq!(kept[15].event.to_string(), "1.20.0");
        assert_eq!(kept[15].reason.len(), TEXT_BYTES_MAX);
        let read: Vec<Skipped> = serde_json::from_str(&serde_json::to_string(&kept).unwrap()).unwrap();
        assert_eq!(read, kept);
    }
}
