//! Removing the beginnings of histories from the index and the table `events`, and all rows of removed entities.

use super::places::without_first;
use crate::database::Database;
use deadpool_postgres::Transaction;
use throng_journal::{Cut, Error};
use tokio_postgres::types::ToSql;

const DOING: &str = "removing history";
/// The entities of one statement.
const ENTITIES: usize = 512;

const FIND: &str = "SELECT u.n, e.entity FROM unnest($1::text[], $2::bytea[]) WITH ORDINALITY u(kind, id, n) CROSS \
    JOIN LATERAL (SELECT entity FROM entities WHERE kind = u.kind COLLATE \"C\" AND id = u.id LIMIT 1) e";
const STRADDLING: &str = "SELECT u.entity, u.upto, p.last, p.places FROM unnest($1::bigint[], $2::bigint[]) u(entity, upto) CROSS \
    JOIN LATERAL (SELECT last, places FROM places WHERE entity = u.entity AND last > u.upto ORDER BY last LIMIT 1) p";
const SHORTEN: &str = "UPDATE places p SET places = u.places FROM unnest($1::bigint[], $2::bigint[], $3::bytea[]) u(entity, last, \
    places) WHERE p.entity = u.entity AND p.last = u.last";
const PLACES: &str = "DELETE FROM places p USING unnest($1::bigint[], $2::bigint[]) u(entity, upto) WHERE p.entity = u.entity AND \
    p.last <= u.upto";
const EVENTS: &str = "DELETE FROM events e USING unnest($1::text[], $2::text[], $3::bigint[]) u(kind, id, upto) WHERE e.kind = u.kind \
    COLLATE \"C\" AND e.id = u.id COLLATE \"C\" AND e.seq <= u.upto";
/// A newer state belongs to the entity that was created anew, and keeps its row in `entities`.
const STATES: &str = "DELETE FROM states s USING unnest($1::bigint[], $2::bigint[]) u(entity, upto) WHERE s.entity = u.entity AND \
    s.seq <= u.upto";
const GONE: &str = "DELETE FROM entities e USING unnest($1::bigint[], $2::bigint[]) u(entity, upto) WHERE e.entity = u.entity AND \
    e.seq <= u.upto AND NOT EXISTS (SELECT FROM states s WHERE s.entity = u.entity)";

pub(super) async fn cut(database: &Database, transaction: &Transaction<'_>, cuts: &[Cut]) -> Result<(), Error> {
    for part in cuts.chunks(ENTITIES) {
        cut_part(database, transaction, part).await?;
    }
    Ok(())
}

async fn cut_part(database: &Database, transaction: &Transaction<'_>, cuts: &[Cut]) -> Result<(), Error> {
    let run = |statement: &'static str, parameters: Vec<Vec<i64>>| async move {
        let parameters: Vec<&(dyn ToSql + Sync)> = parameters.iter().map(|one| one as &(dyn ToSql + Sync)).collect();
        let statement = transaction.prepare_cached(statement).await?;
        transaction.execute(&statement, &parameters).await.map(drop)
    };
    let failed = || database.failed(DOING);
    let kinds: Vec<&str> = cuts.iter().map(|cut| &*cut.address.kind).collect();
    let ids: Vec<&[u8]> = cuts.iter().map(|cut| cut.address.id.as_bytes()).collect();
    let statement = transaction.prepare_cached(FIND).await.map_err(failed())?;
    let (mut entities, mut uptos, mut gone) = (Vec::new(), Vec::new(), (Vec::new(), Vec::new()));
    for row in transaction.query(&statement, &[&kinds, &ids]).await.map_err(failed())? {
        let index = usize::try_from(row.get::<_, i64>(0) - 1).unwrap_or(usize::MAX);
        let Some(cut) = cuts.get(index) else { continue };
        let entity = row.get::<_, i64>(1);
        entities.push(entity);
        uptos.push(cut.upto.cast_signed());
        if cut.is_gone {
            gone.0.push(entity);
            gone.1.push(cut.upto.cast_signed());
        }
    }
    shorten(database, transaction, &entities, &uptos).await?;
    run(PLACES, vec![entities, uptos]).await.map_err(failed())?;
    let names: Vec<&str> = cuts.iter().map(|cut| &*cut.address.id).collect();
    let all: Vec<i64> = cuts.iter().map(|cut| cut.upto.cast_signed()).collect();
    let statement = transaction.prepare_cached(EVENTS).await.map_err(failed())?;
    transaction
        .execute(&statement, &[&kinds, &names, &all])
        .await
        .map_err(failed())?;
    if !gone.0.is_empty() {
        for statement in [STATES, GONE] {
            let (entities, uptos) = gone.clone();
            run(statement, vec![entities, uptos]).await.map_err(failed())?;
        }
    }
    Ok(())
}

/// Removes the events before the cut from rows that also hold later ones.
async fn shorten(
    database: &Database,
    transaction: &Transaction<'_>,
    entities: &[i64],
    uptos: &[i64],
) -> Result<(), Error> {
    let failed = || database.failed(DOING);
    let statement = transaction.prepare_cached(STRADDLING).await.map_err(failed())?;
    let rows = transaction
        .query(&statement, &[&entities, &uptos])
        .await
        .map_err(failed())?;
    let (mut of, mut lasts, mut rests) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        let [entity, upto, last] = [0, 1, 2].map(|index| row.get::<_, i64>(index));
        let packed: &[u8] = row.get(3);
        let rest = without_first(packed, last.cast_unsigned(), upto.cast_unsigned())
            .ok_or_else(|| Error::backend(DOING, format!("the row of places of entity {entity} cannot be read")))?;
        if rest.len() < packed.len() {
            of.push(entity);
            lasts.push(last);
            rests.push(rest.to_vec());
        }
    }
    if of.is_empty() {
        return Ok(());
    }
    let statement = transaction.prepare_cached(SHORTEN).await.map_err(failed())?;
    transaction
        .execute(&statement, &[&of, &lasts, &rests])
        .await
        .map(drop)
        .map_err(failed())
}
