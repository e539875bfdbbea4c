//! Journal, store and read models of a Throng engine on PostgreSQL 15 and later.
//!
//! ```no_run
//! let options = "postgres://throng@127.0.0.1/shows?schema=box_office".parse()?;
//! let opened = throng_postgres::open_postgres(options)?;
//! // Engine::builder()….start_shared(opened.journal, opened.store)
//! # drop(opened);
//! # Ok::<(), throng_journal::Error>(())
//! ```
//!
//! Operators find set-up, tables with example queries, moving, backup, take-over and tuning in `docs/postgresql.md`.
//!
//! # The tables
//!
//! ```text
//! writers     one row an epoch of a node                    ┐
//! commits     one row a commit                            ├ the truth
//! leases      until when a writer's engine may answer     ┘
//!
//! sizes       what a writer's commits take, counted from them
//!
//! checkpoint  one row: what the store covers              ┐
//! entities    number, kind, id, last sequence number      │
//! states      an entity's last stored state               ├ written at checkpoints, can be rebuilt
//! places      where an entity's events stand in commits   │
//! system      timers, idempotency keys, messages          │
//! events      every event, for people                     ┘
//!
//! losses, lost_commits                                      acknowledged commits that this database lacks
//! views, view_rows                                          read models; shown by the view read_models
//! migrations                                                numbered steps, each applied once
//! ```
//! The statements that create them are in `src/migrations`. They are applied at the start, under an advisory lock. Tables of a newer
//! program are refused, unchanged.
//! newer program are refused, unchanged.
//!
//! # An append
//!
//! A commit is one prepared statement, one round trip, one transaction:
//!
//! ```sql
//! WITH open AS (SELECT FROM writers WHERE writer = $1 AND session = $5 AND sealed_at IS NULL FOR SHARE)
//! INSERT INTO commits (writer, number, shards, body) SELECT $1, $2, $3, $4 FROM open
//! WHERE $2 = 1 OR EXISTS (SELECT FROM commits WHERE writer = $1 AND number = $2 - 1)
//! ```
//!
//! `FOR SHARE` fixes the order: a **seal** updates the writer's row, so it waits for the append under way, and a later append sees it. (A
//! plain `SELECT` would be a race: its snapshot may be older than the seal.) The body is `STORAGE EXTERNAL`: it is not compressed, and a
//! record of a large commit is read without the rest.
//!
//! Appends have their own connection, with one in flight, or four if a round trip takes over a millisecond. Statements of one connection
//! run in order, so the predecessor is there or the commit is refused. Every failure is reported as *in doubt*. The engine then seals and
//! reads, so nothing is guessed. Connections run on threads of this crate, never on a gateway's loop.
//!
//! # Taking over
//!
//! [`open`](throng_journal::Journal::open) seals the node's earlier writers. A session that holds a lock for over three seconds, such as
//! that of a process stopped in the middle of a statement, is ended (`pg_terminate_backend`, by the name of its sessions), and so are the
//! other engines' remaining sessions afterwards. Before the new writer's engine begins, every **lease** of an engine of the node must have
//! expired, whoever has sealed its writer: an engine answers from memory only within its lease ([`holds`](throng_journal::Journal::holds)),
//! which it renews five times in its length. The server's clock and the engine's, which goes on while the machine sleeps, only measure
//! durations. There is no wait for engines that gave their lease back at their end, nor for those whose process is known to be gone: the
//! lease records it, down to the boot and the process namespace. The new writer has its lease from the beginning, so that a sealed engine
//! sees that another is taking over. It [notices](throng_journal::Journal::ended) with its next renewal, and does not take back while the
//! other one lives.
//!
//! # A server that lacks commits
//!
//! A promoted standby or a restored backup lacks the last commits, and everything written with them. So each renewal, beat, seal and
//! checkpoint carries what was known to be durable when it was sent, and checks that: see `src/rollback.rs`. A contradiction ends the
//! epoch, and the loss is recorded in `losses` and `lost_commits`. Writers' numbers have random gaps, and an append names its engine's
//! session, so that no statement of a lost writer can hit another one of its number.
//!
//! # A checkpoint
//!
//! A checkpoint is one transaction: the commits up to its position are read, their events' places gathered by entity and written with
//! `COPY`, rows of `events` likewise, states and system rows in batches. Last, if the writer is not sealed (`FOR SHARE` again), the row
//! with the covered position is written. A checkpoint of a writer that was taken over is refused completely.
//!
//! Rows of `events` are gathered from 2 MiB of commits and sent in the order of their index. Maintaining the index is most of their cost,
//! and half as much if neighbouring rows come one after the other.
//!
//! A checkpoint keeps to its [`Pace`](throng_journal::Pace): small batches with pauses while there is time, large ones without pauses once it is
//! urgent.
//!
//! Long values are compressed by LZ4 if the server can (`default_toast_compression` of the session); its own method caused most of the cost
//! of `places`.
//!
//! A payload that `jsonb` refuses never stops a checkpoint: it is stored in `metadata` as `base64`.
//!
//! # Plans
//!
//! Every statement is a range of an index or a loop over one. The sessions enforce this (`enable_seqscan` and similar settings are off),
//! because the statistics of a recently filled table suggest otherwise, and pages that each read the whole table make a start take
//! quadratic time.
//!
//! # The URL
//!
//! `postgres://user:password@host:port/database?…` as in libpq, with these options: `schema` (default `throng`), `events` (`on`, `off`),
//! `durability` (`fsync`, `os`), `lease` (`5s`), `depth` (by the round trip; at most 16), `pool` (4; at most 64), `sslmode` (`disable`,
//! `prefer`, `require`, `verify-full`), `sslrootcert`. A password may come from `PGPASSWORD`.
//!
//! # Limits
//!
//! A commit has at most 1 GB, like any value (the engine's have at most 8 MiB); there are at most 2^63 commits; a schema's name has at most
//! 63 of `a-z0-9_`. A checkpoint holds places of up to 64 MiB and 10 MiB of commits in memory. Poolers that assign sessions by transaction
//! do not work.
//!
//! # Errors
//!
//! Each says what was tried and where (never with the password), the message of the server or the network, and what to do: see
//! [`throng_journal::Error`].

mod columns;
mod copy;
mod database;
mod dial;
mod directory;
mod error;
mod journal;
mod locks;
mod losses;
mod migrations;
mod options;
mod place;
mod recent;
mod rollback;
mod store;
mod tls;
pub mod tools;
mod typed;
mod views;

pub use directory::PostgresDirectory;
pub use journal::PostgresJournal;
pub use options::{OnLoss, PostgresOptions, Tls, is_url};
pub use store::PostgresStore;
pub use views::PostgresViews;

use database::Database;
use std::sync::Arc;
use throng_journal::Error;

/// The contents of a schema of a database.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The commits; store and views can be rebuilt from them.
    pub journal: Arc<PostgresJournal>,
    /// The store that is built from it.
    pub store: Arc<PostgresStore>,
    /// The read models.
    pub views: Arc<PostgresViews>,
    /// The directory in which the nodes of a cluster meet.
    pub directory: Arc<PostgresDirectory>,
}

/// Opens the journal, the store and the read models of a schema, creating it if necessary. Blocks while it connects.
///
/// # Errors
/// [`Error::OtherVersion`]: the tables are newer than this program. [`Error::Backend`]: the server cannot be reached, or refuses. Each has
/// the fault and what to do.
pub fn open_postgres(options: PostgresOptions) -> Result<Opened, Error> {
    let database = Database::open(options)?;
    let journal = PostgresJournal::new(Arc::clone(&database))?;
    Ok(Opened {
        journal: Arc::new(journal),
        store: Arc::new(PostgresStore::new(Arc::clone(&database))),
        directory: Arc::new(PostgresDirectory::new(Arc::clone(&database))),
        views: Arc::new(PostgresViews::new(database)),
    })
}

/// Empties a schema that has a mark (its comment), or creates one with the mark.
///
/// # Errors
/// [`Error::Backend`]: the schema of that name lacks the mark, so it is not ours to empty; or the server cannot be reached, or refuses.
pub fn begin_anew(options: &PostgresOptions, mark: &str) -> Result<(), Error> {
    database::begin_anew(options.clone(), mark.to_owned())
}
