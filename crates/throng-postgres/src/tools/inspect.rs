//! Looking at what a schema holds.

use super::walk::{PATIENCE, Seen, walk};
use crate::{PostgresOptions, database::Database};
use std::{collections::BTreeMap, fmt, sync::Arc};
use throng_journal::{Address, Commit, Error, Position, Record};

/// What to look at beside the summary.
#[derive(Clone, Debug)]
pub struct InspectOptions {
    /// Show this entity's records.
    pub entity: Option<Address>,
    /// Show the records of this commit.
    pub commit: Option<Position>,
    /// Records shown, at most. Default 1,000.
    pub records_max: usize,
}

impl Default for InspectOptions {
    fn default() -> Self {
        Self {
            entity: None,
            commit: None,
            records_max: 1_000,
        }
    }
}

/// One table.
#[derive(Clone, Debug, serde::Serialize)]
pub struct TableLine {
    /// Its name.
    pub table: String,
    /// Its size with its indexes.
    pub bytes: u64,
}

/// One writer's stream.
#[derive(Clone, Debug, serde::Serialize)]
pub struct WriterLine {
    /// Its id.
    pub writer: u64,
    /// The node it was a life of.
    pub node: String,
    /// It can commit nothing any more.
    pub sealed: bool,
    /// Its whole commits.
    pub commits: u64,
    /// Their bytes.
    pub bytes: u64,
    /// When the first was made, microseconds since 1970-01-01 UTC; 0 without one.
    pub first_at_micros: i64,
    /// When the last was made.
    pub last_at_micros: i64,
}

/// One record, for a person.
#[derive(Clone, Debug, serde::Serialize)]
pub struct HistoryLine {
    /// Its commit, written `writer.commit`.
    pub position: String,
    /// When, microseconds since 1970-01-01 UTC.
    pub at_micros: i64,
    /// What it says: `event`, `sent`, …
    pub record: &'static str,
    /// The entity.
    pub entity: String,
    /// Its sequence number.
    pub seq: u64,
    /// Its name.
    pub name: String,
    /// The body, where it is text; else how long it is.
    pub body: String,
}

/// What a schema holds.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Inspection {
    /// Where it is.
    pub place: String,
    /// The tables, the largest first.
    pub tables: Vec<TableLine>,
    /// What the store covers, written `writer.commit`.
    pub covers: Option<String>,
    /// The writers, in the order of history.
    pub writers: Vec<WriterLine>,
    /// Whole commits.
    pub commits: u64,
    /// How many records of each kind, entity kind and name.
    pub records: BTreeMap<String, u64>,
    /// The records asked for.
    pub history: Vec<HistoryLine>,
    /// More than were to be shown matched.
    pub history_cut: bool,
    /// Rows that cannot be read.
    pub findings: Vec<String>,
}

/// Looks through a schema's history. Reads all of it, changes nothing.
///
/// # Errors
/// Not reachable, another version, or no journal there.
pub fn inspect(options: &PostgresOptions, what: &InspectOptions) -> Result<Inspection, Error> {
    let mut found = Inspection {
        place: options.place(),
        ..Inspection::default()
    };
    (found.tables, found.covers) = sizes(options)?;
    walk(options, &mut |seen| {
        match seen {
            Seen::Writer { writer, node, last } => found.writers.push(WriterLine {
                writer: writer.0,
                node: node.to_owned(),
                sealed: last.is_some(),
                commits: 0,
                bytes: 0,
                first_at_micros: 0,
                last_at_micros: 0,
            }),
            Seen::Commit(commit) => found.commit(commit, what),
            Seen::Damage(damage) => found.findings.push(damage.to_string()),
        }
        Ok(())
    })?;
    Ok(found)
}

fn sizes(options: &PostgresOptions) -> Result<(Vec<TableLine>, Option<String>), Error> {
    let database = Database::look(options.clone())?;
    let task = Arc::clone(&database);
    let look = async move {
        let doing = "measuring the tables";
        let client = task.client(doing).await?;
        let rows = client
            .query(
                "SELECT relname::text, pg_total_relation_size(oid) FROM pg_class WHERE relkind = 'r' AND relnamespace = \
                 current_schema::regnamespace ORDER BY 2 DESC, 1",
                &[],
            )
            .await
            .map_err(task.failed(doing))?;
        let covers = client
            .query_one("SELECT writer::text || '.' || commit FROM checkpoint", &[])
            .await
            .map_err(task.failed(doing))?;
        let tables = rows.iter().map(|row| TableLine {
            table: row.get(0),
            bytes: row.get::<_, i64>(1).cast_unsigned(),
        });
        Ok((tables.collect(), covers.get(0)))
    };
    database.threads.block(look, PATIENCE)
}

impl Inspection {
    fn commit(&mut self, commit: &Commit, what: &InspectOptions) {
        let stamp = commit.stamp();
        self.commits += 1;
        if let Some(writer) = self.writers.last_mut() {
            if writer.commits == 0 {
                writer.first_at_micros = stamp.at_micros;
            }
            writer.last_at_micros = stamp.at_micros;
            writer.commits += 1;
            writer.bytes += commit.bytes().len() as u64;
        }
        for record in commit.records().flatten() {
            let name = format!("{} {} {}", record.record.word(), record.kind, record.name);
            *self.records.entry(name).or_default() += 1;
            let of_entity = |entity: &Address| *entity.kind == *record.kind && *entity.id == *record.id;
            if what.entity.as_ref().is_some_and(of_entity) || what.commit == Some(stamp.position()) {
                self.show(&record, stamp.at_micros, what.records_max);
            }
        }
    }

    fn show(&mut self, record: &Record<'_>, at_micros: i64, records_max: usize) {
        if self.history.len() >= records_max {
            self.history_cut = true;
            return;
        }
        self.history.push(HistoryLine {
            position: record.place.position.to_string(),
            at_micros,
            record: record.record.word(),
            entity: format!("{}/{}", record.kind, record.id),
            seq: record.seq,
            name: record.name.to_owned(),
            body: match std::str::from_utf8(record.body) {
                Ok(text) => text.to_owned(),
                Err(_) => format!("({} bytes)", record.body.len()),
            },
        });
    }
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} commits at {}", self.commits, self.place)?;
        match &self.covers {
            Some(covers) => writeln!(f, "the store covers everything up to commit {covers}")?,
            None => writeln!(f, "the store covers nothing yet")?,
        }
        for table in &self.tables {
            writeln!(f, "  {}  {} bytes", table.table, table.bytes)?;
        }
        for line in &self.writers {
            let state = if line.sealed { "sealed" } else { "open" };
            let WriterLine {
                writer,
                node,
                commits,
                bytes,
                ..
            } = line;
            writeln!(
                f,
                "writer {writer} (node {node}, {state}): {commits} commits, {bytes} bytes"
            )?;
        }
        for (name, records) in &self.records {
            writeln!(f, "  {records} × {name}")?;
        }
        for line in &self.history {
            let HistoryLine {
                position,
                record,
                entity,
                seq,
                name,
                body,
                ..
            } = line;
            writeln!(f, "{position} {entity} {record} {seq} {name} {body}")?;
        }
        if self.history_cut {
            writeln!(f, "… more than {} records match", self.history.len())?;
        }
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        Ok(())
    }
}
