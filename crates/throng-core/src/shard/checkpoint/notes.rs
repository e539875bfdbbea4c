//! Notes of relatives and ends that no stored state contains. They are no events, and once a checkpoint covers their records the store must
//! have them.
//!
//! A note is a row, for entities whose state is too large or cannot be written, and for those whose kind only another program has. A start
//! reads it like the records in the log. The checkpoint that stores a state with the same content removes it.
//!
//! ```text
//! u, kind, 0, id   → relatives, and with which event it ended last, as JSON
//! ```

use super::system_row::read_entity_row;
use crate::model::Family;
use serde::{Deserialize, Serialize};
use throng_journal::{Address, Place, Position, Record, RecordKind, ShardId};

#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Noted {
    pub(crate) family: Option<Box<Family>>,
    /// The number of its last event when it last ended; 0: it never did.
    pub(crate) ended: u64,
    /// The store has it otherwise.
    #[serde(skip)]
    pub(crate) has_changed: bool,
}

impl Noted {
    pub(crate) fn of(family: Option<Box<Family>>, ended: u64) -> Self {
        Self {
            family,
            ended,
            has_changed: false,
        }
    }

    /// Calls `each` with the records that this replaces, in order.
    pub(crate) fn each_record(&self, (kind, id): (&str, &str), shard: ShardId, mut each: impl FnMut(&Record<'_>)) {
        let body = self.family.as_ref().and_then(|family| serde_json::to_vec(family).ok());
        let record = |record, seq, body| Record {
            record,
            shard,
            kind,
            id,
            seq,
            name: "",
            version: 0,
            body,
            place: Place {
                position: Position::default(),
                offset: 0,
                len: 0,
            },
        };
        if let Some(body) = &body {
            each(&record(RecordKind::Family, 0, body));
        }
        if self.ended > 0 {
            each(&record(RecordKind::Ended, self.ended, &[]));
        }
    }
}

/// The row of an entity's note.
pub(crate) fn row_of(address: &Address) -> Vec<u8> {
    [b"u", address.kind.as_bytes(), &[0], address.id.as_bytes()].concat()
}

/// The kind and the id of a row.
pub(crate) fn read_name(row: &[u8]) -> Option<(&str, &str)> {
    read_entity_row(b'u', row)
}

/// Reads the value of a note's row.
pub(crate) fn read_note(value: &[u8]) -> Option<Noted> {
    serde_json::from_slice(value).ok()
}

/// The presence of an entity's note in the store, as far as its shard knows.
#[derive(Debug, Default)]
pub(crate) struct StoredNote {
    /// True if there is to be one.
    pub(crate) stands: bool,
    /// The store has it otherwise.
    pub(crate) due: bool,
    /// True if the checkpoint under way contains it.
    given: bool,
}

impl StoredNote {
    /// Marks the note as new or changed: the next checkpoint writes it.
    pub(crate) fn write(&mut self) {
        (self.stands, self.due, self.given) = (true, true, false);
    }

    /// Marks the note for removal, because a state or another row has its content now.
    pub(crate) fn remove(&mut self) {
        if std::mem::take(&mut self.stands) {
            (self.due, self.given) = (true, false);
        }
    }

    pub(crate) fn give(&mut self) {
        self.given = true;
    }

    /// The checkpoint is done.
    pub(crate) fn stored(&mut self) {
        if std::mem::take(&mut self.given) {
            self.due = false;
        }
    }

    pub(crate) fn is_nothing(&self) -> bool {
        !self.stands && !self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        limits,
        model::Timestamp,
        shard::{
            Ran, Recalled, Rows,
            tests::{Bench, Command, FIRST, UNSTORABLE},
        },
    };
    use throng_journal::{Loaded, StoredEvent};

    /// Returns the children in each note of the next checkpoint, or `None` for a removed note, and the number of states.
    fn given(bench: &mut Bench) -> (Vec<Option<Vec<String>>>, usize) {
        assert!(
            bench.shard.families_to_load().is_empty(),
            "a checkpoint waits for nobody"
        );
        let mut rows = Rows::default();
        bench.shard.checkpoint(Timestamp::default(), &mut rows);
        let noted = rows.system.iter().filter(|(row, _)| read_name(row).is_some());
        let children = |value: &Vec<u8>| {
            let family = read_note(value).unwrap().family.unwrap();
            family.children.into_iter().map(|(_, id)| id).collect()
        };
        let noted = noted.map(|(_, value)| value.as_ref().map(children)).collect();
        (noted, rows.states.len())
    }

    fn adopt(bench: &mut Bench, child: &str) {
        bench.ask("a", Command::Child { id: child.into() }).unwrap();
    }

    fn passivate(bench: &mut Bench) {
        // The entity used last stays in memory.
        bench.ask("b", Command::Deposit { amount: 1 }).unwrap();
        bench.shard.passivate(usize::MAX, throng_journal::CommitNo(0));
    }

    #[test]
    fn relatives_of_an_unstorable_entity_are_noted_once() {
        let note = |children: &[&str]| (vec![Some(children.iter().map(|id| (*id).to_owned()).collect())], 0);
        let nothing = (Vec::new(), 0);
        let mut bench = Bench::new();
        bench.ask("a", Command::Deposit { amount: UNSTORABLE }).unwrap();
        adopt(&mut bench, "x");
        assert_eq!(given(&mut bench), note(&["x"]));
        bench.shard.checkpoint_failed();
        assert_eq!(given(&mut bench), note(&["x"]));
        // A child added meanwhile belongs to the next checkpoint.
        adopt(&mut bench, "y");
        bench.shard.checkpointed(FIRST);
        assert_eq!(given(&mut bench), note(&["x", "y"]));
        bench.shard.checkpointed(FIRST);
        assert_eq!(given(&mut bench), nothing);

        // The same holds for an entity that is not in memory.
        passivate(&mut bench);
        assert_eq!(given(&mut bench), nothing);
        assert!(matches!(
            bench.run("a", Command::Child { id: "z".into() }, None).0,
            Ran::Load
        ));
        let event = StoredEvent {
            seq: 1,
            position: FIRST,
            at_micros: 0,
            name: "Deposited".into(),
            version: 1,
            payload: serde_json::to_vec(&serde_json::json!({ "amount": UNSTORABLE })).unwrap(),
        };
        let stored = Loaded {
            state: None,
            events: vec![event],
        };
        let read = Recalled {
            stored,
            ..Recalled::default()
        };
        bench.shard.loaded(0, limits::hash("account", "a"), "a", read);
        adopt(&mut bench, "z");
        assert_eq!(given(&mut bench), note(&["x", "y", "z"]));
        bench.shard.checkpointed(FIRST);

        bench.ask("a", Command::Withdraw { amount: 1 }).unwrap();
        passivate(&mut bench);
        assert_eq!(given(&mut bench), (vec![None], 1));
        bench.shard.checkpointed(FIRST);
        assert_eq!(given(&mut bench), nothing);
    }
}
