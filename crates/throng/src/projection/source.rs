//! Where a projection reads: the durable commits after an offset, over all lives of the engine.

use crate::{engine::Core, life::Life, tail::Ends};
use throng_journal::{Commit, CommitNo, Error, Position, RecordKind, ViewOffset};

/// Bytes of commits read at a time.
const READ_BYTES: usize = 1 << 20;

/// Why an offset is not one of this history; `None` if it is.
pub(super) async fn mismatch(inner: &Core, life: &Life, offset: ViewOffset) -> Result<Option<String>, Error> {
    const LOST: &str =
        "the journal was restored from an older copy or has lost its end; rebuild to bring it back in step";
    let at = offset.position;
    match Ends::of(life).end_of(at.writer) {
        None => {
            return Ok(Some(format!(
                "it has come to commit {at}, whose writer the journal does not have: {LOST}"
            )));
        }
        Some(end) if end < at.commit => {
            let ends = Position { commit: end, ..at };
            return Ok(Some(format!(
                "it has come to commit {at}, but the journal's stream ends at {ends}: {LOST}"
            )));
        }
        Some(_) => {}
    }
    let Some(before) = at.commit.0.checked_sub(1) else {
        return Ok(None);
    };
    let before = Position {
        commit: CommitNo(before),
        ..at
    };
    let read = inner.context.journal.read(before, 0).await?;
    // Of a commit from which history was removed only the number is left to compare.
    let was_pruned = |commit: &Commit| {
        let mut records = commit.records().flatten();
        commit.record_count() == 0 || records.any(|record| record.record == RecordKind::Removed)
    };
    let is_same = read.first().is_some_and(|commit| {
        let holds = commit.first() <= at.commit && at.commit <= commit.stamp().number;
        holds && (was_pruned(commit) || commit.checksum_sealed() == offset.checksum)
    });
    Ok((!is_same).then(|| format!("commit {at} of the journal is not the one it has come to: {LOST}")))
}

/// The next durable commits after a position, all of one writer; none at the end of what is durable.
pub(super) async fn next(inner: &Core, life: &Life, after: Position) -> Result<Vec<Commit>, Error> {
    match Ends::of(life).after(after) {
        Some(stretch) => stretch.read(&*inner.context.journal, READ_BYTES).await,
        None => Ok(Vec::new()),
    }
}
