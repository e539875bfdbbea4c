//! The timers of a shard, as its driver asks for them.

use super::{Due, TimersCount, TimersPage, TimersRead, TimersSet, TimersStored};
use crate::{model::Timestamp, shard::Shard};

impl Shard {
    /// Remembers how many timers there are, for [`multiplies_timers`](Self::multiplies_timers).
    #[must_use]
    pub fn timers_set(&self) -> TimersSet {
        self.common.timers.mark()
    }

    /// Tells whether the command just executed left more timers than there were before, and its entity, by its hash, has more than its credit.
    /// An entity goes on for at most a quarter of the credit beyond it.
    #[must_use]
    pub fn multiplies_timers(&self, before: TimersSet, of: u64) -> bool {
        self.common.timers.multiplies(before, of)
    }

    /// The number of messages sent and not [taken](Self::take_outbox).
    #[must_use]
    pub fn outbox_len(&self) -> usize {
        self.common.outbox.len()
    }

    /// The page of timers that has to be read by now; none as long as those in memory last.
    #[must_use]
    pub fn timers_page(&self, now: Timestamp) -> Option<TimersPage> {
        self.common.timers.page(self.common.id, now)
    }

    /// Takes a page of timers over. `false`: a checkpoint was made meanwhile, and it has to be read anew.
    pub fn timers_read(&mut self, page: &TimersPage, read: TimersRead) -> bool {
        self.common.timers.read(page, read)
    }

    /// Notes that a page of timers could not be read: it is due again later.
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

    /// All timers of the shard come from the journal. Rows of the store do not count, and the next checkpoint replaces them.
    pub fn timers_in_journal(&mut self) {
        self.common.timers.in_journal();
    }

    /// The checkpoint that took the timers of [`Rows::timers`](crate::shard::Rows::timers) is done. Timers that are due later
    /// leave memory if there are more than twice as many as are to be kept.
    pub fn timers_stored(&mut self, stored: &TimersStored, kept: usize) {
        self.common.timers.stored(stored, kept);
    }

    /// The time when the next timer is due, or a page of timers is to be [read](Self::timers_page).
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        self.common.timers.next()
    }

    /// Timers due now, in the order they are due. Each has to be run as a command ([`crate::shard::Cause::Timer`]).
    #[must_use]
    pub fn due(&self, now: Timestamp, limit: usize) -> Vec<Due> {
        self.common.timers.due(now, limit)
    }

    /// Returns true if this timer is still set for that time.
    #[must_use]
    pub fn is_due(&self, due: &Due) -> bool {
        self.common.timers.is_set(&due.address, &due.name, due.at)
    }

    /// A timer that is due could not be fired, because its entity cannot be loaded: it is tried again later, and later each
    /// time.
    pub fn defer_timer(&mut self, due: &Due, now: Timestamp) {
        self.common.timers.defer(due, now);
    }
}
