//! `GET /admin/overview`: the service, its program, and its start.

use super::by::By;
use crate::{audit, openapi, problem::Answered, server::Shared};
use serde_json::{Value, json};
use throng::{Engine, journal::Durability, model::worker_of};

/// RFC 3339, UTC.
pub(super) fn time(at: std::time::SystemTime) -> String {
    jiff::Timestamp::try_from(at).map_or_else(|_| String::new(), |at| at.to_string())
}

pub(super) fn durability(durability: Durability) -> &'static str {
    match durability {
        Durability::Fsync => "fsync",
        Durability::Os => "os",
        Durability::Memory => "memory",
    }
}

/// The seconds for which attempts are counted.
const CALL_SECONDS: u64 = 60;

/// Calls outside, by their workers: those of this process. All that have no outcome are `open`; those that wait in memory are `waiting`.
fn calls(engine: &Engine) -> Vec<Value> {
    let stats = engine.stats();
    let kinds = engine.registry().kinds().iter().filter(|kind| kind.is_internal);
    let of_kind = |kind: &'static str| {
        let worker = worker_of(kind)?;
        let key = |what: &str| format!("calls.{worker}.{what}");
        let level = |what: &str| stats.last_level(&key(what)).unwrap_or(0.0);
        let minute = |what: &str| stats.sum(&key(what), CALL_SECONDS);
        Some(json!({
            "worker": worker, "kind": kind, "open": level("open"), "under_way": level("under_way"), "waiting": level("waiting"),
            "attempts_minute": minute("attempts"), "failed_minute": minute("attempts_failed"),
        }))
    };
    kinds.filter_map(|kind| of_kind(kind.name)).collect()
}

pub(super) async fn overview(shared: &Shared, by: &By<'_>) -> Answered<Value> {
    let (engine, console) = (&shared.engine, &shared.console);
    let health = engine.health();
    let waiting = health.unresolved.iter().map(ToString::to_string);
    let troubles: Vec<String> = health.troubles.iter().cloned().chain(waiting).collect();
    // An engine that is not ready has an overview all the same.
    let populations = engine.populations().await.unwrap_or_default();
    let options = engine.options();
    let (kinds, definitions) = openapi::kinds(engine.registry(), engine.actor_kinds());
    let kinds = kinds.into_iter().enumerate().map(|(at, kind)| {
        let population = populations.get(at).filter(|_| !kind.is_actor);
        let keep = options.keep.get(kind.name).copied();
        let of_kind = engine.registry().kinds().get(at).filter(|_| !kind.is_actor);
        let is_hidden = shared.kinds.0.get(at).is_some_and(|names| names.is_hidden);
        json!({
            "name": kind.name, "is_actor": kind.is_actor, "is_hidden": is_hidden,
            "keep": of_kind.map(|kind| keep.unwrap_or(kind.keep).to_string()),
            "fields": of_kind.map(|kind| &*kind.indexed).unwrap_or_default(),
            "state_version": of_kind.map(|kind| kind.state_version),
            "entities": population.map(|population| population.known), "entities_exact": false,
            "resident": population.map(|population| population.resident),
            "commands": kind.commands, "queries": kind.queries,
        })
    });
    let (medium, place) = match &console.about.place {
        Some((medium, place)) => (*medium, Some(place)),
        None => ("memory", None),
    };
    let loops = console.passes().len();
    let projections: Vec<_> = engine.projections().iter().map(|of| of.name).collect();
    Ok(json!({
        "service": console.about.title, "url": console.about.url, "version": console.about.version, "throng": env!("CARGO_PKG_VERSION"),
        "started_at": time(console.started), "now": time(std::time::SystemTime::now()),
        "ready": health.ready, "reason": health.reason, "troubles": troubles, "stands_by": health.stands_by,
        "console": {
            "by": by.name(),
            "role": by.administrates().role.name(),
            "picos": shared.kinds.0.iter().any(|names| names.kind == "pico"),
            "cluster": console.about.cluster.is_some(),
        },
        "audit": audit::is_kept(engine), "shards": engine.registry().shards(), "loops": loops, "loops_max": console.about.loops_max.max(loops),
        "cores": std::thread::available_parallelism().map_or(1, usize::from),
        "memory_bytes_max": options.memory_bytes_max,
        "journal": {
            "medium": medium, "place": place, "durability": durability(health.durability),
            "position": health.position.map(|position| position.to_string()), "bytes": health.journal_bytes,
        },
        "kinds": kinds.collect::<Vec<_>>(), "definitions": definitions, "projections": projections, "calls": calls(engine),
    }))
}

/// Returns the nodes of this node's cluster.
pub(super) fn cluster(shared: &Shared) -> Option<Value> {
    shared.console.about.cluster.as_ref().map(|cluster| cluster.report())
}
