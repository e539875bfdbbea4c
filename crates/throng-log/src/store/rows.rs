//! The tables during a checkpoint. Additions and removals are counted, and noted for a compaction under way.

use super::{
    compact::Compaction,
    database::{BYTES, CHUNKS, HEADS, META, Of, STATES, SYSTEM, failed},
};
use redb::{AccessGuard, Key, ReadableTable as _, Table, TableDefinition, Value, WriteTransaction};
use std::{
    borrow::Borrow,
    cell::Cell,
    ops::{Deref, RangeBounds},
    sync::Arc,
};
use throng_journal::Error;

const DOING: &str = "writing the store's rows";

/// The changes of one transaction.
#[derive(Default)]
pub(super) struct Changes {
    /// The growth of keys and values, in bytes. `add` and `take_off` write it, on the one thread of the transaction.
    bytes: Cell<i64>,
    /// The compaction that has to know every changed key.
    compaction: Option<Arc<Compaction>>,
}

impl Changes {
    pub(super) fn noted_by(compaction: Option<Arc<Compaction>>) -> Self {
        Self {
            bytes: Cell::default(),
            compaction,
        }
    }

    fn add(&self, bytes: usize) {
        self.bytes.set(self.bytes.get().saturating_add_unsigned(bytes as u64));
    }

    fn take_off(&self, bytes: usize) {
        self.bytes.set(self.bytes.get().saturating_sub_unsigned(bytes as u64));
    }

    /// Returns the bytes after the changes, given those before.
    pub(super) fn applied_to(&self, before: u64) -> u64 {
        before.saturating_add_signed(self.bytes.get())
    }
}

/// A table that is read normally, and changed only in ways that are counted.
pub(super) struct Rows<'t, K: Key + 'static, V: Value + 'static> {
    table: Table<'t, K, V>,
    of: Of,
    changes: &'t Changes,
}

impl<'t, K: Key + 'static, V: Value + 'static> Deref for Rows<'t, K, V> {
    type Target = Table<'t, K, V>;

    fn deref(&self) -> &Self::Target {
        &self.table
    }
}

impl<'t, K: Key + 'static, V: Value + 'static> Rows<'t, K, V> {
    pub(super) fn open(
        transaction: &'t WriteTransaction,
        table: TableDefinition<'_, K, V>,
        of: Of,
        changes: &'t Changes,
    ) -> Result<Self, Error> {
        let table = transaction.open_table(table).map_err(failed(DOING))?;
        Ok(Self { table, of, changes })
    }

    pub(super) fn insert<'k, 'v>(
        &mut self,
        key: impl Borrow<K::SelfType<'k>>,
        value: impl Borrow<V::SelfType<'v>>,
    ) -> Result<(), Error> {
        let key_bytes = self.note(key.borrow());
        self.changes.add(key_bytes + V::as_bytes(value.borrow()).as_ref().len());
        let before = self.table.insert(key, value).map_err(failed(DOING))?;
        went(self.changes, key_bytes, before);
        Ok(())
    }

    pub(super) fn remove<'k>(&mut self, key: impl Borrow<K::SelfType<'k>>) -> Result<(), Error> {
        let key_bytes = self.note(key.borrow());
        let before = self.table.remove(key).map_err(failed(DOING))?;
        went(self.changes, key_bytes, before);
        Ok(())
    }

    /// Removes all rows in a range.
    pub(super) fn remove_in<'k, R>(&mut self, range: impl RangeBounds<R> + 'k) -> Result<(), Error>
    where
        R: Borrow<K::SelfType<'k>> + 'k,
    {
        let (of, changes) = (self.of, self.changes);
        let removed = self.table.retain_in(range, |key, value| {
            changes.take_off(note::<K>(of, changes, &key) + V::as_bytes(&value).as_ref().len());
            false
        });
        removed.map_err(failed(DOING))
    }

    fn note(&self, key: &K::SelfType<'_>) -> usize
    where
        K: Key,
    {
        note::<K>(self.of, self.changes, key)
    }

    /// The bytes of all its keys and values, each of them read.
    fn count(&self) -> Result<u64, Error> {
        let mut bytes = 0;
        for row in self.table.iter().map_err(failed(DOING))? {
            let (key, value) = row.map_err(failed(DOING))?;
            bytes += (K::as_bytes(&key.value()).as_ref().len() + V::as_bytes(&value.value()).as_ref().len()) as u64;
        }
        Ok(bytes)
    }
}

/// The key's length in bytes, once it is noted.
fn note<K: Key>(of: Of, changes: &Changes, key: &K::SelfType<'_>) -> usize {
    let key = K::as_bytes(key);
    let key = key.as_ref();
    if let Some(compaction) = &changes.compaction {
        compaction.note(of, key);
    }
    key.len()
}

/// Counts a row that was removed.
fn went<V: Value + 'static>(changes: &Changes, key_bytes: usize, before: Option<AccessGuard<'_, V>>) {
    if let Some(before) = before {
        changes.take_off(key_bytes + V::as_bytes(&before.value()).as_ref().len());
    }
}

/// All tables, in one transaction.
pub(super) struct Tables<'t> {
    pub(super) heads: Rows<'t, &'static [u8], (u64, u64)>,
    pub(super) chunks: Rows<'t, (u64, u64), &'static [u8]>,
    pub(super) states: Rows<'t, u64, &'static [u8]>,
    pub(super) system: Rows<'t, &'static [u8], &'static [u8]>,
    pub(super) meta: Table<'t, &'static str, u64>,
}

impl<'t> Tables<'t> {
    pub(super) fn open(transaction: &'t WriteTransaction, changes: &'t Changes) -> Result<Self, Error> {
        Ok(Self {
            heads: Rows::open(transaction, HEADS, Of::Heads, changes)?,
            chunks: Rows::open(transaction, CHUNKS, Of::Chunks, changes)?,
            states: Rows::open(transaction, STATES, Of::States, changes)?,
            system: Rows::open(transaction, SYSTEM, Of::System, changes)?,
            meta: transaction.open_table(META).map_err(failed(DOING))?,
        })
    }

    /// Returns the bytes of all rows before any change. A store from before they were counted is read once for this.
    pub(super) fn bytes(&self) -> Result<u64, Error> {
        let noted = self.meta.get(BYTES).map_err(failed(DOING))?;
        match noted {
            Some(bytes) => Ok(bytes.value()),
            None => Ok(self.heads.count()? + self.chunks.count()? + self.states.count()? + self.system.count()?),
        }
    }
}
