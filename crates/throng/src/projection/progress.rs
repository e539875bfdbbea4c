//! The progress of projections and sinks.

use super::{EventOffset, Skipped};
use throng_journal::Position;

/// The state of a projection or sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProjectionState {
    /// Takes events as they become durable.
    Running,
    /// Another node of the cluster runs it and knows its state.
    Remote,
    /// Could not write or deliver, and tries again.
    Retrying {
        /// The last failure.
        reason: String,
    },
    /// Cannot go on. [The module](super) says what to do.
    Stopped {
        /// The event and the reason, or what is wrong with the offset.
        reason: String,
        /// The event that cannot be read, applied or delivered, and that [`Engine::skip_event`](crate::Engine::skip_event) would
        /// skip. `None` if something else is wrong.
        at: Option<EventOffset>,
    },
}

/// The lag up to which nothing is wrong: a projection reads in intervals.
pub(crate) const BEHIND_SECONDS_NORMAL: f64 = 5.0;

/// The progress of a projection or sink.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Its `NAME`, under which its rows and offset are kept.
    pub name: &'static str,
    /// The kind whose events it takes.
    pub kind: &'static str,
    /// True for a sink, which carries events to another system and has no rows.
    pub is_sink: bool,
    /// The present state: running, retrying, stopped, or run by another node.
    pub state: ProjectionState,
    /// True while the rows are incomplete: the projection began with the first event, and has not caught up since. Stored with
    /// the rows, so that it survives a restart.
    pub is_rebuilding: bool,
    /// The position up to which everything was taken; `None` until the offset has been read. In a cluster: the position in the first stream
    /// that was not taken completely.
    pub reached: Option<Position>,
    /// The commit up to which history of its kind had been removed before it was read, so that the rows lack some of it. It refers
    /// to the last rebuild since the engine started.
    pub missed_upto: Option<Position>,
    /// The number of durable commits, of any kind, that it has not read yet. In a cluster: at its last look, and 0 if another node runs it.
    pub lag_commits: u64,
    /// The age of the last commit it has read, in seconds; 0 once it has read all.
    pub lag_seconds: f64,
    /// The seconds since it last had nothing left to read; 0 once it has read all.
    pub behind_seconds: f64,
    /// Events it has taken since the engine started.
    pub events: u64,
    /// The newest skipped events since its rows began, at most 16. The last one's number is the count of all.
    pub skipped: Vec<Skipped>,
}

impl Progress {
    /// Describes what is wrong with the projection, for health and operators: it has stopped, its rows are incomplete, or it has
    /// been behind for more than five seconds.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let Self { name, lag_commits, .. } = self;
        if matches!(self.state, ProjectionState::Stopped { .. }) {
            return Some(format!("the projection {name} has stopped"));
        }
        if self.is_rebuilding && *lag_commits > 0 {
            return Some(match self.is_sink {
                true => {
                    format!("the projection {name} delivers again what it had, {lag_commits} commits are left")
                }
                false => format!("the projection {name} is rebuilt and not complete, {lag_commits} commits are left"),
            });
        }
        (self.behind_seconds > BEHIND_SECONDS_NORMAL).then(|| {
            let seconds = self.behind_seconds.round();
            format!("the projection {name} is {lag_commits} commits and {seconds} s behind")
        })
    }

    /// Describes the history that it missed, for health and operators.
    #[must_use]
    pub fn missed(&self) -> Option<String> {
        let Self { name, kind, .. } = self;
        let upto = self.missed_upto?;
        Some(format!(
            "the projection {name} lacks history of {kind} up to commit {upto}, which was removed before it was read"
        ))
    }
}
