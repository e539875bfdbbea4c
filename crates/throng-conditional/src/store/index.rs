//! The rows changed by a checkpoint, merged over the existing rows.

use super::{
    ConditionalStates,
    rows::{self, Changes, Indexed},
};
use throng_journal::{Address, Cut, MissingEvents, Position, Record, RecordKind, ShardSet, StoredState};

pub(super) struct Batch<'a> {
    store: &'a ConditionalStates,
    pub(super) changes: Changes,
}

impl<'a> Batch<'a> {
    pub(super) fn new(store: &'a ConditionalStates, removed: &[Vec<u8>]) -> Self {
        let changes = removed.iter().map(|key| (key.clone(), None));
        Self {
            store,
            changes: changes.collect(),
        }
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        match self.changes.get(key) {
            Some(change) => change.clone(),
            None => self.store.held().rows.get(key).map(<[u8]>::to_vec),
        }
    }

    fn set(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.changes.insert(key, value);
    }

    fn seq(&self, address: &Address) -> Option<u64> {
        self.get(&rows::entity_key(address)).map(|value| rows::seq_of(&value))
    }

    fn set_seq(&mut self, address: &Address, seq: u64) {
        self.set(rows::entity_key(address), Some(seq.to_le_bytes().to_vec()));
    }

    fn state_seq(&self, address: &Address) -> Option<u64> {
        self.get(&rows::state_key(address)).map(|value| rows::seq_of(&value))
    }

    pub(super) fn set_state(&mut self, state: &StoredState) {
        self.set(rows::state_key(&state.address), Some(rows::of_state(state)));
    }

    pub(super) fn set_system(&mut self, key: &[u8], value: Option<Vec<u8>>) {
        self.set(rows::system_key(key), value);
    }

    pub(super) fn cover(&mut self, shards: &ShardSet, upto: Position) {
        for shard in shards.iter() {
            self.set(rows::cover_key(shard), Some(rows::of_position(upto)));
        }
    }

    pub(super) fn index(&mut self, record: &Record<'_>, at: Position, at_micros: i64, missing: &mut MissingEvents) {
        let address = Address::new(record.kind, record.id);
        match record.record {
            RecordKind::Event => {
                let before = self.seq(&address).unwrap_or(0);
                self.set_seq(&address, record.seq);
                if before > 0 && record.seq != before + 1 {
                    missing.note(address.clone(), (record.seq, before), at);
                }
                let indexed = Indexed {
                    seq: record.seq,
                    place: record.place,
                    at_micros,
                    version: record.version,
                    name: record.name.into(),
                };
                self.set(rows::place_key(&address, record.seq), Some(indexed.value()));
            }
            RecordKind::State => {
                let seq = self.seq(&address).unwrap_or(0).max(record.seq);
                self.set_seq(&address, seq);
                if self.state_seq(&address).unwrap_or(0) < record.seq {
                    self.set_state(&StoredState::of_record(record));
                }
                missing.founded(record);
            }
            RecordKind::Ended => {
                let seq = self.seq(&address);
                if seq.is_some_and(|seq| (1..record.seq).contains(&seq)) {
                    self.set_seq(&address, record.seq);
                    missing.gone(record);
                }
                missing.founded(record);
            }
            _ => {}
        }
    }

    pub(super) fn cut(&mut self, cut: &Cut) {
        let Some(seq) = self.seq(&cut.address) else { return };
        let mut keys = self.store.held().rows.place_keys(&cut.address, cut.upto);
        let range = rows::place_key(&cut.address, 0)..=rows::place_key(&cut.address, cut.upto);
        keys.extend(self.changes.range(range).map(|(key, _)| key.clone()));
        keys.into_iter().for_each(|key| self.set(key, None));
        let is_anew = self.state_seq(&cut.address).is_some_and(|seq| seq > cut.upto);
        if !cut.is_gone || is_anew {
            return;
        }
        self.set(rows::state_key(&cut.address), None);
        if seq <= cut.upto {
            self.set(rows::entity_key(&cut.address), None);
        }
    }
}
