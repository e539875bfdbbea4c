//! The streams of a journal as one history: which commits may be delivered next, and how far all was delivered.
//!
//! Streams of nodes that own different shards grow concurrently. Their delivery keeps the order of every shard, and so of every entity: a
//! stream is delivered only once all earlier ones that may hold records of one of its shards have ended and were delivered. Between
//! entities of different nodes no order is promised.

use crate::{Commit, CommitNo, Error, Journal, Position, ShardSet, WriterId};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
};

/// A stream of a journal: the shards it may hold, and its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// The stream's writer.
    pub writer: WriterId,
    /// The shards whose records it may hold; `None`: all.
    pub shards: Option<ShardSet>,
    /// The last durable commit; 0 before the first.
    pub last: CommitNo,
    /// No commit will ever follow `last`.
    pub is_sealed: bool,
}

/// Consecutive durable commits of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The commit before the first of them.
    pub after: Position,
    /// The last of them.
    pub upto: CommitNo,
}

impl Stretch {
    /// Reads its first commits: at least one, then as many as fit in `bytes_max`.
    ///
    /// # Errors
    /// The journal cannot be read, or does not hold what was reported as durable.
    pub async fn read(self, journal: &dyn Journal, bytes_max: usize) -> Result<Vec<Commit>, Error> {
        let mut commits = journal.read(self.after, bytes_max).await?;
        // A commit without records may stand for the last of them and some later ones, if their owner has emptied all of these.
        commits.retain(|commit| commit.first() <= self.upto);
        if commits.is_empty() {
            return Err(Error::NoCommit(Position::new(
                self.after.writer,
                self.after.commit.next(),
            )));
        }
        Ok(commits)
    }
}

/// The part of a history that was delivered: each stream named here up to this commit, all streams with a smaller writer than the last one
/// named, and none with a greater one. A history without a cluster needs one [`Position`] for it.
///
/// Its text is its positions, `3.1071,7.22`; empty if nothing was delivered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Positions {
    upto: BTreeMap<WriterId, CommitNo>,
}

impl From<Position> for Positions {
    fn from(position: Position) -> Self {
        Self {
            upto: [(position.writer, position.commit)].into(),
        }
    }
}

/// Collects positions. If a stream occurs several times, its last position counts.
impl FromIterator<Position> for Positions {
    fn from_iter<I: IntoIterator<Item = Position>>(positions: I) -> Self {
        let positions = positions.into_iter();
        Self {
            upto: positions.map(|at| (at.writer, at.commit)).collect(),
        }
    }
}

impl Positions {
    /// Returns the first stream that may have something left to deliver. [`Journal::streams`] need not return earlier ones.
    #[must_use]
    pub fn first(&self) -> WriterId {
        self.upto.first_key_value().map_or(WriterId(0), |(first, _)| *first)
    }

    /// Returns the position of each stream that was not delivered to its end, and of the last one begun.
    pub fn positions(&self) -> impl Iterator<Item = Position> {
        let upto = self.upto.iter();
        upto.map(|(writer, commit)| Position::new(*writer, *commit))
    }

    /// True if this commit and all earlier ones of its stream were delivered.
    #[must_use]
    pub fn has(&self, position: Position) -> bool {
        let Position { writer, commit } = position;
        self.upto_of(writer).is_none_or(|upto| commit <= upto)
    }

    /// True if everything that the other one includes was delivered here, too. For a stream that only one of them names, this is known only
    /// if its end does not matter, so [drop ended streams](Self::drop_ended) first.
    #[must_use]
    pub fn includes(&self, other: &Self) -> bool {
        let mut of_other = other.upto.iter();
        let is_told = |writer, upto| self.upto_of(writer).is_none_or(|own| upto <= own);
        of_other.all(|(writer, upto)| is_told(*writer, *upto))
            && self
                .upto
                .iter()
                .all(|(writer, upto)| other.upto_of(*writer).is_some_and(|other| other <= *upto))
    }

    /// Adds everything that the other one includes.
    pub fn join(&mut self, other: &Self) {
        let names: BTreeSet<WriterId> = self.upto.keys().chain(other.upto.keys()).copied().collect();
        let upto = names.into_iter().filter_map(|writer| {
            let upto = self.upto_of(writer)?.max(other.upto_of(writer)?);
            Some((writer, upto))
        });
        self.upto = upto.collect();
    }

    /// Returns the number of commits delivered beyond the other one; `None` if that depends on where streams end.
    #[must_use]
    pub fn more_than(&self, other: &Self) -> Option<u64> {
        let names: BTreeSet<WriterId> = self.upto.keys().chain(other.upto.keys()).copied().collect();
        let mut more = 0;
        for writer in names {
            let (own, other) = (self.upto_of(writer), other.upto_of(writer)?);
            more += own?.0.saturating_sub(other.0);
        }
        Some(more)
    }

    /// Removes the names of streams that have ended and were delivered to their ends.
    pub fn drop_ended(&mut self, streams: &[Stream]) {
        let last = self.upto.last_key_value().map(|(last, _)| *last);
        let over = streams.iter().filter(|stream| self.is_over(stream));
        let over: Vec<WriterId> = over.map(|stream| stream.writer).collect();
        self.upto
            .retain(|writer, _| Some(*writer) == last || !over.contains(writer));
    }

    /// Returns the commit up to which a stream was delivered; `None`: to its end.
    #[must_use]
    pub fn upto_of(&self, writer: WriterId) -> Option<CommitNo> {
        match (self.upto.get(&writer), self.upto.last_key_value()) {
            (Some(upto), _) => Some(*upto),
            (None, Some((last, _))) if writer < *last => None,
            _ => Some(CommitNo(0)),
        }
    }

    /// Returns the next stretch of each stream that has something to deliver. They may be delivered in any order.
    #[must_use]
    pub fn next(&self, streams: &[Stream]) -> Vec<Stretch> {
        let (mut next, mut open) = (Vec::new(), Vec::<&Stream>::new());
        for stream in streams.iter().filter(|stream| !self.is_over(stream)) {
            let told = self.of(stream);
            let waits = open.iter().any(|before| share(before, stream));
            if !waits && told < stream.last {
                let (writer, commit) = (stream.writer, told);
                next.push(Stretch {
                    after: Position { writer, commit },
                    upto: stream.last,
                });
            }
            open.push(stream);
        }
        next
    }

    /// Notes that everything up to this commit of its stream was delivered, as returned by [`next`](Self::next) for these streams.
    pub fn tell(&mut self, upto: Position, streams: &[Stream]) {
        let last = self.upto.last_key_value().map(|(last, _)| *last);
        // Streams that it passes over are named, since nothing of them was delivered.
        let is_passed = |stream: &&Stream| stream.writer < upto.writer && last.is_none_or(|last| stream.writer > last);
        let passed: Vec<WriterId> = streams
            .iter()
            .filter(is_passed)
            .filter(|stream| !self.is_over(stream))
            .map(|stream| stream.writer)
            .collect();
        self.upto.extend(passed.into_iter().map(|writer| (writer, CommitNo(0))));
        self.upto.insert(upto.writer, upto.commit);
        self.drop_ended(streams);
    }

    /// Returns the number of commits of these streams that were not delivered.
    #[must_use]
    pub fn untold(&self, streams: &[Stream]) -> u64 {
        let untold = |stream: &Stream| stream.last.0.saturating_sub(self.of(stream).0);
        streams.iter().map(untold).sum()
    }

    fn of(&self, stream: &Stream) -> CommitNo {
        self.upto_of(stream.writer).unwrap_or(stream.last)
    }

    /// True if the stream has ended and was delivered to its end, or need not be named.
    fn is_over(&self, stream: &Stream) -> bool {
        let is_named = self.upto.contains_key(&stream.writer);
        let is_before = self
            .upto
            .last_key_value()
            .is_some_and(|(last, _)| stream.writer < *last);
        (!is_named && is_before) || (stream.is_sealed && self.of(stream) >= stream.last)
    }
}

/// True if both may hold records of one shard.
fn share(one: &Stream, other: &Stream) -> bool {
    match (&one.shards, &other.shards) {
        (Some(one), Some(other)) => one.overlaps(other),
        _ => true,
    }
}

impl fmt::Display for Positions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for position in self.positions() {
            write!(f, "{comma}{position}")?;
            comma = ",";
        }
        Ok(())
    }
}

/// Read as it is shown.
impl FromStr for Positions {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let positions = text.split(',').filter(|part| !part.is_empty());
        positions.map(str::parse::<Position>).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ShardId;
    use proptest::prelude::*;

    fn stream(writer: u64, shards: Option<&[u16]>, last: u64, is_sealed: bool) -> Stream {
        Stream {
            writer: WriterId(writer),
            shards: shards.map(|shards| shards.iter().copied().map(ShardId).collect()),
            last: CommitNo(last),
            is_sealed,
        }
    }

    fn at(text: &str) -> Position {
        text.parse().unwrap()
    }

    fn told(text: &str) -> Positions {
        text.parse().unwrap()
    }

    fn next(told: &Positions, streams: &[Stream]) -> String {
        let next = told.next(streams);
        let next: Vec<String> = next.iter().map(|at| format!("{}-{}", at.after, at.upto)).collect();
        next.join(" ")
    }

    #[test]
    fn a_stream_waits_for_those_before_it_that_share_a_shard() {
        let streams = [
            stream(1, None, 3, true),
            stream(2, Some(&[0, 1]), 5, true),
            stream(3, Some(&[2, 3]), 2, false),
            stream(4, Some(&[0]), 0, true),
            stream(6, Some(&[0, 1]), 7, false),
        ];
        let mut told = told("");
        assert_eq!((next(&told, &streams), told.untold(&streams)), ("1.0-3".into(), 17));
        told.tell(at("1.3"), &streams);
        assert_eq!(next(&told, &streams), "2.0-5 3.0-2");
        told.tell(at("3.2"), &streams);
        assert_eq!(told.to_string(), "2.0,3.2");
        assert_eq!(next(&told, &streams), "2.0-5");
        told.tell(at("2.4"), &streams);
        assert_eq!(next(&told, &streams), "2.4-5");
        told.tell(at("2.5"), &streams);
        assert_eq!(told.to_string(), "3.2");
        assert_eq!(next(&told, &streams), "6.0-7");
        told.tell(at("6.1"), &streams);
        // The third stream has not ended, so it is stored with its current position.
        assert_eq!(told.to_string(), "3.2,6.1");
        assert_eq!((told.first(), told.untold(&streams)), (WriterId(3), 6));
        let has = |position| told.has(at(position));
        assert!(has("1.3") && has("3.2") && !has("3.3") && has("6.1") && !has("6.2") && has("7.0") && !has("7.1"));
    }

    #[test]
    fn a_position_of_one_engine_is_a_place_among_all_streams() {
        let streams = [
            stream(1, None, 3, true),
            stream(2, None, 5, true),
            stream(3, None, 0, false),
        ];
        let mut told = Positions::from(at("1.2"));
        assert_eq!(next(&told, &streams), "1.2-3");
        told.tell(at("1.3"), &streams);
        told.tell(at("2.5"), &streams);
        assert_eq!((told.clone(), told.untold(&streams)), (Positions::from(at("2.5")), 0));
    }

    /// A step of the test: a change of the journal, or an action of its reader.
    #[derive(Clone, Debug)]
    enum Step {
        /// A node commits to its stream.
        Commit(usize),
        /// A node ends its stream, and gives a shard to another node.
        Move(u16, usize),
        /// All streams end. Then one stream for all shards begins, or one for each node.
        Alone(bool),
        /// The reader takes this many commits of this stream.
        Tell(usize, u64),
        /// The reader lists the streams anew.
        Look,
    }

    const NODES: usize = 3;
    const SHARDS: u16 = 5;

    struct Model {
        streams: Vec<Stream>,
        owners: [usize; SHARDS as usize],
        alone: bool,
    }

    impl Model {
        fn own(&self, node: usize) -> ShardSet {
            let shards = (0..SHARDS).filter(|shard| self.owners[usize::from(*shard)] == node);
            shards.map(ShardId).collect()
        }

        fn open(&mut self, shards: Option<ShardSet>) {
            let overlaps = |stream: &&mut Stream| match (&stream.shards, &shards) {
                (Some(one), Some(other)) => one.overlaps(other),
                _ => true,
            };
            for stream in self.streams.iter_mut().filter(overlaps) {
                stream.is_sealed = true;
            }
            let writer = WriterId(self.streams.len() as u64 + 1);
            let last = CommitNo(0);
            self.streams.push(Stream {
                writer,
                shards,
                last,
                is_sealed: false,
            });
        }

        fn open_all(&mut self) {
            if self.alone {
                return self.open(None);
            }
            for node in 0..NODES {
                let own = self.own(node);
                if !own.is_empty() {
                    self.open(Some(own));
                }
            }
        }

        fn step(&mut self, step: &Step) {
            match step {
                Step::Commit(nth) => {
                    let mut open: Vec<&mut Stream> =
                        self.streams.iter_mut().filter(|stream| !stream.is_sealed).collect();
                    let count = open.len();
                    open[nth % count].last.0 += 1;
                }
                Step::Move(shard, to) if !self.alone && self.owners[usize::from(*shard)] != *to => {
                    let from = std::mem::replace(&mut self.owners[usize::from(*shard)], *to);
                    // The giver's stream ends before the receiver's.
                    for node in [from, *to] {
                        let own = self.own(node);
                        if !own.is_empty() {
                            self.open(Some(own));
                        }
                    }
                }
                Step::Alone(alone) if *alone != self.alone => {
                    self.alone = *alone;
                    self.streams.iter_mut().for_each(|stream| stream.is_sealed = true);
                    self.open_all();
                }
                _ => {}
            }
        }
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            6 => (0..NODES).prop_map(Step::Commit),
            2 => (0..SHARDS, 0..NODES).prop_map(|(shard, to)| Step::Move(shard, to)),
            1 => any::<bool>().prop_map(Step::Alone),
            6 => (0..NODES, 1..4u64).prop_map(|(nth, count)| Step::Tell(nth, count)),
            3 => Just(Step::Look),
        ];
        proptest::collection::vec(step, 0..120)
    }

    proptest! {
        /// Each commit is read exactly once, in any order of reads, ends and new streams. Each stream is read in order, and no stream before one
        /// that it must wait for.
        #[test]
        fn every_commit_is_told_once_and_in_the_order_of_its_shards(steps in steps()) {
            let mut model = Model { streams: Vec::new(), owners: [0, 0, 1, 1, 2], alone: true };
            model.open_all();
            let mut seen: Vec<Position> = Vec::new();
            let (mut told, mut streams) = (Positions::default(), Vec::new());
            let look = |told: &Positions, model: &Model| -> Vec<Stream> {
                model.streams.iter().filter(|stream| stream.writer >= told.first()).cloned().collect()
            };
            for step in &steps {
                match step {
                    Step::Look => streams = look(&told, &model),
                    Step::Tell(nth, count) => {
                        let next = told.next(&streams);
                        let Some(stretch) = next.get(nth % next.len().max(1)) else { continue };
                        let upto = stretch.upto.0.min(stretch.after.commit.0 + count);
                        let writer = stretch.after.writer;
                        seen.extend((stretch.after.commit.0 + 1..=upto).map(|commit| Position { writer, commit: CommitNo(commit) }));
                        told.tell(Position { writer, commit: CommitNo(upto) }, &streams);
                        // Stored and read again, as between two starts.
                        told = told.to_string().parse().unwrap();
                    }
                    step => model.step(step),
                }
            }
            // A reader that has just listed the streams stores no more positions than necessary.
            model.step(&Step::Commit(0));
            streams = look(&told, &model);
            while let Some(stretch) = told.next(&streams).pop() {
                let writer = stretch.after.writer;
                seen.extend((stretch.after.commit.0 + 1..=stretch.upto.0).map(|commit| Position { writer, commit: CommitNo(commit) }));
                told.tell(Position { writer, commit: stretch.upto }, &streams);
            }
            prop_assert_eq!(told.untold(&model.streams), 0);
            // At most one position for each open stream is stored, and one more.
            let open = model.streams.iter().filter(|stream| !stream.is_sealed).count();
            prop_assert!(told.positions().count() <= open.max(1) + 1, "{}", told);
            let mut all: Vec<Position> = model.streams.iter()
                .flat_map(|stream| (1..=stream.last.0).map(|commit| Position { writer: stream.writer, commit: CommitNo(commit) }))
                .collect();
            for shard in (0..SHARDS).map(ShardId) {
                let holds = |position: &&Position| {
                    let stream = &model.streams[position.writer.0 as usize - 1];
                    stream.shards.as_ref().is_none_or(|shards| shards.contains(shard))
                };
                let of_shard: Vec<&Position> = seen.iter().filter(holds).collect();
                prop_assert!(of_shard.is_sorted(), "shard {}: {:?}", shard, of_shard);
            }
            seen.sort_unstable();
            all.sort_unstable();
            prop_assert_eq!(seen, all);
        }
    }
}
