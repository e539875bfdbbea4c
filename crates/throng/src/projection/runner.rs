//! Runs one projection or sink, behind the journal and on the engine's threads: reads commits, has the events taken, and stores the new
//! position.

use super::{
    EventOffset, ProjectionState, SkipError, Skipped,
    consumer::{Handled, Obstacle},
    metrics::Families,
    place::{PLACE_KEY, ProjectionPosition},
    projector::{Projections, Projector},
    rows::RowCache,
    skip::{self, Skip},
    source, traced,
};
use crate::{
    context::micros,
    epoch::{self, Epoch, removals::removed_upto},
    host::Task,
};
use std::{
    sync::{Arc, PoisonError, Weak, atomic::Ordering},
    task::Poll,
    time::Duration,
};
use throng_core::limits;
use throng_journal::{Applied, Commit, CommitNo, Position, Positions, Stream, Stretch, ViewBatch, ViewOffset, Views};

/// The pause after catching up, so that it takes what has gathered meanwhile at once.
const PAUSE: Duration = Duration::from_millis(100);
/// The interval at which an idle runner checks whether another process has cleared its rows.
const IDLE: Duration = Duration::from_secs(10);
/// The interval at which a node of a cluster checks whether it is to run it, and whether another process has cleared its rows.
const LOOK: Duration = Duration::from_millis(500);
/// The time after which commits without events for it are stored as read, in a cluster. Other nodes read the progress from the rows.
const STORE: Duration = Duration::from_secs(1);
/// The first pause after a failure; it doubles up to the last.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LAST: Duration = Duration::from_secs(30);
/// The row of a sink with the last event it has delivered.
const DELIVERED_KEY: &[u8] = b"delivered";
/// Rows kept in memory between batches, in bytes.
const CACHE_BYTES_MAX: usize = 8 << 20;
/// The bytes of commits without events for it after which the offset is stored.
const SKIPPED_BYTES_MAX: usize = 16 << 20;

/// The next step of a runner.
enum Next {
    /// Continues, after other tasks that are ready.
    Continue,
    Pause(Duration),
    /// Waits for something durable after this.
    WaitForCommit(Option<Position>),
    /// Waits for a request.
    WaitForRequest,
    End,
}

/// The result of having read everything.
enum Completion {
    Complete,
    /// Another process has written the rows.
    Moved,
    Refused(Obstacle),
}

/// Returns the last event that a sink has delivered, according to its row.
async fn delivered(views: &dyn Views, name: &str) -> Result<Option<EventOffset>, String> {
    let row = views.get(name, vec![DELIVERED_KEY.to_vec()]).await;
    let row = row.map_err(|error| format!("what it has delivered cannot be read: {error}"))?;
    let text = row
        .into_iter()
        .flatten()
        .next()
        .and_then(|row| String::from_utf8(row).ok());
    Ok(text.and_then(|text| text.parse().ok()))
}

struct Runner {
    projector: Arc<Projector>,
    /// The stored offset, if there is one; the outer `None`: it has to be read first.
    stored: Option<Option<ViewOffset>>,
    /// The place up to which it has read.
    read: ProjectionPosition,
    /// True if a row beside the projection's holds the position.
    has_row: bool,
    /// The streams at its last look. They are read to their ends before the next look.
    streams: Vec<Stream>,
    /// The epoch in which `read` was checked against the history.
    checked: Weak<Epoch>,
    cache: RowCache,
    /// The bytes of commits without events for it, since the offset was stored.
    skipped_bytes: usize,
    /// Failures since it succeeded last.
    failures: u32,
    /// The last event that a sink delivered.
    delivered: Option<EventOffset>,
    /// The last comparison with a sink's receiver, by the host's clock; `None`: it is due before anything is delivered.
    compared_micros: Option<u64>,
    has_stopped: bool,
    /// True if the last read found nothing new.
    is_idle: bool,
    /// The times of its last store, and of its last check of what others have stored, by the host's clock.
    stored_micros: u64,
    looked_micros: u64,
}

/// Starts them all.
pub(crate) fn start(projections: &Arc<Projections>) {
    if projections.all.is_empty() {
        return;
    }
    let context = &projections.epochs.context;
    context.metrics.register(|registry| {
        let families = Families::register(registry);
        for projector in &projections.all {
            let gauges = families.of(projector.consumer.name());
            *projector.gauges.lock().unwrap_or_else(PoisonError::into_inner) = Some(gauges);
        }
    });
    projections.running.store(projections.all.len(), Ordering::Release);
    for projector in &projections.all {
        let running = Running {
            projections: Arc::downgrade(projections),
            projector: projector.clone(),
        };
        context.host.spawn(Box::pin(run(running)));
    }
}

/// A runner counts itself out when it is dropped, whatever ends it.
struct Running {
    projections: Weak<Projections>,
    projector: Arc<Projector>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.projector.report.send_modify(|report| report.ended = true);
        if let Some(projections) = self.projections.upgrade() {
            projections.running.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Runs it until the engine stops.
async fn run(running: Running) {
    let mut runner = Runner {
        projector: running.projector.clone(),
        stored: None,
        read: ProjectionPosition::default(),
        has_row: false,
        streams: Vec::new(),
        checked: Weak::new(),
        cache: RowCache::default(),
        skipped_bytes: 0,
        failures: 0,
        delivered: None,
        compared_micros: None,
        has_stopped: false,
        is_idle: false,
        stored_micros: 0,
        looked_micros: 0,
    };
    loop {
        let Some(projections) = running.projections.upgrade() else {
            return;
        };
        let next = runner.step(&projections).await;
        let sleep = |duration| Some(projections.epochs.context.host.sleep(duration));
        let (sleep, seen) = match next {
            Next::End => return,
            Next::Continue => {
                drop(projections);
                crate::host::yield_now().await;
                continue;
            }
            Next::Pause(duration) => (sleep(duration), None),
            Next::WaitForCommit(seen) => (sleep(IDLE), Some(seen)),
            Next::WaitForRequest => (None, None),
        };
        drop(projections);
        wait(&running, sleep, seen).await;
    }
}

/// Waits for the end of the time, a durable position other than `seen`, a request, or the end of the engine.
async fn wait(running: &Running, mut sleep: Option<Task>, seen: Option<Option<Position>>) {
    std::future::poll_fn(|context| {
        let Some(projections) = running.projections.upgrade() else {
            return Poll::Ready(());
        };
        let is_over = sleep
            .as_mut()
            .is_some_and(|sleep| sleep.as_mut().poll(context).is_ready());
        if is_over || running.projector.wake.poll(context.waker()) || projections.epochs.context.is_stopping() {
            return Poll::Ready(());
        }
        if let Some(seen) = seen {
            projections.epochs.context.signals.watch(context.waker());
            if projections.epochs.durable() != seen {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    })
    .await;
}

impl Runner {
    async fn step(&mut self, projections: &Projections) -> Next {
        if projections.epochs.context.is_stopping() {
            self.store_skipped(projections).await;
            return Next::End;
        }
        match self.attempt(projections).await {
            Ok(next) => next,
            Err(reason) => self.retry(reason),
        }
    }

    fn retry(&mut self, reason: String) -> Next {
        // The store may have more than this runner knows, if the answer to its last write was lost.
        self.stored = None;
        let pause = RETRY_FIRST.saturating_mul(1 << self.failures.min(16)).min(RETRY_LAST);
        self.failures += 1;
        let name = self.projector.consumer.name();
        tracing::warn!("projection {name} tries again in {pause:?}: {reason}");
        self.projector.report.send_modify(|report| {
            report.retries += 1;
            report.state = ProjectionState::Retrying { reason };
        });
        Next::Pause(pause)
    }

    /// Takes at most one batch. An error is retried.
    async fn attempt(&mut self, projections: &Projections) -> Result<Next, String> {
        let (views, journal) = (&*projections.views, &*projections.epochs.context.journal);
        self.follow_requests(projections).await?;
        // Without a running epoch no position is durable, and a wait for a change of position would end at once.
        let Some(epoch) = projections.epochs.running() else {
            return Ok(Next::WaitForCommit(None));
        };
        let is_member = projections.epochs.member().is_some();
        if self.is_remote(projections, &epoch, views).await? {
            let is_awaited = self.projector.report.receiver_count() > 0;
            return Ok(Next::Pause(if is_awaited { PAUSE } else { LOOK }));
        }
        if self.has_stopped {
            return Ok(if is_member {
                Next::Pause(LOOK)
            } else {
                Next::WaitForRequest
            });
        }
        if self.stored.is_none() {
            self.load_offset(views, &epoch).await?;
            self.look_for_missing(projections).await?;
        }
        let durable = epoch.group_commit.durable();
        let is_checked = std::ptr::eq(self.checked.as_ptr(), Arc::as_ptr(&epoch));
        if !is_checked || self.read.told.next(&self.streams).is_empty() {
            let streams = epoch::streams(&projections.epochs.context, Some(&epoch), self.read.told.first()).await;
            self.streams = streams.map_err(|error| error.to_string())?;
        }
        if !is_checked {
            let mismatch = source::mismatch(journal, &self.streams, &self.read).await;
            if let Some(reason) = mismatch.map_err(|error| error.to_string())? {
                // In a database that was rolled back, the rows still fit the journal; only the memory does not.
                if self.stored != Some(Some(self.read.last)) || self.was_moved(views).await? {
                    self.stored = None;
                    return Ok(Next::Continue);
                }
                return Ok(self.stop(reason, None));
            }
            self.checked = Arc::downgrade(&epoch);
        }
        if self.is_to_compare(projections) {
            let compared = self.projector.clone();
            if let Err(obstacle) = compared.consumer.compare(self.delivered).await {
                return self.meet(obstacle, projections, &epoch).await;
            }
        }
        let Some(stretch) = self.next_stretch() else {
            if self.is_to_look(projections) && self.was_moved(views).await? {
                return Ok(Next::Continue);
            }
            if is_member && self.is_to_store(projections) && !self.store(projections).await? {
                return Ok(Next::Continue);
            }
            self.report_reached((!is_member).then_some(durable));
            match self.is_complete(projections).await? {
                Completion::Complete => {}
                Completion::Moved => return Ok(Next::Continue),
                Completion::Refused(obstacle) => return self.meet(obstacle, projections, &epoch).await,
            }
            return Ok(if is_member {
                Next::Pause(PAUSE)
            } else {
                Next::WaitForCommit(Some(durable))
            });
        };
        let commits = source::read(journal, stretch).await;
        let commits = commits.map_err(|error| error.to_string())?;
        if epoch.group_commit.is_over() {
            // The next epoch decides what counts of this one, and whether this node continues.
            return Ok(Next::Continue);
        }
        self.is_idle = false;
        let next = self.take(&commits, projections, &epoch).await?;
        if !matches!(next, Next::Pause(_)) {
            return Ok(next);
        }
        match self.is_complete(projections).await? {
            Completion::Complete => Ok(next),
            Completion::Moved => Ok(Next::Continue),
            Completion::Refused(obstacle) => self.meet(obstacle, projections, &epoch).await,
        }
    }

    /// True if the receiver of a sink has to be compared now.
    fn is_to_compare(&mut self, projections: &Projections) -> bool {
        let now = projections.epochs.context.host.elapsed_micros();
        let is_due = self
            .compared_micros
            .is_none_or(|compared| now.saturating_sub(compared) >= micros(IDLE));
        if is_due {
            self.compared_micros = Some(now);
        }
        is_due && !self.projector.consumer.is_projection()
    }

    /// Decides after a failed delivery: to retry, to go back, or to stop.
    async fn meet(&mut self, obstacle: Obstacle, projections: &Projections, epoch: &Epoch) -> Result<Next, String> {
        match obstacle {
            Obstacle::Retry(reason) => Err(reason),
            Obstacle::Unusable(reason) => Ok(self.stop(reason, None)),
            Obstacle::Behind(reached) => self.go_back(reached, projections, epoch).await,
        }
    }

    /// Handles a receiver that has lost events: those after its last one are delivered again, and the position is stored only after that.
    async fn go_back(
        &mut self,
        reached: Option<EventOffset>,
        projections: &Projections,
        epoch: &Epoch,
    ) -> Result<Next, String> {
        let (name, version) = (self.projector.consumer.name(), self.projector.consumer.version());
        let mut place = ProjectionPosition::beginning(epoch, version);
        let reached = match projections.epochs.member() {
            None => reached,
            // In a cluster one event does not determine the receiver's position in every stream, so all is removed and delivered again.
            Some(_) => {
                if reached.is_some() {
                    self.clear_receiver().await?;
                }
                None
            }
        };
        if let Some(EventOffset { position, .. }) = reached {
            let commit = source::commit(&*projections.epochs.context.journal, position)
                .await
                .map_err(|error| error.to_string())?;
            let Some(commit) = commit else {
                let reason = format!(
                    "the receiver has come to commit {position}, which the journal does not have: it is of another history"
                );
                return Ok(self.stop(reason, None));
            };
            place.told = Positions::from(position);
            place.last = ViewOffset {
                position,
                checksum: commit.checksum_sealed(),
                version,
            };
        }
        // Skipped events after `reached` are skipped again.
        let (kept, again): (_, Vec<_>) = std::mem::take(&mut self.read.skipped)
            .into_iter()
            .partition(|skipped| reached.is_some_and(|reached| skipped.event <= reached));
        place.skipped = kept;
        let again = again.into_iter().map(|skipped| Skipped { number: 0, ..skipped });
        place.decided = again.chain(std::mem::take(&mut self.read.decided)).collect();
        let from = reached.map_or_else(|| "the first event".to_owned(), |reached| reached.to_string());
        tracing::warn!("what sink {name} has delivered is lost in part: it delivers again, from {from} on");
        self.read = place;
        self.delivered = reached;
        self.streams = Vec::new();
        self.projector.report.send_modify(|report| {
            report.is_rebuilding = true;
            report.told = Some(self.read.told.clone());
        });
        self.look_for_missing(projections).await?;
        Ok(Next::Continue)
    }

    /// True if another node runs the projection. Takes that node's progress from the rows.
    async fn is_remote(&mut self, projections: &Projections, epoch: &Epoch, views: &dyn Views) -> Result<bool, String> {
        let (name, version) = (self.projector.consumer.name(), self.projector.consumer.version());
        let shard = limits::shard_of(
            limits::hash("projection", name),
            projections.epochs.context.registry.shards(),
        );
        let was_remote = self.projector.report.borrow().state == ProjectionState::Remote;
        if epoch.group_commit.shards.contains(shard) {
            if was_remote {
                tracing::info!("projection {name} runs on this node from now on");
                self.stored = None;
                self.projector
                    .report
                    .send_modify(|report| report.state = ProjectionState::Running);
            }
            return Ok(false);
        }
        if !was_remote {
            self.has_stopped = false;
            self.stored = None;
            self.cache.clear();
            self.read = ProjectionPosition::default();
        }
        let found = views.offset(name).await;
        let found = found.map_err(|error| format!("its offset cannot be read: {error}"))?;
        if !was_remote || found != Some(self.read.last) {
            let stored = ProjectionPosition::stored(views, name).await?.map(|(place, _)| place);
            let own = stored.as_ref().filter(|place| place.last.version == version);
            let told = own.map(|place| place.told.clone());
            let is_rebuilding = own.is_none_or(|place| place.is_rebuilding);
            let skipped = own.map_or_else(Vec::new, |place| place.skipped.clone());
            self.projector.report.send_modify(|report| {
                report.state = ProjectionState::Remote;
                report.reached = told.as_ref().and_then(|told| told.positions().next());
                report.told = told;
                report.is_rebuilding = is_rebuilding;
                report.skipped = skipped;
                report.untold = 0;
            });
            self.read = stored.unwrap_or_default();
        }
        self.report_complete(projections);
        Ok(true)
    }

    /// Returns the stretch to read next. Several streams take turns.
    fn next_stretch(&self) -> Option<Stretch> {
        let next = self.read.told.next(&self.streams);
        let last = self.read.last.position.writer;
        let follows = next.iter().find(|stretch| stretch.after.writer > last);
        follows.or(next.first()).copied()
    }

    /// True if an idle runner should check what others have stored.
    fn is_to_look(&mut self, projections: &Projections) -> bool {
        let now = projections.epochs.context.host.elapsed_micros();
        let was_idle = std::mem::replace(&mut self.is_idle, true);
        let is_due = projections.epochs.member().is_none() || now.saturating_sub(self.looked_micros) > micros(LOOK);
        if is_due {
            self.looked_micros = now;
        }
        was_idle && is_due
    }

    /// True if commits without events for it have been unstored for long enough.
    fn is_to_store(&self, projections: &Projections) -> bool {
        let now = projections.epochs.context.host.elapsed_micros();
        self.skipped_bytes > 0 && now.saturating_sub(self.stored_micros) > micros(STORE)
    }

    /// Has a batch taken and stores how far that went.
    async fn take(&mut self, commits: &[Commit], projections: &Projections, epoch: &Epoch) -> Result<Next, String> {
        let views = &*projections.views;
        let projector = self.projector.clone();
        let skipped: Vec<EventOffset> = self.read.decided.iter().map(|skip| skip.event).collect();
        let host = &projections.epochs.context.host;
        let tracer = projections.epochs.context.tracer.as_deref();
        let tracer = tracer.map(|tracer| (tracer, traced::traced(epoch, commits), host.elapsed_micros()));
        let spans = tracer.as_ref().map_or(&[][..], |(_, spans, _)| spans);
        let handled = projector
            .consumer
            .handle(commits, &skipped, spans, &mut self.cache, views);
        let handled = handled.await?;
        let Handled {
            commits: counted,
            events,
            delivered,
            obstacle,
            poison,
        } = handled;
        if let Some(obstacle) = obstacle {
            return self.meet(obstacle, projections, epoch).await;
        }
        self.delivered = delivered.or(self.delivered);
        if let Some(last) = counted.checked_sub(1).and_then(|last| commits.get(last)) {
            self.read.told.tell(last.position(), &self.streams);
            self.read.last = ViewOffset {
                position: last.position(),
                checksum: last.checksum_sealed(),
                version: projector.consumer.version(),
            };
            let bytes: usize = commits[..counted].iter().map(|commit| commit.bytes().len()).sum();
            self.skipped_bytes += bytes;
            let before = self.read.skipped.last().map_or(0, |last| last.number);
            let (passed, decided): (Vec<_>, _) = std::mem::take(&mut self.read.decided).into_iter().partition(|skip| {
                let at = skip.event.position;
                commits[..counted].iter().any(|commit| commit.position() == at)
            });
            self.read.decided = decided;
            skip::keep(&mut self.read.skipped, passed);
            let skips = self.read.skipped.last().map_or(0, |last| last.number) - before;
            let is_due = self.skipped_bytes > SKIPPED_BYTES_MAX
                || (projections.epochs.member().is_some() && self.is_to_store(projections));
            if (events > 0 || is_due || poison.is_some() || skips > 0) && !self.store(projections).await? {
                return Ok(Next::Continue);
            }
            if events > 0 && projector.consumer.is_to_sync() {
                let synced = views.sync().await;
                synced.map_err(|error| format!("how far it has come cannot be made durable: {error}"))?;
            }
            projector.report.send_modify(|report| {
                report.events += events as u64;
                report.batches += 1;
                report.skips += skips;
                report.skipped.clone_from(&self.read.skipped);
                report.at_micros = last.stamp().at_micros;
            });
            self.report_reached(None);
            if let Some((tracer, spans, begun)) = tracer.filter(|_| events > 0) {
                let name = projector.consumer.name();
                traced::export(tracer, &**host, name, begun, &spans);
            }
        }
        let first = commits.first().map_or(0, |first| first.stamp().at_micros);
        projector.report.send_if_modified(|report| {
            if report.at_micros == 0 {
                report.at_micros = first;
            }
            false
        });
        if let Some((reason, event)) = poison {
            // Another runner has written the rows, so they do not fit the events that this one reads.
            return Ok(match self.was_moved(views).await? {
                true => Next::Continue,
                false => self.stop(reason, event),
            });
        }
        self.cache.shrink(CACHE_BYTES_MAX);
        let has_more = self.next_stretch().is_some();
        Ok(if has_more { Next::Continue } else { Next::Pause(PAUSE) })
    }

    /// Rebuilds, resumes, or skips an event, on request.
    async fn follow_requests(&mut self, projections: &Projections) -> Result<(), String> {
        let requests = self.projector.take_requests();
        let resume = requests.resume && self.has_stopped;
        let rebuild = requests.rebuilds > self.projector.report.borrow().rebuilds;
        let mut skip = false;
        let mut answered = None;
        if let Some(asked) = requests.skip.filter(|_| !rebuild) {
            let decided = self.decide_skip(&asked, projections).await;
            // If another process has written the rows, it reads them again first.
            skip = self.has_stopped && matches!(decided, Ok(()) | Err(SkipError::Running));
            answered = Some((asked.answer, decided));
        }
        if rebuild {
            self.clear_receiver().await?;
            self.clear(&*projections.views).await?;
            self.projector.report.send_modify(|report| {
                // Reported in one step: a waiter for the rebuild would otherwise take an earlier stop for a later one.
                report.rebuilds = requests.rebuilds;
                report.reached = None;
                report.told = None;
                report.is_rebuilding = true;
                report.skipped = Vec::new();
                report.state = ProjectionState::Running;
                report.followed = requests.asked;
            });
        } else {
            self.projector.report.send_if_modified(|report| {
                if resume || skip {
                    report.state = ProjectionState::Running;
                }
                std::mem::replace(&mut report.followed, requests.asked) != requests.asked
            });
        }
        if rebuild || resume || skip {
            self.has_stopped = false;
            self.stored = None;
        }
        if let Some((answer, decided)) = answered {
            let _ = answer.send(decided);
        }
        Ok(())
    }

    /// Stores the decision to go past the event at which it has stopped.
    async fn decide_skip(&mut self, skip: &Skip, projections: &Projections) -> Result<(), SkipError> {
        let name = self.projector.consumer.name();
        let state = self.projector.report.borrow().state.clone();
        let why = match state {
            ProjectionState::Stopped { reason, at } if self.has_stopped && at == Some(skip.event) => reason,
            _ => {
                let event = skip.event;
                tracing::warn!("projection {name} has not stopped at {event} any more: it is not skipped");
                return Err(SkipError::Running);
            }
        };
        let skipped = skip.decided(&why, projections.epochs.context.host.now());
        let told = format!("as {} decided ({:?}): {why}", skipped.by, skipped.reason);
        self.read.decided.push(skipped);
        let stored = match self.store(projections).await {
            Ok(true) => projections.views.sync().await.map_err(|why| why.to_string()),
            Ok(false) => return Err(SkipError::Running),
            Err(why) => Err(why),
        };
        match stored {
            Ok(()) => {
                tracing::warn!("projection {name} goes past an event, {told}");
                Ok(())
            }
            Err(why) => {
                tracing::warn!(
                    "projection {name} stays stopped, the decision to go past an event cannot be kept: {why}"
                );
                self.read.decided.pop();
                Err(SkipError::Unavailable(why))
            }
        }
    }

    /// Clears the receiver of a sink. This comes before the rows are cleared. After a crash in between, the receiver would otherwise seem
    /// to have lost all its events.
    async fn clear_receiver(&self) -> Result<(), String> {
        let cleared = self.projector.consumer.clear().await;
        cleared.map_err(|obstacle| match obstacle {
            Obstacle::Retry(reason) | Obstacle::Unusable(reason) => reason,
            Obstacle::Behind(_) => "what was delivered cannot be cleared: it is lost already".into(),
        })
    }

    async fn clear(&mut self, views: &dyn Views) -> Result<(), String> {
        self.cache.clear();
        self.stored = None;
        let name = self.projector.consumer.name();
        tracing::info!("projection {name} is rebuilt from the first event");
        let cleared = views.clear(name).await;
        cleared.map_err(|error| format!("it cannot be cleared: {error}"))
    }

    /// Reads the position of the rows.
    async fn load_offset(&mut self, views: &dyn Views, epoch: &Epoch) -> Result<(), String> {
        let projector = self.projector.clone();
        let (name, version) = (projector.consumer.name(), projector.consumer.version());
        let mut found = ProjectionPosition::stored(views, name).await?;
        if let Some((other, _)) = found.as_ref().filter(|(found, _)| found.last.version != version) {
            let other = other.last.version;
            tracing::info!("projection {name} was written by version {other}, this is version {version}");
            self.clear_receiver().await?;
            self.clear(views).await?;
            found = None;
        } else if found.as_ref().is_some_and(|(found, _)| found.is_asked_for_anew()) {
            self.clear_receiver().await?;
        }
        self.cache.clear();
        self.skipped_bytes = 0;
        self.checked = Weak::new();
        self.stored = Some(found.as_ref().map(|(place, _)| place.last));
        self.has_row = found.as_ref().is_some_and(|(_, has_row)| *has_row);
        self.read = found.map_or_else(|| ProjectionPosition::beginning(epoch, version), |(place, _)| place);
        self.compared_micros = None;
        self.delivered = match projector.consumer.is_projection() {
            true => None,
            false => delivered(views, name).await?,
        };
        let ProjectionPosition {
            told,
            is_rebuilding,
            skipped,
            ..
        } = self.read.clone();
        self.projector.report.send_modify(|report| {
            report.is_rebuilding = is_rebuilding;
            report.skipped = skipped;
            report.told = Some(told);
        });
        Ok(())
    }

    /// Reports history that was removed before it was read.
    async fn look_for_missing(&self, projections: &Projections) -> Result<(), String> {
        let (name, kind) = (self.projector.consumer.name(), self.projector.consumer.kind());
        let removed = removed_upto(&projections.epochs, kind).await;
        let removed = removed.map_err(|error| error.to_string())?;
        let missed = removed.into_iter().filter(|upto| !self.read.told.has(*upto)).max();
        if let Some(upto) = missed {
            tracing::warn!(
                "projection {name} begins after commit {}, and history of {kind} up to commit {upto} was removed: its rows do not \
                 say all that happened",
                self.read.last.position
            );
        }
        if missed.is_some() || self.read.last.position.commit == CommitNo(0) {
            self.projector.report.send_modify(|report| report.missed_upto = missed);
        }
        Ok(())
    }

    /// Stores the changes and the position; `false`: another process has written, and the runner starts from there.
    async fn store(&mut self, projections: &Projections) -> Result<bool, String> {
        let row = self.read.row();
        let has_row = row.is_some();
        let mut changes = self.cache.changes();
        if let Some(delivered) = self.delivered {
            changes.push((DELIVERED_KEY.to_vec(), Some(delivered.to_string().into_bytes())));
        }
        if has_row || self.has_row {
            changes.push((PLACE_KEY.to_vec(), row));
        }
        let batch = ViewBatch {
            expected: self.stored.flatten(),
            offset: self.read.last,
            changes,
        };
        let views = &*projections.views;
        let name = self.projector.consumer.name();
        let applied = views.apply(name, batch).await;
        match applied.map_err(|error| format!("its rows cannot be written: {error}"))? {
            Applied::Done => {
                self.stored = Some(Some(self.read.last));
                self.has_row = has_row;
                self.skipped_bytes = 0;
                self.stored_micros = projections.epochs.context.host.elapsed_micros();
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

    /// True if another process has cleared or written the rows of an idle runner, which then starts from there.
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

    /// Stores the position at the end, so that commits without events for it need not be read again.
    async fn store_skipped(&mut self, projections: &Projections) {
        if self.has_stopped || self.skipped_bytes == 0 || self.stored.is_none() {
            return;
        }
        if let Err(reason) = self.store(projections).await {
            let name = self.projector.consumer.name();
            tracing::warn!("projection {name} reads a part of the journal again at the next start: {reason}");
        }
    }

    /// Reports everything read as taken. In an engine without peers, `durable` also covers what its writer has begun with.
    fn report_reached(&mut self, durable: Option<Position>) {
        self.failures = 0;
        let reached = durable.or_else(|| self.read.told.positions().next());
        let told = Some(&self.read.told);
        let untold = self.read.told.untold(&self.streams);
        self.projector.report.send_if_modified(|report| {
            let is_new =
                report.reached != reached || report.told.as_ref() != told || report.state != ProjectionState::Running;
            report.reached = reached;
            report.told = told.cloned();
            report.untold = untold;
            report.state = ProjectionState::Running;
            is_new
        });
    }

    /// Marks a rebuilt read model as complete once everything has been read.
    async fn is_complete(&mut self, projections: &Projections) -> Result<Completion, String> {
        let projector = self.projector.clone();
        if self.read.is_rebuilding
            && let Err(obstacle) = projector.consumer.complete().await
        {
            return Ok(Completion::Refused(obstacle));
        }
        let was_rebuilding = std::mem::take(&mut self.read.is_rebuilding);
        if was_rebuilding && self.has_row && !self.store(projections).await? {
            return Ok(Completion::Moved);
        }
        self.report_complete(projections);
        if was_rebuilding {
            self.projector.report.send_modify(|report| report.is_rebuilding = false);
        }
        Ok(Completion::Complete)
    }

    /// Reports that everything has just been read.
    fn report_complete(&self, projections: &Projections) {
        let now = projections.epochs.context.host.elapsed_micros();
        // This alone wakes nobody.
        self.projector.report.send_if_modified(|report| {
            report.complete_micros = now;
            false
        });
    }

    fn stop(&mut self, reason: String, at: Option<EventOffset>) -> Next {
        let name = self.projector.consumer.name();
        tracing::error!("projection {name} has stopped: {reason}");
        self.has_stopped = true;
        self.cache.clear();
        let report = &self.projector.report;
        report.send_modify(|report| report.state = ProjectionState::Stopped { reason, at });
        Next::WaitForRequest
    }
}
