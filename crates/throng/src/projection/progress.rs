//! The progress of projections and sinks.

use super::{EventOffset, Skipped};
use throng_journal::Position;

/// The state of a projection or sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProjectionState {
    /// Takes events as they become durable.
    Running,
    /// Another node of the cluster runs it: that one knows how it is.
    Remote,
    /// Could not write or deliver, and tries again.
    Retrying {
        /// The last failure.
        reason: String,
    },
    /// Cannot go on: see [the module](super) for what helps.
    Stopped {
        /// Which event and why, or what is wrong with the offset.
        reason: String,
        /// The event that cannot be read, applied or delivered: the one that [`Engine::skip_event`](crate::Engine::skip_event) goes
        /// past. `None` where something else is wrong.
        at: Option<EventOffset>,
    },
}

/// A lag of up to this many seconds is normal, since a projection reads at once what has gathered.
pub(crate) const BEHIND_SECONDS_NORMAL: f64 = 5.0;

/// The progress of a projection or sink.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Its `NAME`, under which its rows and offset are kept.
    pub name: &'static str,
    /// The kind whose events it takes.
    pub kind: &'static str,
    /// This is a sink: it carries events elsewhere, and has no rows.
    pub is_sink: bool,
    /// The present state: running, retrying, stopped, or run by another node.
    pub state: ProjectionState,
    /// The rows are not complete: the projection began with the first event, and has not come to what is durable since. This is kept with
    /// the rows, so that a start in between knows it.
    pub is_rebuilding: bool,
    /// The position up to which everything was taken; `None` until the offset has been read. In a cluster: the position in the first stream
    /// that was not taken whole.
    pub reached: Option<Position>,
    /// The commit up to which history of its kind had been removed before it was read: the rows lack some of what happened until then. It
    /// tells of the last beginning since the engine started.
    pub missed_upto: Option<Position>,
    /// Durable commits, of any kind, it has not read yet; in a cluster, when it looked last, and 0 where another node runs it.
    pub lag_commits: u64,
    /// Age of the last commit it has read, in seconds; 0 once it has read all.
    pub lag_seconds: f64,
    /// The seconds for which there was always something it had not read; 0 once it has read all.
    pub behind_seconds: f64,
    /// Events it has taken since the engine started.
    pub events: u64,
    /// The newest events that it was told to go past since its rows began, at most 16; the last one's number says how many there are.
    pub skipped: Vec<Skipped>,
}

impl Progress {
    /// Returns what is wrong with the projection, for people who ask the service. It has stopped, its rows are not complete yet, or it has
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

    /// The history that it was not told, for people who ask the service.
    #[must_use]
    pub fn missed(&self) -> Option<String> {
        let Self { name, kind, .. } = self;
        let upto = self.missed_upto?;
        Some(format!(
            "the projection {name} lacks history of {kind} up to commit {upto}, which was removed before it was read"
        ))
    }
}
