//! The conformance suite for stores, each beside the journal it is built from.

mod retention;

pub use retention::*;

use super::kit::{self, Event, KIND, address, block_on, commit, outcome};
use crate::{
    Appended, Checkpoint, CommitBuilder, CommitNo, Journal, Later, Loaded, Maybe, Position, RecordKind, ShardId,
    ShardSet, Stamp, Store, StoredEvent, StoredState, WriterId,
};
use std::{collections::BTreeMap, future::Future, sync::Arc};

/// A store and the journal it is built from.
#[derive(Debug)]
pub struct Pair<J, S> {
    /// The journal the store is rebuilt from.
    pub journal: Arc<J>,
    /// The store that is built from it.
    pub store: Arc<S>,
}

/// The suite's access to a backend.
pub trait Harness {
    /// The journal that the store reads.
    type Journal: Journal;
    /// The store that is tested.
    type Store: Store;

    /// A journal and a store that hold nothing.
    fn create(&self) -> Pair<Self::Journal, Self::Store>;

    /// Both closed and opened again on what they hold, as after a restart.
    fn reopen(&self, pair: Pair<Self::Journal, Self::Store>) -> Pair<Self::Journal, Self::Store>;

    /// Reopens like [`reopen`](Self::reopen), with a store that holds nothing.
    fn without_store(&self, pair: Pair<Self::Journal, Self::Store>) -> Pair<Self::Journal, Self::Store>;

    /// Runs a future; a backend that needs a runtime of its own says how.
    fn run<F: Future>(&self, future: F) -> F::Output {
        block_on(future)
    }
}

/// Every check of this suite.
pub fn check_all<H: Harness>(harness: &H) {
    an_empty_store_covers_nothing_and_knows_nobody(harness);
    a_checkpoint_before_the_first_commit_keeps_its_rows(harness);
    a_checkpoint_indexes_the_journals_events(harness);
    a_checkpoint_covers_its_position_and_no_more(harness);
    several_writers_streams_are_indexed_in_order(harness);
    only_events_are_indexed(harness);
    a_checkpoint_that_fails_leaves_nothing(harness);
    a_state_is_loaded_with_the_events_after_it(harness);
    a_state_of_another_version_is_as_none(harness);
    a_later_state_replaces_an_earlier_one(harness);
    a_state_may_be_newer_than_what_its_checkpoint_covers(harness);
    history_pages_by_count_and_bytes(harness);
    entities_are_listed_in_the_order_of_their_ids(harness);
    rows_named_by_ids_have_the_order_of_the_list(harness);
    system_rows_are_set_read_and_removed(harness);
    system_rows_of_a_prefix_are_removed_some_at_a_time(harness);
    an_entity_with_a_long_history_is_read_from_any_point(harness);
    reopening_sees_the_last_checkpoint_whole(harness);
    what_is_left_of_a_pruned_history_is_read_as_it_was(harness);
    a_store_is_built_anew_from_a_pruned_history(harness);
    events_may_be_gone_behind_a_state_where_a_newer_one_follows(harness);
    a_history_is_pruned_again_and_again(harness);
    nothing_is_stored_of_an_entity_that_is_gone(harness);
    index_begins_after_the_end_of_one_that_is_gone(harness);
    first_events_go_with_those_removed_behind_them(harness);
    events_missing_before_the_first_are_told_by_its_number(harness);
    entity_created_anew_keeps_nothing_of_what_it_was(harness);
}

/// The shards of the service under test.
const SHARDS: u16 = 256;

/// A pair under test, and what has been appended to it.
struct Bench<'a, H: Harness> {
    harness: &'a H,
    pair: Pair<H::Journal, H::Store>,
    writer: WriterId,
    number: u64,
    expected: BTreeMap<String, Vec<StoredEvent>>,
}

impl<'a, H: Harness> Bench<'a, H> {
    fn new(harness: &'a H) -> Self {
        let pair = harness.create();
        let writer = harness
            .run(pair.journal.open("node-a"))
            .expect("a journal opens a writer")
            .writer;
        Self {
            harness,
            pair,
            writer,
            number: 0,
            expected: BTreeMap::new(),
        }
    }

    /// Closed and opened again.
    fn reopened(self) -> Self {
        let pair = self.harness.reopen(self.pair);
        Self { pair, ..self }
    }

    /// The next writer of the node; returns where the one before ended.
    fn next_writer(&mut self) -> Position {
        let ended = self.position();
        self.writer = self
            .harness
            .run(self.pair.journal.open("node-a"))
            .expect("a journal opens a writer")
            .writer;
        self.number = 0;
        ended
    }

    fn position(&self) -> Position {
        Position::new(self.writer, CommitNo(self.number))
    }

    /// Appends one commit with one event for each id.
    fn append(&mut self, ids: &[&str]) {
        self.number += 1;
        let position = self.position();
        let events: Vec<Event> = ids
            .iter()
            .map(|id| {
                let history = self.expected.entry((*id).to_owned()).or_default();
                let seq = history.len() as u64 + 1;
                let body = format!("event {seq} of {id}").into_bytes();
                history.push(StoredEvent {
                    seq,
                    position,
                    at_micros: kit::at_micros(position.writer, position.commit.0),
                    name: "Added".into(),
                    version: 2,
                    payload: body.clone(),
                });
                Event::new(id, seq, body)
            })
            .collect();
        let run = |later: Later<'static, Appended>| self.harness.run(later);
        outcome(
            self.pair.journal.append(commit(self.writer, self.number, &events)),
            &run,
        )
        .expect("a commit lands");
    }

    /// Appends one commit with one record of the entity `a`.
    fn append_record(&mut self, record: RecordKind, seq: u64) {
        self.number += 1;
        let mut open = CommitBuilder::default();
        open.push(record, ShardId(1), &address("a"), seq, "Added", 1, b"body");
        let commit = open.finish(Stamp::after_synced(
            self.writer,
            CommitNo(self.number),
            kit::at_micros(self.writer, self.number),
        ));
        let run = |later: Later<'static, Appended>| self.harness.run(later);
        outcome(self.pair.journal.append(commit), &run).expect("a commit lands");
    }

    fn advance(&self, checkpoint: Checkpoint) {
        self.harness
            .run(self.pair.store.advance(checkpoint))
            .expect("a checkpoint");
    }

    /// A checkpoint up to the last commit, with nothing else in it.
    fn checkpoint(&self) {
        self.advance(self.upto_here());
    }

    /// The same after these streams, which have ended since the last one.
    fn checkpoint_over(&self, sealed: &[Position]) {
        self.advance(Checkpoint {
            sealed: sealed.to_vec(),
            ..self.upto_here()
        });
    }

    fn upto_here(&self) -> Checkpoint {
        Checkpoint {
            upto: self.position(),
            shards: ShardSet::first(SHARDS),
            ..Checkpoint::default()
        }
    }

    fn load(&self, id: &str, state_version: u16) -> Loaded {
        let loaded = match self.pair.store.load(&address(id), state_version) {
            Maybe::Ready(loaded) => loaded,
            Maybe::Later(later) => self.harness.run(later),
        };
        loaded.expect("a load")
    }

    fn history(&self, id: &str, after: u64, limit: usize, bytes_max: usize) -> Vec<StoredEvent> {
        self.harness
            .run(self.pair.store.history(&address(id), after, limit, bytes_max))
            .expect("a history")
    }

    fn system(&self, key: &[u8]) -> Option<Vec<u8>> {
        let row = match self.pair.store.system(key) {
            Maybe::Ready(row) => row,
            Maybe::Later(later) => self.harness.run(later),
        };
        row.expect("a system row")
    }

    fn system_scan(&self, prefix: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.system_page(prefix, b"", usize::MAX)
    }

    fn system_page(&self, prefix: &[u8], after: &[u8], rows_max: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut rows = Vec::new();
        let mut visit = |key: &[u8], value: &[u8]| rows.push((key.to_vec(), value.to_vec()));
        self.harness
            .run(self.pair.store.system_scan(prefix, after, rows_max, &mut visit))
            .expect("system rows");
        rows
    }

    fn covers(&self) -> Option<Position> {
        let covered = self
            .harness
            .run(self.pair.store.covers(&ShardSet::first(SHARDS)))
            .expect("what the store covers");
        assert_eq!(covered.len(), 1, "all shards are covered alike: {covered:?}");
        covered[0].upto
    }

    fn ids(&self, kind: &str, after: Option<&str>, limit: usize) -> Vec<(String, u64)> {
        let heads = self
            .harness
            .run(self.pair.store.entities(kind, after, limit))
            .expect("a list of entities");
        heads.into_iter().map(|head| (head.id.into(), head.seq)).collect()
    }

    fn assert_all_histories(&self) {
        for (id, events) in &self.expected {
            assert_eq!(
                &self.history(id, 0, usize::MAX, usize::MAX),
                events,
                "the history of {id}"
            );
            let loaded = self.load(id, 1);
            assert_eq!(
                (&loaded.state, &loaded.events),
                (&None, events),
                "what is loaded of {id}"
            );
        }
    }
}

fn state(id: &str, seq: u64, version: u16, bytes: &[u8]) -> StoredState {
    StoredState {
        address: address(id),
        shard: ShardId(1),
        seq,
        version,
        bytes: bytes.to_vec(),
    }
}

/// A store is empty before the first checkpoint.
pub fn an_empty_store_covers_nothing_and_knows_nobody<H: Harness>(harness: &H) {
    let mut bench = Bench::new(harness);
    bench.append(&["a"]);
    assert_eq!(bench.covers(), None);
    assert_eq!(bench.load("a", 1), Loaded::default());
    assert!(bench.history("a", 0, 10, 1 << 20).is_empty());
    assert!(bench.ids(KIND, None, 10).is_empty());
    assert_eq!(bench.system(b"timer/1"), None);
}

/// The engine stores its layout before it commits anything.
pub fn a_checkpoint_before_the_first_commit_keeps_its_rows<H: Harness>(harness: &H) {
    let bench = Bench::new(harness);
    let begun = bench.upto_here();
    bench.advance(Checkpoint {
        system: vec![(b"layout".to_vec(), Some(b"64 shards".to_vec()))],
        ..begun.clone()
    });
    let mut bench = bench.reopened();
    assert_eq!(bench.covers(), Some(begun.upto));
    assert_eq!(bench.system(b"layout").as_deref(), Some(&b"64 shards"[..]));
    let sealed = bench.next_writer();
    bench.append(&["a"]);
    bench.checkpoint_over(&[sealed]);
    bench.assert_all_histories();
    assert_eq!(bench.system(b"layout").as_deref(), Some(&b"64 shards"[..]));
}

/// The store reads the events from the journal by itself: bodies, names, versions, times, positions.
pub fn a_checkpoint_indexes_the_journals_events<H: Harness>(harness: &H) {
    let mut bench = Bench::new(harness);
    for ids in [["a", "b"], ["b", "c"], ["a", "a"]] {
        bench.append(&ids);
    }
    bench.checkpoint();
    bench.assert_all_histories();
    bench.append(&["c", "d", "a"]);
    bench.checkpoint();
    bench.assert_all_histories();
    assert_eq!(bench.load("nobody", 1), Loaded::default());
}

/// Commits after the checkpoint's position are not in it.
pub fn a_checkpoint_covers_its_position_and_no_more<H: Harness>(harness: &H) {
    let mut bench = Bench::new(harness);
    bench.append(&["a"]);
    bench.append(&["a"]);
    let covered = bench.upto_here();
    bench.append(&["a", "b"]);
    bench.advance(covered.clone());
    assert_eq!(bench.covers(), Some(covered.upto));
    assert_eq!(bench.history("a", 0, 10, 1 << 20).len(), 2);
    assert_eq!(bench.load("b", 1), Loaded::default());
    bench.checkpoint();
    assert_eq!(bench.covers(), Some(bench.position()));
    bench.assert_all_histories();
    // Once more, with nothing new.
    bench.checkpoint();
    bench.assert_all_histories();
}

/// `sealed` names the streams between the last checkpoint and `upto`.
pub fn several_writers_streams_are_indexed_in_order<H: Harness>(harness: &H) {
    let mut bench = Bench::new(harness);
    bench.append(&["a", "b"]);
    bench.append(&["a"]);
    bench.checkpoint();
    bench.append(&["b"]);
    let first = bench.next_writer();
    let second = bench.next_writer();
    bench.append(&["c", "a"]);
    bench.append(&["c"]);
    let third = bench.next_writer();
    bench.append(&["b", "c"]);
    bench.checkpoint_over(&[first, second, third]);
    bench.assert_all_histories();
    // A store that begins anew gets all streams at once.
    let sealed = bench.next_writer();
    bench.checkpoint_over(&[sealed]);
    assert_eq!(bench.covers(), Some(bench.position()));
    bench.append(&["a"]);
    bench.checkpoint();
    bench.assert_all_histories();
}

/// Messages, timers and keys are the engine's; no history shows them.
pub fn only_events_are_indexed<H: Harness>(harness: &H) {
    use crate::{CommitBuilder, RecordKind, Stamp};
    let mut bench = Bench::new(harness);
    bench.append(&["a"]);
    let mut open = CommitBuilder::default();
    for (kind, id) in [
        (RecordKind::Sent, "a"),
        (RecordKind::TimerSet, "t"),
        (RecordKind::Key, "k"),
    ] {
        open.push(kind, ShardId(1), &address(id), 9, "Other", 1, b"not an event");
    }
    bench.number += 1;
    let stamp = Stamp::after_synced(bench.writer, CommitNo(bench.number), 0);
    let run = |later: Later<'static, Appended>| harness.run(later);
    outcome(bench.pair.journal.append(open.finish(stamp)), &run).expect("a commit lands");
    bench.checkpoint();
    bench.assert_all_histories();
    assert_eq!(bench.ids(KIND, None, 10), [("a".to_owned(), 1)]);
}

/// A checkpoint beyond what the journal holds is refused, whole.
pub fn a_checkpoint_that_fails_leaves_nothing<H: Harness>(harness: &H) {
    let mut bench = Bench::new(harness);
    bench.append(&["a"]);
    bench.checkpoint();
    let covered = bench.covers();
    bench.append(&["a"]);
    let beyond = Checkpoint {
        upto: Position::new(bench.position().writer, CommitNo(bench.number + 5)),
        states: vec![state("a", 1, 1, b"a state")],
        system: vec![(b"key".to_vec(), Some(b"value".to_vec()))],
        ..bench.upto_here()
    };
    let refused = harness.run(bench.pair.store.advance(beyond));
    assert!(refused.is_err(), "the journal does not reach that far");
    assert_eq!(bench.covers(), covered);
    assert_eq!(bench.system(b"key"), None);
    assert_eq!(bench.load("a", 1).state, None);
    assert_eq!(bench.history("a", 0, 10, 1 << 20).len(), 1);
    bench.checkpoint();
    bench.assert_all_histories();
}

/// A load begins at the state; older events are history's.
pub fn a_state_is_loaded_with_the_events_after_it<H: Harness>(harness: &H) {
    let mut bench = Bench::new(harness);
    for _ in 0..3 {
        bench.append(&["a", "b"]);
    }
    let kept = state("a", 2, 1, b"two events in it");
    bench.advance(Checkpoint {
        states: vec![kept.clone(), state("b", 3, 1, b"")],
        ..bench.upto_here()
    });
    let events = bench.expected["a"].clone();
    assert_eq!(
        bench.load("a", 1),
        Loaded {
            state: Some(kept.clone()),
            events: events[2..].to_vec()
        }
    );
    assert_eq!(bench.load("b", 1).events, []);
    bench.append(&["a"]);
    bench.checkpoint();
    let events = bench.expected["a"].clone();
    assert_eq!(
        bench.load("a", 1),
        Loaded {
            state: Some(kept),
            events: events[2..].to_vec()
        }
    );
    assert_eq!(bench.history("a", 0, 10, 1 << 20), events);
}

/// Another `STATE_VERSION` rebuilds the state from all its events.
pub fn a_state_of_another_version_is_as_none<H: Harness>(harness: &H) {
    let mut bench = Bench::new(harness);
    bench.append(&["a", "a"]);
    bench.advance(Checkpoint {
        states: vec![state("a", 2, 7, b"of version 7")],
        ..bench.upto_here()
    });
    assert!(bench.load("a", 7).state.is_some());
    let loaded = bench.load("a", 8);
    assert_eq!((loaded.state, loaded.events), (None, bench.expected["a"].clone()));
}

/// An entity has one state.
pub fn a_later_state_replaces_an_earlier_one<H: Harness>(harness: &H) {
    let mut bench = Bench::new(harness);
    for seq in 1..=3 {
        bench.append(&["a"]);
        let kept = state("a", seq, 1, format!("state {seq}").as_bytes());
        bench.advance(Checkpoint {
            states: vec![kept.clone()],
            ..bench.upto_here()
        });
        assert_eq!(
            bench.load("a", 1),
            Loaded {
                state: Some(kept),
                events: Vec::new()
            }
        );
    }
}

/// The engine takes a checkpoint without a pause: states are durable, but may be newer than the position covered.
pub fn a_state_may_be_newer_than_what_its_checkpoint_covers<H: Harness>(harness: &H) {
    let mut bench = Bench::new(harness);
    bench.append(&["a"]);
    let upto = bench.upto_here();
    bench.append(&["a", "fresh"]);
    let newer = [state("a", 2, 1, b"two"), state("fresh", 1, 1, b"one")];
    bench.advance(Checkpoint {
        states: newer.to_vec(),
        ..upto
    });
    for kept in &newer {
        let loaded = Loaded {
            state: Some(kept.clone()),
            events: Vec::new(),
        };
        assert_eq!(bench.load(&kept.address.id, 1), loaded);
    }
    bench.append(&["a"]);
    bench.checkpoint();
    assert_eq!(bench.load("a", 1).events, bench.expected["a"][2..]);
    assert_eq!(bench.load("fresh", 1).events, []);
    for id in ["a", "fresh"] {
        assert_eq!(bench.history(id, 0, 10, 1 << 20), bench.expected[id]);
    }
}

/// A page has at most `limit` events, and after the first at most `bytes_max` bytes.
pub fn history_pages_by_count_and_bytes<H: Harness>(harness: &H) {
    let mut bench = Bench::new(harness);
    for _ in 0..10 {
        bench.append(&["a", "b"]);
    }
    bench.checkpoint();
    let all = bench.expected["a"].clone();
    let one = all[0].payload.len();
    assert_eq!(bench.history("a", 0, 3, 1 << 20), all[..3]);
    assert_eq!(bench.history("a", 3, 3, 1 << 20), all[3..6]);
    assert_eq!(bench.history("a", 9, 3, 1 << 20), all[9..]);
    assert_eq!(bench.history("a", 10, 3, 1 << 20), []);
    assert_eq!(bench.history("a", 99, 3, 1 << 20), []);
    assert_eq!(bench.history("a", 0, 0, 1 << 20), []);
    assert_eq!(bench.history("a", 0, 10, 0), all[..1], "the first event always");
    assert_eq!(bench.history("a", 0, 10, 3 * one), all[..3]);
    assert_eq!(bench.history("a", 0, 10, 4 * one - 1), all[..3]);
}

/// Pages of ids, each kind for itself.
pub fn entities_are_listed_in_the_order_of_their_ids<H: Harness>(harness: &H) {
    let mut bench = Bench::new(harness);
    let ids = ["b", "a", "ab", "ä", "a b", "B", "\u{0}", "zz"];
    for id in ids {
        bench.append(&[id]);
    }
    bench.append(&["ab"]);
    bench.checkpoint();
    let mut sorted: Vec<String> = ids.map(str::to_owned).to_vec();
    sorted.sort();
    let listed = |heads: Vec<(String, u64)>| -> Vec<String> { heads.into_iter().map(|(id, _)| id).collect() };
    assert_eq!(listed(bench.ids(KIND, None, 100)), sorted);
    for limit in [1, 3] {
        let mut paged: Vec<String> = Vec::new();
        loop {
            let page = listed(bench.ids(KIND, paged.last().map(String::as_str), limit));
            assert!(page.len() <= limit);
            if page.is_empty() {
                break;
            }
            paged.extend(page);
        }
        assert_eq!(paged, sorted, "in pages of {limit}");
    }
    assert_eq!(
        listed(bench.ids(KIND, Some("aa"), 1)),
        ["ab"],
        "after an id that does not exist"
    );
    assert!(bench.ids("sectio", None, 10).is_empty(), "another kind");
    assert!(bench.ids("sections", None, 10).is_empty(), "another kind");
    let head = bench.ids(KIND, Some("aa"), 1);
    assert_eq!(head, [("ab".to_owned(), 2)], "with its last sequence number");
}

/// A filter reads the entities of a kind and their rows side by side, in pages.
pub fn rows_named_by_ids_have_the_order_of_the_list<H: Harness>(harness: &H) {
    let mut bench = Bench::new(harness);
    let ids = [
        "b",
        "a",
        "ab",
        "ä",
        "a b",
        "B",
        "\u{0}",
        "\u{FFFD}",
        "\u{1F600}",
        "\u{E000}",
        "a\u{0}",
    ];
    let row = |id: &str| [b"i", KIND.as_bytes(), b"\0", id.as_bytes()].concat();
    for id in ids {
        bench.append(&[id]);
    }
    bench.advance(Checkpoint {
        system: ids.iter().map(|id| (row(id), Some(b"value".to_vec()))).collect(),
        ..bench.upto_here()
    });
    let bench = bench.reopened();
    let mut after: Option<String> = None;
    for _ in 0..=ids.len() / 2 {
        let listed: Vec<String> = bench
            .ids(KIND, after.as_deref(), 2)
            .into_iter()
            .map(|(id, _)| id)
            .collect();
        let begin = after.as_deref().map_or_else(Vec::new, row);
        let rows = bench.system_page(&row(""), &begin, 2).into_iter().map(|(row, _)| row);
        assert_eq!(
            rows.collect::<Vec<_>>(),
            listed.iter().map(|id| row(id)).collect::<Vec<_>>()
        );
        after = listed.last().cloned().or(after);
    }
    let last = ids.iter().max().map(ToString::to_string);
    assert_eq!(after, last, "all of them were paged");
}

/// The engine's own rows change with the checkpoint they came in.
pub fn system_rows_are_set_read_and_removed<H: Harness>(harness: &H) {
    let mut bench = Bench::new(harness);
    bench.append(&["a"]);
    let row = |key: &str, value: Option<&str>| (key.as_bytes().to_vec(), value.map(|value| value.as_bytes().to_vec()));
    let set = |rows: Vec<(Vec<u8>, Option<Vec<u8>>)>, bench: &Bench<'_, H>| {
        bench.advance(Checkpoint {
            system: rows,
            ..bench.upto_here()
        });
    };
    set(
        vec![
            row("timer/2", Some("two")),
            row("timer/1", Some("one")),
            row("timers", Some("x")),
            row("key/1", Some("")),
        ],
        &bench,
    );
    assert_eq!(bench.system(b"timer/1").as_deref(), Some(&b"one"[..]));
    assert_eq!(bench.system(b"key/1").as_deref(), Some(&b""[..]));
    assert_eq!(bench.system(b"timer/"), None);
    let names = ["timer/1", "timer/", "key/1", "timer/1"].map(|name| name.as_bytes().to_vec());
    let values = bench
        .harness
        .run(bench.pair.store.system_rows(&names))
        .expect("system rows");
    let (one, empty) = (Some(b"one".to_vec()), Some(Vec::new()));
    assert_eq!(values, [one.clone(), None, empty, one]);
    let pair = |key: &str, value: &str| (key.as_bytes().to_vec(), value.as_bytes().to_vec());
    assert_eq!(
        bench.system_scan(b"timer/"),
        [pair("timer/1", "one"), pair("timer/2", "two")]
    );
    assert_eq!(bench.system_scan(b"").len(), 4);
    for (prefix, after, rows_max, keys) in [
        ("timer/", "", 1, &["timer/1"][..]),
        ("timer/", "timer/1", 9, &["timer/2"]),
        ("timer/", "timer/2", 9, &[]),
        ("timer/", "zzz", 9, &[]),
        ("", "", 3, &["key/1", "timer/1", "timer/2"]),
        ("", "key/1", 0, &[]),
    ] {
        let found = bench.system_page(prefix.as_bytes(), after.as_bytes(), rows_max);
        let found: Vec<&[u8]> = found.iter().map(|(key, _)| &**key).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
        assert_eq!(found, keys, "{rows_max} of {prefix:?} after {after:?}");
    }
    set(
        vec![
            row("timer/1", None),
            row("timer/2", Some("changed")),
            row("never/was", None),
        ],
        &bench,
    );
    assert_eq!(bench.system_scan(b"timer/"), [pair("timer/2", "changed")]);
}

/// Rows go in the order of their keys, some at a time, and no rows of others.
pub fn system_rows_of_a_prefix_are_removed_some_at_a_time<H: Harness>(harness: &H) {
    let mut bench = Bench::new(harness);
    bench.append(&["a"]);
    let others: [&[u8]; 4] = [b"j", b"k", b"k\xfe\xff", b"l"];
    let own = (0..10).map(|n: u8| [&b"k\xff"[..], &vec![n; usize::from(n)]].concat());
    let keys = own.chain(others.map(<[u8]>::to_vec));
    bench.advance(Checkpoint {
        system: keys.map(|key| (key, Some(b"value".to_vec()))).collect(),
        ..bench.upto_here()
    });
    let (mut after, mut sizes) = (Vec::new(), Vec::new());
    loop {
        let left = bench.system_scan(b"k\xff");
        let removed = harness
            .run(bench.pair.store.remove_prefix(b"k\xff", &after, 4))
            .expect("rows are removed");
        let still = bench.system_scan(b"k\xff");
        assert_eq!(still, left[left.len() - still.len()..], "the first ones go");
        let Some(last) = removed else { break };
        sizes.push(left.len() - still.len());
        assert_eq!(last, left[left.len() - still.len() - 1].0, "it is told how far it came");
        after = last;
    }
    assert_eq!(sizes, [4, 4, 2]);
    let none = harness.run(bench.pair.store.remove_prefix(b"nothing", b"", 4));
    assert_eq!(none.expect("no rows are removed"), None);
    let left = |bench: &Bench<'_, H>| {
        bench
            .system_scan(b"")
            .into_iter()
            .map(|(key, _)| key)
            .collect::<Vec<_>>()
    };
    assert_eq!(left(&bench), others, "nobody else's");
    bench.append(&["a"]);
    bench.checkpoint();
    let bench = bench.reopened();
    assert_eq!(left(&bench), others, "for good, with the next checkpoint");
    bench.assert_all_histories();
}

/// A thousand events over several checkpoints.
pub fn an_entity_with_a_long_history_is_read_from_any_point<H: Harness>(harness: &H) {
    let mut bench = Bench::new(harness);
    for round in 0..10 {
        for _ in 0..100 {
            bench.append(&["hot", "other"]);
        }
        if round % 3 == 0 {
            bench.checkpoint();
        }
    }
    bench.advance(Checkpoint {
        states: vec![state("hot", 777, 1, b"state 777")],
        ..bench.upto_here()
    });
    let all = bench.expected["hot"].clone();
    for after in [0, 1, 255, 256, 257, 500, 999] {
        let page = bench.history("hot", after, 50, usize::MAX);
        let from = usize::try_from(after).unwrap_or(usize::MAX);
        assert_eq!(page, all[from..(from + 50).min(1000)], "after {after}");
    }
    assert_eq!(bench.load("hot", 1).events, all[777..]);
}

/// A restart changes nothing.
pub fn reopening_sees_the_last_checkpoint_whole<H: Harness>(harness: &H) {
    let mut bench = Bench::new(harness);
    bench.append(&["a", "b"]);
    bench.append(&["a"]);
    let kept = state("a", 1, 1, b"one event in it");
    bench.advance(Checkpoint {
        states: vec![kept.clone()],
        system: vec![(b"key".to_vec(), Some(b"value".to_vec()))],
        ..bench.upto_here()
    });
    let covered = bench.covers();
    bench.append(&["a", "c"]);
    let mut bench = bench.reopened();
    assert_eq!(bench.covers(), covered);
    assert_eq!(bench.system(b"key").as_deref(), Some(&b"value"[..]));
    let events = bench.expected["a"].clone();
    assert_eq!(
        bench.load("a", 1),
        Loaded {
            state: Some(kept),
            events: events[1..2].to_vec()
        }
    );
    let sealed = bench.next_writer();
    bench.append(&["b"]);
    bench.checkpoint_over(&[sealed]);
    for (id, events) in &bench.expected {
        assert_eq!(
            &bench.history(id, 0, usize::MAX, usize::MAX),
            events,
            "the history of {id}"
        );
    }
}
