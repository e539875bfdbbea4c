//! `GET /api/{kind}/{id}/events` with `Accept: text/event-stream`: what happens, as it happens.

use super::{Answered, caller, entity_id, kind, may};
use crate::{
    access::{self, Action, Held},
    answer::Answer,
    follow,
    problem::Problem,
    request::query::{self, HistoryQuery},
    server::Server,
    shared::Taken,
};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, header, request::Parts};
use std::{rc::Rc, sync::Arc, time::Duration};
use throng::{EntityEvent, Follow, Follower};
use tokio::{sync::mpsc, time::timeout};

/// Where a client that comes back goes on.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Pages on their way to a slow client; then its stream waits.
const PAGES_MAX: usize = 4;
/// Events of one page.
const PAGE_EVENTS: usize = 100;
/// Silence after which a comment shows that the stream lives.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Opens a stream of an entity's durable events after the one the client saw last.
pub(super) async fn open(
    server: &Rc<Server>,
    parts: &Parts,
    (kind_part, id_part): (&str, &str),
) -> Answered<Response<Answer>> {
    let (kind, names) = kind(server, kind_part)?;
    let id = entity_id(id_part)?;
    may(server, caller(parts), (names.kind, Some(&id)), Action::Events)?;
    let HistoryQuery { after, .. } = query::read(parts.uri.query())?;
    let after = match parts.headers.get(LAST_EVENT_ID) {
        None => after,
        Some(value) => last_event_id(value)?,
    };
    let place = server.live_place()?;
    let entity = Follow::Entity {
        kind,
        id,
        after,
        at: None,
    };
    let follower = server.shared().engine.follow(entity).await.map_err(follow::problem)?;
    let (pages, receiver) = mpsc::channel(PAGES_MAX);
    let held = Held::of(&parts.headers, caller(parts));
    tokio::task::spawn_local(run(server.clone(), follower, pages, held, place));
    let mut response = Response::new(Answer::Live(receiver));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}

fn last_event_id(value: &HeaderValue) -> Answered<u64> {
    value
        .to_str()
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .ok_or_else(|| {
            let found = String::from_utf8_lossy(value.as_bytes());
            let detail =
                format!("The header Last-Event-ID is {found:?}; expected the sequence number of the last event seen.");
            Problem::malformed(detail).at_field("Last-Event-ID").boxed()
        })
}

/// Until the client goes, its token is taken no more, or the gateway drains.
async fn run(
    server: Rc<Server>,
    mut follower: Follower,
    pages: mpsc::Sender<Bytes>,
    held: Option<Held>,
    _place: Taken,
) {
    tokio::select! {
        () = server.drains() => {}
        () = pages.closed() => {}
        () = access::ends(held.as_ref(), &server) => {}
        () = send(&mut follower, &pages) => {}
    }
}

/// Until a page cannot be sent or read.
async fn send(follower: &mut Follower, pages: &mpsc::Sender<Bytes>) {
    // Something at once, so that the client knows that it is connected.
    let mut next = Bytes::from_static(b": connected\n\n");
    while pages.send(next).await.is_ok() {
        next = match timeout(KEEP_ALIVE, follower.next(PAGE_EVENTS)).await {
            Ok(Ok(events)) => page(&events),
            Ok(Err(error)) => {
                tracing::debug!("a live stream ends: {error}");
                return;
            }
            Err(_) => Bytes::from_static(b": alive\n\n"),
        };
    }
}

/// Events as server-sent events; their sequence number is what the client comes back with.
fn page(events: &[Arc<EntityEvent>]) -> Bytes {
    let mut page = Vec::with_capacity(256 * events.len());
    for event in events {
        let (seq, name) = (event.event.seq, &event.event.name);
        page.extend_from_slice(format!("id: {seq}\nevent: {name}\ndata: {{").as_bytes());
        page.extend_from_slice(follow::members(event));
        page.extend_from_slice(b"}\n\n");
    }
    page.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use throng::journal::{CommitNo, Position, StoredEvent, WriterId};

    #[test]
    fn an_event_is_one_block_of_lines() {
        let event = StoredEvent {
            seq: 3,
            position: Position {
                writer: WriterId(1),
                commit: CommitNo(7),
            },
            at_micros: 0,
            name: "added".into(),
            version: 1,
            payload: b"{\n\"student\":\r\n\"7\"}".to_vec(),
        };
        let expected = "id: 3\nevent: added\ndata: {\"seq\":3,\"name\":\"added\",\"version\":1,\"at\":\"1970-01-01T00:00:00Z\",\"position\":\"1.7\",\"payload\":{\"student\":\"7\"}}\n\n";
        let event = Arc::new(EntityEvent::new("S1".into(), event));
        assert_eq!(page(&[event]), expected.as_bytes());
    }
}
