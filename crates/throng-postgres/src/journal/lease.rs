//! The lease of a writer's engine, during which it may answer reads. Another engine that takes over waits for its end.

use rustix::time::{ClockId, clock_gettime};
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};
use throng_journal::WriterId;

/// Returns microseconds since the machine's start, including its sleep, so that a lease ends during a sleep.
pub(super) fn boot_micros() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec.cast_unsigned() * 1_000_000 + now.tv_nsec.cast_unsigned() / 1_000
}

/// This process's knowledge of its own lease.
pub(super) struct Lease {
    /// The length; zero: there are no leases.
    pub(super) length: Duration,
    /// The writer that has the lease; 0: none. `begin` stores it after `until`, so that a reader that sees the writer also sees its time;
    /// `end` clears it.
    writer: AtomicU64,
    /// The end of the lease, on the clock of [`boot_micros`]. `renew` only raises it: a late answer does not shorten it.
    until: AtomicU64,
    /// The newest writer that another engine has sealed; 0: none. Written when the server says so.
    taken_over: AtomicU64,
}

impl Lease {
    pub(super) fn new(length: Duration) -> Self {
        Self {
            length,
            writer: AtomicU64::new(0),
            until: AtomicU64::new(0),
            taken_over: AtomicU64::new(0),
        }
    }

    /// True if the writer's engine may answer now.
    pub(super) fn holds(&self, writer: WriterId) -> bool {
        if self.writer.load(Ordering::Acquire) != writer.0 {
            return false;
        }
        self.length.is_zero() || boot_micros() < self.until.load(Ordering::Acquire)
    }

    /// True if another engine is known to have sealed the writer.
    pub(super) fn is_taken_over(&self, writer: WriterId) -> bool {
        self.taken_over.load(Ordering::Acquire) == writer.0
    }

    /// The writer that has it; 0: none.
    pub(super) fn writer(&self) -> u64 {
        self.writer.load(Ordering::Acquire)
    }

    /// Notes that the server has confirmed the writer's engine at or after this time.
    pub(super) fn renew(&self, writer: WriterId, asked_micros: u64) {
        if self.writer() == writer.0 {
            // The next lease, requested later, may have begun meanwhile.
            self.until.fetch_max(self.from(asked_micros), Ordering::AcqRel);
        }
    }

    fn from(&self, asked_micros: u64) -> u64 {
        asked_micros + self.length.as_micros() as u64
    }

    pub(super) fn begin(&self, writer: WriterId, asked_micros: u64) {
        self.until.store(self.from(asked_micros), Ordering::Release);
        self.writer.store(writer.0, Ordering::Release);
    }

    /// Notes that another engine has sealed the writer, whose lease has ended here.
    pub(super) fn is_over_by_another(&self, writer: WriterId) {
        self.taken_over.store(writer.0, Ordering::Release);
    }

    pub(super) fn end(&self, writer: WriterId) -> bool {
        self.writer
            .compare_exchange(writer.0, 0, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }
}
