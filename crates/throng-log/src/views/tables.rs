//! The tables: offsets by the names of views, and one table of rows a view.

use crate::store::database::failed;
use redb::{ReadableTable as _, TableDefinition};
use throng_journal::{CommitNo, Error, Position, ViewOffset, WriterId};

/// View's name → offset (see [`encode_offset`]).
pub(super) const OFFSETS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("offsets");
/// The format of the file, in a single row: `version` → [`VERSION`].
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
/// The version of these tables. A file with another version is begun anew.
const VERSION: u64 = 1;

/// Returns the name of the table with a view's rows. Each view has its own, so that clearing it does not visit its rows.
pub(super) fn rows_name(view: &str) -> String {
    format!("rows/{view}")
}

pub(super) fn rows(name: &str) -> TableDefinition<'_, &'static [u8], &'static [u8]> {
    TableDefinition::new(name)
}

/// Creates missing tables; refuses those of another version.
pub(super) fn prepare(database: &redb::Database) -> Result<(), Error> {
    let doing = "creating the tables of the read models";
    let mut transaction = database.begin_write().map_err(failed(doing))?;
    transaction.set_quick_repair(true);
    {
        let mut meta = transaction.open_table(META).map_err(failed(doing))?;
        let found = meta
            .get("version")
            .map_err(failed(doing))?
            .map(|version| version.value());
        match found {
            Some(VERSION) => return Ok(()),
            Some(other) => {
                let why = format!("they have version {other}, this program reads {VERSION}");
                return Err(Error::backend(doing, why));
            }
            None => meta.insert("version", VERSION).map_err(failed(doing))?,
        };
        transaction.open_table(OFFSETS).map_err(failed(doing))?;
    }
    transaction.commit().map_err(failed(doing))
}

/// Writer (8), commit (8), checksum (4), version (4), little-endian.
pub(super) fn encode_offset(offset: ViewOffset) -> [u8; 24] {
    let mut row = [0; 24];
    row[..8].copy_from_slice(&offset.position.writer.0.to_le_bytes());
    row[8..16].copy_from_slice(&offset.position.commit.0.to_le_bytes());
    row[16..20].copy_from_slice(&offset.checksum.to_le_bytes());
    row[20..].copy_from_slice(&offset.version.to_le_bytes());
    row
}

pub(super) fn decode_offset(row: &[u8]) -> Result<ViewOffset, Error> {
    let parts = || {
        let (writer, rest) = row.split_first_chunk::<8>()?;
        let (commit, rest) = rest.split_first_chunk::<8>()?;
        let (checksum, rest) = rest.split_first_chunk::<4>()?;
        let version: &[u8; 4] = rest.try_into().ok()?;
        Some(ViewOffset {
            position: Position::new(
                WriterId(u64::from_le_bytes(*writer)),
                CommitNo(u64::from_le_bytes(*commit)),
            ),
            checksum: u32::from_le_bytes(*checksum),
            version: u32::from_le_bytes(*version),
        })
    };
    parts().ok_or_else(|| {
        let why = format!(
            "it has {} bytes, 24 were expected; clear the read model: it is rebuilt",
            row.len()
        );
        Error::backend("reading a read model's offset", why)
    })
}
