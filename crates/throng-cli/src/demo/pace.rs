//! The pace of the demo's replay, and the clock of the replayed day.

use anyhow::Context as _;
use registration::trace::{DateTime, Trace};
use std::time::{Duration, Instant};

/// The speed of the recorded times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Times of the recorded speed.
    Times(f64),
    /// Only the busiest hour, in a minute.
    Midnight,
}

/// An hour takes a minute.
const MIDNIGHT_SPEED: f64 = 60.0;
const HOUR: Duration = Duration::from_secs(3_600);
/// The time by which the replay begins before the busiest hour, to show the start of the surge.
const LEAD: Duration = Duration::from_secs(300);

impl Pace {
    /// Returns the speed as a multiple of the recorded one.
    #[must_use]
    pub fn speed(self) -> f64 {
        match self {
            Self::Times(speed) => speed,
            Self::Midnight => MIDNIGHT_SPEED,
        }
    }

    /// Returns the part of a trace to be replayed, and its time in words.
    ///
    /// # Errors
    /// The trace has no request.
    pub fn cut(self, trace: Trace) -> anyhow::Result<(Trace, Option<String>)> {
        if self != Self::Midnight {
            return Ok((trace, None));
        }
        let hour = trace.busiest_hour().context("the trace has no request")?;
        let cut = trace.between(hour.saturating_sub(LEAD), hour.saturating_add(HOUR));
        let words = format!(
            "its busiest hour, from {} on {}, in a minute: {} of {} requests",
            hour.strftime("%H:%M"),
            hour.date(),
            crate::units::count(cut.requests.len() as u64),
            crate::units::count(trace.requests.len() as u64),
        );
        Ok((cut, Some(words)))
    }
}

pub(super) fn pace(text: &str) -> Result<Pace, String> {
    match (text, text.parse::<f64>()) {
        ("midnight", _) => Ok(Pace::Midnight),
        (_, Ok(speed)) if speed > 0.0 && speed.is_finite() => Ok(Pace::Times(speed)),
        _ => Err(
            "say midnight, or a number above 0: 1 is the speed at which it happened, 3600 makes an hour a second"
                .into(),
        ),
    }
}

/// The clock of a day that is replayed in time.
pub struct DayClock {
    first: DateTime,
    length: Duration,
    speed: f64,
    begun: Instant,
}

impl DayClock {
    /// Starts the clock at the first request. Returns `None` if there is none, or if the replay ignores the recorded times.
    #[must_use]
    pub fn start(trace: &Trace, speed: f64) -> Option<Self> {
        let last = trace.requests.len().checked_sub(1)?;
        (speed > 0.0).then(|| Self {
            first: trace.requests[0].at,
            length: trace.offset(last),
            speed,
            begun: Instant::now(),
        })
    }

    /// Shows the time of the day, and how long the replay still takes.
    #[must_use]
    pub fn shown(&self) -> String {
        self.after(self.begun.elapsed())
    }

    fn after(&self, played: Duration) -> String {
        let whole = self.length.as_secs_f64() / self.speed;
        let share = if whole > 0.0 {
            (played.as_secs_f64() / whole).min(1.0)
        } else {
            1.0
        };
        let at = self.first.saturating_add(self.length.mul_f64(share));
        let left = (whole - played.as_secs_f64()).max(0.0).ceil() as u64;
        let left = match left {
            0..120 => format!("{left} s"),
            120..7_200 => format!("{} min", left.div_ceil(60)),
            _ => format!("{} h", left.div_ceil(3_600)),
        };
        format!("{}, {left} left", at.strftime("%Y-%m-%d %H:%M:%S"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use registration::trace::DEFAULT_SEED;

    #[test]
    fn midnight_is_an_hour_of_many_days_and_takes_a_minute() {
        let day = Trace::registration_day(DEFAULT_SEED);
        let all = day.requests.len();
        let (cut, words) = Pace::Midnight.cut(day).unwrap();
        assert!(cut.requests.len() > 3_000 && cut.requests.len() * 4 < all);
        let takes = cut.offset(cut.requests.len() - 1).as_secs_f64() / Pace::Midnight.speed();
        assert!((55.0..=65.0).contains(&takes), "{takes}");
        assert!(words.unwrap().contains("from 00:00 on 2026-11-09"));
    }

    #[test]
    fn clock_shows_the_time_of_the_day_and_the_rest() {
        let day = Trace::registration_day(DEFAULT_SEED);
        let (cut, _) = Pace::Midnight.cut(day).unwrap();
        let clock = DayClock {
            first: cut.requests[0].at,
            length: Duration::from_secs(3_600),
            speed: 60.0,
            begun: Instant::now(),
        };
        let first = clock.first;
        let at = |seconds| {
            first
                .saturating_add(Duration::from_secs(seconds))
                .strftime("%Y-%m-%d %H:%M:%S")
                .to_string()
        };
        assert_eq!(clock.after(Duration::from_secs(0)), format!("{}, 60 s left", at(0)));
        assert_eq!(
            clock.after(Duration::from_secs(45)),
            format!("{}, 15 s left", at(2_700))
        );
        assert_eq!(clock.after(Duration::from_secs(90)), format!("{}, 0 s left", at(3_600)));
        assert!(DayClock::start(&cut, 0.0).is_none());
    }

    #[test]
    fn pace_is_midnight_or_a_number_above_zero() {
        assert_eq!(pace("midnight"), Ok(Pace::Midnight));
        assert_eq!(pace("600"), Ok(Pace::Times(600.0)));
        for wrong in ["0", "-1", "inf", "noon", ""] {
            assert!(pace(wrong).unwrap_err().contains("say midnight"), "{wrong}");
        }
    }
}
