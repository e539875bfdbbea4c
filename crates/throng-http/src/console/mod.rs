//! The console: a page and its API, on the listener for administration. `docs/console-api.md` describes each answer.

mod action;
mod audit_list;
mod by;
mod cluster;
mod entity;
mod journal;
pub(crate) mod map;
mod overview;
pub(crate) mod page;
mod trouble;

pub(crate) use by::{By, decision, decision_if_said};

use crate::{
    access,
    answer::{self, ResponseBody},
    audit,
    caller::ShownCredentials,
    connection::Connection,
    console_state::{Reading, Recorder, point},
    limits::CONNECTION_BYTES,
    problem::{Answered, Problem},
    request::{headers, path, query},
    server::{
        Server, Shared,
        body::{self, RequestBody},
    },
};
use bytes::Bytes;
use entity::{AtQuery, Subject};
use http::{HeaderValue, Method, Response, header, request::Parts};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use std::{
    sync::{Arc, PoisonError, Weak, atomic::Ordering, mpsc},
    thread,
    time::{Duration, Instant},
};
use throng::inspect::HotEntity;
use tokio::runtime::Runtime;

/// The subprotocol of the console's socket.
pub(crate) const PROTOCOL: &str = "throng.console.v1";
/// Between two points of the series.
const POINT_EVERY: Duration = Duration::from_secs(1);
/// The number of points between two checks of what is wrong.
const TROUBLE_EVERY: u32 = 5;
/// Hot entities that a point has.
const HOT_MAX: usize = 50;

/// Records the points of the series, until the gateway has ended.
pub(crate) fn watch(shared: Weak<Shared>, is_over: mpsc::Receiver<()>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let take = move || {
        let mut next = Instant::now();
        let mut trouble = Trouble::default();
        let strong = shared.upgrade();
        let mut recorder = strong.and_then(|shared| shared.console.about.directory().map(Recorder::new));
        loop {
            // The last point needs nothing of an engine that is about to end.
            let mut take = |is_last: bool| {
                let Some(strong) = shared.upgrade() else { return false };
                match is_last {
                    true => add_point(&strong, reading(&strong), &[]),
                    false => take_point(&strong, &runtime, &mut trouble),
                }
                if let Some(recorder) = &mut recorder {
                    recorder.keep(&strong.console.series);
                }
                true
            };
            if !take(false) {
                return;
            }
            // A late point does not shift later ones, and missed points are not made up for.
            next = (next + POINT_EVERY).max(Instant::now());
            let left = next.saturating_duration_since(Instant::now());
            if is_over.recv_timeout(left) != Err(mpsc::RecvTimeoutError::Timeout) {
                // The last, unfinished second is recorded, so that its numbers are shown after a restart, too.
                take(true);
                return;
            }
        }
    };
    thread::Builder::new()
        .name("throng-http-series".into())
        .spawn(take)
        .map(drop)
}

/// The number of troubles at the last look.
#[derive(Default)]
struct Trouble {
    total: Option<usize>,
    /// Points until it is looked at again.
    left: u32,
}

impl Trouble {
    fn look(&mut self, shared: &Shared, runtime: &Runtime) -> Option<usize> {
        self.left = self.left.saturating_sub(1);
        // An operator who has mended something sees the effect at the next point.
        if shared.console.is_changed.swap(false, Ordering::AcqRel) || self.left == 0 {
            self.left = TROUBLE_EVERY;
            let found = runtime.block_on(trouble::trouble(shared)).ok();
            self.total = found.and_then(|found| usize::try_from(found["total"].as_u64()?).ok());
        }
        self.total
    }
}

/// Records a point, and sends it to all watchers. The lock is held for numbers only, never while a shard is awaited.
fn take_point(shared: &Shared, runtime: &Runtime, trouble: &mut Trouble) {
    let console = &shared.console;
    let series = || console.series.lock().unwrap_or_else(PoisonError::into_inner);
    let reading = reading(shared);
    let is_watched = console.points.receiver_count() > 0;
    let hot = match is_watched || series().has_deferred(&reading) {
        true => runtime.block_on(shared.engine.hot(HOT_MAX)).unwrap_or_default(),
        false => Vec::new(),
    };
    add_point(shared, reading, &hot);
    if !is_watched {
        console.kept.clear();
        return;
    }
    let total = trouble.look(shared, runtime);
    let last = series().last();
    if let Some(last) = last {
        // Without a watcher it is dropped.
        drop(
            console
                .points
                .send(point(last, map::shown(shared, &hot, HOT_MAX), total)),
        );
    }
}

fn reading(shared: &Shared) -> Reading {
    let connections = shared.held.connections.held() / CONNECTION_BYTES;
    Reading::take(&shared.engine, &shared.metrics, connections, &shared.console.passes())
}

fn add_point(shared: &Shared, reading: Reading, hot: &[HotEntity]) {
    let is_database = shared.console.about.medium() == "postgresql";
    let mut series = shared.console.series.lock().unwrap_or_else(PoisonError::into_inner);
    series.add(&shared.engine, reading, hot, is_database);
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SeriesQuery {
    #[serde(default)]
    since: i64,
}

/// The query string of a path that takes no parameter: any is refused.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

fn asked<T: DeserializeOwned>(parts: &Parts) -> Answered<T> {
    query::read(parts.uri.query())
}

/// Returns true if the body of a request for this path is read.
pub(crate) fn reads_body(path: &str) -> bool {
    path.starts_with("/admin/entity/")
}

/// A path of the console's API.
enum ConsolePath<'a> {
    Overview,
    Series,
    Live,
    Map,
    Kind(&'a str),
    Groups(&'a str),
    Hot,
    Shards,
    Trouble,
    Journal,
    JournalParts,
    Cluster,
    Audit,
    ClusterNodes,
    /// Kind, id, and the part of the entity; empty for the entity itself.
    Entity(&'a str, &'a str, &'a str),
}

impl ConsolePath<'_> {
    /// True if the answer is the same for all callers, and need not reflect what this client has just changed.
    fn is_alike(&self) -> bool {
        !matches!(
            self,
            Self::Overview | Self::Series | Self::Live | Self::Audit | Self::Entity(..)
        )
    }
}

fn place(path: &str) -> Option<ConsolePath<'_>> {
    let rest = path.strip_prefix("/admin/")?;
    let parts: Vec<&str> = rest.split('/').collect();
    Some(match parts[..] {
        ["overview"] => ConsolePath::Overview,
        ["series"] => ConsolePath::Series,
        ["live"] => ConsolePath::Live,
        ["map"] => ConsolePath::Map,
        ["map", kind] => ConsolePath::Kind(kind),
        ["map", kind, "groups"] => ConsolePath::Groups(kind),
        ["hot"] => ConsolePath::Hot,
        ["shards"] => ConsolePath::Shards,
        ["trouble"] => ConsolePath::Trouble,
        ["journal"] => ConsolePath::Journal,
        ["journal", "parts"] => ConsolePath::JournalParts,
        ["cluster"] => ConsolePath::Cluster,
        ["cluster", "nodes"] => ConsolePath::ClusterNodes,
        ["audit"] => ConsolePath::Audit,
        ["entity", kind, id] => ConsolePath::Entity(kind, id, ""),
        [
            "entity",
            kind,
            id,
            what @ ("history" | "children" | "command" | "what-if"),
        ] => ConsolePath::Entity(kind, id, what),
        _ => return None,
    })
}

/// Returns the method of a path of the console's API; `None` if there is no such path.
pub(crate) fn method(path: &str) -> Option<Method> {
    Some(match place(path)? {
        ConsolePath::Entity(_, _, "command" | "what-if") => Method::POST,
        _ => Method::GET,
    })
}

/// Answers a path of the console's API, after access was granted.
pub(crate) async fn answer(
    server: &Server,
    connection: &Connection,
    parts: &Parts,
    mut body: RequestBody,
    by: &By<'_>,
) -> Answered<Response<ResponseBody>> {
    let shared = server.shared();
    let path = parts.uri.path();
    let place = place(path).ok_or_else(|| Problem::unknown_route(path).boxed())?;
    // A single console always gets fresh answers.
    if place.is_alike() && shared.console.sockets.taken() > 1 {
        let asked = parts.uri.path_and_query().map_or(path, |asked| asked.as_str());
        let answer = shared.console.kept.get(asked, look(shared, place, parts)).await?;
        return Ok(json(answer));
    }
    let answer = match place {
        ConsolePath::Live => return open(server, connection, parts),
        ConsolePath::Overview => {
            let Nothing {} = asked(parts)?;
            overview::overview(shared, by).await?.to_string().into()
        }
        ConsolePath::Series => {
            let SeriesQuery { since } = asked(parts)?;
            let series = shared.console.series.lock().unwrap_or_else(PoisonError::into_inner);
            series.all(since).to_string().into()
        }
        ConsolePath::Audit => {
            let asked = asked(parts)?;
            ask(shared, async move |shared: &Shared| {
                audit_list::audit(shared, asked).await
            })
            .await?
        }
        ConsolePath::Entity(kind, id, what) => {
            let id = path::decode(id).ok_or_else(|| {
                let detail = "The id is not UTF-8 once its %-escapes are decoded.";
                Problem::malformed(detail).at_field("id").boxed()
            })?;
            let subject = Subject::of(shared, kind, &id)?;
            match what {
                "command" | "what-if" => {
                    headers::json_content(&parts.headers)?;
                    let body = body::read(&mut body, &parts.headers, server, connection).await?;
                    let AtQuery { at } = asked(parts)?;
                    let command = entity::Asked::read(&body)?;
                    if what == "command" {
                        let entry = audit::begin(
                            server,
                            connection,
                            by.administrates(),
                            "command",
                            command.fields(&subject),
                        )
                        .await?;
                        let done = entity::run(server, &subject, &command, by).await;
                        entry.end(server, &done).await;
                        shared.console.changed();
                        return Ok(json(done?.to_string()));
                    }
                    let question = async move |shared: &Shared| entity::what_if(shared, &subject, at, &command).await;
                    ask(shared, question).await?
                }
                "history" => {
                    let asked = asked(parts)?;
                    ask(shared, async move |shared: &Shared| {
                        entity::history(shared, &subject, asked).await
                    })
                    .await?
                }
                "children" => {
                    let asked = asked(parts)?;
                    let of =
                        async move |shared: &Shared| map::children(shared, (subject.kind, &subject.id), asked).await;
                    ask(shared, of).await?
                }
                _ => {
                    let AtQuery { at } = asked(parts)?;
                    let question = async move |shared: &Shared| match at {
                        None => entity::now(shared, &subject).await,
                        Some(at) => entity::then(shared, &subject, at).await,
                    };
                    ask(shared, question).await?
                }
            }
        }
        alike => look(shared, alike, parts).await?,
    };
    Ok(json(answer))
}

/// Answers a question that may take long.
async fn ask(
    shared: &Arc<Shared>,
    question: impl AsyncFnOnce(&Shared) -> Answered<Value> + Send + 'static,
) -> Answered<Bytes> {
    shared.console.questions.ask(shared, question).await
}

/// Answers requests with the same answer for everybody.
async fn look(shared: &Arc<Shared>, place: ConsolePath<'_>, parts: &Parts) -> Answered<Bytes> {
    let value = match place {
        ConsolePath::Kind(kind) => {
            let (kind, asked) = (kind.to_owned(), asked(parts)?);
            return ask(shared, async move |shared: &Shared| {
                map::entities(shared, &kind, asked).await
            })
            .await;
        }
        ConsolePath::Groups(kind) => {
            let (kind, asked) = (kind.to_owned(), asked(parts)?);
            return ask(shared, async move |shared: &Shared| {
                map::groups(shared, &kind, asked).await
            })
            .await;
        }
        ConsolePath::Trouble => return ask(shared, trouble::trouble).await,
        ConsolePath::JournalParts => {
            let asked = asked(parts)?;
            return ask(shared, async move |shared: &Shared| journal::parts(shared, asked).await).await;
        }
        ConsolePath::Map => map::map(shared).await?,
        ConsolePath::Hot => map::hot(shared, asked(parts)?).await?,
        ConsolePath::Shards => map::shards(shared).await?,
        ConsolePath::Journal => journal::journal(shared)?,
        // An engine that is alone has none.
        ConsolePath::Cluster => {
            overview::cluster(shared).ok_or_else(|| Problem::unknown_route(parts.uri.path()).boxed())?
        }
        ConsolePath::ClusterNodes => cluster::nodes(shared)
            .await
            .ok_or_else(|| Problem::unknown_route(parts.uri.path()).boxed())?,
        ConsolePath::Overview
        | ConsolePath::Series
        | ConsolePath::Live
        | ConsolePath::Audit
        | ConsolePath::Entity(..) => {
            return Err(Problem::unknown_route(parts.uri.path()).boxed());
        }
    };
    Ok(value.to_string().into())
}

/// Opens a socket, which is served once the answer was sent.
fn open(server: &Server, connection: &Connection, parts: &Parts) -> Answered<Response<ResponseBody>> {
    let sockets = &server.shared().console.sockets;
    if sockets.taken() >= sockets.most() {
        let detail = format!("{} consoles are open already; close one.", sockets.most());
        return Err(Problem::overloaded(detail, POINT_EVERY).boxed());
    }
    let shown = parts.headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
    let caller = access::who(server, connection, shown).ok().flatten();
    let held = ShownCredentials::of(&parts.headers, caller.as_ref());
    let response = access::accept_as(PROTOCOL, parts)?;
    connection.becomes_console(held);
    Ok(response)
}

/// An answer that must not be kept by a cache.
fn json(value: impl Into<Bytes>) -> Response<ResponseBody> {
    let mut response = answer::json(value);
    let no_store = HeaderValue::from_static("no-store");
    response.headers_mut().insert(header::CACHE_CONTROL, no_store);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_one_method_or_none() {
        for path in [
            "/admin/map/section",
            "/admin/entity/section/a%2Fb",
            "/admin/entity/section/S1/history",
        ] {
            assert_eq!(method(path), Some(Method::GET), "{path}");
        }
        assert_eq!(method("/admin/entity/section/S1/what-if"), Some(Method::POST));
        for path in [
            "/admin/",
            "/admin/map/",
            "/admin/else",
            "/admin/entity/section",
            "/admin/entity/a/b/c",
            "/admin/map/a/b",
        ] {
            assert!(!matches!(place(path), Some(ConsolePath::Overview)), "{path}");
        }
        assert!(place("/admin/entity/a/b/c").is_none() && place("/admin/map/a/b").is_none());
    }
}
