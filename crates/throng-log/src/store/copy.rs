//! Copying all rows into another file.

use super::{
    database::{BYTES, Snapshot, failed},
    rows::{Rows, Tables},
};
use redb::{Key, ReadOnlyTable, ReadableTable as _, Value};
use throng_journal::Error;

const DOING: &str = "copying the store";

/// Copies all rows; `copied` gets the bytes of each.
pub(super) fn copy_rows(
    from: &Snapshot,
    to: &mut Tables<'_>,
    copied: &mut dyn FnMut(usize) -> Result<(), Error>,
) -> Result<(), Error> {
    copy_table(&from.heads, &mut to.heads, copied)?;
    copy_table(&from.chunks, &mut to.chunks, copied)?;
    copy_table(&from.states, &mut to.states, copied)?;
    copy_table(&from.system, &mut to.system, copied)
}

/// Writes the totals of a copy's rows.
pub(super) fn write_numbers(of: &Snapshot, to: &mut Tables<'_>, bytes: u64) -> Result<(), Error> {
    let mut numbers = vec![("entities", of.entities), ("advances", of.advances), (BYTES, bytes)];
    if let Some(covers) = of.covers {
        numbers.push(("writer", covers.position.writer.0));
        numbers.push(("commit", covers.position.commit.0));
        numbers.push(("fingerprint", u64::from(covers.fingerprint)));
    }
    for (key, number) in numbers {
        to.meta.insert(key, number).map_err(failed(DOING))?;
    }
    Ok(())
}

fn copy_table<K: Key + 'static, V: Value + 'static>(
    from: &ReadOnlyTable<K, V>,
    to: &mut Rows<'_, K, V>,
    copied: &mut dyn FnMut(usize) -> Result<(), Error>,
) -> Result<(), Error> {
    for row in from.iter().map_err(failed(DOING))? {
        let (key, value) = row.map_err(failed(DOING))?;
        let (key, value) = (key.value(), value.value());
        let bytes = K::as_bytes(&key).as_ref().len() + V::as_bytes(&value).as_ref().len();
        to.insert(key, value)?;
        copied(bytes)?;
    }
    Ok(())
}
