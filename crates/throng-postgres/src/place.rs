//! The server, database and schema in which a journal was last served. A restored dump is in another one.

use crate::{PostgresJournal, database::Database};
use std::{future::Future, sync::Arc, time::Duration};
use throng_journal::Error;
use tokio_postgres::{Client, error::SqlState};

/// A physical standby and a base backup have the identifier of their primary, and do not count as copies.
const NOW: &str = "SELECT format('server %s, database %s, schema %s', system_identifier, (SELECT oid FROM pg_database WHERE datname = \
    current_database()), current_schema()) FROM pg_control_system()";
const RECORDED: &str = "SELECT place FROM place";
const RECORD: &str = "UPDATE place SET place = $1 WHERE place IS DISTINCT FROM $1";
/// Separates the place of a copy that was served in place of its original from the time since when, in microseconds.
const RESTORED: &str = ", restored at ";
const PATIENCE: Duration = Duration::from_secs(30);

impl PostgresJournal {
    /// Returns the reason why the journal counts as a copy, if it does. A journal last served by an earlier release does not.
    ///
    /// # Errors
    /// [`Error::Backend`] of the server.
    pub fn copied(&self) -> Result<Option<String>, Error> {
        let doing = "comparing where the journal was served last with where it stands";
        self.ask(doing, |client| async move {
            let was: Option<String> = client.query_one(RECORDED, &[]).await?.get(0);
            let was = was.map(|was| split(&was).0.to_owned());
            let copied = was.zip(now(&client).await?).filter(|(was, is)| was != is);
            Ok(copied.map(|(was, is)| format!("it was served last in {was}, and stands in {is}")))
        })
    }

    /// Returns the [recorded](Self::record_place) time since when this copy is served in place of its original, in microseconds; `None` if
    /// the journal is no copy.
    ///
    /// # Errors
    /// [`Error::Backend`] of the server.
    pub fn restored_micros(&self) -> Result<Option<i64>, Error> {
        self.ask("reading since when the journal is served", |client| async move {
            let was: Option<String> = client.query_one(RECORDED, &[]).await?.get(0);
            Ok(was.and_then(|was| split(&was).1))
        })
    }

    /// Records that the journal is served here and, for a copy, since when in place of its original.
    ///
    /// # Errors
    /// [`Error::Backend`] of the server.
    pub fn record_place(&self, restored_micros: Option<i64>) -> Result<(), Error> {
        self.ask("recording where the journal is served", move |client| async move {
            let now = now(&client).await?;
            let place = now.map(|now| match restored_micros {
                Some(micros) => format!("{now}{RESTORED}{micros}"),
                None => now,
            });
            client.execute(RECORD, &[&place]).await.map(|_| ())
        })
    }

    /// Runs a query on a connection of the pool, and blocks until it is answered.
    fn ask<T: Send + 'static, F>(
        &self,
        doing: &'static str,
        question: impl FnOnce(deadpool_postgres::Object) -> F + Send + 'static,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, tokio_postgres::Error>> + Send + 'static,
    {
        let database: Arc<Database> = self.database();
        let asked = Arc::clone(&database);
        let asking = async move {
            let client = asked.client(doing).await?;
            question(client).await.map_err(asked.failed(doing))
        };
        database.threads.block(asking, PATIENCE)
    }
}

/// Returns the recorded place, and since when a copy is served there.
fn split(recorded: &str) -> (&str, Option<i64>) {
    match recorded.split_once(RESTORED) {
        Some((place, micros)) => (place, micros.parse().ok()),
        None => (recorded, None),
    }
}

/// Returns the place as the server names it; `None` if it does not tell this user.
async fn now(client: &Client) -> Result<Option<String>, tokio_postgres::Error> {
    match client.query_one(NOW, &[]).await {
        Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => Ok(None),
        row => Ok(Some(row?.get(0))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_place_is_split_from_the_time_of_a_restore() {
        let place = "server 7, database 5, schema throng";
        assert_eq!(split(place), (place, None));
        assert_eq!(split(&format!("{place}{RESTORED}12")), (place, Some(12)));
    }
}
