//! The limit of a pass: only history that a checkpoint covers and every projection has read may be removed.

use super::Retention;
use crate::epoch::Epoch;
#[cfg(feature = "projections")]
use crate::projection::BEHIND_SECONDS_NORMAL;
#[cfg(feature = "projections")]
use std::time::Duration;
#[cfg(feature = "projections")]
use throng_journal::Positions;
use throng_journal::{CommitNo, Error, Position};

/// A projection that keeps history it has not read from being removed.
pub(super) struct Holder {
    pub(super) name: String,
    /// True if the projection has been behind for longer than is normal.
    pub(super) is_behind: bool,
}

/// Returns the position up to which a pass may remove history, and the projections that prevent more.
pub(super) async fn limit(retention: &Retention, epoch: &Epoch) -> Result<(Position, Vec<Holder>), Error> {
    let Some(covers) = epoch.group_commit.covers() else {
        return Ok((Position::default(), Vec::new()));
    };
    // The last covered commit stays, because it shows that a store belongs to its journal.
    let covered = Position::new(covers.writer, CommitNo(covers.commit.0.saturating_sub(1)));
    read_by_projections(retention, epoch, covered).await
}

#[cfg(not(feature = "projections"))]
async fn read_by_projections(_: &Retention, _: &Epoch, covered: Position) -> Result<(Position, Vec<Holder>), Error> {
    Ok((covered, Vec::new()))
}

/// A projection whose progress limits the pass.
#[cfg(feature = "projections")]
struct Reader {
    name: &'static str,
    reached: Position,
    behind: Duration,
}

#[cfg(feature = "projections")]
async fn read_by_projections(
    retention: &Retention,
    epoch: &Epoch,
    covered: Position,
) -> Result<(Position, Vec<Holder>), Error> {
    if !retention.idle_projections.is_empty() {
        let idle = retention.idle_projections.iter().map(|name| Holder {
            name: (*name).to_owned(),
            is_behind: true,
        });
        return Ok((Position::default(), idle.collect()));
    }
    let readers = match retention.context().peers.is_some() {
        true => of_cluster(retention, epoch, covered).await?,
        false => retention
            .projections
            .progress()
            .into_iter()
            .map(|progress| Reader {
                name: progress.name,
                reached: progress.reached.unwrap_or_default(),
                behind: Duration::from_secs_f64(progress.behind_seconds),
            })
            .collect(),
    };
    let (mut limit, mut held_by) = (covered, Vec::new());
    let patience = retention.context().options.left_behind_after;
    for Reader { name, reached, behind } in readers {
        if reached >= limit {
            continue;
        }
        if patience.is_some_and(|patience| behind > patience) {
            tracing::warn!("the projection {name} is left behind: history it has not read is removed");
            continue;
        }
        held_by.push(Holder {
            name: name.to_owned(),
            is_behind: behind.as_secs_f64() > BEHIND_SECONDS_NORMAL,
        });
        limit = reached;
    }
    Ok((limit, held_by))
}

/// Returns the projections of a cluster. One runner reads for all nodes, and its progress is stored with its rows.
#[cfg(feature = "projections")]
async fn of_cluster(retention: &Retention, epoch: &Epoch, covered: Position) -> Result<Vec<Reader>, Error> {
    let unreadable = |why| Error::backend("looking how far projections have come", why);
    let stored = retention.projections.stored().await.map_err(unreadable)?;
    let now = retention.context().host.elapsed_micros();
    let of_one = |(name, told): (&'static str, Positions)| {
        let sealed = epoch.group_commit.sealed.iter().copied();
        let ends = sealed.filter(|end| end.writer < covered.writer).chain([covered]);
        let reached = reached(&told, ends);
        let behind = retention.goals.behind(name, reached, covered, now);
        Reader { name, reached, behind }
    };
    Ok(stored.into_iter().map(of_one).collect())
}

/// Returns the position up to which these consecutive streams were read completely. Commits in a stream after one that was not
/// read completely do not count.
#[cfg(feature = "projections")]
fn reached(told: &Positions, ends: impl IntoIterator<Item = Position>) -> Position {
    let mut reached = Position::default();
    for end in ends {
        match told.upto_of(end.writer) {
            Some(commit) if commit < end.commit => return Position { commit, ..end },
            _ => reached = end,
        }
    }
    reached
}

#[cfg(test)]
#[cfg(feature = "projections")]
mod tests {
    use super::*;

    fn at(text: &str) -> Position {
        text.parse().unwrap()
    }

    #[test]
    fn projection_holds_history_from_its_first_unread_commit() {
        let reached = |told: &str| {
            let ends = ["2.5", "3.0", "4.7", "6.9"].map(at);
            reached(&told.parse().unwrap(), ends).to_string()
        };
        assert_eq!(reached(""), "2.0");
        assert_eq!(reached("2.3"), "2.3");
        assert_eq!(reached("2.5"), "4.0");
        // Later streams were read further than stream 4, but that one was not read completely.
        assert_eq!(reached("4.2,6.9,8.1"), "4.2");
        assert_eq!(reached("5.30,6.2"), "6.2");
        assert_eq!(reached("6.12"), "6.9");
        assert_eq!(reached("8.1"), "6.9");
    }
}
