//! Applying a checkpoint in one transaction.

use super::{
    coverage::{Coverage, Maker},
    cut::cut,
    events::{self, Filling},
    index::Index,
    pacer::Pacer,
};
use crate::{
    columns::{position_of, set_of},
    database::Database,
    journal::read_commits,
    rollback::Contradiction,
    typed,
};
use deadpool_postgres::{Object, Transaction};
use std::collections::HashMap;
use throng_journal::{Checkpoint, Error, Position, ShardSet, WriterId};
use tokio_postgres::Row;

const DOING: &str = "making a checkpoint";
/// The part of reading commits in the time to fill the table `events` from them.
const READING: f64 = 0.2;
/// Selects the shards of an open writer. Checkpoints of a sealed one are refused, because its engine's states may be older than those that
/// the next owner of its shards has stored.
const OPEN: &str = "SELECT shards FROM writers WHERE writer = $1 AND sealed_at IS NULL";
/// Selects the ended streams before one, from one on.
const ENDED: &str =
    "SELECT writer, last, shards FROM writers WHERE writer >= $1 AND writer < $2 AND last IS NOT NULL ORDER BY writer";
const HELD: &str = "SELECT writer, shards FROM writers WHERE writer = ANY($1)";
const STILL_OPEN: &str = "SELECT FROM writers WHERE writer = $1 AND sealed_at IS NULL FOR SHARE";
const SET: &str = "INSERT INTO system (key, value) SELECT * FROM unnest($1::bytea[], $2::bytea[]) ON CONFLICT (key) DO UPDATE \
    SET value = excluded.value";
const REMOVE: &str = "DELETE FROM system WHERE key = ANY($1)";
/// A transaction of an engine that was taken over may hold the checkpoint's row until its session ends.
const PATIENCE: &str = "SET LOCAL lock_timeout TO '10s'";

pub(super) async fn advance(database: &Database, checkpoint: Checkpoint) -> Result<(), Error> {
    let mut client = database.client(DOING).await?;
    if database.options.events {
        events::catch_up(database, &mut client).await?;
    }
    let lacks = match make(database, &mut client, checkpoint).await {
        Ok(Err(lacks)) => lacks,
        Err(Error::NoCommit(at)) => Contradiction::missing(at),
        Ok(Ok(())) => return Ok(()),
        Err(error) => return Err(error),
    };
    Err(database.rolled_back(&mut client, lacks).await)
}

/// Makes the checkpoint, unless the server lacks what it has acknowledged.
async fn make(
    database: &Database,
    client: &mut Object,
    checkpoint: Checkpoint,
) -> Result<Result<(), Contradiction>, Error> {
    let failed = || database.failed(DOING);
    let pacer = Pacer::new(&checkpoint.pace);
    let sent = database.acknowledged.known();
    let transaction = client.transaction().await.map_err(failed())?;
    transaction.batch_execute(PATIENCE).await.map_err(failed())?;
    let upto = checkpoint.upto;
    let writer = upto.writer.0.cast_signed();
    if let Err(lacks) = database.compare(&*transaction, &sent).await.map_err(failed())? {
        return Ok(Err(lacks));
    }
    let row = transaction.query_opt(OPEN, &[&writer]).await.map_err(failed())?;
    let row = row.ok_or(Error::Sealed(upto.writer))?;
    let maker = match set_of(&row, 0) {
        None => Maker::Alone,
        Some(own) => {
            own.refuse_beyond(upto.writer, &checkpoint.shards)?;
            Maker::Node
        }
    };
    let coverage = Coverage::lock(database, &transaction, (maker, &checkpoint.shards), DOING).await?;
    let mut index = Index::default();
    let mut filling = database.options.events.then(Filling::default);
    // The approximate shares of the time; the table `events` takes most by far.
    let read = if filling.is_some() { 0.7 } else { 0.3 };
    let mut ends = checkpoint.sealed;
    if let Some(from) = coverage.missing_events().filter(|_| filling.is_some()) {
        ends = ended(database, &transaction, (&checkpoint.shards, from, upto)).await?;
    }
    ends.push(upto);
    let held = held(database, &transaction, &ends).await?;
    let streams: Vec<(Position, Position)> = ends
        .iter()
        .filter_map(|end| coverage.stretch(*end, held.get(&end.writer), filling.is_some()))
        .collect();
    let commits: u64 = streams.iter().map(|(from, to)| to.commit.0 - from.commit.0).sum();
    let mut done = 0;
    for (from, to) in streams {
        let share = |done: u64| done as f64 / commits.max(1) as f64;
        let begin = share(done);
        done += to.commit.0 - from.commit.0;
        let part = pacer.part(0.0, read).part(begin, share(done));
        stream(
            database,
            &transaction,
            (&coverage, &mut index, filling.as_mut()),
            &part,
            (from, to),
        )
        .await?;
    }
    let part = pacer.part(read, read + (1.0 - read) * 0.6);
    index.flush(database, &transaction, &part).await?;
    cut(database, &transaction, &index.missing.check()?).await?;
    let part = pacer.part(read + (1.0 - read) * 0.6, 1.0);
    index.states(database, &transaction, &part, &checkpoint.states).await?;
    cut(database, &transaction, &checkpoint.cuts).await?;
    system(database, &transaction, &checkpoint.system).await?;
    let has_filled = filling.is_some();
    coverage
        .set(database, &transaction, (maker, upto, has_filled), DOING)
        .await?;
    if transaction
        .query_opt(STILL_OPEN, &[&writer])
        .await
        .map_err(failed())?
        .is_none()
    {
        return Err(Error::Sealed(upto.writer));
    }
    transaction.commit().await.map_err(failed()).map(Ok)
}

/// Returns all ended streams that may hold records of these shards, from a writer's on.
async fn ended(
    database: &Database,
    transaction: &Transaction<'_>,
    (shards, from, upto): (&ShardSet, WriterId, Position),
) -> Result<Vec<Position>, Error> {
    let rows = transaction
        .query(ENDED, &[&from.0.cast_signed(), &upto.writer.0.cast_signed()])
        .await
        .map_err(database.failed(DOING))?;
    let may_hold = |row: &&Row| set_of(row, 2).is_none_or(|set| set.overlaps(shards));
    let ended = rows.iter().filter(may_hold);
    Ok(ended.filter_map(|row| position_of(row, 0, 1)).collect())
}

/// Returns the shards whose records each of these streams may hold, unless that is all.
async fn held(
    database: &Database,
    transaction: &Transaction<'_>,
    ends: &[Position],
) -> Result<HashMap<WriterId, ShardSet>, Error> {
    let writers: Vec<i64> = ends.iter().map(|end| end.writer.0.cast_signed()).collect();
    let rows = transaction
        .query_typed(HELD, &[typed::numbers(&writers)])
        .await
        .map_err(database.failed(DOING))?;
    let held = rows.iter().filter_map(|row| {
        let writer = WriterId(row.get::<_, i64>(0).cast_unsigned());
        Some((writer, set_of(row, 1)?))
    });
    Ok(held.collect())
}

async fn stream(
    database: &Database,
    transaction: &Transaction<'_>,
    (coverage, index, mut filling): (&Coverage, &mut Index, Option<&mut Filling>),
    pacer: &Pacer<'_>,
    (from, to): (Position, Position),
) -> Result<(), Error> {
    let (mut at, mut filled) = (from, from);
    let share = |at: Position| (at.commit.0 - from.commit.0) as f64 / (to.commit.0 - from.commit.0) as f64;
    // For commits whose events are still to be sent, only the reading is done.
    let of_filling = if filling.is_some() { READING } else { 1.0 };
    let done = |filled: Position, at: Position| share(filled) + of_filling * (share(at) - share(filled));
    while at.commit < to.commit {
        let commits = read_commits(database, transaction, at, pacer.batch_bytes()).await?;
        if commits.is_empty() {
            return Err(Error::NoCommit(Position::new(at.writer, at.commit.next())));
        }
        for commit in commits.into_iter().filter(|commit| commit.stamp().number <= to.commit) {
            at = commit.position();
            index.commit(&commit, coverage)?;
            if let Some(filling) = &mut filling {
                filling.push(commit);
            }
            // Loads share these threads.
            tokio::task::consume_budget().await;
        }
        if let Some(filling) = &mut filling
            && (filling.is_full() || at.commit >= to.commit)
        {
            let part = pacer.part(done(filled, at), share(at));
            filling.flush(database, transaction, Some(coverage), &part).await?;
            filled = at;
        }
        if index.is_full() {
            let part = pacer.part(done(filled, at), done(filled, at));
            index.flush(database, transaction, &part).await?;
        }
        pacer.keep(done(filled, at)).await;
    }
    Ok(())
}

async fn system(
    database: &Database,
    transaction: &Transaction<'_>,
    rows: &[(Vec<u8>, Option<Vec<u8>>)],
) -> Result<(), Error> {
    let failed = || database.failed(DOING);
    // Of several rows with one key the last counts.
    let last: HashMap<&[u8], Option<&[u8]>> = rows.iter().map(|(key, value)| (&**key, value.as_deref())).collect();
    let (mut keys, mut values, mut removed) = (Vec::new(), Vec::new(), Vec::new());
    for (key, value) in last {
        match value {
            Some(value) => {
                keys.push(key);
                values.push(value);
            }
            None => removed.push(key),
        }
    }
    if !keys.is_empty() {
        let statement = transaction.prepare_cached(SET).await.map_err(failed())?;
        transaction
            .execute(&statement, &[&keys, &values])
            .await
            .map_err(failed())?;
    }
    if !removed.is_empty() {
        let statement = transaction.prepare_cached(REMOVE).await.map_err(failed())?;
        transaction.execute(&statement, &[&removed]).await.map_err(failed())?;
    }
    Ok(())
}
