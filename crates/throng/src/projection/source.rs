//! Where a projection reads: the durable commits after an offset, over all lives of the engine.

use crate::{engine::Core, life::Life};
use throng_journal::{Commit, CommitNo, Error, Position, ViewOffset, WriterId};

/// Bytes of commits read at a time.
pub(super) const READ_BYTES: usize = 1 << 20;

fn beginning(writer: WriterId) -> Position {
    Position {
        writer,
        commit: CommitNo(0),
    }
}

/// Before the first commit of all.
pub(super) fn start(life: &Life) -> Position {
    beginning(
        life.ledger
            .sealed
            .first()
            .map_or(life.ledger.writer, |first| first.writer),
    )
}

/// The durable end of a writer's stream; `None` if there is no such writer in this history.
fn end_of(life: &Life, writer: WriterId) -> Option<CommitNo> {
    if writer == life.ledger.writer {
        return Some(life.ledger.durable().commit);
    }
    let sealed = life.ledger.sealed.iter().find(|end| end.writer == writer);
    sealed.map(|end| end.commit)
}

/// The stream that follows.
fn next_writer(life: &Life, writer: WriterId) -> Option<WriterId> {
    let all = life
        .ledger
        .sealed
        .iter()
        .map(|end| end.writer)
        .chain([life.ledger.writer]);
    all.filter(|other| *other > writer).min()
}

/// How many durable commits follow a position.
pub(super) fn behind(life: &Life, at: Position) -> u64 {
    let sealed = life.ledger.sealed.iter().copied().chain([life.ledger.durable()]);
    sealed
        .filter(|end| end.writer >= at.writer)
        .map(|end| {
            let from = if end.writer == at.writer { at.commit.0 } else { 0 };
            end.commit.0.saturating_sub(from)
        })
        .sum()
}

/// Why an offset is not one of this history; `None` if it is.
pub(super) async fn misfit(inner: &Core, life: &Life, offset: ViewOffset) -> Result<Option<String>, Error> {
    const LOST: &str =
        "the journal was restored from an older copy or has lost its end; rebuild to bring it back in step";
    let at = offset.position;
    match end_of(life, at.writer) {
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
    let is_same = read
        .first()
        .is_some_and(|commit| commit.position() == at && commit.checksum_sealed() == offset.checksum);
    Ok((!is_same).then(|| format!("commit {at} of the journal is not the one it has come to: {LOST}")))
}

/// The next durable commits after a position, all of one writer; none at the end of what is durable.
pub(super) async fn next(inner: &Core, life: &Life, after: Position) -> Result<Vec<Commit>, Error> {
    let mut at = after;
    loop {
        let end = end_of(life, at.writer).unwrap_or_default();
        if at.commit < end {
            let mut commits = inner.context.journal.read(at, READ_BYTES).await?;
            commits.retain(|commit| commit.stamp().number <= end);
            if commits.is_empty() {
                let next = Position {
                    commit: at.commit.next(),
                    ..at
                };
                return Err(Error::NoCommit(next));
            }
            return Ok(commits);
        }
        match next_writer(life, at.writer) {
            Some(writer) => at = beginning(writer),
            None => return Ok(Vec::new()),
        }
    }
}
