//! The bottleneck of the engine, derived from its numbers.

use serde::Serialize;

/// Measurements of the last seconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecentLoad {
    pub(crate) is_ready: bool,
    /// The journal has room for more.
    pub(crate) has_room: bool,
    pub(crate) is_database: bool,
    /// Commands and queries a second, including refused ones.
    pub(crate) asked: f64,
    /// The part of the time in which a commit was in flight.
    pub(crate) commit_share: f64,
    /// Commands and messages a commit: all but the first have waited.
    pub(crate) batch: f64,
    /// The busiest loop, and the part of the time it did not wait.
    pub(crate) busiest: (usize, f64),
    /// The part of the memory that waits for the store. From a half on, commands are refused.
    pub(crate) pending_share: f64,
    /// The part of the memory that entities take.
    pub(crate) entity_share: f64,
    /// Entities brought back, a second.
    pub(crate) loads: f64,
    /// Commands a second that waited because their entity had used its share of the batch.
    pub(crate) deferred: f64,
    /// The hottest entity, and its part of all executions.
    pub(crate) hottest: Option<(String, f64)>,
}

/// The answer, for programs and for people.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Limiting {
    pub(crate) code: &'static str,
    pub(crate) name: Option<String>,
    pub(crate) sentence: String,
    /// The part of it that is used, 0 to 1.
    pub(crate) share: Option<f64>,
}

/// The share above which the store or the memory counts as the bottleneck.
const FULL: f64 = 0.9;
/// Above this a loop has no time left to speak of.
const BUSY: f64 = 0.8;
/// The number of commands a commit from which on commands wait for the commit before theirs. Only a wait is a limit.
const BATCH_WAITING: f64 = 2.0;
/// The share of commands and queries that a cause must affect to be reported.
const NOTICED: f64 = 0.05;

impl RecentLoad {
    pub(crate) fn limiting(&self) -> Limiting {
        let (busiest, busy) = self.busiest;
        let percent = |share: f64| (share.clamp(0.0, 1.0) * 100.0).round();
        let told = |code, name: Option<String>, share: Option<f64>, sentence: String| Limiting {
            code,
            name,
            sentence,
            share: share.map(|share| share.clamp(0.0, 1.0)),
        };
        let noticed = (self.asked * NOTICED).max(1.0);
        if !self.is_ready {
            let sentence =
                "No command is taken: the journal fails, is another engine's, or the service starts or stops.";
            return told("journal_down", None, None, sentence.into());
        }
        if !self.has_room {
            let sentence = "The disk is full, or its budget used up: commands are refused, reads are answered.";
            return told("disk_full", None, None, sentence.into());
        }
        if self.asked < 0.5 {
            return told("idle", None, Some(0.0), "Nothing is asked.".into());
        }
        if self.pending_share * 2.0 >= FULL {
            let share = self.pending_share * 2.0;
            let sentence = format!(
                "The store limits: what waits for a checkpoint takes {} % of its room.",
                percent(share)
            );
            return told("store", None, Some(share), sentence);
        }
        if self.deferred >= noticed
            && let Some((name, share)) = &self.hottest
        {
            let sentence = format!(
                "One entity limits: {name} is asked {} % of all, and has more than its share of the turn.",
                percent(*share)
            );
            return told("entity", Some(name.clone()), Some(*share), sentence);
        }
        if self.entity_share >= FULL && self.loads >= noticed {
            let sentence = format!(
                "The memory limits: it is full, and {:.0} entities a second are brought back from the store.",
                self.loads
            );
            return told("memory", None, Some(self.entity_share), sentence);
        }
        // A sync may be a loop's own work; then the sync takes the time.
        let is_always_writing = self.commit_share >= FULL || (busy >= BUSY && self.commit_share >= busy / 2.0);
        if is_always_writing && self.batch >= BATCH_WAITING {
            let part = percent(self.commit_share);
            let share = Some(self.commit_share);
            return match self.is_database {
                true => told(
                    "database",
                    None,
                    share,
                    format!("The database limits: a commit is on its way {part} % of the time."),
                ),
                false => told(
                    "sync",
                    None,
                    share,
                    format!("The disk limits: a commit is being synced {part} % of the time."),
                ),
            };
        }
        if busy >= BUSY {
            let sentence = format!(
                "The loops' CPU limits: loop {busiest} is busy {} % of the time.",
                percent(busy)
            );
            return told("loop", Some(busiest.to_string()), Some(busy), sentence);
        }
        let sentence = format!(
            "The clients: there is room for more, as the busiest loop waits {} % of the time.",
            100.0 - percent(busy)
        );
        told("client", None, Some(busy), sentence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen() -> RecentLoad {
        RecentLoad {
            is_ready: true,
            has_room: true,
            asked: 1_000.0,
            busiest: (0, 0.3),
            commit_share: 0.1,
            batch: 20.0,
            hottest: Some(("section/a".into(), 0.7)),
            ..RecentLoad::default()
        }
    }

    fn code(change: impl FnOnce(&mut RecentLoad)) -> &'static str {
        let mut seen = seen();
        change(&mut seen);
        let limiting = seen.limiting();
        assert!(limiting.sentence.ends_with('.'), "{limiting:?}");
        assert!(limiting.share.is_none_or(|share| (0.0..=1.0).contains(&share)));
        limiting.code
    }

    #[test]
    fn each_limit_is_told_by_its_own_numbers() {
        assert_eq!(code(|_| {}), "client");
        assert_eq!(code(|seen| seen.asked = 0.0), "idle");
        assert_eq!(code(|seen| seen.is_ready = false), "journal_down");
        assert_eq!(code(|seen| seen.has_room = false), "disk_full");
        assert_eq!(code(|seen| seen.pending_share = 0.46), "store");
        assert_eq!(code(|seen| seen.busiest.1 = 0.95), "loop");
        assert_eq!(code(|seen| seen.commit_share = 0.9), "sync");
        let full = |seen: &mut RecentLoad| (seen.entity_share, seen.loads) = (0.97, 200.0);
        assert_eq!(code(full), "memory");
        assert_eq!(
            code(|seen| (seen.commit_share, seen.is_database) = (4.0, true)),
            "database"
        );
    }

    #[test]
    fn disk_that_keeps_up_limits_nothing() {
        let served = |share, batch| move |seen: &mut RecentLoad| (seen.commit_share, seen.batch) = (share, batch);
        // An open load that is served completely: a commit is in flight most of the time, and few commands wait for it.
        assert_eq!(code(served(0.62, 1.2)), "client");
        assert_eq!(code(served(0.81, 1.6)), "client");
        // A client that waits for each answer: only the commit being written is waited for.
        assert_eq!(code(served(0.97, 1.0)), "client");
        assert_eq!(code(served(0.97, 30.0)), "sync");
    }

    #[test]
    fn a_sync_that_is_the_loops_own_work_is_the_sync() {
        assert_eq!(code(|seen| (seen.busiest.1, seen.commit_share) = (0.98, 0.8)), "sync");
        assert_eq!(code(|seen| (seen.busiest.1, seen.commit_share) = (0.98, 0.3)), "loop");
    }

    #[test]
    fn a_hot_entity_is_named() {
        let mut seen = seen();
        seen.deferred = 100.0;
        let limiting = seen.limiting();
        assert_eq!((limiting.code, limiting.name.as_deref()), ("entity", Some("section/a")));
        seen.hottest = None;
        assert_eq!(seen.limiting().code, "client");
    }
}
