//! The losses of acknowledged commits that engines have found.

use super::walk::PATIENCE;
use crate::{PostgresOptions, database::Database};
use std::{fmt, sync::Arc};
use throng_journal::{CommitNo, Error, Loss, Position, Witness, WriterId};

const DOING: &str = "reading the losses";
/// The values of JSON.
const LOSSES: &str = "SELECT writer, commit, held, coalesce(timeline, ''), to_char(found_at AT TIME ZONE 'UTC', \
    'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"'), to_char(accepted_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"') FROM losses ORDER BY loss";
const COMMITS: &str = "SELECT number, to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'), entities, keys FROM lost_commits \
    WHERE writer = $1 AND number > $2 AND number <= $3 ORDER BY number";

/// The losses of a schema.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Losses {
    /// The place.
    pub place: String,
    /// Each loss, in the order in which they were found.
    pub losses: Vec<LossLine>,
}

/// Acknowledged commits that the database no longer holds.
#[derive(Clone, Debug, serde::Serialize)]
pub struct LossLine {
    /// The last acknowledged commit, `writer.commit`.
    pub acknowledged: String,
    /// The last one of its stream that is there; commit 0: none.
    pub held: String,
    /// The number of missing commits.
    pub missing: u64,
    /// The timeline of the server that lacks them.
    pub timeline: String,
    /// When an engine found it.
    pub found_at: String,
    /// The time at which it was accepted; `None`: no engine starts.
    pub accepted_at: Option<String>,
    /// The contents of the lost commits, as far as the engine still knew.
    pub commits: Vec<LostCommitLine>,
}

/// The contents of a commit that is lost.
#[derive(Clone, Debug, serde::Serialize)]
pub struct LostCommitLine {
    /// The position, `writer.commit`.
    pub position: String,
    /// The time at which it was made.
    pub at: String,
    /// Entities of which it held records, as `kind/id`.
    pub entities: Vec<String>,
    /// The idempotency keys of its commands. A repetition under one of them is executed again.
    pub keys: Vec<String>,
}

/// Lists the losses of acknowledged commits that engines have found in a schema's history, with their contents.
///
/// # Errors
/// [`Error::Backend`]: there is no journal, or the server cannot be reached. [`Error::OtherVersion`]: another version.
pub fn losses(options: &PostgresOptions) -> Result<Losses, Error> {
    let database = Database::look(options.clone())?;
    let task = Arc::clone(&database);
    let look = async move {
        let failed = || task.failed(DOING);
        let client = task.client(DOING).await?;
        let mut losses = Vec::new();
        for row in client.query(LOSSES, &[]).await.map_err(failed())? {
            let (writer, commit, held): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
            let commits = client
                .query(COMMITS, &[&writer, &held, &commit])
                .await
                .map_err(failed())?;
            let commits = commits.iter().map(|row| LostCommitLine {
                position: at(writer, row.get(0)).to_string(),
                at: row.get(1),
                entities: row.get(2),
                keys: row.get(3),
            });
            losses.push(LossLine {
                acknowledged: at(writer, commit).to_string(),
                held: at(writer, held).to_string(),
                missing: commit.abs_diff(held),
                timeline: row.get(3),
                found_at: row.get(4),
                accepted_at: row.get(5),
                commits: commits.collect(),
            });
        }
        Ok(losses)
    };
    Ok(Losses {
        losses: database.threads.block(look, PATIENCE)?,
        place: options.place(),
    })
}

/// Returns the losses that no operator has accepted.
pub(super) fn open(options: &PostgresOptions) -> Result<Vec<Loss>, Error> {
    let found = losses(options)?;
    let open = found.losses.iter().filter(|loss| loss.accepted_at.is_none());
    let position = |text: &str| text.parse().unwrap_or_default();
    Ok(open
        .map(|loss| Loss {
            covered: position(&loss.acknowledged),
            held: position(&loss.held),
            witness: Witness::Engine,
        })
        .collect())
}

fn at(writer: i64, commit: i64) -> Position {
    Position::new(WriterId(writer.cast_unsigned()), CommitNo(commit.cast_unsigned()))
}

impl fmt::Display for Losses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.losses.is_empty() {
            return writeln!(f, "no engine has found a loss at {}", self.place);
        }
        for loss in &self.losses {
            let LossLine {
                acknowledged,
                held,
                missing,
                timeline,
                found_at,
                ..
            } = loss;
            write!(
                f,
                "{missing} commits are lost: {acknowledged} was acknowledged, the stream ends at {held}; found at {found_at} on timeline {timeline}, "
            )?;
            match &loss.accepted_at {
                Some(at) => writeln!(f, "accepted at {at}")?,
                None => writeln!(
                    f,
                    "not accepted: no engine starts but with --accept-loss {acknowledged} or --on-loss continue"
                )?,
            }
            for commit in &loss.commits {
                let keys = match commit.keys.is_empty() {
                    true => String::new(),
                    false => format!("  keys {}", commit.keys.join(" ")),
                };
                writeln!(
                    f,
                    "  {}  {}  {}{keys}",
                    commit.position,
                    commit.at,
                    commit.entities.join(" ")
                )?;
            }
            let unknown = missing.saturating_sub(loss.commits.len() as u64);
            if unknown > 0 {
                writeln!(f, "  what was in {unknown} of them is not known any more")?;
            }
        }
        Ok(())
    }
}
