//! Reading back: commits in order, and single bodies.

use super::Log;
use crate::{
    files::read_exact_at,
    history::CommitPlace,
    recovery::segment_path,
    scan::{self, Window},
};
use std::{
    io,
    sync::{Arc, atomic::Ordering},
};
use throng_journal::{Commit, CommitNo, Error, Loss, Place, Position, Witness};

/// Bytes read at once while reading in order.
const PIECE_BYTES: usize = 1 << 20;

/// A commit and its place.
#[derive(Debug)]
pub(crate) struct Located {
    pub commit: Commit,
    pub segment: u64,
    pub offset: u64,
}

/// The pieces of a copy of the durable history.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    /// Segments, and how many bytes of each; `None`: the whole file.
    pub segments: Vec<(u64, Option<u64>)>,
    /// The last commit in them.
    pub upto: Position,
}

impl Log {
    /// Returns the commits after a position, with their places.
    pub(crate) fn read_located(&self, after: Position, bytes_max: usize) -> Result<Vec<Located>, Error> {
        loop {
            let rewritten = self.rewritten.load(Ordering::Acquire);
            let read = self.try_read_located(after, bytes_max);
            // A rewrite may have made a hole at the place.
            if read.is_ok() || rewritten == self.rewritten.load(Ordering::Acquire) {
                return read;
            }
        }
    }

    fn try_read_located(&self, after: Position, bytes_max: usize) -> Result<Vec<Located>, Error> {
        let (mut read, mut bytes) = (Vec::new(), 0);
        let mut due = Position::new(after.writer, after.commit.next());
        while let Some((found, offset)) = self.locate(due)? {
            let number = found.segment.number;
            let file = self.readers.get(number).map_err(self.reading(number))?;
            let piece_bytes = PIECE_BYTES.min(bytes_max).max(4096);
            let mut window = Window::with_piece(&*file, piece_bytes).map_err(self.reading(number))?;
            let mut at = offset;
            while due.commit <= found.segment_last {
                let commit = scan::commit_at(&mut window, number, at)
                    .map_err(self.reading(number))?
                    .map_err(|damage| self.damaged(due, number, at, damage.to_string()))?;
                let number_of = commit.stamp().number;
                if commit.stamp().writer != due.writer || !(commit.first()..=number_of).contains(&due.commit) {
                    return Err(self.damaged(due, number, at, format!("commit {} stands there", commit.position())));
                }
                bytes += match commit.record_count() {
                    0 => throng_journal::HEADER_BYTES,
                    _ => commit.bytes().len(),
                };
                if bytes > bytes_max && !read.is_empty() {
                    return Ok(read);
                }
                let offset = at;
                at = crate::header::align(at + commit.bytes().len() as u64);
                due.commit = number_of.next();
                read.push(Located {
                    commit: without_hole(commit, (number, offset)),
                    segment: number,
                    offset,
                });
            }
            if bytes >= bytes_max {
                break;
            }
        }
        Ok(read)
    }

    /// Reads the body of a record.
    pub(super) fn read_body(&self, place: Place) -> Result<Vec<u8>, Error> {
        let Some((found, offset)) = self.locate(place.position)? else {
            return Err(Error::NoCommit(place.position));
        };
        self.read_bytes(
            found.segment.number,
            offset + u64::from(place.offset),
            place.len as usize,
        )
    }

    /// Bytes of a segment.
    pub(crate) fn read_bytes(&self, segment: u64, offset: u64, length: usize) -> Result<Vec<u8>, Error> {
        let file = self.readers.get(segment).map_err(self.reading(segment))?;
        let mut bytes = vec![0; length];
        read_exact_at(&*file, &mut bytes, offset).map_err(self.reading(segment))?;
        Ok(bytes)
    }

    /// Returns the fingerprint that distinguishes the commit at a position (for commit 0, the stream's beginning) from any other; `None` if
    /// it is not in this log.
    pub(crate) fn fingerprint(&self, position: Position) -> Result<Option<u32>, Error> {
        if position.commit == CommitNo(0) {
            let state = self.shared.state();
            return Ok(state
                .history
                .beginning(position.writer)
                .map(|segment| segment.fingerprint));
        }
        let Some((found, offset)) = self.locate(position)? else {
            return Ok(None);
        };
        let header = self.read_bytes(found.segment.number, offset, throng_journal::HEADER_BYTES)?;
        Ok(Some(u32::from_le_bytes(header[52..56].try_into().expect("four bytes"))))
    }

    /// Returns a loss if the formerly durable commit at this position is missing from this log, or has another fingerprint.
    //= promise 10: damage is found
    pub(crate) fn loss(&self, covered: Position, fingerprint: u32) -> Result<Option<Loss>, Error> {
        if self.fingerprint(covered)? == Some(fingerprint) {
            return Ok(None);
        }
        let held = self.shared.state().history.newest_upto(covered);
        let witness = Witness::Store;
        Ok(Some(Loss { covered, held, witness }))
    }

    /// Returns the place of a commit. Reads the segment's directory first if it is not in memory.
    fn locate(&self, position: Position) -> Result<Option<(CommitPlace, u64)>, Error> {
        let Some(found) = self.shared.state().history.locate(position) else {
            return Ok(None);
        };
        if let Some(offset) = found.offset {
            return Ok(Some((found, offset)));
        }
        let segment = &found.segment;
        let file = self.readers.get(segment.number).map_err(self.reading(segment.number))?;
        let (directory, stop) = scan::directory(&*file, segment.writer, segment.first, found.segment_last)
            .map_err(self.reading(segment.number))?;
        let index = usize::try_from(position.commit.0 - segment.first.0).unwrap_or(usize::MAX);
        let sectors = directory.get(index).copied();
        let last = directory.last().copied();
        let reached = CommitNo(segment.first.0 + directory.len() as u64);
        self.shared
            .state()
            .history
            .keep_directory(segment.number, Arc::new(directory));
        match sectors {
            Some(sectors) => Ok(Some((found, scan::bytes_of(sectors)))),
            None => {
                let at = last.map_or(crate::header::DATA_AT, scan::bytes_of);
                let damaged = Position::new(position.writer, reached);
                let why = stop.unwrap_or_else(|| "the segment ends before it".into());
                Err(self.damaged(damaged, segment.number, at, format!("after the commit there: {why}")))
            }
        }
    }

    /// The segments that hold durable history, and where that ends.
    pub(crate) fn durable_pieces(&self) -> Result<Pieces, Error> {
        let (segments, last) = {
            let state = self.shared.state();
            let last = state.history.streams.last_key_value();
            let last = last.map(|(writer, stream)| Position::new(*writer, stream.last));
            let numbers: Vec<u64> = state.history.segments.iter().map(|segment| segment.number).collect();
            (numbers, last)
        };
        let Some(last) = last else {
            return Ok(Pieces::default());
        };
        // Segments begun after the last durable commit's hold none of it.
        let (ending, length) = match self.locate(last)? {
            None => (self.beginning_of(last), crate::header::DATA_AT),
            Some((found, offset)) => {
                let number = found.segment.number;
                let header = self.read_bytes(number, offset, throng_journal::HEADER_BYTES)?;
                let bytes =
                    Commit::length(&header).map_err(|damage| self.damaged(last, number, offset, damage.to_string()))?;
                (Some(number), crate::header::align(offset + bytes as u64))
            }
        };
        let counted = segments
            .into_iter()
            .filter(|number| ending.is_none_or(|ending| *number <= ending));
        let pieces = counted.map(|number| (number, (Some(number) == ending).then_some(length)));
        Ok(Pieces {
            segments: pieces.collect(),
            upto: last,
        })
    }

    fn beginning_of(&self, position: Position) -> Option<u64> {
        let state = self.shared.state();
        state.history.beginning(position.writer).map(|segment| segment.number)
    }

    fn reading(&self, segment: u64) -> impl FnOnce(io::Error) -> Error {
        Error::io(format!("reading {}", segment_path(&self.dir, segment).display()))
    }

    fn damaged(&self, position: Position, segment: u64, offset: u64, why: String) -> Error {
        Error::Damaged {
            position,
            place: format!("{} at offset {offset}", segment_path(&self.dir, segment).display()),
            why,
        }
    }
}

/// Drops the zeros of a commit that stands for others. It is as long as they were, and none of that is needed in memory.
fn without_hole(commit: Commit, (segment, offset): (u64, u64)) -> Commit {
    if commit.record_count() > 0 || commit.bytes().len() == throng_journal::HEADER_BYTES {
        return commit;
    }
    let replaced_by = commit.removal().and_then(|removal| removal.replaced_by);
    let mut small = commit.emptied(commit.stands_for(), replaced_by);
    small.seal(&crate::header::seed(segment, offset));
    small
}
