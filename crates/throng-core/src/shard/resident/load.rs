//! Loading entities: from a state on its way to the store, or from what was read of the store and the log.

use super::{
    Entities,
    slot::{Body, Broken, Pending, Resident, TailEvent, apply, parse_id, parts_of},
    table::{LoadOutcome, LoadRequest, Recalled},
};
use crate::{
    model::{Entity, Family},
    shard::Common,
};
use throng_journal::{Loaded, StoredEvent, StoredState, history_base};

impl<E: Entity> Entities<E> {
    /// Loads an entity from a state that has not reached the store yet.
    pub(crate) fn revive(&mut self, common: &mut Common, at: u32) -> bool {
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

    pub(crate) fn load_request(&mut self, hash: u64, id: &str) -> Option<LoadRequest> {
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

    pub(crate) fn bring_back(
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
            None => self.insert(common, hash, text, Body::Passivated(None)),
        };
        let pending = self.slot(at).trace.as_ref().and_then(|trace| trace.pending.clone());
        let tail_family = self.slot(at).family.take();
        let (family, kept_end) = kept_with_newest(stored.state.as_ref(), pending.as_ref(), &tail);
        let ended = self.slot(at).ended.max(kept_end).max(end_of(ended_row));
        let last = stored.state.iter().map(|state| state.seq);
        let last = last.chain(stored.events.last().map(|event| event.seq)).max();
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
                common.has_set_aside |= common.unloadables.forget(E::KIND, text);
                self.used(common, at);
                LoadOutcome::Resident
            }
            Err(broken) => {
                let reason = broken.reason.clone();
                self.quarantine_at(common, at, broken, last.unwrap_or_default());
                LoadOutcome::Quarantined(reason)
            }
        }
    }
}

/// Returns the state according to what was read, or the event from which on it cannot be applied.
///
/// # Errors
/// The reason why the store's state cannot be read.
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
    if let Some((newest, version, bytes)) = newest {
        match parts_of(&bytes).and_then(|parts| parts.state_of(version)) {
            Ok(decoded) => (state, seq) = (decoded, newest),
            Err(why) if is_stored => return Err(why),
            Err(why) => {
                let reason = format!("its state cannot be read: {why}");
                return Ok(Err(Broken { seq: newest, reason }));
            }
        }
    }
    let mut events = events(loaded.events, tail)
        .skip_while(move |event| event.seq <= seq)
        .peekable();
    let first = events.peek().map(|event| event.seq);
    let base = match history_base(seq, first, ended) {
        Ok(base) => base,
        Err(missing) => return Ok(Err(event_missing(missing, first))),
    };
    // The history before its end is not kept.
    let mut is_gone = base > seq;
    if is_gone {
        (state, seq) = (E::default(), base);
    }
    let mut stored_seq = seq;
    for event in events {
        if event.seq <= seq {
            continue;
        }
        // After a copy was pruned, its earlier events may still be there. Nothing before the end counts.
        if event.seq != seq + 1 && seq < ended && event.seq <= ended + 1 {
            (state, stored_seq, seq, is_gone) = (E::default(), ended, ended, true);
            if event.seq <= ended {
                continue;
            }
        }
        if event.seq != seq + 1 {
            return Ok(Err(event_missing(seq + 1, Some(event.seq))));
        }
        // Created anew: nothing of the former state applies.
        if ended > 0 && seq == ended {
            state = E::default();
        }
        if let Err(broken) = apply(&mut state, &event) {
            return Ok(Err(broken));
        }
        seq = event.seq;
        is_gone = false;
    }
    if seq < ended {
        (state, stored_seq, seq, is_gone) = (E::default(), ended, ended, true);
    }
    Ok(Ok(Resident {
        id,
        state,
        seq,
        stored_seq,
        is_gone,
    }))
}

// The code below does not depend on the entity's type, so that it is compiled once.

/// A state: the number of the event after which it is, its version, its bytes.
type NumberedState = (u64, u16, Vec<u8>);
/// The events and states read from the log, with their content.
type Tail = [(TailEvent, Vec<u8>)];

fn newest_state(stored: Option<StoredState>, pending: Option<NumberedState>, tail: &Tail) -> Option<NumberedState> {
    let stored = stored.map(|state| (state.seq, state.version, state.bytes));
    let recorded = tail.iter().filter(|(event, _)| event.is_state);
    let recorded = recorded.map(|(event, bytes)| (event.seq, event.version, bytes.clone()));
    recorded.chain(stored).chain(pending).max_by_key(|(seq, ..)| *seq)
}

/// Returns the error for an event that is missing though it was not removed.
fn event_missing(seq: u64, found: Option<u64>) -> Broken {
    let found = found.unwrap_or_default();
    let reason = format!(
        "event {seq} is missing before event {found}, and no record says that it is gone; stop, have the store rebuilt from the journal, \
         and start"
    );
    Broken { seq, reason }
}

/// Returns the events of the store, then those of the log.
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

/// Reads the number of the event with which an entity ended from its row; 0 without a row.
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

/// Returns the stored family with what the log adds to it.
pub(crate) fn merged(stored: Option<Box<Family>>, tail: Option<Box<Family>>) -> Option<Box<Family>> {
    let (Some(mut family), Some(tail)) = (stored.clone(), tail.clone()) else {
        return stored.or(tail);
    };
    family.add(*tail);
    Some(family)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        limits,
        shard::{
            checkpoint::erasures::ERASED,
            tests::{Bench, Command},
        },
    };
    use throng_journal::{Address, CommitNo, Position, ShardId, WriterId};

    /// Returns a deposit whose amount is its own number.
    fn event(seq: u64) -> StoredEvent {
        StoredEvent {
            seq,
            position: Position {
                writer: WriterId(1),
                commit: CommitNo(seq),
            },
            at_micros: 0,
            name: "Deposited".into(),
            version: 1,
            payload: format!(r#"{{"amount":{seq}}}"#).into_bytes(),
        }
    }

    /// Loads an account with this state, these events, and an end. Returns its balance, or the reason of its quarantine.
    fn balance(state: Option<u64>, events: &[u64], ended: u64) -> Result<i64, String> {
        let state = state.map(|seq| StoredState {
            address: Address::new("account", "a"),
            shard: ShardId(0),
            seq,
            version: 1,
            bytes: [&[0; 4][..], br#"{"balance":1000}"#].concat(),
        });
        let recalled = Recalled {
            stored: Loaded {
                state,
                events: events.iter().map(|seq| event(*seq)).collect(),
            },
            ended: Some(ended.to_be_bytes().to_vec()),
            ..Recalled::default()
        };
        let mut bench = Bench::new();
        match bench.shard.loaded(0, limits::hash("account", "a"), "a", recalled) {
            LoadOutcome::Resident => bench
                .ask("a", Command::Deposit { amount: 0 })
                .map_err(|refused| refused.to_string()),
            LoadOutcome::Quarantined(reason) | LoadOutcome::UnreadableState(reason) => Err(reason),
        }
    }

    #[test]
    fn one_created_anew_after_it_was_gone_comes_back() {
        assert_eq!(balance(None, &[4, 5], 3), Ok(9));
        // A removal was cut off, and has left a part of the events.
        assert_eq!(balance(None, &[2, 3, 4, 5], 3), Ok(9));
        assert_eq!(balance(Some(2), &[4, 5], 3), Ok(9));
        assert_eq!(balance(Some(4), &[5], 3), Ok(1_005));
        let ended = balance(None, &[], 3).unwrap_err();
        assert!(ended.contains("ended"), "{ended}");
    }

    #[test]
    fn ended_one_is_not_brought_back_from_its_first_events() {
        // A backup has the events before the erasure, and the end.
        for (state, events) in [
            (None, &[1][..]),
            (None, &[1, 2]),
            (None, &[1, 3]),
            (Some(1), &[2]),
            (Some(1), &[3]),
            (Some(2), &[]),
        ] {
            let ended = balance(state, events, 3).unwrap_err();
            assert!(ended.contains("ended"), "{ended}");
        }
        assert_eq!(balance(None, &[1, 4, 5], 3), Ok(9));
        assert_eq!(balance(None, &[1, 3, 4, 5], 3), Ok(9));
    }

    #[test]
    fn missing_events_quarantine_and_name_the_remedy() {
        for (state, events, ended, missing) in [
            (None, &[2, 3][..], 0, "event 1 is missing before event 2"),
            (None, &[4, 5], 2, "event 3 is missing before event 4"),
            (None, &[1, 3], 0, "event 2 is missing before event 3"),
            (Some(4), &[6], 0, "event 5 is missing before event 6"),
            (Some(4), &[6], 3, "event 5 is missing before event 6"),
        ] {
            let said = balance(state, events, ended).unwrap_err();
            assert!(said.contains(missing) && said.contains("rebuilt"), "{said}");
        }
    }

    #[test]
    fn relatives_of_an_erased_one_do_not_come_back_with_its_records() {
        let mut bench = Bench::new();
        let own = Address::new("account", "a");
        let family = br#"{"parent":null,"children":[["account","x"]]}"#;
        let builder = &mut bench.open.builder;
        builder.push(throng_journal::RecordKind::Family, ShardId(0), &own, 0, "", 0, family);
        builder.push(throng_journal::RecordKind::Ended, ShardId(0), &own, 3, ERASED, 0, &[]);
        let commit = bench.finish();
        let (mut again, hash) = (Bench::new(), limits::hash("account", "a"));
        for record in commit.records().map(Result::unwrap) {
            again.shard.replay(hash, &record).unwrap();
        }
        again.shard.loaded(0, hash, "a", Recalled::default());
        let found = again.shard.inspect(0, (hash, "a"), &crate::shard::Inspect::default());
        assert_eq!(found.unwrap().unwrap().children, 0);
    }
}
