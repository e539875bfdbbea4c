//! A pico: a persistent object with channels, children, and rulesets installed while it runs.

mod change;
mod children;
mod decide;
mod messages;
mod moving;
mod query;
mod schedule;
mod try_out;
mod variables;

pub use change::Change;
pub use children::{Child, Children, GetPage, PAGE_CHILDREN, Page, PageCommand, PageId};
pub use messages::{
    Adoption, Answers, Asked, Handled, Imported, Incoming, Installing, Logged, Newborn, PicoCommand, PicoEvent,
    PicoRejection, Portion, Ran, SelectedRule, Waiting,
};
pub use moving::Moving;
pub use query::{Everything, Look, May, PicoQuery, PicoView, QueryResult, Use};
pub use schedule::{ScheduleId, Scheduled, Schedules, When};
pub use try_out::{Tried, TryOut};
pub use variables::{Variable, Variables};

pub(crate) use children::CHILDREN_MAX;
pub(crate) use decide::{WAITING, WaitsFor};
pub(crate) use variables::put;

use crate::{
    channel::{Channel, Shape},
    family::{self, Family},
    id::{Eci, PicoId, Secret},
    intern::name,
    native,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use throng::model::{CommandAnswer, Entity, Turn};
use throng_krl::{SelectState, Value};

/// The state of a pico, built from its events.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Pico {
    /// All parts but the variables.
    pub(crate) body: Body,
    /// The entity variables of its rulesets.
    pub(crate) variables: Variables,
}

/// The state of a pico without its variables.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Body {
    /// The id; zero before birth.
    pub(crate) id: PicoId,
    /// True for an ended pico. Only its id is left, and it refuses everything.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_deleted: bool,
    /// The realm of rulesets. All picos of an engine have the same.
    pub(crate) realm: Secret,
    /// The secret from which it derives the channels of its children.
    pub(crate) key: Secret,
    /// The parent's channel; `None` for a root.
    pub(crate) parent: Option<Eci>,
    /// The move in progress, from the request until it is done or given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) moving: Option<Box<Moving>>,
    /// The number among its parent's children.
    pub(crate) number: u32,
    /// The channels in the order of creation, its own first.
    pub(crate) channels: Vec<Channel>,
    pub(crate) children: Children,
    /// The rulesets in the order of installation.
    pub(crate) rulesets: Vec<Installed>,
    pub(crate) schedules: Schedules,
    /// Events that wait for answers from elsewhere.
    pub(crate) waiting: Vec<Waiting>,
    /// The number of events that ever waited.
    pub(crate) waited: u64,
}

/// An installed ruleset with the progress of its event expressions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Installed {
    /// The ruleset's id, unique within the pico.
    #[serde(with = "name")]
    pub rid: Arc<str>,
    /// The URL it comes from.
    #[serde(with = "name")]
    pub url: Arc<str>,
    /// The value of `configure using` and `ctx:rid_config`, a map.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub config: Value,
    /// The progress of its rules in their event expressions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) states: Option<Box<SelectState>>,
}

impl Installed {
    pub(crate) fn of(installing: Installing, states: Option<Box<SelectState>>) -> Self {
        let Installing { rid, url, config } = installing;
        let is_empty = config.as_map().is_some_and(throng_krl::Map::is_empty);
        Self {
            rid: name::intern(&rid),
            url: name::intern(&url),
            config: if is_empty { Value::Null } else { config },
            states,
        }
    }
}

impl Pico {
    /// Returns a newborn pico with its first channels and rulesets.
    pub(crate) fn born(id: PicoId, newborn: &Newborn, key: Secret, own: Secret) -> Self {
        let of_parent = newborn.parent.map(|parent| {
            let shape = Shape::open(&["system", "child"]);
            Channel::new(newborn.down, Some(parent.pico), shape)
        });
        let channels = [
            Some(Channel::new(own, None, Shape::open(&["system", "self"]))),
            of_parent,
            Some(native::ui_channel(family::ui(newborn.realm, id).secret)),
            Some(Channel::new(
                Family::of(id, key).well_known(),
                None,
                native::well_known(),
            )),
        ];
        let rulesets = newborn.rulesets.iter().cloned();
        Self {
            body: Body {
                id,
                realm: newborn.realm,
                key,
                parent: newborn.parent,
                number: newborn.number,
                channels: channels.into_iter().flatten().collect(),
                rulesets: rulesets.map(|ruleset| Installed::of(ruleset, None)).collect(),
                ..Body::default()
            },
            variables: Variables::default(),
        }
    }

    fn handled(&mut self, handled: &Handled) {
        if let Some(number) = handled.waited {
            self.body.waiting.retain(|waiting| waiting.number != number);
        }
        if let Some(due) = &handled.due {
            self.body.schedules.remove(due);
        }
        for change in &handled.changes {
            self.apply(change);
        }
    }
}

impl Entity for Pico {
    const KIND: &'static str = "pico";
    type Id = PicoId;
    type Command = PicoCommand;
    type Event = PicoEvent;
    type Reply = Ran;
    type Rejection = PicoRejection;
    /// A pico asks another one to adopt it.
    const REQUESTS: &'static [&'static str] = &[Self::KIND];

    fn creates(command: &PicoCommand) -> bool {
        matches!(
            command,
            PicoCommand::Found(_) | PicoCommand::Born(_) | PicoCommand::Import(_)
        )
    }

    /// Allows an import to create a deleted pico again.
    fn recreates(command: &PicoCommand) -> bool {
        matches!(command, PicoCommand::Import(_))
    }

    fn decide(&self, command: PicoCommand, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, PicoRejection> {
        decide::decide(self, command, turn)
    }

    fn evolve(&mut self, event: &PicoEvent) {
        match event {
            PicoEvent::Born { id, newborn, key, own } => *self = Self::born(*id, newborn, *key, *own),
            PicoEvent::Imported(body) => {
                *self = Self {
                    body: Body::clone(body),
                    variables: Variables::default(),
                };
            }
            PicoEvent::Ran(handled) | PicoEvent::Failed { handled, .. } => self.handled(handled),
            PicoEvent::Waiting(waiting) => {
                self.body.waited = self.body.waited.max(waiting.number);
                self.body.waiting.retain(|other| other.number != waiting.number);
                self.body.waiting.push(waiting.clone());
            }
            PicoEvent::Deleted {} => {
                // The last state of an ended entity can still be read. For a pico it must reveal nothing.
                *self = Self {
                    body: Body {
                        id: self.body.id,
                        is_deleted: true,
                        ..Body::default()
                    },
                    variables: Variables::default(),
                };
            }
        }
    }

    fn heap_bytes(&self) -> usize {
        let Body {
            channels,
            children,
            rulesets,
            schedules,
            waiting,
            ..
        } = &self.body;
        let configs = rulesets.iter().map(|ruleset| ruleset.config.bytes()).sum::<u64>();
        channels.capacity() * size_of::<Channel>()
            + children.heap_bytes()
            + rulesets.capacity() * size_of::<Installed>()
            + usize::try_from(configs).unwrap_or(usize::MAX)
            + schedules.heap_bytes()
            + waiting.capacity() * 1_024
            + self.variables.heap_bytes()
    }
}
