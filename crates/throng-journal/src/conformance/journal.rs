//! The conformance suite for journals.

use super::kit::{self, Event, block_on, commit, outcome};
use crate::{
    Append, AppendError, Appended, CommitNo, Error, Journal, Later, Maybe, Place, Position, ShardId, Taken, WriterId,
};
use std::future::Future;

/// The suite's access to a backend.
pub trait Harness {
    /// The journal that is tested.
    type Journal: Journal;

    /// A new journal that holds nothing.
    fn create(&self) -> Self::Journal;

    /// The journal closed and opened again on what it holds, as after a restart.
    fn reopen(&self, journal: Self::Journal) -> Self::Journal;

    /// Runs a future; a backend that needs a runtime of its own says how.
    fn run<F: Future>(&self, future: F) -> F::Output {
        block_on(future)
    }

    /// True if writers of several nodes may be open at once.
    fn several_nodes(&self) -> bool {
        false
    }
}

const SHARDS: [ShardId; 2] = [ShardId(0), ShardId(1)];

/// Every check of this suite.
pub fn check_all<H: Harness>(harness: &H) {
    a_new_writer_begins_with_nothing_before_it(harness);
    commits_are_read_back_in_order_and_without_a_gap(harness);
    reading_pages_by_bytes_and_always_gets_on(harness);
    every_record_is_read_alone(harness);
    a_commit_that_does_not_follow_its_predecessor_does_not_land(harness);
    as_many_appends_as_the_depth_allows_are_in_flight_and_land_in_order(harness);
    nothing_lands_after_a_seal(harness);
    a_seal_says_the_same_twice_and_knows_only_its_writers(harness);
    opening_seals_the_nodes_earlier_writers(harness);
    take_lists_sealed_streams_in_order_with_their_last_commit(harness);
    take_is_refused_to_a_sealed_writer(harness);
    reopening_sees_the_same_history(harness);
    forgetting_keeps_history(harness);
    an_inventory_lists_the_newest_writers_and_what_they_stand_in(harness);
    large_and_empty_commits_are_kept(harness);
    if harness.several_nodes() {
        writers_of_several_nodes_do_not_disturb_each_other(harness);
    }
}

fn position(writer: WriterId, number: u64) -> Position {
    Position::new(writer, CommitNo(number))
}

fn open<H: Harness>(harness: &H, journal: &H::Journal, node: &str) -> WriterId {
    harness
        .run(journal.open(node))
        .expect("a journal opens a writer")
        .writer
}

fn append<H: Harness>(harness: &H, journal: &H::Journal, writer: WriterId, number: u64) -> Result<(), AppendError> {
    append_events(harness, journal, writer, number, &[event(writer, number)])
}

fn append_events<H: Harness>(
    harness: &H,
    journal: &H::Journal,
    writer: WriterId,
    number: u64,
    events: &[Event],
) -> Result<(), AppendError> {
    let run = |later: Later<'static, Appended>| harness.run(later);
    outcome(journal.append(commit(writer, number, events)), &run)
}

fn read_at<H: Harness>(harness: &H, journal: &H::Journal, places: &[Place]) -> Result<Vec<Vec<u8>>, Error> {
    match journal.read_at(places) {
        Maybe::Ready(bodies) => bodies,
        Maybe::Later(later) => harness.run(later),
    }
}

fn event(writer: WriterId, number: u64) -> Event {
    Event::new("C S 142-1", number, format!("event {number} of writer {writer}"))
}

fn appended<H: Harness>(harness: &H, journal: &H::Journal, writer: WriterId, numbers: std::ops::RangeInclusive<u64>) {
    for number in numbers {
        append(harness, journal, writer, number).expect("a commit in its turn lands");
    }
}

/// The numbers of the commits read after a position, page by page; each commit's body is looked at.
fn read_all<H: Harness>(harness: &H, journal: &H::Journal, writer: WriterId, bytes_max: usize) -> Vec<u64> {
    let mut numbers = Vec::new();
    loop {
        let after = position(writer, numbers.last().copied().unwrap_or(0));
        let commits = harness
            .run(journal.read(after, bytes_max))
            .expect("history can be read");
        if commits.is_empty() {
            return numbers;
        }
        for commit in &commits {
            let stamp = commit.stamp();
            assert_eq!(stamp.writer, writer, "reading stays within one writer's stream");
            assert_eq!(
                stamp.at_micros,
                kit::at_micros(writer, stamp.number.0),
                "a commit keeps its time"
            );
            numbers.push(stamp.number.0);
        }
    }
}

/// A writer's id is greater than all before; its stream is empty.
pub fn a_new_writer_begins_with_nothing_before_it<H: Harness>(harness: &H) {
    let journal = harness.create();
    let first = open(harness, &journal, "node-a");
    assert_eq!(read_all(harness, &journal, first, 1 << 20), [0; 0]);
    let second = open(harness, &journal, "node-a");
    assert!(second > first, "a later writer has a greater id");
    assert!(journal.depth() >= 1, "one append may always be in flight");
}

/// Reading returns the appended commits, in order, none missing.
pub fn commits_are_read_back_in_order_and_without_a_gap<H: Harness>(harness: &H) {
    let journal = harness.create();
    let writer = open(harness, &journal, "node-a");
    appended(harness, &journal, writer, 1..=40);
    let commits = harness
        .run(journal.read(position(writer, 0), 1 << 20))
        .expect("history can be read");
    assert_eq!(commits.len(), 40);
    for (number, read) in (1..).zip(&commits) {
        let written = commit(writer, number, &[event(writer, number)]);
        let records: Vec<_> = read.records().map(|record| record.expect("a whole record")).collect();
        assert_eq!(read.position(), position(writer, number));
        let expected: Vec<_> = written
            .records()
            .map(|record| record.expect("a whole record"))
            .collect();
        assert_eq!(records, expected, "commit {number} holds what was appended");
    }
    let from_the_middle = harness
        .run(journal.read(position(writer, 30), 1 << 20))
        .expect("history can be read");
    assert_eq!(from_the_middle.len(), 10);
    let past_the_end = harness
        .run(journal.read(position(writer, 40), 1 << 20))
        .expect("history can be read");
    assert!(past_the_end.is_empty());
}

/// A page holds at least one commit, and no more than fit.
pub fn reading_pages_by_bytes_and_always_gets_on<H: Harness>(harness: &H) {
    let journal = harness.create();
    let writer = open(harness, &journal, "node-a");
    appended(harness, &journal, writer, 1..=20);
    let all: Vec<u64> = (1..=20).collect();
    let one = commit(writer, 1, &[event(writer, 1)]).bytes().len();
    for bytes_max in [0, 1, one, 3 * one + 10, 1 << 20] {
        assert_eq!(
            read_all(harness, &journal, writer, bytes_max),
            all,
            "in pages of {bytes_max} bytes"
        );
        let page = harness
            .run(journal.read(position(writer, 0), bytes_max))
            .expect("history can be read");
        let bytes: usize = page.iter().map(|commit| commit.bytes().len()).sum();
        assert!(
            page.len() == 1 || bytes <= bytes_max,
            "{bytes} bytes in a page of {bytes_max}"
        );
    }
}

/// The place of a record, as its commit tells it, leads to its body.
pub fn every_record_is_read_alone<H: Harness>(harness: &H) {
    let journal = harness.create();
    let writer = open(harness, &journal, "node-a");
    let events = |number: u64| -> Vec<Event> {
        let body = |index: u64| vec![index as u8; (index * number * 37) as usize];
        (0..5)
            .map(|index| Event::new("s", number * 5 + index, body(index)))
            .collect()
    };
    for number in 1..=20 {
        append_events(harness, &journal, writer, number, &events(number)).expect("a commit lands");
    }
    let commits = harness
        .run(journal.read(position(writer, 0), 1 << 20))
        .expect("history can be read");
    let records: Vec<_> = commits
        .iter()
        .flat_map(|commit| commit.records())
        .map(|record| record.expect("a whole record"))
        .collect();
    // Alone, all at once, and some of them in another order.
    let alone = records.iter().map(|record| vec![record]);
    let backwards = records.iter().rev().step_by(3).collect();
    for asked in alone.chain([records.iter().collect(), backwards, Vec::new()]) {
        let places: Vec<Place> = asked.iter().map(|record| record.place).collect();
        let bodies = read_at(harness, &journal, &places).expect("the records' bodies");
        let expected: Vec<&[u8]> = asked.iter().map(|record| record.body).collect();
        assert_eq!(bodies, expected, "the bodies at {places:?}");
    }
    let nowhere = Place {
        position: position(writer, 21),
        offset: 56,
        len: 1,
    };
    let missing = read_at(harness, &journal, &[records[0].place, nowhere]);
    assert!(
        matches!(missing, Err(Error::NoCommit(at)) if at == nowhere.position),
        "found {missing:?}"
    );
}

/// Numbers are taken in order: a gap or a repetition is refused and leaves nothing behind.
pub fn a_commit_that_does_not_follow_its_predecessor_does_not_land<H: Harness>(harness: &H) {
    let journal = harness.create();
    let writer = open(harness, &journal, "node-a");
    appended(harness, &journal, writer, 1..=2);
    for number in [4, 2, 1] {
        assert!(
            append(harness, &journal, writer, number).is_err(),
            "commit {number} does not follow commit 2"
        );
    }
    let last = harness.run(journal.seal(writer)).expect("a seal");
    assert_eq!(last, CommitNo(2));
    assert_eq!(read_all(harness, &journal, writer, 1 << 20), [1, 2]);
}

/// Commits in flight resolve without each other's help, and land in order.
pub fn as_many_appends_as_the_depth_allows_are_in_flight_and_land_in_order<H: Harness>(harness: &H) {
    let journal = harness.create();
    let writer = open(harness, &journal, "node-a");
    let mut next = 1;
    for _ in 0..50 {
        let flights: Vec<Append> = (0..journal.depth())
            .map(|ahead| {
                let number = next + ahead as u64;
                journal.append(commit(writer, number, &[event(writer, number)]))
            })
            .collect();
        next += flights.len() as u64;
        // The last one first: it may not depend on somebody polling the others.
        for flight in flights.into_iter().rev() {
            let run = |later: Later<'static, Appended>| harness.run(later);
            outcome(flight, &run).expect("a commit in its turn lands");
        }
    }
    let all: Vec<u64> = (1..next).collect();
    assert_eq!(read_all(harness, &journal, writer, 1 << 20), all);
}

/// After the seal appends are refused as sealed, and history ends where the seal said.
pub fn nothing_lands_after_a_seal<H: Harness>(harness: &H) {
    let journal = harness.create();
    let writer = open(harness, &journal, "node-a");
    appended(harness, &journal, writer, 1..=3);
    let last = harness.run(journal.seal(writer)).expect("a seal");
    assert_eq!(last, CommitNo(3));
    let refused = append(harness, &journal, writer, 4);
    assert!(matches!(refused, Err(AppendError::Sealed)), "found {refused:?}");
    assert_eq!(read_all(harness, &journal, writer, 1 << 20), [1, 2, 3]);
    let journal = harness.reopen(journal);
    assert_eq!(read_all(harness, &journal, writer, 1 << 20), [1, 2, 3]);
}

/// Sealing again changes nothing; sealing a stranger is an error.
pub fn a_seal_says_the_same_twice_and_knows_only_its_writers<H: Harness>(harness: &H) {
    let journal = harness.create();
    let writer = open(harness, &journal, "node-a");
    appended(harness, &journal, writer, 1..=3);
    for _ in 0..2 {
        let last = harness.run(journal.seal(writer)).expect("a seal");
        assert_eq!(last, CommitNo(3));
    }
    let next = open(harness, &journal, "node-a");
    appended(harness, &journal, next, 1..=2);
    assert_eq!(harness.run(journal.seal(writer)).expect("a seal"), CommitNo(3));
    let stranger = harness.run(journal.seal(WriterId(next.0 + 1000)));
    assert!(matches!(stranger, Err(Error::NoCommit(_))), "found {stranger:?}");
}

/// A node's new run ends its earlier ones.
pub fn opening_seals_the_nodes_earlier_writers<H: Harness>(harness: &H) {
    let journal = harness.create();
    let first = open(harness, &journal, "node-a");
    appended(harness, &journal, first, 1..=3);
    let second = open(harness, &journal, "node-a");
    let refused = append(harness, &journal, first, 4);
    assert!(matches!(refused, Err(AppendError::Sealed)), "found {refused:?}");
    appended(harness, &journal, second, 1..=2);
    assert_eq!(read_all(harness, &journal, first, 1 << 20), [1, 2, 3]);
    assert_eq!(read_all(harness, &journal, second, 1 << 20), [1, 2]);
}

/// The taker gets every sealed stream once, oldest first.
pub fn take_lists_sealed_streams_in_order_with_their_last_commit<H: Harness>(harness: &H) {
    let journal = harness.create();
    let mut expected = Vec::new();
    for commits in [3, 0, 5] {
        let writer = open(harness, &journal, "node-a");
        appended(harness, &journal, writer, 1..=commits);
        expected.push(Taken {
            writer,
            last: CommitNo(commits),
            shards: None,
        });
    }
    let taker = open(harness, &journal, "node-a");
    let taken = harness
        .run(journal.take(taker, &SHARDS))
        .expect("sealed streams are given");
    assert_eq!(taken, expected);
}

/// People see who wrote, whose run it was, and what that stands in.
pub fn an_inventory_lists_the_newest_writers_and_what_they_stand_in<H: Harness>(harness: &H) {
    let journal = harness.create();
    let (first, last) = (3, 5);
    let earlier = open(harness, &journal, "node-a");
    appended(harness, &journal, earlier, 1..=first);
    let later = open(harness, &journal, "node-a");
    appended(harness, &journal, later, 1..=last);
    let all = harness.run(journal.inventory(9)).expect("an inventory");
    let seen: Vec<_> = all
        .writers
        .iter()
        .map(|entry| (entry.writer, &*entry.node, entry.last, entry.is_open))
        .collect();
    let expected = [
        (later, "node-a", CommitNo(last), true),
        (earlier, "node-a", CommitNo(first), false),
    ];
    assert_eq!((&seen[..], all.writers_total), (&expected[..], 2));
    assert!(all.writers.iter().all(|entry| entry.begun_micros > Some(0)), "{all:?}");
    assert_eq!(all.parts.len() as u64, all.parts_total, "{all:?}");
    assert!(all.parts.iter().all(|part| !part.name.is_empty()));
    assert!(all.parts.first().is_none_or(|part| part.bytes > 0), "{all:?}");
    let newest = harness.run(journal.inventory(1)).expect("an inventory");
    assert_eq!((newest.writers.len(), newest.writers_total), (1, 2));
    assert_eq!(newest.writers[0], all.writers[0]);
    assert!(newest.parts.len() <= 1 || newest.parts_total == newest.parts.len() as u64);
}

/// A sealed writer owns nothing.
pub fn take_is_refused_to_a_sealed_writer<H: Harness>(harness: &H) {
    let journal = harness.create();
    let writer = open(harness, &journal, "node-a");
    harness.run(journal.seal(writer)).expect("a seal");
    let refused = harness.run(journal.take(writer, &SHARDS));
    assert!(
        matches!(refused, Err(Error::Sealed(found)) if found == writer),
        "found {refused:?}"
    );
}

/// A restart loses nothing and adds nothing.
pub fn reopening_sees_the_same_history<H: Harness>(harness: &H) {
    let mut journal = harness.create();
    let mut streams = Vec::new();
    for commits in [3, 1, 0, 7] {
        let writer = open(harness, &journal, "node-a");
        appended(harness, &journal, writer, 1..=commits);
        streams.push(Taken {
            writer,
            last: CommitNo(commits),
            shards: None,
        });
        journal = harness.reopen(journal);
        for stream in &streams {
            let all: Vec<u64> = (1..=stream.last.0).collect();
            assert_eq!(read_all(harness, &journal, stream.writer, 1 << 20), all);
        }
    }
    let taker = open(harness, &journal, "node-a");
    let taken = harness
        .run(journal.take(taker, &SHARDS))
        .expect("sealed streams are given");
    assert_eq!(taken, streams);
}

/// `forget` drops what is in memory, never history; what comes after it is still read alone.
pub fn forgetting_keeps_history<H: Harness>(harness: &H) {
    let journal = harness.create();
    let writer = open(harness, &journal, "node-a");
    appended(harness, &journal, writer, 1..=10);
    journal.forget(position(writer, 6));
    let all: Vec<u64> = (1..=10).collect();
    assert_eq!(read_all(harness, &journal, writer, 1 << 20), all);
    for read in harness
        .run(journal.read(position(writer, 6), 1 << 20))
        .expect("history can be read")
    {
        let record = read.records().next().expect("one record").expect("a whole record");
        let bodies = read_at(harness, &journal, &[record.place]).expect("the record's body");
        assert_eq!(bodies, [record.body]);
    }
    appended(harness, &journal, writer, 11..=12);
    assert_eq!(read_all(harness, &journal, writer, 1 << 20).len(), 12);
}

/// A commit at the limit of 8 MiB, and one without a record.
pub fn large_and_empty_commits_are_kept<H: Harness>(harness: &H) {
    let journal = harness.create();
    let writer = open(harness, &journal, "node-a");
    let large = Event::new("large", 1, vec![7; (8 << 20) - 512]);
    append_events(harness, &journal, writer, 1, &[]).expect("an empty commit lands");
    append_events(harness, &journal, writer, 2, std::slice::from_ref(&large)).expect("a large commit lands");
    append_events(harness, &journal, writer, 3, &[]).expect("an empty commit lands");
    let journal = harness.reopen(journal);
    assert_eq!(read_all(harness, &journal, writer, 1 << 20), [1, 2, 3]);
    let commits = harness
        .run(journal.read(position(writer, 1), 1))
        .expect("history can be read");
    let record = commits[0]
        .records()
        .next()
        .expect("one record")
        .expect("a whole record");
    assert_eq!(record.body, large.body);
}

/// Two nodes write at once; one node's new epoch does not seal the other's.
pub fn writers_of_several_nodes_do_not_disturb_each_other<H: Harness>(harness: &H) {
    let journal = harness.create();
    let (a, b) = (open(harness, &journal, "node-a"), open(harness, &journal, "node-b"));
    appended(harness, &journal, a, 1..=3);
    appended(harness, &journal, b, 1..=2);
    let a_again = open(harness, &journal, "node-a");
    appended(harness, &journal, b, 3..=4);
    appended(harness, &journal, a_again, 1..=1);
    assert_eq!(read_all(harness, &journal, a, 1 << 20), [1, 2, 3]);
    assert_eq!(read_all(harness, &journal, b, 1 << 20), [1, 2, 3, 4]);
}
