//! Writing a directory's history as JSON lines.

use super::{
    line::{EXPORT_VERSION, Line},
    walk::{Seen, walk},
};
use crate::Options;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::value::RawValue;
use std::{fmt, io::Write, path::Path};
use throng_journal::{Commit, Error, Record, WriterId};

/// How to export.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExportOptions {
    /// Go on behind damage and leave out what cannot be read. What is exported then has gaps and cannot be imported as it
    /// is. Default: stop with an error.
    pub skip_damage: bool,
}

/// What was exported.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Exported {
    /// Streams.
    pub writers: u64,
    /// Commits.
    pub commits: u64,
    /// Records, one a line.
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

/// Writes the whole history, one record a line, in the form [`import`](super::import) reads.
///
/// # Errors
/// Damage (unless it is to be skipped), the file system's, or the output's.
pub fn export(options: &Options, dir: &Path, out: &mut dyn Write, how: ExportOptions) -> Result<Exported, Error> {
    let mut lines = ExportLines::begin(out, how)?;
    let mut last_writer = WriterId(0);
    walk(options, dir, &mut |seen| match seen {
        Seen::Segment { header, .. } if header.writer != last_writer => {
            last_writer = header.writer;
            lines.writer(header.writer, &header.node)
        }
        Seen::Segment { .. } | Seen::Note { .. } => Ok(()),
        Seen::Commit { commit } => lines.commit(commit),
        Seen::Damage { position, place, why } => lines.damage(Error::Damaged { position, place, why }),
    })?;
    lines.finish()
}

/// The lines of an export, of whatever journal.
pub struct ExportLines<'a> {
    out: &'a mut dyn Write,
    how: ExportOptions,
    exported: Exported,
}

impl<'a> ExportLines<'a> {
    /// Begins an export.
    ///
    /// # Errors
    /// The output's.
    pub fn begin(out: &'a mut dyn Write, how: ExportOptions) -> Result<Self, Error> {
        write_line(
            out,
            &Line {
                throng_export: Some(EXPORT_VERSION),
                ..Line::default()
            },
        )?;
        Ok(Self {
            out,
            how,
            exported: Exported::default(),
        })
    }

    /// A writer's stream begins.
    ///
    /// # Errors
    /// The output's.
    pub fn writer(&mut self, writer: WriterId, node: &str) -> Result<(), Error> {
        self.exported.writers += 1;
        write_line(
            self.out,
            &Line {
                writer: Some(writer.0),
                node: Some(node.into()),
                ..Line::default()
            },
        )
    }

    /// The stream's next commit.
    ///
    /// # Errors
    /// The output's.
    pub fn commit(&mut self, commit: &Commit) -> Result<(), Error> {
        self.exported.commits += 1;
        self.exported.records += commit.record_count() as u64;
        write_commit(self.out, commit)
    }

    /// Something cannot be read: left out, or the end of the export, as the options say.
    ///
    /// # Errors
    /// The damage itself, unless it is to be skipped.
    pub fn damage(&mut self, damage: Error) -> Result<(), Error> {
        if !self.how.skip_damage {
            return Err(damage);
        }
        self.exported.skipped += 1;
        Ok(())
    }

    /// The end: everything is handed to the output.
    ///
    /// # Errors
    /// The output's.
    pub fn finish(self) -> Result<Exported, Error> {
        self.out.flush().map_err(Error::io("writing the export"))?;
        Ok(self.exported)
    }
}

fn write_commit(out: &mut dyn Write, commit: &Commit) -> Result<(), Error> {
    let stamp = commit.stamp();
    let line = Line {
        commit: Some(stamp.number.0),
        at_micros: Some(stamp.at_micros),
        ..Line::default()
    };
    if commit.record_count() == 0 {
        return write_line(out, &line);
    }
    for record in commit.records().flatten() {
        write_record(out, commit, &record)?;
    }
    Ok(())
}

fn write_record(out: &mut dyn Write, commit: &Commit, record: &Record<'_>) -> Result<(), Error> {
    let stamp = commit.stamp();
    let body = json_of(record.body);
    write_line(
        out,
        &Line {
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
            ..Line::default()
        },
    )
}

/// The body as JSON, if it is JSON that stands on a line byte by byte as it is.
fn json_of(body: &[u8]) -> Option<&RawValue> {
    let text = std::str::from_utf8(body).ok()?;
    if text.contains(['\n', '\r']) {
        return None;
    }
    let value: &RawValue = serde_json::from_str(text).ok()?;
    (value.get().len() == text.len() && text != "null").then_some(value)
}

fn write_line(out: &mut dyn Write, line: &Line<'_>) -> Result<(), Error> {
    serde_json::to_writer(&mut *out, line).map_err(|error| Error::io("writing the export")(error.into()))?;
    out.write_all(b"\n").map_err(Error::io("writing the export"))
}
