//! The slot of an entity in its table.

use super::recency::Links;
use crate::{
    model::{Entity, Error, Family, Timestamp},
    shard::checkpoint::notes::StoredNote,
};
use std::{any::Any, panic::AssertUnwindSafe};
use throng_journal::{Place, Position, StoredEvent};

/// The position of an event that the store has not indexed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TailEvent {
    /// Its sequence number within the entity.
    pub seq: u64,
    /// The place of its payload in the log.
    pub place: Place,
    /// The event's name; names are few, and live as long as the program.
    pub name: &'static str,
    /// The version of its shape.
    pub version: u16,
    /// True for the recorded state after this event. The events before it may be removed.
    pub is_state: bool,
}

/// An event's place in the records.
pub(crate) struct EventShape {
    pub(crate) name: &'static str,
    pub(crate) version: u16,
    pub(crate) length: u32,
}

/// The data of an entity that the store does not have yet.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub(crate) tail: Vec<TailEvent>,
    /// A state on its way to the store.
    pub(crate) pending: Option<Pending>,
    /// True if its family has changed, or it has ended, and neither a stored state nor a note has that yet.
    pub(crate) family: bool,
    /// The note of its family and its end, if no state contains them.
    pub(crate) note: StoredNote,
    /// True if the entity was removed and its end needs a row, because no state contains it.
    pub(crate) gone: bool,
    /// True if a checkpoint under way contains that row.
    pub(crate) end_given: bool,
    /// The store has no row of its indexed fields, or not the right one.
    pub(crate) unindexed: bool,
}

/// The approximate bytes of a trace in memory without its content, and of its place in the table's list.
pub(crate) const TRACE_BYTES: usize = size_of::<Trace>() + 32;

impl Trace {
    /// Returns the bytes of the tail in memory.
    pub(crate) fn tail_bytes(&self) -> usize {
        self.tail.len() * size_of::<TailEvent>()
    }

    /// Returns the bytes in memory that count as being on their way to the store.
    pub(crate) fn bytes(&self) -> usize {
        TRACE_BYTES + self.tail_bytes() + self.pending.as_ref().map_or(0, |pending| pending.bytes.len())
    }

    /// Adds an event, or a recorded state, which replaces an earlier one. Returns the growth in bytes.
    pub(crate) fn add(&mut self, event: TailEvent) -> isize {
        let before = self.tail_bytes();
        if event.is_state {
            self.tail.retain(|before| !before.is_state);
        }
        self.tail.push(event);
        self.tail_bytes() as isize - before as isize
    }

    /// Drops the events that the store has, up to this position. Returns the bytes freed.
    pub(crate) fn cover(&mut self, upto: Position) -> usize {
        let before = self.tail_bytes();
        self.tail.retain(|event| event.place.position > upto);
        before - self.tail_bytes()
    }

    /// The store has all of it.
    pub(crate) fn is_empty(&self) -> bool {
        self.tail.is_empty()
            && self.pending.is_none()
            && !self.family
            && !self.gone
            && !self.unindexed
            && self.note.is_nothing()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) seq: u64,
    /// The number of this state among all that the table has stored.
    pub(crate) generation: u64,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) struct Slot<E: Entity> {
    pub(crate) hash: u64,
    pub(crate) text: Box<str>,
    /// The commit of its last record; 0: none since it came into memory.
    pub(crate) rests_on: u64,
    /// The number of its last event when it last ended; 0: it never did.
    pub(crate) ended: u64,
    pub(crate) body: Body<E>,
    pub(crate) trace: Option<Box<Trace>>,
    pub(crate) family: Option<Box<Family>>,
    pub(crate) links: Links,
    /// The bytes with which it was last counted; 0: it is not in memory.
    pub(crate) bytes: u32,
}

pub(crate) enum Body<E: Entity> {
    /// Its state is in memory.
    Resident(Resident<E>),
    /// The entity is not in memory; the slot stays for its trace. With a number, the pending state is the newest one.
    Passivated(Option<u64>),
    /// Its history cannot be applied.
    Quarantined(Box<SetAside>),
}

/// A quarantine: its reason, its beginning, and the number of refused commands and messages.
pub(crate) struct SetAside {
    /// The event that cannot be applied; 0 where its rows cannot be read.
    pub(crate) seq: u64,
    /// The last known event; 0: none.
    pub(crate) last: u64,
    pub(crate) reason: String,
    pub(crate) since: Timestamp,
    /// The number of commands and messages that were refused.
    pub(crate) refused: u64,
}

impl SetAside {
    /// Returns the error for commands and queries.
    pub(crate) fn refusal<R>(&self, kind: &str, id: &str) -> Error<R> {
        Error::Quarantined {
            address: format!("{kind}/{id}"),
            seq: self.seq,
            reason: self.reason.clone(),
            by_operator: false,
        }
    }
}

pub(crate) struct Resident<E: Entity> {
    pub(crate) id: E::Id,
    pub(crate) state: E,
    /// Events so far; 0: it does not exist.
    pub(crate) seq: u64,
    /// The sequence number of the last state given to the store.
    pub(crate) stored_seq: u64,
    /// True if the entity has ended and was removed.
    pub(crate) is_gone: bool,
}

impl<E: Entity> Resident<E> {
    /// Returns the number of events since the entity was created anew, if `ended` is an earlier end. If `ended` is its last event, returns
    /// the number of all events.
    pub(crate) fn seq_since(&self, ended: u64) -> u64 {
        if self.seq > ended { self.seq - ended } else { self.seq }
    }
}

impl<E: Entity> Slot<E> {
    /// Returns the bytes of the slot itself, with its entries in the table. For an entity that is not in memory they wait for the store.
    pub(crate) fn own_bytes(&self) -> usize {
        std::mem::size_of::<Self>() + self.text.len() + 32
    }

    pub(crate) fn weigh(&self) -> u32 {
        let own = self.own_bytes();
        let body = match &self.body {
            Body::Resident(resident) => resident.state.heap_bytes() + self.text.len(),
            Body::Passivated(_) => 0,
            Body::Quarantined(aside) => std::mem::size_of::<SetAside>() + aside.reason.len(),
        };
        let family = self.family.as_ref().map_or(0, |family| 48 + family.children.len() * 96);
        u32::try_from(own + body + family).unwrap_or(u32::MAX)
    }
}

/// The event from which on an entity's history cannot be applied; 0: it cannot be read.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) seq: u64,
    pub(crate) reason: String,
}

/// Encodes a state with its family in one buffer: length of the family as `u32`, the family, the state, both JSON. For an entity that has
/// ended, the highest bit of the length is set, and the number of its last event precedes the family.
pub(crate) fn encode_state<E: Entity>(state: &E, family: Option<&Family>, ended: u64) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; 4];
    let mut flag = 0;
    if ended > 0 {
        flag = ENDED;
        bytes.extend_from_slice(&ended.to_le_bytes());
    }
    let family_at = bytes.len();
    if let Some(family) = family {
        serde_json::to_writer(&mut bytes, family).map_err(|why| why.to_string())?;
    }
    let length = (bytes.len() - family_at) as u32;
    bytes[..4].copy_from_slice(&(length | flag).to_le_bytes());
    serde_json::to_writer(&mut bytes, state).map_err(|why| why.to_string())?;
    if bytes.len() > crate::limits::STATE_BYTES_MAX {
        return Err(format!(
            "it has {} bytes, at most {} are kept",
            bytes.len(),
            crate::limits::STATE_BYTES_MAX
        ));
    }
    Ok(bytes)
}

/// The bit in the length of the family which says that the entity has ended.
const ENDED: u32 = 1 << 31;

/// The parts of an encoded state.
pub(crate) struct StateParts<'a> {
    /// The number of the last event when the entity last ended; 0: it never did.
    pub(crate) ended: u64,
    /// The family as JSON; empty if there is none.
    pub(crate) family: &'a [u8],
    state: &'a [u8],
}

/// Takes an encoded state apart.
pub(crate) fn parts_of(bytes: &[u8]) -> Result<StateParts<'_>, String> {
    let (length, mut rest) = bytes.split_first_chunk::<4>().ok_or("it is shorter than its header")?;
    let length = u32::from_le_bytes(*length);
    let mut ended = 0;
    if length & ENDED != 0 {
        let (number, others) = rest.split_first_chunk::<8>().ok_or("it is shorter than its header")?;
        (ended, rest) = (u64::from_le_bytes(*number), others);
    }
    let length = (length & !ENDED) as usize;
    let (family, state) = rest.split_at_checked(length).ok_or("its family is longer than it")?;
    Ok(StateParts { ended, family, state })
}

/// Returns the JSON of a recorded state, without the family; `None` if it is not one.
#[must_use]
pub fn state_json(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(parts_of(bytes).ok()?.state).ok()
}

/// Returns the event with which the entity last ended according to a recorded state; 0: it never did.
#[must_use]
pub fn ended_by_state(bytes: &[u8]) -> u64 {
    parts_of(bytes).map_or(0, |parts| parts.ended)
}

impl StateParts<'_> {
    pub(crate) fn family(&self) -> Result<Option<Box<Family>>, String> {
        match self.family {
            [] => Ok(None),
            family => serde_json::from_slice(family).map(Some).map_err(|why| why.to_string()),
        }
    }

    pub(crate) fn state<E: Entity>(&self) -> Result<E, String> {
        serde_json::from_slice(self.state).map_err(|why| why.to_string())
    }

    /// Returns the state, stored by a program with this state version.
    pub(crate) fn state_of<E: Entity>(&self, version: u16) -> Result<E, String> {
        if version == E::STATE_VERSION {
            return self.state();
        }
        let mut state = serde_json::from_slice(self.state).map_err(|why| why.to_string())?;
        if version > E::STATE_VERSION {
            let own = E::STATE_VERSION;
            return Err(format!(
                "the state has version {version}, this program {own}, and the events before it are gone"
            ));
        }
        for version in version..E::STATE_VERSION {
            state =
                E::upcast_state(version, state).map_err(|why| format!("{why}, and the events before it are gone"))?;
        }
        // Parsed like any other state, so that only one parser is compiled.
        let state = serde_json::to_vec(&state).map_err(|why| why.to_string())?;
        serde_json::from_slice(&state).map_err(|why| why.to_string())
    }
}

/// Reads a recorded event and upcasts it to the present version.
///
/// # Errors
/// The reason why it cannot be read.
pub fn decode_event<E: Entity>(name: &str, version: u16, payload: &[u8]) -> Result<E::Event, String> {
    use crate::model::Recorded;
    match read_present::<E>(name, version, payload) {
        Some(Ok(decoded)) => Ok(decoded),
        // The event is older, or was renamed: an unknown name has no present version to compare with.
        present => {
            let old = Recorded {
                name: name.to_owned().into(),
                version,
                payload: serde_json::from_slice(payload).map_err(|why| why.to_string())?,
            };
            taken_up::<E>(old).map_err(|why| match present {
                Some(Err(unreadable)) => format!("{unreadable}, and {why}"),
                _ => why,
            })
        }
    }
}

/// Upcasts and applies one recorded event.
pub(crate) fn apply<E: Entity>(state: &mut E, event: &StoredEvent) -> Result<(), Broken> {
    let broken = |reason: String| Broken { seq: event.seq, reason };
    let guarded = std::panic::catch_unwind(AssertUnwindSafe(|| -> Result<(), String> {
        state.evolve(&decode_event::<E>(&event.name, event.version, &event.payload)?);
        Ok(())
    }));
    match guarded {
        Ok(result) => result.map_err(|why| broken(format!("event {:?} version {}: {why}", event.name, event.version))),
        Err(panic) => Err(broken(format!(
            "event {:?} panicked: {}",
            event.name,
            panic_text(panic.as_ref())
        ))),
    }
}

/// Reads an event of the present version; `None` if it has another version.
fn read_present<E: Entity>(name: &str, version: u16, payload: &[u8]) -> Option<Result<E::Event, String>> {
    use crate::model::Event;
    (version == E::Event::version(name))
        .then(|| crate::tagged::from_parts(name, payload).map_err(|why| why.to_string()))
}

/// An older event, step by step.
fn taken_up<E: Entity>(mut old: crate::model::Recorded) -> Result<E::Event, String> {
    use crate::model::Event;
    for _ in 0..u16::MAX {
        old = E::Event::upcast(old).map_err(|why| why.to_string())?;
        let payload = serde_json::to_vec(&old.payload).map_err(|why| why.to_string())?;
        if let Some(Ok(decoded)) = read_present::<E>(&old.name, old.version, &payload) {
            return Ok(decoded);
        }
    }
    Err(format!("{} never reaches its present version", old.name))
}

/// Parses an id. A panic of its parser counts as an error.
pub(crate) fn parse_id<E: Entity>(text: &str) -> Result<E::Id, String> {
    match std::panic::catch_unwind(|| text.parse::<E::Id>()) {
        Ok(parsed) => parsed.map_err(|why| why.to_string()),
        Err(panic) => {
            let reason = panic_text(panic.as_ref());
            tracing::error!("reading {text:?} as an id of a {} panicked: {reason}", E::KIND);
            Err(reason)
        }
    }
}

pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".into())
}
