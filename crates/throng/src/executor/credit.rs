//! An entity that multiplies: what it sends, or the timers it sets, come back to it, and it answers each with more of the same.

use super::{Attempt, Executor, Target};
use crate::commit::{Origin, Staging};
use throng_core::{
    limits,
    shard::{OperatorDecision, Shard, TimersSet},
};

/// The engine's name among those of operators.
const ENGINE: &str = "the engine";

impl Executor {
    /// Tells why an entity has to be stopped that was executed just now; what it has sent is still its shard's. It had spent its credit before,
    /// and a message or timer made it cause more than it has done.
    pub(super) fn spends_too_much(&self, shard: &Shard, attempt: &Attempt<'_>, before: TimersSet) -> Option<String> {
        if attempt.origin() != Origin::Inside {
            return None;
        }
        if shard.outbox_len() > 1 && self.outbox.comes_back(attempt.target.hash) {
            return Some(
                "it multiplies: too many of its own messages wait, and each that it takes has it send several".into(),
            );
        }
        let multiplies = shard.multiplies_timers(before, attempt.target.hash);
        multiplies.then(|| {
            format!(
                "it multiplies: it has set more than {} timers, and each that fires has it set several",
                limits::TIMERS_CREDIT
            )
        })
    }

    /// Quarantines an entity as an operator does, who releases it.
    pub(super) fn quarantine_by_engine(
        &self,
        shard: &mut Shard,
        target: &Target<'_>,
        reason: String,
        staging: &mut Staging<'_>,
    ) {
        let (of, now) = (self.address(target), self.context.host.now());
        let by = OperatorDecision::new(ENGINE, reason);
        if shard.quarantine_by_operator(&of, now, &by, staging).is_some() {
            tracing::error!(
                "{of} is quarantined by {}: {}; an operator may drop its messages and release it",
                by.by,
                by.reason
            );
            self.outbox.quarantine(&of, &by.reason, now);
        }
    }
}
