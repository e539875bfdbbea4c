//! The closed model, and of its requests as many as can be drawn one by one.

use crate::report::html::Point;
use crate::{Closed, Next, Outcome, Source, Verdict};

/// Requests kept of a round, a worker.
const KEPT_MAX: usize = 1024;

/// [`Closed`], with every n-th request kept; n grows so that what is kept stays within a bound.
pub(super) struct Kept {
    closed: Closed,
    pub(super) points: Vec<Point>,
    every: u64,
    seen: u64,
}

impl Kept {
    pub(super) fn new(closed: Closed) -> Self {
        Kept {
            closed,
            points: Vec::with_capacity(KEPT_MAX),
            every: 1,
            seen: 0,
        }
    }
}

impl Source for Kept {
    fn next(&mut self, now_nanos: u64) -> Next<'_> {
        self.closed.next(now_nanos)
    }

    fn answered(&mut self, tag: u64, outcome: &Outcome<'_>) -> Verdict {
        if self.seen.is_multiple_of(self.every) {
            if self.points.len() == KEPT_MAX {
                let mut place = 0;
                self.points.retain(|_| {
                    place += 1;
                    place % 2 == 1
                });
                self.every *= 2;
            }
            self.points.push(Point {
                at_nanos: outcome.done_nanos,
                latency_nanos: outcome.response_nanos(),
                status: outcome.status(),
            });
        }
        self.seen += 1;
        self.closed.answered(tag, outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Request;

    #[test]
    fn what_is_kept_is_bounded_and_spread_over_the_round() {
        let mut kept = Kept::new(Closed::new(Request::get("a", "/"), u64::MAX));
        const REQUESTS: u64 = 100_000;
        for done_nanos in 0..REQUESTS {
            let outcome = Outcome {
                result: Err(crate::ErrorKind::Reset),
                sent_nanos: 0,
                intended_nanos: 0,
                done_nanos,
            };
            kept.answered(0, &outcome);
        }
        assert!(
            (KEPT_MAX / 2..=KEPT_MAX).contains(&kept.points.len()),
            "{}",
            kept.points.len()
        );
        assert!(kept.points.is_sorted_by_key(|point| point.at_nanos));
        assert!(
            kept.points
                .last()
                .is_some_and(|last| last.at_nanos > REQUESTS * 99 / 100)
        );
    }
}
