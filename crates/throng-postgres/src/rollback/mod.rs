//! Detects a server that no longer holds what it has acknowledged.
//!
//! A promoted standby, a backup or a snapshot in the server's place may lack the last commits; writers, owners, leases and beats are rolled
//! back with them. The server itself cannot tell, and its system identifier is the same. So each renewal, beat, checkpoint and seal asks
//! how far the own stream reaches there, and compares that with what was durable when it was sent.

mod acknowledged;

pub(crate) use acknowledged::{Acknowledged, Contradiction, Known, ServerAnswer, find};

use crate::{
    database::Database,
    locks::{LOCK_CLUSTER, PATIENCE},
    losses::accept_recorded,
    options::OnLoss,
    typed,
};
use futures_util::future::try_join3;
use std::sync::atomic::Ordering;
use throng_journal::{CommitNo, Error, Loss, Position, Witness, WriterId};
use tokio_postgres::{Client, GenericClient, Transaction};

const DOING: &str = "recording what the database has lost";
/// The most losses that are reported.
const LOSSES_MAX: usize = 16;
/// Ends of streams that are not reached.
const LOST: &str = "SELECT k.writer, k.commit, coalesce((SELECT max(c.number) FROM commits c WHERE c.writer = k.writer), 0) FROM \
    unnest($1::bigint[], $2::bigint[]) k(writer, commit) WHERE NOT EXISTS (SELECT FROM commits c WHERE c.writer = k.writer AND \
    c.number >= k.commit)";
const RECORD: &str =
    "INSERT INTO losses (writer, commit, held, timeline, session) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING";
const RECORD_COMMIT: &str = "INSERT INTO lost_commits (writer, number, at, entities, keys) VALUES ($1, $2, to_timestamp($3::float8 / 1000000), \
    $4, $5) ON CONFLICT DO NOTHING";
/// Selects the first eight digits of a file name of the write-ahead log. Some hosted servers do not tell.
const TIMELINE: &str = "SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8)";

impl Database {
    /// Compares the server's present state with what it has acknowledged.
    pub(crate) async fn compare(
        &self,
        client: &impl GenericClient,
        sent: &Known,
    ) -> Result<Result<(), Contradiction>, tokio_postgres::Error> {
        let found = find(client, sent).await?;
        Ok(sent.refuse(&found, &self.session))
    }

    /// Records the loss, and ends the writer. Returns the error for the caller that has found it.
    pub(crate) async fn rolled_back(&self, client: &mut Client, found: Contradiction) -> Error {
        let timeline = timeline(client).await;
        let (known, ended, before) = {
            let state = self.acknowledged.state();
            (state.known, state.ended.clone(), state.timeline.clone())
        };
        let lost = self.record(client, &known, &ended, &timeline).await;
        let lost = match lost {
            Ok(lost) => lost,
            // Found again by the next statement.
            Err(error) => return self.failed(DOING)(error),
        };
        let before = before.filter(|before| *before != timeline);
        let before = before.map(|before| format!(", before {before}")).unwrap_or_default();
        let why = format!("{}; timeline {timeline}{before}", found.why);
        for loss in &lost {
            tracing::error!(
                "acknowledged commits are lost in {}: {loss}; `throng journal loss` lists what was in them ({why})",
                self.options.place()
            );
        }
        let state = &mut *self.acknowledged.state();
        let room = LOSSES_MAX.saturating_sub(state.losses.len());
        state.losses.extend(lost.into_iter().take(room));
        state.rolled_back = Some(why.clone());
        self.acknowledged.over.store(known.own.writer.0, Ordering::Release);
        Error::RolledBack(why)
    }

    /// Records the loss, and returns the losses that were not recorded before.
    async fn record(
        &self,
        client: &mut Client,
        known: &Known,
        ended: &[Position],
        timeline: &str,
    ) -> Result<Vec<Loss>, tokio_postgres::Error> {
        let transaction = client.transaction().await?;
        let writers: Vec<i64> = ended.iter().map(|end| end.writer.0.cast_signed()).collect();
        let commits: Vec<i64> = ended.iter().map(|end| end.commit.0.cast_signed()).collect();
        let (_, _, rows) = try_join3(
            transaction.batch_execute(PATIENCE),
            transaction.execute_typed(LOCK_CLUSTER, &[]),
            transaction.query_typed(LOST, &[typed::numbers(&writers), typed::numbers(&commits)]),
        )
        .await?;
        let position = |writer: WriterId, commit: u64| Position::new(writer, CommitNo(commit));
        let loss = |covered: Position, held: u64| Loss {
            covered,
            held: position(covered.writer, held),
            witness: Witness::Engine,
        };
        let mut losses: Vec<Loss> = rows
            .iter()
            .map(|row| {
                let number = |index| row.get::<_, i64>(index).cast_unsigned();
                loss(position(WriterId(number(0)), number(1)), number(2))
            })
            .collect();
        let own = self.compare(&transaction, known).await?;
        if let Err(Contradiction { held: Some(held), .. }) = own {
            losses.push(loss(known.own, held));
        }
        let mut new = Vec::new();
        for loss in losses {
            if self.record_one(&transaction, &loss, timeline).await? {
                new.push(loss);
            }
        }
        if self.options.on_loss() == OnLoss::Continue {
            accept_recorded(self, &transaction, |_| true).await?;
        }
        transaction.commit().await?;
        Ok(new)
    }

    async fn record_one(
        &self,
        transaction: &Transaction<'_>,
        loss: &Loss,
        timeline: &str,
    ) -> Result<bool, tokio_postgres::Error> {
        let Loss { covered, held, .. } = *loss;
        let number = |number: u64| number.cast_signed();
        let (writer, commit, held_commit) = (
            number(covered.writer.0),
            number(covered.commit.0),
            number(held.commit.0),
        );
        let new = transaction
            .execute(RECORD, &[&writer, &commit, &held_commit, &timeline, &self.session])
            .await?;
        let lost = self.acknowledged.state().recent.between(held, covered);
        let statement = transaction.prepare(RECORD_COMMIT).await?;
        for lost in lost {
            let at = lost.at_micros as f64;
            transaction
                .execute(
                    &statement,
                    &[
                        &writer,
                        &number(lost.position.commit.0),
                        &at,
                        &lost.entities,
                        &lost.keys,
                    ],
                )
                .await?;
        }
        Ok(new == 1)
    }
}

/// Returns the timeline of the server; empty if it does not tell.
pub(crate) async fn timeline(client: &Client) -> String {
    let row = client.query_typed_opt(TIMELINE, &[]).await;
    row.ok()
        .flatten()
        .map_or_else(String::new, |row| row.get::<_, Option<String>>(0).unwrap_or_default())
}
