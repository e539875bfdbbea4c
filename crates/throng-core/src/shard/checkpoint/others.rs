//! Kinds that only another program has. What a checkpoint of this program covers of their entities is stored for the other one.
//!
//! The store keeps their events and recorded states anyway, and their known ids are stored as for other kinds. An entity's relatives and
//! its end are [noted](super::notes).

use super::{
    erasures::ERASED,
    notes::{Noted, row_of},
    system_row::SystemRow,
};
use crate::{
    model::Family,
    shard::resident::{known::Known, load::merged},
};
use std::collections::BTreeMap;
use throng_journal::{Address, Record, RecordKind, ShardId};

#[derive(Default)]
pub(crate) struct Others {
    known: BTreeMap<Box<str>, Known>,
    /// The notes that a start has read, or that have to be written. Nothing is added later, so the first checkpoint empties this.
    noted: BTreeMap<Address, Noted>,
    known_bytes: usize,
    /// The approximate bytes of `noted`, never too few.
    noted_bytes: usize,
}

/// The approximate bytes in memory of a note without its texts, and of a relative with its texts.
const NOTE_BYTES: usize = 160;
const RELATIVE_BYTES: usize = 96;

impl Others {
    /// Bytes in memory, about.
    pub(crate) fn bytes(&self) -> usize {
        self.known_bytes + self.noted_bytes
    }

    fn known(&mut self, kind: &str) -> &mut Known {
        // Nearly always the kind is there, and its name need not be copied.
        if !self.known.contains_key(kind) {
            self.known.insert(kind.into(), Known::default());
        }
        self.known.get_mut(kind).expect("it was put there if it was not")
    }

    /// A record of a kind that this program does not have.
    pub(crate) fn replay(&mut self, hash: u64, record: &Record<'_>) -> serde_json::Result<()> {
        let known = self.known(record.kind);
        if record.seq <= 1 || !known.contains(hash) {
            let grown = known.insert(hash);
            self.known_bytes += grown;
        }
        match record.record {
            RecordKind::Family => {
                let change: Box<Family> = serde_json::from_slice(record.body)?;
                let noted = self.note(record, Some(&change));
                noted.family = merged(noted.family.take(), Some(change));
            }
            RecordKind::Ended => {
                let noted = self.note(record, None);
                noted.ended = record.seq;
                if record.name == ERASED {
                    noted.family = None;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn note(&mut self, record: &Record<'_>, relatives: Option<&Family>) -> &mut Noted {
        self.noted_bytes += bytes_of((record.kind, record.id), relatives);
        let noted = self.noted.entry(Address::new(record.kind, record.id)).or_default();
        noted.has_changed = true;
        noted
    }

    /// Takes over a row of known ids of another kind; `false` if it cannot be read.
    pub(crate) fn restore_known(&mut self, kind: &str, name: &[u8], value: &[u8]) -> bool {
        let grown = self.known(kind).restore(name, value);
        self.known_bytes += grown.unwrap_or_default();
        grown.is_some()
    }

    /// Takes over a note of an entity whose kind this program lacks, too.
    pub(crate) fn restore(&mut self, (kind, id): (&str, &str), noted: Noted) {
        self.noted_bytes += bytes_of((kind, id), noted.family.as_deref());
        self.noted.insert(Address::new(kind, id), noted);
    }

    /// Rows for a checkpoint.
    pub(crate) fn rows(&mut self, shard: ShardId, rows: &mut Vec<SystemRow>) {
        for (kind, known) in &mut self.known {
            known.rows(kind, shard, rows);
        }
        let changed = self.noted.iter().filter(|(_, noted)| noted.has_changed);
        rows.extend(changed.map(|(address, noted)| (row_of(address), serde_json::to_vec(noted).ok())));
    }

    /// The checkpoint with these rows is done.
    pub(crate) fn stored(&mut self) {
        for known in self.known.values_mut() {
            self.known_bytes -= known.stored();
        }
        self.noted = BTreeMap::new();
        self.noted_bytes = 0;
    }
}

fn bytes_of((kind, id): (&str, &str), family: Option<&Family>) -> usize {
    let relatives = family.map_or(0, |family| 1 + family.children.len());
    NOTE_BYTES + kind.len() + id.len() + relatives * RELATIVE_BYTES
}

#[cfg(test)]
mod tests {
    use super::{super::notes::read_name, *};
    use crate::{
        limits,
        model::Timestamp,
        shard::{
            Registry, Rows, Shard,
            tests::{Bench, Command, FIRST},
        },
    };
    use std::sync::Arc;
    use throng_journal::{Commit, WriterId};

    type Stored = BTreeMap<Vec<u8>, Vec<u8>>;

    fn older() -> Shard {
        let mut registry = Registry::default();
        registry.set_shards(1);
        Shard::new(ShardId(0), WriterId(1), Arc::new(registry), Timestamp::default())
    }

    fn restore(shard: &mut Shard, stored: &Stored) {
        for prefix in super::super::replay::RESTORED {
            for (row, value) in stored.iter().filter(|(row, _)| row.starts_with(prefix)) {
                assert!(shard.row(row, value), "{row:?}");
            }
        }
    }

    fn replay(shard: &mut Shard, commit: &Commit) {
        for record in commit.records().map(Result::unwrap) {
            shard.replay(limits::hash(record.kind, record.id), &record).unwrap();
        }
    }

    fn checkpoint(shard: &mut Shard, stored: &mut Stored) -> Rows {
        let mut rows = Rows::default();
        shard.checkpoint(Timestamp::default(), &mut rows);
        for (row, value) in &rows.system {
            match value {
                Some(value) => _ = stored.insert(row.clone(), value.clone()),
                None => _ = stored.remove(row),
            }
        }
        rows
    }

    /// Returns a commit in which an account gets a child. It also ends the account if `ended` is one of its events.
    fn commit(child: &str, ended: u64) -> Commit {
        let mut bench = Bench::new();
        bench.ask("a", Command::Deposit { amount: 5 }).unwrap();
        bench.ask("a", Command::Child { id: child.into() }).unwrap();
        if ended > 0 {
            let own = Address::new("account", "a");
            let builder = &mut bench.open.builder;
            builder.push(RecordKind::Ended, ShardId(0), &own, ended, "", 0, &[]);
        }
        bench.finish()
    }

    #[test]
    fn relatives_and_ends_return_to_a_program_with_the_kind() {
        let mut stored = Stored::new();
        for commit in [commit("x", 0), commit("y", 0), commit("y", 7)] {
            let mut shard = older();
            restore(&mut shard, &stored);
            replay(&mut shard, &commit);
            checkpoint(&mut shard, &mut stored);
            assert!(shard.load().bytes > 0);
            shard.checkpointed(FIRST);
            let rows = checkpoint(&mut shard, &mut stored);
            assert!(rows.system.is_empty(), "nothing is new: {rows:?}", rows = rows.system);
        }

        let mut newer = Bench::new().shard;
        restore(&mut newer, &stored);
        let hash = limits::hash("account", "a");
        assert_eq!(newer.families_to_load(), [(0, hash, "a".into())]);
        newer.loaded(0, hash, "a", Default::default());
        checkpoint(&mut newer, &mut stored);
        let own = Address::new("account", "a");
        assert_eq!(stored[&super::super::system_row::ended_row(&own)], 7_u64.to_be_bytes());
        assert_eq!(stored.keys().filter(|row| row.starts_with(b"u")).count(), 0);
        newer.checkpointed(FIRST);
    }

    #[test]
    fn notes_are_given_again_after_a_failed_checkpoint() {
        let mut shard = older();
        replay(&mut shard, &commit("x", 7));
        let first = checkpoint(&mut shard, &mut Stored::new()).system;
        shard.checkpoint_failed();
        assert_eq!(checkpoint(&mut shard, &mut Stored::new()).system, first);
        let noted: Vec<_> = first.iter().filter_map(|(row, _)| read_name(row)).collect();
        assert_eq!(noted, [("account", "a")]);
    }

    #[test]
    fn records_that_cannot_be_read_are_refused() {
        use throng_journal::Place;
        for kind in [
            RecordKind::Sent,
            RecordKind::Key,
            RecordKind::TimerSet,
            RecordKind::Numbers,
            RecordKind::Family,
        ] {
            let record = Record {
                record: kind,
                shard: ShardId(0),
                kind: "account",
                id: "a",
                seq: 1,
                name: "",
                version: 0,
                body: b"a body of a newer program",
                place: Place {
                    position: FIRST,
                    offset: 0,
                    len: 0,
                },
            };
            for mut shard in [Bench::new().shard, older()] {
                assert!(shard.replay(limits::hash("account", "a"), &record).is_err(), "{kind:?}");
            }
        }
    }

    #[test]
    fn damaged_rows_are_noticed() {
        for row in [&b"u"[..], b"uaccount", b"naccount\0a", b"uaccount\0\xff"] {
            assert_eq!(read_name(row), None, "{row:?}");
        }
        for (row, value) in [(&b"uaccount\0a"[..], &b"{"[..]), (b"ulecture\0a", b""), (b"u", b"{}")] {
            assert!(!Bench::new().shard.row(row, value), "{row:?}");
        }
    }
}
