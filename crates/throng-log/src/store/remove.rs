//! Removing system rows, a bounded number at a time.

use super::{
    database::{self, BYTES, Database, META, Of, SYSTEM, failed},
    inner::Inner,
    rows::{Changes, Rows},
};
use redb::ReadableTable as _;
use std::ops::Bound;
use throng_journal::{Error, begin_of_rows};

const DOING: &str = "removing system rows";

impl Inner {
    pub(super) fn remove_prefix(&self, prefix: &[u8], after: &[u8], rows_max: usize) -> Result<Option<Vec<u8>>, Error> {
        let mut slot = self.database();
        let database = match slot.take() {
            Some(database) => database,
            None => Database::open(&self.log, &self.path)?,
        };
        // A database that failed is dropped. The next caller opens it again.
        let changes = Changes::noted_by(self.compaction());
        let removed = database::guarded(DOING, || remove_in(&database, &changes, (prefix, after), rows_max))
            .inspect_err(|_| self.reopening.set_due(true))?;
        if removed.is_some() {
            self.show(database.snapshot()?);
        }
        *slot = Some(database);
        Ok(removed)
    }
}

fn remove_in(
    database: &Database,
    changes: &Changes,
    (prefix, after): (&[u8], &[u8]),
    rows_max: usize,
) -> Result<Option<Vec<u8>>, Error> {
    let transaction = database.begin_volatile()?;
    let last = {
        let mut system = Rows::open(&transaction, SYSTEM, Of::System, changes)?;
        let last = last_of(&*system, prefix, after, rows_max)?;
        if let Some(last) = &last {
            let range = (begin_of_rows(prefix, after), Bound::Included(&**last));
            system.remove_in::<&[u8]>(range)?;
            let mut meta = transaction.open_table(META).map_err(failed(DOING))?;
            let noted = meta.get(BYTES).map_err(failed(DOING))?.map(|bytes| bytes.value());
            if let Some(bytes) = noted {
                meta.insert(BYTES, changes.applied_to(bytes)).map_err(failed(DOING))?;
            }
        }
        last
    };
    if last.is_none() {
        return Ok(None);
    }
    transaction.commit().map_err(failed(DOING))?;
    Ok(last)
}

/// The key of the last row to be removed.
fn last_of(
    system: &impl redb::ReadableTable<&'static [u8], &'static [u8]>,
    prefix: &[u8],
    after: &[u8],
    rows_max: usize,
) -> Result<Option<Vec<u8>>, Error> {
    let mut last = None;
    let range = (begin_of_rows(prefix, after), Bound::Unbounded);
    for row in system.range::<&[u8]>(range).map_err(failed(DOING))?.take(rows_max) {
        let (key, _) = row.map_err(failed(DOING))?;
        if !key.value().starts_with(prefix) {
            break;
        }
        last = Some(key);
    }
    Ok(last.map(|key| key.value().to_vec()))
}
