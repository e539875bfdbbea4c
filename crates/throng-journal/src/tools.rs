//! The output of every journal's tools: the contents of a history, and its faults. Each backend walks its own history and adds what is
//! specific to it.

use crate::{Address, Commit, Error, Position, Record, RecordKind, WriterId, loss};
use serde::Serialize;
use std::{
    collections::{BTreeMap, HashMap},
    fmt,
};

/// The parts to show besides the summary.
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
            records_max: 1_000,
        }
    }
}

/// The stream of a writer.
#[derive(Clone, Debug, Serialize)]
pub struct WriterLine {
    /// The writer's number, from 1; each epoch of an engine has its own.
    pub writer: u64,
    /// The node of the epoch.
    pub node: String,
    /// True if it can commit nothing more; `None` if the journal does not record that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sealed: Option<bool>,
    /// Its whole commits.
    pub commits: u64,
    /// The bytes of these in the journal, with their headers.
    pub bytes: u64,
    /// The time of the first, microseconds since 1970-01-01 UTC; 0 without one.
    pub first_at_micros: i64,
    /// The time of the last.
    pub last_at_micros: i64,
}

/// A record, for a person.
#[derive(Clone, Debug, Serialize)]
pub struct HistoryLine {
    /// Its commit, written `writer.commit`.
    pub position: String,
    /// The time in microseconds since 1970-01-01 UTC.
    pub at_micros: i64,
    /// The record's kind: `event`, `sent`, …
    pub record: &'static str,
    /// The entity it belongs to, as `kind/id`.
    pub entity: String,
    /// Its sequence number.
    pub seq: u64,
    /// The name of the event, command or timer, or the idempotency key; for a message that was taken, the outcome.
    pub name: String,
    /// The body if it is text; else its length.
    pub body: String,
}

/// The contents of a history.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Contents {
    /// The writers, in the order of history.
    pub writers: Vec<WriterLine>,
    /// Commits that are whole.
    pub commits: u64,
    /// The number of records by kind, entity kind and name.
    pub records: BTreeMap<String, u64>,
    /// The requested records.
    pub history: Vec<HistoryLine>,
    /// True if more records matched than are shown.
    pub history_cut: bool,
    /// Places that cannot be read or are noteworthy. A check has details.
    pub findings: Vec<String>,
}

impl Contents {
    /// A writer's stream begins.
    pub fn writer(&mut self, writer: WriterId, node: &str, sealed: Option<bool>) {
        self.writers.push(WriterLine {
            writer: writer.0,
            node: node.to_owned(),
            sealed,
            commits: 0,
            bytes: 0,
            first_at_micros: 0,
            last_at_micros: 0,
        });
    }

    /// The next commit of the last writer's stream.
    pub fn commit(&mut self, commit: &Commit, what: &InspectOptions) {
        let stamp = commit.stamp();
        self.commits += 1;
        if let Some(writer) = self.writers.last_mut() {
            if writer.commits == 0 {
                writer.first_at_micros = stamp.at_micros;
            }
            writer.last_at_micros = stamp.at_micros;
            writer.commits += 1;
            writer.bytes += commit.bytes().len() as u64;
        }
        for record in commit.records().flatten() {
            let name = format!("{} {} {}", record.record.word(), record.kind, record.name);
            *self.records.entry(name).or_default() += 1;
            let of_entity = |entity: &Address| *entity.kind == *record.kind && *entity.id == *record.id;
            if what.entity.as_ref().is_some_and(of_entity) || what.commit == Some(stamp.position()) {
                self.show(&record, stamp.at_micros, what.records_max);
            }
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
            record: record.record.word(),
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

impl fmt::Display for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.writers {
            let WriterLine {
                writer,
                node,
                commits,
                bytes,
                ..
            } = line;
            let state = match line.sealed {
                Some(true) => Some("sealed".to_owned()),
                Some(false) => Some("open".to_owned()),
                None => None,
            };
            // A service that runs alone has this name, unless it is given another.
            let node = (node != "node").then(|| format!("node {node}"));
            let of: Vec<String> = node.into_iter().chain(state).collect();
            let of = match &of[..] {
                [] => String::new(),
                of => format!(" ({})", of.join(", ")),
            };
            writeln!(f, "writer {writer}{of}: {commits} commits, {bytes} bytes")?;
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

/// Something found while checking.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The commit it concerns, written `writer.commit`; `0.0` if none can be named.
    pub position: String,
    /// The place (file and offset, table and row), or the entity.
    pub place: String,
    /// The expectation and the finding.
    pub why: String,
}

impl From<Error> for Finding {
    fn from(error: Error) -> Self {
        let said = error.to_string();
        match error {
            Error::Damaged { position, place, why } => Self {
                position: position.to_string(),
                place,
                why,
            },
            Error::Lost { place, loss } => Self {
                position: loss.covered.to_string(),
                place,
                why: said,
            },
            _ => Self {
                position: "0.0".into(),
                place: String::new(),
                why: said,
            },
        }
    }
}

/// The result of a check of a history.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Verification {
    /// Segments read, where the journal has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segments: Option<u64>,
    /// The number of streams met.
    pub writers: u64,
    /// Commits that are whole.
    pub commits: u64,
    /// Records in them.
    pub records: u64,
    /// Events among them.
    pub events: u64,
    /// Entities they belong to.
    pub entities: u64,
    /// Everything that differs from what was written.
    pub damages: Vec<Finding>,
    /// Findings that are no loss, such as an unfinished end after a crash.
    pub notes: Vec<Finding>,
    /// The last commit from which retention or an erasure has removed something, written `writer.commit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removed_upto: Option<String>,
    /// The time of that commit, microseconds since 1970-01-01 UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removed_upto_micros: Option<i64>,
    /// The number of commits without any record left.
    pub removed_commits: u64,
    /// The result of checking the store: a sentence.
    pub store: String,
    /// Each entity's last event.
    #[serde(skip)]
    last: HashMap<Box<str>, u64>,
    /// Entities with missing events, and the fault that this is unless a later record has their state.
    #[serde(skip)]
    unfounded: HashMap<Box<str>, (u64, Finding)>,
}

impl Verification {
    /// Checks the next commit: each entity's events are consecutive. Returns the number of its events.
    pub fn commit(&mut self, commit: &Commit) -> u64 {
        self.commits += 1 + u64::from(commit.stands_for());
        let before = self.events;
        if commit.record_count() == 0 {
            self.removed_commits += 1 + u64::from(commit.stands_for());
            self.removed(commit);
        }
        for record in commit.records().flatten() {
            if record.record == RecordKind::Removed {
                self.removed(commit);
                continue;
            }
            self.records += 1;
            if matches!(record.record, RecordKind::State | RecordKind::Ended) {
                let entity: Box<str> = format!("{}/{}", record.kind, record.id).into();
                let founded = self
                    .unfounded
                    .get(&entity)
                    .is_some_and(|(seq, _)| *seq <= record.seq + 1);
                if founded {
                    self.unfounded.remove(&entity);
                }
                let last = self.last.entry(entity).or_default();
                *last = record.seq.max(*last);
                continue;
            }
            if record.record == RecordKind::Loss {
                self.damages.push(Finding {
                    position: commit.position().to_string(),
                    place: "accepted loss".into(),
                    why: loss::told(&record),
                });
            }
            if record.record != RecordKind::Event {
                continue;
            }
            self.events += 1;
            let entity = format!("{}/{}", record.kind, record.id);
            let last = self.last.entry(entity.clone().into()).or_default();
            if record.seq != *last + 1 {
                let finding = Finding {
                    position: commit.position().to_string(),
                    place: entity.clone(),
                    why: format!("event {} follows event {last}", record.seq),
                };
                // Earlier events may have been removed: a later record then has the entity's state.
                self.unfounded.insert(entity.into(), (record.seq, finding));
            }
            *last = record.seq;
        }
        self.entities = self.last.len() as u64;
        self.events - before
    }

    fn removed(&mut self, commit: &Commit) {
        self.removed_upto = Some(commit.position().to_string());
        self.removed_upto_micros = Some(commit.stamp().at_micros);
    }

    /// Ends the check after the last commit.
    pub fn finish(&mut self) {
        let mut unfounded: Vec<Finding> = self.unfounded.drain().map(|(_, (_, finding))| finding).collect();
        unfounded.sort_by(|one, other| one.place.cmp(&other.place));
        self.damages.append(&mut unfounded);
    }

    /// True if nothing is damaged.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.damages.is_empty()
    }
}

/// Microseconds since 1970-01-01 UTC as RFC 3339 writes them, to the second.
#[must_use]
pub fn date(micros: i64) -> String {
    let at = jiff::Timestamp::from_second(micros.div_euclid(1_000_000));
    at.map_or_else(|_| format!("{micros} µs after 1970-01-01"), |at| at.to_string())
}

impl fmt::Display for Verification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(segments) = self.segments {
            write!(f, "{segments} segments, ")?;
        }
        writeln!(
            f,
            "{} writers, {} commits, {} records, {} events of {} entities",
            self.writers, self.commits, self.records, self.events, self.entities
        )?;
        if let (Some(upto), Some(micros)) = (&self.removed_upto, self.removed_upto_micros) {
            writeln!(
                f,
                "history up to commit {upto}, made {}, was removed in whole or in part: nothing is left of {} commits",
                date(micros),
                self.removed_commits
            )?;
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CommitBuilder, CommitNo, ShardId, Stamp};

    #[test]
    fn events_are_missed_where_no_later_state_replaces_them() {
        let found = |records: &[(RecordKind, u64)]| {
            let mut open = CommitBuilder::default();
            for (record, seq) in records {
                open.push(*record, ShardId(1), &Address::new("k", "a"), *seq, "", 0, b"");
            }
            let mut found = Verification::default();
            found.commit(&open.finish(Stamp::new(WriterId(1), CommitNo(1), 5)));
            found.finish();
            let damages = found.damages.into_iter();
            damages.map(|finding| finding.why).collect::<Vec<_>>()
        };
        let (event, state) = (|seq| (RecordKind::Event, seq), |seq| (RecordKind::State, seq));
        assert!(found(&[event(1), event(2)]).is_empty());
        assert_eq!(found(&[event(1), event(3)]), ["event 3 follows event 1"]);
        assert!(found(&[event(7), state(7)]).is_empty());
        assert_eq!(found(&[event(7), state(5)]), ["event 7 follows event 0"]);
        // A pass has kept an older state and removed the events after it.
        assert!(found(&[state(5), event(9), state(9), event(10)]).is_empty());
        assert_eq!(found(&[state(5), event(9)]), ["event 9 follows event 5"]);
    }

    #[test]
    fn a_check_says_when_in_dates() {
        let found = Verification {
            removed_upto: Some("3.1071".into()),
            removed_upto_micros: Some(1_763_834_400_500_000),
            ..Verification::default()
        };
        let said = found.to_string();
        assert!(
            said.contains("up to commit 3.1071, made 2025-11-22T18:00:00Z, was removed"),
            "{said}"
        );
        assert_eq!(date(-1), "1969-12-31T23:59:59Z");
    }
}
