//! Reading all of a schema's history, continuing after what cannot be read.

use crate::{
    PostgresOptions,
    database::Database,
    journal::{damaged, page},
};
use std::{sync::Arc, time::Duration};
use throng_journal::{Commit, CommitNo, Error, Position, WriterId};
use tokio::sync::mpsc;

const DOING: &str = "reading the journal";
/// The bytes of commits read at once; at least one commit.
const PAGE_BYTES: usize = 8 << 20;
const PAGES_WAITING: usize = 2;

/// A part of the history, in its order.
#[derive(Debug)]
pub enum HistoryPart<'a> {
    /// A writer's stream begins.
    Writer {
        /// The writer whose stream begins.
        writer: WriterId,
        /// The node it is an epoch of.
        node: &'a str,
        /// The last commit; `None`: it may commit.
        last: Option<CommitNo>,
    },
    /// A whole commit.
    Commit(&'a Commit),
    /// A row that is damaged or missing.
    Damage(Error),
}

enum Found {
    Writer(WriterId, String, Option<CommitNo>),
    Commit(Commit),
    Damage(Error),
}

/// Reads everything that was committed when each stream was reached.
///
/// # Errors
/// [`Error::Backend`]: there is no journal, or the server cannot be reached. Otherwise the visitor's error. Damage is passed to the
/// visitor.
pub fn walk(
    options: &PostgresOptions,
    visit: &mut dyn FnMut(HistoryPart<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let database = Database::look(options.clone())?;
    let (give, mut take) = mpsc::channel(PAGES_WAITING);
    let task = Arc::clone(&database);
    database.threads.spawn(async move {
        if let Err(error) = read(&task, &give).await {
            // The reader may have stopped.
            let _ = give.send(Err(error)).await;
        }
    });
    while let Some(found) = take.blocking_recv() {
        for found in found? {
            match found {
                Found::Writer(writer, node, last) => visit(HistoryPart::Writer {
                    writer,
                    node: &node,
                    last,
                })?,
                Found::Commit(commit) => visit(HistoryPart::Commit(&commit))?,
                Found::Damage(damage) => visit(HistoryPart::Damage(damage))?,
            }
        }
    }
    Ok(())
}

type Give = mpsc::Sender<Result<Vec<Found>, Error>>;

async fn read(database: &Database, give: &Give) -> Result<(), Error> {
    let failed = || database.failed(DOING);
    let client = database.client(DOING).await?;
    let writers = client
        .query("SELECT writer, node, last FROM writers ORDER BY writer", &[])
        .await
        .map_err(failed())?;
    for row in writers {
        let writer = WriterId(row.get::<_, i64>(0).cast_unsigned());
        let last = row.get::<_, Option<i64>>(2).map(|last| CommitNo(last.cast_unsigned()));
        let mut found = vec![Found::Writer(writer, row.get(1), last)];
        let mut due = CommitNo(1);
        loop {
            let after = Position::new(writer, CommitNo(due.0 - 1));
            let rows = page(&client, after, PAGE_BYTES).await.map_err(failed())?;
            if rows.is_empty() {
                break;
            }
            for (number, body) in rows {
                look(&mut found, Position { writer, commit: due }, number, body);
                due = number.next();
            }
            if give.send(Ok(std::mem::take(&mut found))).await.is_err() {
                return Ok(());
            }
        }
        if let Some(last) = last.filter(|last| due <= *last) {
            let position = Position { writer, commit: due };
            found.push(Found::Damage(damaged(
                position,
                format!("the stream ends before its last commit, {last}"),
            )));
        }
        if give.send(Ok(found)).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

fn look(found: &mut Vec<Found>, due: Position, number: CommitNo, body: Vec<u8>) {
    let parsed = Commit::parse(body, &[]);
    // It may stand for those before it.
    let first = parsed.as_ref().map_or(number, Commit::first);
    if first != due.commit {
        let why = format!("the next row is commit {number}: rows are missing");
        found.push(Found::Damage(damaged(due, why)));
    }
    let position = Position { commit: number, ..due };
    found.push(match parsed {
        Ok(commit) if commit.position() == position => Found::Commit(commit),
        Ok(commit) => Found::Damage(damaged(position, format!("the row holds commit {}", commit.position()))),
        Err(damage) => Found::Damage(damaged(position, damage.to_string())),
    });
}

/// The longest wait of a tool for one answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(600);
