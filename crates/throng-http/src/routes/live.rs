//! `GET /api/{kind}/{id}/events` with `Accept: text/event-stream`: live events; and an app's own streams of them.

use super::resolve::{caller, kind, may_follow};
use crate::{
    access,
    answer::{Page, Pages, ResponseBody},
    caller::ShownCredentials,
    follow,
    problem::{Answered, Problem},
    request::{
        headers,
        path::entity_id,
        query::{self, HistoryQuery},
    },
    server::{LivePlace, Server},
};
use axum::{body::Body, response::IntoResponse};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, header, request::Parts};
use std::{
    ops::ControlFlow,
    rc::Rc,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use throng::{Engine, EntityEvent, FeedError, Follow, Follower, driver::Share, journal::Position};
use tokio::{
    sync::{Notify, mpsc},
    time::timeout,
};

/// The event after which a returning client continues.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Events of one page.
const PAGE_EVENTS: usize = 100;
/// The silence after which a comment shows that the stream is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Opens a stream of an entity's durable events after the last one the client has got.
pub(super) async fn open(
    server: &Rc<Server>,
    parts: &Parts,
    (kind_part, id_part): (&str, &str),
) -> Answered<Response<ResponseBody>> {
    let (kind, names) = kind(server, kind_part)?;
    let id = entity_id(id_part)?;
    may_follow(server, caller(parts), names, Some(&id))?;
    let HistoryQuery { after, .. } = query::read(parts.uri.query())?;
    let seen = last_event_id(&parts.headers)?;
    let (after, at) = seen.unwrap_or((after, None));
    let id = id.into_owned();
    let entity = Follow::Entity { kind, id, after, at };
    let follower = server.shared().engine.follow(entity).await;
    let follower = follower.map_err(|error| match error {
        FeedError::Lost(_) if seen.is_some() => Problem::from(error).at_field("Last-Event-ID").boxed(),
        error => follow::problem(error),
    })?;
    let shown = access::ShownEvents::new(server, caller(parts), names.kind);
    let write = move |event: &EntityEvent, page: &mut Vec<u8>| match shown.has(&event.id, &event.event) {
        true => as_shown(event, page),
        false => ControlFlow::Continue(()),
    };
    let live = Live {
        follower,
        write: Box::new(write),
    };
    stream(server, live, ShownCredentials::of(&parts.headers, caller(parts)))
}

/// Live events in an app's form: the answer of a handler to a request that accepts `text/event-stream`.
///
/// The gateway sends events as they become durable, each with the sequence number as its id, so that a client can continue with
/// `Last-Event-ID`. It counts the stream among its own ([`Limits::live_max`](crate::Limits)), keeps it alive, and ends it when it drains or
/// when the caller's token is no longer accepted.
pub struct LiveEvents(Live);

/// A follower, and the function that writes its events.
struct Live {
    follower: Follower,
    write: Box<Write>,
}

/// Writes an event as a block of lines, or leaves it out. [`ControlFlow::Break`] ends the stream before it.
type Write = dyn FnMut(&EntityEvent, &mut Vec<u8>) -> ControlFlow<()> + Send;

impl LiveEvents {
    /// True if a request accepts such a stream.
    #[must_use]
    pub fn are_accepted(headers: &HeaderMap) -> bool {
        headers::wants_stream(headers)
    }

    /// Returns the last event that a returning client has got.
    ///
    /// # Errors
    /// A problem with status 400: the header is malformed.
    pub fn last_seen(headers: &HeaderMap) -> Result<Option<u64>, Box<Problem>> {
        let last = last_event_id(headers)?;
        Ok(last.map(|(seq, _)| seq))
    }

    /// Returns a stream of a follower's events. `show` makes JSON of an event, on one line, or `None` to leave it out; a break ends the
    /// stream.
    ///
    /// # Errors
    /// There is nothing of this kind to follow, or the engine's error.
    pub async fn follow(
        engine: &Engine,
        what: Follow,
        mut show: impl FnMut(&EntityEvent) -> ControlFlow<(), Option<String>> + Send + 'static,
    ) -> Result<Self, Problem> {
        let follower = engine.follow(what).await.map_err(|error| *follow::problem(error))?;
        let write = move |event: &EntityEvent, page: &mut Vec<u8>| {
            if let Some(json) = show(event)? {
                page.extend_from_slice(format!("id: {}\ndata: {json}\n\n", event.event.seq).as_bytes());
            }
            ControlFlow::Continue(())
        };
        Ok(Self(Live {
            follower,
            write: Box::new(write),
        }))
    }
}

/// On its way from a handler to the gateway.
#[derive(Clone)]
struct Handed(Arc<Mutex<Option<Live>>>);

impl IntoResponse for LiveEvents {
    fn into_response(self) -> axum::response::Response {
        let mut response = Response::new(Body::empty());
        let handed = Handed(Arc::new(Mutex::new(Some(self.0))));
        response.extensions_mut().insert(handed);
        response
    }
}

/// Returns an app's response, with the stream as its body if it is one.
pub(super) fn of_app(
    server: &Rc<Server>,
    mut response: axum::response::Response,
    held: Option<ShownCredentials>,
) -> Answered<Response<ResponseBody>> {
    let handed = response.extensions_mut().remove::<Handed>();
    let live = handed.and_then(|handed| handed.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    match live {
        Some(live) => stream(server, live, held),
        None => Ok(response.map(ResponseBody::App)),
    }
}

fn stream(server: &Rc<Server>, live: Live, held: Option<ShownCredentials>) -> Answered<Response<ResponseBody>> {
    let place = server.live_place()?;
    let (sender, made) = mpsc::channel(1);
    let asked = Arc::new(Notify::new());
    let pages = Pages::new(made, asked.clone());
    let to = Client { pages: sender, asked };
    tokio::task::spawn_local(run(server.clone(), live, to, held, place));
    let mut response = Response::new(ResponseBody::Live(pages));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}

/// Returns a sequence number, with the event's commit if the stream sent it: `3` or `3@1.7`.
fn last_event_id(headers: &HeaderMap) -> Answered<Option<(u64, Option<Position>)>> {
    headers::is_single(headers, &LAST_EVENT_ID, "Last-Event-ID")?;
    let Some(value) = headers.get(LAST_EVENT_ID) else {
        return Ok(None);
    };
    let read = |text: &str| match text.trim().split_once('@') {
        None => Some((text.trim().parse().ok()?, None)),
        Some((seq, at)) => Some((seq.parse().ok()?, Some(at.parse().ok()?))),
    };
    value.to_str().ok().and_then(read).map(Some).ok_or_else(|| {
        let found = String::from_utf8_lossy(value.as_bytes());
        let detail =
            format!("The header Last-Event-ID is {found:?}; expected the id of the last event seen, as 3@1.7.");
        Problem::malformed(detail).at_field("Last-Event-ID").boxed()
    })
}

/// The receiver of a stream's pages, one at a time.
struct Client {
    pages: mpsc::Sender<Page>,
    /// Notified when the next one is wanted.
    asked: Arc<Notify>,
}

/// Sends events until the client leaves, its token is no longer accepted, or the gateway drains.
async fn run(server: Rc<Server>, mut live: Live, to: Client, held: Option<ShownCredentials>, _place: LivePlace) {
    let share = &server.shared().held.pages;
    tokio::select! {
        () = server.drains() => {}
        () = to.pages.closed() => {}
        () = access::ends(held.as_ref(), &server) => {}
        () = send(&mut live, &to, share) => {}
    }
}

/// Until a page cannot be sent or read, or the stream ends.
async fn send(live: &mut Live, to: &Client, share: &Share) {
    // Sent at once, so that the client knows that it is connected.
    let mut first = Some(comment(b": connected\n\n", share));
    loop {
        to.asked.notified().await;
        let next = match first.take() {
            Some(first) => Ok(first),
            None => live.page(share).await,
        };
        match next {
            Ok(next) => {
                if to.pages.send(next.page).await.is_err() || next.is_last {
                    return;
                }
            }
            Err(error) => {
                tracing::debug!("a live stream ends: {error}");
                return;
            }
        }
    }
}

struct Made {
    page: Page,
    is_last: bool,
}

fn comment(text: &'static [u8], share: &Share) -> Made {
    let page = Page {
        bytes: Bytes::from_static(text),
        charge: share.nothing(),
    };
    Made { page, is_last: false }
}

impl Live {
    /// Returns the next page, or a sign of life.
    async fn page(&mut self, share: &Share) -> Result<Made, FeedError> {
        loop {
            let next = follow::page(&mut self.follower, PAGE_EVENTS, share);
            let Ok(next) = timeout(KEEP_ALIVE, next).await else {
                return Ok(comment(b": alive\n\n", share));
            };
            let follow::Page {
                events,
                bytes,
                mut charge,
            } = next?;
            let mut page = Vec::with_capacity(bytes);
            let flow = events.iter().try_for_each(|event| (self.write)(event, &mut page));
            let is_last = flow.is_break();
            // Nothing is sent if all events were left out.
            if !page.is_empty() || is_last {
                // The written events may take more room than the recorded ones.
                if !charge.grow_to(page.capacity()) {
                    charge.join(share.take_anyway(page.capacity()));
                }
                charge.shrink_to(page.capacity());
                let page = Page {
                    bytes: page.into(),
                    charge,
                };
                return Ok(Made { page, is_last });
            }
        }
    }
}

/// Writes an event like the generic routes. The client returns with its sequence number and its commit, which reveals a history that has
/// lost the event.
fn as_shown(event: &EntityEvent, page: &mut Vec<u8>) -> ControlFlow<()> {
    let (seq, at, name) = (event.event.seq, event.event.position, &event.event.name);
    page.extend_from_slice(format!("id: {seq}@{at}\nevent: {name}\ndata: {{").as_bytes());
    page.extend_from_slice(follow::members(event));
    page.extend_from_slice(b"}\n\n");
    ControlFlow::Continue(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use throng::journal::{CommitNo, StoredEvent, WriterId};

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
        let expected = "id: 3@1.7\nevent: added\ndata: {\"seq\":3,\"name\":\"added\",\"version\":1,\"at\":\"1970-01-01T00:00:00Z\",\"position\":\"1.7\",\"payload\":{\"student\":\"7\"}}\n\n";
        let mut page = Vec::new();
        assert!(as_shown(&EntityEvent::new("S1".into(), event), &mut page).is_continue());
        assert_eq!(page, expected.as_bytes());
    }
}
