//! Copies what has changed meanwhile, and checks that nothing is missing.

use super::noted::{DOING, Keys, given_up};
use crate::store::{
    database::{Of, Snapshot, failed},
    rows::{Rows, Tables},
};
use redb::{Key, ReadOnlyTable, ReadableTableMetadata as _, Value};
use throng_journal::Error;

/// Copies the present rows of these keys.
pub(super) fn copy_again(
    from: &Snapshot,
    to: &mut Tables<'_>,
    keys: &Keys,
    copied: &mut dyn FnMut(usize) -> Result<(), Error>,
) -> Result<(), Error> {
    for (of, key) in keys {
        let bytes = match of {
            Of::Heads => copy_row(&from.heads, &mut to.heads, key),
            Of::Chunks => copy_row(&from.chunks, &mut to.chunks, key),
            Of::States => copy_row(&from.states, &mut to.states, key),
            Of::System => copy_row(&from.system, &mut to.system, key),
        }?;
        copied(bytes)?;
    }
    Ok(())
}

fn copy_row<K: Key + 'static, V: Value + 'static>(
    from: &ReadOnlyTable<K, V>,
    to: &mut Rows<'_, K, V>,
    key: &[u8],
) -> Result<usize, Error> {
    let row = from.get(K::from_bytes(key)).map_err(failed(DOING))?;
    match row {
        Some(row) => {
            let value = row.value();
            let bytes = key.len() + V::as_bytes(&value).as_ref().len();
            to.insert(K::from_bytes(key), value)?;
            Ok(bytes)
        }
        None => to.remove(K::from_bytes(key)).map(|()| key.len()),
    }
}

/// Checks that no row was missed, before the old file is deleted.
pub(super) fn check_complete(from: &Snapshot, to: &Tables<'_>) -> Result<(), Error> {
    let lengths = || {
        let from = [
            from.heads.len()?,
            from.chunks.len()?,
            from.states.len()?,
            from.system.len()?,
        ];
        let to = [to.heads.len()?, to.chunks.len()?, to.states.len()?, to.system.len()?];
        Ok((from, to))
    };
    let (from, to) = lengths().map_err(|error: redb::StorageError| failed(DOING)(error))?;
    match from == to {
        true => Ok(()),
        false => Err(given_up(&format!(
            "the copy has {to:?} rows in its tables where the store has {from:?}"
        ))),
    }
}
