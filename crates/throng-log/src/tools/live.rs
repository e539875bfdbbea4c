//! Copying a log that another process is writing, and bringing the copy up to date again and again.
//!
//! Segments are copied in their order, each up to its last whole commit, so that the copy is a history of the log at any moment.
//! The last one may have been cut by a crash of its engine since: what the copy has of it is compared before more is added.

use super::unfinished::Unfinished;
use crate::{
    Options, Place,
    files::File,
    header::{DATA_AT, Fault},
    log::{self, Lock},
    recovery::{self, Begun, segment_path},
    rewrite,
    scan::{self, Window},
};
use std::{
    fmt,
    path::{Path, PathBuf},
};
use throng_journal::{CommitNo, Error, HEADER_BYTES, Position};

/// Copied at once.
const PIECE_BYTES: u64 = 4 << 20;

/// What was added to a copy.
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

/// How far a copy has come.
#[derive(Clone, Copy, Debug)]
struct Reached {
    segment: u64,
    /// Where its next commit is to stand.
    end: u64,
    next: CommitNo,
}

/// A copy of a log that may be in use, to be brought up to date with [`catch_up`](Self::catch_up). While this lives, nobody else uses
/// the copy.
pub struct LiveBackup {
    options: Options,
    from: PathBuf,
    to: PathBuf,
    /// The copy holds only a part until it has caught up for the first time.
    is_unfinished: bool,
    reached: Option<Reached>,
    _lock: Lock,
}

impl LiveBackup {
    /// Begins a copy in a directory that holds no log, or goes on with one that holds an earlier copy of the same log.
    ///
    /// # Errors
    /// There is no log to copy; the target is in use, or holds another history: it is named where they part. The file system's.
    pub fn begin(options: &Options, from: &Path, to: &Path) -> Result<Self, Error> {
        super::require_log(options, from)?;
        let has_copy = super::unfinished::refuse_unfinished(&*options.files, to).is_ok()
            && !recovery::list(&*options.files, to).unwrap_or_default().is_empty();
        let lock = match has_copy {
            true => log::lock(options, to)?,
            false => Unfinished::begin(options, to)?.1,
        };
        Place::of(to).mark_copy("backed up from", from)?;
        let mut backup = Self {
            options: options.clone(),
            from: from.to_owned(),
            to: to.to_owned(),
            is_unfinished: !has_copy,
            reached: None,
            _lock: lock,
        };
        if has_copy {
            backup.reached = backup.look_at_copy()?;
        }
        Ok(backup)
    }

    /// Adds what has been written since.
    ///
    /// # Errors
    /// Damage of the log, below what is still being written; the file system's. The copy is whole up to some commit all the same.
    pub fn catch_up(&mut self) -> Result<Added, Error> {
        let mut added = Added::default();
        let begun = self.begun(&self.from)?;
        for (index, segment) in begun.iter().enumerate() {
            let number = segment.header.segment;
            if self.reached.is_some_and(|reached| reached.segment > number) {
                continue;
            }
            let next = begun.get(index + 1);
            let mut run = self.copy(segment, &mut added)?;
            if let Some(next) = next {
                // What is finished may have been written anew since a part of it was copied: then all of it is.
                if self.gap(segment, next, &run).is_err() {
                    run = self.copy_anew(segment, &mut added)?;
                }
                self.gap(segment, next, &run)?;
            }
            added.upto = Position {
                writer: segment.header.writer,
                commit: CommitNo(run.next.0 - 1),
            };
        }
        let files = &self.options.files;
        files
            .sync_dir(&self.to)
            .map_err(Error::io(format!("syncing the directory {}", self.to.display())))?;
        if std::mem::take(&mut self.is_unfinished) {
            super::unfinished::finish(&**files, &self.to)?;
        }
        Ok(added)
    }

    /// The segments of a directory that were begun, in order.
    fn begun(&self, dir: &Path) -> Result<Vec<Begun>, Error> {
        let files = &*self.options.files;
        let mut begun = Vec::new();
        for number in recovery::list(files, dir)? {
            match recovery::open_segment(files, dir, number)? {
                Ok(segment) => begun.push(segment),
                // Made ready, or being begun right now, or its header is lost.
                Err(fault @ (Fault::Empty | Fault::Unreadable(_))) => {
                    recovery::refuse_lost_header(files, dir, number, &fault)?;
                }
                Err(Fault::OtherVersion(found)) => {
                    return Err(Error::OtherVersion {
                        what: segment_path(dir, number).display().to_string(),
                        found,
                        expected: crate::header::FORMAT_VERSION,
                    });
                }
            }
        }
        Ok(begun)
    }

    /// Where an earlier copy ends, if it is one of this log.
    fn look_at_copy(&self) -> Result<Option<Reached>, Error> {
        let (source, copy) = (self.begun(&self.from)?, self.begun(&self.to)?);
        for have in &copy {
            let header = &have.header;
            let number = header.segment;
            let same = source
                .iter()
                .find(|segment| segment.header.segment == number)
                .filter(|segment| segment.header.fingerprint() == header.fingerprint());
            let Some(same) = same else {
                return Err(self.parted(number));
            };
            let is_last = copy.last().is_some_and(|last| last.header.segment == number);
            if is_last {
                return self.look_at_last(have, same).map(Some);
            }
        }
        Ok(None)
    }

    /// The last segment of a copy goes on where it ends, or, if its end was cut off the log since, from its beginning.
    fn look_at_last(&self, have: &Begun, same: &Begun) -> Result<Reached, Error> {
        let number = have.header.segment;
        let reading = || Error::io(format!("reading {}", segment_path(&self.to, number).display()));
        let run = self.follow(&*have.file, have, reading)?;
        let last = run.sectors.last().map(|sectors| scan::bytes_of(*sectors));
        let is_same = match last {
            None => true,
            Some(at) => {
                let heads = [&have.file, &same.file].map(|file| {
                    let mut head = [0; HEADER_BYTES];
                    file.read_at(&mut head, at).map(|read| (read, head))
                });
                let [have, same] = heads;
                have.map_err(reading())? == same.map_err(reading())?
            }
        };
        let (end, next) = match is_same {
            true => (run.end, run.next),
            false => (DATA_AT, have.header.first),
        };
        have.file.set_length(end.min(run.end)).map_err(reading())?;
        Ok(Reached {
            segment: number,
            end,
            next,
        })
    }

    fn follow<E: FnOnce(std::io::Error) -> Error>(
        &self,
        file: &dyn File,
        of: &Begun,
        reading: impl Fn() -> E,
    ) -> Result<scan::Run, Error> {
        let mut window = Window::new(file).map_err(reading())?;
        let header = &of.header;
        scan::follow(&mut window, header.segment, header.writer, header.first, DATA_AT).map_err(reading())
    }

    /// Copies what a segment holds beyond what the copy has of it; how far its whole commits reach.
    fn copy(&mut self, segment: &Begun, added: &mut Added) -> Result<scan::Run, Error> {
        let header = &segment.header;
        let (from, to) = [&self.from, &self.to]
            .map(|dir| segment_path(dir, header.segment))
            .into();
        let doing = || Error::io(format!("copying {} to {}", from.display(), to.display()));
        let reached = self.reached.filter(|reached| reached.segment == header.segment);
        let (at, next) = reached.map_or((DATA_AT, header.first), |reached| (reached.end, reached.next));
        let mut window = Window::new(&*segment.file).map_err(doing())?;
        let run = scan::follow(&mut window, header.segment, header.writer, next, at).map_err(doing())?;
        let target = self.options.files.open(&to, true).map_err(doing())?;
        // Also when there is nothing to add: it says later that its writer was opened.
        target.write_at(&header.encode(), 0).map_err(doing())?;
        copy_range(&*segment.file, &*target, (at, run.end)).map_err(doing())?;
        target.sync_data().map_err(doing())?;
        added.bytes += run.end - at;
        self.reached = Some(Reached {
            segment: header.segment,
            end: run.end,
            next: run.next,
        });
        Ok(run)
    }

    /// Copies a whole segment, in place of what the copy has of it.
    fn copy_anew(&mut self, segment: &Begun, added: &mut Added) -> Result<scan::Run, Error> {
        let header = &segment.header;
        let (from, to) = [&self.from, &self.to]
            .map(|dir| segment_path(dir, header.segment))
            .into();
        let doing = || Error::io(format!("copying {} to {}", from.display(), to.display()));
        let run = self.follow(&*segment.file, segment, doing)?;
        let new = rewrite::new_path(&self.to, header.segment);
        let target = self.options.files.open(&new, true).map_err(doing())?;
        target.set_length(0).map_err(doing())?;
        target.write_at(&header.encode(), 0).map_err(doing())?;
        copy_range(&*segment.file, &*target, (DATA_AT, run.end)).map_err(doing())?;
        target.sync_data().map_err(doing())?;
        self.options.files.rename(&new, &to).map_err(doing())?;
        added.bytes += run.end - DATA_AT;
        self.reached = Some(Reached {
            segment: header.segment,
            end: run.end,
            next: run.next,
        });
        Ok(run)
    }

    /// A segment that another one follows is complete.
    fn gap(&self, segment: &Begun, next: &Begun, run: &scan::Run) -> Result<(), Error> {
        let header = &segment.header;
        let due = match next.header.writer == header.writer {
            true => next.header.first,
            false => match next.header.previous {
                Some(previous) if previous.writer == header.writer => previous.commit.next(),
                // Left out by those after it.
                _ => return Ok(()),
            },
        };
        if run.next >= due {
            return Ok(());
        }
        Err(Error::Damaged {
            position: Position {
                writer: header.writer,
                commit: run.next,
            },
            place: format!(
                "{} at offset {}",
                segment_path(&self.from, header.segment).display(),
                run.end
            ),
            why: run.stop.clone(),
        })
    }

    fn parted(&self, segment: u64) -> Error {
        Error::Backend {
            doing: format!("adding to the copy in {}", self.to.display()),
            why: format!(
                "it is no copy of {}, or was used since: segment {segment} is another one; choose an empty directory",
                self.from.display()
            ),
        }
    }
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
