//! Removing the beginnings of histories from the index, and all rows of removed entities.

use super::{
    chunk::{self, Packer, Unpacker},
    database::{failed, head_key},
    read::seq_of_state,
    rows::Tables,
};
use redb::ReadableTable as _;
use throng_journal::{Cut, Error};

const DOING: &str = "removing history";

pub(super) fn cut(tables: &mut Tables<'_>, cut: &Cut) -> Result<(), Error> {
    let mut key = Vec::new();
    head_key(&mut key, &cut.address.kind, &cut.address.id);
    let head = tables.heads.get(&*key).map_err(failed(DOING))?.map(|head| head.value());
    let Some((number, last)) = head else { return Ok(()) };
    // The first row with an event after the cut, if there is one.
    let upto = cut.upto.saturating_add(1);
    let straddling = match tables
        .chunks
        .range((number, upto)..=(number, u64::MAX))
        .map_err(failed(DOING))?
        .next()
    {
        Some(row) => {
            let (at, packed) = row.map_err(failed(DOING))?;
            let of = (&*key, at.value().1);
            Some((at.value(), without_first(packed.value(), of, cut.upto)?))
        }
        _ => None,
    };
    if let Some((at, Some(rest))) = straddling {
        tables.chunks.insert(at, &*rest)?;
    }
    tables.chunks.remove_in((number, 0)..=(number, cut.upto))?;
    if !cut.is_gone {
        return Ok(());
    }
    let row = tables.states.get(number).map_err(failed(DOING))?;
    let state = row.map(|row| seq_of_state(row.value()));
    // A newer state belongs to the entity that was created anew.
    if state.is_some_and(|seq| seq > cut.upto) {
        return Ok(());
    }
    tables.states.remove(number)?;
    if last <= cut.upto {
        tables.heads.remove(&*key)?;
    }
    Ok(())
}

/// Returns a row without its events up to a number; `None` if it begins after that.
fn without_first(packed: &[u8], of: (&[u8], u64), upto: u64) -> Result<Option<Vec<u8>>, Error> {
    let unreadable = || Error::backend(DOING, "the index of an entity's events cannot be read");
    let mut unpacker = Unpacker::open(packed, of).ok_or_else(unreadable)?;
    let mut seq = (of.1 + 1).checked_sub(unpacker.left()).ok_or_else(unreadable)?;
    if seq > upto {
        return Ok(None);
    }
    let mut packer = Packer::default();
    while unpacker.left() > 0 {
        let entry = unpacker.next_entry().ok_or_else(unreadable)?;
        if seq > upto {
            packer.push(entry.told());
        }
        seq += 1;
    }
    let mut rest = packer.finish();
    chunk::seal(&mut rest, of);
    Ok(Some(rest))
}
