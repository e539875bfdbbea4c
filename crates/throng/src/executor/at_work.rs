//! The command that a shard is at.

use std::sync::atomic::{AtomicU64, Ordering};

/// The command that a shard executes now. Written by the holder of the shard's lock, read by the watchdog.
#[derive(Default)]
pub(super) struct AtWork {
    /// Since when, microseconds of the engine's clock plus one; 0: nothing.
    pub(super) since: AtomicU64,
    pub(super) kind: AtomicU64,
    /// The first bytes of the id.
    id: [AtomicU64; 4],
}

impl AtWork {
    pub(super) fn begin(&self, since: u64, kind: usize, id: &str) {
        self.kind.store(kind as u64, Ordering::Relaxed);
        let mut bytes = [0; 32];
        let shown = id.len().min(bytes.len());
        bytes[..shown].copy_from_slice(&id.as_bytes()[..shown]);
        for (word, bytes) in self.id.iter().zip(bytes.as_chunks::<8>().0) {
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        self.since.store(since + 1, Ordering::Release);
    }

    pub(super) fn end(&self) {
        self.since.store(0, Ordering::Release);
    }

    pub(super) fn id(&self) -> String {
        let bytes: Vec<u8> = self
            .id
            .iter()
            .flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes())
            .collect();
        let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watchdog_reads_the_record_of_the_lock_holder() {
        let at_work = AtWork::default();
        at_work.begin(7, 3, "C S 142-1");
        assert_eq!(
            (at_work.since.load(Ordering::Acquire), at_work.id()),
            (8, "C S 142-1".into())
        );
        at_work.begin(8, 3, &"x".repeat(40));
        assert_eq!(at_work.id(), "x".repeat(32));
        at_work.end();
        assert_eq!(at_work.since.load(Ordering::Acquire), 0);
    }
}
