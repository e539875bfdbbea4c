//! Events at another time.

use crate::{cron, id::Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use throng_krl::Value;

/// A scheduled event's id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct ScheduleId(pub Arc<str>);

/// An event that is to come.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Scheduled {
    /// The id that `schedule:remove` is given.
    pub id: ScheduleId,
    /// The ruleset that scheduled it.
    pub rid: Arc<str>,
    /// The channel it comes over.
    pub via: Secret,
    /// The first part of its type.
    pub domain: Arc<str>,
    /// The second part of its type.
    pub name: Arc<str>,
    /// The attributes that the event will have, a map.
    pub attributes: Value,
    /// The times: one, or repeated ones in the form of cron.
    pub when: When,
}

/// When a scheduled event comes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// A single time: milliseconds since 1970.
    At(i64),
    /// Repeated times, as these five or six fields say.
    Repeat(Arc<str>),
}

impl Scheduled {
    /// When it comes next, after this; milliseconds since 1970.
    #[must_use]
    pub fn next_ms(&self, after_ms: i64) -> Option<i64> {
        match &self.when {
            When::At(at) => Some(*at),
            When::Repeat(fields) => cron::next_ms(fields, after_ms),
        }
    }

    /// Returns the name of the engine's timer for it.
    #[must_use]
    pub fn timer(&self) -> String {
        self.id.timer()
    }

    /// Returns the entry as `schedule:list()` shows it.
    #[must_use]
    pub fn shown(&self) -> Value {
        let event = Value::map([
            ("domain", Value::from(self.domain.clone())),
            ("name", self.name.clone().into()),
            ("attrs", self.attributes.clone()),
        ]);
        let when = match &self.when {
            When::At(at) => ("time", Value::from(crate::time::text(*at))),
            When::Repeat(cron) => ("timespec", Value::from(cron.clone())),
        };
        let kind = if matches!(self.when, When::At(_)) {
            "at"
        } else {
            "repeat"
        };
        Value::map([
            ("id", Value::from(self.id.0.clone())),
            ("type", kind.into()),
            when,
            ("event", event),
        ])
    }
}

impl ScheduleId {
    /// Returns the name of the engine's timer of this id.
    #[must_use]
    pub fn timer(&self) -> String {
        format!("s {}", self.0)
    }
}

/// The events that are to come.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Schedules(Vec<Scheduled>);

impl Schedules {
    pub(crate) fn put(&mut self, scheduled: Scheduled) {
        self.remove(&scheduled.id);
        self.0.push(scheduled);
    }

    pub(crate) fn remove(&mut self, id: &ScheduleId) {
        self.0.retain(|scheduled| scheduled.id != *id);
    }

    /// The scheduled event of an id, unless it has happened or was removed.
    #[must_use]
    pub fn get(&self, id: &ScheduleId) -> Option<&Scheduled> {
        self.0.iter().find(|scheduled| scheduled.id == *id)
    }

    /// Iterates over those to come, in the order they were scheduled.
    pub fn iter(&self) -> impl Iterator<Item = &Scheduled> {
        self.0.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let attributes = self.0.iter().map(|scheduled| scheduled.attributes.bytes()).sum::<u64>();
        usize::try_from(attributes).unwrap_or(usize::MAX) + self.0.capacity() * 2 * size_of::<Scheduled>()
    }
}
