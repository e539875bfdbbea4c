//! `GET /api/{kind}/{id}/events`: an entity's events, a page at a time.

use super::resolve::{admit, caller, kind, may_follow};
use crate::{
    access::ShownEvents,
    answer::{self, ResponseBody},
    connection::Connection,
    follow::{self, Shown},
    problem::Answered,
    request::{
        path::entity_id,
        query::{self, HistoryQuery},
    },
    server::Server,
};
use http::{Response, request::Parts};
use std::time::Instant;
use throng::{History, journal::StoredEvent};
use tokio::{task::yield_now, time::timeout};

/// Bytes of a page's events, after the first.
const PAGE_BYTES_MAX: usize = 4 << 20;
/// The number of pages that find room however little memory there is.
const PAGES_AT_ONCE: usize = 8;
/// The bytes of a page that are written at once.
const PIECE_BYTES: usize = 256 << 10;

/// A page of the history.
pub(super) async fn page(
    server: &Server,
    connection: &Connection,
    parts: &Parts,
    (kind_part, id_part): (&str, &str),
    arrived: &mut Option<Instant>,
) -> Answered<Response<ResponseBody>> {
    let (kind, names) = kind(server, kind_part)?;
    let id = entity_id(id_part)?;
    may_follow(server, caller(parts), names, Some(&id))?;
    let HistoryQuery { after, limit } = query::read(parts.uri.query())?;
    let limit = query::limit(limit)?;
    admit(server, connection, &parts.headers, 0, arrived).await?;
    let share = &server.shared().held.pages;
    let bytes = PAGE_BYTES_MAX.min(share.most() / PAGES_AT_ONCE);
    // The charge is for the events and their text; later for the text alone, until the client has taken it.
    let room = timeout(server.limits().wait_max, share.room(2 * bytes));
    let _charge = room.await.map_err(|_| server.no_room_for_pages())?;
    let engine = &server.shared().engine;
    let history = engine.history_within(kind, &id, after, limit, bytes).await;
    let history = history.map_err(follow::problem)?;
    let shown = ShownEvents::new(server, caller(parts), names.kind);
    Ok(answer::json(written(history, |event| shown.has(&id, event)).await))
}

/// Writes the page in pieces, between which others have their turn, and drops events as they are written.
async fn written(mut history: History, is_shown: impl Fn(&StoredEvent) -> bool) -> Vec<u8> {
    let last = history.events.last().map(|event| event.seq);
    let next = last.filter(|_| history.more);
    history.events.retain(is_shown);
    let mut page = Vec::from(br#"{"events":["#);
    let mut pieces = 0;
    for (number, event) in history.events.into_iter().enumerate() {
        if number > 0 {
            page.push(b',');
        }
        // Writing into memory cannot fail.
        let _ = serde_json::to_writer(&mut page, &Shown::new(&event));
        if page.len() / PIECE_BYTES > pieces {
            pieces = page.len() / PIECE_BYTES;
            yield_now().await;
        }
    }
    let next = next.map_or_else(|| "null".to_owned(), |next| next.to_string());
    page.extend_from_slice(format!("],\"next\":{next}").as_bytes());
    if history.removed > 0 {
        page.extend_from_slice(format!(",\"removed\":{}", history.removed).as_bytes());
    }
    page.push(b'}');
    page
}
