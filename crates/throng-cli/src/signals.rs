//! SIGTERM and SIGINT.

use anyhow::Context as _;
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    flag,
    iterator::Signals,
};
use std::sync::{Arc, atomic::AtomicBool};

/// The signals that ask for a graceful end; the second one ends the process at once.
pub(crate) struct End(Signals);

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
        Ok(Self(
            Signals::new([SIGTERM, SIGINT]).context("cannot watch for signals")?,
        ))
    }

    /// Waits for the first.
    pub(crate) fn wait(mut self) {
        self.0.forever().next();
    }
}
