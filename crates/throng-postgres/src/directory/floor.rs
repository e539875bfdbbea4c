//! The release and features that a node must have to be let in.

use super::changes::{Change, LIVING, Sql};
use throng_journal::{Error, Floor};
use tokio_postgres::{Row, Transaction};

/// Reads the floor from two columns of the cluster's row.
pub(crate) fn of(row: &Row, first: usize) -> Floor {
    Floor {
        features: row.get::<_, i32>(first).cast_unsigned(),
        app: row.get::<_, i64>(first + 1).cast_unsigned(),
    }
}

/// Raises the floor to the least that all living nodes have.
pub(super) async fn raise(transaction: &Transaction<'_>) -> Sql<Change<(Floor, Floor)>> {
    // A separate first statement: from here on no node joins, and the next statement sees all that have.
    let before = transaction
        .query_one("SELECT features, app FROM cluster FOR UPDATE", &[])
        .await?;
    let statement = format!(
        "UPDATE cluster c SET features = greatest(c.features, least.features), app = greatest(c.app, least.app) FROM (SELECT \
         min(features) AS features, min(app) AS app FROM nodes WHERE {LIVING}) least WHERE least.app IS NOT NULL RETURNING c.features, \
         c.app"
    );
    let raised = transaction.query_opt(&statement, &[]).await?;
    Ok(match raised {
        Some(after) => Ok((of(&before, 0), of(&after, 0))),
        None => Err(Error::Refused("no node lives: there is nothing to go by".into())),
    })
}
