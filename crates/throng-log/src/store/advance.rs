//! Applying a checkpoint: the log's commits are read and their events indexed, states and system rows are stored, in one transaction.

use super::{
    chunk::{self, PackedEvent, Packer},
    cut::cut,
    database::{self, BYTES, Database, failed, head_key},
    inner::Inner,
    read::{encode_state, seq_of_state},
    rows::{Changes, Tables},
};
use crate::log::Located;
use redb::ReadableTable as _;
use std::collections::HashMap;
use throng_journal::{
    Address, Checkpoint, CommitNo, Durability, Error, MissingEvents, Position, Record, RecordKind, StoredState,
};

const DOING: &str = "making a checkpoint";
/// Read from the log at once.
const READ_BYTES: usize = 8 << 20;
/// The most bytes of places gathered in memory before they are put into the transaction.
const GATHERED_BYTES_MAX: usize = 64 << 20;
/// The bytes counted for an entity's entry in memory besides its packed places.
const GATHERED_ENTITY_BYTES: usize = 200;

/// The gathered events of an entity.
#[derive(Default)]
struct Gathered {
    /// Its number in the store, if it has one.
    number: Option<u64>,
    seq: u64,
    packer: Packer,
    /// Full rows, by the sequence number of their last event.
    rows: Vec<(u64, Vec<u8>)>,
    /// The newest state that the log itself holds.
    state: Option<StoredState>,
}

impl Gathered {
    /// Takes the record of an entity's state: its index may begin after that.
    fn state(&mut self, record: &Record<'_>) {
        if record.seq > self.seq {
            if !self.packer.is_empty() {
                self.rows.push((self.seq, self.packer.finish()));
            }
            self.seq = record.seq;
        }
        self.state = Some(StoredState::of_record(record));
    }

    /// Takes an entity's end at this event; returns true if the index lacks events before it.
    fn lacks_before(&mut self, ended: u64) -> bool {
        let lacks = (1..ended).contains(&self.seq);
        if lacks {
            if !self.packer.is_empty() {
                self.rows.push((self.seq, self.packer.finish()));
            }
            self.seq = ended;
        }
        lacks
    }
}

impl Inner {
    pub(super) fn advance(&self, checkpoint: &Checkpoint) -> Result<(), Error> {
        if self.log.options().durability != Durability::Fsync {
            self.log.sync()?;
        }
        let mut slot = self.database();
        self.settle_name()?;
        let database = match slot.take() {
            Some(database) => database,
            None => Database::open(&self.log, &self.path)?,
        };
        match database::guarded(DOING, || self.advance_in(&database, checkpoint)) {
            Ok(()) => {
                self.show(database.snapshot()?);
                self.reopening.set_due(false);
                *slot = Some(database);
                Ok(())
            }
            Err(error) => {
                // After a failed call the database does not answer until it is opened again; only then it shows whether the last step was
                // committed.
                drop(database);
                self.reopening.set_due(true);
                let before = self.snapshot().advances;
                match Database::open(&self.log, &self.path) {
                    Ok(reopened) => {
                        let snapshot = reopened.snapshot()?;
                        let landed = snapshot.advances > before;
                        self.show(snapshot);
                        self.reopening.set_due(false);
                        *slot = Some(reopened);
                        if landed { Ok(()) } else { Err(error) }
                    }
                    Err(again) => {
                        tracing::warn!(error = %again, "the store is closed until it can be opened again");
                        Err(error)
                    }
                }
            }
        }
    }

    fn advance_in(&self, database: &Database, checkpoint: &Checkpoint) -> Result<(), Error> {
        let now = self.snapshot();
        let from = now.covers.map(|covers| covers.position);
        let Some(fingerprint) = self.log.fingerprint(checkpoint.upto)? else {
            return Err(Error::NoCommit(checkpoint.upto));
        };
        let changes = Changes::noted_by(self.compaction());
        let transaction = database.begin()?;
        {
            let mut tables = Tables::open(&transaction, &changes)?;
            let bytes = tables.bytes()?;
            let mut index = Index::new(&tables)?;
            let mut before = from;
            for end in checkpoint.sealed.iter().chain([&checkpoint.upto]) {
                let start = before.filter(|before| before.writer == end.writer);
                self.index_stream(&mut index, &mut tables, start, *end)?;
                before = Some(*end);
            }
            index.flush(&mut tables)?;
            for one in &index.missing.check()? {
                cut(&mut tables, one)?;
            }
            for state in &checkpoint.states {
                index.put_state(&mut tables, state)?;
            }
            for one in &checkpoint.cuts {
                cut(&mut tables, one)?;
            }
            for (key, value) in &checkpoint.system {
                match value {
                    Some(value) => tables.system.insert(&**key, &**value)?,
                    None => tables.system.remove(&**key)?,
                }
            }
            let numbers = [
                ("entities", index.entities),
                ("advances", now.advances + 1),
                ("writer", checkpoint.upto.writer.0),
                ("commit", checkpoint.upto.commit.0),
                ("fingerprint", u64::from(fingerprint)),
                (BYTES, changes.applied_to(bytes)),
            ];
            for (key, number) in numbers {
                tables.meta.insert(key, number).map_err(failed(DOING))?;
            }
        }
        transaction.commit().map_err(failed(DOING))
    }

    /// Indexes the commits of one stream after `start`, up to and including `end`.
    fn index_stream(
        &self,
        index: &mut Index,
        tables: &mut Tables<'_>,
        start: Option<Position>,
        end: Position,
    ) -> Result<(), Error> {
        let mut at = start.unwrap_or(Position::new(end.writer, CommitNo(0)));
        while at.commit < end.commit {
            let read = self.log.read_located(at, READ_BYTES)?;
            if read.is_empty() {
                return Err(Error::NoCommit(Position::new(at.writer, at.commit.next())));
            }
            for located in &read {
                if located.commit.stamp().number > end.commit {
                    return Ok(());
                }
                at = located.commit.position();
                index.commit(tables, located)?;
            }
            if index.bytes > GATHERED_BYTES_MAX {
                index.flush(tables)?;
            }
        }
        Ok(())
    }
}

/// Places gathered by entity, so that the tables are written in the order of their keys.
struct Index {
    gathered: HashMap<Box<[u8]>, Gathered>,
    bytes: usize,
    /// Entities numbered so far.
    entities: u64,
    key: Vec<u8>,
    missing: MissingEvents,
}

impl Index {
    fn new(tables: &Tables<'_>) -> Result<Self, Error> {
        let entities = tables.meta.get("entities").map_err(failed(DOING))?;
        Ok(Self {
            gathered: HashMap::new(),
            bytes: 0,
            entities: entities.map_or(0, |entities| entities.value()),
            key: Vec::new(),
            missing: MissingEvents::default(),
        })
    }

    fn commit(&mut self, tables: &Tables<'_>, located: &Located) -> Result<(), Error> {
        let stamp = located.commit.stamp();
        for record in located.commit.records() {
            let record = record.map_err(|damage| Error::backend(DOING, damage))?;
            let is_end = record.record == RecordKind::Ended;
            if !is_end && !matches!(record.record, RecordKind::Event | RecordKind::State) {
                continue;
            }
            head_key(&mut self.key, record.kind, record.id);
            if !self.gathered.contains_key(&*self.key) {
                let head = tables.heads.get(&*self.key).map_err(failed(DOING))?;
                if is_end && head.is_none() {
                    continue;
                }
                let (number, seq) = head.map_or((None, 0), |head| {
                    let (number, seq) = head.value();
                    (Some(number), seq)
                });
                let entry = Gathered {
                    number,
                    seq,
                    ..Gathered::default()
                };
                self.gathered.insert(self.key.as_slice().into(), entry);
                self.bytes += GATHERED_ENTITY_BYTES + self.key.len();
            }
            let Some(entity) = self.gathered.get_mut(&*self.key) else {
                continue;
            };
            if is_end {
                if entity.lacks_before(record.seq) {
                    self.missing.gone(&record);
                }
                self.missing.founded(&record);
                continue;
            }
            if record.record == RecordKind::State {
                entity.state(&record);
                self.bytes += record.body.len();
                self.missing.founded(&record);
                continue;
            }
            // Earlier events than the first one left were removed.
            if record.seq != entity.seq + 1 && entity.seq > 0 {
                let of = Address::new(record.kind, record.id);
                self.missing.note(of, (record.seq, entity.seq), stamp.position());
                if !entity.packer.is_empty() {
                    entity.rows.push((entity.seq, entity.packer.finish()));
                }
            }
            if entity.packer.is_full_for(stamp.writer) {
                entity.rows.push((entity.seq, entity.packer.finish()));
            }
            let before = entity.packer.bytes();
            entity.packer.push(PackedEvent {
                position: stamp.position(),
                at_micros: stamp.at_micros,
                segment: located.segment,
                offset: located.offset + u64::from(record.place.offset),
                length: record.place.len,
                crc: crc32c::crc32c(record.body),
                version: record.version,
                name: record.name,
            });
            self.bytes += entity.packer.bytes() - before;
            entity.seq = record.seq;
        }
        Ok(())
    }

    /// Puts the gathered places into the transaction, in the order of the tables' keys.
    fn flush(&mut self, tables: &mut Tables<'_>) -> Result<(), Error> {
        let mut gathered: Vec<(Box<[u8]>, Gathered)> = self.gathered.drain().collect();
        self.bytes = 0;
        gathered.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        let mut rows = Vec::with_capacity(gathered.len());
        for (key, mut entity) in gathered {
            let number = entity.number.unwrap_or_else(|| {
                self.entities += 1;
                self.entities
            });
            tables.heads.insert(&*key, (number, entity.seq))?;
            if !entity.packer.is_empty() {
                entity.rows.push((entity.seq, entity.packer.finish()));
            }
            for (last, row) in &mut entity.rows {
                chunk::seal(row, (&key, *last));
            }
            rows.push((number, entity.rows, entity.state));
        }
        rows.sort_unstable_by_key(|(number, ..)| *number);
        for (number, rows, state) in rows {
            if let Some(state) = state {
                let row = tables.states.get(number).map_err(failed(DOING))?;
                let is_newer = row.is_none_or(|row| seq_of_state(row.value()) < state.seq);
                if is_newer {
                    tables.states.insert(number, &*encode_state(&state))?;
                }
            }
            for (last, row) in rows {
                tables.chunks.insert((number, last), &*row)?;
            }
        }
        Ok(())
    }

    /// Stores a state; even of an entity without events, whose kind may keep none.
    fn put_state(&mut self, tables: &mut Tables<'_>, state: &StoredState) -> Result<(), Error> {
        head_key(&mut self.key, &state.address.kind, &state.address.id);
        let head = tables
            .heads
            .get(&*self.key)
            .map_err(failed(DOING))?
            .map(|head| head.value());
        // It may be newer than the events indexed so far: the engine passes only what is durable, and recovery replays the commits after
        // the checkpoint on top of it.
        let number = match head {
            Some((number, _)) => number,
            None => {
                self.entities += 1;
                tables.heads.insert(&*self.key, (self.entities, 0))?;
                self.entities
            }
        };
        let row = encode_state(state);
        tables.states.insert(number, &*row)
    }
}
