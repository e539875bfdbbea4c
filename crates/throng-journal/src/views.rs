//! Read models: rows that projections write together with their position.

use crate::{Error, Later, Position};
use std::ops::Bound;

/// The position that a read model has reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ViewOffset {
    /// Everything up to and including this commit is in its rows.
    pub position: Position,
    /// The checksum of that commit. It distinguishes it from another of the same number, after a restore or a loss of history. 0 before the
    /// first commit of a stream.
    pub checksum: u32,
    /// The version of the projection that wrote the rows.
    pub version: u32,
}

/// A batch of changes to a read model, applied atomically.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViewBatch {
    /// The offset that the read model must have; `None` for one that was never written, or was cleared. With another offset nothing is
    /// done, because another process has written.
    pub expected: Option<ViewOffset>,
    /// The offset it then has.
    pub offset: ViewOffset,
    /// Rows: key and value, or key and `None` to remove it. Of several changes of one key, the last counts.
    pub changes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

/// The outcome of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The batch is applied.
    Done,
    /// The batch was not applied: the read model has this offset, not the expected one.
    Moved(Option<ViewOffset>),
}

/// A part of a read model's rows, in the order of their keys' bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewRange {
    /// The start of the range.
    pub from: Bound<Vec<u8>>,
    /// The end of the range.
    pub to: Bound<Vec<u8>>,
    /// The most rows on a page.
    pub rows_max: usize,
    /// The most bytes of keys and values. The first row is returned whatever its size.
    pub bytes_max: usize,
}

impl Default for ViewRange {
    fn default() -> Self {
        Self {
            from: Bound::Unbounded,
            to: Bound::Unbounded,
            rows_max: usize::MAX,
            bytes_max: usize::MAX,
        }
    }
}

impl ViewRange {
    /// Returns the range of the rows whose key begins with this.
    #[must_use]
    pub fn prefix(prefix: &[u8]) -> Self {
        // The end is the first key after them: the prefix without its trailing `ff` bytes, its last byte raised by one.
        let kept = prefix.iter().rposition(|byte| *byte != u8::MAX);
        let to = kept.map_or(Bound::Unbounded, |last| {
            let mut end = prefix[..=last].to_vec();
            end[last] += 1;
            Bound::Excluded(end)
        });
        Self {
            from: Bound::Included(prefix.to_vec()),
            to,
            ..Self::default()
        }
    }

    /// True if no key can be in it, because it ends before it begins.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match (&self.from, &self.to) {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(from), Bound::Included(to)) => from > to,
            (Bound::Excluded(from), Bound::Excluded(to))
            | (Bound::Included(from), Bound::Excluded(to))
            | (Bound::Excluded(from), Bound::Included(to)) => from >= to,
        }
    }
}

/// A row of a read model.
pub type ViewRow = (Vec<u8>, Vec<u8>);

/// The storage of read models: for each name (1 to 64 of `[a-z0-9-]`) an offset and rows, bytes to bytes. Keys have at most 1 KiB, values
/// at most 16 MiB. Everything can be rebuilt from the journal.
///
/// A batch is atomic: after a crash the offset and all rows are those of one batch. That may be an earlier batch than the last one
/// applied, if the backend makes batches durable later; the projection then continues from there.
pub trait Views: Send + Sync {
    /// Returns the offset that a read model has reached; `None` if it was never written, or was cleared.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Backend`]: the read models cannot be reached, or are damaged. Damaged ones can be deleted; they are then
    /// rebuilt from the journal.
    fn offset(&self, view: &str) -> Later<'_, Result<Option<ViewOffset>, Error>>;

    /// Applies a batch, rows and offset in one transaction, if the offset is still the expected one. Of several with the same expectation,
    /// one is applied.
    ///
    /// # Errors
    /// Any [`Error`]: nothing of it is visible, unless only the answer was lost; then a second attempt gets `Moved`.
    fn apply(&self, view: &str, batch: ViewBatch) -> Later<'_, Result<Applied, Error>>;

    /// Returns the values of these keys, in order; `None` for a missing row.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Backend`]: the read models cannot be reached, or are damaged.
    fn get(&self, view: &str, keys: Vec<Vec<u8>>) -> Later<'_, Result<Vec<Option<Vec<u8>>>, Error>>;

    /// Returns the rows of a range, in the order of their keys' bytes.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Backend`]: the read models cannot be reached, or are damaged.
    fn scan(&self, view: &str, range: ViewRange) -> Later<'_, Result<Vec<ViewRow>, Error>>;

    /// Removes a read model, rows and offset. Its next writer begins anew.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Backend`]: the read models cannot be reached, or are damaged; the read model is then as it was.
    fn clear(&self, view: &str) -> Later<'_, Result<(), Error>>;

    /// Makes applied batches durable, if the backend does that later.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Backend`]: the read models cannot be reached, or are damaged.
    fn sync(&self) -> Later<'_, Result<(), Error>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Returns the names of the read models that have an offset, in order.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Backend`]: the read models cannot be reached, or are damaged.
    fn names(&self) -> Later<'_, Result<Vec<String>, Error>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_first_key_that_does_not_begin_so() {
        assert_eq!(ViewRange::prefix(b"ab").to, Bound::Excluded(b"ac".to_vec()));
        assert_eq!(ViewRange::prefix(b"a\xff\xff").to, Bound::Excluded(b"b".to_vec()));
        assert_eq!(ViewRange::prefix(b"\xff").to, Bound::Unbounded);
        assert_eq!(ViewRange::prefix(b"").to, Bound::Unbounded);
    }

    #[test]
    fn a_range_that_ends_before_it_begins_is_empty() {
        let range = |from, to| ViewRange {
            from,
            to,
            ..ViewRange::default()
        };
        let key = |key: &[u8]| key.to_vec();
        assert!(!ViewRange::default().is_empty());
        assert!(!range(Bound::Included(key(b"a")), Bound::Included(key(b"a"))).is_empty());
        assert!(range(Bound::Included(key(b"a")), Bound::Excluded(key(b"a"))).is_empty());
        assert!(range(Bound::Excluded(key(b"a")), Bound::Excluded(key(b"a"))).is_empty());
        assert!(range(Bound::Included(key(b"b")), Bound::Included(key(b"a"))).is_empty());
        assert!(!range(Bound::Excluded(key(b"a")), Bound::Unbounded).is_empty());
    }
}
