//! Following what happens, as a gateway shows it.

use crate::{problem::Problem, routes::Shown};
use throng::{EntityEvent, FeedError, journal::StoredEvent};

/// Why a follower cannot go on.
pub(crate) fn problem(error: FeedError) -> Box<Problem> {
    Problem::from(error).boxed()
}

impl From<FeedError> for Problem {
    fn from(error: FeedError) -> Self {
        match error {
            FeedError::Lost(cursor) => Self::history_lost(&cursor),
            FeedError::Engine(error) => Self::of_engine(error),
        }
    }
}

/// An event's members as a JSON object has them, without the braces and on one line: written once for all who follow.
pub(crate) fn members(event: &EntityEvent) -> &[u8] {
    event.shown(write)
}

fn write(event: &StoredEvent) -> Vec<u8> {
    let mut json = serde_json::to_vec(&Shown::new(event)).unwrap_or_default();
    // A payload may have been recorded with line breaks between its tokens; JSON has none elsewhere.
    json.retain(|byte| !matches!(byte, b'\n' | b'\r'));
    json.pop();
    json.drain(..1.min(json.len()));
    json
}
