//! Bringing entities back: from a state on its way to the store, or from what was read of the store and the log.

use super::{
    Common, LoadOutcome, LoadRequest, Recalled, TailEvent,
    entities::Entities,
    slot::{Body, Broken, Pending, Resident, apply, parse_id, parts_of},
};
use crate::model::{Entity, Family};
use throng_journal::{Loaded, StoredEvent, StoredState};

impl<E: Entity> Entities<E> {
    /// Brings an entity back from a state that has not reached the store yet.
    pub(super) fn revive(&mut self, common: &mut Common, at: u32) -> bool {
        let slot = self.slot(at);
        let Body::Passivated(Some(seq)) = slot.body else {
            return false;
        };
        let Some(pending) = slot.trace.as_ref().and_then(|trace| trace.pending.as_ref()) else {
            return false;
        };
        if pending.seq != seq {
            return false;
        }
        let Ok(parts) = parts_of(&pending.bytes) else {
            return false;
        };
        let (Ok(state), Ok(family), Ok(id)) = (parts.state(), parts.family(), slot.text.parse()) else {
            return false;
        };
        slot.ended = parts.ended;
        slot.family = family;
        slot.body = Body::Resident(Resident {
            id,
            state,
            seq,
            stored_seq: seq,
            is_gone: false,
        });
        self.used(common, at);
        true
    }

    pub(super) fn load_request(&mut self, hash: u64, id: &str) -> Option<LoadRequest> {
        let (mut tail, mut rests_on) = (Vec::new(), 0);
        if let Some(at) = self.find(hash, id) {
            let slot = self.slot(at);
            if !matches!(slot.body, Body::Passivated(_)) {
                return None;
            }
            rests_on = slot.rests_on;
            tail = slot.trace.as_ref().map(|trace| trace.tail.clone()).unwrap_or_default();
        }
        Some(LoadRequest {
            state_version: E::STATE_VERSION,
            tail,
            rests_on,
        })
    }

    pub(super) fn bring_back(
        &mut self,
        common: &mut Common,
        (hash, text): (u64, &str),
        Recalled {
            stored,
            tail,
            family: row,
            ended: ended_row,
        }: Recalled,
    ) -> LoadOutcome {
        let at = match self.find(hash, text) {
            Some(at) if !matches!(self.slot(at).body, Body::Passivated(_)) => return LoadOutcome::Resident,
            Some(at) => at,
            None => self.insert(hash, text, Body::Passivated(None)),
        };
        let pending = self.slot(at).trace.as_ref().and_then(|trace| trace.pending.clone());
        let tail_family = self.slot(at).family.take();
        let (family, kept_end) = kept_with_newest(stored.state.as_ref(), pending.as_ref(), &tail);
        let ended = self.slot(at).ended.max(kept_end).max(end_of(ended_row));
        let rebuilt = rebuild::<E>(text, stored, pending, (tail, ended));
        let slot = self.slot(at);
        let body = match rebuilt {
            Ok(body) => body,
            Err(why) => {
                slot.family = tail_family;
                return LoadOutcome::UnreadableState(why);
            }
        };
        slot.family = merged(merged(family, family_of(row)), tail_family);
        slot.ended = ended;
        match body {
            Ok(resident) => {
                slot.body = Body::Resident(resident);
                self.used(common, at);
                LoadOutcome::Resident
            }
            Err(broken) => {
                let reason = broken.reason.clone();
                self.quarantine_at(common, at, broken);
                LoadOutcome::Quarantined(reason)
            }
        }
    }
}

/// The state from what was read, or from which event on it cannot be brought back.
///
/// # Errors
/// The store's state cannot be read.
fn rebuild<E: Entity>(
    text: &str,
    loaded: Loaded,
    pending: Option<Pending>,
    (tail, ended): (Vec<(TailEvent, Vec<u8>)>, u64),
) -> Result<Result<Resident<E>, Broken>, String> {
    let is_stored = loaded.state.is_some();
    let id = match parse_id::<E>(text) {
        Ok(id) => id,
        Err(why) => {
            return Ok(Err(Broken {
                seq: 0,
                reason: format!("its id cannot be read: {why}"),
            }));
        }
    };
    let pending = pending.map(|state| (state.seq, E::STATE_VERSION, state.bytes));
    let newest = newest_state(loaded.state, pending, &tail);
    let (mut state, mut seq) = (E::default(), 0);
    let mut is_gone = false;
    if let Some((newest, version, bytes)) = newest {
        match parts_of(&bytes).and_then(|parts| parts.state_of(version)) {
            Ok(decoded) => (state, seq) = (decoded, newest),
            Err(why) if is_stored => return Err(why),
            Err(why) => {
                let reason = format!("its state cannot be read: {why}");
                return Ok(Err(Broken { seq: newest, reason }));
            }
        }
    } else {
        // Of what it was until it ended nothing is kept; a removal that was cut off may have left its last events.
        if ended > 0 && first_seq(&loaded.events, &tail).is_none_or(|first| first > 1) {
            (seq, is_gone) = (ended, true);
        }
    }
    let stored_seq = seq;
    for event in events(loaded.events, tail) {
        if event.seq <= seq {
            continue;
        }
        if event.seq != seq + 1 {
            let reason = format!("event {} follows event {seq}: one is missing", event.seq);
            return Ok(Err(Broken { seq: seq + 1, reason }));
        }
        // Created anew: nothing of what it was.
        if ended > 0 && seq == ended {
            state = E::default();
        }
        if let Err(broken) = apply(&mut state, &event) {
            return Ok(Err(broken));
        }
        seq = event.seq;
        is_gone = false;
    }
    Ok(Ok(Resident {
        id,
        state,
        seq,
        stored_seq,
        is_gone,
    }))
}

// What follows knows nothing of the entity's type, so that it is compiled once.

/// A state: the number of the event after which it is, its version, its bytes.
type NumberedState = (u64, u16, Vec<u8>);
/// What was read of the log, with each event's content.
type Tail = [(TailEvent, Vec<u8>)];

fn newest_state(stored: Option<StoredState>, pending: Option<NumberedState>, tail: &Tail) -> Option<NumberedState> {
    let stored = stored.map(|state| (state.seq, state.version, state.bytes));
    let recorded = tail.iter().filter(|(event, _)| event.is_state);
    let recorded = recorded.map(|(event, bytes)| (event.seq, event.version, bytes.clone()));
    recorded.chain(stored).chain(pending).max_by_key(|(seq, ..)| *seq)
}

fn first_seq(stored: &[StoredEvent], tail: &Tail) -> Option<u64> {
    let in_tail = tail.first().map(|(event, _)| event.seq);
    stored.first().map(|event| event.seq).or(in_tail)
}

/// The events of the store, and those of the log behind them.
fn events(stored: Vec<StoredEvent>, tail: Vec<(TailEvent, Vec<u8>)>) -> impl Iterator<Item = StoredEvent> {
    let tail = tail.into_iter().filter(|(event, _)| !event.is_state);
    stored.into_iter().chain(tail.map(|(event, payload)| StoredEvent {
        seq: event.seq,
        position: event.place.position,
        at_micros: 0,
        name: event.name.into(),
        version: event.version,
        payload,
    }))
}

/// When an entity ended, as its row says.
fn end_of(row: Option<Vec<u8>>) -> u64 {
    row.and_then(|row| row.try_into().ok()).map_or(0, u64::from_be_bytes)
}

fn family_of(row: Option<Vec<u8>>) -> Option<Box<Family>> {
    row.and_then(|row| serde_json::from_slice(&row).ok())
}

/// The family kept with the newest state, and when its entity ended.
fn kept_with_newest(
    stored: Option<&StoredState>,
    pending: Option<&Pending>,
    tail: &Tail,
) -> (Option<Box<Family>>, u64) {
    let recorded = tail.iter().find(|(event, _)| event.is_state);
    let recorded = recorded.map(|(event, bytes)| (event.seq, bytes));
    let stored = stored.map(|state| (state.seq, &state.bytes));
    let pending = pending.map(|state| (state.seq, &state.bytes));
    let newest = recorded
        .into_iter()
        .chain(stored)
        .chain(pending)
        .max_by_key(|(seq, _)| *seq);
    match newest.map(|(_, bytes)| parts_of(bytes)) {
        Some(Ok(parts)) => (parts.family().unwrap_or_default(), parts.ended),
        _ => (None, 0),
    }
}

/// A family as stored and what the tail adds to it.
pub(super) fn merged(stored: Option<Box<Family>>, tail: Option<Box<Family>>) -> Option<Box<Family>> {
    let (Some(mut family), Some(tail)) = (stored.clone(), tail.clone()) else {
        return stored.or(tail);
    };
    family.parent = family.parent.or(tail.parent);
    family.children.extend(tail.children);
    Some(family)
}
