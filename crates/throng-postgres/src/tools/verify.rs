//! Checking everything a schema holds.

use super::walk::{PATIENCE, Seen, walk};
use crate::{PostgresOptions, database::Database};
use std::sync::Arc;
use throng_journal::{
    Error,
    tools::{Finding, Verification},
};

/// Checks every commit's checksum, that commits follow one another without a gap, that each entity's events do, and that the
/// store knows as many entities and events as there are up to its checkpoint. Holds one entry an entity in memory.
///
/// # Errors
/// Not reachable, another version, or no journal there. Damage is a finding, not an error.
pub fn verify(options: &PostgresOptions) -> Result<Verification, Error> {
    let mut found = Verification::default();
    let store = store(options)?;
    let mut indexed = 0u64;
    walk(options, &mut |seen| {
        match seen {
            Seen::Writer { .. } => found.writers += 1,
            Seen::Commit(commit) => {
                let (position, events) = (commit.position(), found.commit(commit));
                if (position.writer.0, position.commit.0) <= store.covers {
                    indexed += events;
                }
            }
            Seen::Damage(damage) => found.damages.push(damage.into()),
        }
        Ok(())
    })?;
    found.finish();
    found.store = match store.covers {
        (0, 0) => "it covers nothing yet".into(),
        (writer, commit) if found.removed_upto.is_some() => {
            format!(
                "it covers everything up to commit {writer}.{commit}; events are not counted, because history was removed"
            )
        }
        (writer, commit) if store.events == indexed => {
            format!("it covers everything up to commit {writer}.{commit}")
        }
        (writer, commit) => {
            found.damages.push(Finding {
                position: format!("{writer}.{commit}"),
                place: "table entities".into(),
                why: format!(
                    "{} events are indexed where the commits hold {indexed}; rebuild the store",
                    store.events
                ),
            });
            "damaged".into()
        }
    };
    Ok(found)
}

/// What the store says of itself.
struct Store {
    covers: (u64, u64),
    events: u64,
}

fn store(options: &PostgresOptions) -> Result<Store, Error> {
    let database = Database::look(options.clone())?;
    let task = Arc::clone(&database);
    let look = async move {
        let doing = "looking at the store";
        let client = task.client(doing).await?;
        let row = client
            .query_one(
                "SELECT coalesce(writer, 0), coalesce(commit, 0), (SELECT coalesce(sum(seq), 0)::bigint FROM entities) FROM \
                 checkpoint",
                &[],
            )
            .await
            .map_err(task.failed(doing))?;
        let [writer, commit, events] = [0, 1, 2].map(|index| row.get::<_, i64>(index).cast_unsigned());
        Ok(Store {
            covers: (writer, commit),
            events,
        })
    };
    database.threads.block(look, PATIENCE)
}
