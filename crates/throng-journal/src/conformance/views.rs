//! The conformance suite for places of read models.

use super::kit::block_on;
use crate::{Applied, CommitNo, Position, ViewBatch, ViewOffset, ViewRange, ViewRow, Views, WriterId};
use std::{future::Future, ops::Bound};

/// The suite's access to a backend.
pub trait Harness {
    /// The backend under test.
    type Views: Views;

    /// Creates an empty place.
    fn create(&self) -> Self::Views;

    /// Closed in order and opened again on what it holds, as after a restart.
    fn reopen(&self, views: Self::Views) -> Self::Views;

    /// Runs a future; a backend that needs a runtime of its own says how.
    fn run<F: Future>(&self, future: F) -> F::Output {
        block_on(future)
    }
}

/// Every check of this suite.
pub fn check_all<H: Harness>(harness: &H) {
    what_was_never_written_has_no_offset_and_no_rows(harness);
    a_batch_makes_its_rows_and_its_offset_true(harness);
    every_part_of_an_offset_is_kept(harness);
    an_unexpected_offset_leaves_everything_as_it_was(harness);
    rows_are_replaced_and_removed(harness);
    of_several_changes_of_one_key_the_last_counts(harness);
    several_keys_are_read_in_the_order_asked(harness);
    a_range_is_read_in_the_order_of_its_keys_bytes(harness);
    a_range_is_bounded_by_rows_and_bytes(harness);
    views_keep_to_themselves(harness);
    a_cleared_view_begins_anew(harness);
    views_are_named(harness);
    reopening_finds_what_was_applied(harness);
    a_large_batch_is_one_batch(harness);
    of_two_that_expect_the_same_one_is_done(harness);
}

const VIEW: &str = "available-shows";

fn offset(commit: u64) -> ViewOffset {
    ViewOffset {
        position: Position::new(WriterId(3), CommitNo(commit)),
        checksum: 0xfeed_0000 + u32::try_from(commit % 0xffff).unwrap_or(0),
        version: 1,
    }
}

type Change<'a> = (&'a [u8], Option<&'a [u8]>);

fn batch(expected: Option<u64>, next: u64, changes: &[Change<'_>]) -> ViewBatch {
    ViewBatch {
        expected: expected.map(offset),
        offset: offset(next),
        changes: (changes.iter())
            .map(|(key, value)| (key.to_vec(), value.map(<[u8]>::to_vec)))
            .collect(),
    }
}

/// A backend under test.
struct Bench<'a, H: Harness> {
    harness: &'a H,
    views: H::Views,
}

impl<'a, H: Harness> Bench<'a, H> {
    fn new(harness: &'a H) -> Self {
        Self {
            harness,
            views: harness.create(),
        }
    }

    fn reopened(self) -> Self {
        Self {
            views: self.harness.reopen(self.views),
            ..self
        }
    }

    fn apply_to(&self, view: &str, batch: ViewBatch) -> Applied {
        let applied = self.harness.run(self.views.apply(view, batch));
        applied.expect("a batch can be applied")
    }

    fn apply(&self, batch: ViewBatch) -> Applied {
        self.apply_to(VIEW, batch)
    }

    fn offset(&self, view: &str) -> Option<ViewOffset> {
        self.harness
            .run(self.views.offset(view))
            .expect("an offset can be read")
    }

    fn get(&self, view: &str, keys: &[&[u8]]) -> Vec<Option<Vec<u8>>> {
        let keys = keys.iter().map(|key| key.to_vec()).collect();
        self.harness.run(self.views.get(view, keys)).expect("rows can be read")
    }

    fn scan(&self, view: &str, range: ViewRange) -> Vec<ViewRow> {
        self.harness
            .run(self.views.scan(view, range))
            .expect("a range can be read")
    }

    fn all(&self, view: &str) -> Vec<ViewRow> {
        self.scan(view, ViewRange::default())
    }

    fn clear(&self, view: &str) {
        self.harness.run(self.views.clear(view)).expect("a view can be cleared");
    }
}

fn row(key: &[u8], value: &[u8]) -> ViewRow {
    (key.to_vec(), value.to_vec())
}

fn keys(rows: &[ViewRow]) -> Vec<&[u8]> {
    rows.iter().map(|(key, _)| key.as_slice()).collect()
}

/// A read model is empty before the first batch, and reading it is no error.
pub fn what_was_never_written_has_no_offset_and_no_rows<H: Harness>(harness: &H) {
    let bench = Bench::new(harness);
    assert_eq!(bench.offset(VIEW), None, "no offset before the first batch");
    assert_eq!(bench.get(VIEW, &[b"a"]), [None], "no row before the first batch");
    assert_eq!(bench.all(VIEW), [], "no rows before the first batch");
    bench.clear(VIEW);
    assert_eq!(bench.offset(VIEW), None, "clearing nothing leaves nothing");
}

/// Rows and offset appear together.
pub fn a_batch_makes_its_rows_and_its_offset_true<H: Harness>(harness: &H) {
    let bench = Bench::new(harness);
    let first = batch(None, 5, &[(b"a", Some(b"1")), (b"b", Some(b"2"))]);
    assert_eq!(bench.apply(first), Applied::Done, "the first batch expects no offset");
    assert_eq!(bench.offset(VIEW), Some(offset(5)), "the offset is the batch's");
    assert_eq!(
        bench.all(VIEW),
        [row(b"a", b"1"), row(b"b", b"2")],
        "the rows are the batch's"
    );
    assert_eq!(
        bench.apply(batch(Some(5), 9, &[])),
        Applied::Done,
        "a batch may change no row"
    );
    assert_eq!(
        bench.offset(VIEW),
        Some(offset(9)),
        "the offset moves without rows, too"
    );
}

/// Writer, commit, checksum and version: each in its whole range.
pub fn every_part_of_an_offset_is_kept<H: Harness>(harness: &H) {
    let mut bench = Bench::new(harness);
    let mut expected = None;
    for next in [
        ViewOffset::default(),
        ViewOffset {
            position: Position::new(WriterId(i64::MAX.cast_unsigned()), CommitNo(i64::MAX.cast_unsigned())),
            checksum: u32::MAX,
            version: u32::MAX,
        },
        ViewOffset {
            version: 7,
            ..ViewOffset::default()
        },
    ] {
        let batch = ViewBatch {
            expected,
            offset: next,
            changes: Vec::new(),
        };
        assert_eq!(bench.apply(batch), Applied::Done, "{expected:?} was expected");
        assert_eq!(bench.offset(VIEW), Some(next));
        bench = bench.reopened();
        assert_eq!(bench.offset(VIEW), Some(next), "also after a restart");
        expected = Some(next);
    }
}

/// A second or stale runner changes nothing, and is told what was found.
pub fn an_unexpected_offset_leaves_everything_as_it_was<H: Harness>(harness: &H) {
    let bench = Bench::new(harness);
    let stale = |expected: Option<ViewOffset>| ViewBatch {
        expected,
        offset: offset(99),
        changes: vec![
            (b"a".to_vec(), Some(b"wrong".to_vec())),
            (b"c".to_vec(), Some(b"wrong".to_vec())),
        ],
    };
    assert_eq!(
        bench.apply(stale(Some(offset(1)))),
        Applied::Moved(None),
        "nothing was written yet"
    );
    assert_eq!(bench.all(VIEW), [], "what was not expected is not written");
    bench.apply(batch(None, 5, &[(b"a", Some(b"1"))]));
    let others = [
        None,
        Some(offset(4)),
        Some(offset(6)),
        Some(ViewOffset {
            checksum: 1,
            ..offset(5)
        }),
        Some(ViewOffset {
            version: 2,
            ..offset(5)
        }),
        Some(ViewOffset {
            position: Position {
                writer: WriterId(4),
                ..offset(5).position
            },
            ..offset(5)
        }),
    ];
    for other in others {
        assert_eq!(
            bench.apply(stale(other)),
            Applied::Moved(Some(offset(5))),
            "{other:?} is not what is there"
        );
    }
    assert_eq!(bench.offset(VIEW), Some(offset(5)), "the offset stays");
    assert_eq!(bench.all(VIEW), [row(b"a", b"1")], "the rows stay");
}

/// A key has one value, the newest, or none.
pub fn rows_are_replaced_and_removed<H: Harness>(harness: &H) {
    let bench = Bench::new(harness);
    bench.apply(batch(
        None,
        1,
        &[(b"a", Some(b"1")), (b"b", Some(b"2")), (b"c", Some(b""))],
    ));
    bench.apply(batch(
        Some(1),
        2,
        &[(b"a", Some(b"longer than before")), (b"b", None), (b"none", None)],
    ));
    assert_eq!(
        bench.all(VIEW),
        [row(b"a", b"longer than before"), row(b"c", b"")],
        "an empty value is a value"
    );
}

/// Within one batch, too.
pub fn of_several_changes_of_one_key_the_last_counts<H: Harness>(harness: &H) {
    let bench = Bench::new(harness);
    let changes: &[Change<'_>] = &[
        (b"a", Some(b"1")),
        (b"b", Some(b"1")),
        (b"a", None),
        (b"b", Some(b"2")),
        (b"c", None),
        (b"c", Some(b"3")),
    ];
    bench.apply(batch(None, 1, changes));
    assert_eq!(bench.all(VIEW), [row(b"b", b"2"), row(b"c", b"3")]);
}

/// Missing ones are `None`, a key asked twice is answered twice.
pub fn several_keys_are_read_in_the_order_asked<H: Harness>(harness: &H) {
    let bench = Bench::new(harness);
    bench.apply(batch(
        None,
        1,
        &[(b"a", Some(b"1")), (b"b", Some(b"2")), (b"", Some(b"0"))],
    ));
    let some = |value: &[u8]| Some(value.to_vec());
    assert_eq!(
        bench.get(VIEW, &[b"b", b"x", b"a", b"b", b"", b"x"]),
        [some(b"2"), None, some(b"1"), some(b"2"), some(b"0"), None]
    );
    assert!(bench.get(VIEW, &[]).is_empty(), "nothing asked is nothing answered");
}

/// Unsigned bytes, whatever they are: no alphabet, no text.
pub fn a_range_is_read_in_the_order_of_its_keys_bytes<H: Harness>(harness: &H) {
    let bench = Bench::new(harness);
    let ordered: &[&[u8]] = &[
        b"",
        b"\0",
        b"\0\xff",
        b"A",
        b"a",
        b"a\0",
        b"aB",
        b"ab",
        b"b",
        b"\x80",
        "é".as_bytes(),
        b"\xff",
        b"\xff\xff",
    ];
    let mut changes: Vec<Change<'_>> = ordered.iter().map(|key| (*key, Some(*key))).collect();
    changes.reverse();
    bench.apply(batch(None, 1, &changes));
    assert_eq!(keys(&bench.all(VIEW)), ordered, "keys are ordered by their bytes");
    let range = |from: Bound<&[u8]>, to: Bound<&[u8]>| {
        let range = ViewRange {
            from: from.map(<[u8]>::to_vec),
            to: to.map(<[u8]>::to_vec),
            ..ViewRange::default()
        };
        let rows = bench.scan(VIEW, range);
        assert!(
            rows.iter().all(|(key, value)| key == value),
            "each row has its own value"
        );
        rows.into_iter().map(|(key, _)| key).collect::<Vec<_>>()
    };
    assert_eq!(
        range(Bound::Included(b"a"), Bound::Excluded(b"b")),
        [&b"a"[..], b"a\0", b"aB", b"ab"]
    );
    assert_eq!(
        range(Bound::Excluded(b"a"), Bound::Included(b"b")),
        [&b"a\0"[..], b"aB", b"ab", b"b"]
    );
    assert_eq!(
        range(Bound::Unbounded, Bound::Excluded(b"A")),
        [&b""[..], b"\0", b"\0\xff"]
    );
    assert_eq!(range(Bound::Excluded(b"\xff"), Bound::Unbounded), [b"\xff\xff"]);
    assert_eq!(range(Bound::Excluded(b"aa"), Bound::Included(b"aaa")), [] as [&[u8]; 0]);
    for (from, to) in [
        (Bound::Included(&b"b"[..]), Bound::Included(&b"a"[..])),
        (Bound::Excluded(b"a"), Bound::Excluded(b"a")),
        (Bound::Included(b"a"), Bound::Excluded(b"a")),
    ] {
        assert_eq!(range(from, to), [] as [&[u8]; 0], "a range may be empty");
    }
    let begins = |prefix: &[u8]| keys(&bench.scan(VIEW, ViewRange::prefix(prefix))).len();
    assert_eq!((begins(b"a"), begins(b"\xff"), begins(b"")), (4, 2, ordered.len()));
}

/// A page has at most `rows_max` rows and `bytes_max` bytes, but is never empty where there is a row.
pub fn a_range_is_bounded_by_rows_and_bytes<H: Harness>(harness: &H) {
    let bench = Bench::new(harness);
    let value = [7; 100];
    bench.apply(batch(
        None,
        1,
        &[
            (b"a", Some(&value)),
            (b"b", Some(&value)),
            (b"c", Some(&value)),
            (b"d", Some(&value)),
        ],
    ));
    let count = |rows_max, bytes_max| {
        let range = ViewRange {
            rows_max,
            bytes_max,
            ..ViewRange::default()
        };
        bench.scan(VIEW, range).len()
    };
    assert_eq!(count(3, usize::MAX), 3);
    assert_eq!(count(0, usize::MAX), 0);
    assert_eq!(count(usize::MAX, 202), 2, "two rows have 202 bytes with their keys");
    assert_eq!(count(usize::MAX, 201), 1);
    assert_eq!(count(usize::MAX, 0), 1, "the first row comes whatever its size");
}

/// A view does not see another's rows, even if its name begins with the other's.
pub fn views_keep_to_themselves<H: Harness>(harness: &H) {
    let bench = Bench::new(harness);
    for (view, value) in [("a", b"1"), ("a-b", b"2"), ("b", b"3")] {
        let first = batch(None, 1, &[(b"key", Some(value)), (b"-b", Some(value))]);
        assert_eq!(
            bench.apply_to(view, first),
            Applied::Done,
            "{view} is a view of its own"
        );
    }
    bench.clear("a");
    assert_eq!(bench.all("a"), []);
    assert_eq!(bench.all("a-b"), [row(b"-b", b"2"), row(b"key", b"2")]);
    assert_eq!(bench.get("b", &[b"key"]), [Some(b"3".to_vec())]);
    assert_eq!((bench.offset("a"), bench.offset("a-b")), (None, Some(offset(1))));
}

/// Rows and offset are gone, and whoever still runs on the old offset is refused.
pub fn a_cleared_view_begins_anew<H: Harness>(harness: &H) {
    let bench = Bench::new(harness);
    bench.apply(batch(None, 8, &[(b"a", Some(b"1")), (b"b", Some(b"2"))]));
    bench.clear(VIEW);
    assert_eq!((bench.offset(VIEW), bench.all(VIEW)), (None, vec![]));
    assert_eq!(
        bench.apply(batch(Some(8), 9, &[(b"a", Some(b"stale"))])),
        Applied::Moved(None)
    );
    assert_eq!(bench.apply(batch(None, 1, &[(b"a", Some(b"new"))])), Applied::Done);
    assert_eq!(bench.all(VIEW), [row(b"a", b"new")]);
    let bench = bench.reopened();
    assert_eq!(bench.all(VIEW), [row(b"a", b"new")], "also after a restart");
}

/// All that have an offset, in order.
pub fn views_are_named<H: Harness>(harness: &H) {
    let bench = Bench::new(harness);
    let names = |bench: &Bench<'_, H>| bench.harness.run(bench.views.names()).expect("views can be listed");
    assert_eq!(names(&bench), [] as [&str; 0]);
    for view in ["shows", "available", "z"] {
        bench.apply_to(view, batch(None, 1, &[]));
    }
    assert_eq!(names(&bench), ["available", "shows", "z"]);
    bench.clear("shows");
    let bench = bench.reopened();
    assert_eq!(names(&bench), ["available", "z"]);
}

/// A restart in order loses nothing.
pub fn reopening_finds_what_was_applied<H: Harness>(harness: &H) {
    let mut bench = Bench::new(harness);
    bench.apply(batch(None, 1, &[(b"a", Some(b"1")), (b"b", Some(b"1"))]));
    for commit in 2..6 {
        bench = bench.reopened();
        let value = commit.to_string();
        let next = batch(Some(commit - 1), commit, &[(b"a", Some(value.as_bytes()))]);
        assert_eq!(bench.apply(next), Applied::Done);
    }
    let bench = bench.reopened();
    assert_eq!(bench.offset(VIEW), Some(offset(5)));
    assert_eq!(bench.all(VIEW), [row(b"a", b"5"), row(b"b", b"1")]);
}

/// Ten thousand rows and some large ones go in at once.
pub fn a_large_batch_is_one_batch<H: Harness>(harness: &H) {
    let bench = Bench::new(harness);
    let large = vec![0xa5; 1 << 20];
    let key = |number: u32| format!("key {number:05}").into_bytes();
    let mut changes: Vec<(Vec<u8>, Option<Vec<u8>>)> = (0..10_000)
        .rev()
        .map(|number| (key(number), Some(number.to_le_bytes().to_vec())))
        .collect();
    changes.push((vec![b'k'; 1 << 10], Some(large.clone())));
    let batch = ViewBatch {
        expected: None,
        offset: offset(1),
        changes,
    };
    assert_eq!(bench.apply(batch), Applied::Done);
    let rows = bench.all(VIEW);
    assert_eq!(rows.len(), 10_001);
    assert!(
        (0..10_000)
            .zip(&rows)
            .all(|(number, row)| *row == (key(number), number.to_le_bytes().to_vec()))
    );
    assert_eq!(rows[10_000], (vec![b'k'; 1 << 10], large));
}

/// Two runners of one projection: each event is applied by one of them.
pub fn of_two_that_expect_the_same_one_is_done<H: Harness>(harness: &H) {
    let bench = Bench::new(harness);
    bench.apply(batch(None, 1, &[]));
    for commit in 1..20 {
        let racer = |value: &[u8]| {
            bench
                .views
                .apply(VIEW, batch(Some(commit), commit + 1, &[(b"by", Some(value))]))
        };
        let (mut one, mut other) = (Some(racer(b"one")), Some(racer(b"other")));
        let (mut first, mut second) = (None, None);
        bench.harness.run(std::future::poll_fn(|context| {
            for (race, result) in [(&mut one, &mut first), (&mut other, &mut second)] {
                if let Some(running) = race
                    && let std::task::Poll::Ready(applied) = running.as_mut().poll(context)
                {
                    *result = Some(applied.expect("a batch can be applied"));
                    *race = None;
                }
            }
            if one.is_none() && other.is_none() {
                return std::task::Poll::Ready(());
            }
            std::task::Poll::Pending
        }));
        let winner: &[u8] = match (first, second) {
            (Some(Applied::Done), Some(Applied::Moved(found))) if found == Some(offset(commit + 1)) => b"one",
            (Some(Applied::Moved(found)), Some(Applied::Done)) if found == Some(offset(commit + 1)) => b"other",
            both => panic!("one of two is done, and the other is told: {both:?}"),
        };
        assert_eq!(bench.get(VIEW, &[b"by"]), [Some(winner.to_vec())]);
    }
}
