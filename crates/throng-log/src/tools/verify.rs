//! Checking everything a directory holds.

use super::walk::{Seen, walk};
use crate::{Log, Options, store};
use std::{collections::HashMap, fmt, path::Path, sync::Arc};
use throng_journal::{CommitNo, Error, RecordKind, WriterId};

/// Something found while checking.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// The commit it concerns, written `writer.commit`; `0.0` where none can be named.
    pub position: String,
    /// File and offset, or the entity.
    pub place: String,
    /// What was expected and what was found.
    pub why: String,
}

/// What a check of a directory came to.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Verification {
    /// Segments read.
    pub segments: u64,
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
    /// What is worth knowing and no loss, such as an unfinished end after a crash.
    pub notes: Vec<Finding>,
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
        writeln!(
            f,
            "{} segments, {} writers, {} commits, {} records, {} events of {} entities",
            self.segments, self.writers, self.commits, self.records, self.events, self.entities
        )?;
        writeln!(f, "store: {}", self.store)?;
        for note in &self.notes {
            writeln!(f, "note: {}: {}", note.place, note.why)?;
        }
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

/// Checks every header, every commit's checksum and padding, that commits follow one another without a gap, and that
/// each entity's events do; the store too, where no engine is using the directory. Holds one entry an entity in memory.
///
/// # Errors
/// The file system's, another format version, or no log there. Damage is a finding, not an error.
pub fn verify(options: &Options, dir: &Path) -> Result<Verification, Error> {
    let mut found = Verification::default();
    let mut sequences: HashMap<Box<str>, u64> = HashMap::new();
    let mut last_writer = WriterId(0);
    walk(options, dir, &mut |seen| {
        match seen {
            Seen::Segment { header, .. } => {
                found.segments += 1;
                found.writers += u64::from(header.writer != last_writer);
                last_writer = header.writer;
            }
            Seen::Commit { commit } => {
                found.commits += 1;
                for record in commit.records().flatten() {
                    found.records += 1;
                    if record.record != RecordKind::Event {
                        continue;
                    }
                    found.events += 1;
                    let entity = format!("{}/{}", record.kind, record.id);
                    let before = sequences.entry(entity.clone().into()).or_default();
                    if record.seq != *before + 1 {
                        found.damages.push(Finding {
                            position: commit.position().to_string(),
                            place: entity,
                            why: format!("event {} follows event {before}", record.seq),
                        });
                    }
                    *before = record.seq;
                }
            }
            Seen::Damage { position, place, why } => found.damages.push(Finding {
                position: position.to_string(),
                place,
                why,
            }),
            Seen::Note { place, why } => found.notes.push(Finding {
                position: "0.0".into(),
                place,
                why,
            }),
        }
        Ok(())
    })?;
    found.entities = sequences.len() as u64;
    found.store = verify_store(options, dir, &mut found.damages);
    Ok(found)
}

/// The store's own checksums, and that it fits the log.
fn verify_store(options: &Options, dir: &Path, damages: &mut Vec<Finding>) -> String {
    let path = dir.join(store::STORE_NAME);
    let names = options.files.list(dir).unwrap_or_default();
    if !names.iter().any(|name| name == store::STORE_NAME) {
        return "there is none; it is rebuilt from the journal".into();
    }
    let log = match Log::open(dir, options.clone()) {
        Ok(log) => Arc::new(log),
        Err(Error::InUse { what }) => return format!("not checked: {what} is in use"),
        Err(_) => return "not checked: the log is damaged".into(),
    };
    match store::check(&log, &path) {
        Ok(covers) if covers.commit == CommitNo(0) && covers.writer == WriterId(0) => {
            "sound; it covers nothing yet".into()
        }
        Ok(covers) => format!("sound; it covers everything up to commit {covers}"),
        Err(error) => {
            damages.push(Finding {
                position: "0.0".into(),
                place: path.display().to_string(),
                why: format!("{error}; remove it while nothing runs: it is rebuilt from the journal"),
            });
            "damaged".into()
        }
    }
}
