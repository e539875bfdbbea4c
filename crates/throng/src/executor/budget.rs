//! Admission of work to execution. All execution draws on one budget.
//! Its parts are the open commit's bytes, the memory for what cannot be given away, and a hot entity's share of a batch.
//! Work from outside is refused when it would wait too long. Work between entities waits as long as it takes: it is in the log.
//! Operators have a reserve: they mend what work from outside is refused for.

use super::{
    Execution, Executor,
    attempt::{Attempt, ShardExecution, Wait},
    batch, share,
};
use crate::commit::{Origin, Refusal};
use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};
use throng_core::{model::Error, shard::Shard};

/// The part of the memory, one in so many, that data on its way to the store may take. Beyond it, a checkpoint begins at once.
pub(crate) const PENDING_PART: i64 = 8;
/// A shard books its bytes once they differ by this part of the budget, a power of two: all shards together by a 256th.
const BOOK_SHIFT: u32 = 16;
/// The most bytes of entities passivated after one command, unless it brought more: storing their states takes its loop's time.
const PASSIVATED_BYTES: usize = 64 << 10;
/// A shard may keep an entity that has fewer bytes, whatever the budget.
const LARGE_BYTES_MIN: usize = 64 << 10;
/// When to come again while what waits for the store fills the memory.
const STORE_RETRY: Duration = Duration::from_secs(1);
/// When to come again while messages between entities fill their room.
const OUTBOX_RETRY: Duration = Duration::from_millis(200);
/// When to come again while the journal has no room.
pub(crate) const ROOM_RETRY: Duration = Duration::from_secs(1);

/// Returns the bytes that a shard passivates. The budget is exceeded by `over`; the shard holds `held` bytes, `more` of them new.
/// The shard passivates no more than its share: the others give theirs when they are used. It goes in small parts, but faster than it grew.
fn passivated(over: usize, held: usize, more: usize) -> usize {
    over.min(held / 4).min(PASSIVATED_BYTES.max(more * 2)).max(1)
}

impl Executor {
    /// Admits an attempt to execution, or says why it has to wait or is refused.
    //= promise 9: everything is bounded
    pub(super) fn budget(&self, attempt: &mut Attempt<'_>) -> Result<(), ShardExecution> {
        if attempt.is_admitted {
            return Ok(());
        }
        let origin = attempt.origin();
        let from_outside = origin == Origin::Outside;
        match origin {
            Origin::Outside => self.bounds().map_err(Execution::Refused)?,
            Origin::Operator => self.operator_bounds().map_err(Execution::Refused)?,
            Origin::Inside => {}
        }
        if from_outside && !attempt.only_reads() && self.outbox.is_spent(attempt.target.hash) {
            return Err(Execution::Refused(self.overloaded(OUTBOX_RETRY)));
        }
        if origin != Origin::Inside && !attempt.only_reads() {
            self.context.may_change().map_err(Execution::Refused)?;
        }
        if let Some(number) = self.group_commit.full_commit(origin) {
            let wait = self.group_commit.commit_wait();
            if from_outside && wait > self.context.options.wait_max {
                return Err(Execution::Refused(self.overloaded(wait)));
            }
            batch::wake_committer(&self.context);
            return Err(Execution::Wait(Wait::Commit(number)));
        }
        if from_outside && !attempt.has_share && share::may_be_hot(attempt.target.hash) {
            match batch::enter_share(&self.context, attempt.target.hash) {
                share::Entry::Go => {}
                share::Entry::Wait(ticket) => return Err(Execution::Wait(Wait::Share(ticket))),
                share::Entry::Refuse(wait) => return Err(Execution::Refused(self.overloaded(wait))),
            }
        }
        attempt.is_admitted = true;
        Ok(())
    }

    /// Refuses work from outside at once where the engine stops, or lacks room on the disk or in memory.
    fn bounds(&self) -> Result<(), Refusal> {
        self.refuse_stopping()?;
        if !self.context.has_room() {
            return Err(self.storage_full());
        }
        if self.pending_bytes() > self.memory() / 2 {
            self.context.signals.checkpoint.wake();
            return Err(self.overloaded(STORE_RETRY));
        }
        if self.outbox.is_full() {
            return Err(self.overloaded(OUTBOX_RETRY));
        }
        Ok(())
    }

    /// Refuses an operator's work. Such work needs room on the disk, but none of what the journal may take of it.
    //= promise 9: everything is bounded
    fn operator_bounds(&self) -> Result<(), Refusal> {
        self.refuse_stopping()?;
        match self.context.journal.has_room() {
            true => Ok(()),
            false => Err(self.storage_full()),
        }
    }

    fn refuse_stopping(&self) -> Result<(), Refusal> {
        if !self.context.is_stopping() {
            return Ok(());
        }
        self.context.metrics.unavailable.inc();
        Err(Error::Unavailable {
            reason: "the engine is stopping".into(),
        })
    }

    fn storage_full(&self) -> Refusal {
        self.context.metrics.storage_full.inc();
        Error::StorageFull {
            retry_after: ROOM_RETRY,
        }
    }

    pub(super) fn overloaded(&self, retry_after: Duration) -> Refusal {
        self.context.metrics.overloaded.inc();
        Error::Overloaded { retry_after }
    }

    /// Returns the memory that entities may take: the budget less what others of the process hold.
    /// At least half of the budget is left.
    fn memory_left(&self) -> i64 {
        let outside = self.context.budget.held();
        let memory = self.context.options.memory_bytes_max;
        i64::try_from(memory - outside.min(memory / 2)).unwrap_or(i64::MAX)
    }

    fn memory(&self) -> i64 {
        i64::try_from(self.context.options.memory_bytes_max).unwrap_or(i64::MAX)
    }

    pub(crate) fn pending_bytes(&self) -> i64 {
        self.books.pending_bytes.load(Ordering::Relaxed)
    }

    /// A checkpoint took so many of the pending bytes, or none any more.
    pub(crate) fn set_storing(&self, bytes: i64) {
        self.books.storing_bytes.store(bytes, Ordering::Relaxed);
    }

    /// More memory than should be holds what waits for the next checkpoint.
    pub(crate) fn needs_checkpoint(&self) -> bool {
        self.pending_bytes() - self.books.storing_bytes.load(Ordering::Relaxed) > self.memory() / PENDING_PART
    }

    /// Keeps the memory's books, and the memory within its budget.
    pub(crate) fn balance(&self, shard: &mut Shard) {
        let load = shard.load();
        // Small changes are booked together: the books are every thread's.
        let budget = self.memory_left();
        let booked = self.books.bytes.load(Ordering::Relaxed) + self.books.pending_bytes.load(Ordering::Relaxed);
        if booked <= budget && !shard.differs(load, self.context.options.memory_bytes_max >> BOOK_SHIFT) {
            return;
        }
        let add = |total: &AtomicI64, delta: i64| {
            if delta == 0 {
                total.load(Ordering::Relaxed)
            } else {
                total.fetch_add(delta, Ordering::Relaxed) + delta
            }
        };
        let delta = shard.book(load);
        add(&self.books.entities, delta.entities);
        let pending = add(&self.books.pending_bytes, delta.pending_bytes);
        let bytes = add(&self.books.bytes, delta.bytes);
        if bytes + pending > budget && load.entities > 1 {
            let over = usize::try_from(bytes + pending - budget).unwrap_or_default();
            let bytes = passivated(over, load.bytes, usize::try_from(delta.bytes).unwrap_or_default());
            shard.passivate(bytes, self.group_commit.durable().commit);
            let delta = shard.book(shard.load());
            add(&self.books.entities, delta.entities);
            add(&self.books.bytes, delta.bytes);
            add(&self.books.pending_bytes, delta.pending_bytes);
        }
        // A checkpoint puts away what no shard may put away by itself.
        let is_far_over = load.entities == 1 && bytes + pending > budget + budget / 4;
        let is_far_over = is_far_over && shard.has_large(self.large_bytes());
        if is_far_over || self.needs_checkpoint() {
            self.context.signals.checkpoint.wake();
        }
    }

    /// The bytes of an entity that are more than a shard's even share of the budget.
    fn large_bytes(&self) -> usize {
        let shards = i64::from(self.context.registry.shards().max(1));
        usize::try_from(self.memory_left() / shards).map_or(LARGE_BYTES_MIN, |share| share.max(LARGE_BYTES_MIN))
    }

    /// Beyond the budget, puts away also the entity that a shard has used last, if it is a large one: otherwise each shard would keep one.
    pub(crate) fn put_away_large(&self, shard: &mut Shard) {
        let booked = self.books.bytes.load(Ordering::Relaxed) + self.books.pending_bytes.load(Ordering::Relaxed);
        if booked > self.memory_left() {
            shard.passivate_large(self.large_bytes());
            self.balance(shard);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_pays_for_few_evictions() {
        const MB: usize = 1 << 20;
        assert_eq!(passivated(100 * MB, 40 * MB, 300), PASSIVATED_BYTES);
        assert_eq!(
            passivated(100 * MB, 40 * MB, 5 * MB),
            10 * MB,
            "it gives more than it took"
        );
        assert_eq!(passivated(100 * MB, 4 * MB, 5 * MB), MB, "and not what it works with");
        assert_eq!(passivated(1_000, 40 * MB, 300), 1_000);
        assert_eq!(passivated(0, 0, 0), 1);
    }
}
