//! The time that projections of a cluster are behind, as passes find them.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};
use throng_journal::Position;

/// The covered position that each projection of a cluster has to reach next, and the time when a pass set it.
#[derive(Default)]
pub(super) struct Goals {
    of: Mutex<BTreeMap<&'static str, Goal>>,
}

#[derive(Clone, Copy)]
struct Goal {
    /// The position that was covered at a pass.
    at: Position,
    /// … then, by the host's clock.
    since_micros: u64,
}

impl Goals {
    /// Returns how long the projection has had unread covered commits without a break.
    pub(super) fn behind(&self, name: &'static str, reached: Position, covered: Position, now_micros: u64) -> Duration {
        let next = Goal {
            at: covered,
            since_micros: now_micros,
        };
        let mut goals = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        let goal = goals.entry(name).or_insert(next);
        if reached >= goal.at {
            *goal = next;
        }
        Duration::from_micros(now_micros.saturating_sub(goal.since_micros))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Position {
        text.parse().unwrap()
    }

    #[test]
    fn cursor_at_the_coverage_is_behind_no_longer() {
        let goals = Goals::default();
        let behind = |reached, covered, now| goals.behind("it", at(reached), at(covered), now).as_micros();
        assert_eq!(behind("1.0", "1.9", 100), 0);
        assert_eq!(behind("1.8", "1.20", 300), 200);
        assert_eq!(behind("1.9", "1.30", 400), 0);
        assert_eq!(behind("1.29", "2.3", 450), 50);
        assert_eq!(behind("2.0", "2.3", 500), 0);
    }
}
