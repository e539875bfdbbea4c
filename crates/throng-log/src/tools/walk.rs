//! Reading all of a directory's history, continuing after what cannot be read.

use crate::{
    Options,
    files::File,
    header::{self, Copies, DATA_AT, Fault, Header, SECTOR_BYTES, align},
    recovery::{self, segment_path},
    scan::{self, Window},
};
use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::Arc,
};
use throng_journal::{Commit, CommitNo, Error, Position, WriterId, tools::Finding};

/// A part of the history, in its order.
pub(super) enum HistoryPart<'a> {
    /// A segment begins.
    Segment {
        header: &'a Header,
        /// The file's length.
        bytes: u64,
    },
    /// A whole commit.
    Commit { commit: &'a Commit },
    /// Bytes that were synced have changed.
    Damage {
        position: Position,
        place: String,
        why: String,
    },
    /// A note that is no loss: an unfinished end, one of two headers, an unused file.
    Note { place: String, why: String },
}

struct Piece {
    header: Header,
    file: Arc<dyn File>,
    path: PathBuf,
    /// Its last commit that counts; `None`: as far as it can be read.
    last: Option<CommitNo>,
}

/// Reads the whole history.
///
/// # Errors
/// [`Error::OtherVersion`]: another format. [`Error::Io`] of the file system, or the visitor's error. Damage is passed to the visitor.
pub(super) fn walk(
    options: &Options,
    dir: &Path,
    visit: &mut dyn FnMut(HistoryPart<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    walk_archived(options, dir, None, visit)
}

/// Works like [`walk`], but reads segments that are in an archive there, in their state before history was removed from them.
pub(super) fn walk_archived(
    options: &Options,
    dir: &Path,
    archive: Option<&Path>,
    visit: &mut dyn FnMut(HistoryPart<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let options = options.to_read(dir);
    let options = archive.map_or_else(|| options.clone(), |archive| options.to_read(archive));
    let pieces = pieces(&options, dir, archive, visit)?;
    let mut due = (WriterId(0), CommitNo(1));
    for piece in &pieces {
        let (header, path) = (&piece.header, &piece.path);
        let bytes = piece
            .file
            .length()
            .map_err(Error::io(format!("reading {}", path.display())))?;
        visit(HistoryPart::Segment { header, bytes })?;
        if header.writer != due.0 {
            due = (header.writer, CommitNo(1));
        }
        if header.first != due.1 {
            visit(HistoryPart::Damage {
                position: Position::new(due.0, due.1),
                place: path.display().to_string(),
                why: format!(
                    "the segment begins with commit {}, commit {} was due",
                    header.first, due.1
                ),
            })?;
        }
        due.1 = walk_piece(piece, visit)?;
    }
    Ok(())
}

impl Piece {
    /// Reads the same segment in an archive.
    fn read_from(&mut self, options: &Options, archive: &Path) -> Result<(), Error> {
        let path = segment_path(archive, self.header.segment);
        match recovery::open_segment(&*options.files, archive, self.header.segment)? {
            Ok(begun) if begun.header.fingerprint() == self.header.fingerprint() => {
                (self.file, self.path) = (begun.file, path);
                Ok(())
            }
            _ => Err(Error::backend(
                format!("reading {}", path.display()),
                format!(
                    "it is not the segment that stands in {}: name the archive of that journal",
                    self.path.display()
                ),
            )),
        }
    }
}

/// The segments that count, in order, with where each ends.
fn pieces(
    options: &Options,
    dir: &Path,
    archive: Option<&Path>,
    visit: &mut dyn FnMut(HistoryPart<'_>) -> Result<(), Error>,
) -> Result<Vec<Piece>, Error> {
    let archived = match archive {
        Some(archive) => recovery::list(&*options.files, archive)?,
        None => Vec::new(),
    };
    let mut pieces: Vec<Piece> = Vec::new();
    let mut strange = Vec::new();
    for number in super::require_log(options, dir)? {
        let place = segment_path(dir, number).display().to_string();
        let opened = match recovery::open_segment(&*options.files, dir, number) {
            // A running service renames prepared files; files with history stay.
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => continue,
            opened => opened?,
        };
        let begun = match opened {
            Ok(begun) => begun,
            Err(Fault::OtherVersion(found)) => {
                return Err(Error::OtherVersion {
                    what: place,
                    found,
                    expected: header::FORMAT_VERSION,
                });
            }
            Err(fault) => {
                strange.extend(lost_header(options, dir, number, &fault, visit)?);
                continue;
            }
        };
        match begun.copies {
            Copies::Both => {}
            Copies::Torn => visit(HistoryPart::Note {
                place: place.clone(),
                why: "one of the segment's two headers was not written when the power went; the other one is whole"
                    .into(),
            })?,
            Copies::Damaged => visit(HistoryPart::Damage {
                position: Position::new(begun.header.writer, begun.header.first),
                place: place.clone(),
                why: "one of the segment's two headers is damaged; the other one is whole".into(),
            })?,
        }
        let header = begun.header;
        let same = pieces.last().is_some_and(|last| last.header.writer == header.writer);
        if same {
            if let Some(last) = pieces.last_mut() {
                last.last = Some(CommitNo(header.first.0 - 1));
            }
        } else {
            end_before(&mut pieces, &header);
        }
        let path = segment_path(dir, number);
        let mut piece = Piece {
            header,
            file: begun.file,
            path,
            last: None,
        };
        if let Some(archive) = archive.filter(|_| archived.contains(&number)) {
            piece.read_from(options, archive)?;
        }
        pieces.push(piece);
    }
    for Finding { place, why, .. } in strange {
        visit(match pieces.is_empty() {
            // There is nothing else, so this is no unfinished end.
            true => HistoryPart::Damage {
                position: Position::default(),
                place,
                why: format!("it is no segment of a log: {why}"),
            },
            false => HistoryPart::Note {
                place,
                why: format!("it holds nothing of the history: {why}"),
            },
        })?;
    }
    Ok(pieces)
}

/// Ends the pieces of the writer before, as the new writer's header says. Later commits of it do not count.
fn end_before(pieces: &mut Vec<Piece>, header: &Header) {
    let Some(previous) = header.previous else { return };
    while pieces
        .pop_if(|piece| {
            let begins_after = piece.header.first > previous.commit && piece.header.first > CommitNo(1);
            piece.header.writer != previous.writer || begins_after
        })
        .is_some()
    {}
    if let Some(last) = pieces.last_mut() {
        last.last = Some(previous.commit);
    }
}

/// Returns a finding for a file that was begun but is no segment.
fn lost_header(
    options: &Options,
    dir: &Path,
    number: u64,
    fault: &Fault,
    visit: &mut dyn FnMut(HistoryPart<'_>) -> Result<(), Error>,
) -> Result<Option<Finding>, Error> {
    let path = segment_path(dir, number);
    let reading = || format!("reading {}", path.display());
    let file = options.files.open(&path, false).map_err(Error::io(reading()))?;
    let mut window = Window::new(&*file).map_err(Error::io(reading()))?;
    let place = path.display().to_string();
    let what = match fault {
        Fault::Unreadable(why) => format!("neither of its headers can be read ({why})"),
        _ => "it has no header".into(),
    };
    let stray = scan::stray(&mut window, number).map_err(Error::io(reading()))?;
    if let (scan::Stray::Nothing, Fault::Unreadable(why)) = (stray, fault) {
        let position = String::new();
        let why = why.clone();
        return Ok(Some(Finding { position, place, why }));
    }
    match stray {
        scan::Stray::Synced => visit(HistoryPart::Damage {
            position: Position::default(),
            place,
            why: format!("{what}, but synced commits stand behind it"),
        }),
        scan::Stray::Unsynced => visit(HistoryPart::Note {
            place,
            why: format!("{what}; the commits behind it were never acknowledged"),
        }),
        scan::Stray::Nothing => visit(HistoryPart::Note {
            place,
            why: "a segment made ready, or left, that holds nothing of the history".into(),
        }),
    }?;
    Ok(None)
}

/// Passes the commits of one segment to the visitor; returns the number that is due after it.
fn walk_piece(piece: &Piece, visit: &mut dyn FnMut(HistoryPart<'_>) -> Result<(), Error>) -> Result<CommitNo, Error> {
    let path = &piece.path;
    let reading = || format!("reading {}", path.display());
    let (segment, writer) = (piece.header.segment, piece.header.writer);
    let mut window = Window::with_piece(&*piece.file, 1 << 20).map_err(Error::io(reading()))?;
    let (mut at, mut due) = (DATA_AT, piece.header.first);
    while piece.last.is_none_or(|last| due <= last) {
        let found = scan::commit_at(&mut window, segment, at).map_err(Error::io(reading()))?;
        let why = match found {
            Ok(commit) if commit.stamp().writer == writer && commit.first() == due => {
                visit(HistoryPart::Commit { commit: &commit })?;
                let last = commit.stamp().number;
                let end = at + commit.bytes().len() as u64;
                at = align(end);
                check_padding(&mut window, last, writer, path, (end, at), visit)?;
                due = last.next();
                continue;
            }
            Ok(commit) => format!("commit {} where {writer}.{due} was due", commit.position()),
            Err(damage) => damage.to_string(),
        };
        let place = format!("{} at offset {at}", path.display());
        let position = Position { writer, commit: due };
        let synced = match piece.last {
            Some(last) => Some(last),
            None => scan::proof(&mut window, segment, writer, due, at).map_err(Error::io(reading()))?,
        };
        if synced.is_none() {
            let head = window.get(at, SECTOR_BYTES as usize).map_err(Error::io(reading()))?;
            if head.iter().any(|byte| *byte != 0) {
                let why = format!("an unfinished end after commit {}: {why}", due.0 - 1);
                visit(HistoryPart::Note { place, why })?;
            }
            return Ok(due);
        }
        visit(HistoryPart::Damage { position, place, why })?;
        match next_whole(&mut window, segment, writer, due, at + SECTOR_BYTES).map_err(Error::io(reading()))? {
            Some((number, offset)) => (due, at) = (number, offset),
            None => return Ok(piece.last.map_or(due, CommitNo::next)),
        }
    }
    Ok(due)
}

/// The room behind a commit up to the next sector holds zeros.
fn check_padding(
    window: &mut Window<'_>,
    commit: CommitNo,
    writer: WriterId,
    path: &Path,
    (from, to): (u64, u64),
    visit: &mut dyn FnMut(HistoryPart<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let padding = window
        .get(from, usize::try_from(to - from).unwrap_or(0))
        .map_err(Error::io(format!("reading {}", path.display())))?;
    match padding.iter().position(|byte| *byte != 0) {
        None => Ok(()),
        Some(at) => visit(HistoryPart::Damage {
            position: Position { writer, commit },
            place: format!("{} at offset {}", path.display(), from + at as u64),
            why: "the padding behind the commit is not zero; the commit itself is whole".into(),
        }),
    }
}

/// The next whole commit of the stream behind damage.
fn next_whole(
    window: &mut Window<'_>,
    segment: u64,
    writer: WriterId,
    due: CommitNo,
    from: u64,
) -> std::io::Result<Option<(CommitNo, u64)>> {
    let mut at = from;
    while at < window.length() {
        if let Ok(commit) = scan::commit_at(window, segment, at)? {
            let stamp = commit.stamp();
            if stamp.writer == writer && stamp.number > due {
                return Ok(Some((stamp.number, at)));
            }
        }
        at += SECTOR_BYTES;
    }
    Ok(None)
}
