//! Inspection of a schema.

use super::{
    covers::Covers,
    walk::{HistoryPart, PATIENCE, walk},
};
use crate::{PostgresOptions, database::Database, journal::TABLES};
use std::{fmt, sync::Arc};
use throng_journal::{
    Error,
    tools::{Contents, InspectOptions},
};

/// A table of the journal's schema, with its size.
#[derive(Clone, Debug, serde::Serialize)]
pub struct TableLine {
    /// The table's name, without its schema.
    pub table: String,
    /// Its size with its indexes.
    pub bytes: u64,
}

/// The contents of a schema.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Inspection {
    /// The place.
    pub place: String,
    /// The tables, the largest first.
    pub tables: Vec<TableLine>,
    /// The position that the store covers, written `writer.commit`; for nodes of a cluster, each with its shards.
    pub covers: Option<String>,
    /// The contents of its commits.
    #[serde(flatten)]
    pub contents: Contents,
}

/// Inspects a schema's history. It reads all of it and changes nothing.
///
/// # Errors
/// [`Error::Backend`]: there is no journal, or the server cannot be reached. [`Error::OtherVersion`]: another version.
pub fn inspect(options: &PostgresOptions, what: &InspectOptions) -> Result<Inspection, Error> {
    let mut found = Inspection {
        place: options.place(),
        ..Inspection::default()
    };
    found.tables = sizes(options)?;
    let covers = Covers::read(options)?;
    found.covers = covers.newest().map(|_| covers.to_string());
    walk(options, &mut |seen| {
        match seen {
            HistoryPart::Writer { writer, node, last } => found.contents.writer(writer, node, Some(last.is_some())),
            HistoryPart::Commit(commit) => found.contents.commit(commit, what),
            HistoryPart::Damage(damage) => found.contents.findings.push(damage.to_string()),
        }
        Ok(())
    })?;
    Ok(found)
}

fn sizes(options: &PostgresOptions) -> Result<Vec<TableLine>, Error> {
    let database = Database::look(options.clone())?;
    let task = Arc::clone(&database);
    let look = async move {
        let doing = "measuring the tables";
        let client = task.client(doing).await?;
        let rows = client.query(TABLES, &[]).await.map_err(task.failed(doing))?;
        let tables = rows.iter().map(|row| TableLine {
            table: row.get(0),
            bytes: row.get::<_, i64>(1).cast_unsigned(),
        });
        Ok(tables.collect())
    };
    database.threads.block(look, PATIENCE)
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} commits at {}", self.contents.commits, self.place)?;
        match &self.covers {
            Some(covers) => writeln!(f, "the store covers everything up to commit {covers}")?,
            None => writeln!(f, "the store covers nothing yet")?,
        }
        for table in &self.tables {
            writeln!(f, "  {}  {} bytes", table.table, table.bytes)?;
        }
        self.contents.fmt(f)
    }
}
