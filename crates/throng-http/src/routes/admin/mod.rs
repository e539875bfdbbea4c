//! `/admin/`: the routes of operators, for administrators only.

mod audit;
mod calls;
mod cluster;
mod dead;

use crate::{
    access::administrates,
    answer::{self, ResponseBody},
    caller::{Administrates, Role, Sender},
    connection::Connection,
    console::{self, By, decision, decision_if_said},
    follow,
    guard::Part,
    limits::PAGE_MAX,
    problem::{Answered, Problem, engine_problem},
    request::query::{
        self, CancelQuery, CompactQuery, EraseQuery, ProjectionQuery, PruneQuery, QuarantineQuery, ReleaseQuery,
        SkipQuery,
    },
    server::{Server, body::RequestBody},
};
use http::{HeaderMap, Method, Response, request::Parts};
use serde::Serialize;
use throng::{
    Engine, Erased, PruneReport,
    inspect::Inspect,
    journal::{Address, Compacted},
    model::{Error, Timestamp},
    projection::{EventOffset, SkipError},
};

/// Answers a path below `/admin/`.
pub(super) async fn answer(
    server: &Server,
    connection: &Connection,
    parts: &Parts,
    body: RequestBody,
) -> Answered<Response<ResponseBody>> {
    let path = parts.uri.path();
    let allow = match path {
        "/admin/audit/export" | "/admin/dead" | "/admin/dead/export" | "/admin/stuck" => Method::GET,
        "/admin/projection/rebuild"
        | "/admin/projection/resume"
        | "/admin/projection/skip"
        | "/admin/dead/retry"
        | "/admin/dead/drop"
        | "/admin/call/attempt"
        | "/admin/call/give-up"
        | "/admin/timer/cancel"
        | "/admin/quarantine"
        | "/admin/messages/drop"
        | "/admin/release"
        | "/admin/prune"
        | "/admin/erase"
        | "/admin/compact"
        | "/admin/cluster/drain"
        | "/admin/cluster/undrain"
        | "/admin/cluster/pin" => Method::POST,
        _ => console::method(path).ok_or_else(|| Problem::unknown_route(path).boxed())?,
    };
    let is_allowed = parts.method == allow || allow == Method::GET && parts.method == Method::HEAD;
    if !is_allowed {
        let allow = if allow == Method::GET { "GET, HEAD" } else { "POST" };
        return Err(Problem::method_not_allowed(&parts.method, allow).boxed());
    }
    let needed = Role::of_path(&allow, path);
    let by = By::new(may(server, connection, &parts.headers, needed)?, connection);
    if console::method(path).is_some() {
        return console::answer(server, connection, parts, body, &by).await;
    }
    let by = &by;
    let body = match path {
        "/admin/dead" => dead::list(server, parts).await?,
        "/admin/dead/export" => return dead::export(server, parts).await,
        "/admin/audit/export" => return audit::export(server).await,
        "/admin/stuck" => serde_json::to_vec(&stuck(server).await?),
        _ => {
            let asked = parts.uri.path_and_query().map_or(path, |asked| asked.as_str());
            tracing::info!("{by} asked for {asked}");
            let action = path.strip_prefix("/admin/").unwrap_or(path);
            let fields = query::read(parts.uri.query())?;
            let entry = crate::audit::begin(server, connection, by.administrates(), action, fields).await?;
            let done = act(server, parts, by).await;
            entry.end(server, &done).await;
            let done = done?;
            server.shared().console.changed();
            done
        }
    };
    Ok(answer::json(body.unwrap_or_default()))
}

/// Executes the requested action.
async fn act(server: &Server, parts: &Parts, by: &By<'_>) -> Answered<serde_json::Result<Vec<u8>>> {
    Ok(match parts.uri.path() {
        "/admin/dead/drop" => dead::drop(server, parts, by).await?,
        "/admin/call/attempt" => serde_json::to_vec(&calls::attempt(server, parts, by).await?),
        "/admin/call/give-up" => serde_json::to_vec(&calls::give_up(server, parts, by).await?),
        "/admin/timer/cancel" => serde_json::to_vec(&cancel(server, parts, by).await?),
        "/admin/projection/rebuild" | "/admin/projection/resume" => serde_json::to_vec(&projection(server, parts)?),
        "/admin/projection/skip" => serde_json::to_vec(&skip(server, parts, by).await?),
        "/admin/quarantine" => serde_json::to_vec(&quarantine(server, parts, by).await?),
        "/admin/messages/drop" => serde_json::to_vec(&drop_messages(server, parts, by).await?),
        "/admin/release" => serde_json::to_vec(&release(server, parts, by).await?),
        "/admin/prune" => serde_json::to_vec(&prune(server, parts).await?),
        "/admin/erase" => serde_json::to_vec(&erase(server, parts).await?),
        "/admin/compact" => serde_json::to_vec(&compact(server, parts).await?),
        "/admin/cluster/drain" => serde_json::to_vec(&cluster::drain(server, parts, true).await?),
        "/admin/cluster/undrain" => serde_json::to_vec(&cluster::drain(server, parts, false).await?),
        "/admin/cluster/pin" => serde_json::to_vec(&cluster::pin(server, parts).await?),
        _ => dead::retry(server, parts).await?,
    })
}

/// Returns the person or program behind a request, if they have this role.
pub(super) fn may(
    server: &Server,
    connection: &Connection,
    headers: &HeaderMap,
    needed: Role,
) -> Answered<Administrates> {
    administrates(server, connection, headers)?.need(needed)
}

/// Returns the administrator who asks for an app's route; `None` for everybody else,
/// and for requests that come over another listener than administration's.
pub(super) fn is(server: &Server, connection: &Connection, parts: &Parts) -> Option<Administrates> {
    let (guard, accepted_by) = (&server.shared().guard, connection.accepted_by());
    let is_here = accepted_by.is_admin || !guard.has_admin_listener;
    // A page that may ask the service may not do this.
    let is_own_page = || {
        let checked = guard
            .names
            .check(&Sender::of(parts), accepted_by.is_loopback, Part::Administration);
        checked.is_ok()
    };
    let may = || may(server, connection, &parts.headers, Role::of_method(&parts.method)).ok();
    (is_here && is_own_page()).then(may).flatten()
}

#[derive(Serialize)]
struct Cancelled {
    cancelled: String,
}

/// Cancels a timer that could not be fired.
async fn cancel(server: &Server, parts: &Parts, by: &By<'_>) -> Answered<Cancelled> {
    let CancelQuery { kind, id, name, reason } = query::read(parts.uri.query())?;
    let (engine, by) = (&server.shared().engine, decision(by, &reason)?);
    let cancelled = engine.cancel_late_timer(&kind, &id, &name, by).await;
    cancelled.map_err(engine_problem)?;
    Ok(Cancelled { cancelled: name })
}

#[derive(Serialize)]
struct Asked {
    asked: String,
}

/// Has a projection rebuilt or resumed, in the background.
fn projection(server: &Server, parts: &Parts) -> Answered<Asked> {
    let ProjectionQuery { name, .. } = query::read(parts.uri.query())?;
    let engine = &server.shared().engine;
    let is_there = match parts.uri.path() {
        "/admin/projection/rebuild" => engine.rebuild_projection(&name),
        _ => engine.resume_projection(&name),
    };
    match is_there {
        true => Ok(Asked { asked: name }),
        false => Err(no_projection(engine, &name)),
    }
}

fn no_projection(engine: &Engine, name: &str) -> Box<Problem> {
    let all: Vec<&str> = engine.projections().iter().map(|one| one.name).collect();
    let detail = format!("There is no projection {name:?}; there are: {}.", all.join(", "));
    Problem::malformed(detail).at_field("name").boxed()
}

/// Has a stopped projection skip the event at which it stopped, if that is the named one. The decision is durable with the answer; the skip
/// follows in the background.
async fn skip(server: &Server, parts: &Parts, by: &By<'_>) -> Answered<Asked> {
    let SkipQuery { name, event, reason } = query::read(parts.uri.query())?;
    let event: EventOffset = event.parse().map_err(|why| {
        let detail = format!("event is {event:?}: {why}.");
        Problem::malformed(detail).at_field("event").boxed()
    })?;
    let engine = &server.shared().engine;
    match engine.skip_event(&name, event, decision(by, &reason)?).await {
        Ok(()) => Ok(Asked { asked: name }),
        Err(SkipError::Unknown) => Err(no_projection(engine, &name)),
        Err(SkipError::Unavailable(reason)) => Err(engine_problem(Error::Unavailable { reason })),
        Err(why) => Err(Problem::not_skipped(&name, event, &why).boxed()),
    }
}

#[derive(Serialize)]
struct StuckPage {
    entities: Vec<StuckEntity>,
    /// Entities in each state, listed or not.
    retrying: usize,
    quarantined: usize,
}

#[derive(Serialize)]
struct StuckEntity {
    kind: String,
    id: String,
    /// `retrying`: it cannot be loaded, and is tried again by itself; `quarantined`: by an operator.
    state: &'static str,
    reason: String,
    since: String,
    /// Messages that wait for it; of one that is quarantined, commands and messages that were refused.
    count: u64,
    /// The operator who has quarantined it; null: nobody has.
    by: Option<String>,
    /// About so many messages wait for it in the log.
    waiting: u64,
}

impl StuckEntity {
    fn new(address: &Address, state: &'static str, reason: String, (since, count): (Timestamp, u64)) -> Self {
        Self {
            kind: address.kind.to_string(),
            id: address.id.to_string(),
            state,
            reason,
            since: follow::instant(since.micros),
            count,
            by: None,
            waiting: 0,
        }
    }
}

/// Returns the entities that take no messages now, with the reason and the time since when.
async fn stuck(server: &Server) -> Answered<StuckPage> {
    let engine = &server.shared().engine;
    let stuck = engine.stuck();
    let populations = engine.populations().await.map_err(engine_problem)?;
    let quarantined = engine.quarantined(PAGE_MAX).await.map_err(engine_problem)?;
    let number = (
        stuck.len(),
        populations.iter().map(|population| population.quarantined).sum(),
    );
    let waiting = engine.waiting_messages();
    let retrying = stuck.into_iter().map(|entity| {
        let seen = (entity.since, entity.messages);
        StuckEntity {
            waiting: entity.messages,
            ..StuckEntity::new(&entity.address, "retrying", entity.reason, seen)
        }
    });
    let quarantined = quarantined.into_iter().map(|entity| {
        let seen = (entity.since, entity.refused);
        StuckEntity {
            waiting: waiting.get(&entity.address).copied().unwrap_or_default(),
            by: entity.by,
            ..StuckEntity::new(&entity.address, "quarantined", entity.reason, seen)
        }
    });
    Ok(StuckPage {
        entities: retrying.chain(quarantined).take(PAGE_MAX).collect(),
        retrying: number.0,
        quarantined: number.1,
    })
}

#[derive(Serialize)]
struct Quarantined {
    /// Quarantined from now on; `false`: an operator had quarantined it before.
    quarantined: bool,
}

/// Stops an entity, whatever the engine is full of.
async fn quarantine(server: &Server, parts: &Parts, by: &By<'_>) -> Answered<Quarantined> {
    let QuarantineQuery { kind, id, reason } = query::read(parts.uri.query())?;
    let (engine, by) = (&server.shared().engine, decision(by, &reason)?);
    let quarantined = engine.quarantine(&kind, &id, by).await;
    Ok(Quarantined {
        quarantined: quarantined.map_err(engine_problem)?,
    })
}

#[derive(Serialize)]
struct DroppedMessages {
    dropped: u64,
}

/// Drops the waiting messages to an entity that an operator has quarantined.
async fn drop_messages(server: &Server, parts: &Parts, by: &By<'_>) -> Answered<DroppedMessages> {
    let QuarantineQuery { kind, id, reason } = query::read(parts.uri.query())?;
    let (engine, by) = (&server.shared().engine, decision(by, &reason)?);
    let dropped = engine.drop_messages(&kind, &id, by).await;
    Ok(DroppedMessages {
        dropped: dropped.map_err(engine_problem)?,
    })
}

#[derive(Serialize)]
struct Released {
    /// The quarantine has ended, for good if the entity was loaded.
    released: bool,
    /// The entity takes commands and messages again. `false`: its load has failed and it is quarantined as before. Null: not tried, or not known.
    loaded: Option<bool>,
    /// Why it was not loaded, or why that is not known.
    reason: Option<String>,
}

async fn release(server: &Server, parts: &Parts, by: &By<'_>) -> Answered<Released> {
    let ReleaseQuery { kind, id, reason } = query::read(parts.uri.query())?;
    let by = decision_if_said(by, &reason);
    let engine = &server.shared().engine;
    let released = engine.release(&kind, &id, by).await.map_err(engine_problem)?;
    let index = engine.kind(&kind).filter(|_| released);
    // The operator learns at once if the release has mended nothing.
    let (loaded, reason) = match index {
        None => (None, None),
        Some(index) => match engine.inspect(index, &id, Inspect::default()).await {
            Ok(found) => match found.quarantine {
                None => (Some(true), None),
                Some(aside) => (Some(false), Some(aside.reason)),
            },
            Err(why) => (None, Some(why.to_string())),
        },
    };
    Ok(Released {
        released,
        loaded,
        reason,
    })
}

/// Removes expired history, or reports what would be removed.
async fn prune(server: &Server, parts: &Parts) -> Answered<PruneReport> {
    let PruneQuery { dry_run, .. } = query::read(parts.uri.query())?;
    let pruned = server.shared().engine.prune(dry_run).await;
    pruned.map_err(|error| Problem::of_journal("History could not be removed.", &error).boxed())
}

/// Overwrites all that is recorded of an entity.
async fn erase(server: &Server, parts: &Parts) -> Answered<Erased> {
    let EraseQuery { kind, id, .. } = query::read(parts.uri.query())?;
    let erased = server.shared().engine.erase(&kind, &id).await;
    erased.map_err(engine_problem)
}

#[derive(Serialize)]
struct CompactedStore {
    /// Not where the store keeps itself as small as it may be.
    needed: bool,
    #[serde(flatten)]
    compacted: Option<Compacted>,
}

/// Gives back unused room in the store's file.
async fn compact(server: &Server, parts: &Parts) -> Answered<CompactedStore> {
    let CompactQuery { .. } = query::read(parts.uri.query())?;
    let compacted = server.shared().engine.compact().await;
    // An administrator may see everything, so the sentence can say what to do.
    let compacted = compacted.map_err(|error| Problem::not_compacted(&error).boxed())?;
    Ok(CompactedStore {
        needed: compacted.is_some(),
        compacted,
    })
}
