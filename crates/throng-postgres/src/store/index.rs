//! Places of events gathered by entity, so that the tables are written in few statements and in the order of their keys.

use super::{coverage::Coverage, pacer::Pacer, places::pack};
use crate::{
    copy::{self, CopyRows},
    database::Database,
};
use deadpool_postgres::Transaction;
use std::collections::HashMap;
use throng_journal::{Address, Commit, Error, MissingEvents, Position, RecordKind, StoredState, WriterId};

const DOING: &str = "making a checkpoint";
/// The most bytes gathered in memory before they are written to the transaction.
const GATHERED_BYTES_MAX: usize = 64 << 20;
/// The bytes counted for an entity's entry besides its packed places.
const ENTITY_BYTES: usize = 200;
/// The entities that are looked up, or written, with one statement.
const ENTITIES: usize = 512;
/// The bytes of states written with one statement.
const STATES_BYTES: usize = 256 << 10;

const NUMBERS: &str = "SELECT nextval('entity_numbers') FROM generate_series(1, $1::bigint)";
const FIND: &str = "SELECT u.n, e.entity, e.seq FROM unnest($1::text[], $2::bytea[]) WITH ORDINALITY u(kind, id, n) CROSS \
    JOIN LATERAL (SELECT entity, seq FROM entities WHERE kind = u.kind COLLATE \"C\" AND id = u.id LIMIT 1) e";
const ADD: &str = "COPY entities (entity, kind, id, seq) FROM STDIN (FORMAT binary)";
const MOVE: &str = "UPDATE entities e SET seq = u.seq FROM unnest($1::bigint[], $2::bigint[]) u(entity, seq) WHERE e.entity = \
    u.entity";
const PLACES: &str = "COPY places (entity, last, writer, places) FROM STDIN (FORMAT binary)";
const STATES: &str = "INSERT INTO states (entity, seq, version, shard, state) SELECT * FROM unnest($1::bigint[], \
    $2::bigint[], $3::int[], $4::int[], $5::bytea[]) ON CONFLICT (entity) DO UPDATE SET seq = excluded.seq, version = \
    excluded.version, shard = excluded.shard, state = excluded.state";

/// The gathered events of an entity.
struct Gathered {
    /// The sequence numbers of the first event gathered and of the last.
    first: u64,
    seq: u64,
    /// The position of the first one.
    at: Position,
    /// A row for each writer: its last event's number, and its places.
    rows: Vec<(u64, WriterId, Vec<u8>)>,
    /// The newest state that the commits themselves hold.
    state: Option<StoredState>,
    /// Its last event when it ended last; 0: it did not.
    ended: u64,
}

/// An entity's number in the table, and its last event there.
type Head = (u64, u64);

#[derive(Default)]
pub(super) struct Index {
    gathered: HashMap<Box<[u8]>, Gathered>,
    bytes: usize,
    key: Vec<u8>,
    pub(super) missing: MissingEvents,
}

/// The kind has no 0 in it.
fn set_key(key: &mut Vec<u8>, kind: &str, id: &str) {
    key.clear();
    key.extend_from_slice(kind.as_bytes());
    key.push(0);
    key.extend_from_slice(id.as_bytes());
}

fn parts(key: &[u8]) -> (&str, &[u8]) {
    let at = key.iter().position(|byte| *byte == 0).unwrap_or(key.len());
    let kind = std::str::from_utf8(&key[..at]).unwrap_or_default();
    (kind, key.get(at + 1..).unwrap_or_default())
}

impl Index {
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= GATHERED_BYTES_MAX
    }

    /// Gathers what is not covered of a commit.
    pub(super) fn commit(&mut self, commit: &Commit, coverage: &Coverage) -> Result<(), Error> {
        let stamp = commit.stamp();
        for record in commit.records() {
            let record = record.map_err(|damage| crate::journal::damaged(stamp.position(), damage.to_string()))?;
            let is_end = record.record == RecordKind::Ended;
            let is_of_history = is_end || matches!(record.record, RecordKind::Event | RecordKind::State);
            if !is_of_history || !coverage.wants(&record, stamp.position()).0 {
                continue;
            }
            set_key(&mut self.key, record.kind, record.id);
            if is_end {
                self.missing.founded(&record);
                let entity = self.gathered.get_mut(&*self.key);
                if let Some(entity) = entity.filter(|entity| entity.seq < record.seq) {
                    (entity.seq, entity.ended) = (record.seq, record.seq);
                    self.missing.gone(&record);
                }
                continue;
            }
            if !self.gathered.contains_key(&*self.key) {
                self.bytes += ENTITY_BYTES + self.key.len();
                let entry = Gathered {
                    first: record.seq,
                    seq: record.seq.wrapping_sub(1),
                    at: stamp.position(),
                    rows: Vec::new(),
                    state: None,
                    ended: 0,
                };
                self.gathered.insert(self.key.as_slice().into(), entry);
            }
            let Some(entity) = self.gathered.get_mut(&*self.key) else {
                continue;
            };
            if record.record == RecordKind::State {
                entity.seq = entity.seq.max(record.seq);
                self.bytes += record.body.len();
                entity.state = Some(StoredState::of_record(&record));
                self.missing.founded(&record);
                continue;
            }
            if entity.rows.is_empty() && entity.state.is_none() {
                entity.first = record.seq;
                entity.seq = record.seq.wrapping_sub(1);
            }
            let is_anew = entity.ended > 0 && record.seq == entity.ended + 1;
            let is_next = !is_anew && record.seq == entity.seq.wrapping_add(1);
            if !is_next && !is_anew {
                let of = Address::new(record.kind, record.id);
                self.missing.note(of, (record.seq, entity.seq), stamp.position());
            }
            if !is_next || entity.rows.last().is_none_or(|(_, writer, _)| *writer != stamp.writer) {
                entity.rows.push((record.seq, stamp.writer, Vec::new()));
            }
            if let Some((last, _, row)) = entity.rows.last_mut() {
                let before = row.len();
                pack(row, &record, stamp.at_micros);
                *last = record.seq;
                self.bytes += row.len() - before;
            }
            entity.seq = record.seq;
        }
        Ok(())
    }

    /// Writes what was gathered.
    pub(super) async fn flush(
        &mut self,
        database: &Database,
        transaction: &Transaction<'_>,
        pacer: &Pacer<'_>,
    ) -> Result<(), Error> {
        let mut gathered: Vec<(Box<[u8]>, Gathered)> = self.gathered.drain().collect();
        self.bytes = 0;
        gathered.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        let mut rows = Vec::with_capacity(gathered.len());
        let share = |count: usize| count as f64 / gathered.len().max(1) as f64;
        for part in gathered.chunks(ENTITIES) {
            let heads = find(database, transaction, part.iter().map(|(key, _)| &**key)).await?;
            let mut fresh = numbers(database, transaction, &heads).await?;
            for ((key, entity), head) in part.iter().zip(heads) {
                let before = head.map_or(0, |(_, seq)| seq);
                // Earlier events than the first one left were removed, and a state replaces them.
                if entity.first != before + 1 && before > 0 && entity.state.is_none() {
                    let (kind, id) = parts(key);
                    let of = Address::new(kind, String::from_utf8_lossy(id));
                    self.missing.note(of, (entity.first, before), entity.at);
                }
                let number = head.map_or_else(|| fresh.next().unwrap_or_default(), |(number, _)| number);
                rows.push((number, head.is_none().then_some(&**key), entity));
            }
            pacer.keep(share(rows.len()) / 2.0).await;
        }
        rows.sort_unstable_by_key(|(number, ..)| *number);
        let mut written = 0;
        for part in rows.chunks(ENTITIES) {
            write(database, transaction, part).await?;
            write_states(database, transaction, part).await?;
            written += part.len();
            pacer.keep(0.5 + share(written) / 2.0).await;
        }
        Ok(())
    }

    /// Stores states; of entities without events indexed so far too.
    pub(super) async fn states(
        &self,
        database: &Database,
        transaction: &Transaction<'_>,
        pacer: &Pacer<'_>,
        states: &[StoredState],
    ) -> Result<(), Error> {
        // Of several states of one entity the last counts, and one statement may not touch a row twice.
        let last: HashMap<&Address, &StoredState> = states.iter().map(|state| (&state.address, state)).collect();
        let mut states: Vec<&StoredState> = last.into_values().collect();
        states.sort_unstable_by(|one, other| one.address.cmp(&other.address));
        let mut rest = &states[..];
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = rest.iter().take_while(|state| {
                let first = bytes == 0;
                bytes += state.bytes.len() + ENTITY_BYTES;
                first || bytes <= STATES_BYTES
            });
            let (part, others) = rest.split_at(fits.count());
            self.put(database, transaction, part).await?;
            rest = others;
            pacer.keep(1.0 - rest.len() as f64 / states.len() as f64).await;
        }
        Ok(())
    }

    async fn put(
        &self,
        database: &Database,
        transaction: &Transaction<'_>,
        states: &[&StoredState],
    ) -> Result<(), Error> {
        let failed = || database.failed(DOING);
        let keys: Vec<Vec<u8>> = states
            .iter()
            .map(|state| {
                let mut key = Vec::new();
                set_key(&mut key, &state.address.kind, &state.address.id);
                key
            })
            .collect();
        let heads = find(database, transaction, keys.iter().map(Vec::as_slice)).await?;
        let mut added = CopyRows::new(4);
        let mut fresh = numbers(database, transaction, &heads).await?;
        let mut numbers = Vec::with_capacity(states.len());
        for (head, key) in heads.into_iter().zip(&keys) {
            let number = match head {
                Some((number, _)) => number,
                None => {
                    let number = fresh.next().unwrap_or_default();
                    let (kind, id) = parts(key);
                    added.row().bigint(number).text(kind).value(id).bigint(0);
                    number
                }
            };
            numbers.push(number.cast_signed());
        }
        if !added.is_empty() {
            send(database, transaction, ADD, added).await?;
        }
        let seqs: Vec<i64> = states.iter().map(|state| state.seq.cast_signed()).collect();
        let versions: Vec<i32> = states.iter().map(|state| i32::from(state.version)).collect();
        let shards: Vec<i32> = states.iter().map(|state| i32::from(state.shard.0)).collect();
        let bytes: Vec<&[u8]> = states.iter().map(|state| &*state.bytes).collect();
        let statement = transaction.prepare_cached(STATES).await.map_err(failed())?;
        transaction
            .execute(&statement, &[&numbers, &seqs, &versions, &shards, &bytes])
            .await
            .map(drop)
            .map_err(failed())
    }
}

/// Writes entities' rows: their numbers, the keys of new ones, and what was gathered of them.
async fn write(
    database: &Database,
    transaction: &Transaction<'_>,
    rows: &[(u64, Option<&[u8]>, &Gathered)],
) -> Result<(), Error> {
    let (mut moved, mut seqs) = (Vec::new(), Vec::new());
    let (mut added, mut places) = (CopyRows::new(4), CopyRows::new(4));
    for (number, key, entity) in rows {
        match key {
            Some(key) => {
                let (kind, id) = parts(key);
                added.row().bigint(*number).text(kind).value(id).bigint(entity.seq);
            }
            None => {
                moved.push(number.cast_signed());
                seqs.push(entity.seq.cast_signed());
            }
        }
        for (last, writer, row) in &entity.rows {
            places.row().bigint(*number).bigint(*last).bigint(writer.0).value(row);
        }
    }
    if !added.is_empty() {
        send(database, transaction, ADD, added).await?;
    }
    if !moved.is_empty() {
        let failed = || database.failed(DOING);
        let statement = transaction.prepare_cached(MOVE).await.map_err(failed())?;
        transaction
            .execute(&statement, &[&moved, &seqs])
            .await
            .map_err(failed())?;
    }
    send(database, transaction, PLACES, places).await
}

/// Writes the states in the commits themselves, unless newer ones are stored.
async fn write_states(
    database: &Database,
    transaction: &Transaction<'_>,
    rows: &[(u64, Option<&[u8]>, &Gathered)],
) -> Result<(), Error> {
    let of = rows
        .iter()
        .filter_map(|(number, _, entity)| Some((number, entity.state.as_ref()?)));
    let (numbers, states): (Vec<i64>, Vec<&StoredState>) =
        of.map(|(number, state)| (number.cast_signed(), state)).unzip();
    if numbers.is_empty() {
        return Ok(());
    }
    let seqs: Vec<i64> = states.iter().map(|state| state.seq.cast_signed()).collect();
    let versions: Vec<i32> = states.iter().map(|state| i32::from(state.version)).collect();
    let shards: Vec<i32> = states.iter().map(|state| i32::from(state.shard.0)).collect();
    let bytes: Vec<&[u8]> = states.iter().map(|state| &*state.bytes).collect();
    let failed = || database.failed(DOING);
    let newer = format!("{STATES} WHERE states.seq < excluded.seq");
    let statement = transaction.prepare_cached(&newer).await.map_err(failed())?;
    transaction
        .execute(&statement, &[&numbers, &seqs, &versions, &shards, &bytes])
        .await
        .map(drop)
        .map_err(failed())
}

async fn send(
    database: &Database,
    transaction: &Transaction<'_>,
    statement: &str,
    rows: CopyRows,
) -> Result<(), Error> {
    let sink = transaction.copy_in(statement).await.map_err(database.failed(DOING))?;
    copy::send(sink, rows.finish()).await.map_err(database.failed(DOING))
}

/// Reserves numbers for entities without one. Those of a failed checkpoint are not used.
async fn numbers(
    database: &Database,
    transaction: &Transaction<'_>,
    heads: &[Option<Head>],
) -> Result<impl Iterator<Item = u64> + use<>, Error> {
    let count = heads.iter().filter(|head| head.is_none()).count() as i64;
    let mut numbers = Vec::new();
    if count > 0 {
        let failed = || database.failed(DOING);
        let statement = transaction.prepare_cached(NUMBERS).await.map_err(failed())?;
        let rows = transaction.query(&statement, &[&count]).await.map_err(failed())?;
        numbers = rows.iter().map(|row| row.get::<_, i64>(0).cast_unsigned()).collect();
    }
    Ok(numbers.into_iter())
}

/// Reads the entities' rows, in the requested order.
async fn find<'a>(
    database: &Database,
    transaction: &Transaction<'_>,
    keys: impl Iterator<Item = &'a [u8]>,
) -> Result<Vec<Option<Head>>, Error> {
    let (kinds, ids): (Vec<&str>, Vec<&[u8]>) = keys.map(parts).unzip();
    let mut heads = vec![None; kinds.len()];
    let statement = transaction.prepare_cached(FIND).await.map_err(database.failed(DOING))?;
    let rows = transaction
        .query(&statement, &[&kinds, &ids])
        .await
        .map_err(database.failed(DOING))?;
    for row in rows {
        let [number, entity, seq] = [0, 1, 2].map(|index| row.get::<_, i64>(index).cast_unsigned());
        let index = usize::try_from(number - 1).unwrap_or(usize::MAX);
        if let Some(head) = heads.get_mut(index) {
            *head = Some((entity, seq));
        }
    }
    Ok(heads)
}
