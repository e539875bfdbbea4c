//! Determines what a directory holds: the segments' headers, and the unfinished end of the last writer's stream.
//!
//! Nothing is changed here. What cannot be read above the last position known to be synced is left out and reported; below it, it is
//! damage.

use crate::{
    files::{File, Files},
    header::{self, Copies, DATA_AT, Fault, Header},
    history::{History, Segment},
    scan::{self, Window},
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};
use throng_journal::{CommitNo, Error, Position, WriterId};

/// The contents of a directory.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    pub history: History,
    /// The number the next segment gets.
    pub next_segment: u64,
    /// The id the next writer gets.
    pub next_writer: u64,
    /// The numbers of segment files without history, which are deleted once the next writer has begun.
    pub dead: Vec<u64>,
    /// The bytes of the last stream that may be only in the page cache: segment, from, to.
    pub unsynced: Vec<(u64, u64, u64)>,
    /// The end of the last stream: its last segment, and the offset after which nothing counts.
    pub end: Option<(u64, u64)>,
    /// The part that was left out.
    pub cut: Option<Cut>,
    /// Headers of which only one copy can be read, and similar oddities.
    pub notes: Vec<String>,
    /// The newest commit of the last stream known to be synced.
    pub synced: CommitNo,
}

/// An unfinished end that is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// The last commit that is kept.
    pub last: Position,
    pub segment: u64,
    pub offset: u64,
    pub found: String,
}

pub(crate) fn segment_path(dir: &Path, segment: u64) -> PathBuf {
    dir.join(header::file_name(segment))
}

/// A segment's file and the content of its header.
pub(crate) struct Begun {
    pub file: Arc<dyn File>,
    pub header: Header,
    pub copies: Copies,
}

/// Opens a segment and reads its header. The inner `Err` is the reason if it was never begun or cannot be read.
pub(crate) fn open_segment(files: &dyn Files, dir: &Path, segment: u64) -> Result<Result<Begun, Fault>, Error> {
    let path = segment_path(dir, segment);
    let file = files
        .open(&path, false)
        .map_err(Error::io(format!("opening {}", path.display())))?;
    let mut bytes = vec![0; DATA_AT as usize];
    let read = file
        .read_at(&mut bytes, 0)
        .map_err(Error::io(format!("reading {}", path.display())))?;
    bytes.truncate(read);
    Ok(Header::decode(&bytes, segment).map(|(header, copies)| Begun { file, header, copies }))
}

/// The numbers of the segments in a directory, in order.
pub(crate) fn list(files: &dyn Files, dir: &Path) -> Result<Vec<u64>, Error> {
    let names = files
        .list(dir)
        .map_err(Error::io(format!("listing {}", dir.display())))?;
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| header::number_of(name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Reads a directory.
///
/// # Errors
/// [`Error::Damaged`]: damage below a synced position. [`Error::OtherVersion`]: another format. [`Error::Io`] of the file system.
pub(crate) fn recover(files: &dyn Files, dir: &Path) -> Result<Recovered, Error> {
    let mut recovered = Recovered::default();
    let (mut begun, mut spares) = (Vec::new(), Vec::new());
    let mut foreign = None;
    for number in list(files, dir)? {
        match open_segment(files, dir, number)? {
            Ok(segment) => {
                let name = header::file_name(number);
                match segment.copies {
                    Copies::Both => {}
                    Copies::Torn => recovered
                        .notes
                        .push(format!("one of the two headers of {name} was not written")),
                    Copies::Damaged => recovered
                        .notes
                        .push(format!("one of the two headers of {name} is damaged")),
                }
                recovered.next_writer = recovered.next_writer.max(segment.header.writer.0 + 1);
                begun.push(segment);
            }
            Err(Fault::OtherVersion(found)) => {
                return Err(Error::OtherVersion {
                    what: segment_path(dir, number).display().to_string(),
                    found,
                    expected: header::FORMAT_VERSION,
                });
            }
            Err(fault) => {
                let stray = refuse_lost_header(files, dir, number, &fault)?;
                if let (Fault::Unreadable(why), scan::Stray::Nothing) = (&fault, stray) {
                    foreign.get_or_insert_with(|| (number, why.clone()));
                }
                if fault == Fault::Empty && stray == scan::Stray::Nothing {
                    spares.push(number);
                } else {
                    recovered.dead.push(number);
                }
            }
        }
    }
    if let (true, Some((number, why))) = (begun.is_empty(), foreign) {
        return Err(foreign_file(dir, number, &why));
    }
    // A number that was once in a header is not reused. A segment prepared for the next number is.
    let newest = begun.last().map_or(0, |segment| segment.header.segment);
    recovered.next_segment = newest.max(recovered.dead.last().copied().unwrap_or(0)) + 1;
    recovered.next_writer = recovered.next_writer.max(1);
    let next = recovered.next_segment;
    recovered.dead.extend(spares.iter().filter(|spare| **spare != next));
    let kept = link(dir, begun, &mut recovered)?;
    find_end(dir, &kept, &mut recovered)?;
    Ok(recovered)
}

/// Returns the error for a file that is no segment, in a directory without any: a crash leaves only zeros or a header.
fn foreign_file(dir: &Path, number: u64, why: &str) -> Error {
    Error::backend(
        format!("opening the log in {}", dir.display()),
        format!(
            "{} is no segment of a log: {why}; it is left as it is: move it away, or name another directory",
            segment_path(dir, number).display()
        ),
    )
}

/// Refuses a segment with commits whose header is lost.
pub(crate) fn refuse_lost_header(
    files: &dyn Files,
    dir: &Path,
    number: u64,
    fault: &Fault,
) -> Result<scan::Stray, Error> {
    let path = segment_path(dir, number);
    let reading = || format!("reading {}", path.display());
    let file = files.open(&path, false).map_err(Error::io(reading()))?;
    let mut window = Window::new(&*file).map_err(Error::io(reading()))?;
    // A header is synced with the first commit after it. Until a commit was synced, both may be lost.
    let found = scan::stray(&mut window, number).map_err(Error::io(reading()))?;
    if found != scan::Stray::Synced {
        return Ok(found);
    }
    Err(Error::Damaged {
        position: Position::default(),
        place: format!("{} at offset 0", path.display()),
        why: match fault {
            Fault::Unreadable(why) => format!("the header cannot be read, but commits stand behind it: {why}"),
            Fault::Empty | Fault::OtherVersion(_) => "commits stand behind an empty header".into(),
        },
    })
}

/// Links segments to streams, in order, and drops those that no longer count.
//= promise 5: numbers have no gaps
fn link(dir: &Path, begun: Vec<Begun>, recovered: &mut Recovered) -> Result<Vec<Begun>, Error> {
    let mut kept: Vec<Begun> = Vec::new();
    for segment in begun {
        let header = &segment.header;
        let current = kept.last().map(|last| &last.header);
        let damaged = |why: String| Error::Damaged {
            position: Position::new(header.writer, header.first),
            place: segment_path(dir, header.segment).display().to_string(),
            why,
        };
        if current.is_some_and(|current| current.writer == header.writer) {
            if current.is_some_and(|current| header.first < current.first) {
                return Err(damaged("its first commit is older than the segment's before".into()));
            }
        } else {
            if header.first != CommitNo(1) {
                return Err(damaged(format!(
                    "the stream of writer {} begins with commit {}: a segment before this one is missing",
                    header.writer, header.first
                )));
            }
            while let Some(last) = kept.pop_if(|last| !counts(&last.header, header)) {
                refuse_lost_commits(dir, &last, header)?;
                recovered.dead.push(last.header.segment);
            }
            if let (None, Some(previous)) = (kept.last(), header.previous) {
                return Err(damaged(format!(
                    "it follows writer {}, whose segments are missing",
                    previous.writer
                )));
            }
        }
        kept.push(segment);
    }
    for segment in &kept {
        recovered.history.begin(&segment.header);
    }
    Ok(kept)
}

/// True if a segment still counts after `next` has begun a new stream: it belongs to the stream that `next` names, and begins at or before
/// its last commit.
fn counts(segment: &Header, next: &Header) -> bool {
    next.previous.is_some_and(|previous| {
        let begins = segment.first <= previous.commit || segment.first == CommitNo(1);
        segment.writer == previous.writer && begins
    })
}

/// Refuses to drop commits that were durable. A dropped segment may only be the unfinished end of the sealed stream, or an opening that
/// failed before its first commit.
//= promise 10: damage is found
fn refuse_lost_commits(dir: &Path, dropped: &Begun, next: &Header) -> Result<(), Error> {
    if next
        .previous
        .is_some_and(|previous| previous.writer == dropped.header.writer)
    {
        return Ok(());
    }
    let path = segment_path(dir, dropped.header.segment);
    let reading = || format!("reading {}", path.display());
    let mut window = Window::new(&*dropped.file).map_err(Error::io(reading()))?;
    let found = scan::stray(&mut window, dropped.header.segment).map_err(Error::io(reading()))?;
    if found == scan::Stray::Nothing {
        return Ok(());
    }
    Err(Error::Damaged {
        position: Position::new(next.writer, next.first),
        place: segment_path(dir, next.segment).display().to_string(),
        why: format!(
            "it does not follow the segment before: writer {} has commits there and is not the one it names",
            dropped.header.writer
        ),
    })
}

/// Follows the last stream to its end.
fn find_end(dir: &Path, kept: &[Begun], recovered: &mut Recovered) -> Result<(), Error> {
    let Some(last) = kept.last() else { return Ok(()) };
    let writer = last.header.writer;
    let stream: Vec<&Begun> = kept.iter().filter(|segment| segment.header.writer == writer).collect();
    let mut synced = last.header.synced;
    // The segment with the first commit not known to be synced.
    let from = stream
        .partition_point(|segment| segment.header.first <= synced.next())
        .saturating_sub(1);
    for (index, segment) in stream.iter().enumerate().skip(from) {
        let reading = || format!("reading {}", segment_path(dir, segment.header.segment).display());
        let mut window = Window::new(&*segment.file).map_err(Error::io(reading()))?;
        let number = segment.header.segment;
        let run =
            scan::follow(&mut window, number, writer, segment.header.first, DATA_AT).map_err(Error::io(reading()))?;
        synced = synced.max(run.synced);
        recovered.unsynced.push((number, 0, DATA_AT));
        let known = usize::try_from(synced.next().0.saturating_sub(segment.header.first.0)).unwrap_or(usize::MAX);
        if let Some(unsynced) = run.sectors.get(known) {
            recovered.unsynced.push((number, scan::bytes_of(*unsynced), run.end));
        }
        let next = stream.get(index + 1);
        let ends_whole = next.is_some_and(|next| next.header.first == run.next);
        if ends_whole {
            recovered.history.keep_directory(number, Arc::new(run.sectors));
            continue;
        }
        let later = &stream[index + 1..];
        let proof = proof_after(&mut window, number, &run, later, synced, writer).map_err(Error::io(reading()))?;
        let position = Position::new(writer, run.next);
        if let Some(proof) = proof {
            return Err(Error::Damaged {
                position,
                place: format!("{} at offset {}", segment_path(dir, number).display(), run.end),
                why: format!("{}, though commit {writer}.{proof} was synced", run.stop),
            });
        }
        let last = CommitNo(run.next.0 - 1);
        let remains = !later.is_empty() || anything_after(&mut window, run.end).map_err(Error::io(reading()))?;
        if remains {
            recovered.cut = Some(Cut {
                last: Position { writer, commit: last },
                segment: number,
                offset: run.end,
                found: run.stop,
            });
        }
        recovered.end = Some((number, run.end));
        drop_later(recovered, later);
        recovered.history.set_active(run.sectors);
        finish_stream(recovered, writer, last);
        break;
    }
    recovered.synced = synced;
    Ok(())
}

fn finish_stream(recovered: &mut Recovered, writer: WriterId, last: CommitNo) {
    if let Some(stream) = recovered.history.streams.get_mut(&writer) {
        stream.last = last;
    }
}

fn drop_later(recovered: &mut Recovered, later: &[&Begun]) {
    for segment in later {
        let number = segment.header.segment;
        recovered.dead.push(number);
        recovered
            .history
            .segments
            .retain(|kept: &Segment| kept.number != number);
    }
}

/// Returns the proof that the first missing commit was synced: a later commit or header that says so.
//= promise 10: damage is found
fn proof_after(
    window: &mut Window<'_>,
    number: u64,
    run: &scan::Run,
    later: &[&Begun],
    synced: CommitNo,
    writer: WriterId,
) -> std::io::Result<Option<CommitNo>> {
    if synced >= run.next {
        return Ok(Some(synced));
    }
    if let Some(proof) = scan::proof(window, number, writer, run.next, run.end)? {
        return Ok(Some(proof));
    }
    for segment in later {
        let mut window = Window::new(&*segment.file)?;
        if let Some(proof) = scan::proof(&mut window, segment.header.segment, writer, run.next, DATA_AT)? {
            return Ok(Some(proof));
        }
    }
    Ok(None)
}

/// True if there is anything but zeros at the place of the next commit.
fn anything_after(window: &mut Window<'_>, offset: u64) -> std::io::Result<bool> {
    Ok(window
        .get(offset, header::SECTOR_BYTES as usize)?
        .iter()
        .any(|byte| *byte != 0))
}
