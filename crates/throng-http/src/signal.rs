//! The signals that ask a service to stop.

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM},
    flag,
    iterator::Signals,
};
use std::{
    io,
    sync::{Arc, atomic::AtomicBool},
    thread,
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

/// The signals that ask a process to end.
const SIGNALS: [i32; 4] = [SIGTERM, SIGINT, SIGHUP, SIGQUIT];

/// SIGTERM, SIGINT (Ctrl-C), SIGHUP (the terminal was closed) and SIGQUIT, each of which requests a graceful stop. The second signal ends
/// the process at once, with exit code 130. SIGHUP stays ignored if the process was started so (`nohup`).
pub struct StopSignal {
    signals: Signals,
    has_come: bool,
}

/// The interval of checks for a signal while waiting for something else, too.
const LOOK: Duration = Duration::from_millis(20);

impl StopSignal {
    /// Starts to watch. The first signal from now on is kept until it is awaited.
    ///
    /// # Errors
    /// [`io::Error`]: the system does not allow signals to be handled.
    pub fn watch() -> io::Result<Self> {
        // First, so that a signal that is handled at all is kept.
        let taken: Vec<i32> = SIGNALS
            .into_iter()
            .filter(|signal| *signal != SIGHUP || !ignores_hangup())
            .collect();
        let signals = Signals::new(&taken)?;
        let asked_before = Arc::new(AtomicBool::new(false));
        for signal in taken {
            // In this order: the first signal finds the flag unset and sets it, the second finds it set.
            flag::register_conditional_shutdown(signal, 130, Arc::clone(&asked_before))?;
            flag::register(signal, Arc::clone(&asked_before))?;
        }
        Ok(Self {
            signals,
            has_come: false,
        })
    }

    /// Blocks until the first signal.
    pub fn wait(mut self) {
        if self.has_come {
            return;
        }
        if let Some(signal) = self.signals.forever().next() {
            tracing::info!("signal {signal}: finishing what is in flight; a second signal ends at once");
        }
    }

    /// True if a signal has arrived.
    pub fn has_come(&mut self) -> bool {
        self.has_come = self.has_come || self.signals.pending().next().is_some();
        self.has_come
    }

    /// Blocks until the first signal, at most so long.
    pub fn wait_within(&mut self, most: Duration) {
        let begun = Instant::now();
        while !self.has_come() && begun.elapsed() < most {
            thread::sleep(LOOK);
        }
    }

    /// Resolves with the first signal.
    ///
    /// # Errors
    /// [`io::Error`]: the system has no thread for the wait.
    pub async fn received(self) -> io::Result<()> {
        let (tell, told) = oneshot::channel();
        thread::Builder::new().name("throng-signals".into()).spawn(move || {
            self.wait();
            // The waiter may have gone.
            let _ = tell.send(());
        })?;
        told.await.map_err(io::Error::other)
    }
}

/// True if this process was started to outlive its terminal.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & (1 << (SIGHUP - 1)) != 0)
}
