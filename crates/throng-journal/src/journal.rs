//! The truth: per writer one ordered, gapless stream of commits.

use crate::{
    AppendError, Commit, CommitNo, Error, Inventory, Loss, NodeId, Place, Position, Record, Rest, ShardId, ShardSet,
    Stamp, Stream, WriterId, commit,
};
use std::{future::Future, pin::Pin, sync::Arc};

/// An answer that comes later; polled by whatever executor the engine runs on.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An answer at once (no executor, no allocation), or later.
pub enum Maybe<'a, T> {
    /// Here it is.
    Ready(T),
    /// The value has to be waited for.
    Later(Later<'a, T>),
}

/// The failures that an acknowledged commit survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Acknowledged means synced to the disk: survives power loss. The default.
    #[default]
    Fsync,
    /// Acknowledged means handed to the operating system: survives `kill -9`, not power loss.
    Os,
    /// Acknowledged means nothing: lost with the process.
    Memory,
}

/// The writer an engine has opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The new, unsealed writer. Its first commit is number 1.
    pub writer: WriterId,
}

/// A sealed stream that now belongs to the taker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The writer whose stream this says something of.
    pub writer: WriterId,
    /// Its last commit: nothing after it will ever land. 0 if it never committed.
    pub last: CommitNo,
    /// The shards of which it may hold records; `None`: all.
    pub shards: Option<ShardSet>,
}

/// Decides that a record is over: nothing needs it any more.
pub type Judge = Arc<dyn Fn(&Record<'_>, Stamp) -> bool + Send + Sync>;

/// A removal from a stream's history.
#[derive(Clone)]
pub struct Prune {
    /// The commits after this one, of its stream, …
    pub after: Position,
    /// … up to and including this one are looked at; fewer, where the journal removes by larger pieces.
    pub upto: CommitNo,
    /// Says of each record whether it is over.
    pub judge: Judge,
    /// The history up to this commit says what entities, messages and timers are without what is over.
    pub replaced_by: Position,
    /// The treatment of records that are over.
    pub how: PruneHow,
}

impl Prune {
    /// The replacement of a commit of which nothing is left, once so many of its records were taken now.
    #[must_use]
    pub fn emptied_by(&self, commit: &Commit, records: u64) -> Option<Position> {
        let before = commit.removal().and_then(|removal| removal.replaced_by);
        before.max((records > 0).then_some(self.replaced_by))
    }

    /// Takes what is over out of a stream's commits in memory, until `stop` says so before one of them.
    pub fn in_memory<'a>(&self, commits: impl Iterator<Item = &'a mut Commit>, stop: impl Fn() -> bool) -> Pruned {
        let mut pruned = Pruned::default();
        let is_looked_at = |number: CommitNo| number > self.after.commit && number <= self.upto;
        for commit in commits.filter(|commit| is_looked_at(commit.stamp().number)) {
            if stop() {
                break;
            }
            let stamp = commit.stamp();
            (pruned.upto, pruned.at_micros) = (stamp.number, stamp.at_micros);
            let (mut records, before) = (0, commit.bytes().len());
            let rest = commit.without(self.replaced_by, |record| {
                let is_over = (self.judge)(record, stamp);
                records += u64::from(is_over);
                is_over
            });
            let mut left = match rest {
                Rest::Whole => continue,
                Rest::Part(part) => part,
                Rest::Nothing => commit.emptied(0, self.emptied_by(commit, records)),
            };
            left.seal(&[]);
            pruned.records += records;
            pruned.commits += u64::from(left.record_count() == 0 && records > 0);
            pruned.bytes += before.saturating_sub(left.bytes().len()) as u64;
            if self.how != PruneHow::Dry {
                *commit = left;
            }
        }
        pruned
    }
}

/// The treatment of records that are over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PruneHow {
    /// Nothing: it is only said what would go.
    Dry,
    /// Removes the records. Where the journal keeps an archive, they stay there.
    #[default]
    Remove,
    /// Removes the records, also from the journal's archive.
    Erase,
}

/// The result of a removal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// The last commit that was looked at; commit 0 if none was.
    pub upto: CommitNo,
    /// When it was made, microseconds since 1970-01-01 UTC.
    pub at_micros: i64,
    /// Records that are gone.
    pub records: u64,
    /// Commits of which nothing is left.
    pub commits: u64,
    /// Bytes that were given back.
    pub bytes: u64,
}

impl Pruned {
    /// Both together; the other one came later.
    pub fn add(&mut self, other: Self) {
        if other.upto > CommitNo(0) {
            (self.upto, self.at_micros) = (other.upto, other.at_micros);
        }
        self.records += other.records;
        self.commits += other.commits;
        self.bytes += other.bytes;
    }
}

/// The outcome of an append.
pub struct Appended {
    /// Durable, or why not.
    pub result: Result<(), AppendError>,
    /// The commit's buffer, emptied, to be used again.
    pub buffer: commit::Buffer,
}

/// `Done` is the inline path: no executor, no allocation.
pub enum Append {
    /// Durable (or failed) already.
    Done(Appended),
    /// Under way; resolves once it is durable.
    Later(Later<'static, Appended>),
}

impl Append {
    /// Waits until it is durable, or has failed.
    pub async fn landed(self) -> Appended {
        match self {
            Self::Done(appended) => appended,
            Self::Later(appended) => appended.await,
        }
    }
}

/// The truth. Commits of a writer are appended in the order of their numbers, the next one before the one before has
/// resolved only while fewer than [`depth`](Journal::depth) are in flight.
pub trait Journal: Send + Sync {
    /// Opens a new, unsealed stream for a node, and seals the node's earlier ones: they can commit nothing any more.
    ///
    /// # Errors
    /// In use, of another version, damaged below a synced position, or not reachable. [`Error::Sealed`] where another engine has taken
    /// over from the one that has opened a writer here before, and lives: it is tried again.
    fn open(&self, node: &str) -> Later<'_, Result<Opened, Error>>;

    /// Opens a new, unsealed stream for a node of a cluster, that may hold records of these shards only, and seals the node's earlier ones.
    /// Resolves once no other engine can answer from what it knows of these shards.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`Error::Gone`] if the node was declared dead; [`Error::Refused`] if one of the shards is not the node's,
    /// or the journal is one process's.
    fn open_shards<'a>(&'a self, node: NodeId, shards: &'a ShardSet) -> Later<'a, Result<Opened, Error>> {
        let why =
            format!("node {node} cannot own the shards {shards} here: this journal is one process's, not a cluster's");
        Box::pin(std::future::ready(Err(Error::Refused(why))))
    }

    /// The sealed streams that may hold records of these shards, in the order of history: that of their writers' numbers.
    ///
    /// # Errors
    /// Not reachable, or `by` is sealed.
    fn take<'a>(&'a self, by: WriterId, shards: &'a [ShardId]) -> Later<'a, Result<Vec<Taken>, Error>>;

    /// All streams from a writer's on, in the order of their writers' numbers, as they are at one moment: also those of other nodes, and
    /// those that have not ended. Of the latter [`read`](Self::read) returns what is durable.
    ///
    /// # Errors
    /// Not reachable; [`Error::Refused`] where the journal is one process's, which knows its streams by [`take`](Self::take).
    fn streams(&self, _from: WriterId) -> Later<'_, Result<Vec<Stream>, Error>> {
        let why = "this journal is one process's, not a cluster's: it does not list its streams";
        Box::pin(std::future::ready(Err(Error::Refused(why.into()))))
    }

    /// Appends a commit after its predecessor. The commit carries writer and number ([`crate::Stamp`]).
    fn append(&self, commit: Commit) -> Append;

    /// Ends a stream: returns its last commit, once nothing of it can land any more.
    ///
    /// # Errors
    /// Not reachable; the stream's end is then still unknown. [`Error::RolledBack`]: the stream lacks commits that were acknowledged.
    fn seal(&self, writer: WriterId) -> Later<'_, Result<CommitNo, Error>>;

    /// The commits after a position, in order, within its writer's stream: at least one if there is one, then as many
    /// as fit in `bytes_max`. Empty at the end of what is durable. For commits of which [`prune`](Self::prune) left nothing the last
    /// one of them may [stand](Commit::stands_for), without records.
    ///
    /// # Errors
    /// [`Error::Damaged`] names the first commit that cannot be read.
    fn read(&self, after: Position, bytes_max: usize) -> Later<'_, Result<Vec<Commit>, Error>>;

    /// The bodies of single records, in the order asked. Only for places after the last [`forget`](Journal::forget); older ones
    /// are the store's.
    ///
    /// # Errors
    /// [`Error::NoCommit`] for a place this journal does not hold or has forgotten.
    fn read_at<'a>(&'a self, places: &'a [Place]) -> Maybe<'a, Result<Vec<Vec<u8>>, Error>>;

    /// Syncs everything appended so far, whatever the durability: a checkpoint begins with it.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Backend`]: the sync failed. Nothing after the last successful one may be relied on.
    fn sync(&self) -> Later<'_, Result<(), Error>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// A checkpoint covers everything up to here: the journal may drop what it keeps in memory to find these commits.
    /// History itself stays.
    fn forget(&self, upto: Position);

    /// Takes the records that are over out of a stream's history, for good. Their commits' numbers stay taken, and every other
    /// record stays where it is. Only for what is durable and covered by a checkpoint, from which nothing of it is read any more.
    /// After a crash in the middle, some are gone and some are not, from the oldest on.
    ///
    /// # Errors
    /// [`Error::Backend`]: the journal keeps all of its history, or the database refuses. [`Error::Io`]: a file cannot be read or written.
    fn prune(&self, prune: Prune) -> Later<'_, Result<Pruned, Error>> {
        let at = prune.after;
        Box::pin(std::future::ready(Err(Error::backend(
            format!("removing history after commit {at}"),
            "this journal keeps all of its history",
        ))))
    }

    /// Ends the present part of the history: everything committed so far may be [pruned](Self::prune) as a whole, however the journal
    /// divides its history.
    ///
    /// # Errors
    /// The journal's; the writer is then over.
    fn end_segment(&self) -> Later<'_, Result<(), Error>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Returns the number of appends that may be in flight now: 1 while a sync is fast, more when it is slow and the device overlaps them.
    fn depth(&self) -> usize;

    /// Returns the failures that an acknowledged commit survives.
    fn durability(&self) -> Durability;

    /// Returns true if the writer's engine may answer from memory now: no other engine has taken over, nor can one have answered since. A
    /// journal that only one process can use says yes for ever.
    fn holds(&self, _writer: WriterId) -> bool {
        true
    }

    /// Why a writer is over though no append has said so: another engine has taken over, or the database was rolled back.
    fn ended(&self, _writer: WriterId) -> Option<AppendError> {
        None
    }

    /// Losses of acknowledged commits that were found since the journal was opened. The last few.
    fn losses(&self) -> Vec<Loss> {
        Vec::new()
    }

    /// Returns true if there is room for more than the end of what was begun. Without it an engine takes no commands, and reads go on.
    fn has_room(&self) -> bool {
        true
    }

    /// Lists the parts of its history, of each at most `_limit`. Costs what it lists.
    ///
    /// # Errors
    /// It cannot be read.
    fn inventory(&self, _limit: usize) -> Later<'_, Result<Inventory, Error>> {
        Box::pin(std::future::ready(Ok(Inventory::default())))
    }

    /// Bytes of history, where the journal knows them.
    fn bytes(&self) -> Option<u64> {
        None
    }

    /// Bytes that it takes of the disk, with what stands beside it in the same place.
    fn disk_bytes(&self) -> Option<u64> {
        self.bytes()
    }

    /// Bytes that it may take of the disk whatever is removed from its history, with what stands beside it in the same place.
    fn disk_bytes_min(&self) -> u64 {
        0
    }
}
