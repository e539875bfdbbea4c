//! Inspection of a directory.

use super::walk::{HistoryPart, walk};
use crate::{Options, header};
use std::{fmt, path::Path};
use throng_journal::{
    CommitNo, Error, Position,
    tools::{Contents, InspectOptions},
};

/// A segment, by its header and commits.
#[derive(Clone, Debug, serde::Serialize)]
pub struct SegmentLine {
    /// Its file's name.
    pub file: String,
    /// Its file's length.
    pub bytes: u64,
    /// The writer of its commits.
    pub writer: u64,
    /// The number of the first.
    pub first: u64,
    /// The number of whole commits.
    pub commits: u64,
}

/// The contents of a directory.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Inspection {
    /// The segments, in order.
    pub segments: Vec<SegmentLine>,
    /// The records in them.
    #[serde(flatten)]
    pub contents: Contents,
}

/// Inspects a directory's history. It reads all of it and changes nothing.
///
/// # Errors
/// [`Error::Backend`]: there is no log. [`Error::OtherVersion`]: another format. [`Error::Io`] of the file system.
pub fn inspect(options: &Options, dir: &Path, what: &InspectOptions) -> Result<Inspection, Error> {
    let mut found = Inspection::default();
    walk(options, dir, &mut |seen| {
        match seen {
            HistoryPart::Segment { header, bytes } => found.segment(header, bytes),
            HistoryPart::Commit { commit } => {
                if let Some(segment) = found.segments.last_mut() {
                    segment.commits += 1;
                }
                found.contents.commit(commit, what);
            }
            HistoryPart::Damage { position, place, why } => found
                .contents
                .findings
                .push(format!("damage at {position} ({place}): {why}")),
            HistoryPart::Note { place, why } => found.contents.findings.push(format!("{place}: {why}")),
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
        let writers = &self.contents.writers;
        if writers.last().is_none_or(|last| last.writer != header.writer.0) {
            self.contents.writer(header.writer, &header.node, None);
        }
    }
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} commits in {} segments",
            self.contents.commits,
            self.segments.len()
        )?;
        for segment in &self.segments {
            let from = Position::new(throng_journal::WriterId(segment.writer), CommitNo(segment.first));
            writeln!(
                f,
                "  {}  {} bytes, {} commits from {from}",
                segment.file, segment.bytes, segment.commits
            )?;
        }
        self.contents.fmt(f)
    }
}
