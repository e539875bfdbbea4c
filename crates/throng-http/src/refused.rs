//! Refused connections, for the log: at most one line a second.

use std::{
    io,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

const TOLD_EVERY: Duration = Duration::from_secs(1);

/// Counts of refusals. All loops increase them; the loop that sweeps next logs them.
#[derive(Default)]
pub(crate) struct Refused {
    over_limits: AtomicU64,
    failed: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    told: Option<Instant>,
    why: Option<String>,
}

impl Refused {
    /// Counts a connection that was refused because of a limit.
    pub(crate) fn count(&self) {
        self.over_limits.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection that could not be taken.
    pub(crate) fn fails(&self, why: &io::Error) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        self.state.lock().unwrap_or_else(PoisonError::into_inner).why = Some(why.to_string());
    }

    /// Logs what has gathered, if it is time.
    pub(crate) fn tell(&self, now: Instant, most: usize) {
        let (over_limits, failed, why) = self.due(now);
        if over_limits > 0 {
            tracing::warn!("{over_limits} connections were refused: there are as many as may be, {most} in all");
        }
        if failed > 0 {
            let why = why.unwrap_or_default();
            tracing::warn!(
                "the system gave no connection, {failed} times: {why}; they wait (raise its limit: ulimit -n)"
            );
        }
    }

    fn due(&self, now: Instant) -> (u64, u64, Option<String>) {
        let nothing = (0, 0, None);
        if self.over_limits.load(Ordering::Relaxed) + self.failed.load(Ordering::Relaxed) == 0 {
            return nothing;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state
            .told
            .is_some_and(|told| now.saturating_duration_since(told) < TOLD_EVERY)
        {
            return nothing;
        }
        state.told = Some(now);
        let count = |counted: &AtomicU64| counted.swap(0, Ordering::Relaxed);
        (count(&self.over_limits), count(&self.failed), state.why.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_together_once_a_second() {
        let (refused, now) = (Refused::default(), Instant::now());
        assert_eq!(refused.due(now), (0, 0, None));
        (0..7).for_each(|_| refused.count());
        assert_eq!(refused.due(now), (7, 0, None));
        refused.count();
        refused.fails(&io::Error::other("no files"));
        assert_eq!(refused.due(now + TOLD_EVERY / 2), (0, 0, None));
        assert_eq!(refused.due(now + TOLD_EVERY), (1, 1, Some("no files".into())));
        assert_eq!(refused.due(now + 2 * TOLD_EVERY), (0, 0, None));
    }
}
