//! A budget of retries, without a clock: the caller passes the time since some start.

use std::time::Duration;

/// A retry, in parts: a hundredth for each percent, a millionth of that for each microsecond.
const RETRY: i64 = 100 * PERCENT;
const PERCENT: i64 = 1_000_000;
/// The stretch that the budget looks back on.
const STRETCH_SECONDS: i64 = 10;
/// Retries that a budget without a floor may save up.
const SAVED_MAX: i64 = 100;
const A_SECOND_MAX: u32 = 1 << 20;

/// The permitted retries: a part of the first attempts, and a few a second.
#[derive(Clone, Debug)]
pub struct RetryTokens {
    percent: i64,
    /// Parts of a retry in a microsecond.
    floor: i64,
    /// Negative after [`charge`](RetryTokens::charge).
    parts: i64,
    parts_max: i64,
    since: Duration,
}

impl RetryTokens {
    /// Returns a budget of this many retries for a hundred first attempts, and this many a second. The latter can gather for ten seconds.
    #[must_use]
    pub fn new(percent: u32, a_second: u32) -> Self {
        let a_second = i64::from(a_second.min(A_SECOND_MAX));
        let at_once = a_second * STRETCH_SECONDS * RETRY;
        Self {
            percent: i64::from(percent),
            floor: a_second * RETRY / 1_000_000,
            parts: at_once,
            parts_max: at_once.max(SAVED_MAX * RETRY),
            since: Duration::ZERO,
        }
    }

    /// Counts a first attempt, which adds to the budget.
    pub fn deposit(&mut self) {
        self.add(self.percent * PERCENT);
    }

    /// Takes a retry out of the budget.
    ///
    /// # Errors
    /// There is none left. The error is the time after which there will be one, unless first attempts add some before.
    pub fn withdraw(&mut self, now: Duration) -> Result<(), Duration> {
        let micros = i64::try_from(now.saturating_sub(self.since).as_micros()).unwrap_or(i64::MAX);
        self.since = self.since.max(now);
        self.add(micros.saturating_mul(self.floor));
        if self.parts >= RETRY {
            self.charge();
            return Ok(());
        }
        let micros = (RETRY - self.parts).checked_div(self.floor);
        Err(micros.map_or(Duration::MAX, |micros| {
            Duration::from_micros(micros.cast_unsigned() + 1)
        }))
    }

    /// Takes a retry that was already made, even if there is none left: later ones have to wait for it.
    pub fn charge(&mut self) {
        self.parts = (self.parts - RETRY).max(-self.parts_max);
    }

    /// Gives a retry back that was not made, or did no harm.
    pub fn give_back(&mut self) {
        self.add(RETRY);
    }

    fn add(&mut self, parts: i64) {
        self.parts = self.parts.saturating_add(parts).min(self.parts_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spend(tokens: &mut RetryTokens, now: Duration) -> u32 {
        (0..).take_while(|_| tokens.withdraw(now).is_ok()).count() as u32
    }

    #[test]
    fn retries_are_a_part_of_first_attempts() {
        let mut tokens = RetryTokens::new(20, 0);
        assert_eq!(tokens.withdraw(Duration::ZERO), Err(Duration::MAX));
        (0..4).for_each(|_| tokens.deposit());
        assert!(tokens.withdraw(Duration::ZERO).is_err());
        (0..21).for_each(|_| tokens.deposit());
        assert_eq!(spend(&mut tokens, Duration::ZERO), 5);
    }

    #[test]
    fn floor_gives_retries_with_time_and_saves_ten_seconds() {
        let mut tokens = RetryTokens::new(0, 2);
        assert_eq!(spend(&mut tokens, Duration::ZERO), 20);
        let after = tokens.withdraw(Duration::ZERO).unwrap_err();
        assert!(after <= Duration::from_millis(501), "{after:?}");
        assert_eq!(spend(&mut tokens, after), 1);
        let mut tokens = RetryTokens::new(0, 200);
        assert_eq!(spend(&mut tokens, Duration::from_secs(3_600)), 2_000);
    }

    #[test]
    fn retry_that_was_made_unasked_is_paid_by_later_ones() {
        let mut tokens = RetryTokens::new(100, 0);
        tokens.charge();
        tokens.deposit();
        assert!(tokens.withdraw(Duration::ZERO).is_err());
        tokens.deposit();
        assert_eq!(spend(&mut tokens, Duration::ZERO), 1);
    }

    #[test]
    fn retry_that_is_given_back_can_be_spent_again() {
        let mut tokens = RetryTokens::new(100, 0);
        tokens.deposit();
        for _ in 0..3 {
            tokens.withdraw(Duration::ZERO).unwrap();
            tokens.give_back();
        }
        assert_eq!(spend(&mut tokens, Duration::ZERO), 1);
    }
}
