//! Beginning a directory with a history up to some moment.

use super::{
    import::{ImportTarget as _, Imported},
    walk::{HistoryPart, walk_archived},
};
use crate::{Log, Options, place, unfinished::Unfinished};
use std::path::Path;
use throng_journal::{
    Commit, CommitBuilder, CommitNo, Durability, Error, Position, Record, RecordKind, Removal, Stamp, WriterId,
    tools::date,
};

/// Up to where a history is restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Until {
    /// All of it.
    #[default]
    End,
    /// Up to and including this commit.
    Commit(Position),
    /// Up to the last commit before the first one made after this time, in microseconds since 1970-01-01 UTC.
    Micros(i64),
}

/// Writes a directory's history, up to a moment, into a directory without a log: the same writers, commits, times, entities, sequence
/// numbers and bodies. The store is rebuilt at the first start. Segments in the `archive` are read there, in their state before history was
/// removed from them.
///
/// # Errors
/// [`Error::NoCommit`]: there is no such commit. [`Error::Damaged`]: there is damage before it. [`Error::Backend`]: only a later commit
/// replaces history that was removed. [`Error::Io`] of the file system. The target is then refused as a journal, until a restore into it
/// succeeds.
pub fn restore(
    options: &Options,
    (from, archive): (&Path, Option<&Path>),
    to: &Path,
    until: Until,
) -> Result<Imported, Error> {
    super::require_log(&options.to_read(from), from)?;
    let (unfinished, lock) = Unfinished::begin(options, to)?;
    let how = Options {
        // It is synced once, at its end.
        durability: Durability::Os,
        ..options.clone()
    };
    let log = Log::open_unfinished(to.to_owned(), lock, how)?;
    let mut restoring = Restoring {
        log: &log,
        until,
        open: CommitBuilder::default(),
        begun: None,
        last: Position::default(),
        is_done: false,
        removed: Removed::default(),
        restored: Imported::default(),
    };
    walk_archived(options, from, archive, &mut |seen| match seen {
        HistoryPart::Segment { header, .. } if !restoring.is_done => restoring.writer(header.writer, &header.node),
        HistoryPart::Commit { commit } => restoring.commit(commit),
        HistoryPart::Damage { position, place, why } if !restoring.is_done => {
            Err(Error::Damaged { position, place, why })
        }
        HistoryPart::Segment { .. } | HistoryPart::Damage { .. } | HistoryPart::Note { .. } => Ok(()),
    })?;
    if let Until::Commit(position) = until
        && !restoring.is_done
    {
        return Err(Error::NoCommit(position));
    }
    restoring.removed.refuse_incomplete(from, restoring.last)?;
    let restored = restoring.restored;
    log.sync()?;
    drop(log);
    place::mark_copy(&*options.files, to, "restored from", from)?;
    unfinished.finish()?;
    Ok(restored)
}

struct Restoring<'a> {
    log: &'a Log,
    until: Until,
    open: CommitBuilder,
    begun: Option<WriterId>,
    /// The last restored commit.
    last: Position,
    /// True once the moment is reached: nothing after it counts.
    is_done: bool,
    removed: Removed,
    restored: Imported,
}

impl Restoring<'_> {
    fn writer(&mut self, writer: WriterId, node: &str) -> Result<(), Error> {
        if self.begun == Some(writer) {
            return Ok(());
        }
        self.begun = Some(writer);
        self.restored.writers += 1;
        self.log.begin(writer, node)
    }

    fn commit(&mut self, commit: &Commit) -> Result<(), Error> {
        let stamp = commit.stamp();
        let was_done = self.is_done;
        self.is_done |= matches!(self.until, Until::Micros(micros) if stamp.at_micros > micros);
        // A commit that stands for several has the time of the last one. Earlier ones may belong to the restored part.
        let is_in_part = !was_done && commit.first() < stamp.number;
        self.removed.look_at(commit, !self.is_done || is_in_part);
        if self.is_done {
            return Ok(());
        }
        self.last = stamp.position();
        let replaced_by = commit.removal().map(|removal| removal.replaced_by);
        let left = commit.records().flatten();
        for record in left.filter(|record| record.record != RecordKind::Removed) {
            self.push(&record);
            self.restored.records += 1;
        }
        let stamp = Stamp {
            synced: CommitNo(0),
            ..stamp
        };
        if let Some(replaced_by) = replaced_by.filter(|_| !self.open.is_empty()) {
            self.push(&Record::filler(replaced_by));
        }
        let mut restored = self.open.finish(stamp);
        if restored.record_count() == 0 {
            restored = restored.emptied(commit.stands_for(), replaced_by.flatten());
        }
        let buffer = self.log.append(restored)?;
        self.open.recycle(buffer);
        self.restored.commits += 1;
        self.is_done = matches!(self.until, Until::Commit(last) if last.writer == stamp.writer
            && (commit.first()..=stamp.number).contains(&last.commit));
        Ok(())
    }

    fn push(&mut self, record: &Record<'_>) {
        let (address, shape) = ((record.kind, record.id), (record.name, record.version));
        self.open
            .push_parts(record.record, record.shard, address, record.seq, shape, record.body);
    }
}

/// The removed history, and the commits that replace it.
#[derive(Default)]
struct Removed {
    /// The records removed from the restored part.
    restored: Removal,
    /// The first commit of that part from which records were removed.
    first: Option<Position>,
    /// The first commit with a noted replacement. Programs that note none have removed their part before it or, without one, before the
    /// last record with a shard's message numbers: each pass writes some.
    first_noted: Option<Position>,
    last_counted: Option<Position>,
    /// The last commit of all.
    end: Position,
    /// The time of the noted replacing commit, microseconds since 1970-01-01 UTC.
    replaced_micros: Option<i64>,
}

impl Removed {
    fn look_at(&mut self, commit: &Commit, is_restored: bool) {
        self.end = commit.position();
        let removal = commit.removal();
        if let Some(by) = removal.and_then(|removal| removal.replaced_by) {
            self.first_noted = Some(self.first_noted.map_or(by, |first| first.min(by)));
        }
        let mut records = commit.records().flatten();
        if records.any(|record| record.record == RecordKind::Numbers) {
            self.last_counted = Some(self.end);
        }
        if let Some(removal) = removal.filter(|_| is_restored) {
            self.restored.join(removal);
            self.first.get_or_insert(Position::new(self.end.writer, commit.first()));
        }
        if !is_restored && self.restored.replaced_by <= Some(self.end) {
            self.replaced_micros.get_or_insert(commit.stamp().at_micros);
        }
    }

    /// Refuses a restored part, up to a commit, that lacks what replaces its removed records.
    fn refuse_incomplete(&self, from: &Path, last: Position) -> Result<(), Error> {
        let Removal {
            replaced_by,
            is_unknown,
        } = self.restored;
        let of_unknown = self.first_noted.or(self.last_counted).filter(|_| is_unknown);
        let (Some(first), Some(by)) = (self.first, replaced_by.max(of_unknown)) else {
            return Ok(());
        };
        if by <= last {
            return Ok(());
        }
        let what = match self.replaced_micros.filter(|_| Some(by) == replaced_by) {
            _ if by > self.end => format!("{by}, which it does not have: bring the copy up to date first"),
            Some(micros) => format!("{by}, made {}", date(micros)),
            None => by.to_string(),
        };
        Err(Error::backend(
            format!("restoring {} up to commit {last}", from.display()),
            format!(
                "history was removed from commit {first} on, and its entities are known again from commit {what}; restore up to \
                 that commit or a later one, or to before commit {first}, or take a backup that was made before the removal, or \
                 the archive of the removed history (`--archive DIR`)"
            ),
        ))
    }
}
