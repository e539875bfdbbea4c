//! Limits log messages that would repeat by the thousand.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The least time between two log messages.
const PAUSE: Duration = Duration::from_secs(1);

/// Lets one log message a second pass, and counts the others.
#[derive(Debug, Default)]
pub(crate) struct RareLog(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    said: Option<Instant>,
    left_out: u64,
}

/// The number of log messages left out before this one, to be appended to it. Empty if there were none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeftOut(u64);

impl RareLog {
    /// Writes a log message, if enough time has passed.
    pub(crate) fn say(&self, line: impl FnOnce(LeftOut)) {
        let left_out = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .ask(Instant::now());
        if let Some(left_out) = left_out {
            line(left_out);
        }
    }
}

impl State {
    fn ask(&mut self, now: Instant) -> Option<LeftOut> {
        if self
            .said
            .is_some_and(|said| now.saturating_duration_since(said) < PAUSE)
        {
            self.left_out += 1;
            return None;
        }
        self.said = Some(now);
        Some(LeftOut(std::mem::take(&mut self.left_out)))
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            left_out => write!(f, " ({left_out} more since the last such line)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_says_how_many_were_left_out() {
        let (mut state, begun) = (State::default(), Instant::now());
        let mut ask = |millis| {
            state
                .ask(begun + Duration::from_millis(millis))
                .map(|left| left.to_string())
        };
        assert_eq!(ask(0).as_deref(), Some(""));
        assert_eq!((ask(1), ask(999)), (None, None));
        assert_eq!(ask(1_000).as_deref(), Some(" (2 more since the last such line)"));
        assert_eq!(ask(1_500), None);
    }
}
