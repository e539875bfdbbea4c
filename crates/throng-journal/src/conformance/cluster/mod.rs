//! The conformance suite for a journal, a store and a directory that several nodes use together.

mod coverage;
mod directory;
mod streams;

pub use coverage::*;
pub use directory::*;
pub use streams::*;

use super::kit::{self, Event, address, block_on, commit_of, outcome};
use crate::{
    AppendError, Appended, Checkpoint, CommitNo, Covered, Directory, Error, FEATURES, Join, Journal, Later, NodeId,
    NodeState, Position, ShardId, ShardSet, Store, StoredEvent, View, WriterId,
};
use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

/// The parts of a shared place that one process opens.
#[derive(Debug)]
pub struct Member<J, S, D> {
    /// The journal, through which this process alone writes its stream.
    pub journal: Arc<J>,
    /// The store that all processes share.
    pub store: Arc<S>,
    /// The directory in which it meets the others.
    pub directory: Arc<D>,
}

/// The suite's access to a backend.
pub trait Harness {
    /// The journal that is tested.
    type Journal: Journal;
    /// The store beside it.
    type Store: Store;
    /// The directory beside both.
    type Directory: Directory;
    /// The place where the processes of one cluster meet.
    type Cluster;

    /// A place that holds nothing.
    fn create(&self) -> Self::Cluster;

    /// Opens the place for one more process.
    fn open(&self, place: &Self::Cluster) -> Member<Self::Journal, Self::Store, Self::Directory>;

    /// Runs a future; a backend that needs a runtime of its own says how.
    fn run<F: Future>(&self, future: F) -> F::Output {
        block_on(future)
    }
}

/// Every check of this suite.
pub fn check_all<H: Harness>(harness: &H) {
    one_name_is_one_node_that_lives(harness);
    a_draining_node_is_given_nothing_and_a_beat_ends_no_life(harness);
    only_a_silent_node_is_declared_dead_and_only_by_one_that_lives(harness);
    what_is_declared_dead_by_two_ends_once(harness);
    nobody_takes_from_a_node_that_lives(harness);
    a_node_gives_only_what_it_owns_and_no_stream_of_it_may_hold(harness);
    a_node_that_leaves_frees_what_it_owns(harness);
    a_node_that_is_asked_to_drain_knows_it(harness);
    a_drain_outlives_a_restart(harness);
    unequal_leases_and_missing_kinds_are_refused(harness);
    a_node_that_others_miss_is_cut_off_until_it_drains(harness);
    shards_stay_pinned_to_a_name_until_it_is_said_otherwise(harness);
    shards_that_cannot_be_pinned_change_nothing(harness);
    a_draining_node_is_pinned_nothing(harness);
    after_it_is_finalized_older_programs_and_releases_are_not_let_in(harness);
    the_version_grows_with_every_change(harness);
    a_change_is_told_and_a_wait_for_none_ends(harness);
    opening_again_ends_the_nodes_own_stream_and_no_other(harness);
    a_refused_opening_ends_nothing(harness);
    a_node_that_is_over_opens_nothing(harness);
    take_lists_the_ended_streams_that_may_hold_the_shards(harness);
    an_engine_alone_is_refused_while_a_node_lives_and_takes_all_after_them(harness);
    checkpoints_of_two_nodes_stand_side_by_side(harness);
    the_events_of_a_shard_that_moves_are_indexed_once(harness);
    a_checkpoint_of_a_stream_that_has_ended_leaves_nothing(harness);
    a_checkpoint_says_nothing_of_shards_that_are_not_its_streams(harness);
    from_one_engine_to_a_cluster_and_back_nothing_is_indexed_twice(harness);
}

/// The shards of the service under test.
const SHARDS: u16 = 16;

fn shards(of: &[u16]) -> ShardSet {
    of.iter().copied().map(ShardId).collect()
}

/// Returns the join request of a node of this name.
fn join(name: &str) -> Join {
    Join {
        name: name.into(),
        peer: format!("{name}:7400"),
        http: format!("http://{name}:8080"),
        program: "test 1".into(),
        app: 7,
        features: FEATURES,
        shards: SHARDS,
        lease: Duration::from_secs(3),
        kinds: vec!["account".into()],
    }
}

/// The appended events, by entity.
type Expected = BTreeMap<String, Vec<StoredEvent>>;

/// A process under test, and the stream it writes.
struct Process<'a, H: Harness> {
    harness: &'a H,
    member: Member<H::Journal, H::Store, H::Directory>,
    id: NodeId,
    writer: WriterId,
    number: u64,
    /// The shards whose records its stream may hold.
    shards: ShardSet,
}

impl<'a, H: Harness> Process<'a, H> {
    /// No node of a cluster.
    fn alone(harness: &'a H, place: &H::Cluster) -> Self {
        Self {
            harness,
            member: harness.open(place),
            id: NodeId(0),
            writer: WriterId(0),
            number: 0,
            shards: ShardSet::first(SHARDS),
        }
    }

    fn joined(harness: &'a H, place: &H::Cluster, name: &str) -> Self {
        let mut process = Self::alone(harness, place);
        process.id = process.join(&join(name)).expect("a node joins");
        process.beat(NodeState::Serving).expect("it serves");
        process
    }

    /// Joined, and the owner of these with a stream of these.
    fn serving(harness: &'a H, place: &H::Cluster, name: &str, of: &[u16]) -> Self {
        let mut process = Self::joined(harness, place, name);
        assert_eq!(process.take(of), shards(of), "nobody owns them");
        process.open(of);
        process
    }

    fn run<T>(&self, later: Later<'_, T>) -> T {
        self.harness.run(later)
    }

    fn join(&self, join: &Join) -> Result<NodeId, Error> {
        self.run(self.member.directory.join(join.clone()))
    }

    fn beat(&self, state: NodeState) -> Result<View, Error> {
        self.run(self.member.directory.beat(self.id, state))
    }

    fn view(&self) -> View {
        self.run(self.member.directory.view()).expect("a view")
    }

    fn owned(&self) -> ShardSet {
        self.view().shards_of(Some(self.id))
    }

    /// Returns the number of its beats.
    fn beats(&self) -> u64 {
        self.view().node(self.id).expect("it is there").beat
    }

    fn take(&self, of: &[u16]) -> ShardSet {
        self.run(self.member.directory.take(self.id, &shards(of)))
            .expect("a living node takes")
    }

    fn give(&self, to: &Self, of: &[u16]) -> Result<(), Error> {
        self.run(self.member.directory.give(self.id, to.id, &shards(of)))
    }

    fn declare_dead(&self, dead: &Self, beat: u64) -> Result<bool, Error> {
        self.run(self.member.directory.declare_dead(self.id, dead.id, beat))
    }

    fn leave(&self) {
        self.run(self.member.directory.leave(self.id)).expect("it leaves");
    }

    fn try_open(&mut self, of: &[u16]) -> Result<(), Error> {
        let opened = self.run(self.member.journal.open_shards(self.id, &shards(of)))?;
        (self.writer, self.number, self.shards) = (opened.writer, 0, shards(of));
        Ok(())
    }

    fn open(&mut self, of: &[u16]) {
        self.try_open(of).expect("a node opens a stream of what it owns");
    }

    fn open_alone(&mut self) -> Result<(), Error> {
        let opened = self.run(self.member.journal.open("alone"))?;
        (self.writer, self.number, self.shards) = (opened.writer, 0, ShardSet::first(SHARDS));
        Ok(())
    }

    fn seal(&self) -> CommitNo {
        self.run(self.member.journal.seal(self.writer)).expect("a stream ends")
    }

    fn position(&self) -> Position {
        Position::new(self.writer, CommitNo(self.number))
    }

    /// Appends a commit with an event for each shard and entity.
    fn try_append(&mut self, expected: &mut Expected, of: &[(u16, &str)]) -> Result<(), AppendError> {
        let number = self.number + 1;
        let position = Position::new(self.writer, CommitNo(number));
        let mut stored: Vec<(ShardId, String, StoredEvent)> = Vec::new();
        for (shard, id) in of {
            let here = stored.iter().filter(|(_, other, _)| other == id).count();
            let seq = (expected.get(*id).map_or(0, Vec::len) + here) as u64 + 1;
            let event = StoredEvent {
                seq,
                position,
                at_micros: kit::at_micros(self.writer, number),
                name: "Added".into(),
                version: 2,
                payload: format!("event {seq} of {id}").into_bytes(),
            };
            stored.push((ShardId(*shard), (*id).to_owned(), event));
        }
        let events: Vec<(ShardId, Event)> = stored
            .iter()
            .map(|(shard, id, event)| (*shard, Event::new(id, event.seq, event.payload.clone())))
            .collect();
        let commit = commit_of(self.writer, number, events.iter().map(|(shard, event)| (*shard, event)));
        let run = |later: Later<'static, Appended>| self.harness.run(later);
        outcome(self.member.journal.append(commit), &run)?;
        self.number = number;
        for (_, id, event) in stored {
            expected.entry(id).or_default().push(event);
        }
        Ok(())
    }

    fn append(&mut self, expected: &mut Expected, of: &[(u16, &str)]) {
        self.try_append(expected, of).expect("a commit lands");
    }

    /// The streams before its own that may hold records of its shards, and their last commits.
    fn before(&self) -> Vec<(WriterId, u64)> {
        self.taken(&self.shards).expect("an open stream's engine takes")
    }

    fn taken(&self, of: &ShardSet) -> Result<Vec<(WriterId, u64)>, Error> {
        let of: Vec<ShardId> = of.iter().collect();
        let taken = self.run(self.member.journal.take(self.writer, &of))?;
        Ok(taken.iter().map(|taken| (taken.writer, taken.last.0)).collect())
    }

    /// A checkpoint of its shards up to its last commit.
    fn upto_here(&self) -> Checkpoint {
        let before = self.before().into_iter();
        Checkpoint {
            upto: self.position(),
            shards: self.shards.clone(),
            sealed: before
                .map(|(writer, last)| Position::new(writer, CommitNo(last)))
                .collect(),
            ..Checkpoint::default()
        }
    }

    fn advance(&self, checkpoint: Checkpoint) -> Result<(), Error> {
        self.run(self.member.store.advance(checkpoint))
    }

    fn checkpoint(&self) {
        self.advance(self.upto_here()).expect("a checkpoint");
    }

    /// Returns the position up to which a shard is covered.
    fn covered(&self, shard: u16) -> Option<Position> {
        let covered = self
            .run(self.member.store.covers(&shards(&[shard])))
            .expect("what is covered");
        assert_eq!(covered.len(), 1, "one shard stands in one entry: {covered:?}");
        covered[0].upto
    }

    fn covers(&self) -> Vec<Covered> {
        self.run(self.member.store.covers(&ShardSet::first(SHARDS)))
            .expect("what is covered")
    }

    fn history(&self, id: &str) -> Vec<StoredEvent> {
        let address = address(id);
        self.run(self.member.store.history(&address, 0, usize::MAX, usize::MAX))
            .expect("a history")
    }

    /// Every history is what was appended: nothing is missing, and nothing is there twice.
    fn assert_histories(&self, expected: &Expected) {
        for (id, events) in expected {
            assert_eq!(&self.history(id), events, "the history of {id}");
        }
    }
}

fn is_refused<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::Refused(_)))
}
