//! Locks that nodes wait for, and what ends a wait.

use tokio_postgres::{Client, error::SqlState};

/// The time that a seal waits for a commit in doubt before it ends the sessions of its engine.
pub(crate) const PATIENCE: &str = "SET LOCAL lock_timeout TO '3s'";
/// Serializes assignments of writers' numbers and joins of nodes. Not a lock of the table, because appends lock its rows.
pub(crate) const LOCK_CLUSTER: &str = "SELECT FROM cluster FOR UPDATE";
/// Serializes removals and counts: two nodes that remove records from one row would each write back what the other one removed.
pub(crate) const ONE_AT_A_TIME: &str = "SELECT pg_advisory_xact_lock(hashtextextended('throng history', 0))";
/// The attempts of a change that meets another one.
pub(crate) const TRIES: u32 = 5;

/// True if the transaction and another one waited for each other: nothing of it was done.
pub(crate) fn has_met_another(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::T_R_DEADLOCK_DETECTED)
}

/// Ends an engine's sessions, as far as this user may.
pub(crate) async fn end_sessions(client: &Client, session: &str) -> Result<(), tokio_postgres::Error> {
    client
        .query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1 AND usename = current_user \
             AND datname = current_database()",
            &[&session],
        )
        .await
        .map(drop)
}
