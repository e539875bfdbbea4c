//! Scheduled events of a pico: once at a time, or repeatedly by a cron expression.

use crate::{cron, id::Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use throng_krl::Value;

/// The id of a scheduled event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct ScheduleId(pub Arc<str>);

/// A scheduled event.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Scheduled {
    /// The id, the argument of `schedule:remove`.
    pub id: ScheduleId,
    /// The ruleset that scheduled it.
    pub rid: Arc<str>,
    /// The channel on which it will arrive.
    pub via: Secret,
    /// The first part of its type.
    pub domain: Arc<str>,
    /// The second part of its type.
    pub name: Arc<str>,
    /// The attributes, a map.
    pub attributes: Value,
    /// A single time, or repeated times in cron's form.
    pub when: When,
}

/// The time of a scheduled event.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// A single time: milliseconds since 1970.
    At(i64),
    /// Repeated times, in five or six cron fields.
    Repeat(Arc<str>),
}

impl Scheduled {
    /// Returns the next time after this one, both in milliseconds since 1970.
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

    /// Returns the entry in the form of `schedule:list()`.
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
    /// Returns the name of the engine's timer for this id.
    #[must_use]
    pub fn timer(&self) -> String {
        format!("s {}", self.0)
    }
}

/// The scheduled events of a pico.
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

    /// Returns a scheduled event by its id, unless it has happened or was removed.
    #[must_use]
    pub fn get(&self, id: &ScheduleId) -> Option<&Scheduled> {
        self.0.iter().find(|scheduled| scheduled.id == *id)
    }

    /// Iterates over the scheduled events, in the order in which they were scheduled.
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
