//! Runs one projection or sink, behind the journal and on the engine's own threads: reads, has the events taken, stores how far it
//! has come.

use super::{
    State,
    consumer::Handled,
    projector::{Projector, Running},
    rows::RowCache,
    source,
};
use crate::{
    engine::Core,
    host::Task,
    life::{Life, Status},
    tail::Ends,
};
use std::{
    sync::{Arc, Weak},
    task::Poll,
    time::Duration,
};
use throng_journal::{Applied, Commit, CommitNo, Position, ViewBatch, ViewOffset, Views};

/// Once it has caught up it reads again after this long at the earliest, so that it takes what has gathered at once.
const PAUSE: Duration = Duration::from_millis(100);
/// With nothing new, it checks this often whether somebody else has cleared its rows.
const IDLE: Duration = Duration::from_secs(10);
/// The first pause after a failure; it doubles up to the last.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LAST: Duration = Duration::from_secs(30);
/// Rows kept in memory between batches, in bytes.
const CACHE_BYTES_MAX: usize = 8 << 20;
/// The offset is stored after so many bytes of commits, though none of their events was for it.
const SKIPPED_BYTES_MAX: usize = 16 << 20;

/// What it does next.
enum Next {
    /// Goes on, behind what else is ready.
    Continue,
    Pause(Duration),
    /// Waits for something durable after this.
    WaitForCommit(Option<Position>),
    /// Waits to be asked for something.
    WaitForRequest,
    End,
}

struct Runner {
    projector: Arc<Projector>,
    /// The offset that is stored, if one is; the outer `None`: it has to be read first.
    stored: Option<Option<ViewOffset>>,
    /// How far it has read.
    read: ViewOffset,
    /// The life in which `read` was found to be of this history.
    checked: Weak<Life>,
    cache: RowCache,
    /// Bytes of commits read since the offset was stored, without an event for it.
    skipped_bytes: usize,
    /// Failures since it succeeded last.
    failures: u32,
    has_stopped: bool,
    /// There was nothing new when it read last.
    is_idle: bool,
}

/// Runs it until the engine stops.
pub(super) async fn run(running: Running) {
    let mut runner = Runner {
        projector: running.projector.clone(),
        stored: None,
        read: ViewOffset::default(),
        checked: Weak::new(),
        cache: RowCache::default(),
        skipped_bytes: 0,
        failures: 0,
        has_stopped: false,
        is_idle: false,
    };
    loop {
        let Some(inner) = running.inner.upgrade() else { return };
        let next = runner.step(&inner).await;
        let sleep = |duration| Some(inner.context.host.sleep(duration));
        let (sleep, seen) = match next {
            Next::End => return,
            Next::Continue => {
                drop(inner);
                crate::host::yield_now().await;
                continue;
            }
            Next::Pause(duration) => (sleep(duration), None),
            Next::WaitForCommit(seen) => (sleep(IDLE), Some(seen)),
            Next::WaitForRequest => (None, None),
        };
        drop(inner);
        wait(&running, sleep, seen).await;
    }
}

/// Waits until the time is over, something is durable that was not `seen`, a request comes, or the engine stops.
async fn wait(running: &Running, mut sleep: Option<Task>, seen: Option<Option<Position>>) {
    std::future::poll_fn(|context| {
        let Some(inner) = running.inner.upgrade() else {
            return Poll::Ready(());
        };
        let is_over = sleep
            .as_mut()
            .is_some_and(|sleep| sleep.as_mut().poll(context).is_ready());
        if is_over || running.projector.wake.poll(context.waker()) || inner.context.is_stopping() {
            return Poll::Ready(());
        }
        if let Some(seen) = seen {
            inner.context.signals.watch(context.waker());
            if inner.lives.durable() != seen {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    })
    .await;
}

impl Runner {
    async fn step(&mut self, inner: &Arc<Core>) -> Next {
        if inner.context.is_stopping() {
            self.store_skipped(&*inner.projections.views).await;
            return Next::End;
        }
        match self.attempt(inner).await {
            Ok(next) => next,
            Err(reason) => self.retry(reason),
        }
    }

    fn retry(&mut self, reason: String) -> Next {
        // What is stored may be newer than this runner knows: the answer may have been lost.
        self.stored = None;
        let pause = RETRY_FIRST.saturating_mul(1 << self.failures.min(16)).min(RETRY_LAST);
        self.failures += 1;
        let name = self.projector.consumer.name();
        tracing::warn!("projection {name} tries again in {pause:?}: {reason}");
        self.projector.report.send_modify(|report| {
            report.retries += 1;
            report.state = State::Retrying { reason };
        });
        Next::Pause(pause)
    }

    /// Takes one batch at most. An error is worth another attempt.
    async fn attempt(&mut self, inner: &Arc<Core>) -> Result<Next, String> {
        let views = &*inner.projections.views;
        self.follow_requests(views).await?;
        if self.has_stopped {
            return Ok(Next::WaitForRequest);
        }
        let life = match &*inner.lives.status() {
            Status::Running(life) => life.clone(),
            Status::Down(_) => return Ok(Next::WaitForCommit(None)),
        };
        if self.stored.is_none() {
            self.load_offset(views, &life).await?;
            self.look_for_missing(inner, &life).await?;
        }
        if !std::ptr::eq(self.checked.as_ptr(), Arc::as_ptr(&life)) {
            let mismatch = source::mismatch(inner, &life, self.read).await;
            if let Some(reason) = mismatch.map_err(|error| error.to_string())? {
                return Ok(self.stop(reason));
            }
            self.checked = Arc::downgrade(&life);
        }
        let durable = life.ledger.durable();
        let commits = source::next(inner, &life, self.read.position).await;
        let commits = commits.map_err(|error| error.to_string())?;
        if life.ledger.is_over() {
            // The next life says what of this one counts.
            return Ok(Next::Continue);
        }
        if commits.is_empty() {
            if std::mem::replace(&mut self.is_idle, true) && self.was_moved(views).await? {
                return Ok(Next::Continue);
            }
            self.report_reached(durable);
            self.report_complete(inner);
            return Ok(Next::WaitForCommit(Some(durable)));
        }
        self.is_idle = false;
        let has_more = commits.last().is_some_and(|last| last.position() < durable);
        let next = self.take(&commits, views, has_more).await;
        if !has_more && matches!(next, Ok(Next::Pause(_))) {
            self.report_complete(inner);
        }
        next
    }

    /// Has a batch taken and stores how far that went.
    async fn take(&mut self, commits: &[Commit], views: &dyn Views, has_more: bool) -> Result<Next, String> {
        let projector = self.projector.clone();
        let handled = projector.consumer.handle(commits, &mut self.cache, views).await?;
        let Handled {
            commits: counted,
            events,
            poison,
        } = handled;
        if let Some(last) = counted.checked_sub(1).and_then(|last| commits.get(last)) {
            self.read = ViewOffset {
                position: last.position(),
                checksum: last.checksum_sealed(),
                version: projector.consumer.version(),
            };
            let bytes: usize = commits[..counted].iter().map(|commit| commit.bytes().len()).sum();
            self.skipped_bytes += bytes;
            if (events > 0 || self.skipped_bytes > SKIPPED_BYTES_MAX || poison.is_some()) && !self.store(views).await? {
                return Ok(Next::Continue);
            }
            projector.report.send_modify(|report| {
                report.events += events as u64;
                report.batches += 1;
                report.at_micros = last.stamp().at_micros;
            });
            self.report_reached(last.position());
        }
        if let Some(reason) = poison {
            return Ok(self.stop(reason));
        }
        self.cache.shrink(CACHE_BYTES_MAX);
        Ok(if has_more { Next::Continue } else { Next::Pause(PAUSE) })
    }

    /// Begins anew, or resumes, if it was asked to.
    async fn follow_requests(&mut self, views: &dyn Views) -> Result<(), String> {
        let requests = self.projector.take_requests();
        let resume = requests.resume && self.has_stopped;
        let rebuild = requests.rebuilds > self.projector.report.borrow().rebuilds;
        if rebuild {
            self.clear(views).await?;
            self.projector.report.send_modify(|report| {
                // In one step: who waits for the rebuild would take a stop from before it for one after it.
                report.rebuilds = requests.rebuilds;
                report.reached = None;
                report.state = State::Running;
            });
        } else if resume {
            self.projector
                .report
                .send_modify(|report| report.state = State::Running);
        }
        if rebuild || resume {
            self.has_stopped = false;
            self.stored = None;
        }
        Ok(())
    }

    async fn clear(&mut self, views: &dyn Views) -> Result<(), String> {
        self.cache.clear();
        self.stored = None;
        let name = self.projector.consumer.name();
        tracing::info!("projection {name} is rebuilt from the first event");
        let cleared = views.clear(name).await;
        cleared.map_err(|error| format!("it cannot be cleared: {error}"))
    }

    /// Reads how far the rows have come.
    async fn load_offset(&mut self, views: &dyn Views, life: &Life) -> Result<(), String> {
        let projector = self.projector.clone();
        let (name, version) = (projector.consumer.name(), projector.consumer.version());
        let read = views.offset(name).await;
        let mut found = read.map_err(|error| format!("its offset cannot be read: {error}"))?;
        if let Some(other) = found.filter(|found| found.version != version) {
            let other = other.version;
            tracing::info!("projection {name} was written by version {other}, this is version {version}");
            self.clear(views).await?;
            found = None;
        }
        self.cache.clear();
        self.skipped_bytes = 0;
        self.stored = Some(found);
        self.checked = Weak::new();
        self.read = found.unwrap_or_else(|| ViewOffset {
            position: Ends::of(life).start(),
            checksum: 0,
            version,
        });
        Ok(())
    }

    /// Says so if history that it has not read was removed.
    async fn look_for_missing(&self, inner: &Core, life: &Life) -> Result<(), String> {
        let (name, kind) = (self.projector.consumer.name(), self.projector.consumer.kind());
        let removed = crate::retention::removed_upto(inner, life, kind).await;
        let removed = removed.map_err(|error| error.to_string())?;
        let missed = removed.filter(|upto| *upto > self.read.position);
        if let Some(upto) = missed {
            tracing::warn!(
                "projection {name} begins after commit {}, and history of {kind} up to commit {upto} was removed: its rows do not \
                 say all that happened",
                self.read.position
            );
        }
        if missed.is_some() || self.read.position.commit == CommitNo(0) {
            self.projector.report.send_modify(|report| report.missed_upto = missed);
        }
        Ok(())
    }

    /// Stores what has changed and how far it has come; `false`: somebody else has written, it begins from there.
    async fn store(&mut self, views: &dyn Views) -> Result<bool, String> {
        let batch = ViewBatch {
            expected: self.stored.flatten(),
            offset: self.read,
            changes: self.cache.changes(),
        };
        let name = self.projector.consumer.name();
        let applied = views.apply(name, batch).await;
        match applied.map_err(|error| format!("its rows cannot be written: {error}"))? {
            Applied::Done => {
                self.stored = Some(Some(self.read));
                self.skipped_bytes = 0;
                Ok(true)
            }
            Applied::Moved(found) => {
                let found = found.map_or_else(|| "cleared".to_owned(), |found| found.position.to_string());
                tracing::info!("projection {name} was moved by somebody else ({found}); it goes on from there");
                self.cache.clear();
                self.stored = None;
                Ok(false)
            }
        }
    }

    /// With nothing to do: whether somebody else has cleared or written the rows. It begins from there then.
    async fn was_moved(&mut self, views: &dyn Views) -> Result<bool, String> {
        let name = self.projector.consumer.name();
        let found = views.offset(name).await;
        let found = found.map_err(|error| format!("its offset cannot be read: {error}"))?;
        let moved = self.stored != Some(found);
        if moved {
            tracing::info!("projection {name} was moved by somebody else; it goes on from there");
            self.cache.clear();
            self.stored = None;
        }
        Ok(moved)
    }

    /// Before the end: what was read without an event for it need not be read again.
    async fn store_skipped(&mut self, views: &dyn Views) {
        if self.has_stopped || self.skipped_bytes == 0 || self.stored.is_none() {
            return;
        }
        if let Err(reason) = self.store(views).await {
            let name = self.projector.consumer.name();
            tracing::warn!("projection {name} reads a part of the journal again at the next start: {reason}");
        }
    }

    fn report_reached(&mut self, reached: Position) {
        self.failures = 0;
        self.projector.report.send_if_modified(|report| {
            let is_new = report.reached != Some(reached) || report.state != State::Running;
            report.reached = Some(reached);
            report.state = State::Running;
            is_new
        });
    }

    /// It has just read all there was.
    fn report_complete(&self, inner: &Core) {
        let now = inner.context.host.elapsed_micros();
        // Nobody waits for this alone.
        self.projector.report.send_if_modified(|report| {
            report.complete_micros = now;
            false
        });
    }

    fn stop(&mut self, reason: String) -> Next {
        let name = self.projector.consumer.name();
        tracing::error!("projection {name} has stopped: {reason}");
        self.has_stopped = true;
        self.cache.clear();
        let report = &self.projector.report;
        report.send_modify(|report| report.state = State::Stopped { reason });
        Next::WaitForRequest
    }
}
