//! The values that entities publish: to listeners of this moment, at most once, and not before they are durable.

use super::GroupCommit;
use std::sync::PoisonError;
use throng_core::model::Published;

/// Values that wait for their commits; those beyond are lost, and counted as `published.lost`.
const WAITING_MAX: usize = 65_536;

impl GroupCommit {
    /// Takes what commands under a shard's lock have published, each with the commit it rests on.
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
        // Its commit may have landed meanwhile.
        self.publish_durable();
    }

    /// Publishes what has become durable.
    pub(super) fn publish_durable(&self) {
        // With the queue locked, so that all comes in its order.
        let mut waiting = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        let durable = self.open.durable();
        while let Some((_, published)) = waiting.pop_front_if(|(rests_on, _)| *rests_on <= durable) {
            self.context.topics.publish(published);
        }
    }
}
