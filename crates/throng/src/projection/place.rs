//! Where a projection is: what is told of all streams, kept with its rows.
//!
//! The views keep one position for a read model. Of a cluster's streams, written side by side, several are needed: they stand in a row
//! of their own, written in the same batch. Where one position says it all, there is no such row. Rows that are being built from the first
//! event have it, too, until they have come to what is durable: a start in between knows that they are not complete.

use std::ops::Bound;
use throng_journal::{Position, Told, ViewOffset, ViewRange, Views};

/// The key of the row with the place; no projection can write it, and no reader sees it.
pub(super) const PLACE_KEY: &[u8] = b"";

/// How far a projection has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// The last commit that it has read, and by which version of it; its position is what tells one batch from another.
    pub(super) last: ViewOffset,
    /// All that it has read.
    pub(super) told: Told,
    /// It began with the first event, and has not come to the end since.
    pub(super) is_rebuilding: bool,
}

/// What the row says of rows that are being built.
const REBUILDING: &str = "rebuilding";

impl Place {
    /// What the row has to say; `None`: nothing.
    pub(super) fn row(&self) -> Option<Vec<u8>> {
        let is_one = self.told == Told::from(self.last.position);
        let Self { last, told, .. } = self;
        match self.is_rebuilding {
            true => Some(format!("{} {told} {REBUILDING}", last.position).into_bytes()),
            false => (!is_one).then(|| format!("{} {told}", last.position).into_bytes()),
        }
    }

    fn read(last: ViewOffset, row: Option<&[u8]>) -> Self {
        // A row of another position was left behind by a program that knows of none.
        let read = row.and_then(|row| {
            let mut parts = std::str::from_utf8(row).ok()?.split(' ');
            let of: Position = parts.next()?.parse().ok()?;
            let told: Told = parts.next()?.parse().ok()?;
            (of == last.position).then(|| (told, parts.next() == Some(REBUILDING)))
        });
        let (told, is_rebuilding) = read.unwrap_or_else(|| (Told::from(last.position), false));
        Self {
            last,
            told,
            is_rebuilding,
        }
    }

    /// The place that is stored; the outer `None`: somebody writes it just now. Also whether there is a row of it.
    pub(super) async fn stored(views: &dyn Views, name: &str) -> Result<Option<(Self, bool)>, String> {
        let unreadable = |error| format!("its offset cannot be read: {error}");
        loop {
            let Some(last) = views.offset(name).await.map_err(unreadable)? else {
                return Ok(None);
            };
            let row = views.get(name, vec![PLACE_KEY.to_vec()]).await.map_err(unreadable)?;
            // Both are of one batch only if no other one came between.
            if views.offset(name).await.map_err(unreadable)? == Some(last) {
                let row = row.into_iter().next().flatten();
                return Ok(Some((Self::read(last, row.as_deref()), row.is_some())));
            }
        }
    }
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
    fn a_place_among_several_streams_has_a_row_and_one_of_a_single_stream_has_none() {
        let one = Place {
            last: last("3.5"),
            told: "3.5".parse().unwrap(),
            is_rebuilding: false,
        };
        assert_eq!(one.row(), None);
        assert_eq!(Place::read(one.last, None), one);
        let half = Place {
            is_rebuilding: true,
            ..one.clone()
        };
        assert_eq!(Place::read(half.last, half.row().as_deref()), half);
        let several = Place {
            last: last("3.5"),
            told: "3.5,7.22".parse().unwrap(),
            is_rebuilding: false,
        };
        let row = several.row().unwrap();
        assert_eq!(Place::read(several.last, Some(&row)), several);
        // The row of an earlier position does not count.
        let later = Place::read(last("8.1"), Some(&row));
        assert_eq!(later.told, "8.1".parse().unwrap());
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
