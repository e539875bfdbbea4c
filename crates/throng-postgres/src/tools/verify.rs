//! Checking everything a schema holds.

use super::{
    covers::Covers,
    losses,
    walk::{HistoryPart, walk},
};
use crate::PostgresOptions;
use throng_journal::{
    Error, RecordKind,
    tools::{Finding, Verification},
};

/// Checks every commit's checksum, that commits are consecutive, that each entity's events are, and that the store has as many entities and
/// events as there are up to its checkpoint. Keeps one entry for each entity in memory.
///
/// # Errors
/// [`Error::Backend`]: there is no journal, or the server cannot be reached. [`Error::OtherVersion`]: another version. Damage is a finding,
/// not an error.
pub fn verify(options: &PostgresOptions) -> Result<Verification, Error> {
    let mut found = Verification::default();
    let store = Covers::read(options)?;
    let mut indexed = 0u64;
    walk(options, &mut |seen| {
        match seen {
            HistoryPart::Writer { .. } => found.writers += 1,
            HistoryPart::Commit(commit) => {
                found.commit(commit);
                let events = commit.records().flatten().filter(|record| {
                    record.record == RecordKind::Event && store.covers(record.shard, commit.position())
                });
                indexed += events.count() as u64;
            }
            HistoryPart::Damage(damage) => found.damages.push(damage.into()),
        }
        Ok(())
    })?;
    for loss in losses::open(options)? {
        found.damages.push(Finding {
            position: loss.covered.to_string(),
            place: "loss that is not accepted".into(),
            why: loss.to_string(),
        });
    }
    found.finish();
    found.store = match store.newest() {
        None => "it covers nothing yet".into(),
        Some(_) if found.removed_upto.is_some() => {
            format!("it covers everything up to commit {store}; events are not counted, because history was removed")
        }
        Some(_) if store.events == indexed => format!("it covers everything up to commit {store}"),
        Some(newest) => {
            found.damages.push(Finding {
                position: newest.to_string(),
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
