//! Making a checkpoint true: one transaction.

use super::{
    cut::cut,
    events::{self, Filling},
    index::Index,
    pacer::Pacer,
};
use crate::{database::Database, journal::read_commits};
use deadpool_postgres::Transaction;
use std::collections::HashMap;
use throng_journal::{Checkpoint, CommitNo, Error, Position};

const DOING: &str = "making a checkpoint";
const BEGIN: &str = "SELECT writer, commit, entities, events_writer, events_commit FROM checkpoint FOR UPDATE";
/// Of a writer that was taken over nothing more is taken: its engine's states may be behind what the next one has stored.
const END: &str = "WITH open AS (SELECT FROM writers WHERE writer = $1::bigint AND sealed_at IS NULL FOR SHARE) UPDATE checkpoint SET \
    writer = $1::bigint, commit = $2::bigint, entities = $3::bigint, events_writer = CASE WHEN $4::bool THEN $1::bigint ELSE events_writer END, events_commit = \
    CASE WHEN $4::bool THEN $2::bigint ELSE events_commit END, made_at = now() FROM open";
const SET: &str = "INSERT INTO system (key, value) SELECT * FROM unnest($1::bytea[], $2::bytea[]) ON CONFLICT (key) DO UPDATE \
    SET value = excluded.value";
const REMOVE: &str = "DELETE FROM system WHERE key = ANY($1)";
/// A transaction of an engine that was taken over may hold the checkpoint's row until its session ends.
const PATIENCE: &str = "SET LOCAL lock_timeout TO '10s'";

pub(super) async fn advance(database: &Database, checkpoint: Checkpoint) -> Result<(), Error> {
    let failed = || database.failed(DOING);
    let mut client = database.client(DOING).await?;
    if database.options.events {
        events::catch_up(database, &mut client).await?;
    }
    let pacer = Pacer::new(&checkpoint.pace);
    let transaction = client.transaction().await.map_err(failed())?;
    transaction.batch_execute(PATIENCE).await.map_err(failed())?;
    let row = transaction.query_one(BEGIN, &[]).await.map_err(failed())?;
    let covers = super::position_of(&row, 0, 1);
    let mut index = Index::new(row.get::<_, i64>(2).cast_unsigned());
    let mut filling = database.options.events.then(Filling::default);
    // About what each costs: the table `events` most by far.
    let read = if filling.is_some() { 0.7 } else { 0.3 };
    let streams = streams(covers, &checkpoint);
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
            (&mut index, filling.as_mut()),
            &part,
            (from, to),
        )
        .await?;
    }
    let part = pacer.part(read, read + (1.0 - read) * 0.6);
    index.flush(database, &transaction, &part).await?;
    let part = pacer.part(read + (1.0 - read) * 0.6, 1.0);
    index.states(database, &transaction, &part, &checkpoint.states).await?;
    cut(database, &transaction, &checkpoint.cuts).await?;
    system(database, &transaction, &checkpoint.system).await?;
    let upto = checkpoint.upto;
    let (writer, commit) = (upto.writer.0.cast_signed(), upto.commit.0.cast_signed());
    let statement = transaction.prepare_cached(END).await.map_err(failed())?;
    let done = transaction
        .execute(
            &statement,
            &[&writer, &commit, &index.entities.cast_signed(), &filling.is_some()],
        )
        .await
        .map_err(failed())?;
    if done != 1 {
        return Err(Error::Sealed(upto.writer));
    }
    transaction.commit().await.map_err(failed())
}

/// The parts of streams between what is covered and what is to be: from, exclusive, and to, inclusive.
fn streams(covers: Option<Position>, checkpoint: &Checkpoint) -> Vec<(Position, Position)> {
    let ends = checkpoint.sealed.iter().chain([&checkpoint.upto]);
    ends.filter(|end| covers.is_none_or(|covers| **end > covers))
        .map(|end| {
            let begin = Position {
                commit: CommitNo(0),
                ..*end
            };
            let from = covers.filter(|covers| covers.writer == end.writer);
            (from.unwrap_or(begin), *end)
        })
        .collect()
}

async fn stream(
    database: &Database,
    transaction: &Transaction<'_>,
    (index, mut filling): (&mut Index, Option<&mut Filling>),
    pacer: &Pacer<'_>,
    (from, to): (Position, Position),
) -> Result<(), Error> {
    let mut at = from;
    let share = |at: Position| (at.commit.0 - from.commit.0) as f64 / (to.commit.0 - from.commit.0) as f64;
    while at.commit < to.commit {
        let commits = read_commits(database, transaction, at, pacer.batch_bytes()).await?;
        if commits.is_empty() {
            return Err(Error::NoCommit(Position {
                commit: at.commit.next(),
                ..at
            }));
        }
        for commit in commits.into_iter().filter(|commit| commit.stamp().number <= to.commit) {
            at = commit.position();
            index.commit(&commit)?;
            if let Some(filling) = &mut filling {
                filling.push(commit);
            }
            // Loads share these threads.
            tokio::task::consume_budget().await;
        }
        if let Some(filling) = &mut filling {
            filling.flush(database, transaction).await?;
        }
        if index.is_full() {
            index
                .flush(database, transaction, &pacer.part(share(at), share(at)))
                .await?;
        }
        pacer.keep(share(at)).await;
    }
    Ok(())
}

async fn system(
    database: &Database,
    transaction: &Transaction<'_>,
    rows: &[(Vec<u8>, Option<Vec<u8>>)],
) -> Result<(), Error> {
    let failed = || database.failed(DOING);
    // Of several of one key the last counts.
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
