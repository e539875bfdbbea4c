//! The group commit of one writer's epoch. Records are staged in the open commit, the commit is appended, the durable position advances,
//! and the waiting tasks are woken.

#[cfg(feature = "services")]
mod publish;

use crate::{
    context::Context,
    spans::{Attribute, TraceContext, TracedCommits},
};
#[cfg(feature = "services")]
use std::collections::VecDeque;
use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::{self, Poll, Waker},
    time::Duration,
};
use throng_commit::{Candidate, Durable, Leader, OpenCommit};
#[cfg(feature = "services")]
use throng_core::model::Published;
use throng_core::{
    model::Error,
    shard::{Stage, Staged},
};
use throng_journal::{
    Append, AppendError, Appended, Commit, CommitBuilder, CommitNo, Later, Position, ShardSet, Stamp, WriterId,
};

/// The commits of one writer, from the first record to the end of its stream.
pub(crate) struct GroupCommit {
    context: Arc<Context>,
    pub(crate) writer: WriterId,
    /// The shards whose records its stream may hold. No other engine answers for these while this one does.
    pub(crate) shards: ShardSet,
    /// The earlier, sealed streams with records of these shards, in order: the last commit of each.
    pub(crate) sealed: Vec<Position>,
    open: OpenCommit<CommitBuilder>,
    leader: Leader,
    /// Appends that did not resolve at once. Only the leader polls them.
    flights: Mutex<Vec<Flight>>,
    /// Bytes in the open commit. Written under its lock, read without it.
    staged_bytes: AtomicUsize,
    /// The part of these bytes that comes from the engine's own work. Written under the lock, read without it.
    inside_bytes: AtomicUsize,
    /// Bytes appended since the last checkpoint.
    pub(crate) appended_bytes: AtomicU64,
    /// The moving average of a commit, from append to durable, microseconds.
    commit_micros: AtomicU64,
    /// The time at which the last commit that took more than one poll landed, by the host's clock.
    landed_micros: AtomicU64,
    /// Bytes in the open commit at the last call of [`is_gathering`](Self::is_gathering). Only the leader writes it.
    gathered_bytes: AtomicUsize,
    /// The traced work of commits. Not locked while nothing is traced.
    traced: Mutex<TracedCommits>,
    /// The position that the last checkpoint covers up to.
    covers: Mutex<Option<Position>>,
    #[cfg(feature = "services")]
    /// The published values whose commits are not durable yet, in order.
    published: Mutex<VecDeque<(u64, Published)>>,
    /// True once the stream is to end in order: nothing new begins, and newcomers wait for the next stream. Set by
    /// [`begin_close`](Self::begin_close).
    closing: AtomicBool,
    /// True once the stream has ended in order: all of it is durable, and answers from memory were true while the journal was held.
    ended_in_order: AtomicBool,
    /// True once nothing more is accepted: the engine has stopped, or an append failed.
    over: AtomicBool,
    /// The reason why the writer ended early.
    failure: Mutex<Option<Arc<AppendError>>>,
}

/// The longest time that the next commit waits for more after one has landed.
const GATHER_MICROS_MAX: u64 = 500;

/// The bytes that the engine's own work may always fill in each commit, however fast the journal is.
const INSIDE_BYTES: usize = 64 << 10;
/// Further bytes for each microsecond that a commit takes. A journal that writes at this rate takes at most twice as long because of them.
const INSIDE_BYTES_PER_MICRO: usize = 128;

struct Flight {
    number: u64,
    begun_micros: u64,
    append: Later<'static, Appended>,
}

/// The origin of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A client, or the service's own code: it may be refused.
    Outside,
    /// Another entity, or a timer: it is in the log, and waits.
    Inside,
    /// An operator: it is executed also while work from outside is refused.
    Operator,
}

/// The writer ended during the wait. Nothing was done, or the outcome is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended;

impl GroupCommit {
    pub(crate) fn new(
        context: Arc<Context>,
        writer: WriterId,
        shards: ShardSet,
        sealed: Vec<Position>,
        covers: Option<Position>,
    ) -> Self {
        let open = OpenCommit::new(context.signals.relay.clone());
        Self {
            context,
            writer,
            shards,
            sealed,
            open,
            leader: Leader::new(),
            flights: Mutex::default(),
            staged_bytes: AtomicUsize::new(0),
            inside_bytes: AtomicUsize::new(0),
            appended_bytes: AtomicU64::new(0),
            commit_micros: AtomicU64::new(0),
            landed_micros: AtomicU64::new(0),
            gathered_bytes: AtomicUsize::new(0),
            traced: Mutex::default(),
            covers: Mutex::new(covers),
            #[cfg(feature = "services")]
            published: Mutex::default(),
            closing: AtomicBool::new(false),
            ended_in_order: AtomicBool::new(false),
            over: AtomicBool::new(false),
            failure: Mutex::default(),
        }
    }

    /// Returns the last durable commit.
    pub(crate) fn durable(&self) -> Position {
        self.position(self.open.durable())
    }

    /// A commit of this writer.
    pub(crate) fn position(&self, number: u64) -> Position {
        Position::new(self.writer, CommitNo(number))
    }

    /// Returns the newest commit that holds records.
    pub(crate) fn last(&self) -> u64 {
        self.open.last()
    }

    /// True if no commit is open or in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.open.is_idle()
    }

    /// Commands and queries that wait for a commit.
    pub(crate) fn waiting(&self) -> usize {
        self.open.waiting()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.open.in_flight()
    }

    pub(crate) fn covers(&self) -> Option<Position> {
        *self.covers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_covers(&self, upto: Position) {
        *self.covers.lock().unwrap_or_else(PoisonError::into_inner) = Some(upto);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Returns whether new work has to wait for the next stream.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Refuses new work from now on.
    pub(crate) fn begin_close(&self) {
        self.closing.store(true, Ordering::Release);
    }

    /// True if answers may leave: no other engine can have changed the state that they were read from.
    fn holds(&self) -> bool {
        self.ended_in_order.load(Ordering::Acquire) || self.context.journal.holds(self.writer)
    }

    /// Returns a writer into the open commit for records of the engine's own work.
    pub(crate) fn staging(&self) -> Staging<'_> {
        self.staging_of(Origin::Inside)
    }

    /// Returns a writer into the open commit for records of this origin.
    pub(crate) fn staging_of(&self, origin: Origin) -> Staging<'_> {
        Staging {
            group_commit: self,
            is_inside: origin == Origin::Inside,
            has_staged: false,
            commit: 0,
        }
    }

    /// Returns the open commit's number if it has no room for work of this origin, which then waits for the next commit.
    pub(crate) fn full_commit(&self, from: Origin) -> Option<u64> {
        // The bound holds with any setting: a few threads may each stage a command's maximum at once, and that still fits.
        let max = self
            .context
            .options
            .commit_bytes_max
            .min(throng_journal::COMMIT_BYTES_MAX / 4);
        let (max, inside_max) = match from {
            Origin::Outside => (max, usize::MAX),
            // Work from outside finds room in each commit however much entities do among themselves, and waits for only this many bytes of
            // theirs.
            Origin::Inside => (max / 2, self.inside_bytes_max()),
            // Operators find room however much comes from outside.
            Origin::Operator => (max + max / 8, usize::MAX),
        };
        let is_inside_full = || self.inside_bytes.load(Ordering::Relaxed) >= inside_max;
        if self.staged_bytes.load(Ordering::Relaxed) < max && !is_inside_full() {
            return None;
        }
        // The commit may have been taken meanwhile, and the counters may still be the former one's. Nothing may wait for an empty commit:
        // it has room, and perhaps no other work comes to fill it.
        self.open
            .full(|open| open.bytes() > 0 && (open.bytes() >= max || is_inside_full()))
    }

    /// The bytes of a commit that work from inside may fill.
    fn inside_bytes_max(&self) -> usize {
        let takes = usize::try_from(self.commit_micros.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
        takes.saturating_mul(INSIDE_BYTES_PER_MICRO).max(INSIDE_BYTES)
    }

    /// Returns about how long a newcomer waits for the next commit: all waiting records go into that one, and it waits for the one in
    /// flight.
    pub(crate) fn commit_wait(&self) -> Duration {
        Duration::from_micros(self.commit_micros.load(Ordering::Relaxed)).saturating_mul(2)
    }

    // --- ending ------------------------------------------------------------------------------------------------------

    /// Ends the writer, because an append failed or may have failed. A new epoch begins from the journal.
    pub(crate) fn fail(&self, error: AppendError) {
        if self.over.swap(true, Ordering::AcqRel) {
            return;
        }
        tracing::error!("writer {} is over: {error}", self.writer);
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(error));
        self.context.signals.recover.wake();
        self.context.signals.wake_watchers();
    }

    /// Ends the writer if the error says that it is over, as a failed append would. Returns true if so.
    pub(crate) fn fail_if_over(&self, error: &throng_journal::Error) -> bool {
        match error {
            throng_journal::Error::Sealed(_) => self.fail(AppendError::Sealed),
            throng_journal::Error::RolledBack(why) => self.fail(AppendError::RolledBack(why.clone())),
            _ => return false,
        }
        true
    }

    /// Returns the reason why the writer ended early, if it did.
    pub(crate) fn failure(&self) -> Option<Arc<AppendError>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Accepts nothing more, because the engine stops. Waiters get their error once nothing is in flight.
    pub(crate) fn close(&self) {
        self.over.store(true, Ordering::Release);
        if self.open.is_idle() {
            self.open.end(self.open.durable());
        }
    }

    /// Ends the stream in order if all its records are durable and the journal is still held, and returns true: existing answers may
    /// still leave. `false`: the conditions do not hold.
    pub(crate) fn end_in_order(&self) -> bool {
        let holds = self.open.is_idle() && !self.is_over() && self.context.journal.holds(self.writer);
        if holds {
            self.ended_in_order.store(true, Ordering::Release);
            self.close();
        }
        holds
    }

    /// Ends a sealed stream: commits up to this one are in the journal, all others are lost.
    pub(crate) fn end(&self, last: CommitNo) {
        self.open.end(last.0);
    }

    // --- reading -----------------------------------------------------------------------------------------------------

    /// Reads the commits after a position, going on in the next stream at the end of a sealed one. Also returns how far they reach. Empty
    /// at the end.
    pub(crate) async fn read_after(
        &self,
        after: Position,
        bytes_max: usize,
    ) -> Result<(Vec<Commit>, Position), throng_journal::Error> {
        let mut at = after;
        loop {
            // The ends of sealed streams are known. Skipping them matters: many streams are empty, and a read that fails begins all over
            // again.
            let is_over = |end: &Position| end.writer == at.writer && end.commit <= at.commit;
            if !self.sealed.iter().any(is_over) {
                let commits = self.context.journal.read(at, bytes_max).await?;
                if let Some(last) = commits.last() {
                    let reached = last.position();
                    return Ok((commits, reached));
                }
            }
            let all = self.sealed.iter().map(|end| end.writer).chain([self.writer]);
            match all.filter(|writer| *writer > at.writer).min() {
                Some(writer) => at = Position::new(writer, CommitNo(0)),
                None => return Ok((Vec::new(), at)),
            }
        }
    }

    // --- waiting -----------------------------------------------------------------------------------------------------

    /// Returns whether a commit is durable; `None` if not yet.
    //= promise 3: answers rest on durable events
    pub(crate) fn durable_now<R>(&self, number: u64, until: u64) -> Option<Result<(), Error<R>>> {
        match self.open.state(number) {
            // Another engine may have changed the state meanwhile.
            Poll::Ready(Ok(())) if self.holds() => Some(Ok(())),
            Poll::Ready(Err(_)) => Some(Err(lost())),
            Poll::Pending if self.context.host.elapsed_micros() < until => None,
            _ => Some(Err(Error::OutcomeUnknown)),
        }
    }

    /// Wakes the waker when [`durable_now`](Self::durable_now) may have more to say, or at the deadline; `false`: it has already.
    pub(crate) fn wake_at(&self, number: u64, until: u64, waker: &Waker) -> bool {
        self.open.wake_at(number, until, waker)
    }

    /// Wakes the waiters whose deadline has passed.
    pub(crate) fn sweep(&self) {
        self.open.sweep(self.context.host.elapsed_micros());
    }

    /// Resolves once a commit is durable, whatever the time.
    pub(crate) fn wait(&self, number: u64) -> Durable<'_, CommitBuilder> {
        self.open.wait(number, u64::MAX)
    }

    /// Waits until a commit is durable; at the deadline returns what is known.
    pub(crate) async fn wait_until<R>(&self, number: u64, until: u64) -> Result<(), Error<R>> {
        let mut wait = self.open.wait(number, until);
        if wait.is_durable() {
            // The answer may rest on memory alone, which another engine may have changed meanwhile.
            return if self.holds() {
                Ok(())
            } else {
                Err(Error::OutcomeUnknown)
            };
        }
        let mut polled = false;
        std::future::poll_fn(move |context| {
            if let Poll::Ready(landed) = Pin::new(&mut wait).poll(context) {
                return Poll::Ready(landed.map_err(|_| lost()));
            }
            // The sweep wakes waiters at the deadline.
            if std::mem::replace(&mut polled, true) && self.context.host.elapsed_micros() >= until {
                return Poll::Ready(Err(Error::OutcomeUnknown));
            }
            Poll::Pending
        })
        .await
    }

    /// Waits for a future, until the deadline (then `Ok(None)`) or the end of the writer.
    pub(crate) async fn in_time<T>(&self, until: u64, future: impl Future<Output = T>) -> Result<Option<T>, Ended> {
        let mut future = std::pin::pin!(future);
        // Also waits for the open commit, because its waiters are woken at their deadline and at the end of the writer.
        let mut commit = self.open.wait(self.open.number(), until);
        let mut polled = false;
        std::future::poll_fn(move |context| {
            if let Poll::Ready(value) = future.as_mut().poll(context) {
                return Poll::Ready(Ok(Some(value)));
            }
            while let Poll::Ready(landed) = Pin::new(&mut commit).poll(context) {
                if landed.is_err() {
                    return Poll::Ready(Err(Ended));
                }
                commit = self.open.wait(self.open.number(), until);
            }
            if std::mem::replace(&mut polled, true) && self.context.host.elapsed_micros() >= until {
                return Poll::Ready(Ok(None));
            }
            Poll::Pending
        })
        .await
    }

    // --- committing --------------------------------------------------------------------------------------------------

    /// Leads one commit, if there is no leader: completes what has landed, and appends the open commit. It does no more: further work is
    /// for the tasks that asked for it meanwhile, or for its own next poll, after all that is ready on its loop.
    pub(crate) fn lead(&self, candidate: Candidate, context: &mut task::Context<'_>) {
        let Some(mut term) = self.leader.ask(candidate, context.waker()) else {
            return;
        };
        let depth = self.context.journal.depth();
        self.poll_flights(context);
        if self.is_gathering() {
            self.context.host.wake_behind_arrivals(context);
            return;
        }
        if !self.is_over()
            && let Some((number, batch)) = self.open.take(depth)
        {
            self.append(number, batch, context);
        }
        if !self.is_over() && self.open.is_due(depth) {
            term.again(context.waker());
        }
        drop(term);
        if self.appended_bytes.load(Ordering::Relaxed) >= self.context.options.checkpoint_bytes {
            self.context.signals.checkpoint.wake();
        }
    }

    /// True if the next commit should wait. That is so right after a commit has landed, as long as each look at the sockets brings more
    /// work, and at most as long as a commit takes. A commit in a database costs nearly the same whatever its size.
    fn is_gathering(&self) -> bool {
        let staged = self.staged_bytes.load(Ordering::Relaxed);
        if staged == 0 || self.open.in_flight() > 0 {
            return false;
        }
        let since = self
            .context
            .host
            .elapsed_micros()
            .saturating_sub(self.landed_micros.load(Ordering::Relaxed));
        let longest = self.commit_micros.load(Ordering::Relaxed).min(GATHER_MICROS_MAX);
        since < longest && self.gathered_bytes.swap(staged, Ordering::Relaxed) != staged
    }

    /// Withdraws this candidate. If it was to lead, another candidate is woken instead.
    pub(crate) fn leave(&self, candidate: Candidate) {
        self.leader.leave(candidate);
        self.context.signals.commit.wake();
    }

    fn append(&self, number: u64, mut batch: CommitBuilder, context: &mut task::Context<'_>) {
        self.staged_bytes.store(0, Ordering::Relaxed);
        let begun_micros = self.context.host.elapsed_micros();
        self.context.metrics.batch.observe(batch.records() as f64);
        let commit = batch.finish(Stamp {
            writer: self.writer,
            number: CommitNo(number),
            synced: CommitNo(self.open.durable()),
            at_micros: self.context.host.now().micros,
        });
        self.open.give(|open| {
            open.take_over(batch);
            self.inside_bytes.store(0, Ordering::Relaxed);
        });
        let bytes = commit.bytes().len() as u64;
        self.context.metrics.commit_bytes.inc_by(bytes);
        self.appended_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.context.disk.has_appended(bytes);
        match self.context.journal.append(commit) {
            Append::Done(appended) => self.landed(number, begun_micros, appended),
            Append::Later(append) => {
                let flight = Flight {
                    number,
                    begun_micros,
                    append,
                };
                self.flights.lock().unwrap_or_else(PoisonError::into_inner).push(flight);
                self.poll_flights(context);
            }
        }
    }

    fn poll_flights(&self, context: &mut task::Context<'_>) {
        let mut landed = Vec::new();
        {
            let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
            flights.retain_mut(|flight| match flight.append.as_mut().poll(context) {
                Poll::Pending => true,
                Poll::Ready(appended) => {
                    landed.push((flight.number, flight.begun_micros, appended));
                    false
                }
            });
        }
        if !landed.is_empty() {
            let now = self.context.host.elapsed_micros();
            self.landed_micros.store(now, Ordering::Relaxed);
        }
        for (number, begun_micros, appended) in landed {
            self.landed(number, begun_micros, appended);
        }
    }

    /// Notes that a commit holds records of traced work, which is part of `batch`.
    pub(crate) fn add_traced(&self, number: u64, work: TraceContext, batch: TraceContext) {
        self.traced().add(number, work, batch);
    }

    /// The spans of traced commits with these numbers that have landed lately.
    #[cfg(feature = "projections")]
    pub(crate) fn traced_between(&self, first: u64, last: u64) -> Vec<(Position, TraceContext)> {
        let spans = self.traced().between(first, last);
        let at = |(number, span)| (self.position(number), span);
        spans.into_iter().map(at).collect()
    }

    fn traced(&self) -> MutexGuard<'_, TracedCommits> {
        self.traced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Exports the span of a durable commit, if it holds records of traced work or was slow.
    fn trace_commit(&self, number: u64, begun_micros: u64, took_micros: u64) {
        let Some(tracer) = &self.context.tracer else { return };
        let gathered = self.traced().has_landed(number, begun_micros);
        if gathered.is_none() && !tracer.is_slow(took_micros) {
            return;
        }
        let host = &*self.context.host;
        let position = self.position(number).to_string();
        let attributes = [("throng.commit", Attribute::Text(&position))];
        if let Some(gathered) = gathered {
            gathered.export(tracer, host, "commit", &attributes);
        } else {
            tracer.export_late("commit", took_micros, host.now().micros, &attributes);
        }
    }

    //= promise 2: acknowledged events survive
    fn landed(&self, number: u64, begun_micros: u64, appended: Appended) {
        match appended.result {
            Ok(()) => {
                let took = self.context.host.elapsed_micros().saturating_sub(begun_micros);
                self.context.metrics.commits.inc();
                self.context.metrics.commit_seconds.observe(took as f64 / 1e6);
                let average = self.commit_micros.load(Ordering::Relaxed);
                self.commit_micros.store((average * 7 + took) / 8, Ordering::Relaxed);
                self.open.give(|open| open.recycle(appended.buffer));
                self.trace_commit(number, begun_micros, took);
                self.open.landed(number);
                #[cfg(feature = "services")]
                self.publish_durable();
                self.context.signals.wake_watchers();
            }
            Err(error) => self.fail(error),
        }
    }
}

/// Puts records into the open commit, and notes whether there were any, so that the caller wakes a leader.
pub(crate) struct Staging<'a> {
    group_commit: &'a GroupCommit,
    is_inside: bool,
    pub(crate) has_staged: bool,
    /// The commit that received the last records.
    pub(crate) commit: u64,
}

impl Stage for Staging<'_> {
    fn stage(&mut self, records: &mut CommitBuilder) -> Staged {
        let (group_commit, is_inside) = (self.group_commit, self.is_inside);
        let place = group_commit.open.stage(|open| {
            let before = open.bytes();
            let shift = open.append(records);
            group_commit.staged_bytes.store(open.bytes(), Ordering::Relaxed);
            if is_inside {
                let more = open.bytes().saturating_sub(before);
                group_commit.inside_bytes.fetch_add(more, Ordering::Relaxed);
            }
            shift
        });
        self.has_staged = true;
        self.commit = place.number;
        Staged {
            commit: place.number,
            shift: place.put,
        }
    }
}

fn lost<R>() -> Error<R> {
    Error::Unavailable {
        reason: "the commit did not land; the engine starts again from its journal".into(),
    }
}

/// The engine's refusal: nothing was done, or (`OutcomeUnknown`) the outcome is unknown.
pub(crate) type Refusal = Error<Infallible>;

/// The engine's part of a typed answer.
pub(crate) fn widen<R>(error: Refusal) -> Error<R> {
    error.engine().unwrap_or_else(|never| match never {})
}

/// Returns the error for work that arrives at the end of a writer's epoch: nothing was done.
pub(crate) fn recovering<R>() -> Error<R> {
    Error::Unavailable {
        reason: "the engine starts again from its journal".into(),
    }
}

/// Returns the error for stored data that cannot be read. Clients get `what`; `why`, with files and addresses, goes to the log.
pub(crate) fn unreadable<R>(what: String, why: &impl std::fmt::Display) -> Error<R> {
    tracing::error!("{what}: {why}");
    Error::Unavailable {
        reason: format!("{what}; the service's log says why"),
    }
}
