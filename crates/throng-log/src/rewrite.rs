//! Removing records from a finished segment.
//!
//! The segment is written to a new file that replaces it by one rename, so that a crash leaves one of the two. What is left stays at its
//! offset. So no index has to change, and a reader of the old file can go on. What was removed is a hole, which takes no room on the disk.
//! Commits without any record left become one that stands for them all.

use crate::{
    files::{BLOCK_BYTES, File, Files, read_exact_at},
    header::{DATA_AT, align, file_name, seed},
    scan::{self, Window},
};
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};
use throng_journal::{Commit, CommitNo, Error, Position, Prune, PruneHow, Pruned, Rest, WriterId};

/// The most bytes of commits that one stands for, because that many have to be read to pass it.
const RUN_BYTES_MAX: u64 = 4 << 20;
/// The suffix of the new file.
const NEW_SUFFIX: &str = ".new";

/// A segment that no writer writes any more.
#[derive(Clone, Debug)]
pub(crate) struct Finished {
    pub(crate) dir: PathBuf,
    pub(crate) number: u64,
    pub(crate) writer: WriterId,
    pub(crate) first: CommitNo,
    pub(crate) last: CommitNo,
}

impl Finished {
    fn path(&self) -> PathBuf {
        self.dir.join(file_name(self.number))
    }

    fn failed(&self) -> impl FnOnce(io::Error) -> Error + use<> {
        Error::io(format!("removing what is over from {}", self.path().display()))
    }
}

/// True for the file of an interrupted rewrite.
pub(crate) fn is_leftover(name: &str) -> bool {
    let number = name.strip_suffix(NEW_SUFFIX).and_then(crate::header::number_of);
    number.is_some()
}

/// Returns the path of a segment's new file.
pub(crate) fn new_path(dir: &Path, segment: u64) -> PathBuf {
    dir.join(file_name(segment) + NEW_SUFFIX)
}

/// Removes expired records from a segment, after copying the segment to the archive if there is one. `None`: nothing has expired.
///
/// # Errors
/// [`Error::Damaged`]: the segment is damaged, and is then left as it is. [`Error::Io`] of the file system.
pub(crate) fn rewrite(
    files: &dyn Files,
    segment: &Finished,
    prune: &Prune,
    archive: Option<&Path>,
) -> Result<Pruned, Error> {
    let source = files.open(&segment.path(), false).map_err(segment.failed())?;
    let mut plan = Plan::default();
    let pruned = walk(&*source, segment, prune, &mut plan)?;
    let pruned = Pruned {
        bytes: plan.before.bytes().saturating_sub(plan.after.bytes()),
        ..pruned
    };
    match (prune.how, archive) {
        (PruneHow::Dry, _) => return Ok(pruned),
        (PruneHow::Erase, Some(archive)) => erase_archived(files, segment, prune, archive)?,
        (PruneHow::Remove, Some(archive)) if pruned.records > 0 => keep(files, segment, &*source, archive)?,
        _ => {}
    }
    if pruned.records == 0 && pruned.commits == 0 {
        return Ok(pruned);
    }
    let new = new_path(&segment.dir, segment.number);
    let written = write_new(files, segment, prune, &*source, &new);
    if written.is_err() {
        // The next rewrite begins anew.
        let _ = files.remove(&new);
    }
    written?;
    files.rename(&new, &segment.path()).map_err(segment.failed())?;
    files.sync_dir(&segment.dir).map_err(segment.failed())?;
    Ok(pruned)
}

/// Removes expired records from an archive's copy of a segment, too, and from an interrupted copy.
fn erase_archived(files: &dyn Files, segment: &Finished, prune: &Prune, archive: &Path) -> Result<(), Error> {
    let names = match files.list(archive) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        listed => listed.map_err(Error::io(format!("reading the archive {}", archive.display())))?,
    };
    let name = file_name(segment.number);
    let archived = Finished {
        dir: archive.to_owned(),
        ..segment.clone()
    };
    let unfinished = name.clone() + NEW_SUFFIX;
    if names.contains(&unfinished) {
        files.remove(&archive.join(unfinished)).map_err(archived.failed())?;
    }
    match names.contains(&name) {
        true => rewrite(files, &archived, prune, None).map(drop),
        false => Ok(()),
    }
}

fn write_new(
    files: &dyn Files,
    segment: &Finished,
    prune: &Prune,
    source: &dyn File,
    path: &Path,
) -> Result<(), Error> {
    let is_there = files.list(&segment.dir).map_err(segment.failed())?;
    if path
        .file_name()
        .is_some_and(|name| is_there.iter().any(|other| **other == *name))
    {
        files.remove(path).map_err(segment.failed())?;
    }
    let file = files.open(path, true).map_err(segment.failed())?;
    let mut header = vec![0; DATA_AT as usize];
    read_exact_at(source, &mut header, 0).map_err(segment.failed())?;
    file.write_at(&header, 0).map_err(segment.failed())?;
    let mut target = Target {
        file: Arc::clone(&file),
        end: DATA_AT,
    };
    walk(source, segment, prune, &mut target)?;
    file.set_length(target.end).map_err(segment.failed())?;
    file.sync_data().map_err(segment.failed())
}

/// Copies a segment to an archive, unless one of its number is there: that was copied before more was removed.
fn keep(files: &dyn Files, segment: &Finished, source: &dyn File, archive: &Path) -> Result<(), Error> {
    let failed = || Error::io(format!("copying {} to {}", segment.path().display(), archive.display()));
    files.create_dir(archive).map_err(failed())?;
    let name = file_name(segment.number);
    if files.list(archive).map_err(failed())?.contains(&name) {
        return Ok(());
    }
    let new = archive.join(name.clone() + NEW_SUFFIX);
    let file = files.open(&new, true).map_err(failed())?;
    file.set_length(0).map_err(failed())?;
    copy_sparse(source, &*file, (0, source.length().map_err(failed())?)).map_err(failed())?;
    file.sync_data().map_err(failed())?;
    files.rename(&new, &archive.join(name)).map_err(failed())?;
    files.sync_dir(archive).map_err(failed())
}

/// Copies a range of a file to the same offset in another, skipping blocks of zeros, which the other one must read as zeros there.
pub(crate) fn copy_sparse(source: &dyn File, target: &dyn File, (from, to): (u64, u64)) -> io::Result<()> {
    let mut piece = vec![0; usize::try_from((to - from).min(RUN_BYTES_MAX)).unwrap_or(0)];
    let mut at = from;
    while at < to {
        // Pieces end where blocks do.
        let end = (at + RUN_BYTES_MAX).next_multiple_of(BLOCK_BYTES) - BLOCK_BYTES;
        let wanted = usize::try_from(end.min(to) - at).unwrap_or(0).min(piece.len());
        read_exact_at(source, &mut piece[..wanted], at)?;
        write_sparse(target, &piece[..wanted], at)?;
        at += wanted as u64;
    }
    if target.length()? < to {
        target.set_length(to)?;
    }
    Ok(())
}

/// Writes the bytes except whole blocks of zeros.
fn write_sparse(file: &dyn File, bytes: &[u8], offset: u64) -> io::Result<()> {
    let mut pending: Option<(u64, usize, usize)> = None;
    for (from, to) in blocks(bytes.len(), offset) {
        let is_hole = bytes[from..to].iter().all(|byte| *byte == 0);
        pending = match (pending, is_hole) {
            (None, true) => None,
            (None, false) => Some((offset + from as u64, from, to)),
            (Some((at, begin, _)), false) => Some((at, begin, to)),
            (Some((at, begin, end)), true) => {
                file.write_at(&bytes[begin..end], at)?;
                None
            }
        };
    }
    match pending {
        Some((at, begin, end)) => file.write_at(&bytes[begin..end], at),
        None => Ok(()),
    }
}

/// Returns the parts of a range at an offset, split where blocks of the file begin.
fn blocks(length: usize, offset: u64) -> impl Iterator<Item = (usize, usize)> {
    let block = BLOCK_BYTES as usize;
    let lead = (block - (offset % BLOCK_BYTES) as usize) % block;
    let cuts = (lead..length).step_by(block);
    let starts = std::iter::once(0).chain(cuts.clone().filter(|at| *at > 0));
    let ends = cuts.filter(|at| *at > 0).chain([length]);
    starts.zip(ends).filter(|(from, to)| from < to)
}

/// The receiver of a segment's commits, in order.
trait Sink {
    /// Takes the former bytes.
    fn was(&mut self, bytes: &[u8], offset: u64);
    /// Takes the new bytes.
    fn is(&mut self, bytes: &[u8], offset: u64) -> io::Result<()>;
}

/// The blocks of a file that take room, as far as they were visited in order.
#[derive(Default)]
struct Blocks {
    last: Option<u64>,
    count: u64,
}

impl Blocks {
    fn meet(&mut self, bytes: &[u8], offset: u64) {
        for (from, to) in blocks(bytes.len(), offset) {
            let block = (offset + from as u64) / BLOCK_BYTES;
            if self.last != Some(block) && bytes[from..to].iter().any(|byte| *byte != 0) {
                self.last = Some(block);
                self.count += 1;
            }
        }
    }

    fn bytes(&self) -> u64 {
        self.count * BLOCK_BYTES
    }
}

#[derive(Default)]
struct Plan {
    before: Blocks,
    after: Blocks,
}

impl Sink for Plan {
    fn was(&mut self, bytes: &[u8], offset: u64) {
        self.before.meet(bytes, offset);
    }

    fn is(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.after.meet(bytes, offset);
        Ok(())
    }
}

struct Target {
    file: Arc<dyn File>,
    end: u64,
}

impl Sink for Target {
    fn was(&mut self, _: &[u8], _: u64) {}

    fn is(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.end = align(offset + bytes.len() as u64);
        write_sparse(&*self.file, bytes, offset)
    }
}

/// Consecutive commits without any record left.
struct Run {
    /// The offset at which they begin.
    at: u64,
    first: CommitNo,
    last: Commit,
    replaced_by: Option<Position>,
}

impl Run {
    /// Ends the run: one commit stands for all of them. If something follows, it has their total length.
    fn end(self, segment: u64, next: Option<u64>, sink: &mut dyn Sink) -> io::Result<()> {
        let before = u32::try_from(self.last.stamp().number.0 - self.first.0).unwrap_or(u32::MAX);
        let mut one = self.last.emptied(before, self.replaced_by);
        if let Some(next) = next {
            let room = usize::try_from(next - self.at).unwrap_or(0);
            one.pad(room.saturating_sub(one.bytes().len()));
        }
        one.seal(&seed(segment, self.at));
        sink.is(one.bytes(), self.at)
    }
}

/// Shows a segment's commits as they are and as they are to be.
fn walk(source: &dyn File, segment: &Finished, prune: &Prune, sink: &mut dyn Sink) -> Result<Pruned, Error> {
    let mut window = Window::with_piece(source, 1 << 20).map_err(segment.failed())?;
    let (mut at, mut due) = (DATA_AT, segment.first);
    let mut pruned = Pruned::default();
    let mut run: Option<Run> = None;
    while due <= segment.last {
        let found = scan::commit_at(&mut window, segment.number, at).map_err(segment.failed())?;
        let damaged = |why: String| Error::Damaged {
            position: Position::new(segment.writer, due),
            place: format!("{} at offset {at}", segment.path().display()),
            why,
        };
        let commit = found.map_err(|damage| damaged(damage.to_string()))?;
        let stamp = commit.stamp();
        if stamp.writer != segment.writer || commit.first() != due {
            return Err(damaged(format!("commit {} stands there", stamp.position())));
        }
        sink.was(commit.bytes(), at);
        let next = align(at + commit.bytes().len() as u64);
        let was_empty = commit.record_count() == 0;
        let mut records = 0;
        let rest = commit.without(prune.replaced_by, |record| {
            let is_over = (prune.judge)(record, stamp);
            records += u64::from(is_over);
            is_over
        });
        pruned.records += records;
        (pruned.upto, pruned.at_micros) = (stamp.number, stamp.at_micros);
        let first = commit.first();
        match rest {
            Rest::Nothing => {
                pruned.commits += u64::from(!was_empty);
                let replaced_by = prune.emptied_by(&commit, records);
                run = Some(match run.take() {
                    Some(open) if next - open.at <= RUN_BYTES_MAX => Run {
                        last: commit,
                        replaced_by: open.replaced_by.max(replaced_by),
                        ..open
                    },
                    other => {
                        if let Some(full) = other {
                            full.end(segment.number, Some(at), sink).map_err(segment.failed())?;
                        }
                        Run {
                            at,
                            first,
                            last: commit,
                            replaced_by,
                        }
                    }
                });
            }
            rest => {
                if let Some(run) = run.take() {
                    run.end(segment.number, Some(at), sink).map_err(segment.failed())?;
                }
                let left = match rest {
                    Rest::Part(mut part) => {
                        part.seal(&seed(segment.number, at));
                        part
                    }
                    _ => commit,
                };
                sink.is(left.bytes(), at).map_err(segment.failed())?;
            }
        }
        at = next;
        due = stamp.number.next();
    }
    if let Some(run) = run {
        run.end(segment.number, None, sink).map_err(segment.failed())?;
    }
    Ok(pruned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_sparse_copy_equals_its_original(
            runs in proptest::collection::vec((any::<bool>(), 0usize..9_000), 0..8),
            offset in 0u64..10_000,
        ) {
            let dir = tempfile::tempdir().unwrap();
            let files = crate::files::Disk;
            let mut bytes = Vec::new();
            for (is_hole, length) in runs {
                bytes.resize(bytes.len() + length, u8::from(!is_hole));
            }
            let file = files.open(&dir.path().join("a"), true).unwrap();
            write_sparse(&*file, &bytes, offset).unwrap();
            file.set_length(offset + bytes.len() as u64).unwrap();
            let mut read = vec![1; bytes.len()];
            read_exact_at(&*file, &mut read, offset).unwrap();
            prop_assert_eq!(read, bytes);
        }
    }

    #[test]
    fn blocks_are_cut_where_the_files_blocks_begin() {
        let cut = |length, offset| blocks(length, offset).collect::<Vec<_>>();
        assert_eq!(cut(0, 5), []);
        assert_eq!(cut(10, 4090), [(0, 6), (6, 10)]);
        assert_eq!(cut(4096, 4096), [(0, 4096)]);
        assert_eq!(cut(5000, 0), [(0, 4096), (4096, 5000)]);
        assert_eq!(cut(100, 512), [(0, 100)]);
    }

    #[test]
    fn only_files_of_a_rewriting_are_its_leftovers() {
        assert!(is_leftover("00000007.log.new"));
        assert!(!is_leftover("00000007.log") && !is_leftover("store.redb.new") && !is_leftover("notes.new"));
    }
}
