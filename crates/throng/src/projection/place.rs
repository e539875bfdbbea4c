//! The position of a projection in every stream, stored with its rows.
//!
//! The views store one position for each read model. In a cluster, whose streams are written concurrently, several are needed: they are in
//! a row of their own, written in the same batch. If one position suffices, there is no such row. The row also marks rows that are being
//! built from the first event until they have caught up, so that a start in between knows that they are incomplete; and it lists the
//! skipped events, as long as there are any.

use super::Skipped;
use crate::epoch::{Ends, Epoch};
use std::ops::Bound;
use throng_journal::{Error, Position, Positions, ViewBatch, ViewOffset, ViewRange, Views};

/// The key of the row with the position. No projection can write it, and no reader sees it.
pub(super) const PLACE_KEY: &[u8] = b"";

/// The position of a projection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ProjectionPosition {
    /// The last commit that it has read, and the version that did. Its position distinguishes batches.
    pub(super) last: ViewOffset,
    /// All that it has read.
    pub(super) told: Positions,
    /// True if the projection began with the first event, and has not caught up since.
    pub(super) is_rebuilding: bool,
    /// The newest skipped events, the oldest first.
    pub(super) skipped: Vec<Skipped>,
    /// Events that it was told to skip, and has not reached yet. In the row they come after the others, with the number 0.
    pub(super) decided: Vec<Skipped>,
}

/// The words by which the row marks an incomplete read model. The second is needed only if more follows.
const REBUILDING: &str = "rebuilding";
const COMPLETE: &str = "complete";

impl ProjectionPosition {
    /// Returns the position before the first event.
    pub(super) fn beginning(epoch: &Epoch, version: u32) -> Self {
        let last = ViewOffset {
            position: Ends::of(epoch).start(),
            checksum: 0,
            version,
        };
        Self {
            last,
            is_rebuilding: true,
            ..Self::default()
        }
    }

    /// True if a rebuild was [requested](begin_anew) while the projection did not run.
    pub(super) fn is_asked_for_anew(&self) -> bool {
        self.is_rebuilding && self.last.position == Position::default()
    }

    /// Returns the content of the row; `None` if no row is needed.
    pub(super) fn row(&self) -> Option<Vec<u8>> {
        let is_one = self.told == Positions::from(self.last.position);
        let Self { last, told, .. } = self;
        let mut row = format!("{} {told}", last.position);
        match (self.is_rebuilding, self.skipped.is_empty() && self.decided.is_empty()) {
            (false, true) if is_one => return None,
            (false, true) => {}
            (true, true) => row = format!("{row} {REBUILDING}"),
            (is_rebuilding, false) => {
                let built = if is_rebuilding { REBUILDING } else { COMPLETE };
                let skipped: Vec<&Skipped> = self.skipped.iter().chain(&self.decided).collect();
                row = format!("{row} {built} {}", serde_json::to_string(&skipped).unwrap_or_default());
            }
        }
        Some(row.into_bytes())
    }

    fn read(last: ViewOffset, row: Option<&[u8]>) -> Self {
        // A row for another position was left by a program that does not know of such rows.
        let read = row.and_then(|row| {
            let mut parts = std::str::from_utf8(row).ok()?.splitn(4, ' ');
            let of: Position = parts.next()?.parse().ok()?;
            let told: Positions = parts.next()?.parse().ok()?;
            let is_rebuilding = parts.next() == Some(REBUILDING);
            let skipped = parts.next().and_then(|skipped| serde_json::from_str(skipped).ok());
            (of == last.position).then(|| (told, is_rebuilding, skipped.unwrap_or_default()))
        });
        let (told, is_rebuilding, skipped): (_, _, Vec<Skipped>) =
            read.unwrap_or_else(|| (Positions::from(last.position), false, Vec::new()));
        let (decided, skipped) = skipped.into_iter().partition(|skipped| skipped.number == 0);
        Self {
            last,
            told,
            is_rebuilding,
            skipped,
            decided,
        }
    }

    /// Returns the stored position, and whether it has a row; the outer `None`: another process is writing it just now.
    pub(super) async fn stored(views: &dyn Views, name: &str) -> Result<Option<(Self, bool)>, String> {
        let unreadable = |error| format!("its offset cannot be read: {error}");
        loop {
            let Some(last) = views.offset(name).await.map_err(unreadable)? else {
                return Ok(None);
            };
            let row = views.get(name, vec![PLACE_KEY.to_vec()]).await.map_err(unreadable)?;
            // Both belong to one batch only if no other batch came between.
            if views.offset(name).await.map_err(unreadable)? == Some(last) {
                let row = row.into_iter().next().flatten();
                return Ok(Some((Self::read(last, row.as_deref()), row.is_some())));
            }
        }
    }
}

/// Clears a read model or sink, so that the next start rebuilds it from the first event. Returns its former position; `None`: nothing was
/// stored. What a sink has delivered is [cleared](super::Sink::clear) by that start.
///
/// # Errors
/// [`Error`]: the rows cannot be read or written.
pub async fn begin_anew(views: &dyn Views, name: &str) -> Result<Option<Position>, Error> {
    let last = views.offset(name).await?;
    let Some(last) = last.filter(|last| last.position != Position::default()) else {
        return Ok(None);
    };
    views.clear(name).await?;
    let anew = ProjectionPosition {
        last: ViewOffset {
            version: last.version,
            ..ViewOffset::default()
        },
        is_rebuilding: true,
        ..ProjectionPosition::default()
    };
    let batch = ViewBatch {
        expected: None,
        offset: anew.last,
        changes: vec![(PLACE_KEY.to_vec(), anew.row())],
    };
    views.apply(name, batch).await?;
    Ok(Some(last.position))
}

/// The part of a range that readers see.
pub(super) fn visible(mut range: ViewRange) -> ViewRange {
    let begins_before = match &range.from {
        Bound::Unbounded => true,
        Bound::Included(from) => from.is_empty(),
        Bound::Excluded(_) => false,
    };
    if begins_before {
        range.from = Bound::Excluded(PLACE_KEY.to_vec());
    }
    range
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(position: &str) -> ViewOffset {
        ViewOffset {
            position: position.parse().unwrap(),
            checksum: 7,
            version: 1,
        }
    }

    #[test]
    fn only_a_place_of_several_streams_has_a_row() {
        let one = ProjectionPosition {
            last: last("3.5"),
            told: "3.5".parse().unwrap(),
            ..ProjectionPosition::default()
        };
        assert_eq!(one.row(), None);
        assert_eq!(ProjectionPosition::read(one.last, None), one);
        let half = ProjectionPosition {
            is_rebuilding: true,
            ..one.clone()
        };
        assert_eq!(ProjectionPosition::read(half.last, half.row().as_deref()), half);
        let several = ProjectionPosition {
            last: last("3.5"),
            told: "3.5,7.22".parse().unwrap(),
            ..ProjectionPosition::default()
        };
        let row = several.row().unwrap();
        assert_eq!(ProjectionPosition::read(several.last, Some(&row)), several);
        // The row of an earlier position does not count.
        let later = ProjectionPosition::read(last("8.1"), Some(&row));
        assert_eq!(later.told, "8.1".parse().unwrap());
    }

    #[test]
    fn row_of_the_place_holds_skipped_events() {
        let skipped = Skipped {
            number: 1,
            event: "3.4.0".parse().unwrap(),
            why: "event 1 of a/b (at 3.4.0) cannot be applied: \"no\"".into(),
            at: crate::model::Timestamp { micros: 5 },
            by: "ann".into(),
            reason: "it was entered twice".into(),
        };
        let decided = Skipped {
            number: 0,
            ..skipped.clone()
        };
        let (skipped, decided, none) = (vec![skipped], vec![decided], Vec::new);
        for is_rebuilding in [false, true] {
            for (skipped, decided) in [(&skipped, &none()), (&skipped, &decided), (&none(), &decided)] {
                let place = ProjectionPosition {
                    last: last("3.5"),
                    told: "3.5".parse().unwrap(),
                    is_rebuilding,
                    skipped: skipped.clone(),
                    decided: decided.clone(),
                };
                assert_eq!(ProjectionPosition::read(place.last, place.row().as_deref()), place);
            }
        }
    }

    #[test]
    fn the_row_of_the_place_is_in_no_range() {
        let from = |from| ViewRange {
            from,
            ..ViewRange::default()
        };
        let behind = from(Bound::Excluded(Vec::new()));
        assert_eq!(visible(from(Bound::Unbounded)), behind);
        assert_eq!(visible(from(Bound::Included(Vec::new()))), behind);
        assert_eq!(visible(ViewRange::prefix(b"a")), ViewRange::prefix(b"a"));
    }
}
