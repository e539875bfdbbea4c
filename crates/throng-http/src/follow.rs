//! Followers, as a gateway shows their events.

use crate::problem::Problem;
use serde::Serialize;
use serde_json::value::RawValue;
use std::sync::Arc;
use throng::{
    EntityEvent, FeedError, Follower,
    driver::{Charge, Share},
    journal::StoredEvent,
};

/// Bytes of a page's payloads after the first.
const PAGE_BYTES: usize = 64 << 10;
/// The approximate bytes of an event on a page besides its payload.
const EVENT_BYTES: usize = 512;

/// A page of events, with its memory.
pub(crate) struct Page {
    pub(crate) events: Vec<Arc<EntityEvent>>,
    /// Bytes that they take as they are shown, about.
    pub(crate) bytes: usize,
    pub(crate) charge: Charge,
}

/// Waits for the next page, of at most this many events. It is read once, within the charged memory; if an event is larger, it is read
/// again with more.
pub(crate) async fn page(follower: &mut Follower, most: usize, share: &Share) -> Result<Page, FeedError> {
    let mut room = PAGE_BYTES + most * EVENT_BYTES;
    loop {
        // A client that waits for events holds no memory.
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
        // A single large event.
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

/// Returns an event's members as in a JSON object, without the braces and on one line: written once for all followers.
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

/// An event as a client sees it.
#[derive(Serialize)]
pub(crate) struct Shown<'a> {
    seq: u64,
    name: &'a str,
    version: u16,
    at: String,
    /// The commit that made it true, `writer.commit`.
    position: String,
    payload: Box<RawValue>,
}

impl<'a> Shown<'a> {
    pub(crate) fn new(event: &'a StoredEvent) -> Self {
        Self {
            seq: event.seq,
            name: &event.name,
            version: event.version,
            at: instant(event.at_micros),
            position: event.position.to_string(),
            payload: raw(&event.payload),
        }
    }
}

/// RFC 3339, UTC.
pub(crate) fn instant(micros: i64) -> String {
    jiff::Timestamp::from_microsecond(micros).map_or_else(|_| micros.to_string(), |at| at.to_string())
}

/// Returns a JSON payload as it is, and any other as a string.
fn raw(payload: &[u8]) -> Box<RawValue> {
    if let Ok(json) = serde_json::from_slice(payload) {
        return json;
    }
    let text = String::from_utf8_lossy(payload);
    serde_json::value::to_raw_value(&text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_shown_as_the_json_they_are() {
        assert_eq!(raw(br#"{"student":"7"}"#).get(), r#"{"student":"7"}"#);
        assert_eq!(raw(b"not json").get(), r#""not json""#);
        assert_eq!(instant(1_700_000_000_123_456), "2023-11-14T22:13:20.123456Z");
    }
}
