//! Work that this program does not understand, but a newer release of the service may: it is refused, or waits.

use super::{AnswerSlot, Attempt, Execution, Executor, ShardExecution, Wait, Work};
use throng_core::{model::Error, shard::Outcome};

impl Executor {
    /// True if work that this program does not understand should wait for a newer release, if there is one.
    pub(super) fn may_wait(&self, attempt: &Attempt<'_>) -> bool {
        self.context.peers.is_some() && !attempt.is_final
    }

    /// Handles an attempt that this program does not understand. Work from inside waits. Work from outside gets an error; if no newer
    /// release is known, it is tried again as final.
    pub(super) fn not_understood(&self, attempt: &mut Attempt<'_>, why: String) -> ShardExecution {
        if !attempt.is_from_outside() {
            return Execution::Wait(Wait::Upgrade(why));
        }
        let Some(error) = self.context.left_to_upgrade(&why) else {
            attempt.is_final = true;
            return Execution::Wait(Wait::Next);
        };
        attempt.answer.put(Err(error));
        Execution::Done(Outcome::Failed)
    }

    /// Leaves a query that this program could not answer to a newer one, too.
    pub(super) fn left_to_upgrade(&self, attempt: &mut Attempt<'_>) {
        if let (Work::Query { .. }, AnswerSlot::Json(reply)) = (&attempt.work, &mut attempt.answer)
            && let Some(error) = &mut reply.error
            && matches!(**error, Error::Malformed(_) | Error::Quarantined { .. })
            && let Some(left) = self.context.left_to_upgrade(&error.to_string())
        {
            **error = left;
        }
    }
}
