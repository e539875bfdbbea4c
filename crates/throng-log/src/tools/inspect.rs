//! Looking at what a directory holds.

use super::walk::{Seen, walk};
use crate::{Options, header};
use std::{collections::BTreeMap, fmt, path::Path};
use throng_journal::{Address, CommitNo, Error, Position, Record, RecordKind};

/// What to look at beside the summary.
#[derive(Clone, Debug)]
pub struct InspectOptions {
    /// Show this entity's records.
    pub entity: Option<Address>,
    /// Show the records of this commit.
    pub commit: Option<Position>,
    /// Records shown, at most. Default 1,000.
    pub records_max: usize,
}

impl Default for InspectOptions {
    fn default() -> Self {
        Self {
            entity: None,
            commit: None,
            records_max: 1000,
        }
    }
}

/// One segment.
#[derive(Clone, Debug, serde::Serialize)]
pub struct SegmentLine {
    /// Its file's name.
    pub file: String,
    /// Its file's length.
    pub bytes: u64,
    /// Whose commits it holds.
    pub writer: u64,
    /// The number of the first.
    pub first: u64,
    /// How many whole ones.
    pub commits: u64,
}

/// One writer's stream.
#[derive(Clone, Debug, serde::Serialize)]
pub struct WriterLine {
    /// Its id.
    pub writer: u64,
    /// The node it was a life of.
    pub node: String,
    /// Its whole commits.
    pub commits: u64,
    /// Their bytes.
    pub bytes: u64,
    /// When the first was made, microseconds since 1970-01-01 UTC; 0 without one.
    pub first_at_micros: i64,
    /// When the last was made.
    pub last_at_micros: i64,
}

/// One record, for a person.
#[derive(Clone, Debug, serde::Serialize)]
pub struct HistoryLine {
    /// Its commit, written `writer.commit`.
    pub position: String,
    /// When, microseconds since 1970-01-01 UTC.
    pub at_micros: i64,
    /// What it says: `event`, `sent`, …
    pub record: &'static str,
    /// The entity.
    pub entity: String,
    /// Its sequence number.
    pub seq: u64,
    /// Its name.
    pub name: String,
    /// The body, where it is text; else how long it is.
    pub body: String,
}

/// What a directory holds.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Inspection {
    /// The segments, in order.
    pub segments: Vec<SegmentLine>,
    /// The writers, in the order of history.
    pub writers: Vec<WriterLine>,
    /// Whole commits.
    pub commits: u64,
    /// How many records of each kind, entity kind and name.
    pub records: BTreeMap<String, u64>,
    /// The records asked for.
    pub history: Vec<HistoryLine>,
    /// More than were to be shown matched.
    pub history_cut: bool,
    /// Places that cannot be read or are worth knowing; [`verify`](super::verify) says more.
    pub findings: Vec<String>,
}

/// The word for a record's kind, here and in an export.
pub(super) fn word(kind: RecordKind) -> &'static str {
    kind.word()
}

/// Looks through a directory's history. Reads all of it, changes nothing.
///
/// # Errors
/// The file system's, another format version, or no log there.
pub fn inspect(options: &Options, dir: &Path, what: &InspectOptions) -> Result<Inspection, Error> {
    let mut found = Inspection::default();
    walk(options, dir, &mut |seen| {
        match seen {
            Seen::Segment { header, bytes } => found.segment(header, bytes),
            Seen::Commit { commit } => {
                let stamp = commit.stamp();
                found.commit(stamp.at_micros, commit.bytes().len() as u64);
                for record in commit.records().flatten() {
                    let name = format!("{} {} {}", word(record.record), record.kind, record.name);
                    *found.records.entry(name).or_default() += 1;
                    let of_entity = |entity: &Address| *entity.kind == *record.kind && *entity.id == *record.id;
                    let wanted = what.entity.as_ref().is_some_and(of_entity) || what.commit == Some(stamp.position());
                    if wanted {
                        found.show(&record, stamp.at_micros, what.records_max);
                    }
                }
            }
            Seen::Damage { position, place, why } => {
                found.findings.push(format!("damage at {position} ({place}): {why}"))
            }
            Seen::Note { place, why } => found.findings.push(format!("{place}: {why}")),
        }
        Ok(())
    })?;
    Ok(found)
}

impl Inspection {
    fn segment(&mut self, header: &header::Header, bytes: u64) {
        self.segments.push(SegmentLine {
            file: header::file_name(header.segment),
            bytes,
            writer: header.writer.0,
            first: header.first.0,
            commits: 0,
        });
        if self.writers.last().is_none_or(|last| last.writer != header.writer.0) {
            self.writers.push(WriterLine {
                writer: header.writer.0,
                node: header.node.clone(),
                commits: 0,
                bytes: 0,
                first_at_micros: 0,
                last_at_micros: 0,
            });
        }
    }

    fn commit(&mut self, at_micros: i64, bytes: u64) {
        self.commits += 1;
        if let Some(segment) = self.segments.last_mut() {
            segment.commits += 1;
        }
        if let Some(writer) = self.writers.last_mut() {
            if writer.commits == 0 {
                writer.first_at_micros = at_micros;
            }
            writer.last_at_micros = at_micros;
            writer.commits += 1;
            writer.bytes += bytes;
        }
    }

    fn show(&mut self, record: &Record<'_>, at_micros: i64, records_max: usize) {
        if self.history.len() >= records_max {
            self.history_cut = true;
            return;
        }
        self.history.push(HistoryLine {
            position: record.place.position.to_string(),
            at_micros,
            record: word(record.record),
            entity: format!("{}/{}", record.kind, record.id),
            seq: record.seq,
            name: record.name.to_owned(),
            body: match std::str::from_utf8(record.body) {
                Ok(text) => text.to_owned(),
                Err(_) => format!("({} bytes)", record.body.len()),
            },
        });
    }
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} commits in {} segments", self.commits, self.segments.len())?;
        for segment in &self.segments {
            let from = Position {
                writer: throng_journal::WriterId(segment.writer),
                commit: CommitNo(segment.first),
            };
            writeln!(
                f,
                "  {}  {} bytes, {} commits from {from}",
                segment.file, segment.bytes, segment.commits
            )?;
        }
        for writer in &self.writers {
            let WriterLine {
                writer,
                node,
                commits,
                bytes,
                ..
            } = writer;
            writeln!(f, "writer {writer} (node {node}): {commits} commits, {bytes} bytes")?;
        }
        for (name, records) in &self.records {
            writeln!(f, "  {records} × {name}")?;
        }
        for line in &self.history {
            let HistoryLine {
                position,
                record,
                entity,
                seq,
                name,
                body,
                ..
            } = line;
            writeln!(f, "{position} {entity} {record} {seq} {name} {body}")?;
        }
        if self.history_cut {
            writeln!(f, "… more than {} records match", self.history.len())?;
        }
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        Ok(())
    }
}
