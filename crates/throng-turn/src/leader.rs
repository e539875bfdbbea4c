//! At most one leads.

use crate::sync::{AtomicBool, Mutex, Ordering, fence, try_lock};

/// Lets at most one thread do a piece of work; nobody waits for it, and no request for it is lost.
pub struct Leader {
    lock: Mutex<()>,
    wanted: AtomicBool,
}

impl Default for Leader {
    fn default() -> Self {
        Self {
            lock: Mutex::new(()),
            wanted: AtomicBool::new(false),
        }
    }
}

impl Leader {
    /// A leader's place, free.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Does the work, again if it was asked for meanwhile; or, if somebody is at it, asks them to look again.
    pub fn lead(&self, mut work: impl FnMut()) {
        // Swaps, not stores: each reads the request it covers, and so whoever leads sees what all of them came with.
        self.wanted.swap(true, Ordering::SeqCst);
        loop {
            fence(Ordering::SeqCst);
            let Some(guard) = try_lock(&self.lock) else { return };
            self.wanted.swap(false, Ordering::SeqCst);
            work();
            drop(guard);
            fence(Ordering::SeqCst);
            if !self.wanted.load(Ordering::SeqCst) {
                return;
            }
        }
    }
}
