//! The table `events`, for people: filled behind, at a checkpoint.

use super::{coverage::Coverage, pacer::Pacer};
use crate::{
    columns::position_of,
    copy::{self, CopyRows},
    database::Database,
    journal::read_commits,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use deadpool_postgres::{Object, Transaction};
use serde::de::IgnoredAny;
use serde_json::Value;
use std::collections::HashMap;
use throng_journal::{Commit, CommitNo, Error, Pace, Position, Record, RecordKind, Stamp, WriterId};

const COPY: &str = "COPY events (kind, id, seq, shard, writer, commit, type, version, payload, metadata, recorded_at) FROM \
    STDIN (FORMAT binary)";
const COLUMNS: i16 = 11;
const DOING: &str = "filling the table events";
/// Bytes of commits read at once while the table catches up.
const BATCH_BYTES: usize = 8 << 20;
/// The bytes of commits whose events are sorted together: twenty thousand small ones.
const GATHERED_BYTES: usize = 2 << 20;
/// The bytes counted for an event besides its names and its body, about as in a commit.
const ENTRY_BYTES: usize = 16;

/// The payloads that are taken for JSON that PostgreSQL takes too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trust {
    /// Any valid JSON.
    Syntax,
    /// JSON without the character 0, half a surrogate pair, or an excessive number.
    Values,
    /// None, because `jsonb` refused one nevertheless.
    Nothing,
}

/// Commits whose events are to be sent together, in the order of the table's index. The index costs more than everything else, and half as
/// much if each of its pages is written once for many rows.
#[derive(Default)]
pub(super) struct Filling {
    commits: Vec<Commit>,
    bytes: usize,
}

impl Filling {
    pub(super) fn push(&mut self, commit: Commit) {
        self.bytes += commit.bytes().len();
        self.commits.push(commit);
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes >= GATHERED_BYTES
    }

    /// Sends their events, or those of them that are wanted.
    pub(super) async fn flush(
        &mut self,
        database: &Database,
        transaction: &Transaction<'_>,
        wanted: Option<&Coverage>,
        pacer: &Pacer<'_>,
    ) -> Result<(), Error> {
        let Self { commits, .. } = std::mem::take(self);
        let events = events(&commits, wanted)?;
        let sending = Sending {
            database,
            transaction,
            pacer,
        };
        sending.send(&events).await
    }
}

/// An event, and its commit.
struct Event<'a> {
    stamp: Stamp,
    record: Record<'a>,
}

/// Returns the wanted events, in the order of the index. An entity's events are in order already. Grouping them first leaves few names to
/// compare; otherwise sorting would take the processor from commands for tens of milliseconds at a time.
fn events<'a>(commits: &'a [Commit], wanted: Option<&Coverage>) -> Result<Vec<Event<'a>>, Error> {
    let mut of_entities: HashMap<(&str, &str), Vec<Event<'a>>> = HashMap::new();
    for commit in commits {
        let stamp = commit.stamp();
        for record in commit.records() {
            let record = record.map_err(|damage| crate::journal::damaged(stamp.position(), damage.to_string()))?;
            let is_wanted = wanted.is_none_or(|wanted| wanted.wants(&record, stamp.position()).1);
            if record.record == RecordKind::Event && is_wanted {
                let of_entity = of_entities.entry((record.kind, record.id)).or_default();
                of_entity.push(Event { stamp, record });
            }
        }
    }
    let mut entities: Vec<_> = of_entities.into_iter().collect();
    entities.sort_unstable_by_key(|(entity, _)| *entity);
    Ok(entities.into_iter().flat_map(|(_, events)| events).collect())
}

/// The server's verdict on the rows of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copied {
    All,
    /// The server refused a payload that `jsonb` does not take.
    Nothing,
}

struct Sending<'a> {
    database: &'a Database,
    transaction: &'a Transaction<'a>,
    pacer: &'a Pacer<'a>,
}

impl Sending<'_> {
    /// Sends the events. A body that `jsonb` refuses is stored as `base64` in the column `metadata`; it never fails a checkpoint.
    async fn send(&self, events: &[Event<'_>]) -> Result<(), Error> {
        // One savepoint for all batches: with more than 64 a transaction makes the snapshots of all other sessions expensive.
        self.run("SAVEPOINT events").await?;
        let mut left = events;
        while !left.is_empty() {
            let (batch, rest) = left.split_at(self.batch(left));
            if self.copy(batch, Trust::Syntax).await? == Copied::Nothing {
                self.run("ROLLBACK TO events").await?;
                return self.send_with_care(events).await;
            }
            left = rest;
            self.keep(events, left).await;
        }
        self.run("RELEASE events").await
    }

    /// Trusts each batch as far as the server takes it.
    async fn send_with_care(&self, events: &[Event<'_>]) -> Result<(), Error> {
        let mut left = events;
        while !left.is_empty() {
            let (batch, rest) = left.split_at(self.batch(left));
            for trust in [Trust::Syntax, Trust::Values, Trust::Nothing] {
                self.run("SAVEPOINT batch").await?;
                if self.copy(batch, trust).await? == Copied::All {
                    break;
                }
                self.run("ROLLBACK TO batch").await?;
            }
            self.run("RELEASE batch").await?;
            left = rest;
            self.keep(events, left).await;
        }
        self.run("RELEASE events").await
    }

    /// Returns the number of events that are sent with one statement.
    fn batch(&self, events: &[Event<'_>]) -> usize {
        let (bytes_max, mut bytes) = (self.pacer.batch_bytes(), 0);
        let fit = events.iter().take_while(|event| {
            let is_first = bytes == 0;
            let Record {
                kind, id, name, body, ..
            } = event.record;
            bytes += ENTRY_BYTES + kind.len() + id.len() + name.len() + body.len();
            is_first || bytes <= bytes_max
        });
        fit.count()
    }

    async fn copy(&self, events: &[Event<'_>], trust: Trust) -> Result<Copied, Error> {
        let sink = self
            .transaction
            .copy_in(COPY)
            .await
            .map_err(self.database.failed(DOING))?;
        match copy::send(sink, rows(events, trust).finish()).await {
            Ok(()) => Ok(Copied::All),
            Err(error) if trust != Trust::Nothing && is_about_values(&error) => {
                tracing::debug!("some payloads are no jsonb: {error}");
                Ok(Copied::Nothing)
            }
            Err(error) => Err(self.database.failed(DOING)(error)),
        }
    }

    async fn run(&self, statement: &str) -> Result<(), Error> {
        let done = self.transaction.batch_execute(statement).await;
        done.map_err(self.database.failed(DOING))
    }

    async fn keep(&self, events: &[Event<'_>], left: &[Event<'_>]) {
        self.pacer.keep(1.0 - left.len() as f64 / events.len() as f64).await;
    }
}

/// True for a data exception, or a limit of the server's program, which another row would not cause.
fn is_about_values(error: &tokio_postgres::Error) -> bool {
    error
        .code()
        .is_some_and(|code| code.code().starts_with("22") || code.code().starts_with("54"))
}

fn rows(events: &[Event<'_>], trust: Trust) -> CopyRows {
    let mut rows = CopyRows::new(COLUMNS);
    for Event { stamp, record } in events {
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
    rows
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

/// Fills the table up to what the store covers, after it was switched off. Each step is a transaction.
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
        let (covers, filled) = (position_of(&row, 0, 1), position_of(&row, 2, 3));
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
            reached = next.map(|writer| Position::new(WriterId(writer.cast_unsigned()), CommitNo(0)));
        }
        let reached = reached.filter(|reached| *reached <= covers).unwrap_or(covers);
        let mut filling = Filling::default();
        commits.into_iter().for_each(|commit| filling.push(commit));
        let pace = Pace::default();
        filling.flush(database, &transaction, None, &Pacer::new(&pace)).await?;
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
    fn values_jsonb_refuses_are_told_from_those_it_takes() {
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
