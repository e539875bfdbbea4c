//! The table `events`, for people: filled behind, at a checkpoint.

use super::coverage::Coverage;
use crate::{
    copy::{self, CopyRows},
    database::Database,
    journal::read_commits,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use deadpool_postgres::{Object, Transaction};
use serde::de::IgnoredAny;
use serde_json::Value;
use throng_journal::{Commit, CommitNo, Error, Position, RecordKind, WriterId};

const COPY: &str = "COPY events (kind, id, seq, shard, writer, commit, type, version, payload, metadata, recorded_at) FROM \
    STDIN (FORMAT binary)";
const COLUMNS: i16 = 11;
const DOING: &str = "filling the table events";
/// Bytes of commits read, and of rows sent, at once, while the table catches up.
const BATCH_BYTES: usize = 8 << 20;

/// Which payloads are taken for JSON that PostgreSQL takes too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trust {
    /// What is JSON.
    Syntax,
    /// JSON without the character 0, half a surrogate pair, or a number beyond all measure.
    Values,
    /// None: `jsonb` refused one all the same.
    Nothing,
}

/// Commits whose events are to be sent together.
#[derive(Default)]
pub(super) struct Filling(Vec<Commit>);

impl Filling {
    pub(super) fn push(&mut self, commit: Commit) {
        self.0.push(commit);
    }

    /// Sends them, or what is wanted of them. What `jsonb` does not take stands as `base64` in the column `metadata`; it never fails a checkpoint.
    pub(super) async fn flush(
        &mut self,
        database: &Database,
        transaction: &Transaction<'_>,
        wanted: Option<&Coverage>,
    ) -> Result<(), Error> {
        let commits = std::mem::take(&mut self.0);
        for trust in [Trust::Syntax, Trust::Values, Trust::Nothing] {
            let rows = rows(&commits, wanted, trust)?;
            if rows.is_empty() {
                return Ok(());
            }
            transaction
                .batch_execute("SAVEPOINT events")
                .await
                .map_err(database.failed(DOING))?;
            let sink = transaction.copy_in(COPY).await.map_err(database.failed(DOING))?;
            match copy::send(sink, rows.finish()).await {
                Ok(()) => {
                    return transaction
                        .batch_execute("RELEASE events")
                        .await
                        .map_err(database.failed(DOING));
                }
                Err(error) if trust != Trust::Nothing && is_about_values(&error) => {
                    tracing::debug!("some payloads are no jsonb: {error}");
                    transaction
                        .batch_execute("ROLLBACK TO events")
                        .await
                        .map_err(database.failed(DOING))?;
                }
                Err(error) => return Err(database.failed(DOING)(error)),
            }
        }
        Ok(())
    }
}

/// A data exception, or a limit of the server's program: another row would go.
fn is_about_values(error: &tokio_postgres::Error) -> bool {
    error
        .code()
        .is_some_and(|code| code.code().starts_with("22") || code.code().starts_with("54"))
}

fn rows(commits: &[Commit], wanted: Option<&Coverage>, trust: Trust) -> Result<CopyRows, Error> {
    let mut rows = CopyRows::new(COLUMNS);
    for commit in commits {
        let stamp = commit.stamp();
        for record in commit.records() {
            let record = record.map_err(|damage| crate::journal::damaged(stamp.position(), damage.to_string()))?;
            let is_wanted = wanted.is_none_or(|wanted| wanted.wants(&record, stamp.position()).1);
            if record.record != RecordKind::Event || !is_wanted {
                continue;
            }
            let json = is_json(record.body, trust).then_some(record.body);
            let metadata = match json {
                Some(_) => None,
                None => Some(format!(r#"{{"base64":"{}"}}"#, BASE64_STANDARD.encode(record.body))),
            };
            rows.row()
                .text(record.kind)
                .text(record.id)
                .bigint(record.seq)
                .integer(i32::from(record.shard.0))
                .bigint(stamp.writer.0)
                .bigint(stamp.number.0)
                .text(record.name)
                .integer(i32::from(record.version))
                .jsonb(json)
                .jsonb(metadata.as_ref().map(String::as_bytes))
                .time(stamp.at_micros);
        }
    }
    Ok(rows)
}

fn is_json(body: &[u8], trust: Trust) -> bool {
    match trust {
        Trust::Syntax => std::str::from_utf8(body).is_ok() && serde_json::from_slice::<IgnoredAny>(body).is_ok(),
        Trust::Values => {
            let zero = body.windows(6).any(|window| window == b"\\u0000");
            !zero && serde_json::from_slice::<Value>(body).is_ok()
        }
        Trust::Nothing => false,
    }
}

/// Fills the table up to what the store covers, when it was switched off before. In steps, each a transaction of its own.
pub(super) async fn catch_up(database: &Database, client: &mut Object) -> Result<(), Error> {
    let failed = || database.failed(DOING);
    loop {
        let transaction = client.transaction().await.map_err(failed())?;
        let row = transaction
            .query_opt(
                "SELECT writer, commit, events_writer, events_commit FROM checkpoint WHERE NOT EXISTS (SELECT FROM covers) FOR UPDATE",
                &[],
            )
            .await
            .map_err(failed())?;
        // Nodes of a cluster fill it shard by shard.
        let Some(row) = row else { return Ok(()) };
        let (covers, filled) = (super::position_of(&row, 0, 1), super::position_of(&row, 2, 3));
        let Some(covers) = covers.filter(|covers| filled.is_none_or(|filled| filled < *covers)) else {
            return Ok(());
        };
        let at = filled.unwrap_or_default();
        let mut commits = read_commits(database, &transaction, at, BATCH_BYTES).await?;
        if at.writer == covers.writer {
            commits.retain(|commit| commit.stamp().number <= covers.commit);
        }
        let mut reached = commits.last().map(Commit::position);
        if reached.is_none() {
            let next: Option<i64> = transaction
                .query_one(
                    "SELECT min(writer) FROM writers WHERE writer > $1",
                    &[&at.writer.0.cast_signed()],
                )
                .await
                .map_err(failed())?
                .get(0);
            reached = next.map(|writer| Position {
                writer: WriterId(writer.cast_unsigned()),
                commit: CommitNo(0),
            });
        }
        let reached = reached.filter(|reached| *reached <= covers).unwrap_or(covers);
        let mut filling = Filling::default();
        commits.into_iter().for_each(|commit| filling.push(commit));
        filling.flush(database, &transaction, None).await?;
        transaction
            .execute(
                "UPDATE checkpoint SET events_writer = $1, events_commit = $2",
                &[&reached.writer.0.cast_signed(), &reached.commit.0.cast_signed()],
            )
            .await
            .map_err(failed())?;
        transaction.commit().await.map_err(failed())?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_jsonb_does_not_take_is_told_from_what_it_takes() {
        for json in [r#"{"seats":50}"#, "null", " [1, 2.5e3] ", r#""\u00e9""#] {
            assert!(
                is_json(json.as_bytes(), Trust::Syntax) && is_json(json.as_bytes(), Trust::Values),
                "{json}"
            );
        }
        for other in [&b"not json"[..], b"", b"{\"a\":\"\xff\"}", b"1 2"] {
            assert!(!is_json(other, Trust::Syntax), "{other:?}");
        }
        for refused in [r#"{"a":"\u0000"}"#, r#""\ud800""#, "1e999"] {
            assert!(!is_json(refused.as_bytes(), Trust::Values), "{refused}");
        }
        assert!(!is_json(b"1", Trust::Nothing));
    }
}
