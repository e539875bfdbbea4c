//! Reading an export into an empty directory.

use super::line::{EXPORT_VERSION, EXPORT_VERSION_UNCHECKED, End, ExportLine, Sum, kind_of};
use crate::{Log, Options, unfinished::Unfinished};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use std::{fmt, io::BufRead, path::Path};
use throng_journal::{
    Address, Append, COMMIT_BYTES_MAX, Commit, CommitBuilder, CommitNo, Durability, Error, Journal, Position, Record,
    ShardId, Stamp, WriterId, byte_order_mark,
    commit::{Buffer, ENTRY_BYTES},
};

/// The longest line, in bytes: a commit's largest record as base64, with its names.
const LINE_BYTES_MAX: usize = 16 << 20;

/// The result of an import.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Imported {
    /// The number of streams taken.
    pub writers: u64,
    /// The number of commits taken.
    pub commits: u64,
    /// The number of their records.
    pub records: u64,
}

impl fmt::Display for Imported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            writers,
            commits,
            records,
        } = self;
        write!(
            f,
            "imported {records} records in {commits} commits by {writers} writers"
        )
    }
}

/// The options of an import.
#[derive(Clone, Copy, Debug, Default)]
pub struct ImportOptions {
    /// Accepts lines without checksums and end, or with wrong checksums: from an older program, or edited deliberately. Default: only a
    /// complete, unchanged export.
    pub unchecked: bool,
}

/// Reads an [`export`](super::export) into a directory without a log: the same writers, commits, times, entities, sequence numbers and
/// bodies. The store is rebuilt at the first start.
///
/// # Errors
/// [`Error::Backend`]: a line cannot be imported; with its number and the reason. [`Error::Io`] of the file system. The directory is then
/// refused as a journal, until an import into it succeeds.
pub fn import(options: &Options, dir: &Path, input: &mut dyn BufRead, how: ImportOptions) -> Result<Imported, Error> {
    let (unfinished, lock) = Unfinished::begin(options, dir)?;
    let how_log = Options {
        // It is synced once, at its end.
        durability: Durability::Os,
        ..options.clone()
    };
    let log = Log::open_unfinished(dir.to_owned(), lock, how_log)?;
    let imported = import_into(&mut &log, input, how)?;
    log.sync()?;
    drop(log);
    unfinished.finish()?;
    Ok(imported)
}

/// A journal that takes an export in.
pub trait ImportTarget {
    /// Begins a writer's stream. The following commits belong to it, from number 1 on.
    ///
    /// # Errors
    /// The writer does not follow the one before, or the journal's error.
    fn begin(&mut self, writer: WriterId, node: &str) -> Result<(), Error>;

    /// Appends the stream's next commit. Returns its buffer for reuse.
    ///
    /// # Errors
    /// The journal's error.
    fn append(&mut self, commit: Commit) -> Result<Buffer, Error>;
}

impl ImportTarget for &Log {
    fn begin(&mut self, writer: WriterId, node: &str) -> Result<(), Error> {
        self.begin_imported(writer, node)
    }

    fn append(&mut self, commit: Commit) -> Result<Buffer, Error> {
        let refused = |why: String| Error::backend("writing a commit", why);
        let Append::Done(appended) = Journal::append(*self, commit) else {
            return Err(refused("the log did not take it at once".into()));
        };
        appended.result.map_err(|error| refused(error.to_string()))?;
        Ok(appended.buffer)
    }
}

/// Reads an export into any journal that holds nothing yet.
///
/// # Errors
/// [`Error::Backend`]: a line cannot be imported; with its number and the reason. Otherwise the journal's error.
pub fn import_into(
    target: &mut dyn ImportTarget,
    input: &mut dyn BufRead,
    how: ImportOptions,
) -> Result<Imported, Error> {
    let mut importer = Importer {
        target,
        open: CommitBuilder::default(),
        pending: None,
        stands_for: 0,
        replaced_by: None,
        writer: None,
        begun: false,
        ended: false,
        unchecked: how.unchecked,
        imported: Imported::default(),
    };
    let mut sum = Sum::default();
    let (mut text, mut number) = (String::new(), 0u64);
    loop {
        text.clear();
        number += 1;
        let read = std::io::Read::take(&mut *input, LINE_BYTES_MAX as u64).read_line(&mut text);
        if read.map_err(Error::io(format!("reading line {number} of the export")))? == 0 {
            break;
        }
        let refused = |why: String| Error::backend(format!("importing line {number}"), why);
        if text.len() >= LINE_BYTES_MAX {
            return Err(refused(format!("it is longer than {LINE_BYTES_MAX} bytes")));
        }
        if let Some(why) = byte_order_mark(text.as_bytes()) {
            return Err(refused(why.into()));
        }
        if !how.unchecked {
            sum.check(&text).map_err(|why| refused(why.into()))?;
        }
        let line: ExportLine<'_> = serde_json::from_str(&text).map_err(|error| refused(error.to_string()))?;
        importer.line(&line).map_err(|refusal| match refusal {
            Refusal::Line(why) => refused(why),
            Refusal::Log(error) => error,
        })?;
    }
    importer.finish(number).map_err(|refusal| match refusal {
        Refusal::Line(why) => Error::backend("importing the end", why),
        Refusal::Log(error) => error,
    })?;
    Ok(importer.imported)
}

enum Refusal {
    Line(String),
    Log(Error),
}

struct Importer<'a> {
    target: &'a mut dyn ImportTarget,
    open: CommitBuilder,
    /// The commit whose records are being read.
    pending: Option<Stamp>,
    /// The number of commits before it that it stands for.
    stands_for: u32,
    /// The commit that replaces the records taken from it, where none is left.
    replaced_by: Option<Position>,
    writer: Option<(WriterId, CommitNo)>,
    begun: bool,
    /// True once the last line, with the totals, was read.
    ended: bool,
    unchecked: bool,
    imported: Imported,
}

impl Importer<'_> {
    fn line(&mut self, line: &ExportLine<'_>) -> Result<(), Refusal> {
        if !self.begun {
            self.begun = true;
            return match line.throng_export {
                Some(EXPORT_VERSION) => Ok(()),
                Some(EXPORT_VERSION_UNCHECKED) if self.unchecked => Ok(()),
                Some(other) => Err(Refusal::Line(format!(
                    "the export has version {other}, this program reads {EXPORT_VERSION}"
                ))),
                None => Err(Refusal::Line("an export begins with {\"throng_export\":2}".into())),
            };
        }
        if self.ended {
            return Err(Refusal::Line("the export has ended before it".into()));
        }
        if let Some(end) = line.end {
            self.finish_commit()?;
            return self.end(end);
        }
        if let Some(writer) = line.writer {
            self.finish_commit()?;
            let node = line.node.as_deref().unwrap_or("local");
            self.target.begin(WriterId(writer), node).map_err(Refusal::Log)?;
            self.writer = Some((WriterId(writer), CommitNo(0)));
            self.imported.writers += 1;
            return Ok(());
        }
        self.commit_line(line)
    }

    fn commit_line(&mut self, line: &ExportLine<'_>) -> Result<(), Refusal> {
        let missing = |field: &str| Refusal::Line(format!("the field {field} is missing"));
        let number = CommitNo(line.commit.ok_or_else(|| missing("commit"))?);
        let at_micros = line.at_micros.ok_or_else(|| missing("at_micros"))?;
        let (writer, last) = self
            .writer
            .ok_or_else(|| Refusal::Line("a commit before any writer".into()))?;
        if self.pending.is_none_or(|pending| pending.number != number) {
            self.finish_commit()?;
            let before = line.removed.unwrap_or(0);
            if number.0.checked_sub(u64::from(before)) != Some(last.next().0) {
                return Err(Refusal::Line(format!(
                    "commit {number} follows commit {last} of writer {writer}"
                )));
            }
            self.writer = Some((writer, number));
            self.stands_for = before;
            self.replaced_by = Record {
                seq: line.seq.unwrap_or(0),
                version: line.version.unwrap_or(0),
                ..Record::filler(None)
            }
            .replaced_by()
            .filter(|_| line.record.is_none());
            self.pending = Some(Stamp::new(writer, number, at_micros));
        }
        let Some(word) = line.record.as_deref() else {
            return Ok(());
        };
        let record =
            kind_of(word).ok_or_else(|| Refusal::Line(format!("there is no kind of record named {word:?}")))?;
        let kind = line.kind.as_deref().ok_or_else(|| missing("kind"))?;
        let id = line.id.as_deref().ok_or_else(|| missing("id"))?;
        let name = line.name.as_deref().ok_or_else(|| missing("name"))?;
        for (field, text, bytes_max) in [
            ("kind", kind, Address::KIND_BYTES_MAX),
            ("id", id, Address::ID_BYTES_MAX),
            ("name", name, usize::from(u8::MAX)),
        ] {
            if text.len() > bytes_max {
                let why = format!(
                    "the field {field} has {} bytes, at most {bytes_max} are allowed",
                    text.len()
                );
                return Err(Refusal::Line(why));
            }
        }
        let decoded;
        let body = match (line.body, line.base64.as_deref()) {
            (Some(body), None) => body.get().as_bytes(),
            (None, Some(text)) => {
                decoded = BASE64_STANDARD
                    .decode(text)
                    .map_err(|error| Refusal::Line(format!("the field base64 cannot be read: {error}")))?;
                &decoded
            }
            _ => return Err(Refusal::Line("a record has one of the fields body and base64".into())),
        };
        let shard = ShardId(line.shard.ok_or_else(|| missing("shard"))?);
        let seq = line.seq.ok_or_else(|| missing("seq"))?;
        let version = line.version.ok_or_else(|| missing("version"))?;
        let bytes = self.open.bytes() + ENTRY_BYTES + kind.len() + id.len() + name.len() + body.len();
        if bytes > COMMIT_BYTES_MAX {
            return Err(Refusal::Line(format!(
                "with it commit {number} has {bytes} bytes, at most {COMMIT_BYTES_MAX} are allowed"
            )));
        }
        self.open
            .push_parts(record, shard, (kind, id), seq, (name, version), body);
        self.imported.records += 1;
        Ok(())
    }

    /// Checks the totals against those at the end of the export.
    fn end(&mut self, end: End) -> Result<(), Refusal> {
        self.ended = true;
        let Imported {
            writers,
            commits,
            records,
        } = self.imported;
        let found = End {
            writers,
            commits,
            records,
        };
        if end == found || self.unchecked {
            return Ok(());
        }
        Err(Refusal::Line(format!("it says {end:?}, found were {found:?}")))
    }

    /// Checks the end of the lines; `lines` is one more than their number.
    fn finish(&mut self, lines: u64) -> Result<(), Refusal> {
        self.finish_commit()?;
        if self.ended || self.unchecked {
            return Ok(());
        }
        let last = lines - 1;
        Err(Refusal::Line(format!(
            "the export was cut after line {last}: its last line, which says how much there is, is missing"
        )))
    }

    fn finish_commit(&mut self) -> Result<(), Refusal> {
        let Some(stamp) = self.pending.take() else {
            return Ok(());
        };
        let mut commit = self.open.finish(stamp);
        if commit.record_count() > 0 && self.stands_for > 0 {
            return Err(Refusal::Line(format!(
                "commit {} stands for others and has records",
                stamp.number
            )));
        }
        if commit.record_count() == 0 {
            commit = commit.emptied(self.stands_for, self.replaced_by);
        }
        let buffer = self.target.append(commit).map_err(Refusal::Log)?;
        self.open.recycle(buffer);
        self.imported.commits += 1;
        Ok(())
    }
}
