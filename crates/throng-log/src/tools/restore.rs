//! Beginning a directory with a history up to some moment.

use super::{
    import::{ImportTarget as _, Imported},
    unfinished::Unfinished,
    walk::{Seen, walk},
};
use crate::{Log, Options, Place};
use std::path::Path;
use throng_journal::{Commit, CommitBuilder, Durability, Error, Position, RecordKind, Stamp, WriterId};

/// Up to where a history is restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Until {
    /// All of it.
    #[default]
    End,
    /// This commit, which is the last one then.
    Commit(Position),
    /// The last commit before the first one that was made after this time, in microseconds since 1970-01-01 UTC.
    Micros(i64),
}

/// Writes a directory's history, up to a moment, into one that holds no log: the same writers, commits, times, entities, sequence
/// numbers and bodies. The store is rebuilt from it at the first start.
///
/// # Errors
/// There is no such commit; damage before it; the file system's. The target is refused as a journal then, until a restore into it
/// ends.
pub fn restore(options: &Options, from: &Path, to: &Path, until: Until) -> Result<Imported, Error> {
    super::require_log(options, from)?;
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
        is_done: false,
        restored: Imported::default(),
    };
    walk(options, from, &mut |seen| match seen {
        _ if restoring.is_done => Ok(()),
        Seen::Segment { header, .. } => restoring.writer(header.writer, &header.node),
        Seen::Commit { commit } => restoring.commit(commit),
        Seen::Damage { position, place, why } => Err(Error::Damaged { position, place, why }),
        Seen::Note { .. } => Ok(()),
    })?;
    let restored = restoring.restored;
    if let Until::Commit(position) = until
        && !restoring.is_done
    {
        return Err(Error::NoCommit(position));
    }
    log.sync()?;
    drop(log);
    Place::of(to).mark_copy("restored from", from)?;
    unfinished.finish()?;
    Ok(restored)
}

struct Restoring<'a> {
    log: &'a Log,
    until: Until,
    open: CommitBuilder,
    begun: Option<WriterId>,
    /// The moment is reached: nothing after it counts.
    is_done: bool,
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
        if matches!(self.until, Until::Micros(micros) if stamp.at_micros > micros) {
            self.is_done = true;
            return Ok(());
        }
        let left = commit.records().flatten();
        for record in left.filter(|record| record.record != RecordKind::Removed) {
            let (address, shape) = ((record.kind, record.id), (record.name, record.version));
            self.open
                .push_parts(record.record, record.shard, address, record.seq, shape, record.body);
            self.restored.records += 1;
        }
        let stamp = Stamp {
            synced: throng_journal::CommitNo(0),
            ..stamp
        };
        let mut restored = self.open.finish(stamp);
        if commit.stands_for() > 0 {
            restored = restored.emptied(commit.stands_for());
        }
        let buffer = self.log.append(restored)?;
        self.open.recycle(buffer);
        self.restored.commits += 1;
        self.is_done = matches!(self.until, Until::Commit(last) if last.writer == stamp.writer
            && (commit.first()..=stamp.number).contains(&last.commit));
        Ok(())
    }
}
