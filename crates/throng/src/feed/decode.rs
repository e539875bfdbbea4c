//! A commit's events, decoded for all followers.

use super::cursor::Cursor;
use std::{
    fmt,
    mem::size_of,
    sync::{Arc, OnceLock},
};
use throng_journal::{Commit, Position, RecordKind, StoredEvent};

/// The approximate bytes of an event's [shown](EntityEvent::shown) text beyond its own content.
const SHOWN_BYTES: usize = 160;

/// An event with its entity, decoded once and shared by all followers.
pub struct EntityEvent {
    /// The entity's id.
    pub id: Box<str>,
    /// The event, with its payload as it was recorded.
    pub event: StoredEvent,
    shown: OnceLock<Box<[u8]>>,
}

impl EntityEvent {
    /// An event of the entity of this id.
    #[must_use]
    pub fn new(id: Box<str>, event: StoredEvent) -> Self {
        Self {
            id,
            event,
            shown: OnceLock::new(),
        }
    }

    /// Returns the event's text as a gateway writes it. The first caller writes it for all others, so a process has only one form of it.
    pub fn shown(&self, write: impl FnOnce(&StoredEvent) -> Vec<u8>) -> &[u8] {
        self.shown.get_or_init(|| write(&self.event).into())
    }

    /// Returns the approximate memory of the event once it is shown.
    fn bytes(&self) -> usize {
        let text = self.id.len() + self.event.name.len() + self.event.payload.len();
        size_of::<Recorded>() + size_of::<Self>() + 2 * text + SHOWN_BYTES
    }
}

impl fmt::Debug for EntityEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {:?} ({})", self.event.seq, self.id, self.event.name)
    }
}

/// A commit's events.
#[derive(Debug)]
pub(super) struct Decoded {
    pub(super) position: Position,
    /// The approximate memory of these events.
    pub(super) bytes: usize,
    /// Only kinds that have events in it.
    pub(super) kinds: Vec<KindEvents>,
}

/// A kind's events in a commit, in the order of the log.
#[derive(Debug)]
pub(super) struct KindEvents {
    pub(super) kind: usize,
    pub(super) events: Vec<Recorded>,
}

/// An event and which of its commit's records it is, from 1.
#[derive(Debug)]
pub(super) struct Recorded {
    number: u32,
    pub(super) event: Arc<EntityEvent>,
}

impl Decoded {
    pub(super) fn new(commit: &Commit, kinds: &[&'static str]) -> Self {
        let (position, at_micros) = (commit.position(), commit.stamp().at_micros);
        let mut of_kinds: Vec<KindEvents> = Vec::new();
        for (number, record) in (1..).zip(commit.records().flatten()) {
            if record.record != RecordKind::Event {
                continue;
            }
            let Some(kind) = kinds.iter().position(|kind| *kind == record.kind) else {
                continue;
            };
            let event = EntityEvent::new(
                record.id.into(),
                StoredEvent {
                    seq: record.seq,
                    position,
                    at_micros,
                    name: record.name.into(),
                    version: record.version,
                    payload: record.body.to_vec(),
                },
            );
            let event = Arc::new(event);
            let recorded = Recorded { number, event };
            match of_kinds.iter_mut().find(|of_kind| of_kind.kind == kind) {
                Some(of_kind) => of_kind.events.push(recorded),
                None => of_kinds.push(KindEvents {
                    kind,
                    events: vec![recorded],
                }),
            }
        }
        let events = of_kinds.iter().flat_map(|of_kind| &of_kind.events);
        let bytes = size_of::<Self>()
            + of_kinds.len() * size_of::<KindEvents>()
            + events.map(|recorded| recorded.event.bytes()).sum::<usize>();
        Self {
            position,
            bytes,
            kinds: of_kinds,
        }
    }

    /// Returns the events of a kind that the cursor's holder has not got, each with its record's number.
    pub(super) fn events(&self, kind: usize, from: &Cursor) -> impl Iterator<Item = (&Arc<EntityEvent>, u32)> {
        let told = from.records(self.position);
        let of_kind = self.kinds.iter().find(|of_kind| of_kind.kind == kind);
        let events = of_kind.map_or(&[][..], |of_kind| &of_kind.events);
        events
            .iter()
            .filter(move |recorded| recorded.number > told)
            .map(|recorded| (&recorded.event, recorded.number))
    }
}
