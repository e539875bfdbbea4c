//! Entities that could not be loaded, noted in rows of the store, so that a start can count them before they are used.
//!
//! A checkpoint writes a note, and a later one removes it, once the entity was loaded, released or erased. A start reads all notes, and the
//! engine loads each noted entity once: a program that can read it removes the note.
//!
//! ```text
//! q, kind, 0, id   → the reason, as text
//! ```

use crate::{
    limits,
    model::Timestamp,
    shard::{SystemRow, checkpoint::system_row::read_entity_row},
};
use std::collections::BTreeMap;
use throng_journal::Address;

/// The most noted entities of one shard. Further ones are counted only while they are in memory.
const NOTED_MAX: usize = 256;

/// The notes of one shard.
#[derive(Debug, Default)]
pub(crate) struct Unloadables {
    noted: BTreeMap<Address, Note>,
    /// Entities whose row in the store has to change; true if the checkpoint under way contains the change.
    due: BTreeMap<Address, bool>,
    /// The beginnings of released quarantines. If the next load fails, the quarantine counts from then. At most as many as are noted.
    released: BTreeMap<Address, Timestamp>,
}

#[derive(Debug)]
struct Note {
    reason: String,
    /// This epoch of the engine has tried to load the entity.
    is_tried: bool,
}

/// The system row that notes an entity which could not be brought back.
#[must_use]
pub fn unloadable_row(address: &Address) -> Vec<u8> {
    [b"q", address.kind.as_bytes(), &[0], address.id.as_bytes()].concat()
}

/// The entity of a row.
pub(crate) fn read_row(row: &[u8]) -> Option<Address> {
    read_entity_row(b'q', row).map(|(kind, id)| Address::new(kind, id))
}

impl Unloadables {
    /// An entity could not be brought back.
    pub(crate) fn note(&mut self, address: Address, reason: &str) {
        if self.noted.len() >= NOTED_MAX && !self.noted.contains_key(&address) {
            return;
        }
        let reason = &reason[..reason.floor_char_boundary(limits::REASON_BYTES_MAX)];
        let note = Note {
            reason: reason.to_owned(),
            is_tried: true,
        };
        let before = self.noted.insert(address.clone(), note);
        if before.is_none_or(|before| before.reason != reason) {
            self.due.insert(address, false);
        }
    }

    /// An entity is released, to be loaded again.
    pub(crate) fn release(&mut self, address: Address, since: Timestamp) {
        self.forget(&address.kind, &address.id);
        if self.released.len() < NOTED_MAX {
            self.released.insert(address, since);
        }
    }

    /// Returns the beginning of a quarantine that continues after a fruitless release.
    pub(crate) fn quarantined_since(&mut self, address: &Address) -> Option<Timestamp> {
        self.released.remove(address)
    }

    /// Notes that an entity was loaded, released or erased; `false` if it was not noted.
    pub(crate) fn forget(&mut self, kind: &str, id: &str) -> bool {
        // Nearly always both are empty, and this check is all that a load costs.
        if self.noted.is_empty() && self.released.is_empty() {
            return false;
        }
        let address = Address::new(kind, id);
        self.released.remove(&address);
        let was_noted = self.noted.remove(&address).is_some();
        if was_noted {
            self.due.insert(address, false);
        }
        was_noted
    }

    /// A row of the store, at a start.
    pub(crate) fn restore(&mut self, address: Address, reason: &[u8]) {
        let note = Note {
            reason: String::from_utf8_lossy(reason).into_owned(),
            is_tried: false,
        };
        self.noted.insert(address, note);
    }

    pub(crate) fn rows(&mut self, rows: &mut Vec<SystemRow>) {
        for (address, given) in &mut self.due {
            *given = true;
            let reason = self.noted.get(address).map(|note| note.reason.clone().into_bytes());
            rows.push((unloadable_row(address), reason));
        }
    }

    /// The checkpoint is done.
    pub(crate) fn stored(&mut self) {
        self.due.retain(|_, given| !*given);
    }

    /// The checkpoint has failed.
    pub(crate) fn failed(&mut self) {
        self.due.values_mut().for_each(|given| *given = false);
    }

    /// The noted entities of a kind, with the reason of each.
    pub(crate) fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = (&'a Address, &'a str)> {
        let of_kind = self.noted.iter().filter(move |(address, _)| &*address.kind == kind);
        of_kind.map(|(address, note)| (address, &*note.reason))
    }

    /// The noted entities that this epoch has not tried to bring back.
    pub(crate) fn untried(&self) -> impl Iterator<Item = &Address> {
        let untried = self.noted.iter().filter(|(_, note)| !note.is_tried);
        untried.map(|(address, _)| address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(notes: &mut Unloadables) -> Vec<(String, Option<String>)> {
        let mut rows = Vec::new();
        notes.rows(&mut rows);
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let shown = rows.into_iter().map(|(row, value)| (text(row), value.map(text)));
        shown.collect()
    }

    #[test]
    fn note_is_written_once_and_removed_once() {
        let (mut notes, ann) = (Unloadables::default(), Address::new("account", "ann"));
        let row = "qaccount\0ann".to_owned();
        assert_eq!(read_row(row.as_bytes()), Some(ann.clone()));
        notes.note(ann.clone(), "torn");
        assert_eq!(rows(&mut notes), [(row.clone(), Some("torn".into()))]);
        notes.failed();
        notes.stored();
        assert_eq!(rows(&mut notes).len(), 1, "its checkpoint has failed");
        notes.stored();
        notes.note(ann.clone(), "torn");
        assert_eq!(rows(&mut notes), []);
        assert!(notes.forget("account", "ann") && !notes.forget("account", "ann"));
        assert_eq!(rows(&mut notes), [(row, None)]);
        notes.stored();
        assert_eq!(rows(&mut notes), []);
    }

    #[test]
    fn release_is_remembered_until_the_entity_is_brought_back() {
        let (mut notes, ann) = (Unloadables::default(), Address::new("account", "ann"));
        let since = Timestamp { micros: 5 };
        notes.release(ann.clone(), since);
        assert_eq!(notes.quarantined_since(&ann), Some(since));
        assert_eq!(notes.quarantined_since(&ann), None, "once");
        notes.release(ann.clone(), since);
        notes.forget("account", "ann");
        assert_eq!(notes.quarantined_since(&ann), None, "it was brought back");
        for id in (0..=NOTED_MAX).map(|id| format!("a{id}")) {
            notes.release(Address::new("account", &*id), since);
        }
        assert_eq!(notes.released.len(), NOTED_MAX);
    }

    #[test]
    fn notes_of_a_shard_have_a_bound() {
        let mut notes = Unloadables::default();
        for id in (0..=NOTED_MAX).map(|id| format!("a{id}")) {
            notes.note(Address::new("account", &*id), "torn");
        }
        assert_eq!(
            (notes.of_kind("account").count(), rows(&mut notes).len()),
            (NOTED_MAX, NOTED_MAX)
        );
    }
}
