//! The pace of checkpoints.

use std::{fmt, sync::Arc, time::Duration};

/// The pace of a checkpoint: at once (the default), or spread over a time, so that it takes little from other work. A store with cheap
/// checkpoints may ignore it.
#[derive(Clone, Default)]
pub struct Pace {
    within: Duration,
    is_urgent: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
}

impl Pace {
    /// Returns a pace that spreads the work over this time, until it becomes urgent because a caller waits or too much gathers meanwhile.
    pub fn within(within: Duration, is_urgent: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self {
            within,
            is_urgent: Some(Arc::new(is_urgent)),
        }
    }

    /// Returns the pause due after a part of the work (`done`, 0 to 1) took this time. A caller that pauses asks again every few
    /// milliseconds, because the work may become urgent.
    #[must_use]
    pub fn pause(&self, done: f64, took: Duration) -> Duration {
        match &self.is_urgent {
            Some(is_urgent) if !is_urgent() => self.within.mul_f64(done.clamp(0.0, 1.0)).saturating_sub(took),
            _ => Duration::ZERO,
        }
    }
}

impl fmt::Debug for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pace")
            .field("within", &self.within)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    #[test]
    fn it_keeps_step_with_the_time_until_it_is_urgent() {
        let seconds = Duration::from_secs;
        let urgent = Arc::new(AtomicBool::new(false));
        let asked = urgent.clone();
        let pace = Pace::within(seconds(10), move || asked.load(Relaxed));
        assert_eq!(
            pace.pause(0.5, seconds(2)),
            seconds(3),
            "half is done three seconds early"
        );
        assert_eq!(pace.pause(0.5, seconds(6)), Duration::ZERO, "it is late");
        urgent.store(true, Relaxed);
        assert_eq!(pace.pause(0.5, seconds(2)), Duration::ZERO);
        assert_eq!(Pace::default().pause(1.0, Duration::ZERO), Duration::ZERO);
    }
}
