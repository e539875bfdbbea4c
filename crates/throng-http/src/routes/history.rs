//! `GET /api/{kind}/{id}/events`: what has happened, a page at a time.

use super::{Answered, admit, caller, entity_id, kind, may};
use crate::{
    access::Action,
    answer::{self, Answer},
    connection::Connection,
    follow,
    request::query::{self, HistoryQuery},
    server::Server,
};
use http::{Response, request::Parts};
use serde::Serialize;
use serde_json::value::RawValue;
use std::time::Instant;
use throng::journal::StoredEvent;

/// One event as it is shown.
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

#[derive(Serialize)]
struct Page<'a> {
    events: Vec<Shown<'a>>,
    /// What to give as `after` for the next page; null at the end.
    next: Option<u64>,
    /// Events up to this one are not kept any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    removed: Option<u64>,
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
pub(super) fn instant(micros: i64) -> String {
    jiff::Timestamp::from_microsecond(micros).map_or_else(|_| micros.to_string(), |at| at.to_string())
}

/// A payload that is JSON as it is; any other as a string.
fn raw(payload: &[u8]) -> Box<RawValue> {
    if let Ok(json) = serde_json::from_slice(payload) {
        return json;
    }
    let text = String::from_utf8_lossy(payload);
    serde_json::value::to_raw_value(&text).unwrap_or_default()
}

/// A page of the history.
pub(super) async fn page(
    server: &Server,
    connection: &Connection,
    parts: &Parts,
    (kind_part, id_part): (&str, &str),
    arrived: &mut Option<Instant>,
) -> Answered<Response<Answer>> {
    let (kind, names) = kind(server, kind_part)?;
    let id = entity_id(id_part)?;
    may(server, caller(parts), (names.kind, Some(&id)), Action::Events)?;
    let HistoryQuery { after, limit } = query::read(parts.uri.query())?;
    let limit = query::limit(limit)?;
    admit(server, connection, &parts.headers, 0, arrived)?.await?;
    let history = server
        .shared()
        .engine
        .history(kind, &id, after, limit)
        .await
        .map_err(follow::problem)?;
    let last = history.events.last().map(|event| event.seq);
    let page = Page {
        events: history.events.iter().map(Shown::new).collect(),
        next: last.filter(|_| history.more),
        removed: Some(history.removed).filter(|removed| *removed > 0),
    };
    Ok(answer::json(serde_json::to_vec(&page).unwrap_or_default()))
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
