//! The source of a projection: the durable commits it has not read, over all epochs of the engine and all nodes of a cluster.

use super::place::ProjectionPosition;
use throng_journal::{Commit, CommitNo, Error, Journal, Position, RecordKind, Stream, Stretch};

/// Bytes of commits read at a time.
const READ_BYTES: usize = 1 << 20;

/// Returns the reason why a position does not belong to this history; `None` if it does.
pub(super) async fn mismatch(
    journal: &dyn Journal,
    streams: &[Stream],
    place: &ProjectionPosition,
) -> Result<Option<String>, Error> {
    const LOST: &str =
        "the journal was restored from an older copy or has lost its end; rebuild to bring it back in step";
    for at in place.told.positions() {
        match streams.iter().find(|stream| stream.writer == at.writer) {
            None => {
                return Ok(Some(format!(
                    "it has come to commit {at}, whose writer the journal does not have: {LOST}"
                )));
            }
            Some(stream) if stream.last < at.commit => {
                let ends = Position::new(at.writer, stream.last);
                return Ok(Some(format!(
                    "it has come to commit {at}, but the journal's stream ends at {ends}: {LOST}"
                )));
            }
            Some(_) => {}
        }
    }
    let at = place.last.position;
    if at.commit == CommitNo(0) {
        return Ok(None);
    }
    let found = commit(journal, at).await?;
    // If history was removed from a commit, only its number is left to compare.
    let was_pruned = |commit: &Commit| {
        let mut records = commit.records().flatten();
        commit.record_count() == 0 || records.any(|record| record.record == RecordKind::Removed)
    };
    let is_same = found.is_some_and(|commit| was_pruned(&commit) || commit.checksum_sealed() == place.last.checksum);
    Ok((!is_same).then(|| format!("commit {at} of the journal is not the one it has come to: {LOST}")))
}

/// Returns the commit of this number, or the one it was joined with; `None`: the journal does not have it.
pub(super) async fn commit(journal: &dyn Journal, at: Position) -> Result<Option<Commit>, Error> {
    let Some(before) = at.commit.0.checked_sub(1) else {
        return Ok(None);
    };
    let before = Position::new(at.writer, CommitNo(before));
    let read = journal.read(before, 0).await?;
    let holds = |commit: &Commit| commit.first() <= at.commit && at.commit <= commit.stamp().number;
    Ok(read.into_iter().next().filter(holds))
}

/// The first commits of a stretch.
pub(super) async fn read(journal: &dyn Journal, stretch: Stretch) -> Result<Vec<Commit>, Error> {
    stretch.read(journal, READ_BYTES).await
}
