//! `GET /api/{kind}/{id}/events` with `Accept: text/event-stream`: what happens, as it happens.

use super::{Answered, engine_problem, entity_id, history::Shown, kind};
use crate::{
    answer::Answer,
    event_loop::Local,
    problem::Problem,
    request::query::{self, HistoryQuery},
    shared::Taken,
};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, header, request::Parts};
use std::{rc::Rc, time::Duration};
use throng::journal::StoredEvent;
use tokio::{sync::mpsc, time::timeout};

/// Where a client that comes back goes on.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Pages on their way to a slow client; then its stream waits.
const PAGES_MAX: usize = 4;
/// Events of one page.
const PAGE_EVENTS: usize = 100;
/// Silence after which a comment shows that the stream lives.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// A stream looks for new events at most this often, however many commits there are.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// When a client whose stream was full may come back.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Opens a stream of an entity's durable events after the one the client saw last.
pub(super) async fn open(
    local: &Rc<Local>,
    parts: &Parts,
    (kind_part, id_part): (&str, &str),
) -> Answered<Response<Answer>> {
    let (kind, _) = kind(local, kind_part)?;
    let id = entity_id(id_part)?;
    let HistoryQuery { after, .. } = query::read(parts.uri.query())?;
    let after = match parts.headers.get(LAST_EVENT_ID) {
        None => after,
        Some(value) => last_event_id(value)?,
    };
    let most = local.limits().live_max;
    let Some(place) = local.shared().live.take() else {
        let detail =
            format!("There are {most} live streams already. Try again later, or read the history page by page.");
        return Err(Problem::overloaded(detail, RETRY_AFTER).boxed());
    };
    let engine = &local.shared().engine;
    let seen = engine.durable();
    let first = engine
        .history(kind, &id, after, PAGE_EVENTS)
        .await
        .map_err(engine_problem)?;
    let (pages, receiver) = mpsc::channel(PAGES_MAX);
    let stream = Stream {
        local: local.clone(),
        kind,
        id,
        after,
        seen,
        pages,
        _place: place,
    };
    tokio::task::spawn_local(stream.run(first));
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

struct Stream {
    local: Rc<Local>,
    kind: usize,
    id: String,
    after: u64,
    /// The durable commit that was looked at last.
    seen: u64,
    pages: mpsc::Sender<Bytes>,
    _place: Taken,
}

impl Stream {
    /// Until the client goes or the gateway drains.
    async fn run(mut self, first: Vec<StoredEvent>) {
        let (local, gone) = (self.local.clone(), self.pages.clone());
        tokio::select! {
            () = local.drains() => {}
            () = gone.closed() => {}
            () = self.follow(first) => {}
        }
    }

    /// Until a page cannot be sent or read.
    async fn follow(&mut self, first: Vec<StoredEvent>) {
        // Something at once, so that the client knows that it is connected.
        if self.pages.send(Bytes::from_static(b": connected\n\n")).await.is_err() {
            return;
        }
        let mut events = first;
        loop {
            while let Some(last) = events.last() {
                self.after = last.seq;
                if self.pages.send(page(&events)).await.is_err() {
                    return;
                }
                events = match self.look().await {
                    Some(events) => events,
                    None => return,
                };
            }
            match timeout(KEEP_ALIVE, self.local.shared().engine.changed(self.seen)).await {
                Ok(_) => tokio::time::sleep(LOOK_EVERY).await,
                Err(_) if self.pages.send(Bytes::from_static(b": alive\n\n")).await.is_ok() => continue,
                Err(_) => return,
            }
            events = match self.look().await {
                Some(events) => events,
                None => return,
            };
        }
    }

    async fn look(&mut self) -> Option<Vec<StoredEvent>> {
        let engine = &self.local.shared().engine;
        self.seen = engine.durable();
        match engine.history(self.kind, &self.id, self.after, PAGE_EVENTS).await {
            Ok(events) => Some(events),
            Err(error) => {
                tracing::debug!("a live stream ends: {error}");
                None
            }
        }
    }
}

/// Events as server-sent events; their sequence number is what the client comes back with.
fn page(events: &[StoredEvent]) -> Bytes {
    let mut page = Vec::with_capacity(256 * events.len());
    for event in events {
        page.extend_from_slice(format!("id: {}\nevent: {}\ndata: ", event.seq, event.name).as_bytes());
        // JSON has no line breaks outside of insignificant space, and serde writes none.
        page.extend_from_slice(&one_line(serde_json::to_vec(&Shown::new(event)).unwrap_or_default()));
        page.extend_from_slice(b"\n\n");
    }
    page.into()
}

/// A payload recorded with line breaks between its tokens must not end the data line.
fn one_line(mut json: Vec<u8>) -> Vec<u8> {
    json.retain(|byte| !matches!(byte, b'\n' | b'\r'));
    json
}

#[cfg(test)]
mod tests {
    use super::*;
    use throng::journal::{CommitNo, Position, WriterId};

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
        assert_eq!(page(&[event]), expected.as_bytes());
    }
}
