//! Entities and their events.

use super::places::{self, Entry};
use crate::{
    database::Database,
    journal::{damaged, read_bodies},
};
use deadpool_postgres::Object;
use throng_journal::{Address, Error, Loaded, Place, Position, ShardId, StoredEvent, StoredState, WriterId};
use tokio_postgres::Row;

const DOING: &str = "loading an entity";
/// Rows of places read at once.
const ROWS: i64 = 64;

const LOAD: &str = "SELECT e.entity, e.seq, s.seq, s.version, s.shard, s.state FROM entities e LEFT JOIN states s USING (entity) \
    WHERE e.kind = $1 AND e.id = $2";
const HEAD: &str = "SELECT entity, seq FROM entities WHERE kind = $1 AND id = $2";
const PLACES: &str = "SELECT last, writer, places FROM places WHERE entity = $1 AND last > $2 ORDER BY last LIMIT $3";

async fn ask(
    database: &Database,
    client: &Object,
    statement: &str,
    parameters: &[&(dyn tokio_postgres::types::ToSql + Sync)],
) -> Result<Vec<Row>, Error> {
    let statement = client.prepare_cached(statement).await.map_err(database.failed(DOING))?;
    client
        .query(&statement, parameters)
        .await
        .map_err(database.failed(DOING))
}

pub(super) async fn load(database: &Database, address: &Address, state_version: u16) -> Result<Loaded, Error> {
    match try_load(database, address, state_version).await {
        Err(error) if may_be_gone(&error) => try_load(database, address, state_version).await,
        loaded => loaded,
    }
}

/// True for an error that a removal explains: the event may have been removed between the look at the index and the read, and is no longer
/// in the index.
fn may_be_gone(error: &Error) -> bool {
    matches!(error, Error::Row { .. } | Error::Damaged { .. } | Error::NoCommit(_))
}

async fn try_load(database: &Database, address: &Address, state_version: u16) -> Result<Loaded, Error> {
    let client = database.client(DOING).await?;
    let rows = ask(database, &client, LOAD, &[&&*address.kind, &address.id.as_bytes()]).await?;
    let Some(row) = rows.first() else {
        return Ok(Loaded::default());
    };
    let head = (row.get(0), row.get::<_, i64>(1).cast_unsigned());
    let state = row.get::<_, Option<i32>>(3).map(|version| StoredState {
        address: address.clone(),
        shard: ShardId(u16::try_from(row.get::<_, i32>(4)).unwrap_or_default()),
        seq: row.get::<_, i64>(2).cast_unsigned(),
        version: u16::try_from(version).unwrap_or_default(),
        bytes: row.get(5),
    });
    let state = match state {
        // A state of another version is used only if there is no other way to load the entity.
        Some(state) if state.version != state_version => {
            let first = events(database, &client, (address, head), 0, (1, usize::MAX)).await?;
            let is_whole = head.1 == 0 || first.first().is_some_and(|first| first.seq == 1);
            (!is_whole).then_some(state)
        }
        state => state,
    };
    let after = state.as_ref().map_or(0, |state| state.seq);
    let events = events(database, &client, (address, head), after, (usize::MAX, usize::MAX)).await?;
    if events.last().map_or(after, |last| last.seq) < head.1 {
        return Err(unreadable(address));
    }
    Ok(Loaded { state, events })
}

pub(super) async fn history(
    database: &Database,
    address: &Address,
    after: u64,
    limit: usize,
    bytes_max: usize,
) -> Result<Vec<StoredEvent>, Error> {
    match try_history(database, address, after, (limit, bytes_max)).await {
        Err(error) if may_be_gone(&error) => try_history(database, address, after, (limit, bytes_max)).await,
        found => found,
    }
}

async fn try_history(
    database: &Database,
    address: &Address,
    after: u64,
    most: (usize, usize),
) -> Result<Vec<StoredEvent>, Error> {
    let client = database.client(DOING).await?;
    let rows = ask(database, &client, HEAD, &[&&*address.kind, &address.id.as_bytes()]).await?;
    let Some(row) = rows.first() else {
        return Ok(Vec::new());
    };
    let head = (row.get(0), row.get::<_, i64>(1).cast_unsigned());
    events(database, &client, (address, head), after, most).await
}

/// Returns an entity's events after a sequence number, up to its last one at the checkpoint.
async fn events(
    database: &Database,
    client: &Object,
    (address, (entity, seq)): (&Address, (i64, u64)),
    after: u64,
    (limit, bytes_max): (usize, usize),
) -> Result<Vec<StoredEvent>, Error> {
    let mut found: Vec<StoredEvent> = Vec::new();
    let (mut due, mut bytes, mut whole) = (after + 1, 0usize, false);
    while due <= seq && found.len() < limit && !whole {
        let rows = ask(database, client, PLACES, &[&entity, &(due - 1).cast_signed(), &ROWS]).await?;
        let mut before = due;
        let mut wanted: Vec<(WriterId, Entry)> = Vec::new();
        'rows: for row in &rows {
            let writer = WriterId(row.get::<_, i64>(1).cast_unsigned());
            let last = row.get::<_, i64>(0).cast_unsigned();
            let entries = places::unpack(row.get(2)).ok_or_else(|| unreadable(address))?;
            let first = (last + 1)
                .checked_sub(entries.len() as u64)
                .ok_or_else(|| unreadable(address))?;
            for (number, entry) in (first..).zip(entries) {
                if number < due {
                    continue;
                }
                // Earlier events than the first one left were removed.
                if found.is_empty() && wanted.is_empty() {
                    (due, before) = (number, number);
                }
                if number != due {
                    return Err(unreadable(address));
                }
                bytes = bytes.saturating_add(entry.length as usize);
                let count = found.len() + wanted.len();
                if count == limit || number > seq || (bytes > bytes_max && count > 0) {
                    whole = true;
                    break 'rows;
                }
                wanted.push((writer, entry));
                due += 1;
            }
        }
        if due == before && !whole {
            if found.is_empty() {
                return Ok(found);
            }
            return Err(unreadable(address));
        }
        bodies(database, client, &wanted, before, &mut found).await?;
    }
    Ok(found)
}

/// Adds events to those found, the first of them with this number.
async fn bodies(
    database: &Database,
    client: &Object,
    wanted: &[(WriterId, Entry)],
    first: u64,
    found: &mut Vec<StoredEvent>,
) -> Result<(), Error> {
    let place = |(writer, entry): &(WriterId, Entry)| Place {
        position: Position::new(*writer, entry.commit),
        offset: entry.offset,
        len: entry.length,
    };
    let places: Vec<Place> = wanted.iter().map(place).collect();
    let payloads = read_bodies(database, client, &places).await?;
    for (seq, ((place, (_, entry)), payload)) in (first..).zip(places.iter().zip(wanted).zip(payloads)) {
        let position = place.position;
        let payload = payload.ok_or(Error::NoCommit(position))?;
        let crc = crc32c::crc32c(&payload);
        if crc != entry.crc {
            let why = format!("an event's checksum is {crc:08x} where {:08x} was expected", entry.crc);
            return Err(damaged(position, why));
        }
        found.push(StoredEvent {
            seq,
            position,
            at_micros: entry.at_micros,
            name: entry.name.clone(),
            version: entry.version,
            payload,
        });
    }
    Ok(())
}

fn unreadable(address: &Address) -> Error {
    Error::Row {
        address: address.clone(),
        why: "the index of its events (table places) cannot be read; it can be rebuilt: see `docs/postgresql.md`"
            .into(),
    }
}
