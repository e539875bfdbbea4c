//! The store in memory, beside a journal in memory.

use crate::{
    Address, Checkpoint, CommitNo, Covered, Cut, EntityHead, Error, Later, Loaded, Maybe, MemoryJournal, MissingEvents,
    Place, Position, Record, RecordKind, ShardId, ShardSet, Store, StoredEvent, StoredState, begin_of_rows,
};
use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A store in memory that indexes the commits of a [`MemoryJournal`]. Clones share their rows.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    journal: MemoryJournal,
    rows: Arc<Mutex<Rows>>,
}

#[derive(Debug, Default)]
struct Rows {
    covers: BTreeMap<ShardId, Position>,
    states: BTreeMap<Address, StoredState>,
    entities: BTreeMap<Address, Entity>,
    system: BTreeMap<Vec<u8>, Vec<u8>>,
}

#[derive(Debug, Default)]
struct Entity {
    /// The number of its last event.
    seq: u64,
    /// Events in the order of their numbers, without a gap.
    events: Vec<Indexed>,
}

#[derive(Debug)]
struct Indexed {
    seq: u64,
    place: Place,
    at_micros: i64,
    name: Box<str>,
    version: u16,
}

const READ_BYTES: usize = 8 << 20;

impl MemoryStore {
    /// An empty store beside this journal.
    #[must_use]
    pub fn new(journal: MemoryJournal) -> Self {
        Self {
            journal,
            rows: Arc::default(),
        }
    }

    /// Drops all it holds, like a store whose disk is lost.
    pub fn lose(&self) {
        *self.rows() = Rows::default();
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Indexes the part of a stream that is not covered for these shards, up to here.
    fn index(&self, rows: &mut Rows, shards: &ShardSet, upto: Position, missing: &mut MissingEvents) {
        // Commits that are covered for all of them need not be read again.
        let covered = shards.iter().map(|shard| match rows.covers.get(&shard) {
            Some(covered) if covered.writer == upto.writer => covered.commit,
            Some(covered) if covered.writer > upto.writer => upto.commit,
            _ => CommitNo(0),
        });
        let commit = covered.min().unwrap_or(upto.commit);
        let (mut from, upto) = (Position { commit, ..upto }, upto.commit);
        while from.commit < upto {
            let commits = self.journal.after(from, READ_BYTES);
            if commits.is_empty() {
                return;
            }
            for commit in commits.iter().take_while(|commit| commit.stamp().number <= upto) {
                from.commit = commit.stamp().number;
                let at_micros = commit.stamp().at_micros;
                for record in commit.records().flatten() {
                    let covered = rows.covers.get(&record.shard);
                    if !shards.contains(record.shard) || covered.is_some_and(|covered| *covered >= from) {
                        continue;
                    }
                    rows.index(&record, from, at_micros, missing);
                }
            }
            if commits.last().is_some_and(|commit| commit.stamp().number > upto) {
                return;
            }
        }
    }

    fn events(&self, rows: &Rows, address: &Address, after: u64, limit: usize, bytes_max: usize) -> Vec<StoredEvent> {
        let Some(entity) = rows.entities.get(address) else {
            return Vec::new();
        };
        let (mut found, mut bytes) = (Vec::new(), 0);
        let from = entity.events.partition_point(|event| event.seq <= after);
        for event in entity.events[from..].iter().take(limit) {
            let Some(payload) = self.journal.body(event.place) else {
                break;
            };
            bytes += payload.len();
            if bytes > bytes_max && !found.is_empty() {
                break;
            }
            found.push(StoredEvent {
                seq: event.seq,
                position: event.place.position,
                at_micros: event.at_micros,
                name: event.name.clone(),
                version: event.version,
                payload,
            });
        }
        found
    }
}

impl Rows {
    fn index(&mut self, record: &Record<'_>, at: Position, at_micros: i64, missing: &mut MissingEvents) {
        let address = || Address::new(record.kind, record.id);
        match record.record {
            RecordKind::Event => {
                let entity = self.entities.entry(address()).or_default();
                let before = std::mem::replace(&mut entity.seq, record.seq);
                if before > 0 && record.seq != before + 1 {
                    missing.note(address(), (record.seq, before), at);
                }
                entity.events.push(Indexed {
                    seq: record.seq,
                    place: record.place,
                    at_micros,
                    name: record.name.into(),
                    version: record.version,
                });
            }
            RecordKind::State => {
                let entity = self.entities.entry(address()).or_default();
                entity.seq = entity.seq.max(record.seq);
                let known = self.states.get(&address()).map_or(0, |state| state.seq);
                if known < record.seq {
                    self.states.insert(address(), StoredState::of_record(record));
                }
                missing.founded(record);
            }
            RecordKind::Ended => {
                let entity = self.entities.get_mut(&address());
                if let Some(entity) = entity.filter(|entity| (1..record.seq).contains(&entity.seq)) {
                    entity.seq = record.seq;
                    missing.gone(record);
                }
                missing.founded(record);
            }
            _ => {}
        }
    }

    fn cut(&mut self, cut: &Cut) {
        let Some(entity) = self.entities.get_mut(&cut.address) else {
            return;
        };
        entity.events.retain(|event| event.seq > cut.upto);
        let is_anew = self.states.get(&cut.address).is_some_and(|state| state.seq > cut.upto);
        if !cut.is_gone || is_anew {
            return;
        }
        self.states.remove(&cut.address);
        if entity.seq <= cut.upto {
            self.entities.remove(&cut.address);
        }
    }

    /// Returns the state of this version, or of any version if the earlier events were removed.
    fn state(&self, address: &Address, version: u16) -> Option<&StoredState> {
        let entity = self.entities.get(address);
        let is_cut =
            entity.is_some_and(|entity| entity.seq > 0 && entity.events.first().is_none_or(|event| event.seq > 1));
        let state = self.states.get(address);
        state.filter(|state| state.version == version || is_cut)
    }
}

impl Store for MemoryStore {
    fn covers<'a>(&'a self, shards: &'a ShardSet) -> Later<'a, Result<Vec<Covered>, Error>> {
        let rows = self.rows();
        let mut covered: BTreeMap<Option<Position>, ShardSet> = BTreeMap::new();
        for shard in shards.iter() {
            let upto = rows.covers.get(&shard).copied();
            covered.entry(upto).or_default().insert(shard);
        }
        let covered = covered.into_iter().map(|(upto, shards)| Covered { shards, upto });
        Box::pin(std::future::ready(Ok(covered.collect())))
    }

    fn advance(&self, checkpoint: Checkpoint) -> Later<'_, Result<(), Error>> {
        let mut ends = checkpoint.sealed.iter().chain([&checkpoint.upto]);
        if let Some(beyond) = ends.find(|end| !self.journal.reaches(**end)) {
            return Box::pin(std::future::ready(Err(Error::NoCommit(*beyond))));
        }
        // A new owner reads these rows after the stream was sealed, and finds either all of this or nothing.
        let mut rows = self.rows();
        let writer = checkpoint.upto.writer;
        if let Err(refused) = self.journal.refuse_checkpoint(writer, &checkpoint.shards) {
            return Box::pin(std::future::ready(Err(refused)));
        }
        let mut missing = MissingEvents::default();
        for end in checkpoint.sealed.iter().chain([&checkpoint.upto]) {
            self.index(&mut rows, &checkpoint.shards, *end, &mut missing);
        }
        // Lost events are found by their numbers when they are loaded.
        let cuts = missing.check().unwrap_or_default();
        cuts.iter().for_each(|cut| rows.cut(cut));
        let covered = checkpoint.shards.iter().map(|shard| (shard, checkpoint.upto));
        rows.covers.extend(covered);
        for state in checkpoint.states {
            rows.states.insert(state.address.clone(), state);
        }
        for (key, value) in checkpoint.system {
            match value {
                Some(value) => rows.system.insert(key, value),
                None => rows.system.remove(&key),
            };
        }
        checkpoint.cuts.iter().for_each(|cut| rows.cut(cut));
        Box::pin(std::future::ready(Ok(())))
    }

    fn load(&self, address: &Address, state_version: u16) -> Maybe<'_, Result<Loaded, Error>> {
        let rows = self.rows();
        let state = rows.state(address, state_version).cloned();
        let after = state.as_ref().map_or(0, |state| state.seq);
        let events = self.events(&rows, address, after, usize::MAX, usize::MAX);
        Maybe::Ready(Ok(Loaded { state, events }))
    }

    fn history(
        &self,
        address: &Address,
        after: u64,
        limit: usize,
        bytes_max: usize,
    ) -> Later<'_, Result<Vec<StoredEvent>, Error>> {
        let events = self.events(&self.rows(), address, after, limit, bytes_max);
        Box::pin(std::future::ready(Ok(events)))
    }

    fn entities(&self, kind: &str, after: Option<&str>, limit: usize) -> Later<'_, Result<Vec<EntityHead>, Error>> {
        let rows = self.rows();
        let from = match after {
            Some(id) => Bound::Excluded(Address::new(kind, id)),
            None => Bound::Included(Address::new(kind, "")),
        };
        let heads = rows
            .entities
            .range((from, Bound::Unbounded))
            .take_while(|(address, _)| &*address.kind == kind)
            .take(limit)
            .map(|(address, entity)| EntityHead {
                id: address.id.clone(),
                seq: entity.seq,
            })
            .collect();
        Box::pin(std::future::ready(Ok(heads)))
    }

    fn system(&self, key: &[u8]) -> Maybe<'_, Result<Option<Vec<u8>>, Error>> {
        Maybe::Ready(Ok(self.rows().system.get(key).cloned()))
    }

    fn system_scan<'a>(
        &'a self,
        prefix: &'a [u8],
        after: &'a [u8],
        rows_max: usize,
        visit: &'a mut (dyn FnMut(&[u8], &[u8]) + Send),
    ) -> Later<'a, Result<(), Error>> {
        let rows = self.rows();
        for (key, value) in rows
            .system
            .range::<[u8], _>((begin_of_rows(prefix, after), Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(prefix))
            .take(rows_max)
        {
            visit(key, value);
        }
        Box::pin(std::future::ready(Ok(())))
    }

    fn remove_prefix<'a>(
        &'a self,
        prefix: &'a [u8],
        after: &'a [u8],
        rows_max: usize,
    ) -> Later<'a, Result<Option<Vec<u8>>, Error>> {
        let removed = remove_prefix(&mut self.rows().system, prefix, after, rows_max);
        Box::pin(std::future::ready(Ok(removed)))
    }
}

fn remove_prefix(
    system: &mut BTreeMap<Vec<u8>, Vec<u8>>,
    prefix: &[u8],
    after: &[u8],
    rows_max: usize,
) -> Option<Vec<u8>> {
    let range = (begin_of_rows(prefix, after), Bound::Unbounded);
    let keys = system.range::<[u8], _>(range).map(|(key, _)| key.clone());
    let keys: Vec<Vec<u8>> = keys.take_while(|key| key.starts_with(prefix)).take(rows_max).collect();
    for key in &keys {
        system.remove(key);
    }
    keys.into_iter().next_back()
}

impl From<MemoryStore> for Box<dyn Store> {
    fn from(store: MemoryStore) -> Self {
        Box::new(store)
    }
}
