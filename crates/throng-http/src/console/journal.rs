//! The journal and what is built from it: location, room, checkpoints, retention, projections.

use super::{action::Action, entity::micros, overview::durability};
use crate::{
    problem::{Answered, Problem},
    request::query,
    server::Shared,
};
use rustix::fs::statvfs;
use serde::Deserialize;
use serde_json::{Value, json};
use std::{
    sync::PoisonError,
    time::{Duration, SystemTime},
};
use throng::projection::{ProjectionState, Skipped};

const DAY_SECONDS: f64 = 86_400.0;
/// The most days for which the date of a full disk is predicted.
const FULL_WITHIN_DAYS: f64 = 3_652.0;

/// Free and all bytes of the file system that a directory is on.
fn room(place: &str) -> Option<(u64, u64)> {
    let found = statvfs(place).ok()?;
    Some((found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize))
}

pub(super) fn journal(shared: &Shared) -> Answered<Value> {
    let (engine, console) = (&shared.engine, &shared.console);
    let (health, statistics, options) = (engine.health(), engine.statistics(), engine.options());
    let (medium, place) = match &console.about.place {
        Some((medium, place)) => (*medium, Some(place)),
        None => ("memory", None),
    };
    let room = place.filter(|_| medium == "directory").and_then(|place| room(place));
    let growth = {
        let series = console.series.lock().unwrap_or_else(PoisonError::into_inner);
        series.growth().map(|bytes| (bytes * DAY_SECONDS).round())
    };
    let used = engine.disk_bytes();
    let of_budget = options
        .disk_bytes_max
        .zip(used)
        .map(|(most, used)| most.saturating_sub(used));
    let left = [of_budget, room.map(|(free, _)| free)].into_iter().flatten().min();
    let days = left.zip(growth).filter(|(_, growth)| *growth >= 1.0);
    let days = days
        .map(|(left, growth)| left as f64 / growth)
        .filter(|days| *days < FULL_WITHIN_DAYS);
    let full_at = days.map(|days| SystemTime::now() + Duration::from_secs_f64(days * DAY_SECONDS));
    let now = jiff::Timestamp::now().as_microsecond();
    let checkpoint = statistics.checkpoint.map(|last| {
        json!({
            "covers": last.covers.to_string(), "at": micros(last.at.micros),
            "age_seconds": (now - last.at.micros).max(0) as f64 / 1e6, "took_ms": last.took.as_secs_f64() * 1e3,
            "commits_behind": statistics.commits_behind, "every_seconds": options.checkpoint_every.as_secs_f64(),
            "is_failing": health.troubles.iter().any(|trouble| trouble.contains("checkpoint")),
        })
    });
    let ms = |share| statistics.commit_seconds.quantile(share).map(|seconds| seconds * 1e3);
    let kinds = engine.registry().kinds().iter();
    let retention = kinds.map(|kind| {
        let keep = options.keep.get(kind.name).copied().unwrap_or(kind.keep);
        json!({ "kind": kind.name, "keep": keep.to_string() })
    });
    Ok(json!({
        "medium": medium, "place": place, "durability": durability(health.durability),
        "position": health.position.map(|position| position.to_string()), "bytes": health.journal_bytes,
        "disk": {
            "used_bytes": used, "budget_bytes": options.disk_bytes_max,
            "free_bytes": room.map(|(free, _)| free), "total_bytes": room.map(|(_, total)| total),
        },
        "growth_bytes_per_day": growth, "full_at": full_at.map(super::overview::time),
        "writer": health.position.map(|position| position.writer.0),
        "commits": statistics.commits, "commit_bytes": statistics.commit_bytes,
        "checkpoint": checkpoint,
        "sync": { "p50_ms": ms(0.5), "p99_ms": ms(0.99), "max_ms": ms(1.0), "commits_in_flight": statistics.in_flight },
        "retention": retention.collect::<Vec<_>>(),
        "cluster": super::overview::cluster(shared),
        "projections": engine.projections().iter().map(projection).collect::<Vec<_>>(),
    }))
}

fn projection(progress: &throng::projection::Progress) -> Value {
    let (state, reason) = match &progress.state {
        ProjectionState::Running => ("running", None),
        ProjectionState::Remote => ("elsewhere", None),
        ProjectionState::Retrying { reason } => ("retrying", Some(reason)),
        ProjectionState::Stopped { reason, .. } => ("stopped", Some(reason)),
    };
    let actions: Vec<Value> = Action::of_projection(progress).iter().map(Action::shown).collect();
    json!({
        "name": progress.name, "kind": progress.kind, "is_sink": progress.is_sink, "state": state, "reason": reason,
        "is_rebuilding": progress.is_rebuilding, "actions": actions,
        "reached": progress.reached.map(|position| position.to_string()), "lag_commits": progress.lag_commits,
        "lag_seconds": progress.lag_seconds, "behind_seconds": progress.behind_seconds, "events": progress.events,
        "skipped": progress.skipped.last().map_or(0, |last| last.number),
        "last_skipped": progress.skipped.iter().rev().map(skipped).collect::<Vec<_>>(),
    })
}

fn skipped(one: &Skipped) -> Value {
    json!({
        "number": one.number, "event": one.event.to_string(), "why": one.why, "at": micros(one.at.micros), "by": one.by,
        "reason": one.reason,
    })
}

/// Which part of it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PartsQuery {
    #[serde(default = "page")]
    limit: usize,
}

fn page() -> usize {
    crate::limits::PAGE_DEFAULT
}

/// `GET /admin/journal/parts`: the writers, and the segments or tables.
pub(super) async fn parts(shared: &Shared, asked: PartsQuery) -> Answered<Value> {
    let limit = query::limit(asked.limit)?;
    let inventory = shared.engine.inventory(limit).await;
    let inventory =
        inventory.map_err(|why| Problem::of_journal("The journal could not be looked at.", &why).boxed())?;
    let at = |at: Option<i64>| at.map(micros);
    let writers = inventory.writers.iter().map(|entry| {
        json!({
            "writer": entry.writer.0, "node": entry.node, "last": entry.last.0, "is_open": entry.is_open,
            "begun_at": at(entry.begun_micros), "ended_at": at(entry.ended_micros), "segments": entry.segments,
        })
    });
    let parts = inventory.parts.iter().map(|part| {
        json!({
            "name": part.name, "first": part.first.map(|first| first.to_string()), "begun_at": at(part.begun_micros),
            "rows": part.rows, "bytes": part.bytes,
        })
    });
    Ok(json!({
        "writers": writers.collect::<Vec<_>>(), "writers_total": inventory.writers_total,
        "parts": parts.collect::<Vec<_>>(), "parts_total": inventory.parts_total,
    }))
}
