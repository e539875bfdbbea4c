//! Locks that nodes wait for, and what ends a wait.

use tokio_postgres::{Client, error::SqlState};

/// The time that a seal waits for a commit in doubt before it ends the sessions of the engine that made it.
pub(crate) const PATIENCE: &str = "SET LOCAL lock_timeout TO '3s'";
/// Whoever gets a number for a writer, and whoever joins, does it one after the other. Not a lock of the table: appends lock rows of it.
pub(crate) const LOCK_CLUSTER: &str = "SELECT FROM cluster FOR UPDATE";
/// Two nodes that take something out of one row would each write back what the other one took. Nor is counted meanwhile what is left.
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
