//! Copying a log that another process is writing, and updating the copy repeatedly.
//!
//! Segments are copied in order, each up to its last complete commit, so that the copy is a valid history at any moment. A crash of the
//! log's engine may have cut the last one since. So the copy's part of it is compared before more is added.
//!
//! The copy keeps what it has, even if history is removed from the log. A segment from which history was removed before it was copied is
//! valid only together with the later commits that [replace](throng_journal::Removal) what was removed. So it is staged beside the copy
//! until these are there, too; then everything is added at once.

use crate::{
    Options,
    directory::{self, Lock},
    files::File,
    header::{self, DATA_AT, Fault, Header, align, seed},
    place,
    recovery::{self, Begun, segment_path},
    rewrite,
    scan::{self, Window},
    unfinished::{self, Unfinished},
};
use std::{
    fmt,
    path::{Path, PathBuf},
};
use throng_journal::{Commit, CommitNo, Error, HEADER_BYTES, Position, Removal};

/// Copied at once.
const PIECE_BYTES: u64 = 4 << 20;
/// The most searches for the commits that replace removed history. They are in the log before anything is removed, so a second search finds
/// those that were written during the first.
const ROUNDS_MAX: u32 = 16;

/// The growth of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Added {
    /// Bytes of commits.
    pub bytes: u64,
    /// The last commit in the copy.
    #[serde(serialize_with = "shown")]
    pub upto: Position,
}

fn shown<S: serde::Serializer>(position: &Position, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(position)
}

impl fmt::Display for Added {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "added {} bytes; the copy reaches commit {}", self.bytes, self.upto)
    }
}

/// The end of a copy.
#[derive(Clone, Copy, Debug)]
struct Reached {
    segment: u64,
    /// The offset of its next commit.
    end: u64,
    next: CommitNo,
}

/// The part of a segment that the copy lacks.
struct Rest {
    /// A commit that stands in the copy for removed ones right after its end.
    bridge: Option<Commit>,
    /// The file, and the offset from which bytes are copied to the same offset.
    at: u64,
    from: u64,
    run: scan::Run,
    removal: Option<Removal>,
}

/// A copy of a log that may be in use, to be updated with [`catch_up`](Self::catch_up). Until this is dropped, no other process can use the
/// copy.
pub struct LiveBackup {
    options: Options,
    from: PathBuf,
    to: PathBuf,
    /// True until the copy has caught up for the first time.
    is_unfinished: bool,
    reached: Option<Reached>,
    /// The staged segments, in order, and the end of the copy without them.
    staged: Vec<u64>,
    placed: Option<Reached>,
    _lock: Lock,
}

impl LiveBackup {
    /// Begins a copy in a directory without a log, or continues an earlier copy of the same log.
    ///
    /// # Errors
    /// [`Error::InUse`]: the target is in use. [`Error::Backend`]: there is no log to copy, or the target holds another history; with the
    /// place where they differ. [`Error::Io`] of the file system.
    pub fn begin(options: &Options, from: &Path, to: &Path) -> Result<Self, Error> {
        let options = &options.to_read(from);
        let files = &*options.files;
        unfinished::refuse_swap(files, from, to)?;
        super::require_log(options, from)?;
        let has_copy =
            !unfinished::is_unfinished(files, to)? && !recovery::list(files, to).unwrap_or_default().is_empty();
        let lock = match has_copy {
            true => directory::lock(options, to)?,
            false => Unfinished::begin(options, to)?.1,
        };
        place::mark_copy(files, to, "backed up from", from)?;
        let mut backup = Self {
            options: options.clone(),
            from: from.to_owned(),
            to: to.to_owned(),
            is_unfinished: !has_copy,
            reached: None,
            staged: Vec::new(),
            placed: None,
            _lock: lock,
        };
        if has_copy {
            unfinished::settle(files, to)?;
            backup.reached = backup.look_at_copy()?;
        }
        Ok(backup)
    }

    /// Adds what has been written since.
    ///
    /// # Errors
    /// [`Error::Damaged`]: the log is damaged below the part that is still being written. [`Error::Io`] of the file system. The copy is
    /// valid up to some commit nevertheless.
    pub fn catch_up(&mut self) -> Result<Added, Error> {
        let added = self.add();
        if added.is_err() && !self.staged.is_empty() {
            self.staged.clear();
            self.reached = self.placed;
        }
        added
    }

    fn add(&mut self) -> Result<Added, Error> {
        let mut added = Added::default();
        let mut replaced_by = None;
        for _ in 0..ROUNDS_MAX {
            replaced_by = self.add_segments(&mut added)?.max(replaced_by);
            if replaced_by <= Some(added.upto) {
                self.place_staged()?;
                return Ok(added);
            }
        }
        Err(Error::backend(
            format!("copying {}", self.from.display()),
            format!(
                "history was removed from it that commit {} replaces, and it ends at commit {}: run the backup again",
                replaced_by.unwrap_or_default(),
                added.upto
            ),
        ))
    }

    /// Copies every segment as far as possible. Returns the last commit that replaces history removed from what is copied.
    fn add_segments(&mut self, added: &mut Added) -> Result<Option<Position>, Error> {
        let mut replaced_by = None;
        let begun = self.begun(&self.from)?;
        for (index, segment) in begun.iter().enumerate() {
            let number = segment.header.segment;
            if self.reached.is_some_and(|reached| reached.segment > number) {
                continue;
            }
            let next = begun.get(index + 1);
            let mut rest = self.rest(segment)?;
            if let Some(next) = next {
                // A finished segment may have been rewritten since a part of it was copied.
                if self.gap(segment, next, &rest.run).is_err()
                    && let Some(bridged) = self.bridged(segment)?
                {
                    rest = bridged;
                }
                self.gap(segment, next, &rest.run)?;
            }
            replaced_by = rest.removal.and_then(|removal| removal.replaced_by).max(replaced_by);
            self.copy(segment, &rest, added)?;
            added.upto = Position::new(segment.header.writer, CommitNo(rest.run.next.0 - 1));
        }
        Ok(replaced_by)
    }

    /// Adds the staged segments to the copy, all at once.
    fn place_staged(&mut self) -> Result<(), Error> {
        let files = &*self.options.files;
        files
            .sync_dir(&self.to)
            .map_err(Error::io(format!("syncing the directory {}", self.to.display())))?;
        if !std::mem::take(&mut self.staged).is_empty() {
            unfinished::add_staged(files, &self.to)?;
        }
        if std::mem::take(&mut self.is_unfinished) {
            unfinished::finish(files, &self.to)?;
        }
        Ok(())
    }

    /// Deletes segments that an earlier backup has staged and not added.
    fn remove_staged(&self) -> Result<(), Error> {
        let names = self.options.files.list(&self.to).unwrap_or_default();
        let mut staged = names.iter().filter(|name| rewrite::is_leftover(name));
        staged.try_for_each(|name| self.remove(name))
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        let path = self.to.join(name);
        let removing = Error::io(format!("removing {}", path.display()));
        self.options.files.remove(&path).map_err(removing)
    }

    /// Returns the segments of a directory that have been begun, in order.
    fn begun(&self, dir: &Path) -> Result<Vec<Begun>, Error> {
        let files = &*self.options.files;
        let mut begun = Vec::new();
        for number in recovery::list(files, dir)? {
            match recovery::open_segment(files, dir, number)? {
                Ok(segment) => begun.push(segment),
                // The segment is prepared, or just being begun, or its header is lost.
                Err(fault @ (Fault::Empty | Fault::Unreadable(_))) => {
                    recovery::refuse_lost_header(files, dir, number, &fault)?;
                }
                Err(Fault::OtherVersion(found)) => {
                    return Err(Error::OtherVersion {
                        what: segment_path(dir, number).display().to_string(),
                        found,
                        expected: header::FORMAT_VERSION,
                    });
                }
            }
        }
        Ok(begun)
    }

    /// Returns the end of an earlier copy, if the target is one of this log.
    fn look_at_copy(&self) -> Result<Option<Reached>, Error> {
        let (source, copy) = (self.begun(&self.from)?, self.begun(&self.to)?);
        let (mut last, mut dropped) = (None, Vec::new());
        for have in &copy {
            let number = have.header.segment;
            let is_same = |other: &&Begun| {
                let (one, other) = (&have.header, &other.header);
                (one.segment, one.fingerprint()) == (other.segment, other.fingerprint())
            };
            match source.iter().find(is_same) {
                Some(same) => last = Some((have, same)),
                None if self.was_dropped(have, &source)? => dropped.push(number),
                None => return Err(self.parted(number)),
            }
        }
        // From the last one on, so that the rest is a valid history at each step.
        for number in dropped.into_iter().rev() {
            self.remove(&header::file_name(number))?;
        }
        let Some((have, same)) = last else { return Ok(None) };
        self.look_at_last(have, same).map(Some)
    }

    /// True if the log has dropped a segment that the copy has: its engine ended before the segment's first commit, or before it was
    /// synced. A writer's first segment is synced before any commit.
    fn was_dropped(&self, have: &Begun, source: &[Begun]) -> Result<bool, Error> {
        let Begun { file, header, .. } = have;
        let reading = Error::io(format!("reading {}", segment_path(&self.to, header.segment).display()));
        let found = Window::new(&**file).and_then(|mut window| scan::stray(&mut window, header.segment));
        let ends_before = |next: &Begun| {
            let end = next.header.previous.filter(|end| end.writer == header.writer);
            end.is_some_and(|end| end.commit < header.first && header.first > CommitNo(1))
        };
        Ok(found.map_err(reading)? == scan::Stray::Nothing || source.iter().any(ends_before))
    }

    /// Determines where the copy of a copy's last segment ends, or where it has to be cut because the log's was.
    fn look_at_last(&self, have: &Begun, same: &Begun) -> Result<Reached, Error> {
        let Header { segment, first, .. } = have.header;
        let reading = || Error::io(format!("reading {}", segment_path(&self.to, segment).display()));
        let run = follow(have, &mut |_| {}).map_err(reading())?;
        let mut reached = Reached {
            segment,
            end: run.end,
            next: run.next,
        };
        let last = run.sectors.last().map(|sectors| scan::bytes_of(*sectors));
        if let Some(at) = last
            && head_at(have, at).map_err(reading())? != head_at(same, at).map_err(reading())?
        {
            let mut was_removed = None;
            let source = follow(same, &mut |commit| {
                if commit.stamp().number.next() >= run.next && commit.first() < run.next {
                    was_removed = Some(commit.removal().is_some());
                }
            });
            let cut = source.map_err(reading())?.next;
            match was_removed {
                // History was removed from it.
                Some(true) => {}
                Some(false) => return Err(self.parted(segment)),
                None if same.header.reserved => return Err(self.parted(segment)),
                None => {
                    let begin = usize::try_from(cut.0 - first.0).unwrap_or(usize::MAX);
                    reached.end = run.sectors.get(begin).map_or(run.end, |at| scan::bytes_of(*at));
                    reached.next = cut;
                }
            }
        }
        have.file.set_length(reached.end).map_err(reading())?;
        Ok(reached)
    }

    fn reached_in(&self, segment: &Begun) -> Option<Reached> {
        self.reached.filter(|reached| reached.segment == segment.header.segment)
    }

    /// Returns the part of a segment that the copy lacks.
    fn rest(&self, segment: &Begun) -> Result<Rest, Error> {
        let reached = self.reached_in(segment);
        let (at, next) = reached.map_or((DATA_AT, segment.header.first), |reached| (reached.end, reached.next));
        self.rest_from(segment, (at, None), (at, next))
    }

    fn rest_from(
        &self,
        segment: &Begun,
        (at, bridge): (u64, Option<Commit>),
        (from, next): (u64, CommitNo),
    ) -> Result<Rest, Error> {
        let header = &segment.header;
        let reading = || {
            Error::io(format!(
                "reading {}",
                segment_path(&self.from, header.segment).display()
            ))
        };
        let mut window = Window::new(&*segment.file).map_err(reading())?;
        let mut removal = bridge.as_ref().and_then(Commit::removal);
        let mut visit = |commit: &Commit| {
            if let Some(of_commit) = commit.removal() {
                removal.get_or_insert_default().join(of_commit);
            }
        };
        let run = scan::follow_each(&mut window, header.segment, header.writer, next, from, &mut visit);
        Ok(Rest {
            bridge,
            at,
            from,
            run: run.map_err(reading())?,
            removal,
        })
    }

    /// Works like [`rest`](Self::rest), for a commit that stands both for the last ones in the copy and for later ones. In the copy, a new
    /// commit stands for the later ones alone. `None`: there is no such commit.
    fn bridged(&self, segment: &Begun) -> Result<Option<Rest>, Error> {
        let Some(Reached { end, next, .. }) = self.reached_in(segment) else {
            return Ok(None);
        };
        let number = segment.header.segment;
        let reading = || Error::io(format!("reading {}", segment_path(&self.from, number).display()));
        let mut window = Window::new(&*segment.file).map_err(reading())?;
        let mut at = DATA_AT;
        let (commit, after) = loop {
            let Ok(commit) = scan::commit_at(&mut window, number, at).map_err(reading())? else {
                return Ok(None);
            };
            at = align(at + commit.bytes().len() as u64);
            if commit.stamp().number >= next {
                break (commit, at);
            }
        };
        if commit.record_count() > 0 || commit.first() >= next {
            return Ok(None);
        }
        let last = commit.stamp().number;
        let before = u32::try_from(last.0 - next.0).unwrap_or(u32::MAX);
        let replaced_by = commit.removal().and_then(|removal| removal.replaced_by);
        let mut bridge = commit.emptied(before, replaced_by);
        // At the end of a segment it is not as long as those it stands for, and nothing follows.
        let room = usize::try_from(after.saturating_sub(end)).unwrap_or(0);
        bridge.pad(room.saturating_sub(bridge.bytes().len()));
        bridge.seal(&seed(number, end));
        let after = after.max(align(end + bridge.bytes().len() as u64));
        self.rest_from(segment, (end, Some(bridge)), (after, last.next()))
            .map(Some)
    }

    /// Adds the rest of a segment to the copy, or to the staged part.
    fn copy(&mut self, segment: &Begun, rest: &Rest, added: &mut Added) -> Result<(), Error> {
        let (number, files) = (segment.header.segment, &*self.options.files);
        let is_begun = self.staged.contains(&number);
        let is_staged = is_begun || !self.staged.is_empty() || (rest.removal.is_some() && !self.is_unfinished);
        let from = segment_path(&self.from, number);
        let to = match is_staged {
            true => rewrite::new_path(&self.to, number),
            false => segment_path(&self.to, number),
        };
        let doing = || Error::io(format!("copying {} to {}", from.display(), to.display()));
        if is_staged && self.staged.is_empty() {
            self.placed = self.reached;
            self.remove_staged()?;
        }
        let target = files.open(&to, true).map_err(doing())?;
        if is_staged && !is_begun {
            self.staged.push(number);
            if let Some(reached) = self.reached_in(segment) {
                let have = files.open(&segment_path(&self.to, number), false).map_err(doing())?;
                copy_range(&*have, &*target, (DATA_AT, reached.end)).map_err(doing())?;
            }
        }
        // Written even if there is nothing to add: it may say later that its writer was opened.
        target.write_at(&segment.header.encode(), 0).map_err(doing())?;
        if let Some(bridge) = &rest.bridge {
            target.write_at(bridge.bytes(), rest.at).map_err(doing())?;
        }
        copy_range(&*segment.file, &*target, (rest.from, rest.run.end)).map_err(doing())?;
        target.sync_data().map_err(doing())?;
        added.bytes += rest.run.end - rest.at;
        self.reached = Some(Reached {
            segment: number,
            end: rest.run.end,
            next: rest.run.next,
        });
        Ok(())
    }

    /// Checks that a segment followed by another one is complete.
    fn gap(&self, segment: &Begun, next: &Begun, run: &scan::Run) -> Result<(), Error> {
        let header = &segment.header;
        let due = match next.header.writer == header.writer {
            true => next.header.first,
            false => match next.header.previous {
                Some(previous) if previous.writer == header.writer => previous.commit.next(),
                // The later ones do not include it.
                _ => return Ok(()),
            },
        };
        if run.next >= due {
            return Ok(());
        }
        Err(Error::Damaged {
            position: Position::new(header.writer, run.next),
            place: format!(
                "{} at offset {}",
                segment_path(&self.from, header.segment).display(),
                run.end
            ),
            why: run.stop.clone(),
        })
    }

    fn parted(&self, segment: u64) -> Error {
        Error::backend(
            format!("adding to the copy in {}", self.to.display()),
            format!(
                "it is no copy of {}, or was used since: segment {segment} is another one; choose an empty directory",
                self.from.display()
            ),
        )
    }
}

/// The end of the whole commits of a segment.
fn follow(segment: &Begun, visit: &mut dyn FnMut(&Commit)) -> std::io::Result<scan::Run> {
    let mut window = Window::new(&*segment.file)?;
    let header = &segment.header;
    scan::follow_each(&mut window, header.segment, header.writer, header.first, DATA_AT, visit)
}

/// Reads the header of the commit at this offset, as far as there is one.
fn head_at(segment: &Begun, at: u64) -> std::io::Result<Vec<u8>> {
    let mut head = vec![0; HEADER_BYTES];
    let read = segment.file.read_at(&mut head, at)?;
    head.truncate(read);
    Ok(head)
}

fn copy_range(source: &dyn File, target: &dyn File, (from, to): (u64, u64)) -> std::io::Result<()> {
    let mut piece = vec![0; usize::try_from((to - from).min(PIECE_BYTES)).unwrap_or(0)];
    let mut at = from;
    while at < to {
        let wanted = usize::try_from((to - at).min(PIECE_BYTES)).unwrap_or(0);
        crate::files::read_exact_at(source, &mut piece[..wanted], at)?;
        target.write_at(&piece[..wanted], at)?;
        at += wanted as u64;
    }
    Ok(())
}
