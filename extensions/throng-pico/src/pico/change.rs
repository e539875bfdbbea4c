//! The changes of an event in its pico: the record, and all that is needed to bring the pico back.

use super::{
    Adoption, Body, Child, Children, Installed, Moving, Pico,
    schedule::{ScheduleId, Scheduled},
};
use crate::{
    channel::{Channel, Shape},
    id::Secret,
    intern::name,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use throng_krl::{SelectState, Value};

/// A change of a pico.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// An entity variable, or what is at a path in it, has this value.
    Put {
        /// The ruleset whose variable it is.
        #[serde(with = "name")]
        rid: Arc<str>,
        /// The ruleset's name for it, without `ent:`.
        #[serde(with = "name")]
        name: Arc<str>,
        /// Keys from the variable's value inwards; none for all of it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        path: Vec<Arc<str>>,
        /// The whole value there, not a difference.
        value: Value,
    },
    /// An entity variable, or what is at a path in it, is there no longer.
    Remove {
        /// The ruleset whose variable it was.
        #[serde(with = "name")]
        rid: Arc<str>,
        /// The ruleset's name for it, without `ent:`.
        #[serde(with = "name")]
        name: Arc<str>,
        /// Keys from the variable's value inwards; none for all of it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        path: Vec<Arc<str>>,
    },
    /// A channel, in the place of one with the same secret.
    Channel(Channel),
    /// The channel with this secret is there no longer.
    NoChannel(Secret),
    /// A new child.
    Child(Child),
    /// The child with this number is there no longer.
    NoChild(u32),
    /// A page of children is an entity of its own from now on.
    Sealed,
    /// A ruleset is installed, or configured anew.
    Ruleset(Installed),
    /// A ruleset is there no longer, nor are its variables.
    NoRuleset(Arc<str>),
    /// The progress of a ruleset's rules in waiting for events; nothing where none waits.
    Waits {
        /// The ruleset whose rules wait.
        #[serde(with = "name")]
        rid: Arc<str>,
        /// The states that its program made.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        states: Option<Box<SelectState>>,
    },
    /// An event is to come, in place of one with the same id.
    Schedule(Scheduled),
    /// A scheduled event is not any more.
    NoSchedule(ScheduleId),
    /// The children are these: of a pico that was imported.
    Children(Children),
    /// The pico looks for a way to another parent.
    Leaves(Box<Moving>),
    /// The move is given up; the parent does not change.
    Stays,
    /// The pico was deleted while it was on its way, and ends when it knows where it is.
    Doomed,
    /// The parent is another one, and the channel for the old one is one for the new one.
    Parent(Adoption),
}

impl Pico {
    /// Applies what has happened.
    pub(crate) fn apply(&mut self, change: &Change) {
        match change {
            Change::Put { rid, name, path, value } => self.variables.put(rid, name, path, value.clone()),
            Change::Remove { rid, name, path } => self.variables.remove(rid, name, path),
            Change::NoRuleset(rid) => {
                self.variables.remove_all(rid);
                self.body.apply(change);
            }
            other => self.body.apply(other),
        }
    }
}

impl Pico {
    /// About the bytes that the variables take once this has happened; where they are within `enough`, at least as many.
    pub(crate) fn bytes_after(&self, changes: &[Change], enough: usize) -> usize {
        let put = |change: &Change| match change {
            Change::Put { value, .. } => usize::try_from(value.bytes()).unwrap_or(usize::MAX),
            _ => 0,
        };
        let put = changes.iter().map(put).fold(0, usize::saturating_add);
        let most = self.variables.heap_bytes().saturating_add(put);
        if put == 0 || most <= enough {
            return most.min(enough);
        }
        let mut after = Self {
            body: Body::default(),
            variables: self.variables.clone(),
        };
        for change in changes {
            if matches!(
                change,
                Change::Put { .. } | Change::Remove { .. } | Change::NoRuleset(_)
            ) {
                after.apply(change);
            }
        }
        after.variables.heap_bytes()
    }
}

impl Body {
    /// Applies what has happened to all but the variables.
    pub(crate) fn apply(&mut self, change: &Change) {
        match change {
            Change::Put { .. } | Change::Remove { .. } => {}
            Change::Channel(channel) => put_channel(&mut self.channels, channel),
            Change::NoChannel(secret) => self.channels.retain(|channel| channel.secret != *secret),
            Change::Child(child) => self.children.add(*child),
            Change::NoChild(number) => self.children.remove(*number),
            Change::Sealed => self.children.seal(),
            Change::Ruleset(ruleset) => put_ruleset(&mut self.rulesets, ruleset),
            Change::NoRuleset(rid) => self.rulesets.retain(|ruleset| ruleset.rid != *rid),
            Change::Waits { rid, states } => {
                if let Some(ruleset) = self.rulesets.iter_mut().find(|ruleset| ruleset.rid == *rid) {
                    ruleset.states = states.clone();
                }
            }
            Change::Schedule(scheduled) => self.schedules.put(scheduled.clone()),
            Change::NoSchedule(id) => self.schedules.remove(id),
            Change::Children(children) => self.children = children.clone(),
            Change::Leaves(moving) => self.moving = Some(moving.clone()),
            Change::Stays => self.moving = None,
            Change::Doomed => {
                if let Some(moving) = &mut self.moving {
                    moving.is_doomed = true;
                }
            }
            Change::Parent(adoption) => self.adopted(adoption),
        }
    }
}

impl Body {
    fn adopted(&mut self, adoption: &Adoption) {
        let Adoption { parent, number, down } = *adoption;
        (self.parent, self.number, self.moving) = (Some(parent), number, None);
        self.channels
            .retain(|channel| channel.family.is_none() || !channel.is_system());
        let channel = Channel::new(down, Some(parent.pico), Shape::open(&["system", "child"]));
        self.channels.reserve_exact(1);
        self.channels.insert(self.channels.len().min(1), channel);
    }
}

/// Puts a channel in the place of one with the same secret, or after the others.
fn put_channel(channels: &mut Vec<Channel>, channel: &Channel) {
    match channels.iter_mut().find(|known| known.secret == channel.secret) {
        Some(known) => *known = channel.clone(),
        None => push_exactly(channels, channel.clone()),
    }
}

/// Puts a ruleset in the place of the one with the same id, or after the others.
fn put_ruleset(rulesets: &mut Vec<Installed>, ruleset: &Installed) {
    match rulesets.iter_mut().find(|known| known.rid == ruleset.rid) {
        Some(known) => *known = ruleset.clone(),
        None => push_exactly(rulesets, ruleset.clone()),
    }
}

/// Appends to a short list that is kept by a million picos: with no room for more.
fn push_exactly<T>(list: &mut Vec<T>, item: T) {
    list.reserve_exact(1);
    list.push(item);
}
