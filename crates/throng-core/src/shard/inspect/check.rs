//! Checks that a program understands a journal: it upcasts and applies every event, and reads every command, without changing anything.

use super::{
    decide_again::{Again, Checked, Decision, decide, parsed},
    kind_check::{KindCheck, Supposed},
};
use crate::{
    model::{CommandAnswer, Entity, Family},
    shard::{
        Input,
        execute::{
            call::HearFn,
            read::{Origin, read_command},
        },
        messages::{OUTCOME_NAME, RequestOutcome},
        resident::slot::{apply, decode_event, encode_state, panic_text, parts_of},
    },
    tagged,
};
use serde_json::Value;
use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
};
use throng_journal::{Record, StoredEvent};

/// The most states of a kind that are kept. Events of further entities are read, but not applied.
const ENTITIES_MAX: usize = 4_000_000;

pub(crate) struct EntityCheck<E: Entity> {
    entities: HashMap<Box<str>, Checked<E>>,
    /// The answers of the last decisions.
    answers: [Option<CommandAnswer<E>>; 2],
    hears: Vec<(&'static str, HearFn<E>)>,
}

impl<E: Entity> EntityCheck<E> {
    pub(crate) fn of(hears: Vec<(&'static str, HearFn<E>)>) -> Self {
        Self {
            entities: HashMap::new(),
            answers: [None, None],
            hears,
        }
    }

    /// Returns the entity; `None` for a new one beyond the limit.
    fn entity(&mut self, id: &str) -> Option<&mut Checked<E>> {
        if self.entities.len() >= ENTITIES_MAX && !self.entities.contains_key(id) {
            return None;
        }
        Some(self.entities.entry(id.into()).or_default())
    }
}

impl<E: Entity> KindCheck for EntityCheck<E> {
    fn event(&mut self, record: &Record<'_>) -> Result<(), String> {
        let event = StoredEvent {
            seq: record.seq,
            position: record.place.position,
            at_micros: 0,
            name: record.name.into(),
            version: record.version,
            payload: record.body.to_vec(),
        };
        let Some(entity) = self.entity(record.id) else {
            return apply(&mut E::default(), &event).map_err(|broken| broken.reason);
        };
        entity.seq += 1;
        // An entity created anew does not depend on removed history.
        entity.is_unfounded &= !std::mem::take(&mut entity.has_ended);
        if record.seq != entity.last + 1 {
            (entity.state, entity.is_unfounded) = (None, true);
        }
        entity.last = record.seq;
        let Some(state) = &mut entity.state else {
            if !entity.is_unfounded {
                return Ok(());
            }
            let read = decode_event::<E>(record.name, record.version, record.body);
            entity.is_unfounded = read.is_ok();
            return read.map(drop);
        };
        apply(state, &event).map_err(|broken| {
            entity.state = None;
            broken.reason
        })
    }

    fn state(&mut self, record: &Record<'_>) -> Result<(), String> {
        let parts = parts_of(record.body)?;
        let Some(entity) = self.entity(record.id) else {
            return Ok(());
        };
        // An entity whose whole history is stored is judged by its events.
        if entity.state.is_some() && !entity.is_unfounded && entity.last == record.seq {
            return Ok(());
        }
        entity.last = record.seq;
        entity.seq = record.seq.saturating_sub(parts.ended);
        entity.has_ended = parts.ended == record.seq;
        entity.family = parts.family()?;
        (entity.state, entity.is_unfounded) = (None, false);
        entity.state = Some(parts.state_of(record.version)?);
        Ok(())
    }

    fn ended(&mut self, record: &Record<'_>) {
        if let Some(entity) = self.entity(record.id) {
            entity.is_unfounded |= entity.last != record.seq;
            (entity.last, entity.seq, entity.has_ended) = (record.seq, 0, true);
            entity.state = Some(E::default());
        }
    }

    fn family(&mut self, record: &Record<'_>) {
        if let (Ok(change), Some(entity)) = (serde_json::from_slice::<Family>(record.body), self.entity(record.id)) {
            entity.family.get_or_insert_default().add(change);
        }
    }

    fn command(&self, name: &str, body: &[u8]) -> Result<Value, String> {
        let command = read::<E>(&self.hears, name, body)?;
        let mut written = Vec::new();
        let name = tagged::to_parts(&command, &mut written).map_err(|why| why.to_string())?;
        Ok(Value::from_iter([(name, parsed(&written))]))
    }

    fn present(&self, record: &Record<'_>) -> Option<(&'static str, Value)> {
        let event = decode_event::<E>(record.name, record.version, record.body).ok()?;
        let mut written = Vec::new();
        let name = tagged::to_parts(&event, &mut written).ok()?;
        Some((name, parsed(&written)))
    }

    fn decide(&mut self, twice: &[Again<'_>; 2]) -> Option<[Decision; 2]> {
        let new;
        let entity = match self.entities.get(twice[0].id) {
            Some(entity) => entity,
            None if self.entities.len() >= ENTITIES_MAX => return None,
            None => {
                new = Checked::default();
                &new
            }
        };
        let once = |again: &Again<'_>| match read::<E>(&self.hears, again.name, again.body) {
            Ok(command) => decide(entity, again, command),
            Err(why) => Some(Decision::Failed(why).into()),
        };
        let (one, other) = (once(&twice[0])?, once(&twice[1])?);
        self.answers = [one.answer, other.answer];
        Some([one.decision, other.decision])
    }

    fn replies(&mut self, id: &str) -> [Option<Value>; 2] {
        let state = self.entities.get(id).and_then(|entity| entity.state.as_ref());
        std::mem::take(&mut self.answers).map(|answer| {
            let reply = match answer? {
                CommandAnswer::Now(reply) => reply,
                CommandAnswer::After(read) => read(state?),
                CommandAnswer::Forward(_) => return None,
            };
            serde_json::to_value(&reply).ok()
        })
    }

    fn suppose(&mut self, again: &Again<'_>) -> Option<Supposed> {
        let entity = self.entities.entry(again.id.into()).or_default();
        let decided = match read::<E>(&self.hears, again.name, again.body) {
            Ok(command) => decide(entity, again, command)?,
            Err(why) => Decision::Failed(why).into(),
        };
        let (mut decision, mut reply) = (decided.decision, None);
        if let (Some(answer), Some(state)) = (decided.answer, entity.state.as_mut()) {
            let applied = catch_unwind(AssertUnwindSafe(|| {
                decided.events.iter().for_each(|event| state.evolve(event));
                match answer {
                    CommandAnswer::Now(reply) => serde_json::to_value(&reply).ok(),
                    CommandAnswer::After(read) => serde_json::to_value(read(state)).ok(),
                    CommandAnswer::Forward(_) => None,
                }
            }));
            match applied {
                Ok(replied) => reply = replied,
                Err(panic) => {
                    decision = Decision::Failed(format!("it panics: {}", panic_text(panic.as_ref())));
                    entity.state = None;
                }
            }
        }
        let state = entity
            .state
            .as_ref()
            .and_then(|state| serde_json::to_string(state).ok());
        Some(Supposed { decision, reply, state })
    }

    fn recorded(&self, id: &str) -> Option<Result<Vec<u8>, String>> {
        let entity = self.entities.get(id)?;
        Some(encode_state(entity.state.as_ref()?, entity.family.as_deref(), 0))
    }

    fn state_version(&self) -> u16 {
        E::STATE_VERSION
    }

    fn entities(&self) -> usize {
        self.entities.len()
    }
}

fn read<E: Entity>(hears: &[(&str, HearFn<E>)], name: &str, body: &[u8]) -> Result<E::Command, String> {
    let outcome: RequestOutcome;
    let mut input = Input::Json { name, body };
    if name == OUTCOME_NAME {
        outcome = serde_json::from_slice(body).map_err(|why| why.to_string())?;
        input = Input::Outcome(&outcome);
    }
    read_command::<E>(&mut input, hears, Origin::Recorded).map_err(|why| why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::tests::{Bench, FIRST};
    use throng_journal::{Place, RecordKind, ShardId};

    fn record(record: RecordKind, seq: u64, name: &'static str, body: &'static [u8]) -> Record<'static> {
        Record {
            record,
            shard: ShardId(0),
            kind: "account",
            id: "a",
            seq,
            name,
            version: 1,
            body,
            place: Place {
                position: FIRST,
                offset: 0,
                len: 0,
            },
        }
    }

    fn deposit(seq: u64) -> Record<'static> {
        record(RecordKind::Event, seq, "Deposited", br#"{"amount":5}"#)
    }

    #[test]
    fn one_created_anew_is_known_though_its_past_is_gone() {
        for left in [0, 1] {
            let mut check = Bench::new().shard.registry.kinds()[0].check();
            (3..3 + left).for_each(|seq| check.event(&deposit(seq)).unwrap());
            assert!(check.recorded("a").is_none(), "the first events are gone");
            check.ended(&record(RecordKind::Ended, 3, "", b""));
            check.event(&deposit(4)).unwrap();
            check.event(&deposit(5)).unwrap();
            let state = check.recorded("a").unwrap().unwrap();
            assert_eq!(crate::shard::state_json(&state), Some(r#"{"balance":10}"#));
        }
    }

    #[test]
    fn state_after_an_end_is_read_where_the_events_are_gone() {
        let mut check = Bench::new().shard.registry.kinds()[0].check();
        check.ended(&record(RecordKind::Ended, 3, "", b""));
        assert!(
            check.state(&record(RecordKind::State, 3, "", b"")).is_err(),
            "it is none"
        );
    }
}
