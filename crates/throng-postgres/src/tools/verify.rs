//! Checking everything a schema holds.

use super::walk::{PATIENCE, Seen, walk};
use crate::{PostgresOptions, database::Database};
use std::{collections::HashMap, fmt, sync::Arc};
use throng_journal::{Error, RecordKind};

/// Something found while checking.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// The commit it concerns, written `writer.commit`.
    pub position: String,
    /// Table and row, or the entity.
    pub place: String,
    /// What was expected and what was found.
    pub why: String,
}

/// What a check of a schema came to.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Verification {
    /// Streams met.
    pub writers: u64,
    /// Whole commits.
    pub commits: u64,
    /// Records in them.
    pub records: u64,
    /// Events among them.
    pub events: u64,
    /// Entities they belong to.
    pub entities: u64,
    /// Everything that is not as it was written.
    pub damages: Vec<Finding>,
    /// What became of checking the store: a sentence.
    pub store: String,
}

impl Verification {
    /// Nothing is damaged.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.damages.is_empty()
    }
}

impl fmt::Display for Verification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            writers,
            commits,
            records,
            events,
            entities,
            ..
        } = self;
        writeln!(
            f,
            "{writers} writers, {commits} commits, {records} records, {events} events of {entities} entities"
        )?;
        writeln!(f, "store: {}", self.store)?;
        for damage in &self.damages {
            writeln!(f, "damage at {} ({}): {}", damage.position, damage.place, damage.why)?;
        }
        match self.damages.len() {
            0 => write!(f, "sound"),
            1 => write!(f, "1 damage"),
            damages => write!(f, "{damages} damages"),
        }
    }
}

/// Checks every commit's checksum, that commits follow one another without a gap, that each entity's events do, and that the
/// store knows as many entities and events as there are up to its checkpoint. Holds one entry an entity in memory.
///
/// # Errors
/// Not reachable, another version, or no journal there. Damage is a finding, not an error.
pub fn verify(options: &PostgresOptions) -> Result<Verification, Error> {
    let mut found = Verification::default();
    let mut sequences: HashMap<Box<str>, u64> = HashMap::new();
    let store = store(options)?;
    let mut indexed = 0u64;
    walk(options, &mut |seen| {
        match seen {
            Seen::Writer { .. } => found.writers += 1,
            Seen::Commit(commit) => {
                found.commits += 1;
                let position = commit.position();
                for record in commit.records().flatten() {
                    found.records += 1;
                    if record.record != RecordKind::Event {
                        continue;
                    }
                    found.events += 1;
                    let is_covered = (position.writer.0, position.commit.0) <= store.covers;
                    indexed += u64::from(is_covered);
                    let entity = format!("{}/{}", record.kind, record.id);
                    let before = sequences.entry(entity.clone().into()).or_default();
                    if record.seq != *before + 1 {
                        found.damages.push(Finding {
                            position: position.to_string(),
                            place: entity,
                            why: format!("event {} follows event {before}", record.seq),
                        });
                    }
                    *before = record.seq;
                }
            }
            Seen::Damage(damage) => found.damages.push(finding(damage)),
        }
        Ok(())
    })?;
    found.entities = sequences.len() as u64;
    found.store = match store.covers {
        (0, 0) => "it covers nothing yet".into(),
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

fn finding(damage: Error) -> Finding {
    match damage {
        Error::Damaged { position, place, why } => Finding {
            position: position.to_string(),
            place,
            why,
        },
        other => Finding {
            position: "0.0".into(),
            place: String::new(),
            why: other.to_string(),
        },
    }
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
