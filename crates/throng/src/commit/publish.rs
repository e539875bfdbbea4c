//! The values that entities publish. Present listeners get them at most once, and only when they are durable.

use super::GroupCommit;
use std::sync::PoisonError;
use throng_core::model::Published;

/// The most values that wait for their commits. Those beyond are lost, and counted as `published.lost`.
const WAITING_MAX: usize = 65_536;

impl GroupCommit {
    /// Takes the values that commands under a shard's lock have published, each with the commit it rests on.
    //= promise 3: answers rest on durable events
    pub(crate) fn publish(&self, published: Vec<(u64, Published)>) {
        let count = published.len();
        let taken = {
            let mut waiting = self.published.lock().unwrap_or_else(PoisonError::into_inner);
            let taken = count.min(WAITING_MAX - waiting.len());
            waiting.extend(published.into_iter().take(taken));
            taken
        };
        if taken < count {
            let lost = self.context.stats.counter("published.lost");
            lost.add((count - taken) as u64);
        }
        // The commit may have landed meanwhile.
        self.publish_durable();
    }

    /// Publishes the values that have become durable.
    pub(super) fn publish_durable(&self) {
        // The queue stays locked, so that values leave in its order.
        let mut waiting = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        let durable = self.open.durable();
        while let Some((_, published)) = waiting.pop_front_if(|(rests_on, _)| *rests_on <= durable) {
            self.context.topics.publish(published);
        }
    }
}
