//! The journal in memory.

use crate::{
    Append, AppendError, Appended, Commit, CommitNo, Durability, Error, Journal, Later, Maybe, Opened, Place, Position,
    Prune, Pruned, ShardId, Taken, WriterId, commit,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A journal in memory. Clones share their history, so that an engine can be stopped and started on it.
#[derive(Clone, Debug, Default)]
pub struct MemoryJournal {
    streams: Arc<Mutex<BTreeMap<WriterId, Stream>>>,
}

#[derive(Debug, Default)]
struct Stream {
    node: String,
    commits: Vec<Commit>,
    sealed: bool,
}

impl MemoryJournal {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn streams(&self) -> MutexGuard<'_, BTreeMap<WriterId, Stream>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The commits after a position in its writer's stream, for a store beside it.
    pub(super) fn after(&self, after: Position, bytes_max: usize) -> Vec<Commit> {
        let streams = self.streams();
        let Some(stream) = streams.get(&after.writer) else {
            return Vec::new();
        };
        let mut bytes = 0;
        let from = usize::try_from(after.commit.0)
            .unwrap_or(usize::MAX)
            .min(stream.commits.len());
        stream.commits[from..]
            .iter()
            .take_while(|commit| {
                let first = bytes == 0;
                bytes += commit.bytes().len();
                first || bytes <= bytes_max
            })
            .cloned()
            .collect()
    }

    /// Whether a stream reaches this far, for a store beside it.
    pub(super) fn reaches(&self, position: Position) -> bool {
        let streams = self.streams();
        let stream = streams.get(&position.writer);
        stream.is_some_and(|stream| stream.commits.len() as u64 >= position.commit.0)
    }

    fn prune_now(&self, prune: &Prune) -> Pruned {
        let mut streams = self.streams();
        let commits = streams.get_mut(&prune.after.writer).map(|stream| &mut stream.commits);
        prune.in_memory(commits.into_iter().flatten(), || false)
    }

    /// A record's body, for a store beside it.
    pub(super) fn body(&self, place: Place) -> Option<Vec<u8>> {
        let streams = self.streams();
        let stream = streams.get(&place.position.writer)?;
        let commit = stream
            .commits
            .get(usize::try_from(place.position.commit.0.checked_sub(1)?).ok()?)?;
        let from = place.offset as usize;
        commit.bytes().get(from..from + place.len as usize).map(<[u8]>::to_vec)
    }
}

impl Journal for MemoryJournal {
    fn open(&self, node: &str) -> Later<'_, Result<Opened, Error>> {
        let mut streams = self.streams();
        for stream in streams.values_mut().filter(|stream| stream.node == node) {
            stream.sealed = true;
        }
        let writer = WriterId(streams.last_key_value().map_or(1, |(last, _)| last.0 + 1));
        streams.insert(
            writer,
            Stream {
                node: node.to_owned(),
                ..Stream::default()
            },
        );
        Box::pin(std::future::ready(Ok(Opened { writer })))
    }

    fn take<'a>(&'a self, by: WriterId, _shards: &'a [ShardId]) -> Later<'a, Result<Vec<Taken>, Error>> {
        let streams = self.streams();
        if streams.get(&by).is_none_or(|stream| stream.sealed) {
            return Box::pin(std::future::ready(Err(Error::Sealed(by))));
        }
        let taken = streams
            .iter()
            .filter(|(writer, stream)| **writer < by && stream.sealed)
            .map(|(writer, stream)| Taken {
                writer: *writer,
                last: CommitNo(stream.commits.len() as u64),
            })
            .collect();
        Box::pin(std::future::ready(Ok(taken)))
    }

    fn append(&self, mut commit: Commit) -> Append {
        let stamp = commit.stamp();
        commit.seal(&[]);
        let mut streams = self.streams();
        let result = match streams.get_mut(&stamp.writer) {
            None => Err(AppendError::InDoubt(format!(
                "writer {} was never opened",
                stamp.writer
            ))),
            Some(stream) if stream.sealed => Err(AppendError::Sealed),
            Some(stream) if stamp.number.0 != stream.commits.len() as u64 + 1 => Err(AppendError::InDoubt(format!(
                "commit {} does not follow commit {}",
                stamp.number,
                stream.commits.len()
            ))),
            Some(stream) => {
                stream.commits.push(commit);
                Ok(())
            }
        };
        Append::Done(Appended {
            result,
            buffer: commit::Buffer::default(),
        })
    }

    fn seal(&self, writer: WriterId) -> Later<'_, Result<CommitNo, Error>> {
        let mut streams = self.streams();
        let last = match streams.get_mut(&writer) {
            None => Err(Error::NoCommit(Position {
                writer,
                commit: CommitNo(0),
            })),
            Some(stream) => {
                stream.sealed = true;
                Ok(CommitNo(stream.commits.len() as u64))
            }
        };
        Box::pin(std::future::ready(last))
    }

    fn read(&self, after: Position, bytes_max: usize) -> Later<'_, Result<Vec<Commit>, Error>> {
        Box::pin(std::future::ready(Ok(self.after(after, bytes_max))))
    }

    fn read_at<'a>(&'a self, places: &'a [Place]) -> Maybe<'a, Result<Vec<Vec<u8>>, Error>> {
        let body = |place: &Place| self.body(*place).ok_or(Error::NoCommit(place.position));
        Maybe::Ready(places.iter().map(body).collect())
    }

    fn prune(&self, prune: Prune) -> Later<'_, Result<Pruned, Error>> {
        Box::pin(std::future::ready(Ok(self.prune_now(&prune))))
    }

    fn forget(&self, _upto: Position) {}

    fn depth(&self) -> usize {
        1
    }

    fn durability(&self) -> Durability {
        Durability::Memory
    }
}

impl From<MemoryJournal> for Box<dyn Journal> {
    fn from(journal: MemoryJournal) -> Self {
        Box::new(journal)
    }
}
