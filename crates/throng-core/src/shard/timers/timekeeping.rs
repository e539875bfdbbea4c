//! The timers of a shard, as its driver uses them.

use super::{Due, TimersCount, TimersPage, TimersRead, TimersSet, TimersStored};
use crate::{model::Timestamp, shard::Shard};

impl Shard {
    /// Returns the number of timers, for [`multiplies_timers`](Self::multiplies_timers).
    #[must_use]
    pub fn timers_set(&self) -> TimersSet {
        self.common.timers.mark()
    }

    /// True if the command just executed left more timers than there were before, and its entity, by its hash, has exceeded its credit. An
    /// entity can exceed it by at most a quarter.
    #[must_use]
    pub fn multiplies_timers(&self, before: TimersSet, of: u64) -> bool {
        self.common.timers.multiplies(before, of)
    }

    /// The number of messages sent and not [taken](Self::take_outbox).
    #[must_use]
    pub fn outbox_len(&self) -> usize {
        self.common.outbox.len()
    }

    /// Returns the page of timers that has to be read now; `None` as long as those in memory suffice.
    #[must_use]
    pub fn timers_page(&self, now: Timestamp) -> Option<TimersPage> {
        self.common.timers.page(self.common.id, now)
    }

    /// Takes over a page of timers. `false`: a checkpoint was made meanwhile, and the page has to be read again.
    pub fn timers_read(&mut self, page: &TimersPage, read: TimersRead) -> bool {
        self.common.timers.read(page, read)
    }

    /// Notes that a page of timers could not be read. It is due again later.
    pub fn timers_unread(&mut self, now: Timestamp) {
        self.common.timers.unread(now);
    }

    /// The timers of the shard stand in the store, this many, and each has a row that finds it. None is in memory.
    pub fn timers_in_store(&mut self, count: TimersCount) {
        self.common.timers.in_store(count);
    }

    /// The calls without an outcome, of which the timers in the store were counted, since an older program did not.
    pub fn calls_in_store(&mut self, count: TimersCount) {
        self.common.timers.window.stored.calls = count.calls;
        self.common.timers.calls.has_changed = true;
    }

    /// Tells whether the number of calls without an outcome may have changed since the last call.
    pub fn take_calls_changed(&mut self) -> bool {
        std::mem::take(&mut self.common.timers.calls.has_changed)
    }

    /// Returns by how many the calls of a kind without an outcome have changed since the last call, whether they are in memory or not.
    pub fn book_calls(&mut self, kind: usize) -> i64 {
        let kind = self.registry.kinds()[kind].name;
        let timers = &mut self.common.timers;
        let open = timers.open_calls(kind).cast_signed();
        open - std::mem::replace(timers.calls.booked.entry(kind).or_default(), open)
    }

    /// Notes that all timers of the shard come from the journal. Rows of the store are ignored, and the next checkpoint replaces them.
    pub fn timers_in_journal(&mut self) {
        self.common.timers.in_journal();
    }

    /// Completes the checkpoint of the timers in [`Rows::timers`](crate::shard::Rows::timers). Timers that are due later leave memory if
    /// there are more than twice as many as should be kept.
    pub fn timers_stored(&mut self, stored: &TimersStored, kept: usize) {
        self.common.timers.stored(stored, kept);
    }

    /// Returns the time when the next timer is due, or a page of timers has to be [read](Self::timers_page).
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        self.common.timers.next()
    }

    /// Returns the timers due now, in order. Each has to be executed as a command ([`crate::shard::Cause::Timer`]).
    #[must_use]
    pub fn due(&self, now: Timestamp, limit: usize) -> Vec<Due> {
        self.common.timers.due(now, limit)
    }

    /// Returns true if this timer is still set for that time.
    #[must_use]
    pub fn is_due(&self, due: &Due) -> bool {
        self.common.timers.is_set(&due.address, &due.name, due.at)
    }

    /// Defers a timer that could not be fired because its entity cannot be loaded. The pause grows each time.
    pub fn defer_timer(&mut self, due: &Due, now: Timestamp) {
        self.common.timers.defer(due, now);
    }
}
