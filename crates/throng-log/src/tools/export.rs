//! Writing a directory's history as JSON lines.

use super::{
    line::{EXPORT_VERSION, End, ExportLine, Sum},
    walk::{HistoryPart, walk},
};
use crate::Options;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::value::RawValue;
use std::{fmt, io::Write, path::Path};
use throng_journal::{Commit, Error, Record, RecordKind, WriterId};

/// The options of an export.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExportOptions {
    /// Continues after damage and leaves out what cannot be read. The export then has gaps and cannot be imported as it is. Default: stop
    /// with an error.
    pub skip_damage: bool,
}

/// The result of an export.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Exported {
    /// The number of streams written.
    pub writers: u64,
    /// The number of commits written.
    pub commits: u64,
    /// The number of records written, one a line.
    pub records: u64,
    /// Damaged places left out.
    pub skipped: u64,
}

impl fmt::Display for Exported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            writers,
            commits,
            records,
            skipped,
        } = self;
        write!(
            f,
            "exported {records} records of {commits} commits by {writers} writers"
        )?;
        if *skipped > 0 {
            write!(f, ", {skipped} damaged places left out")?;
        }
        Ok(())
    }
}

/// Writes the whole history, one record a line, in the format that [`import`](super::import) reads.
///
/// # Errors
/// [`Error::Damaged`], unless damage is to be skipped; [`Error::Io`] of the file system or the output.
pub fn export(options: &Options, dir: &Path, out: &mut dyn Write, how: ExportOptions) -> Result<Exported, Error> {
    let mut lines = ExportLines::begin(out, how)?;
    let mut last_writer = WriterId(0);
    walk(options, dir, &mut |seen| match seen {
        HistoryPart::Segment { header, .. } if header.writer != last_writer => {
            last_writer = header.writer;
            lines.writer(header.writer, &header.node)
        }
        HistoryPart::Segment { .. } | HistoryPart::Note { .. } => Ok(()),
        HistoryPart::Commit { commit } => lines.commit(commit),
        HistoryPart::Damage { position, place, why } => lines.damage(Error::Damaged { position, place, why }),
    })?;
    lines.finish()
}

/// The lines of an export, of any journal.
pub struct ExportLines<'a> {
    out: &'a mut dyn Write,
    how: ExportOptions,
    exported: Exported,
    sum: Sum,
    /// The line being written.
    line: Vec<u8>,
}

impl<'a> ExportLines<'a> {
    /// Begins an export.
    ///
    /// # Errors
    /// [`Error::Io`] of the output.
    pub fn begin(out: &'a mut dyn Write, how: ExportOptions) -> Result<Self, Error> {
        let mut lines = Self {
            out,
            how,
            exported: Exported::default(),
            sum: Sum::default(),
            line: Vec::new(),
        };
        lines.write(&ExportLine {
            throng_export: Some(EXPORT_VERSION),
            ..ExportLine::default()
        })?;
        Ok(lines)
    }

    /// Writes the beginning of a writer's stream.
    ///
    /// # Errors
    /// [`Error::Io`] of the output.
    pub fn writer(&mut self, writer: WriterId, node: &str) -> Result<(), Error> {
        self.exported.writers += 1;
        self.write(&ExportLine {
            writer: Some(writer.0),
            node: Some(node.into()),
            ..ExportLine::default()
        })
    }

    /// Writes the stream's next commit.
    ///
    /// # Errors
    /// [`Error::Io`] of the output.
    pub fn commit(&mut self, commit: &Commit) -> Result<(), Error> {
        self.exported.commits += 1;
        self.write_commit(commit)
    }

    /// Reports something that cannot be read: it is left out, or ends the export, according to the options.
    ///
    /// # Errors
    /// [`Error::Damaged`], unless damage is to be skipped.
    pub fn damage(&mut self, damage: Error) -> Result<(), Error> {
        if !self.how.skip_damage {
            return Err(damage);
        }
        self.exported.skipped += 1;
        Ok(())
    }

    /// Writes the end, and flushes the output.
    ///
    /// # Errors
    /// [`Error::Io`] of the output.
    pub fn finish(mut self) -> Result<Exported, Error> {
        let Exported {
            writers,
            commits,
            records,
            ..
        } = self.exported;
        self.write(&ExportLine {
            end: Some(End {
                writers,
                commits,
                records,
            }),
            ..ExportLine::default()
        })?;
        self.out.flush().map_err(Error::io("writing the export"))?;
        Ok(self.exported)
    }

    fn write_commit(&mut self, commit: &Commit) -> Result<(), Error> {
        let stamp = commit.stamp();
        let removal = commit.removal();
        let filler = Record::filler(removal.and_then(|removal| removal.replaced_by));
        if commit.record_count() == 0 {
            return self.write(&ExportLine {
                commit: Some(stamp.number.0),
                at_micros: Some(stamp.at_micros),
                removed: Some(commit.stands_for()).filter(|before| *before > 0),
                seq: filler.replaced_by().map(|_| filler.seq),
                version: filler.replaced_by().map(|_| filler.version),
                ..ExportLine::default()
            });
        }
        let left = commit.records().flatten();
        let left = left.filter(|record| record.record != RecordKind::Removed);
        for record in left.chain(removal.map(|_| filler)) {
            self.exported.records += 1;
            self.write_record(commit, &record)?;
        }
        Ok(())
    }

    fn write_record(&mut self, commit: &Commit, record: &Record<'_>) -> Result<(), Error> {
        let stamp = commit.stamp();
        let body = json_of(record.body);
        self.write(&ExportLine {
            commit: Some(stamp.number.0),
            at_micros: Some(stamp.at_micros),
            record: Some(record.record.word().into()),
            shard: Some(record.shard.0),
            kind: Some(record.kind.into()),
            id: Some(record.id.into()),
            seq: Some(record.seq),
            name: Some(record.name.into()),
            version: Some(record.version),
            base64: match body {
                Some(_) => None,
                None => Some(BASE64_STANDARD.encode(record.body).into()),
            },
            body,
            ..ExportLine::default()
        })
    }

    fn write(&mut self, line: &ExportLine<'_>) -> Result<(), Error> {
        let writing = || Error::io("writing the export");
        self.line.clear();
        serde_json::to_writer(&mut self.line, line).map_err(|error| writing()(error.into()))?;
        self.sum.seal(&mut self.line);
        self.line.push(b'\n');
        self.out.write_all(&self.line).map_err(writing())
    }
}

/// Returns the body as JSON, if it is JSON that can be part of a line unchanged.
fn json_of(body: &[u8]) -> Option<&RawValue> {
    let text = std::str::from_utf8(body).ok()?;
    if text.contains(['\n', '\r']) {
        return None;
    }
    let value: &RawValue = serde_json::from_str(text).ok()?;
    (value.get().len() == text.len() && text != "null").then_some(value)
}
