//! The console's view of one entity: its present and past states, its events and their causes. Also commands by operators, and trials of
//! commands.

use super::{action::Action, by::By, map};
use crate::{
    follow::{self, Shown},
    problem::{Answered, Problem, engine_problem},
    request::{path::checked_id, query},
    server::{Server, Shared},
};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use std::collections::BTreeMap;
use throng::{
    Decision, FeedError, History, TravelError,
    inspect::{Inspect, Pending, TimerView, Whereabouts},
    journal::{Address, StoredEvent, byte_order_mark},
    model::worker_of,
};

/// Timers and messages that are shown.
const SHOWN_MAX: usize = 100;
/// The caller's name in commands from the console, if no other is known.
const CALLER: &str = "console";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AtQuery {
    pub(super) at: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryQuery {
    pub(super) after: Option<u64>,
    pub(super) before: Option<u64>,
    #[serde(default = "page")]
    limit: usize,
}

fn page() -> usize {
    crate::limits::PAGE_DEFAULT
}

/// A command, as a form sends it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    name: String,
    #[serde(default)]
    body: Option<Box<RawValue>>,
    key: Option<String>,
    /// Also a command that is not public.
    #[serde(default)]
    internal: bool,
}

impl Asked {
    pub(super) fn read(body: &[u8]) -> Answered<Self> {
        serde_json::from_slice(body).map_err(|why| {
            let why = byte_order_mark(body).map_or_else(|| why.to_string(), str::to_owned);
            let detail = format!("The body cannot be read: {why}. It is an object with name and body.");
            Problem::malformed(detail).boxed()
        })
    }

    /// Returns the fields of an entry in the audit, without the body, which may hold a secret.
    pub(super) fn fields(&self, subject: &Subject) -> BTreeMap<String, String> {
        let fields = [("kind", subject.name), ("id", &subject.id), ("command", &self.name)];
        fields.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }

    fn content(&self) -> &str {
        self.body.as_ref().map_or("{}", |body| body.get())
    }
}

/// Kind and id of an entity, as a path names it.
pub(super) struct Subject {
    pub(super) kind: usize,
    pub(super) name: &'static str,
    pub(super) id: String,
}

impl Subject {
    pub(super) fn of(shared: &Shared, kind: &str, id: &str) -> Answered<Self> {
        let at = map::kind(shared, kind)?;
        Ok(Self {
            kind: at,
            name: shared.engine.registry().kinds()[at].name,
            id: checked_id(id.into())?.into_owned(),
        })
    }
}

pub(super) fn micros(at: i64) -> Value {
    jiff::Timestamp::from_microsecond(at).map_or(Value::Null, |at| at.to_string().into())
}

fn raw(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or(Value::Null)
}

fn address(address: &Address) -> Value {
    json!({ "kind": address.kind, "id": address.id })
}

pub(super) fn timer(timer: &TimerView) -> Value {
    let due = &timer.due;
    json!({
        "name": due.name, "at": micros(due.at.micros), "every_ms": due.every_micros.map(|every| every as f64 / 1e3),
        "command": due.command, "body": serde_json::from_slice::<Value>(&due.body).unwrap_or_default(),
        "tries": timer.tries, "retry_at": if timer.tries > 0 { micros(timer.next_at.micros) } else { Value::Null },
    })
}

fn pending(message: &Pending, other: (&str, &Address)) -> Value {
    let mut shown = json!({
        "number": format!("{}.{}", message.number.0, message.number.1), "name": message.name, "sent": message.sent.to_string(),
    });
    shown[other.0] = address(other.1);
    shown
}

fn unknown(subject: &Subject) -> Box<Problem> {
    engine_problem(throng::model::Error::Unknown {
        kind: subject.name,
        id: subject.id.clone(),
    })
}

pub(super) async fn now(shared: &Shared, subject: &Subject) -> Answered<Value> {
    let engine = &shared.engine;
    let Subject { kind, name, id } = subject;
    let wanted = Inspect {
        state: true,
        children: None,
    };
    let found = engine.inspect(*kind, id, wanted).await.map_err(engine_problem)?;
    if found.whereabouts == Whereabouts::Gone && found.seq == 0 && found.parent.is_none() {
        return Err(unknown(subject));
    }
    let is_stuck = engine
        .stuck()
        .iter()
        .any(|stuck| &*stuck.address.kind == *name && &*stuck.address.id == id);
    let status = match found.whereabouts {
        _ if is_stuck => "stuck",
        Whereabouts::Resident => "resident",
        Whereabouts::Passivated => "passivated",
        Whereabouts::Quarantined => "quarantined",
        Whereabouts::Gone => "ended",
    };
    let timers = engine.timers_of(*kind, id, SHOWN_MAX).await.map_err(engine_problem)?;
    let (sent, coming) = engine.pending_messages(name, id, SHOWN_MAX);
    let dead = engine
        .dead_messages(Some((name, Some(id))), None, crate::limits::PAGE_MAX)
        .await;
    let hot = engine.hot(crate::limits::PAGE_MAX).await.unwrap_or_default();
    let of_it = hot.iter().find(|hot| hot.kind == *kind && *hot.id == **id);
    let quarantine = found.quarantine.as_ref();
    let waiting = engine.waiting_messages().get(&Address::new(*name, &**id)).copied();
    let is_call = engine.registry().kinds()[*kind].is_internal && worker_of(name).is_some();
    let actions = match quarantine {
        Some(aside) => Action::of_quarantined((name, id), aside.by.is_some()),
        None if is_call && found.whereabouts != Whereabouts::Gone => Action::of_call((name, id)),
        None => Action::of_entity((name, id)),
    };
    Ok(json!({
        "kind": name, "id": id, "shard": engine.registry().shard_of(name, id).0, "seq": found.seq, "status": status,
        "ended": found.ended > 0 && found.ended == found.seq,
        "state": found.state.as_deref().map(raw), "state_bytes": found.state.as_ref().map(String::len),
        "state_version": engine.registry().kinds()[*kind].state_version, "at_seq": found.seq,
        "quarantine": quarantine.map(|aside| json!({ "seq": aside.seq, "reason": aside.reason, "since": micros(aside.since.micros), "refused": aside.refused, "by": aside.by, "waiting": waiting })),
        "actions": actions.iter().map(Action::shown).collect::<Vec<_>>(),
        "family": { "parent": found.parent.map(|(kind, id)| json!({ "kind": kind, "id": id })), "children": found.children },
        "keys": null,
        "timers": timers.iter().map(timer).collect::<Vec<_>>(),
        "pending_out": sent.iter().map(|message| pending(message, ("to", &message.receiver))).collect::<Vec<_>>(),
        "pending_in": coming.iter().map(|message| pending(message, ("from", &message.sender))).collect::<Vec<_>>(),
        "dead": dead.map_or(0, |page| page.messages.len()), "events_removed": null,
        "per_second": of_it.map_or(0.0, |hot| (hot.seen_per_second * throng::SAMPLED_ONE_IN as f64).round()),
    }))
}

fn travel(error: TravelError) -> Box<Problem> {
    let detail = format!("There is no such moment: {error}.");
    match error {
        TravelError::Engine(error) => engine_problem(error),
        TravelError::Gone { .. } => Problem::not_kept(detail).boxed(),
        TravelError::Future { .. } => Problem::malformed(detail).at_field("at").boxed(),
        TravelError::Far { .. } | TravelError::Broken(_) => Problem::not_applied(detail).boxed(),
    }
}

pub(super) async fn then(shared: &Shared, subject: &Subject, at: u64) -> Answered<Value> {
    let then = shared
        .engine
        .as_of(subject.kind, &subject.id, at)
        .await
        .map_err(travel)?;
    Ok(json!({
        "kind": subject.name, "id": subject.id, "at_seq": then.seq, "at": then.at_micros.map_or(Value::Null, micros),
        "state": raw(&then.state), "state_bytes": then.state.len(),
    }))
}

/// Returns a page of the history, with the cause of each event.
pub(super) async fn history(shared: &Shared, subject: &Subject, asked: HistoryQuery) -> Answered<Value> {
    let (engine, limit) = (&shared.engine, query::limit(asked.limit)?);
    let Subject { kind, name, id } = subject;
    let (after, limit) = match (asked.after, asked.before) {
        (Some(_), Some(_)) => {
            let detail = "after and before are both given; a page has one end.";
            return Err(Problem::malformed(detail).at_field("before").boxed());
        }
        (after, None) => (after.unwrap_or(0), limit),
        (None, Some(before)) => {
            let last = before.saturating_sub(1);
            let after = last.saturating_sub(limit as u64);
            (after, usize::try_from(last - after).unwrap_or(limit))
        }
    };
    if limit == 0 {
        return Ok(json!({ "events": [], "next": null, "removed": 0 }));
    }
    let page = match engine.history(*kind, id, after, limit).await {
        // The page that ends there is after the last event.
        Err(FeedError::Lost(_)) if asked.before.is_some() => History::default(),
        page => page.map_err(follow::problem)?,
    };
    let provenances = engine.provenances(name, id, &page.events).await;
    let provenances =
        provenances.map_err(|error| Problem::of_journal("What caused its events cannot be read.", &error).boxed())?;
    let events = page
        .events
        .iter()
        .zip(provenances)
        .map(|(event, provenance)| shown(event, provenance));
    let next = match asked.before {
        None => page.events.last().map(|event| event.seq).filter(|_| page.more),
        // If older events are stored, the page before ends before this one.
        Some(_) => page
            .events
            .first()
            .map(|event| event.seq)
            .filter(|first| *first > 1 && page.removed + 1 < *first),
    };
    Ok(json!({ "events": events.collect::<Vec<_>>(), "next": next, "removed": page.removed }))
}

fn shown(event: &StoredEvent, provenance: Option<throng::causes::Provenance>) -> Value {
    let mut shown = serde_json::to_value(Shown::new(event)).unwrap_or_default();
    match provenance {
        Some(provenance) => {
            shown["cause"] = json!(provenance.cause);
            shown["sent"] = json!(provenance.sent);
            shown["timers"] = json!(provenance.timers);
        }
        None => shown["cause"] = Value::Null,
    }
    shown
}

/// The command that is meant, public or not.
fn command<'a>(server: &'a Server, subject: &Subject, asked: &'a Asked) -> Answered<&'a str> {
    let names = &server.shared().kinds.0[subject.kind];
    if let Some(name) = names.command(&asked.name) {
        return Ok(name);
    }
    let is_internal = names.internal.contains(&asked.name);
    match is_internal && asked.internal {
        true => Ok(&asked.name),
        false => Err(names.no_command(&asked.name).boxed()),
    }
}

/// Runs a command, as a client's.
pub(super) async fn run(server: &Server, subject: &Subject, asked: &Asked, by: &By<'_>) -> Answered<Value> {
    let (driver, shared) = (&server.shared().driver, server.shared());
    let name = command(server, subject, asked)?;
    let attempt = driver.command(subject.kind, &*subject.id, name, asked.content().as_bytes());
    let mut attempt = attempt
        .map_err(engine_problem)?
        .caller(CALLER)
        .within(shared.limits.deadline);
    if let Some(key) = &asked.key {
        attempt = attempt.once(key.clone()).map_err(engine_problem)?;
    }
    let answered = driver.answer(attempt).await;
    let outcome = if answered.is_ok() { "done" } else { "refused" };
    tracing::info!("{by} asked {}/{} to {name}: {outcome}", subject.name, subject.id);
    let reply = answered.map_err(engine_problem)?;
    let now = shared
        .engine
        .inspect(subject.kind, &subject.id, Inspect::default())
        .await;
    let reply = serde_json::from_slice::<Value>(&reply).unwrap_or_default();
    Ok(json!({ "reply": reply, "seq": now.ok().map(|now| now.seq) }))
}

/// Returns the outcome that a command would have. Nothing is recorded.
pub(super) async fn what_if(shared: &Shared, subject: &Subject, at: Option<u64>, asked: &Asked) -> Answered<Value> {
    let engine = &shared.engine;
    let names = &shared.kinds.0[subject.kind];
    let name = match names.command(&asked.name) {
        Some(name) => name,
        // Nothing is executed, so the command need not be public.
        None if names.internal.contains(&asked.name) => &asked.name,
        None => return Err(names.no_command(&asked.name).boxed()),
    };
    let at = match at {
        Some(at) => at,
        None => {
            let now = engine.inspect(subject.kind, &subject.id, Inspect::default()).await;
            now.map_err(engine_problem)?.seq
        }
    };
    let then = engine.as_of(subject.kind, &subject.id, at).await.map_err(travel)?;
    let supposed = engine
        .suppose(then, name, asked.content().as_bytes(), Some(CALLER))
        .map_err(travel)?;
    let (outcome, refusal, effects) = match supposed.decision {
        Decision::Done(effects) => ("done", None, effects),
        Decision::Refused(why) => ("refused", Some(why), Vec::new()),
        Decision::Failed(why) => ("failed", Some(why), Vec::new()),
    };
    let effects = effects
        .into_iter()
        .map(|effect| json!({ "what": effect.what, "content": effect.content }));
    Ok(json!({
        "at_seq": at, "outcome": outcome, "reply": supposed.reply, "refusal": refusal,
        "effects": effects.collect::<Vec<_>>(), "state": supposed.state.as_deref().map(raw),
    }))
}
