//! Checking, copying and compacting the store's file.

use super::{
    EmbeddedStore,
    chunk::Unpacker,
    copy::{copy_rows, write_numbers},
    database::{Database, failed, guarded},
    loss, lost,
    read::check_state,
    rows::{Changes, Tables},
};
use crate::Log;
use std::path::Path;
use throng_journal::{Compacted, Error, Position};

fn open(log: &Log, path: &Path) -> Result<Database, Error> {
    Database::open(log, path)
}

/// Checks the checksums of every page and row, and that the store fits the log. Returns the covered position.
pub(crate) fn check(log: &Log, path: &Path) -> Result<Position, Error> {
    let doing = "checking the store";
    let mut database = open(log, path)?;
    let sound = guarded(doing, || database.redb.check_integrity().map_err(failed(doing)))?;
    if !sound {
        return Err(Error::backend(doing, "some of its pages could not be read"));
    }
    let snapshot = database.snapshot()?;
    if let Some(loss) = loss(log, snapshot.covers)? {
        return Err(lost(log, loss));
    }
    guarded(doing, || {
        for row in snapshot.states.range::<u64>(..).map_err(failed(doing))? {
            let (number, row) = row.map_err(failed(doing))?;
            if !check_state(row.value()) {
                let why = format!("the state of entity number {} has another checksum", number.value());
                return Err(Error::backend(doing, why));
            }
        }
        for head in snapshot.heads.range::<&[u8]>(..).map_err(failed(doing))? {
            let (key, head) = head.map_err(failed(doing))?;
            let (number, _) = head.value();
            let rows = snapshot.chunks.range((number, 0)..=(number, u64::MAX));
            for row in rows.map_err(failed(doing))? {
                let (at, row) = row.map_err(failed(doing))?;
                let of = (key.value(), at.value().1);
                let unpacked = Unpacker::open(row.value(), of).and_then(|mut unpacker| {
                    while unpacker.left() > 0 {
                        unpacker.next_entry()?;
                    }
                    Some(())
                });
                if unpacked.is_none() {
                    let why = format!("the index row {:?} cannot be read", at.value());
                    return Err(Error::backend(doing, why));
                }
            }
        }
        Ok(())
    })?;
    Ok(snapshot.covers.map(|covers| covers.position).unwrap_or_default())
}

/// Rewrites the file of an unused store without its free pages, in place.
pub(crate) fn compact(log: &Log, path: &Path) -> Result<Compacted, Error> {
    let doing = "compacting the store";
    let bytes = || {
        let file = log.options().files.open(path, false);
        file.and_then(|file| file.length())
            .map_err(Error::io(format!("reading {}", path.display())))
    };
    let store_bytes_before = bytes()?;
    let mut database = open(log, path)?;
    guarded(doing, || {
        // Each pass gives back what the one before has freed.
        while database.redb.compact().map_err(failed(doing))? {}
        Ok(())
    })?;
    drop(database);
    Ok(Compacted {
        store_bytes_before,
        store_bytes_after: bytes()?,
    })
}

impl EmbeddedStore {
    /// Writes all rows of the last completed advance into a new file.
    pub(crate) fn copy_to(&self, path: &Path) -> Result<(), Error> {
        let doing = "copying the store";
        let snapshot = self.inner.snapshot();
        let target = Database::open_with(self.inner.log.options(), None, path)?;
        guarded(doing, || {
            let changes = Changes::default();
            let transaction = target.begin()?;
            {
                let mut tables = Tables::open(&transaction, &changes)?;
                copy_rows(&snapshot, &mut tables, &mut |_| Ok(()))?;
                write_numbers(&snapshot, &mut tables, changes.applied_to(0))?;
            }
            transaction.commit().map_err(failed(doing))
        })
    }
}
