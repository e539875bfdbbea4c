//! Walking the commits of one segment.

use crate::{
    files::File,
    header::{DATA_AT, SECTOR_BYTES, align, seed},
};
use std::io;
use throng_journal::{Commit, CommitNo, Damage, HEADER_BYTES, WriterId};

/// Bytes read at once while walking.
const WINDOW_BYTES: usize = 256 << 10;

/// A segment's file, read in large pieces.
pub(crate) struct Window<'a> {
    file: &'a dyn File,
    length: u64,
    bytes: Vec<u8>,
    at: u64,
    piece_bytes: usize,
}

impl<'a> Window<'a> {
    pub(crate) fn new(file: &'a dyn File) -> io::Result<Self> {
        Self::with_piece(file, WINDOW_BYTES)
    }

    pub(crate) fn with_piece(file: &'a dyn File, piece_bytes: usize) -> io::Result<Self> {
        Ok(Self {
            length: file.length()?,
            file,
            bytes: Vec::new(),
            at: 0,
            piece_bytes,
        })
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// `length` bytes from `offset` on, or fewer at the file's end.
    pub(crate) fn get(&mut self, offset: u64, length: usize) -> io::Result<&[u8]> {
        let left = usize::try_from(self.length.saturating_sub(offset)).unwrap_or(usize::MAX);
        let length = length.min(left);
        let have = self.at..self.at + self.bytes.len() as u64;
        if length > 0 && !(have.contains(&offset) && offset + length as u64 <= have.end) {
            let piece = length.max(self.piece_bytes).min(left);
            self.bytes.resize(piece, 0);
            self.at = offset;
            let read = self.file.read_at(&mut self.bytes, offset)?;
            self.bytes.truncate(read);
        }
        let from = usize::try_from(offset.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let from = from.min(self.bytes.len());
        Ok(&self.bytes[from..(from + length).min(self.bytes.len())])
    }
}

/// The whole commit that begins at `offset`, checked.
pub(crate) fn commit_at(window: &mut Window<'_>, segment: u64, offset: u64) -> io::Result<Result<Commit, Damage>> {
    let length = match Commit::length(window.get(offset, HEADER_BYTES)?) {
        Ok(length) => length,
        Err(damage) => return Ok(Err(damage)),
    };
    let bytes = window.get(offset, length)?;
    if bytes.len() < length {
        return Ok(Err(Damage::Short {
            expected: length,
            found: bytes.len(),
        }));
    }
    Ok(Commit::parse(bytes.to_vec(), &seed(segment, offset)))
}

/// Commits of one writer that stand one behind the other, with consecutive numbers.
#[derive(Debug)]
pub(crate) struct Run {
    /// The sectors at which the commits begin.
    pub sectors: Vec<u32>,
    /// The offset at which the next one would begin.
    pub end: u64,
    /// The number that the next one would have.
    pub next: CommitNo,
    /// The newest commit that one of them calls synced.
    pub synced: CommitNo,
    /// The finding at `end` instead of a commit.
    pub stop: String,
}

/// Follows the commits of a segment from `offset` on, where commit `next` of `writer` is due. Every commit is checked completely.
pub(crate) fn follow(
    window: &mut Window<'_>,
    segment: u64,
    writer: WriterId,
    next: CommitNo,
    offset: u64,
) -> io::Result<Run> {
    follow_each(window, segment, writer, next, offset, &mut |_| {})
}

/// Works like [`follow`], and shows each commit.
pub(crate) fn follow_each(
    window: &mut Window<'_>,
    segment: u64,
    writer: WriterId,
    next: CommitNo,
    offset: u64,
    visit: &mut dyn FnMut(&Commit),
) -> io::Result<Run> {
    let mut run = Run {
        sectors: Vec::new(),
        end: offset,
        next,
        synced: CommitNo(0),
        stop: String::new(),
    };
    loop {
        let commit = match commit_at(window, segment, run.end)? {
            Ok(commit) => commit,
            Err(damage) => {
                run.stop = damage.to_string();
                return Ok(run);
            }
        };
        let stamp = commit.stamp();
        if stamp.writer != writer || commit.first() != run.next {
            run.stop = format!("commit {} where {writer}.{} was due", stamp.position(), run.next);
            return Ok(run);
        }
        visit(&commit);
        // A commit that stands for others is at the place of each of them.
        let places = std::iter::repeat_n(sectors(run.end), 1 + commit.stands_for() as usize);
        run.sectors.extend(places);
        run.synced = run.synced.max(stamp.synced);
        run.end = align(run.end + commit.bytes().len() as u64);
        run.next = stamp.number.next();
    }
}

/// Returns the newest commit of `writer` that any complete commit at or after `offset` calls synced, if it is `due` or newer. It proves
/// that the missing commits were there.
pub(crate) fn proof(
    window: &mut Window<'_>,
    segment: u64,
    writer: WriterId,
    due: CommitNo,
    offset: u64,
) -> io::Result<Option<CommitNo>> {
    let mut at = align(offset);
    while at < window.length() {
        let head = window.get(at, HEADER_BYTES)?;
        if Commit::length(head).is_ok()
            && let Ok(commit) = commit_at(window, segment, at)?
        {
            let stamp = commit.stamp();
            if stamp.writer == writer && stamp.synced >= due {
                return Ok(Some(stamp.synced));
            }
        }
        at += SECTOR_BYTES;
    }
    Ok(None)
}

/// The contents of a segment with an unusable header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stray {
    /// No whole commit.
    Nothing,
    /// Commits, none of which another one calls synced.
    Unsynced,
    /// Commits that were synced.
    Synced,
}

/// Looks for commits in a segment, ignoring its header.
pub(crate) fn stray(window: &mut Window<'_>, segment: u64) -> io::Result<Stray> {
    let (mut at, mut first) = (DATA_AT, None);
    while at < window.length() {
        if Commit::length(window.get(at, HEADER_BYTES)?).is_ok()
            && let Ok(commit) = commit_at(window, segment, at)?
        {
            let stamp = commit.stamp();
            if stamp.synced >= *first.get_or_insert(stamp.number) {
                return Ok(Stray::Synced);
            }
        }
        at += SECTOR_BYTES;
    }
    Ok(if first.is_some() {
        Stray::Unsynced
    } else {
        Stray::Nothing
    })
}

/// Returns the sectors at which the commits `first` up to `last` begin, walking from header to header without reading the bodies. Returns
/// fewer if the chain breaks, with what was found there.
pub(crate) fn directory(
    file: &dyn File,
    writer: WriterId,
    first: CommitNo,
    last: CommitNo,
) -> io::Result<(Vec<u32>, Option<String>)> {
    let mut window = Window::with_piece(file, 64 << 10)?;
    let (mut found, mut at, mut due) = (Vec::new(), DATA_AT, first);
    while due <= last {
        let head = window.get(at, HEADER_BYTES)?;
        let length = match Commit::length(head) {
            Ok(length) => length,
            Err(damage) => return Ok((found, Some(damage.to_string()))),
        };
        let number = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        let (of, is, before) = (number(8), number(16), throng_journal::commit::stands_for(head));
        if (of, is) != (writer.0, due.0 + u64::from(before)) {
            return Ok((found, Some(format!("commit {of}.{is} where {writer}.{due} was due"))));
        }
        found.extend(std::iter::repeat_n(sectors(at), 1 + before as usize));
        at = align(at + length as u64);
        due = CommitNo(is + 1);
    }
    Ok((found, None))
}

/// Converts an offset to sectors. A segment is far below the 2 TiB where this would overflow.
pub(crate) fn sectors(offset: u64) -> u32 {
    u32::try_from(offset / SECTOR_BYTES).unwrap_or(u32::MAX)
}

/// Back from sectors to bytes.
pub(crate) fn bytes_of(sectors: u32) -> u64 {
    u64::from(sectors) * SECTOR_BYTES
}
