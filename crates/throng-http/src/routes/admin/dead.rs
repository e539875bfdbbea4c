//! Dead messages: listed, exported, retried and dropped, one by one or all of a kind or a cause.

use crate::{
    answer::{self, Pages, ResponseBody},
    console::{By, decision},
    follow,
    problem::{Answered, Problem, engine_problem},
    request::query::{self, DeadExportQuery, DeadQuery, DropQuery, RetryQuery},
    server::Server,
};
use http::{HeaderValue, Response, header, request::Parts};
use serde::Serialize;
use std::sync::Arc;
use throng::{
    DeadContent, DeadContents, DeadDone, DeadFilter, DeadMessage, Engine, Retried,
    driver::Share,
    journal::{Address, ShardId},
};
use tokio::sync::mpsc;

/// The messages of one part of an export. Each may be as large as a command.
const EXPORT_PAGE: usize = 16;
pub(super) const JSON_LINES: HeaderValue = HeaderValue::from_static("application/x-ndjson");

/// An answer as JSON.
type Json = Answered<serde_json::Result<Vec<u8>>>;

#[derive(Serialize)]
struct Named<'a> {
    kind: &'a str,
    id: &'a str,
}

impl<'a> Named<'a> {
    fn new(address: &'a Address) -> Self {
        Self {
            kind: &address.kind,
            id: &address.id,
        }
    }
}

#[derive(Serialize)]
struct Page<'a> {
    messages: Vec<Shown<'a>>,
    /// The `after` of the next page; null at the end.
    next: Option<String>,
}

#[derive(Serialize)]
struct Shown<'a> {
    number: String,
    receiver: Named<'a>,
    sender: Named<'a>,
    name: &'a str,
    reason: &'a str,
    /// The reason without what differs between messages that died of the same.
    cause: String,
    at: String,
    /// When it died first: earlier than `at` if it was tried again in vain.
    first_at: String,
    /// The attempts to take it that have failed.
    attempts: u32,
}

impl<'a> Shown<'a> {
    fn new(message: &'a DeadMessage) -> Self {
        Self {
            number: number(message.number),
            receiver: Named::new(&message.receiver),
            sender: Named::new(&message.sender),
            name: &message.name,
            reason: &message.reason,
            cause: message.cause(),
            at: follow::instant(message.at.micros),
            first_at: follow::instant(message.first_at.micros),
            attempts: message.attempts,
        }
    }
}

/// Writes a number as clients see it: `shard.number`, such as `17.3`.
fn number((shard, number): (ShardId, u64)) -> String {
    format!("{shard}.{number}")
}

fn read_number(text: &str) -> Answered<(ShardId, u64)> {
    let read = text
        .split_once('.')
        .and_then(|(shard, number)| Some((ShardId(shard.parse().ok()?), number.parse().ok()?)));
    read.ok_or_else(|| {
        let detail = format!("number is {text:?}; expected it as /admin/dead shows it, such as 17.3.");
        Problem::malformed(detail).at_field("number").boxed()
    })
}

fn filter(kind: Option<String>, id: Option<String>, cause: Option<String>) -> Answered<DeadFilter> {
    match (&kind, &id) {
        (None, Some(_)) => Err(Problem::malformed("id is given without kind.").at_field("kind").boxed()),
        _ => Ok(DeadFilter { kind, id, cause }),
    }
}

/// Refuses an empty filter, so that nobody retries or drops all messages by forgetting a word.
fn not_all(of: DeadFilter) -> Answered<DeadFilter> {
    match of.kind.is_none() && of.cause.is_none() {
        true => Err(
            Problem::malformed("Neither kind nor cause is given; say which dead messages are meant.")
                .at_field("kind")
                .boxed(),
        ),
        false => Ok(of),
    }
}

pub(super) async fn list(server: &Server, parts: &Parts) -> Json {
    let DeadQuery {
        kind,
        id,
        cause,
        after,
        limit,
    } = query::read(parts.uri.query())?;
    let (limit, of) = (query::limit(limit)?, filter(kind, id, cause)?);
    let to = of.kind.as_deref().map(|kind| (kind, of.id.as_deref()));
    let page = server.shared().engine.dead_messages(to, after.as_deref(), limit);
    let page = page.await.map_err(engine_problem)?;
    let meant = page.messages.iter().filter(|message| of.is_meant(message));
    Ok(serde_json::to_vec(&Page {
        messages: meant.map(Shown::new).collect(),
        next: page.next,
    }))
}

#[derive(Serialize)]
struct Exported<'a> {
    #[serde(flatten)]
    message: Shown<'a>,
    command: &'a serde_json::value::RawValue,
}

/// The end of an export: without it, some are missing.
#[derive(Serialize)]
struct End {
    exported: u64,
}

/// Exports all messages of a filter with their content, one a line.
pub(super) async fn export(server: &Server, parts: &Parts) -> Answered<Response<ResponseBody>> {
    let DeadExportQuery { kind, id, cause } = query::read(parts.uri.query())?;
    let of = filter(kind, id, cause)?;
    let engine = server.shared().engine.clone();
    // An export that cannot begin is answered with a problem.
    let first = engine.dead_contents(&of, None, EXPORT_PAGE);
    let first = first.await.map_err(engine_problem)?;
    let (lines, receiver) = mpsc::channel(1);
    let share = server.shared().held.pages.clone();
    tokio::task::spawn_local(send((engine, share), of, first, lines));
    let mut response = Response::new(ResponseBody::Live(Pages::new(receiver, Arc::default())));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, JSON_LINES);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

async fn send(
    (engine, share): (Engine, Share),
    of: DeadFilter,
    first: DeadContents,
    lines: mpsc::Sender<answer::Page>,
) {
    let charged = async |lines: Vec<u8>| answer::Page {
        charge: share.room(lines.len()).await,
        bytes: lines.into(),
    };
    let (mut page, mut exported) = (first, 0);
    loop {
        let mut some = Vec::new();
        for DeadContent { message, command } in &page.messages {
            let message = Shown::new(message);
            some.extend(serde_json::to_vec(&Exported { message, command }).unwrap_or_default());
            some.push(b'\n');
            exported += 1;
        }
        let Some(after) = page.next else {
            some.extend(serde_json::to_vec(&End { exported }).unwrap_or_default());
            some.push(b'\n');
            let _ = lines.send(charged(some).await).await;
            return;
        };
        if !some.is_empty() && lines.send(charged(some).await).await.is_err() {
            return;
        }
        page = match engine.dead_contents(&of, Some(&after), EXPORT_PAGE).await {
            Ok(page) => page,
            Err(why) => return tracing::warn!("an export of dead messages ends after {exported} of them: {why}"),
        };
    }
}

#[derive(Serialize)]
struct RetriedMessage {
    number: String,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Serialize)]
struct Tried {
    retried: Vec<RetriedMessage>,
    /// The `after` to go on with; null at the end.
    next: Option<String>,
}

fn outcome(message: (ShardId, u64), retried: Retried) -> RetriedMessage {
    let (outcome, reason) = match retried {
        Retried::Done => ("done", None),
        Retried::Refused(reason) => ("refused", Some(reason)),
        Retried::Dead(reason) => ("dead", Some(reason)),
    };
    RetriedMessage {
        number: number(message),
        outcome,
        reason,
    }
}

#[derive(Serialize)]
struct RetriedAll {
    done: u64,
    refused: u64,
    dead: u64,
    /// The reason why not all were retried; null: all were.
    stopped: Option<String>,
}

pub(super) async fn retry(server: &Server, parts: &Parts) -> Json {
    let RetryQuery {
        kind,
        id,
        cause,
        number,
        after,
        ..
    } = query::read(parts.uri.query())?;
    let engine = &server.shared().engine;
    match (kind, id, cause, number) {
        (Some(kind), Some(id), None, Some(number)) => {
            let number = read_number(&number)?;
            let retried = engine.retry_dead(&kind, &id, number).await.map_err(engine_problem)?;
            Ok(serde_json::to_vec(&Tried {
                retried: vec![outcome(number, retried)],
                next: None,
            }))
        }
        (Some(kind), Some(id), None, None) => {
            let tried = engine.retry_all_dead(&kind, &id, after.as_deref()).await;
            let (retried, next) = tried.map_err(engine_problem)?;
            let retried = retried
                .into_iter()
                .map(|(message, retried)| outcome(message.number, retried));
            Ok(serde_json::to_vec(&Tried {
                retried: retried.collect(),
                next,
            }))
        }
        (kind, id, cause, None) if after.is_none() => {
            let retried = engine.retry_dead_of(not_all(filter(kind, id, cause)?)?).await;
            let DeadDone {
                taken,
                refused,
                dead,
                stopped,
                ..
            } = retried.map_err(engine_problem)?;
            Ok(serde_json::to_vec(&RetriedAll {
                done: taken,
                refused,
                dead,
                stopped,
            }))
        }
        _ => Err(one_or_all()),
    }
}

fn one_or_all() -> Box<Problem> {
    let detail = "One message is named by kind, id and number; all of a kind or of a cause by kind, id or cause alone.";
    Problem::malformed(detail).boxed()
}

#[derive(Serialize)]
struct Dropped {
    dropped: String,
}

#[derive(Serialize)]
struct DroppedAll {
    dropped: u64,
    /// The reason why not all were dropped; null: all were.
    stopped: Option<String>,
}

/// Drops dead messages: they are never taken.
pub(super) async fn drop(server: &Server, parts: &Parts, by: &By<'_>) -> Json {
    let DropQuery {
        kind,
        id,
        cause,
        number,
        reason,
    } = query::read(parts.uri.query())?;
    let engine = &server.shared().engine;
    match (kind, id, cause, number) {
        (Some(kind), Some(id), None, Some(number)) => {
            let message = read_number(&number)?;
            let dropped = engine.drop_dead(&kind, &id, message, decision(by, &reason)?).await;
            dropped.map_err(engine_problem)?;
            Ok(serde_json::to_vec(&Dropped { dropped: number }))
        }
        (kind, id, cause, None) => {
            let of = not_all(filter(kind, id, cause)?)?;
            let dropped = engine.drop_dead_of(of, decision(by, &reason)?).await;
            let DeadDone { dropped, stopped, .. } = dropped.map_err(engine_problem)?;
            Ok(serde_json::to_vec(&DroppedAll { dropped, stopped }))
        }
        _ => Err(one_or_all()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_read_as_it_is_shown() {
        assert_eq!(number((ShardId(17), 3)), "17.3");
        assert_eq!(read_number("17.3").ok(), Some((ShardId(17), 3)));
        for wrong in ["", "17", "x.3", "17.x", "99999.1"] {
            assert!(read_number(wrong).is_err(), "{wrong}");
        }
    }
}
