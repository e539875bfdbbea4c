//! SIGTERM and SIGINT.

use anyhow::Context as _;
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    flag,
    iterator::Signals,
};
use std::{
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};

/// The signals that ask for a graceful end; the second one ends the process at once.
pub(crate) struct End {
    signals: Signals,
    has_come: bool,
}

/// Between two looks whether a signal has come, where something else is waited for too.
const LOOK: Duration = Duration::from_millis(20);

impl End {
    /// From here on the first signal is kept until it is waited for.
    pub(crate) fn watch() -> anyhow::Result<Self> {
        let asked_before = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            // In this order: the first signal finds the flag down and raises it, the second finds it up.
            flag::register_conditional_shutdown(signal, 130, Arc::clone(&asked_before))
                .context("cannot watch for signals")?;
            flag::register(signal, Arc::clone(&asked_before)).context("cannot watch for signals")?;
        }
        Ok(Self {
            signals: Signals::new([SIGTERM, SIGINT]).context("cannot watch for signals")?,
            has_come: false,
        })
    }

    /// Whether one has come.
    pub(crate) fn has_come(&mut self) -> bool {
        self.has_come = self.has_come || self.signals.pending().next().is_some();
        self.has_come
    }

    /// Waits for the first, at most so long.
    pub(crate) fn wait_within(&mut self, most: Duration) {
        let begun = Instant::now();
        while !self.has_come() && begun.elapsed() < most {
            std::thread::sleep(LOOK);
        }
    }

    /// Waits for the first.
    pub(crate) fn wait(mut self) {
        self.signals.forever().next();
    }
}
