//! What a person looks at: an entity as it is, its children, its timers. Nothing is changed.

use super::{
    Common, Quarantined, Shard,
    entities::{Entities, Lookup},
    slot::Body,
    timers::{TimerView, TimersAway},
};
use crate::model::{Entity, Family};
use std::ops::Bound;
use throng_journal::Address;

/// Whether an entity can be looked at now, or what has to happen first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// Its state is in memory.
    Resident,
    /// Only in the store, and in the log.
    Passivated,
    /// It takes no messages until it is released by hand.
    Quarantined,
    /// It has ended, or its id was never used.
    Gone,
}

/// What is known of an entity without bringing it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glance {
    /// The place.
    pub whereabouts: Whereabouts,
    /// Its last event; 0 where that is not known here.
    pub seq: u64,
    /// Who created it, if it is in memory.
    pub parent: Option<(String, String)>,
    /// Whom it created; `None` if it is not in memory.
    pub children: Option<usize>,
}

/// Which parts of an entity to read; all of them cost time under its shard's lock.
#[derive(Clone, Debug, Default)]
pub struct Inspect {
    /// The state, written as JSON.
    pub state: bool,
    /// Addresses of children; `None` for their number only.
    pub children: Option<ChildrenPage>,
}

/// A page of children in the order of their addresses.
#[derive(Clone, Debug, Default)]
pub struct ChildrenPage {
    /// Those whose ids begin with this.
    pub prefix: String,
    /// Kind and id of the last child of the page before; `None` for the first page.
    pub after: Option<(String, String)>,
    /// At most so many.
    pub limit: usize,
}

/// What was asked for of an entity, and what costs nothing to add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspected {
    /// The place.
    pub whereabouts: Whereabouts,
    /// The sequence number of its last event; 0 without any.
    pub seq: u64,
    /// The event it ended with last; 0: it never did.
    pub ended: u64,
    /// The state as JSON, if that was asked for and there is one.
    pub state: Option<String>,
    /// Why it is quarantined, if it is.
    pub quarantine: Option<Quarantined>,
    /// Kind and id of the entity that created it, if one did.
    pub parent: Option<(String, String)>,
    /// How many entities it has created that still are its children.
    pub children: usize,
    /// The children that were asked for.
    pub children_page: Vec<(String, String)>,
    /// The number of the commit that this rests on.
    pub rests_on: u64,
}

impl<E: Entity> Entities<E> {
    pub(super) fn glance(&self, hash: u64, id: &str) -> Option<Glance> {
        let slot = self.peek(self.find(hash, id)?);
        let (whereabouts, seq) = match &slot.body {
            Body::Resident(resident) if resident.is_gone || resident.seq == 0 => (Whereabouts::Gone, resident.seq),
            Body::Resident(resident) => (Whereabouts::Resident, resident.seq),
            Body::Passivated(seq) => (Whereabouts::Passivated, seq.unwrap_or(0)),
            Body::Quarantined(aside) => (Whereabouts::Quarantined, aside.seq.saturating_sub(1)),
        };
        let family = slot.family.as_deref();
        let is_known = !matches!(slot.body, Body::Passivated(_));
        Some(Glance {
            whereabouts,
            seq,
            parent: family.and_then(|family| family.parent.clone()),
            children: is_known.then(|| family.map_or(0, |family| family.children.len())),
        })
    }

    /// `None` if it has to be loaded first.
    pub(super) fn inspect(
        &mut self,
        common: &mut Common,
        (hash, id): (u64, &str),
        wanted: &Inspect,
    ) -> Option<Result<Inspected, String>> {
        let (at, is_new) = match self.look_up(common, hash, id) {
            Lookup::Found { at, is_new } => (at, is_new),
            Lookup::Load => return None,
            Lookup::Refused(error) => return Some(Err(error.to_string())),
        };
        let slot = self.peek(at);
        let family = slot.family.as_deref();
        let page = wanted.children.as_ref();
        let mut inspected = Inspected {
            whereabouts: Whereabouts::Gone,
            seq: 0,
            ended: slot.ended,
            state: None,
            quarantine: None,
            parent: family.and_then(|family| family.parent.clone()),
            children: family.map_or(0, |family| family.children.len()),
            children_page: family
                .zip(page)
                .map(|(family, page)| children(family, page))
                .unwrap_or_default(),
            rests_on: slot.rests_on,
        };
        match &slot.body {
            Body::Resident(resident) => {
                inspected.seq = resident.seq;
                if resident.seq > 0 && !resident.is_gone {
                    inspected.whereabouts = Whereabouts::Resident;
                    if wanted.state {
                        inspected.state = serde_json::to_string(&resident.state).ok();
                    }
                }
            }
            Body::Passivated(_) => inspected.whereabouts = Whereabouts::Passivated,
            Body::Quarantined(_) => {
                inspected.whereabouts = Whereabouts::Quarantined;
                inspected.quarantine = Quarantined::of(slot);
            }
        }
        if is_new {
            self.remove(common, at);
        }
        Some(Ok(inspected))
    }
}

fn children(family: &Family, page: &ChildrenPage) -> Vec<(String, String)> {
    let from = page.after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
    let rest = family.children.range((from, Bound::Unbounded));
    let fitting = rest.filter(|(_, id)| id.starts_with(&page.prefix));
    fitting.take(page.limit).cloned().collect()
}

impl Shard {
    /// What is known of an entity without bringing it back; `None`: nothing.
    #[must_use]
    pub fn glance(&self, kind: usize, hash: u64, id: &str) -> Option<Glance> {
        let seen = self.tables.get(kind)?.glance(hash, id);
        self.glance_at_quarantined(kind, (hash, id), seen)
    }

    /// An entity, as it is; `None`: it has to be [loaded](Self::load_request) first.
    pub fn inspect(&mut self, kind: usize, entity: (u64, &str), wanted: &Inspect) -> Option<Result<Inspected, String>> {
        let mut inspected = self.tables[kind].inspect(&mut self.common, entity, wanted);
        if let Some(Ok(inspected)) = &mut inspected {
            self.inspect_quarantined(kind, entity, inspected);
        }
        inspected
    }

    /// About how many entities of a kind it has, in memory or not.
    #[must_use]
    pub fn known(&self, kind: usize) -> usize {
        self.tables.get(kind).map_or(0, |table| table.known())
    }

    /// Counts the entities of a kind in memory, and those that are quarantined.
    #[must_use]
    pub fn resident(&self, kind: usize) -> (usize, usize) {
        let of_table = self.tables.get(kind).map(|table| table.resident());
        of_table.map_or((0, 0), |(resident, quarantined)| {
            (resident, quarantined + self.quarantined_number(kind))
        })
    }

    /// An entity's timers in memory, at most so many, and where the others are to be read, if there may be any.
    #[must_use]
    pub fn timers_of(&self, of: &Address, limit: usize) -> (Vec<TimerView>, Option<TimersAway>) {
        let timers = &self.common.timers;
        (timers.views_of(of, limit), timers.away(of))
    }

    /// Timers that could not be fired and are tried again, at most so many.
    #[must_use]
    pub fn late_timers(&self, limit: usize) -> Vec<TimerView> {
        self.common.timers.late(limit)
    }
}
