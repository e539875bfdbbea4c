//! History that ends: what is left is the rest of it, whatever was closed, lost or cut off meanwhile.

use super::{Bench, Harness, kit, state};
use crate::{
    Appended, Checkpoint, Commit, CommitBuilder, CommitNo, Cut, Journal as _, Later, Position, Prune, PruneHow, Pruned,
    RecordKind, ShardId, Stamp, Store as _, StoredEvent, StoredState,
    conformance::kit::{address, outcome},
};
use std::{collections::BTreeMap, sync::Arc};

/// A record as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Written {
    kind: RecordKind,
    id: String,
    seq: u64,
    body: Vec<u8>,
}

/// A journal that is pruned, and all that was ever written to it.
struct World<'a, H: Harness> {
    bench: Bench<'a, H>,
    sealed: Vec<Position>,
    written: BTreeMap<Position, Vec<Written>>,
    last: BTreeMap<String, u64>,
    /// Up to which event each entity's history is to go.
    cuts: BTreeMap<String, u64>,
}

const IDS: [&str; 4] = ["a", "b", "c", "d"];
/// Large enough that a log has several segments.
const BODY_BYTES: usize = 2_000;

impl<H: Harness> World<'_, H> {
    fn commit(&mut self, records: Vec<Written>) {
        let bench = &mut self.bench;
        bench.number += 1;
        let position = bench.position();
        let mut open = CommitBuilder::default();
        for record in &records {
            let Written { kind, id, seq, body } = record;
            open.push(*kind, ShardId(1), &address(id), *seq, "Added", 2, body);
        }
        let commit = open.finish(Stamp::after_synced(
            position.writer,
            position.commit,
            kit::at_micros(position.writer, position.commit.0),
        ));
        let run = |later: Later<'static, Appended>| bench.harness.run(later);
        outcome(bench.pair.journal.append(commit), &run).expect("a commit lands");
        self.written.insert(position, records);
    }

    fn event(&mut self, id: &str, n: usize) -> Written {
        let seq = self.last.entry(id.to_owned()).or_default();
        *seq += 1;
        let body = format!("{id} {seq} ").repeat(1 + BODY_BYTES * (n % 5) / 20);
        Written {
            kind: RecordKind::Event,
            id: id.into(),
            seq: *seq,
            body: body.into_bytes(),
        }
    }

    fn fill(&mut self, commits: usize) {
        for n in 0..commits {
            let ids = IDS
                .iter()
                .enumerate()
                .filter(|(at, _)| (n * 7 + at * 3) % 4 < 2 || n % 9 == 0);
            let ids: Vec<&str> = ids.map(|(_, id)| *id).collect();
            let records = ids.into_iter().map(|id| self.event(id, n)).collect();
            self.commit(records);
        }
    }

    /// A checkpoint up to the last commit.
    fn upto_here(&self) -> Checkpoint {
        let covers = self.bench.covers().unwrap_or_default();
        let sealed = self.sealed.iter().filter(|end| end.writer >= covers.writer);
        Checkpoint {
            sealed: sealed.copied().collect(),
            ..self.bench.upto_here()
        }
    }

    /// States of these entities are recorded and stored, and their histories are to go up to so many events before the last.
    fn cut(&mut self, ids: &[(&str, u64)]) {
        let state_of = |id: &str, seq: u64| format!("state {seq} of {id}").into_bytes();
        let records = ids.iter().map(|(id, _)| Written {
            kind: RecordKind::State,
            id: (*id).into(),
            seq: self.last[*id],
            body: state_of(id, self.last[*id]),
        });
        self.commit(records.collect());
        let mut checkpoint = self.upto_here();
        for (id, before) in ids {
            let (seq, upto) = (self.last[*id], self.last[*id] - before);
            self.cuts.insert((*id).into(), upto);
            checkpoint.states.push(state(id, seq, 2, &state_of(id, seq)));
            checkpoint.cuts.push(Cut {
                address: address(id),
                upto,
                is_gone: false,
            });
        }
        self.bench.advance(checkpoint);
    }

    fn is_over(&self, record: &Written) -> bool {
        record.kind == RecordKind::Event && self.cuts.get(&record.id).is_some_and(|upto| record.seq <= *upto)
    }

    /// Prunes all streams; what the journal had to say of each.
    fn prune(&self, how: PruneHow) -> Vec<(Position, Pruned)> {
        let cuts = self.cuts.clone();
        let ends = self.sealed.iter().copied().chain([self.bench.position()]);
        ends.map(|end| {
            let cuts = cuts.clone();
            let pruned = self.bench.harness.run(self.bench.pair.journal.prune(Prune {
                after: Position::new(end.writer, CommitNo(0)),
                upto: end.commit,
                judge: Arc::new(move |record, _| {
                    record.record == RecordKind::Event && cuts.get(record.id).is_some_and(|upto| record.seq <= *upto)
                }),
                replaced_by: self.bench.position(),
                how,
            }));
            (end, pruned.expect("history is removed"))
        })
        .collect()
    }

    fn read_all(&self) -> Vec<Commit> {
        let mut all: Vec<Commit> = Vec::new();
        for end in self.sealed.iter().copied().chain([self.bench.position()]) {
            let mut at = Position::new(end.writer, CommitNo(0));
            while at.commit < end.commit {
                let page = self
                    .bench
                    .harness
                    .run(self.bench.pair.journal.read(at, 1 << 16))
                    .expect("commits");
                for commit in page {
                    assert!(
                        commit.first() == at.commit.next(),
                        "commit {} after {at}",
                        commit.position()
                    );
                    at = commit.position();
                    all.push(commit);
                }
            }
            assert_eq!(at, end, "a stream ends where it ended");
        }
        all
    }

    /// Checks the rest: the written records, without those that are over in the parts that were pruned. As long as anything of a stream is
    /// left, reading can begin anywhere in it.
    fn assert_left(&self, pruned: &[(Position, Pruned)]) {
        let reached = |position: Position| {
            let of = pruned.iter().find(|(end, _)| end.writer == position.writer);
            of.is_some_and(|(_, pruned)| position.commit <= pruned.upto)
        };
        let mut found = BTreeMap::new();
        for commit in self.read_all() {
            let left = commit.records().map(|record| record.expect("a record"));
            let left = left.filter(|record| record.record != RecordKind::Removed);
            let left: Vec<Written> = left
                .map(|record| Written {
                    kind: record.record,
                    id: record.id.into(),
                    seq: record.seq,
                    body: record.body.to_vec(),
                })
                .collect();
            found.insert(commit.position(), left);
        }
        for (position, records) in &self.written {
            let kept = records
                .iter()
                .filter(|record| !(reached(*position) && self.is_over(record)));
            let kept: Vec<Written> = kept.cloned().collect();
            let left = found.get(position).cloned().unwrap_or_default();
            assert_eq!(left, kept, "what is left of commit {position}");
            let before = Position {
                commit: CommitNo(position.commit.0 - 1),
                ..*position
            };
            let page = self
                .bench
                .harness
                .run(self.bench.pair.journal.read(before, 0))
                .expect("commits");
            let first = page.first().expect("a commit");
            assert!(
                first.first() <= position.commit && position.commit <= first.stamp().number,
                "commit {} stands for {position}",
                first.position()
            );
        }
    }

    /// Each entity's history is the end of what has happened to it.
    fn assert_histories(&self, are_cut: bool) {
        for (id, last) in &self.last {
            let cut = self.cuts.get(id).copied().unwrap_or_default();
            let all = self
                .written
                .iter()
                .flat_map(|(position, records)| records.iter().map(|record| (*position, record)));
            let own = all.filter(|(_, record)| record.kind == RecordKind::Event && record.id == *id);
            let expected: Vec<StoredEvent> = own
                .map(|(position, record)| StoredEvent {
                    seq: record.seq,
                    position,
                    at_micros: kit::at_micros(position.writer, position.commit.0),
                    name: "Added".into(),
                    version: 2,
                    payload: record.body.clone(),
                })
                .collect();
            let history = self.bench.history(id, 0, usize::MAX, usize::MAX);
            let begin = expected.len() - history.len();
            assert_eq!(history, expected[begin..], "the history of {id}");
            assert!(
                begin as u64 <= cut,
                "the history of {id} begins after {begin}, {cut} were to go"
            );
            assert!(
                !are_cut || begin as u64 == cut,
                "the history of {id} begins after {begin}, not {cut}"
            );
            let from = history.first().map_or(0, |event| event.seq);
            if let Some(third) = history.get(2) {
                let page = self.bench.history(id, third.seq, 2, usize::MAX);
                assert_eq!(
                    page,
                    history[3..history.len().min(5)],
                    "after event {} of {id}",
                    third.seq
                );
            }
            let loaded = self.bench.load(id, 1);
            if from == 1 {
                assert_eq!(
                    (loaded.state, &loaded.events),
                    (None, &history),
                    "what is loaded of {id}"
                );
                continue;
            }
            // Whatever version it has: it is the only way back.
            let state: StoredState = loaded.state.expect("a state, where the first events are gone");
            assert_eq!(state.version, 2);
            assert_eq!(
                String::from_utf8_lossy(&state.bytes),
                format!("state {} of {id}", state.seq)
            );
            let after: Vec<_> = history.iter().filter(|event| event.seq > state.seq).cloned().collect();
            assert_eq!(loaded.events, after, "what is loaded of {id} after its state");
            assert_eq!(state.seq + after.len() as u64, *last);
        }
        let ids = self.bench.ids(kit::KIND, None, 10);
        let expected: Vec<_> = self.last.iter().map(|(id, last)| (id.clone(), *last)).collect();
        assert_eq!(ids, expected);
    }

    fn reopened(self, lost: bool) -> Self {
        let harness = self.bench.harness;
        let Bench {
            pair,
            expected,
            writer,
            number,
            ..
        } = self.bench;
        let pair = match lost {
            true => harness.without_store(pair),
            false => harness.reopen(pair),
        };
        let mut sealed = self.sealed;
        let mut bench = Bench {
            harness,
            pair,
            writer,
            number,
            expected,
        };
        sealed.push(bench.next_writer());
        Self { bench, sealed, ..self }
    }
}

fn world<H: Harness>(harness: &H) -> World<'_, H> {
    let mut world = World {
        bench: Bench::new(harness),
        sealed: Vec::new(),
        written: BTreeMap::new(),
        last: BTreeMap::new(),
        cuts: BTreeMap::new(),
    };
    world.fill(60);
    world.sealed.push(world.bench.next_writer());
    world.fill(150);
    world
}

/// Records go, numbers stay; what is left is read as it was, also after a restart, and by a store built anew.
pub fn what_is_left_of_a_pruned_history_is_read_as_it_was<H: Harness>(harness: &H) {
    let mut world = world(harness);
    world.cut(&[("a", 0), ("b", 5), ("c", 9)]);
    world.assert_histories(true);
    let dry = world.prune(PruneHow::Dry);
    world.assert_left(&[]);
    let pruned = world.prune(PruneHow::Remove);
    assert_eq!(pruned, dry, "what a dry run says is what happens");
    assert!(
        pruned
            .iter()
            .any(|(_, pruned)| pruned.records > 0 && pruned.commits > 0 && pruned.bytes > 0)
    );
    world.assert_left(&pruned);
    world.assert_histories(true);
    let mut world = world.reopened(false);
    world.assert_left(&pruned);
    world.fill(30);
    world.bench.advance(world.upto_here());
    world.assert_histories(true);
    let again = world.prune(PruneHow::Remove);
    assert!(
        again
            .iter()
            .zip(&pruned)
            .all(|((_, again), (_, pruned))| again.upto >= pruned.upto)
    );
    world.assert_left(&again);
}

/// The journal alone is enough, whatever of it is gone.
pub fn a_store_is_built_anew_from_a_pruned_history<H: Harness>(harness: &H) {
    let mut world = world(harness);
    world.cut(&[("a", 0), ("b", 5), ("c", 9)]);
    let pruned = world.prune(PruneHow::Remove);
    world.fill(20);
    let mut world = world.reopened(true);
    assert_eq!(world.bench.covers(), None);
    world.fill(3);
    world.bench.advance(world.upto_here());
    world.assert_left(&pruned);
    world.assert_histories(false);
}

/// Passes that look only at what has become over leave a state for which a newer one stands in, and take the events between.
pub fn events_may_be_gone_behind_a_state_where_a_newer_one_follows<H: Harness>(harness: &H) {
    let mut bench = Bench::new(harness);
    let left = [
        (RecordKind::State, 5),
        (RecordKind::Event, 9),
        (RecordKind::Event, 10),
        (RecordKind::State, 9),
        (RecordKind::Event, 11),
    ];
    for (record, seq) in left {
        bench.append_record(record, seq);
    }
    bench.checkpoint();
    let seqs = |events: &[StoredEvent]| events.iter().map(|event| event.seq).collect::<Vec<_>>();
    let loaded = bench.load("a", 1);
    assert_eq!(loaded.state.map(|state| state.seq), Some(9));
    assert_eq!(seqs(&loaded.events), [10, 11]);
    assert_eq!(seqs(&bench.history("a", 0, usize::MAX, usize::MAX)), [9, 10, 11]);
    bench.append_record(RecordKind::Event, 12);
    bench.checkpoint();
    assert_eq!(seqs(&bench.load("a", 1).events), [10, 11, 12]);
}

/// Events end without a state that covers them: something is lost. A store that cannot lose anything need not look.
pub fn events_that_are_missing_are_said_to_be<H: Harness>(harness: &H) {
    for newest in [5, 7] {
        let mut bench = Bench::new(harness);
        for (record, seq) in [
            (RecordKind::State, 5),
            (RecordKind::Event, 9),
            (RecordKind::State, newest),
        ] {
            bench.append_record(record, seq);
        }
        let refused = harness.run(bench.pair.store.advance(bench.upto_here()));
        let said = refused.expect_err("an event is missing").to_string();
        assert!(said.contains("event 9 follows event"), "{said}");
    }
}

/// History goes bit by bit: what is over now was not the last time.
pub fn a_history_is_pruned_again_and_again<H: Harness>(harness: &H) {
    let mut world = world(harness);
    for before in [200, 90, 40, 3] {
        let ids: Vec<(&str, u64)> = IDS.iter().map(|id| (*id, before.min(world.last[*id]))).collect();
        world.cut(&ids);
        let pruned = world.prune(PruneHow::Remove);
        world.assert_left(&pruned);
        world.assert_histories(true);
        world.fill(10);
        world.bench.advance(world.upto_here());
    }
}

/// The store keeps nothing of an entity that has ended for good.
pub fn nothing_is_stored_of_an_entity_that_is_gone<H: Harness>(harness: &H) {
    let mut world = world(harness);
    world.cut(&[("a", 0)]);
    world.bench.advance(Checkpoint {
        cuts: vec![Cut {
            address: address("a"),
            upto: world.last["a"],
            is_gone: true,
        }],
        ..world.upto_here()
    });
    let bench = &world.bench;
    assert_eq!(bench.load("a", 2), crate::Loaded::default());
    assert!(bench.history("a", 0, 10, 1 << 20).is_empty());
    assert_eq!(bench.ids(kit::KIND, None, 1)[0].0, "b");
}

/// A cut of the entity `a`, which has ended with this event.
fn gone(upto: u64) -> Cut {
    Cut {
        address: address("a"),
        upto,
        is_gone: true,
    }
}

/// The state and the events that are loaded of `a`, by number.
fn loaded<H: Harness>(bench: &Bench<'_, H>) -> (Option<u64>, Vec<u64>) {
    let loaded = bench.load("a", 1);
    let events = loaded.events.iter().map(|event| event.seq);
    (loaded.state.map(|state| state.seq), events.collect())
}

/// An entity that is gone and was created anew has the events after its end.
pub fn index_begins_after_the_end_of_one_that_is_gone<H: Harness>(harness: &H) {
    let mut bench = Bench::new(harness);
    (1..=3).for_each(|seq| bench.append_record(RecordKind::Event, seq));
    bench.append_record(RecordKind::Ended, 3);
    bench.advance(Checkpoint {
        cuts: vec![gone(3)],
        ..bench.upto_here()
    });
    assert_eq!(loaded(&bench), (None, vec![]));
    for last in [4, 6] {
        let ended = bench.next_writer();
        (last - 1..=last)
            .filter(|seq| *seq > 3)
            .for_each(|seq| bench.append_record(RecordKind::Event, seq));
        bench.checkpoint_over(&[ended]);
        bench = bench.reopened();
        assert_eq!(loaded(&bench), (None, (4..=last).collect()));
        let found = bench.load("a", 1);
        assert_eq!((found.missing_event(3), found.missing_event(0)), (None, Some(1)));
        let history = bench.history("a", 0, usize::MAX, usize::MAX);
        assert_eq!(history, found.events);
        assert_eq!(bench.ids(kit::KIND, None, 10), [("a".to_owned(), last)]);
    }
}

/// A copy has the first events of a history whose next ones were removed before they were copied: the index does not keep these.
pub fn first_events_go_with_those_removed_behind_them<H: Harness>(harness: &H) {
    use RecordKind::{Ended, Event, State};
    let begin = [(Event, 1), (Event, 2)];
    let gone = [(Ended, 5)];
    let anew = [(Ended, 5), (Event, 6), (Event, 7)];
    let gone_in_part = [(Event, 4), (Event, 5), (Ended, 5), (Event, 6)];
    let replaced = [(Event, 6), (Event, 7), (State, 6), (Event, 8)];
    for (rest, state, indexed, shown) in [
        (&gone[..], None, &[][..], &[][..]),
        (&anew, None, &[6, 7], &[6, 7]),
        (&gone_in_part, None, &[4, 5, 6], &[4, 5, 6]),
        (&replaced, Some(6), &[7, 8], &[6, 7, 8]),
    ] {
        let mut bench = Bench::new(harness);
        for (record, seq) in begin.iter().chain(rest) {
            bench.append_record(*record, *seq);
        }
        bench.checkpoint();
        assert_eq!(loaded(&bench), (state, indexed.to_vec()), "{rest:?}");
        let history = bench.history("a", 0, usize::MAX, usize::MAX);
        assert_eq!(
            history.iter().map(|event| event.seq).collect::<Vec<_>>(),
            shown,
            "{rest:?}"
        );
        assert_eq!(bench.ids(kit::KIND, None, 10).is_empty(), shown.is_empty(), "{rest:?}");
        let next = shown.last().map_or(6, |last| last + 1);
        bench.append_record(Event, next);
        bench.checkpoint();
        assert_eq!(loaded(&bench).1.last(), Some(&next), "{rest:?}");
    }
}

/// The first event that a store has of an entity keeps its number: where nothing says that those before are gone, they are lost.
pub fn events_missing_before_the_first_are_told_by_its_number<H: Harness>(harness: &H) {
    let mut bench = Bench::new(harness);
    (2..=4).for_each(|seq| bench.append_record(RecordKind::Event, seq));
    bench.checkpoint();
    assert_eq!(loaded(&bench), (None, vec![2, 3, 4]));
    assert_eq!(bench.load("a", 1).missing_event(0), Some(1));
    // A state does not stand in for what is missing after it.
    bench.append_record(RecordKind::Event, 5);
    for (seq, cut, missing) in [(1, 2, Some(2)), (2, 2, None), (2, 4, Some(3)), (4, 4, None)] {
        bench.advance(Checkpoint {
            states: vec![state("a", seq, 1, b"state")],
            cuts: vec![Cut {
                is_gone: false,
                ..gone(cut)
            }],
            ..bench.upto_here()
        });
        let found = bench.load("a", 1);
        assert_eq!(
            found.missing_event(0),
            missing,
            "a state after {seq}, events after {cut}"
        );
    }
}

/// An entity created anew before a checkpoint keeps its own state and events, and none of the epoch before.
pub fn entity_created_anew_keeps_nothing_of_what_it_was<H: Harness>(harness: &H) {
    for stored in [2, 3, 5] {
        let mut bench = Bench::new(harness);
        (1..=3).for_each(|seq| bench.append_record(RecordKind::Event, seq));
        bench.checkpoint();
        let before = bench.upto_here();
        (4..=5).for_each(|seq| bench.append_record(RecordKind::Event, seq));
        // A state of the new epoch may be newer than what its checkpoint covers.
        let upto = if stored > 3 { before } else { bench.upto_here() };
        bench.advance(Checkpoint {
            states: vec![state("a", stored, 1, b"state")],
            cuts: vec![gone(3)],
            ..upto
        });
        let expected = if stored > 3 {
            (Some(5), vec![])
        } else {
            (None, vec![4, 5])
        };
        assert_eq!(loaded(&bench), expected, "with the state after event {stored}");
        bench.checkpoint();
        let bench = bench.reopened();
        assert_eq!(
            loaded(&bench),
            expected,
            "reopened, with the state after event {stored}"
        );
        let history = bench.history("a", 0, usize::MAX, usize::MAX);
        assert_eq!(history.iter().map(|event| event.seq).collect::<Vec<_>>(), [4, 5]);
    }
}
