//! The followers, by kind and by entity, so that a commit wakes only those it concerns.

use super::{
    cursor::Cursor,
    decode::{Decoded, KindEvents},
    window::{Interest, Spot, Window},
};
use std::{collections::BTreeMap, sync::Arc, task::Waker};
use throng_journal::Positions;

/// The spot at which a follower continues after a wait: in a window, before the first commit that concerns it.
#[derive(Debug)]
pub(crate) struct Reached {
    pub(crate) spot: Spot,
    /// The positions of all that comes before the spot, including commits that did not concern this follower. Without them, another node
    /// might read these again, and it may still hold what has been removed here.
    pub(crate) told: Positions,
}

/// A follower that waits for new events.
#[derive(Debug)]
enum Slot {
    /// Reads what there is.
    Reading,
    /// Has got everything up to `from`, and waits: nothing decoded since concerned it.
    Waiting { from: Cursor, waker: Waker },
    /// Something concerns it, or it has to read the journal.
    Found(Option<Reached>),
    /// The awaited events cannot be read.
    Failed(Arc<str>),
}

/// The outcome of a wait.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The follower does not wait.
    None,
    /// The follower still waits.
    Waits,
    /// Something concerns it, and nothing before does; or it has to read the journal.
    Found(Option<Reached>),
    /// The follower cannot read what it waits for.
    Failed(Arc<str>),
}

/// The followers that wait for durable commits.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    kinds: Vec<OfKind>,
    next: u64,
    count: usize,
    waiting: usize,
}

#[derive(Debug, Default)]
struct OfKind {
    /// The followers of all entities of the kind.
    all: BTreeMap<u64, Slot>,
    /// The number of `all` that wait.
    waiting: usize,
    entities: BTreeMap<Box<str>, BTreeMap<u64, Slot>>,
}

impl Watchers {
    pub(super) fn new(kinds: usize) -> Self {
        Self {
            kinds: (0..kinds).map(|_| OfKind::default()).collect(),
            ..Self::default()
        }
    }

    /// Adds a follower, and returns its number.
    pub(super) fn add(&mut self, interest: &Interest) -> u64 {
        let number = self.next;
        self.next += 1;
        self.count += 1;
        let kind = &mut self.kinds[interest.kind];
        let slots = match &interest.entity {
            None => &mut kind.all,
            Some(id) => kind.entities.entry(id.clone()).or_default(),
        };
        slots.insert(number, Slot::Reading);
        number
    }

    pub(super) fn remove(&mut self, interest: &Interest, number: u64) {
        self.set(interest, number, Slot::Reading);
        self.count -= 1;
        let kind = &mut self.kinds[interest.kind];
        let Some(id) = &interest.entity else {
            kind.all.remove(&number);
            return;
        };
        if let Some(slots) = kind.entities.get_mut(id) {
            slots.remove(&number);
            if slots.is_empty() {
                kind.entities.remove(id);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// True if a follower waits, so that the log's new end is worth decoding.
    pub(super) fn are_waiting(&self) -> bool {
        self.waiting > 0
    }

    fn set(&mut self, interest: &Interest, number: u64, slot: Slot) -> Slot {
        let kind = &mut self.kinds[interest.kind];
        let own = match &interest.entity {
            None => kind.all.get_mut(&number),
            Some(id) => kind.entities.get_mut(id).and_then(|slots| slots.get_mut(&number)),
        };
        let Some(own) = own else { return Slot::Reading };
        let (was, is) = (own.is_waiting(), slot.is_waiting());
        let before = std::mem::replace(own, slot);
        self.waiting = self.waiting + usize::from(is) - usize::from(was);
        if interest.entity.is_none() {
            kind.waiting = kind.waiting + usize::from(is) - usize::from(was);
        }
        before
    }

    /// Has a follower wait.
    pub(super) fn wait(&mut self, interest: &Interest, number: u64, from: &Cursor, waker: &Waker) {
        let (from, waker) = (from.clone(), waker.clone());
        self.set(interest, number, Slot::Waiting { from, waker });
    }

    /// Takes the outcome of a follower's wait, once. Unless it goes on waiting, the follower counts as reading from then on.
    pub(super) fn outcome(&mut self, interest: &Interest, number: u64) -> Outcome {
        match self.set(interest, number, Slot::Reading) {
            Slot::Reading => Outcome::None,
            Slot::Found(at) => Outcome::Found(at),
            Slot::Failed(why) => Outcome::Failed(why),
            waiting @ Slot::Waiting { .. } => {
                self.set(interest, number, waiting);
                Outcome::Waits
            }
        }
    }

    /// Collects the followers that the window's next decoded commit concerns, to be woken.
    pub(super) fn found(&mut self, commit: &Decoded, window: &Window, woken: &mut Vec<Waker>) {
        for KindEvents { kind, events } in &commit.kinds {
            let kind = &mut self.kinds[*kind];
            if kind.waiting > 0 {
                let found = kind.all.values_mut().map(|slot| slot.find(commit, window, woken));
                let found: usize = found.map(usize::from).sum();
                kind.waiting -= found;
                self.waiting -= found;
            }
            if kind.entities.is_empty() {
                continue;
            }
            for recorded in events {
                if let Some(slots) = kind.entities.get_mut(&recorded.event.id) {
                    let found = slots.values_mut().map(|slot| slot.find(commit, window, woken));
                    self.waiting -= found.map(usize::from).sum::<usize>();
                }
            }
        }
    }

    /// Collects all waiting followers, to read the journal or to get the failure.
    pub(super) fn release(&mut self, failure: Option<&Arc<str>>, woken: &mut Vec<Waker>) {
        for kind in &mut self.kinds {
            kind.waiting = 0;
            let of_entities = kind.entities.values_mut().flat_map(BTreeMap::values_mut);
            for slot in kind.all.values_mut().chain(of_entities) {
                let Slot::Waiting { .. } = slot else { continue };
                let next = failure.map_or(Slot::Found(None), |why| Slot::Failed(why.clone()));
                if let Slot::Waiting { waker, .. } = std::mem::replace(slot, next) {
                    woken.push(waker);
                }
            }
        }
        self.waiting = 0;
    }
}

impl Slot {
    fn is_waiting(&self) -> bool {
        matches!(self, Self::Waiting { .. })
    }

    /// Notes that this commit concerns the follower; returns true if it was waiting.
    fn find(&mut self, commit: &Decoded, window: &Window, woken: &mut Vec<Waker>) -> bool {
        let Self::Waiting { from, .. } = self else { return false };
        if from.told.has(commit.position) {
            return false;
        }
        let reached = Reached {
            spot: window.end_spot(),
            told: window.end().clone(),
        };
        if let Self::Waiting { waker, .. } = std::mem::replace(self, Self::Found(Some(reached))) {
            woken.push(waker);
        }
        true
    }
}
