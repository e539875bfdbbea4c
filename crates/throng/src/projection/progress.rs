//! How far projections and sinks have come.

use throng_journal::Position;

/// Whether a projection or sink goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It takes events as they become durable.
    Running,
    /// It could not write or deliver, and tries again.
    Retrying {
        /// What went wrong last.
        reason: String,
    },
    /// It cannot go on: see [the module](super) for what helps.
    Stopped {
        /// Which event and why, or what is wrong with the offset.
        reason: String,
    },
}

/// How far a projection or sink has come.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Its name.
    pub name: &'static str,
    /// The kind whose events it takes.
    pub kind: &'static str,
    /// Whether it goes on.
    pub state: State,
    /// It has taken everything up to here; `None` until it has read its offset.
    pub reached: Option<Position>,
    /// Durable commits, of any kind, it has not read yet.
    pub lag_commits: u64,
    /// Age of the last commit it has read, in seconds; 0 once it has read all.
    pub lag_seconds: f64,
    /// Events it has taken since the engine started.
    pub events: u64,
}
