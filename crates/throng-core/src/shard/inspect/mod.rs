//! Inspection by an operator: an entity's state, its children, its timers. Nothing is changed.

pub(super) mod check;
pub(super) mod decide_again;
pub(super) mod kind_check;
mod listing;
pub(super) mod views;

use super::{
    Common, HotEntity, Shard,
    resident::{Entities, Lookup, slot::Body},
    timers::{TimerView, TimersAway},
};
use crate::model::{Entity, Family, Timestamp};
use std::ops::Bound;
use throng_journal::Address;
use views::{ChildrenPage, Glance, Inspect, Inspected, Quarantined, Whereabouts};

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
    /// Returns what is known of an entity without loading it; `None` if nothing is.
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

    /// Counts the entities of a kind in memory, and the quarantined ones among them.
    #[must_use]
    pub fn resident(&self, kind: usize) -> (usize, usize) {
        let of_table = self.tables.get(kind).map(|table| table.resident());
        of_table.map_or((0, 0), |(resident, quarantined)| {
            (resident, quarantined + self.quarantined_number(kind))
        })
    }

    /// Returns an entity's timers in memory, at most `limit`, and where to read the others, if there may be any.
    #[must_use]
    pub fn timers_of(&self, of: &Address, limit: usize) -> (Vec<TimerView>, Option<TimersAway>) {
        let timers = &self.common.timers;
        (timers.views_of(of, limit), timers.away(of))
    }

    /// Returns timers that could not be fired and are being retried, at most `limit`.
    #[must_use]
    pub fn late_timers(&self, limit: usize) -> Vec<TimerView> {
        self.common.timers.late(limit)
    }

    /// Notes that an entity was executed. Only if `is_sampled` is the entity counted.
    pub fn seen(&mut self, entity: (usize, u64, &str), now: Timestamp, is_sampled: bool) {
        self.common.hot.done += 1;
        if is_sampled {
            self.common.hot.see(entity, now);
        }
    }

    /// Returns the entities executed most in recent seconds, in no order, at most some sixteen.
    pub fn hot(&mut self, now: Timestamp) -> Vec<HotEntity> {
        self.common.hot.list(now)
    }

    /// Returns the number of commands executed since the shard was created.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.common.hot.done
    }
}
