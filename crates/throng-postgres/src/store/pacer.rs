//! Keeps a checkpoint to its pace, by comparing the progress with the time that has passed.

use std::time::{Duration, Instant};
use throng_journal::Pace;

/// The interval of checks during a pause, because the checkpoint may become urgent.
const LOOK: Duration = Duration::from_millis(20);
/// The bytes of commits read and sent at once: few while there is time, so that other work need not wait long for a processor.
const BATCH_BYTES: usize = 8 << 20;
const BATCH_BYTES_PACED: usize = 64 << 10;

/// A part of a checkpoint's work.
pub(super) struct Pacer<'a> {
    pace: &'a Pace,
    begun: Instant,
    /// The beginning and end of this part in the whole, which goes from 0 to 1.
    from: f64,
    to: f64,
}

impl<'a> Pacer<'a> {
    pub(super) fn new(pace: &'a Pace) -> Self {
        Self {
            pace,
            begun: Instant::now(),
            from: 0.0,
            to: 1.0,
        }
    }

    /// A part of this part.
    pub(super) fn part(&self, from: f64, to: f64) -> Self {
        let at = |share: f64| self.from + (self.to - self.from) * share.clamp(0.0, 1.0);
        Self {
            from: at(from),
            to: at(to),
            ..*self
        }
    }

    /// Waits if the part is further (`done`, 0 to 1) than its time.
    pub(super) async fn keep(&self, done: f64) {
        let done = self.part(0.0, done).to;
        loop {
            let pause = self.pace.pause(done, self.begun.elapsed());
            if pause.is_zero() {
                return;
            }
            tokio::time::sleep(pause.min(LOOK)).await;
        }
    }

    /// Bytes of commits to take at once.
    pub(super) fn batch_bytes(&self) -> usize {
        // Late at the very end: there is no time to spare.
        if self.pace.pause(1.0, self.begun.elapsed()).is_zero() {
            BATCH_BYTES
        } else {
            BATCH_BYTES_PACED
        }
    }
}
