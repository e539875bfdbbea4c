//! The journal: one ordered, gapless stream of commits for each writer.

use crate::{
    AppendError, Commit, CommitNo, Error, Inventory, Loss, NodeId, Place, Position, Record, Rest, ShardId, ShardSet,
    Stamp, Stream, WriterId, commit,
};
use std::{future::Future, pin::Pin, sync::Arc};

/// A future answer. Any executor can poll it.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An answer at once (no executor, no allocation), or later.
pub enum Maybe<'a, T> {
    /// The value is available.
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
    /// Acknowledged commits are lost with the process.
    Memory,
}

/// The writer an engine has opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The new, unsealed writer. Its first commit is number 1.
    pub writer: WriterId,
}

/// A sealed stream, for its reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The writer of the stream.
    pub writer: WriterId,
    /// Its last commit; 0 if it never committed. Nothing after it will ever land.
    pub last: CommitNo,
    /// The shards of which it may hold records; `None`: all.
    pub shards: Option<ShardSet>,
}

/// Decides whether a record is no longer needed.
pub type Judge = Arc<dyn Fn(&Record<'_>, Stamp) -> bool + Send + Sync>;

/// A removal from a stream's history.
#[derive(Clone)]
pub struct Prune {
    /// The commit after which to begin, in its stream.
    pub after: Position,
    /// The last commit to examine. A journal that removes in larger pieces may examine fewer.
    pub upto: CommitNo,
    /// Accepts the records that are no longer needed.
    pub judge: Judge,
    /// The history up to this commit has all that entities, messages and timers need in place of these records.
    pub replaced_by: Position,
    /// The treatment of records that are over.
    pub how: PruneHow,
}

impl Prune {
    /// Returns the replacing commit of a commit without any record left, if this many of its records were removed now.
    #[must_use]
    pub fn emptied_by(&self, commit: &Commit, records: u64) -> Option<Position> {
        let before = commit.removal().and_then(|removal| removal.replaced_by);
        before.max((records > 0).then_some(self.replaced_by))
    }

    /// Removes the records from a stream's commits in memory, until `stop` returns true before one of them.
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
    /// Removes nothing, and only reports.
    Dry,
    /// Removes the records. An archive of the journal keeps them.
    #[default]
    Remove,
    /// Removes the records, also from the journal's archive.
    Erase,
}

/// The result of a removal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// The last examined commit; commit 0 if none was.
    pub upto: CommitNo,
    /// The time of that commit, microseconds since 1970-01-01 UTC.
    pub at_micros: i64,
    /// The number of removed records.
    pub records: u64,
    /// The number of commits without any record left.
    pub commits: u64,
    /// The bytes that were given back.
    pub bytes: u64,
}

impl Pruned {
    /// Adds a later result.
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

/// The journal. Commits of a writer are appended in the order of their numbers. A commit may be appended before the earlier ones have
/// landed, as long as fewer than [`depth`](Journal::depth) are in flight.
pub trait Journal: Send + Sync {
    /// Opens a new, unsealed stream for a node, and seals the node's earlier ones: they can commit nothing more.
    ///
    /// # Errors
    /// [`Error::InUse`], [`Error::OtherVersion`], [`Error::Damaged`] below a synced position, or the journal cannot be reached.
    /// [`Error::Sealed`] if another engine has taken over from an earlier writer of this process, and lives: the caller should try again.
    fn open(&self, node: &str) -> Later<'_, Result<Opened, Error>>;

    /// Opens a new, unsealed stream for a node of a cluster, which may hold records of these shards only, and seals the node's earlier
    /// ones. Resolves once no other engine can answer from its knowledge of these shards.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open); [`Error::Gone`] if the node was declared dead; [`Error::Refused`] if the node does not own one
    /// of the shards, or the journal is for one process only.
    fn open_shards<'a>(&'a self, node: NodeId, shards: &'a ShardSet) -> Later<'a, Result<Opened, Error>> {
        let why =
            format!("node {node} cannot own the shards {shards} here: this journal is one process's, not a cluster's");
        Box::pin(std::future::ready(Err(Error::Refused(why))))
    }

    /// Returns the sealed streams that may hold records of these shards, in the order of history, which is that of their writers' numbers.
    ///
    /// # Errors
    /// `by` is sealed, or the journal cannot be reached.
    fn take<'a>(&'a self, by: WriterId, shards: &'a [ShardId]) -> Later<'a, Result<Vec<Taken>, Error>>;

    /// Returns the present streams from a writer's on, in the order of their writers' numbers, including those of other nodes and those
    /// that have not ended. Of the latter, [`read`](Self::read) returns what is durable.
    ///
    /// # Errors
    /// [`Error::Refused`] if the journal is for one process, which knows its streams by [`take`](Self::take). Otherwise it cannot be
    /// reached.
    fn streams(&self, _from: WriterId) -> Later<'_, Result<Vec<Stream>, Error>> {
        let why = "this journal is one process's, not a cluster's: it does not list its streams";
        Box::pin(std::future::ready(Err(Error::Refused(why.into()))))
    }

    /// Appends a commit after its predecessor. The commit carries writer and number ([`crate::Stamp`]).
    fn append(&self, commit: Commit) -> Append;

    /// Ends a stream, and returns its last commit once nothing more of it can land.
    ///
    /// # Errors
    /// [`Error::RolledBack`]: the stream lacks acknowledged commits. After any other error the stream's end is still unknown.
    fn seal(&self, writer: WriterId) -> Later<'_, Result<CommitNo, Error>>;

    /// Returns the commits after a position, in order, within its writer's stream: at least one if there is one, then as many as fit in
    /// `bytes_max`. Empty at the end of what is durable. For commits without any record left after [`prune`](Self::prune), the last of them
    /// may [stand](Commit::stands_for).
    ///
    /// # Errors
    /// [`Error::Damaged`] with the first commit that cannot be read.
    fn read(&self, after: Position, bytes_max: usize) -> Later<'_, Result<Vec<Commit>, Error>>;

    /// Returns the bodies of single records, in the requested order. Only for places after the last [`forget`](Journal::forget); the store
    /// has the older ones.
    ///
    /// # Errors
    /// [`Error::NoCommit`] for a place that this journal does not hold or has forgotten.
    fn read_at<'a>(&'a self, places: &'a [Place]) -> Maybe<'a, Result<Vec<Vec<u8>>, Error>>;

    /// Syncs everything appended so far, whatever the durability. A checkpoint begins with it.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Backend`]: the sync failed. Only what an earlier sync covered is safe.
    fn sync(&self) -> Later<'_, Result<(), Error>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Lets the journal drop its index in memory of commits up to here, because a checkpoint covers them. History itself stays.
    fn forget(&self, upto: Position);

    /// Removes the records that are no longer needed from a stream's history, for good. Their commits keep their numbers, and other records
    /// keep their places. Only for history that is durable and covered by a checkpoint, and that nothing reads any more. After a crash,
    /// only some of them may have been removed, beginning with the oldest.
    ///
    /// # Errors
    /// [`Error::Backend`]: the journal never removes history, or the database refuses. [`Error::Io`]: a file cannot be read or written.
    fn prune(&self, prune: Prune) -> Later<'_, Result<Pruned, Error>> {
        let at = prune.after;
        Box::pin(std::future::ready(Err(Error::backend(
            format!("removing history after commit {at}"),
            "this journal keeps all of its history",
        ))))
    }

    /// Ends the present part of the history, so that everything committed so far can be [pruned](Self::prune), in whatever parts the
    /// journal stores its history.
    ///
    /// # Errors
    /// The journal's error; the writer has then ended.
    fn end_segment(&self) -> Later<'_, Result<(), Error>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Returns the number of appends that may be in flight now: 1 while a sync is fast, more while it is slow and the device overlaps
    /// syncs.
    fn depth(&self) -> usize;

    /// Returns the failures that an acknowledged commit survives.
    fn durability(&self) -> Durability;

    /// True if the writer's engine may answer from memory now: no other engine has taken over, nor can one have answered since. A journal
    /// for a single process always returns true.
    fn holds(&self, _writer: WriterId) -> bool {
        true
    }

    /// Returns the reason why a writer has ended without a failed append: another engine has taken over, or the database was rolled back.
    fn ended(&self, _writer: WriterId) -> Option<AppendError> {
        None
    }

    /// Returns the last losses of acknowledged commits found since the journal was opened.
    fn losses(&self) -> Vec<Loss> {
        Vec::new()
    }

    /// True if there is room for more than finishing what was begun. Without it an engine takes no commands, while reads go on.
    fn has_room(&self) -> bool {
        true
    }

    /// Lists the parts of its history, at most `_limit` of each sort. The cost is proportional to the list.
    ///
    /// # Errors
    /// The history cannot be read.
    fn inventory(&self, _limit: usize) -> Later<'_, Result<Inventory, Error>> {
        Box::pin(std::future::ready(Ok(Inventory::default())))
    }

    /// Returns the size of the history in bytes, if known.
    fn bytes(&self) -> Option<u64> {
        None
    }

    /// Returns the bytes that it takes of the disk, together with other files in the same place.
    fn disk_bytes(&self) -> Option<u64> {
        self.bytes()
    }

    /// Returns the bytes that it takes of the disk even without any history, together with other files in the same place.
    fn disk_bytes_min(&self) -> u64 {
        0
    }
}
