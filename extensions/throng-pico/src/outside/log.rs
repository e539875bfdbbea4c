//! The log of a pico: every event it handled, in order.

use super::{Failure, Picos};
use crate::{
    id::{Eci, PicoId, Secret},
    native::shown,
    pico::{Change, Handled, Pico, PicoEvent, PicoRejection, Use},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use std::ops::ControlFlow;
use throng::{
    EntityEvent, FeedError, Follow, JsonRejection,
    model::{Entity, Error},
};
use throng_http::{LiveEvents, Problem};
use throng_krl::Value;
use tokio::task::yield_now;

/// The default number of events of a page.
const PAGE_DEFAULT: usize = 100;
/// The most events of a page.
const PAGE_MAX: usize = 1_000;
/// The most bytes of events of a page, after its first event. A single read has the same bound.
const PAGE_BYTES: usize = 1 << 20;
/// The bytes of memory that a page takes while it is built.
pub(crate) const PAGE_ROOM_BYTES: usize = 4 * PAGE_BYTES;
/// The bytes of events to read before other tasks may run.
const PIECE_BYTES: usize = 64 << 10;
/// The most events to read for one page of a filter; below, the most bytes.
const SCANNED_MAX: usize = 20_000;
const SCANNED_BYTES_MAX: usize = 64 << 20;
/// The number of events in the console's log.
const EPISODES: usize = 200;

/// A range of a pico's log, with filters.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LogQuery {
    /// The number of the event after which the page begins.
    #[serde(default)]
    pub after: u64,
    /// The most events of the page, 1 to 1,000; 100 by default.
    pub limit: Option<usize>,
    /// Only events of this domain.
    pub domain: Option<String>,
    /// Only events of this name.
    pub name: Option<String>,
    /// Only events that failed.
    pub failed: Option<bool>,
}

/// A page of a pico's log.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LogPage {
    /// The events, in order.
    pub events: Vec<Entry>,
    /// The `after` of the next page; absent at the end. A page also ends at a mebibyte of events.
    pub next: Option<u64>,
    /// Events up to this one are not kept any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<u64>,
}

/// An event that a pico handled.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Entry {
    /// The event's number, from 1 without a gap over all events of the pico.
    pub seq: u64,
    /// The time when it was recorded.
    pub time: String,
    /// The id of the transaction, as in the answer of `event-wait`.
    pub eid: String,
    /// The channel on which it arrived.
    pub eci: String,
    /// The first part of its type.
    pub domain: String,
    /// The second part of its type.
    pub name: String,
    /// The attributes of the event.
    pub attrs: Json,
    /// The recorded changes, in order.
    pub changes: Json,
    /// The log entries of its rules.
    pub log: Json,
    /// The selected rules in order, as `{rid, rule}` with the counts `fired` and `not_fired`.
    #[serde(default)]
    pub rules: Json,
    /// The error, if the event failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The reason why there is no page of a log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The log has no such place.
    #[error(transparent)]
    Lost(FeedError),
    /// The channel refuses it, or the engine fails.
    #[error(transparent)]
    Refused(Failure),
}

fn failed(rejection: JsonRejection) -> Failure {
    Error::Rejected(PicoRejection::Failed {
        error: rejection.to_string().into(),
    })
}

/// Decodes an event of a pico. `None` if that is impossible.
fn recorded(name: &str, payload: &[u8]) -> Option<PicoEvent> {
    let payload: Json = serde_json::from_slice(payload).ok()?;
    PicoEvent::deserialize(json!({ name: payload })).ok()
}

/// True if this event ends the access of a follower over this channel: the channel was changed or deleted, or the pico ended.
fn ends_for(via: Secret, event: &PicoEvent) -> bool {
    let PicoEvent::Ran(handled) = event else {
        return matches!(event, PicoEvent::Deleted {});
    };
    handled.changes.iter().any(|change| match change {
        Change::Channel(channel) => channel.secret == via,
        Change::NoChannel(secret) => *secret == via,
        _ => false,
    })
}

impl Entry {
    /// Returns the log entry of a pico's event; `None` if the event did not arrive on a channel.
    pub(crate) fn of(pico: PicoId, seq: u64, at_micros: i64, event: PicoEvent) -> Option<Self> {
        let (handled, error) = match event {
            PicoEvent::Ran(handled) => (handled, None),
            PicoEvent::Failed { handled, error } => (handled, Some(error.into())),
            _ => return None,
        };
        let Handled {
            eid,
            via,
            domain,
            name,
            attributes,
            changes,
            log,
            rules,
            ..
        } = handled;
        Some(Self {
            seq,
            time: crate::time::text(at_micros.div_euclid(1_000)),
            eid: eid.to_string(),
            eci: Eci { pico, secret: via }.to_string(),
            domain: domain.to_string(),
            name: name.to_string(),
            attrs: serde_json::to_value(attributes).unwrap_or_default(),
            changes: serde_json::to_value(changes).unwrap_or_default(),
            log: serde_json::to_value(log).unwrap_or_default(),
            rules: serde_json::to_value(rules).unwrap_or_default(),
            error,
        })
    }

    fn is_asked_for(&self, query: &LogQuery) -> bool {
        let is = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
        is(&query.domain, &self.domain)
            && is(&query.name, &self.name)
            && query.failed.is_none_or(|failed| failed == self.error.is_some())
    }
}

impl Picos {
    /// Returns a page of the log of the pico that a channel reaches. The channel must allow the query `logs` of the console's ruleset.
    ///
    /// # Errors
    ///
    /// [`LogError`]: the channel refuses it, the log has no such place, or the engine fails.
    pub async fn log(&self, eci: Eci, query: &LogQuery) -> Result<LogPage, LogError> {
        self.may(eci, Use::ReadLog).await.map_err(LogError::Refused)?;
        let limit = query.limit.unwrap_or(PAGE_DEFAULT).clamp(1, PAGE_MAX);
        let page = self.page(eci.pico, query, limit).await;
        page.map_err(|error| match error {
            FeedError::Engine(error) => LogError::Refused(error.engine().unwrap_or_else(failed)),
            lost @ FeedError::Lost(_) => LogError::Lost(lost),
        })
    }

    /// Follows the log from the query's place on, and then all new events as they become durable. `seen` is the pico's last event at the access
    /// check. The stream ends with the pico, and when a later event changes or deletes the channel. A client that reconnects is checked again.
    ///
    /// # Errors
    ///
    /// [`Problem`]: the engine fails.
    pub(crate) async fn follow_log(&self, eci: Eci, query: LogQuery, seen: u64) -> Result<LiveEvents, Problem> {
        let entity = Follow::Entity {
            kind: self.engine().kind(Pico::KIND).unwrap_or_default(),
            id: eci.pico.to_string(),
            after: query.after,
            at: None,
        };
        let show = move |event: &EntityEvent| {
            let stored = &event.event;
            let Some(happened) = recorded(&stored.name, &stored.payload) else {
                return ControlFlow::Continue(None);
            };
            if stored.seq > seen && ends_for(eci.secret, &happened) {
                return ControlFlow::Break(());
            }
            let entry = Entry::of(eci.pico, stored.seq, stored.at_micros, happened);
            let asked = entry.filter(|entry| entry.is_asked_for(&query));
            ControlFlow::Continue(asked.and_then(|entry| serde_json::to_string(&entry).ok()))
        };
        LiveEvents::follow(self.engine(), entity, show).await
    }

    /// Follows the numbers of the events that change the pico. The stream ends like that of the [log](Self::follow_log).
    ///
    /// # Errors
    ///
    /// [`Problem`]: the engine fails.
    pub(crate) async fn follow_changes(&self, eci: Eci, seen: u64) -> Result<LiveEvents, Problem> {
        let entity = Follow::Entity {
            kind: self.engine().kind(Pico::KIND).unwrap_or_default(),
            id: eci.pico.to_string(),
            after: seen,
            at: None,
        };
        let show = move |event: &EntityEvent| match recorded(&event.event.name, &event.event.payload) {
            Some(happened) if ends_for(eci.secret, &happened) => ControlFlow::Break(()),
            Some(PicoEvent::Ran(handled)) if !handled.changes.is_empty() => {
                ControlFlow::Continue(Some(json!({ "seq": event.event.seq }).to_string()))
            }
            _ => ControlFlow::Continue(None),
        };
        LiveEvents::follow(self.engine(), entity, show).await
    }

    async fn page(&self, pico: PicoId, query: &LogQuery, limit: usize) -> Result<LogPage, FeedError> {
        let kind = self.engine().kind(Pico::KIND).unwrap_or_default();
        let id = pico.to_string();
        let (mut page, mut after) = (LogPage::default(), query.after);
        let (mut scanned, mut scanned_bytes, mut bytes) = (0, 0, 0);
        loop {
            let history = self.engine().history_within(kind, &id, after, PAGE_MAX, PAGE_BYTES);
            let history = history.await?;
            if history.removed > 0 {
                page.removed = Some(history.removed);
            }
            for event in history.events {
                let length = event.payload.len();
                if (scanned_bytes + length) / PIECE_BYTES > scanned_bytes / PIECE_BYTES {
                    yield_now().await;
                }
                (after, scanned, scanned_bytes) = (event.seq, scanned + 1, scanned_bytes + length);
                let happened = recorded(&event.name, &event.payload);
                let entry = happened.and_then(|happened| Entry::of(pico, event.seq, event.at_micros, happened));
                if let Some(entry) = entry.filter(|entry| entry.is_asked_for(query)) {
                    page.events.push(entry);
                    bytes += length;
                }
                let is_full = page.events.len() == limit || bytes >= PAGE_BYTES;
                if is_full || scanned == SCANNED_MAX || scanned_bytes >= SCANNED_BYTES_MAX {
                    page.next = Some(after);
                    return Ok(page);
                }
            }
            if !history.more {
                return Ok(page);
            }
        }
    }

    /// Returns the last events in the form of the console's log.
    pub(super) async fn episodes(&self, pico: PicoId) -> crate::ask::Answered {
        let mut last = LogPage::default();
        let mut query = LogQuery::default();
        loop {
            let page = self.page(pico, &query, PAGE_MAX).await;
            let page = page.map_err(|error| error.to_string())?;
            let next = page.next;
            last.events.extend(page.events);
            let beyond = last.events.len().saturating_sub(EPISODES);
            last.events.drain(..beyond);
            match next {
                Some(next) => query.after = next,
                None => break,
            }
        }
        let episodes: Vec<Value> = last.events.iter().rev().map(|entry| shown(&episode(entry))).collect();
        Ok(episodes.into())
    }
}

/// Names a rule in the form of the original's log.
fn named_rule(rule: &Json) -> Json {
    json!({ "rid": rule["rid"], "rule_name": rule["rule"] })
}

fn episode(entry: &Entry) -> Json {
    let clock = entry.time.split_once('T').map_or("", |(_, clock)| clock);
    let mut attributes = entry.attrs.clone();
    if let Some(map) = attributes.as_object_mut() {
        map.remove("_headers");
    }
    let header = format!("EVENT {} {}:{} {attributes}", entry.eci, entry.domain, entry.name);
    let mut lines = vec![format!("{clock} [DEBUG] txnQueued {header}")];
    for rule in entry.rules.as_array().into_iter().flatten() {
        let count = |name: &str| rule.get(name).and_then(Json::as_u64).unwrap_or_default();
        let mut line = |what: &str| lines.push(format!("{clock} [DEBUG] {what} {}", named_rule(rule)));
        line("rule selected");
        for (what, count) in [("fired", count("fired")), ("not fired", count("not_fired"))] {
            match count {
                0 => {}
                1 => line(what),
                times => line(&format!("{what} {times} times")),
            }
        }
    }
    for logged in entry.log.as_array().into_iter().flatten() {
        let of = |name: &str| logged.get(name).and_then(Json::as_str).unwrap_or_default();
        let value = logged.get("value").cloned().unwrap_or_default();
        let (level, message) = (of("level"), of("message"));
        let about = match (level, message, &value) {
            ("klog", message, value) => format!("{message} {value}"),
            (_, message, Json::Null) => format!("{message} {}", json!({ "rid": of("rid") })),
            // The logged value is no text.
            (_, "", value) => format!("{value} {}", json!({ "rid": of("rid") })),
            (_, message, value) => format!("{message} {value}"),
        };
        lines.push(format!("{clock} [{}] {about}", level.to_uppercase()));
    }
    if let Some(error) = &entry.error {
        lines.push(format!("{clock} [ERROR] {error}"));
    }
    json!({ "txnId": entry.eid, "time": entry.time, "header": header, "entries": lines })
}
