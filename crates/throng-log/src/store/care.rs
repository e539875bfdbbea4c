//! Checking, copying and compacting the store's file.

use super::{
    EmbeddedStore,
    chunk::Unpacker,
    database::{CHUNKS, Database, HEADS, META, STATES, SYSTEM, Snapshot, backend_error, failed, guarded},
    loss, lost,
    read::check_state,
};
use crate::Log;
use redb::{ReadOnlyTable, Table};
use std::path::Path;
use throng_journal::{Error, Position};

fn open(log: &Log, path: &Path) -> Result<Database, Error> {
    Database::open(log, path)
}

/// Checks every page's and every row's checksum, and that the store fits the log; what it covers.
pub(crate) fn check(log: &Log, path: &Path) -> Result<Position, Error> {
    let doing = "checking the store";
    let mut database = open(log, path)?;
    let sound = guarded(doing, || database.0.check_integrity().map_err(failed(doing)))?;
    if !sound {
        return Err(backend_error(doing, "some of its pages could not be read"));
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
                return Err(backend_error(doing, why));
            }
        }
        for row in snapshot.chunks.range::<(u64, u64)>(..).map_err(failed(doing))? {
            let (key, row) = row.map_err(failed(doing))?;
            let unpacked = Unpacker::new(row.value()).and_then(|mut unpacker| {
                while unpacker.left() > 0 {
                    unpacker.next_entry()?;
                }
                Some(())
            });
            if unpacked.is_none() {
                let why = format!("the index row {:?} cannot be read", key.value());
                return Err(backend_error(doing, why));
            }
        }
        Ok(())
    })?;
    Ok(snapshot.covers.map(|covers| covers.position).unwrap_or_default())
}

/// Rewrites the file without its free pages; its bytes before and after.
pub(crate) fn compact(log: &Log, path: &Path) -> Result<(u64, u64), Error> {
    let doing = "compacting the store";
    let bytes = || {
        let file = log.options().files.open(path, false);
        file.and_then(|file| file.length())
            .map_err(Error::io(format!("reading {}", path.display())))
    };
    let before = bytes()?;
    let mut database = open(log, path)?;
    guarded(doing, || {
        // Each pass gives back what the one before has freed.
        while database.0.compact().map_err(failed(doing))? {}
        Ok(())
    })?;
    drop(database);
    Ok((before, bytes()?))
}

impl EmbeddedStore {
    /// Writes all rows, as the last completed advance left them, into a new file.
    pub(crate) fn copy_to(&self, path: &Path) -> Result<(), Error> {
        let doing = "copying the store";
        let snapshot = self.inner.snapshot();
        let target = Database::open_with(self.inner.log.options(), None, path)?;
        guarded(doing, || {
            let transaction = target.begin()?;
            copy_table(
                &snapshot.heads,
                &mut transaction.open_table(HEADS).map_err(failed(doing))?,
            )?;
            copy_table(
                &snapshot.chunks,
                &mut transaction.open_table(CHUNKS).map_err(failed(doing))?,
            )?;
            copy_table(
                &snapshot.states,
                &mut transaction.open_table(STATES).map_err(failed(doing))?,
            )?;
            copy_table(
                &snapshot.system,
                &mut transaction.open_table(SYSTEM).map_err(failed(doing))?,
            )?;
            {
                let mut meta = transaction.open_table(META).map_err(failed(doing))?;
                for (key, number) in meta_rows(&snapshot) {
                    meta.insert(key, number).map_err(failed(doing))?;
                }
            }
            transaction.commit().map_err(failed(doing))
        })
    }
}

fn meta_rows(snapshot: &Snapshot) -> Vec<(&'static str, u64)> {
    let mut rows = vec![("entities", snapshot.entities), ("advances", snapshot.advances)];
    if let Some(covers) = snapshot.covers {
        rows.push(("writer", covers.position.writer.0));
        rows.push(("commit", covers.position.commit.0));
        rows.push(("fingerprint", u64::from(covers.fingerprint)));
    }
    rows
}

fn copy_table<K: redb::Key + 'static, V: redb::Value + 'static>(
    from: &ReadOnlyTable<K, V>,
    to: &mut Table<'_, K, V>,
) -> Result<(), Error> {
    use redb::ReadableTable as _;
    let doing = "copying the store";
    for row in from.iter().map_err(failed(doing))? {
        let (key, value) = row.map_err(failed(doing))?;
        to.insert(key.value(), value.value()).map_err(failed(doing))?;
    }
    Ok(())
}
