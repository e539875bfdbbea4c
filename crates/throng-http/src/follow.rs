//! Following what happens, as a gateway shows it.

use crate::{problem::Problem, routes::Shown};
use std::sync::Arc;
use throng::{
    EntityEvent, FeedError, Follower,
    driver::{Charge, Share},
    journal::StoredEvent,
};

/// Bytes of a page's payloads after the first.
const PAGE_BYTES: usize = 64 << 10;
/// Bytes that an event takes in a page beside its payload, about.
const EVENT_BYTES: usize = 512;

/// A page of events, with its memory.
pub(crate) struct Page {
    pub(crate) events: Vec<Arc<EntityEvent>>,
    /// Bytes that they take as they are shown, about.
    pub(crate) bytes: usize,
    pub(crate) charge: Charge,
}

/// The next page, of at most so many events, once there are some. It is read once, and has room before; one with an event that is larger is
/// read again with more.
pub(crate) async fn page(follower: &mut Follower, most: usize, share: &Share) -> Result<Page, FeedError> {
    let mut room = PAGE_BYTES + most * EVENT_BYTES;
    loop {
        // Who waits for events holds no memory.
        follower.wait().await?;
        let mut charge = share.room(room).await;
        let before = follower.place().clone();
        let events = follower.next_now(most, PAGE_BYTES).await?;
        if events.is_empty() {
            continue;
        }
        let needs: usize = events.iter().map(|event| event.event.payload.len() + EVENT_BYTES).sum();
        let bytes = needs.min(share.most());
        if charge.grow_to(bytes) {
            charge.shrink_to(bytes);
            return Ok(Page { events, bytes, charge });
        }
        // One large event.
        follower.go_back(before);
        room = bytes;
    }
}

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
