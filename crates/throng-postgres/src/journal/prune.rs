//! Removing expired records from the table `commits`, a page of rows a transaction.
//!
//! Nodes of a cluster do so concurrently, even in the same streams, and a node may no longer own its shards when its statement is executed.
//! That does no harm: a pass judges records of its own shards alone, at positions that were covered when it owned them, by facts that were
//! durable then and stay true. An append adds rows and changes none, and two that change the same row do it one after the other, each from
//! the other's result.
//!
//! The row of the last commit without any record left stays, without records, and stands for all such commits. A row with some records left
//! keeps its length, so that no index changes: zeros replace removed records, and the room is given back when the rest is removed.

use super::{read::read_commits, size};
use crate::{columns::shards, database::Database, locks::ONE_AT_A_TIME};
use throng_journal::{Commit, CommitNo, Error, Position, Prune, PruneHow, Pruned, Rest};

const DOING: &str = "removing history";
/// The bytes of commits in one transaction.
const PAGE_BYTES: usize = 4 << 20;
const DELETE: &str = "DELETE FROM commits WHERE writer = $1 AND number >= $2 AND number < $3";
const UPDATE: &str = "UPDATE commits SET shards = $3, body = $4 WHERE writer = $1 AND number = $2";

/// Makes the room of removed rows free for new ones. Otherwise the tables would grow by everything removed until the server's own vacuum
/// runs. The end of a table is not truncated, since commits would have to wait for that.
const VACUUM: &str = "VACUUM (SKIP_LOCKED, TRUNCATE false, INDEX_CLEANUP on) commits, events, places";

/// Consecutive commits without any record left.
struct Run {
    first: CommitNo,
    last: Commit,
    replaced_by: Option<Position>,
}

/// The changes of a page's rows.
#[derive(Default)]
struct Page {
    /// The rows to be removed: the first, and the one after the last.
    removed: Vec<(CommitNo, CommitNo)>,
    written: Vec<Commit>,
    pruned: Pruned,
}

pub(super) async fn prune(database: &Database, prune: &Prune) -> Result<Pruned, Error> {
    let mut client = database.client(DOING).await?;
    let (mut at, mut pruned) = (prune.after, Pruned::default());
    while at.commit < prune.upto {
        let transaction = client.transaction().await.map_err(database.failed(DOING))?;
        transaction
            .batch_execute(ONE_AT_A_TIME)
            .await
            .map_err(database.failed(DOING))?;
        let mut commits = read_commits(database, &transaction, at, PAGE_BYTES).await?;
        commits.retain(|commit| commit.stamp().number <= prune.upto);
        let Some(last) = commits.last() else { break };
        let before = at;
        at = last.position();
        let page = Page::of(commits, prune);
        pruned.add(page.pruned);
        if prune.how == PruneHow::Dry {
            continue;
        }
        page.write((before, at.commit), &transaction)
            .await
            .map_err(database.failed(DOING))?;
        transaction.commit().await.map_err(database.failed(DOING))?;
    }
    if prune.how != PruneHow::Dry
        && pruned.records > 0
        && let Err(error) = client.batch_execute(VACUUM).await
    {
        tracing::warn!("the room of the history that was removed is not given back yet: {error}");
    }
    Ok(pruned)
}

impl Page {
    fn of(commits: Vec<Commit>, prune: &Prune) -> Self {
        let mut page = Self::default();
        let mut run: Option<Run> = None;
        for commit in commits {
            let (stamp, first) = (commit.stamp(), commit.first());
            (page.pruned.upto, page.pruned.at_micros) = (stamp.number, stamp.at_micros);
            let was_empty = commit.record_count() == 0;
            let mut records = 0;
            let rest = commit.without(prune.replaced_by, |record| {
                let is_over = (prune.judge)(record, stamp);
                records += u64::from(is_over);
                is_over
            });
            page.pruned.records += records;
            if rest == Rest::Nothing {
                page.pruned.commits += u64::from(!was_empty);
                page.pruned.bytes += commit.bytes().len() as u64;
                let replaced_by = prune.emptied_by(&commit, records);
                let before = run.take();
                run = Some(Run {
                    first: before.as_ref().map_or(first, |before| before.first),
                    replaced_by: replaced_by.max(before.and_then(|before| before.replaced_by)),
                    last: commit,
                });
                continue;
            }
            page.end(run.take());
            if let Rest::Part(part) = rest {
                page.written.push(part);
            }
        }
        page.end(run);
        page
    }

    /// Writes a single row for a whole run.
    fn end(&mut self, run: Option<Run>) {
        let Some(Run {
            first,
            last,
            replaced_by,
        }) = run
        else {
            return;
        };
        let number = last.stamp().number;
        let before = u32::try_from(number.0 - first.0).unwrap_or(u32::MAX);
        let is_the_same = last.record_count() == 0 && last.stands_for() == before;
        let one = last.emptied(before, replaced_by);
        self.pruned.bytes = self.pruned.bytes.saturating_sub(one.bytes().len() as u64);
        if is_the_same {
            return;
        }
        if first < number {
            self.removed.push((first, number));
        }
        self.written.push(one);
    }

    async fn write(
        self,
        part: (Position, CommitNo),
        transaction: &deadpool_postgres::Transaction<'_>,
    ) -> Result<(), tokio_postgres::Error> {
        if self.removed.is_empty() && self.written.is_empty() {
            return Ok(());
        }
        size::change(transaction, part, -1).await?;
        let writer = part.0.writer.0.cast_signed();
        let delete = transaction.prepare_cached(DELETE).await?;
        for (first, end) in self.removed {
            let (first, end) = (first.0.cast_signed(), end.0.cast_signed());
            transaction.execute(&delete, &[&writer, &first, &end]).await?;
        }
        let update = transaction.prepare_cached(UPDATE).await?;
        for mut commit in self.written {
            commit.seal(&[]);
            let number = commit.stamp().number.0.cast_signed();
            transaction
                .execute(&update, &[&writer, &number, &shards(&commit), &commit.bytes()])
                .await?;
        }
        size::change(transaction, part, 1).await
    }
}
