//! Troubles of the service, each with its reason and its remedy.

use super::{
    action::{Action, encoded},
    entity::micros,
};
use crate::{
    problem::{Answered, Problem, engine_problem},
    server::Shared,
};
use serde_json::{Value, json};
use std::sync::PoisonError;
use throng::{
    DeadContent, DeadContents, DeadFilter, OTHER_CAUSES, UnresolvedWork, projection::ProjectionState,
    services::health::Status,
};

/// Troubles of each type that are listed at most.
const EACH_MAX: usize = 100;
/// The most entities named while messages between entities fill their memory.
const CROWDING_MAX: usize = 3;
/// The most dead messages that are counted: each is read from the store, once a second while a console shows them.
const DEAD_COUNTED_MAX: usize = 10_000;
/// The largest content of a dead message that is shown in a list. An export has all.
const BODY_SHOWN_BYTES_MAX: usize = 2 << 10;

struct Item<'a> {
    r#type: &'static str,
    /// The entity's kind and id; `None` if it concerns the service.
    of: Option<(&'a str, &'a str)>,
    what: String,
    reason: String,
    since: Value,
    count: u64,
    number: Option<String>,
    message: Value,
    actions: Vec<Action>,
}

impl Item<'_> {
    fn new(r#type: &'static str, what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            r#type,
            of: None,
            what: what.into(),
            reason: reason.into(),
            since: Value::Null,
            count: 1,
            number: None,
            message: Value::Null,
            actions: Vec::new(),
        }
    }

    fn shown(&self) -> Value {
        let actions: Vec<Value> = self.actions.iter().map(Action::shown).collect();
        json!({
            "type": self.r#type, "kind": self.of.map(|(kind, _)| kind), "id": self.of.map(|(_, id)| id), "what": self.what,
            "reason": self.reason, "since": self.since, "count": self.count, "number": self.number, "message": self.message, "actions": actions,
        })
    }
}

/// Kind and id as a query string.
fn query((kind, id): (&str, &str)) -> String {
    format!("kind={}&id={}", encoded(kind), encoded(id))
}

/// Returns the dead messages to one kind with one cause, which were counted with the engine's gauges or later.
fn dead_group(kind: &str, cause: &str, count: u64) -> Value {
    let path = |action: &str| {
        let (kind, cause) = (encoded(kind), encoded(cause));
        format!("/admin/dead/{action}?kind={kind}&cause={cause}")
    };
    let retry = Action::new("retry", "Try all again", path("retry"))
        .confirm(format!("All messages to {kind} that died of this are executed again now: {count} when they were counted last. Those to one entity keep their order."));
    let drop = Action::new("drop", "Drop all", path("drop"))
        .confirm(format!("All messages to {kind} that died of this are never taken: {count} when they were counted last. Nobody can try them again. A sender that asked for the outcome hears that they were dropped."))
        .needs_reason();
    json!({
        "kind": kind, "cause": cause, "count": count, "export": path("export"),
        "actions": [retry.shown(), drop.shown()],
    })
}

/// Shows a dead message to the operator who decides about it.
fn shown(DeadContent { message, command }: &DeadContent) -> Value {
    let body = (command.get().len() <= BODY_SHOWN_BYTES_MAX).then_some(command);
    let sender = &message.sender;
    json!({
        "name": message.name, "sender": { "kind": sender.kind, "id": sender.id }, "attempts": message.attempts,
        "died_at": micros(message.at.micros), "body": body, "body_bytes": command.get().len(),
    })
}

/// The whole list of troubles.
#[derive(Default)]
struct Troubles {
    items: Vec<Value>,
    more: bool,
    /// Entities of these types, listed or not.
    quarantined: usize,
    stuck: usize,
    /// The number of dead messages, and whether there may be more.
    dead: usize,
    dead_more: bool,
}

impl Troubles {
    fn add(&mut self, item: &Item<'_>) {
        self.items.push(item.shown());
    }

    async fn dead(&mut self, shared: &Shared) -> Answered<()> {
        let all = DeadFilter::default();
        let page = shared.engine.dead_contents(&all, None, EACH_MAX);
        let page = page.await.map_err(engine_problem)?;
        self.more |= page.next.is_some();
        self.count_dead(shared, &page).await?;
        for content in &page.messages {
            let message = &content.message;
            let of = (&*message.receiver.kind, &*message.receiver.id);
            let number = format!("{}.{}", message.number.0, message.number.1);
            let path = |action: &str| format!("/admin/dead/{action}?{}&number={number}", query(of));
            let retry = Action::new("retry", "Try again", path("retry"));
            let drop = Action::new("drop", "Drop", path("drop"))
                .confirm("It is never taken: nobody can try it again. If its sender asked for the outcome, it hears that it was dropped.")
                .needs_reason();
            let what = format!("{} from {}", message.name, message.sender);
            self.add(&Item {
                of: Some(of),
                since: micros(message.first_at.micros),
                number: Some(number.clone()),
                message: shown(content),
                actions: vec![retry, drop],
                ..Item::new("dead", what, &message.reason)
            });
        }
        Ok(())
    }

    /// Counts the dead messages, from this first page on.
    async fn count_dead(&mut self, shared: &Shared, first: &DeadContents) -> Answered<()> {
        self.dead = first.messages.len();
        let mut next = first.next.clone();
        while let Some(after) = next.take_if(|_| self.dead < DEAD_COUNTED_MAX) {
            let page = shared.engine.dead_messages(None, Some(&after), usize::MAX).await;
            let page = page.map_err(engine_problem)?;
            self.dead += page.messages.len();
            next = page.next;
        }
        self.dead_more = next.is_some();
        Ok(())
    }

    async fn entities(&mut self, shared: &Shared) -> Answered<()> {
        let quarantined = shared.engine.quarantined(EACH_MAX).await.map_err(engine_problem)?;
        let populations = shared.engine.populations().await.map_err(engine_problem)?;
        self.quarantined = populations.iter().map(|population| population.quarantined).sum();
        let waiting = shared.engine.waiting_messages();
        for entity in &quarantined {
            let of = (&*entity.address.kind, &*entity.address.id);
            let what = match (&entity.by, entity.seq) {
                (Some(by), _) => {
                    let waiting = waiting.get(&entity.address).copied().unwrap_or_default();
                    format!("by {by}; about {waiting} messages wait")
                }
                (None, 0) => "what is stored of it".to_owned(),
                (None, seq) => format!("event {seq}"),
            };
            self.add(&Item {
                of: Some(of),
                since: micros(entity.since.micros),
                count: entity.refused,
                actions: Action::of_quarantined(of, entity.by.is_some()),
                ..Item::new("quarantined", what, &entity.reason)
            });
        }
        let stuck = shared.engine.stuck();
        self.stuck = stuck.len();
        for entity in stuck.iter().take(EACH_MAX) {
            let of = (&*entity.address.kind, &*entity.address.id);
            self.add(&Item {
                of: Some(of),
                since: micros(entity.since.micros),
                count: entity.messages,
                actions: vec![Action::quarantine(of)],
                ..Item::new("stuck", "its messages wait", &entity.reason)
            });
        }
        for (address, messages) in shared.engine.crowding(CROWDING_MAX) {
            let of = (&*address.kind, &*address.id);
            let reason = "Messages between entities take all the room they have, so that work from outside is refused. Most of them are for this one.";
            self.add(&Item {
                of: Some(of),
                count: messages,
                actions: vec![Action::quarantine(of)],
                ..Item::new("crowding", "messages to it", reason)
            });
        }
        let late = shared.engine.late_timers(EACH_MAX + 1).await.map_err(engine_problem)?;
        self.more |= late.len() > EACH_MAX;
        for timer in late.iter().take(EACH_MAX) {
            let of = (&*timer.due.address.kind, &*timer.due.address.id);
            let reason = "It could not be fired: its entity is quarantined or cannot be loaded, or only a newer release understands it. It is tried again by itself.";
            let path = format!("/admin/timer/cancel?{}&name={}", query(of), encoded(&timer.due.name));
            let cancel = Action::new("cancel", "Cancel", path)
                .confirm("It never fires, also once its entity can be loaded again, until the entity sets it anew.")
                .needs_reason();
            self.add(&Item {
                of: Some(of),
                since: micros(timer.due.at.micros),
                actions: vec![cancel],
                count: u64::from(timer.tries),
                ..Item::new("timer", &timer.due.name, reason)
            });
        }
        Ok(())
    }

    fn parts(&mut self, shared: &Shared) {
        for progress in shared.engine.projections() {
            let reason = match &progress.state {
                ProjectionState::Stopped { reason, .. } => Some(format!("It has stopped: {reason}")),
                ProjectionState::Retrying { reason } => Some(format!("It tries again: {reason}")),
                ProjectionState::Running | ProjectionState::Remote => progress.trouble().or_else(|| progress.missed()),
            };
            if let Some(reason) = reason {
                let behind_micros = (progress.behind_seconds * 1e6) as i64;
                self.add(&Item {
                    since: match behind_micros {
                        0 => Value::Null,
                        _ => micros(jiff::Timestamp::now().as_microsecond() - behind_micros),
                    },
                    count: progress.lag_commits,
                    actions: Action::of_projection(&progress),
                    ..Item::new("projection", progress.name, reason)
                });
            }
        }
        let health = shared.engine.health();
        if let Some(reason) = &health.reason {
            let detail = health
                .detail
                .as_ref()
                .map_or(String::new(), |detail| format!(": {detail}"));
            self.add(&Item::new(
                "journal",
                "no command is taken",
                format!("{reason}{detail}"),
            ));
        }
        for trouble in health
            .troubles
            .iter()
            .filter(|trouble| !trouble.starts_with("the projection "))
        {
            let r#type = if trouble.contains("checkpoint") {
                "checkpoint"
            } else {
                "journal"
            };
            self.add(&Item::new(r#type, "", trouble));
        }
        let checks = shared.checks.all();
        for check in checks
            .iter()
            .filter(|check| matches!(check.status, Status::Warn | Status::Fail))
        {
            self.add(&Item::new("check", &*check.name, check.reason.to_string()));
        }
    }

    fn refusals(&mut self, shared: &Shared) {
        let series = shared.console.series.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, count, since) in series.refusals() {
            self.add(&Item {
                since: micros(since.saturating_mul(1_000_000)),
                count,
                ..Item::new("refusals", name, why(name))
            });
        }
    }
}

/// Returns the explanation for refusals of this name.
fn why(name: &str) -> String {
    match name {
        "overloaded" => "More comes than can be served; clients are told when to try again.".into(),
        "storage_full" => "The journal has no room.".into(),
        "unavailable" => "The engine was not ready.".into(),
        limit => format!("Clients reached the limit {limit}."),
    }
}

pub(super) async fn trouble(shared: &Shared) -> Answered<Value> {
    let mut troubles = Troubles::default();
    troubles.parts(shared);
    // The store is not read while the engine is down. That it is down is listed above, if it lasts longer than a moment.
    let health = shared.engine.health();
    if health.ready && health.position.is_some() {
        let read = async {
            troubles.entities(shared).await?;
            troubles.dead(shared).await
        };
        let read: Result<(), Box<Problem>> = read.await;
        read?;
    }
    troubles.refusals(shared);
    let unresolved = shared.engine.health().unresolved;
    let dead_groups: Vec<Value> = unresolved
        .iter()
        .filter(|one| one.work == UnresolvedWork::DeadMessage && one.reason != OTHER_CAUSES)
        .map(|one| dead_group(&one.kind, &one.reason, one.count))
        .collect();
    let Troubles {
        items,
        more,
        quarantined,
        stuck,
        dead,
        dead_more,
    } = troubles;
    let unlisted: usize = [quarantined, stuck, dead]
        .map(|count| count.saturating_sub(EACH_MAX))
        .iter()
        .sum();
    Ok(json!({
        "total": items.len() + unlisted, "totals": { "quarantined": quarantined, "stuck": stuck, "dead": dead },
        "uncounted": if dead_more { &["dead"][..] } else { &[] },
        "dead_groups": dead_groups, "items": items, "more": more || unlisted > 0,
    }))
}
