//! The changes of an event in its pico. They are recorded, and they are enough to recover the pico.

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
    /// Sets an entity variable, or the value at a path in it.
    Put {
        /// The ruleset that owns the variable.
        #[serde(with = "name")]
        rid: Arc<str>,
        /// The variable's name, without `ent:`.
        #[serde(with = "name")]
        name: Arc<str>,
        /// The path into the variable's value; empty for the whole value.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        path: Vec<Arc<str>>,
        /// The whole new value at the path, not a difference.
        value: Value,
    },
    /// Removes an entity variable, or the value at a path in it.
    Remove {
        /// The ruleset that owned the variable.
        #[serde(with = "name")]
        rid: Arc<str>,
        /// The variable's name, without `ent:`.
        #[serde(with = "name")]
        name: Arc<str>,
        /// The path into the variable's value; empty for the whole value.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        path: Vec<Arc<str>>,
    },
    /// Adds a channel, or replaces the one with the same secret.
    Channel(Channel),
    /// Removes the channel with this secret.
    NoChannel(Secret),
    /// Adds a child.
    Child(Child),
    /// Removes the child with this number.
    NoChild(u32),
    /// Moves the oldest full page of children into a separate entity.
    Sealed,
    /// Installs a ruleset, or configures it anew.
    Ruleset(Installed),
    /// Uninstalls a ruleset and removes its variables.
    NoRuleset(Arc<str>),
    /// Sets the progress of a ruleset's rules in their event expressions.
    Waits {
        /// The ruleset of these rules.
        #[serde(with = "name")]
        rid: Arc<str>,
        /// The progress; `None` if no rule waits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        states: Option<Box<SelectState>>,
    },
    /// Schedules an event, or replaces the one with the same id.
    Schedule(Scheduled),
    /// Removes a scheduled event.
    NoSchedule(ScheduleId),
    /// Sets the children of an imported pico.
    Children(Children),
    /// Begins a move to another parent.
    Leaves(Box<Moving>),
    /// Gives up the move. The parent stays.
    Stays,
    /// Marks a moving pico as deleted. It ends once it knows its parent.
    Doomed,
    /// Sets another parent, and replaces the channel for the old one by one for the new.
    Parent(Adoption),
}

impl Pico {
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
    /// Returns the approximate bytes of the variables after these changes. If an upper bound is within `enough`, returns that bound.
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
    /// Applies a change to all but the variables.
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

/// Replaces the channel with the same secret, or appends it.
fn put_channel(channels: &mut Vec<Channel>, channel: &Channel) {
    match channels.iter_mut().find(|known| known.secret == channel.secret) {
        Some(known) => *known = channel.clone(),
        None => push_exactly(channels, channel.clone()),
    }
}

/// Replaces the ruleset with the same id, or appends it.
fn put_ruleset(rulesets: &mut Vec<Installed>, ruleset: &Installed) {
    match rulesets.iter_mut().find(|known| known.rid == ruleset.rid) {
        Some(known) => *known = ruleset.clone(),
        None => push_exactly(rulesets, ruleset.clone()),
    }
}

/// Appends without spare capacity, because a million picos keep such short lists.
fn push_exactly<T>(list: &mut Vec<T>, item: T) {
    list.reserve_exact(1);
    list.push(item);
}
