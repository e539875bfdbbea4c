//! An epoch of the engine, from a recovery to the end of its writer. When the writer ends, all of it is forgotten.
//! The next epoch begins from the journal.

mod checkpoint;
mod checkpoints;
mod cluster;
pub(crate) mod disk;
mod due;
mod ends;
mod execute;
mod executed;
mod recovery;
pub(crate) mod removals;
mod signalled;
mod stop;
pub(crate) mod tasks;
mod timers;

pub(crate) use checkpoint::OUTBOX_ROW;
pub use checkpoints::LastCheckpoint;
pub(crate) use ends::{Ends, streams};
pub use execute::Waiting;
pub use executed::Executed;
pub(crate) use recovery::read_position;
pub(crate) use signalled::signalled;

use crate::{
    commit::{GroupCommit, Refusal},
    context::Context,
    delivery::{Deliverer, Within},
    error::StartError,
    executor::{Attempt, Carried, Executor, ShardExecution},
};
use checkpoints::Checkpoints;
use due::Due;
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
};
use throng_core::{limits, model::Error};
use throng_journal::{Address, NodeId, Position, ShardId, ShardSet};

/// System rows removed at once: a few milliseconds.
const REMOVED_ROWS_MAX: usize = 1_000;

/// The state of one writer's epoch.
pub(crate) struct Epoch {
    pub(crate) group_commit: Arc<GroupCommit>,
    pub(crate) executor: Arc<Executor>,
    pub(crate) deliverer: Arc<Deliverer>,
    /// The rows and cuts for the removal of history that the next checkpoint takes along.
    /// They rest on this writer's commits, and are forgotten with it.
    pub(crate) due: Mutex<Due>,
}

impl Epoch {
    pub(crate) fn due(&self) -> MutexGuard<'_, Due> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The shard of an entity, and the hash of its address.
    pub(crate) fn shard_of(&self, address: &Address) -> (ShardId, u64) {
        let hash = limits::hash(&address.kind, &address.id);
        (self.executor.shard_of(hash), hash)
    }

    /// Tries an attempt here and now, and begins to deliver what it sent.
    pub(crate) fn try_now(&self, attempt: &mut Attempt<'_>) -> ShardExecution {
        let execution = self.executor.try_now(attempt);
        if std::mem::take(&mut attempt.has_sent) {
            self.deliverer.deliver(Within::Batch);
        }
        execution
    }

    /// Carries an attempt through all it has to wait for, from what came of trying it first.
    ///
    /// # Errors
    /// Why it was not executed.
    pub(crate) async fn carry(
        &self,
        attempt: Attempt<'static>,
        execution: ShardExecution,
    ) -> Result<(Attempt<'static>, Carried), Refusal> {
        let mut carried = self.executor.carry(attempt, execution).await?;
        if std::mem::take(&mut carried.0.has_sent) {
            self.deliverer.deliver(Within::Batch);
        }
        Ok(carried)
    }
}

/// The running epoch, or the reason why there is none to ask.
pub(crate) enum Status {
    Running(Arc<Epoch>),
    Down(Down),
}

/// Why nobody is asked.
#[derive(Clone, Debug)]
pub(crate) struct Down {
    /// The reason for clients: it names neither files nor addresses.
    pub(crate) told: &'static str,
    /// The details that only operators are told.
    pub(crate) detail: Option<String>,
    /// The time since when, if it takes only a moment: whoever asks waits. In microseconds of the host's clock.
    pub(crate) short_since: Option<u64>,
}

impl Down {
    pub(crate) fn new(told: &'static str) -> Self {
        Self {
            told,
            detail: None,
            short_since: None,
        }
    }

    /// For a moment, in which whoever asks waits.
    pub(crate) fn shortly(told: &'static str, since: u64) -> Self {
        Self {
            short_since: Some(since),
            ..Self::new(told)
        }
    }

    /// The engine cannot start from its journal.
    pub(crate) fn of(error: &StartError) -> Self {
        let told = match error {
            StartError::Journal(throng_journal::Error::Lost { .. }) => LOST,
            _ => "the journal cannot be read; it is tried again",
        };
        Self::with(told, error)
    }

    pub(crate) fn with(told: &'static str, detail: impl ToString) -> Self {
        Self {
            detail: Some(detail.to_string()),
            ..Self::new(told)
        }
    }
}

pub(crate) const JOURNAL_FAILED: &str = "the journal failed; the engine starts again from it";
/// Why an engine that runs answers nothing.
pub(crate) const NOT_HELD: &str = "the journal does not answer: whether another engine has taken over is not known";
/// Why a node of a cluster that was sealed answers nothing.
const NO_MEMBER: &str = "the other nodes have taken over from this one; it joins the cluster again";
/// Why a node of a cluster answers nothing whose database was rolled back.
const ROLLED_BACK: &str = "the database was rolled back; this node joins the cluster again";
/// Why an engine answers nothing that was told to stop where commits are lost.
const LOST: &str = "acknowledged commits are lost; it goes on once that is accepted";
/// Why one that stands by answers nothing.
const STANDS_BY: &str =
    "another engine has taken over this journal; this one stands by, and takes back when that one ends";

/// The shards that a node of a cluster is to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) node: NodeId,
    pub(crate) shards: ShardSet,
}

/// The engine's lives, one after the other.
pub(crate) struct Epochs {
    pub(crate) context: Arc<Context>,
    status: RwLock<Status>,
    checkpoints: Checkpoints,
    /// Another engine has taken over, and has not ended yet.
    stands_by: AtomicBool,
    /// In a cluster: the node that this engine is, and what it owns.
    member: Mutex<Option<Member>>,
    /// Held while an epoch ends and the next one begins, one at a time.
    changes: tokio::sync::Mutex<()>,
}

impl Epochs {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self {
            context,
            status: RwLock::new(Status::Down(Down::new("the engine is starting"))),
            checkpoints: Checkpoints::default(),
            stands_by: AtomicBool::new(false),
            member: Mutex::default(),
            changes: tokio::sync::Mutex::default(),
        }
    }

    pub(crate) fn status(&self) -> RwLockReadGuard<'_, Status> {
        self.status.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The epoch that runs, whether the journal holds it or not.
    pub(crate) fn running(&self) -> Option<Arc<Epoch>> {
        self.latest().filter(|epoch| !epoch.group_commit.is_over())
    }

    /// The epoch that runs, or has just ended and is still to be cleared away.
    fn latest(&self) -> Option<Arc<Epoch>> {
        match &*self.status() {
            Status::Running(epoch) => Some(epoch.clone()),
            Status::Down(_) => None,
        }
    }

    /// The newest durable commit; `None` while no writer is open. Another writer is another position: a recovery is a change even
    /// before anything happens in the new epoch.
    pub(crate) fn durable(&self) -> Option<Position> {
        self.running().map(|epoch| epoch.group_commit.durable())
    }

    /// Waits until the newest durable commit is not this one any more, and returns it. Returns at once while the engine stops.
    pub(crate) async fn changed(&self, seen: Option<Position>) -> Option<Position> {
        std::future::poll_fn(|context| {
            let is_over = |durable| durable != seen || self.context.is_stopping();
            let durable = self.durable();
            if is_over(durable) {
                return Poll::Ready(durable);
            }
            self.context.signals.watch(context.waker());
            let durable = self.durable();
            if is_over(durable) {
                Poll::Ready(durable)
            } else {
                Poll::Pending
            }
        })
        .await
    }

    /// Whoever is asked now, or why nobody is.
    pub(crate) fn current<R>(&self) -> Result<Arc<Epoch>, Error<R>> {
        self.look().map_err(|reason| {
            self.context.metrics.unavailable.inc();
            let reason = reason.into();
            Error::Unavailable { reason }
        })
    }

    fn look(&self) -> Result<Arc<Epoch>, &'static str> {
        match &*self.status() {
            Status::Running(epoch) => match self.trouble(epoch) {
                None => Ok(epoch.clone()),
                Some(trouble) => Err(trouble.told),
            },
            Status::Down(down) => Err(down.told),
        }
    }

    /// Why an epoch that runs answers nothing.
    pub(crate) fn trouble(&self, epoch: &Epoch) -> Option<Down> {
        if epoch.group_commit.is_over() {
            let failure = epoch.group_commit.failure();
            return Some(failure.map_or(Down::new("the engine has stopped"), |error| {
                Down::with(JOURNAL_FAILED, error)
            }));
        }
        // The state in memory may be another engine's to change by now.
        (!self.context.journal.holds(epoch.group_commit.writer)).then(|| Down::new(NOT_HELD))
    }

    /// Returns whether this engine waits for the end of another one, which has taken over.
    pub(crate) fn stands_by(&self) -> bool {
        self.stands_by.load(Ordering::Acquire)
    }

    fn stand_by(&self, stands_by: bool) {
        self.stands_by.store(stands_by, Ordering::Release);
        self.context.metrics.stands_by.set(i64::from(stands_by));
        if stands_by {
            self.end(Down::new(STANDS_BY));
        }
        self.context.signals.wake_watchers();
    }

    /// The engine has been stopped, and nothing is asked of it any more.
    pub(crate) fn has_stopped(&self) -> bool {
        self.context.is_stopping() && matches!(*self.status(), Status::Down(_))
    }

    /// An epoch begins, unless the engine stops: decided under the lock that [`end`](Self::end) takes.
    pub(crate) fn begin(&self, epoch: Arc<Epoch>) -> bool {
        let mut status = self.status.write().unwrap_or_else(PoisonError::into_inner);
        if self.context.is_stopping() {
            return false;
        }
        *status = Status::Running(epoch);
        self.context.signals.unresolved.wake();
        true
    }

    /// Nobody is asked, for this very reason.
    fn is_down_for(&self, reason: &'static str) -> bool {
        matches!(&*self.status(), Status::Down(down) if down.told == reason)
    }

    /// Nobody is asked, for this reason, unless another epoch has begun.
    fn end_epoch(&self, epoch: &Arc<Epoch>, down: Down) {
        let mut status = self.status.write().unwrap_or_else(PoisonError::into_inner);
        if matches!(&*status, Status::Running(running) if Arc::ptr_eq(running, epoch)) {
            *status = Status::Down(down);
        }
    }

    /// Nobody is asked, for this reason.
    pub(crate) fn end(&self, down: Down) {
        *self.status.write().unwrap_or_else(PoisonError::into_inner) = Status::Down(down);
        self.context.signals.unresolved.wake();
    }
}
