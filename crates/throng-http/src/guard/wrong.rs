//! Wrong credentials: the delay for an address that sends many, and the log lines about their causes.

use crate::{
    admission::Client,
    clients::Rate,
    places::{Places, Taken},
};
use std::{
    collections::HashMap,
    num::NonZeroU32,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The wrong credentials of an address in a second from which on their answers are delayed.
const WRONG_A_SECOND: Option<NonZeroU32> = NonZeroU32::new(100);
/// Answers that are held back at a time.
const WRONG_WAITING_MAX: usize = 1_024;
/// A cause is logged once in this time.
const LOGGED_EVERY: Duration = Duration::from_secs(60);
/// The most causes that are logged separately.
const CAUSES_MAX: usize = 64;

/// Requests that were refused for their credentials.
pub(crate) struct Wrong {
    /// Refusals of each address, as often as it may ask.
    pub(crate) refused: Option<Rate>,
    shown: Option<Rate>,
    waiting: Places,
    causes: Mutex<HashMap<String, Cause>>,
}

/// The last log line about a cause, and the number of occurrences since.
struct Cause {
    logged: Instant,
    count: u64,
}

impl Wrong {
    pub(crate) fn new(a_second: Option<NonZeroU32>) -> Self {
        Self {
            refused: Rate::new(a_second),
            shown: Rate::new(WRONG_A_SECOND),
            waiting: Places::new(WRONG_WAITING_MAX),
            causes: Mutex::default(),
        }
    }

    /// Counts a cause; returns the number since its last line, if it is time for another one.
    pub(crate) fn logs(&self, cause: &str, now: Instant) -> Option<u64> {
        let mut causes = self.causes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = causes.get_mut(cause) {
            known.count += 1;
            let is_due = now.saturating_duration_since(known.logged) >= LOGGED_EVERY;
            return is_due.then(|| {
                known.logged = now;
                std::mem::take(&mut known.count)
            });
        }
        if causes.len() >= CAUSES_MAX {
            return None;
        }
        let (logged, count) = (now, 0);
        causes.insert(cause.to_owned(), Cause { logged, count });
        Some(1)
    }

    /// Returns a place to wait in, if this address has sent too many wrong credentials.
    pub(crate) fn holds_back(&self, client: Client, now: Instant) -> Option<Taken> {
        let rate = self.shown.as_ref()?;
        rate.take(client, now).is_err().then(|| self.waiting.take()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cause_is_logged_once_a_minute_with_its_count() {
        let (wrong, now) = (Wrong::new(None), Instant::now());
        assert_eq!(wrong.logs("a", now), Some(1));
        for _ in 0..5 {
            assert_eq!(wrong.logs("a", now), None);
        }
        assert_eq!(wrong.logs("b", now), Some(1), "another cause");
        assert_eq!(wrong.logs("a", now + LOGGED_EVERY), Some(6));
        for number in 0..1_000 {
            wrong.logs(&number.to_string(), now);
        }
        assert_eq!(wrong.causes.lock().unwrap().len(), CAUSES_MAX);
    }

    #[test]
    fn wrong_tokens_beyond_a_rate_are_held_back_in_a_bounded_number() {
        let (wrong, now) = (Wrong::new(None), Instant::now());
        let held: Vec<_> = (0..3_000).filter_map(|_| wrong.holds_back(7, now)).collect();
        assert_eq!(held.len(), WRONG_WAITING_MAX);
        assert!(wrong.holds_back(8, now).is_none(), "another address shows its first");
    }
}
