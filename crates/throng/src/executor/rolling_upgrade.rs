//! Work that this program does not understand, and a newer release of the service may: it is refused, or waits.

use super::{AnswerSlot, Attempt, Execution, Executor, ShardExecution, Wait, Work};
use throng_core::{model::Error, shard::Outcome};

impl Executor {
    /// Returns whether work that this program does not understand waits for a newer release, should there be one.
    pub(super) fn may_wait(&self, attempt: &Attempt<'_>) -> bool {
        self.context.peers.is_some() && !attempt.is_final
    }

    /// Settles an attempt that this program does not understand, and a newer release may. Work from inside waits.
    /// Work from outside is answered with an error, or tried again as final if no newer release is known.
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

    /// A query that this program could not answer is left to a newer one, too.
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
