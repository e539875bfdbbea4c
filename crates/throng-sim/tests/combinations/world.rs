//! A service of diaries, the steps it goes through, and the checks of it.

use crate::{
    diary::{AGED, COUNTED, Command, Diary, DiaryEvent, FOREVER, KINDS, Look, Never},
    disk::Hit,
    journals::{Backend, DiskLog, Place},
    model::{CLOSED, Models, Moment, Of, Rows, TICK, lacking, name},
    step::{Action, DIARIES, End, Step, Until},
};
use std::{
    collections::BTreeSet,
    ops::RangeInclusive,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use throng::{
    Engine, FeedError, History,
    journal::{MemoryViews, ViewRange, Views as _},
    model::{Error, Timestamp},
    projection::{DurableEvent, Interrupt, Projection, Rows as ViewRows},
};
use throng_log::tools;
use throng_sim::Sim;

/// A projection of the numbers of each counted diary's events.
pub(crate) struct Numbers;

impl Projection for Numbers {
    const NAME: &'static str = "numbers";
    type Of = Diary<COUNTED>;
    fn apply(&self, seen: &DurableEvent<Diary<COUNTED>>, rows: &mut ViewRows<'_>) -> Result<(), Interrupt> {
        let key = seen.id.to_string();
        let mut row = rows.json::<Vec<(u64, u64)>>(&key)?.unwrap_or_default();
        if row.last().is_some_and(|(last, _)| *last >= seen.seq) {
            return Err(Interrupt::poison(format!("event {} follows {row:?}", seen.seq)));
        }
        row.push(match &seen.event {
            DiaryEvent::Written { number, .. } => (seen.seq, *number),
            DiaryEvent::Closed => (seen.seq, CLOSED),
        });
        rows.put_json(&key, &row)
    }
}

/// The rows of the read model. They outlive the processes.
#[derive(Clone, Default)]
pub(crate) struct SharedViews(Arc<Mutex<MemoryViews>>);

impl SharedViews {
    pub(crate) fn get(&self) -> MemoryViews {
        self.0.lock().unwrap().clone()
    }

    fn set(&self, views: MemoryViews) -> MemoryViews {
        std::mem::replace(&mut *self.0.lock().unwrap(), views)
    }
}

/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(50);
/// Some retries depend on the real clock.
const ATTEMPTS_MAX: u32 = 200;
const TRIES_MAX: Duration = Duration::from_secs(2);

pub(crate) struct World {
    sim: Sim,
    backend: Arc<dyn Backend>,
    views: SharedViews,
    /// True if passes also run by themselves.
    has_passes: bool,
    models: Models,
    moments: Vec<Moment>,
    numbers: u64,
    /// The events that the read model was told it lacks.
    lacks: BTreeSet<(u64, u64)>,
    /// The moments that the copy may represent.
    copied: Option<RangeInclusive<usize>>,
    has_removed: bool,
    /// The moment before which removed history may be superseded by later commits.
    removed_before: usize,
    has_erased: bool,
    places: u64,
}

type Checked<T = ()> = Result<T, String>;

async fn command(engine: Engine, (kind, id): Of, key: String, command: Command) -> Result<u64, Error<Never>> {
    match kind {
        FOREVER => engine.entity::<Diary<FOREVER>>(id).once(&key).ask(command).await,
        AGED => engine.entity::<Diary<AGED>>(id).once(&key).ask(command).await,
        _ => engine.entity::<Diary<COUNTED>>(id).once(&key).ask(command).await,
    }
}

async fn look(engine: Engine, (kind, id): Of) -> Result<(u64, u64), Error<Never>> {
    match kind {
        FOREVER => engine.entity::<Diary<FOREVER>>(id).read(Look).await,
        AGED => engine.entity::<Diary<AGED>>(id).read(Look).await,
        _ => engine.entity::<Diary<COUNTED>>(id).read(Look).await,
    }
}

/// Reads all pages. A copy may have only the beginning and the end of a history.
async fn history(engine: Engine, kind: usize, id: &str) -> Result<History, FeedError> {
    let mut all = engine.history(kind, id, 0, 1_000).await?;
    while let Some(last) = all.events.last().map(|event| event.seq).filter(|_| all.more) {
        let page = engine.history(kind, id, last, 1_000).await?;
        all.more = page.more;
        all.events.extend(page.events);
    }
    Ok(all)
}

fn is_known<T>(result: &Result<T, Error<Never>>) -> bool {
    !matches!(
        result,
        Err(Error::Overloaded { .. } | Error::Unavailable { .. } | Error::Expired | Error::OutcomeUnknown)
    )
}

impl World {
    pub(crate) fn new(sim: Sim, backend: Arc<dyn Backend>, views: SharedViews, has_passes: bool) -> Self {
        Self {
            sim,
            backend,
            views,
            has_passes,
            models: Models::new(),
            moments: Vec::new(),
            numbers: 0,
            lacks: BTreeSet::new(),
            copied: None,
            has_removed: has_passes,
            removed_before: 0,
            has_erased: false,
            places: 0,
        }
    }

    pub(crate) async fn live(mut self, steps: &[Step]) -> Checked {
        let (sim, backend) = (self.sim.clone(), self.backend.clone());
        // A call that waits for a dead process is abandoned.
        drop(self.sim.spawn(async move {
            loop {
                sim.sleep(PAUSE).await;
                bury(&sim, &*backend);
            }
        }));
        self.up().await?;
        self.moment(true);
        for (number, step) in steps.iter().enumerate() {
            let context = |wrong| format!("step {number}, {step:?}: {wrong}");
            self.sim.note(format_args!("step {number}: {step:?}"));
            self.step(step).await.map_err(context)?;
        }
        self.down(End::Stop).await?;
        if let Some(log) = self.backend.log() {
            let place = log.place();
            log.verify(&place.disk, &place.dir)?;
        }
        self.backend.lose_store();
        self.up().await?;
        self.check().await.map_err(|wrong| format!("in the end: {wrong}"))?;
        self.down(End::Stop).await
    }

    /// Repeats a call on a running process until its outcome is known.
    async fn known<T: Send + 'static, F: Future<Output = Option<T>> + Send + 'static>(
        &self,
        call: impl Fn(Engine) -> F,
    ) -> Checked<T> {
        let begun = Instant::now();
        let mut attempts = 0;
        loop {
            self.up().await?;
            if let Ok(Some(known)) = self.sim.call(&call).await {
                return Ok(known);
            }
            attempts += 1;
            if attempts > ATTEMPTS_MAX && begun.elapsed() > TRIES_MAX {
                let health = self.sim.engine().map(|engine| engine.health());
                return Err(format!("nothing comes of it: {health:?}"));
            }
            self.bury();
            self.sim.sleep(PAUSE).await;
        }
    }

    fn bury(&self) {
        bury(&self.sim, &*self.backend);
    }

    async fn up(&self) -> Checked {
        let begun = Instant::now();
        let mut attempts = 0;
        while self.sim.engine().is_none() {
            if let Ok(Err(error)) = self.sim.start().await {
                attempts += 1;
                if attempts > ATTEMPTS_MAX && begun.elapsed() > TRIES_MAX {
                    return Err(format!("it does not start: {error}"));
                }
                self.bury();
                self.sim.sleep(PAUSE).await;
            }
        }
        Ok(())
    }

    async fn down(&self, end: End) -> Checked {
        if matches!(end, End::Stop) {
            let _is_stopped = self.sim.stop().await;
        }
        self.backend.end(end);
        self.sim.kill();
        Ok(())
    }

    /// Records everything acknowledged by now.
    fn moment(&mut self, is_exact: bool) {
        let engine = self.sim.engine();
        let upto = engine.and_then(|engine| engine.health().position);
        self.moments.push(Moment {
            at: self.sim.now(),
            upto: upto.filter(|upto| upto.commit.0 > 0),
            models: self.models.clone(),
            is_exact,
        });
    }

    async fn ask(&mut self, of: Of, what: Command) -> Checked<Result<u64, Error<Never>>> {
        self.sim.sleep(TICK).await;
        let key = format!("key {}", self.numbers);
        let ask = move |engine| {
            let asked = command(engine, of, key.clone(), what.clone());
            async move { Some(asked.await).filter(is_known) }
        };
        self.known(ask).await
    }

    async fn write(&mut self, of: Of, to: Option<u64>) -> Checked {
        self.numbers += 1;
        let (number, at) = (self.numbers, self.sim.now());
        let model = self.models.entry(of).or_default().clone();
        let what = match model.is_over() {
            true => Command::Begin { number },
            false => Command::Write { number, to },
        };
        if model.is_over() {
            self.sim.count("begun anew");
        }
        let count = self.ask(of, what).await?;
        let model = self.models.entry(of).or_default();
        model.write(number, at);
        if !matches!(count, Ok(count) if count == model.count()) {
            return Err(format!("writing to {}: {count:?}, not {}", name(of), model.count()));
        }
        Ok(())
    }

    /// Lets the other diary of the kind take a message with the last number.
    async fn take(&mut self, of: Of) -> Checked {
        let model = self.models.entry(of).or_default();
        model.write(self.numbers, self.sim.now());
        let count = model.count();
        let has_taken = move |engine| async move {
            let shown = look(engine, of).await;
            matches!(shown, Ok((shown, _)) if shown == count).then_some(())
        };
        self.known(has_taken).await
    }

    async fn step(&mut self, step: &Step) -> Checked {
        self.sim.sleep(TICK).await;
        let is_of_restore = matches!(step.action, Action::Restore { .. });
        if let Some((calls, hit)) = step.hit.filter(|_| !is_of_restore) {
            self.backend.hit_after(calls, hit);
        }
        self.act(step).await?;
        let is_killed = matches!(step.action, Action::BackupAmid { is_killed: true, .. });
        if (step.hit.is_some() || is_killed) && !is_of_restore {
            self.bury();
            self.backend.spare();
        }
        self.up().await?;
        if !matches!(step.action, Action::Write { .. } | Action::Jump { .. }) {
            self.check().await?;
        }
        self.sim.sleep(TICK).await;
        self.moment(true);
        Ok(())
    }

    async fn act(&mut self, step: &Step) -> Checked {
        match &step.action {
            Action::Write { of, times, sends } => {
                for time in 1..=*times {
                    let to = (of.0, (of.1 + 1) % DIARIES);
                    let is_open = |of: &Of| self.models.get(of).is_none_or(|model| !model.is_over());
                    let sends = *sends && time == *times && is_open(of) && is_open(&to);
                    self.write(*of, sends.then_some(to.1)).await?;
                    // The message may have been taken by then.
                    self.moment(!sends);
                    if sends {
                        self.take(to).await?;
                    }
                }
            }
            Action::Close(of) => {
                if self.models.get(of).is_none_or(|model| !model.is_over()) {
                    self.numbers += 1;
                    let at = self.sim.now();
                    let closed = self.ask(*of, Command::Close).await?;
                    closed.map_err(|error| format!("closing {}: {error}", name(*of)))?;
                    self.models.entry(*of).or_default().close(at);
                }
            }
            Action::Erase(of) => {
                if self.models.contains_key(of) {
                    self.erase(*of).await?;
                }
            }
            Action::Jump { millis } => self.sim.jump(Duration::from_millis(*millis)),
            Action::Pass => self.pass(step.hit.is_none()).await?,
            Action::Checkpoint => {
                let made = self.sim.call(|engine| async move { engine.checkpoint().await });
                let _is_made = made.await;
            }
            Action::Compact { is_stopped: false } => {
                let compacted = self.sim.call(|engine| async move { engine.compact().await });
                let _is_compacted = compacted.await;
            }
            Action::Compact { is_stopped: true } => {
                self.down(End::Stop).await?;
                if let Some(log) = self.backend.log() {
                    let place = log.place();
                    let compacted = tools::compact(&log.options(&place.disk), &place.dir);
                    if step.hit.is_none() {
                        compacted.map_err(|error| format!("compacting: {error}"))?;
                    }
                    self.bury();
                }
            }
            Action::End { end, is_store_lost } => {
                self.down(*end).await?;
                if *is_store_lost {
                    self.sim.count("store lost");
                    self.backend.lose_store();
                }
            }
            Action::Rebuild { are_rows_lost } => {
                if *are_rows_lost {
                    self.down(End::Stop).await?;
                    self.views.set(MemoryViews::new());
                } else if let Some(engine) = self.sim.engine() {
                    engine.rebuild_projection(Numbers::NAME);
                }
                self.up().await?;
                self.lacks = self.told_lack(&self.models).await?;
            }
            Action::Backup | Action::Follow | Action::BackupAmid { .. } => self.copy(step).await?,
            Action::Restore { .. } => self.restore(step).await?,
        }
        Ok(())
    }

    async fn erase(&mut self, of: Of) -> Checked {
        let erase = move |engine: Engine| async move {
            match engine.erase(KINDS[of.0], &of.1.to_string()).await {
                Ok(_) => Some(Ok(())),
                Err(Error::Unknown { .. } | Error::Quarantined { .. }) => Some(Err("it is unknown")),
                Err(_) => None,
            }
        };
        let erased = self.known(erase).await?;
        erased.map_err(|error| format!("erasing {}: {error}", name(of)))?;
        self.sim.count("erased");
        (self.has_removed, self.has_erased, self.removed_before) = (true, true, self.moments.len());
        self.models.entry(of).or_default().erase();
        Ok(())
    }

    async fn pass(&mut self, is_spared: bool) -> Checked {
        // This holds even if the pass is cut off.
        (self.has_removed, self.removed_before) = (true, self.moments.len());
        let pass = self.sim.call(|engine| async move { engine.prune(false).await }).await;
        match pass {
            Ok(Ok(report)) => {
                if report.records > 0 {
                    self.sim.count("pass that removed records");
                }
                if report.gone > 0 {
                    self.sim.count("pass after which a diary is gone");
                }
                Ok(())
            }
            Ok(Err(error)) if is_spared => Err(format!("a pass: {error}")),
            _ => Ok(()),
        }
    }

    /// Checks the running service against these models of that time.
    async fn wrong(&self, models: &Models, at: Timestamp) -> Checked {
        for of in (0..KINDS.len()).flat_map(|kind| (0..DIARIES).map(move |id| (kind, id))) {
            let of_look = move |engine| async move { Some(look(engine, of).await).filter(is_known) };
            let answer = self.known(of_look).await?;
            let wrong = match models.get(&of) {
                Some(model) => model.wrong_answer(of.0, &answer),
                None if matches!(answer, Err(Error::Unknown { .. })) => None,
                None => Some(format!("it answers {answer:?}, and was never written to")),
            };
            let named = |wrong| Err(format!("{}: {wrong}", name(of)));
            wrong.map_or(Ok(()), named)?;
            let (Some(model), (kind, id)) = (models.get(&of), of) else {
                continue;
            };
            let of_history = move |engine: Engine| async move {
                match history(engine, kind, &id.to_string()).await {
                    Err(FeedError::Engine(Error::Unavailable { .. } | Error::Expired)) => None,
                    history => Some(history),
                }
            };
            let history = self.known(of_history).await?;
            model.wrong_history(kind, at, history).map_or(Ok(()), named)?;
        }
        let quarantined = |engine: Engine| async move { engine.quarantined(9).await.ok() };
        let quarantined = self.known(quarantined).await?;
        match quarantined.is_empty() {
            true => Ok(()),
            false => Err(format!("quarantined: {quarantined:?}")),
        }
    }

    async fn check(&self) -> Checked {
        self.wrong(&self.models, self.sim.now()).await?;
        let (lacks, _) = self.lack(&self.models).await?;
        let untold: Vec<_> = lacks.difference(&self.lacks).collect();
        match untold.is_empty() {
            true => Ok(()),
            false => Err(format!("the read model lacks {untold:?}")),
        }
    }

    /// Returns the events that the read model lacks, and whether it was told so.
    async fn lack(&self, models: &Models) -> Checked<(BTreeSet<(u64, u64)>, bool)> {
        let caught_up = |engine: Engine| async move {
            let is_caught_up = engine.read_model::<Numbers>().caught_up().await;
            is_caught_up.then(|| (engine.projections().remove(0), engine.health().troubles))
        };
        let (progress, troubles) = self.known(caught_up).await?;
        let rows = self.views.get().scan(Numbers::NAME, ViewRange::default()).await;
        let row = |(key, value): (Vec<u8>, Vec<u8>)| {
            let id = String::from_utf8(key).ok()?.parse().ok()?;
            let row: Vec<(u64, u64)> = serde_json::from_slice(&value).ok()?;
            Some((id, row.into_iter().collect()))
        };
        let rows: Rows = rows.unwrap().into_iter().filter_map(row).collect();
        let lacking = lacking(models, &rows)?;
        let is_told = progress.missed_upto.is_some();
        if is_told != troubles.iter().any(|trouble| trouble.contains("lacks history of")) {
            return Err(format!(
                "{:?} was missed, and the troubles are {troubles:?}",
                progress.missed_upto
            ));
        }
        Ok((lacking, is_told))
    }

    /// Does the same for a read model that began with the first event, which must have been told what it lacks.
    async fn told_lack(&self, models: &Models) -> Checked<BTreeSet<(u64, u64)>> {
        let (lacking, is_told) = self.lack(models).await?;
        if !lacking.is_empty() && !is_told {
            return Err(format!(
                "the read model was built anew, and not told that it lacks {lacking:?}"
            ));
        }
        if is_told && !self.has_removed {
            return Err("the read model was told of removed history, and none was removed".into());
        }
        if is_told {
            self.sim.count("read model told that history was removed");
        }
        Ok(lacking)
    }

    /// Updates the copy to the current log.
    async fn copy(&mut self, step: &Step) -> Checked {
        let backend = self.backend.clone();
        let Some(log) = backend.log() else { return Ok(()) };
        // The moment after this step is possible, too.
        let mut may_be = 0;
        let copied = match step.action {
            Action::Follow => log.catch_up().map_err(|error| error.to_string()),
            Action::BackupAmid {
                erases,
                syncs,
                is_killed,
            } => {
                *log.follower() = None;
                let result = Arc::new(Mutex::new(None));
                copy_at(self.backend.clone(), (syncs, is_killed), result.clone());
                let is_spared = step.hit.is_none() && !is_killed;
                match erases.filter(|of| self.models.contains_key(of)) {
                    Some(of) => {
                        self.erase(of).await?;
                        may_be = 1;
                    }
                    None => self.pass(is_spared).await?,
                }
                log.place().disk.during_next_sync(|| {});
                let copied = result.lock().unwrap().take();
                copied.unwrap_or_else(|| backup(log))
            }
            _ => {
                *log.follower() = None;
                backup(log)
            }
        };
        let now = self.moments.len() - 1;
        match copied {
            Ok(()) => {
                self.sim.count("backup made");
                self.copied = Some(now..=now + may_be);
            }
            Err(error) if step.hit.is_none() => return Err(format!("copying: {error}")),
            Err(_) => {
                self.sim.count("backup cut off");
                self.copied = self.copied.take().map(|copied| *copied.start()..=now + may_be);
            }
        }
        Ok(())
    }

    async fn restore(&mut self, step: &Step) -> Checked {
        let backend = self.backend.clone();
        let (
            Some(log),
            Action::Restore {
                is_of_copy,
                until,
                with_archive,
                is_adopted,
            },
        ) = (backend.log(), &step.action)
        else {
            return Ok(());
        };
        let place = log.place();
        let now = self.moments.len() - 1;
        let (from, at) = match (is_of_copy, self.copied.clone()) {
            (true, None) => return Ok(()),
            (true, Some(copied)) => (place.copy.clone(), copied),
            (false, _) => (place.dir.clone(), now..=now),
        };
        let archive = Some(place.archive.clone()).filter(|_| *with_archive && !is_of_copy);
        let (until, at, is_beyond) = self.moments_of(*until, at);
        // The engine may have moved on.
        self.places += 1;
        let new = Place::of(place.disk.copy(), self.places);
        let restored = self.restored((log, step.hit), (from, archive.clone()), (&new, until));
        let is_before_removal = self.has_passes || *at.start() < self.removed_before;
        let may_be_refused = self.has_removed
            && is_before_removal
            && !matches!(until, tools::Until::End)
            && (archive.is_none() || place.dir != Place::of(place.disk.clone(), 0).dir || self.has_erased);
        match restored {
            Err(error) => {
                self.sim.count("restore refused");
                return match may_be_refused || is_beyond {
                    true => Ok(()),
                    false => Err(format!("refused: {error}")),
                };
            }
            Ok(()) => self.sim.count(match until {
                tools::Until::End => "restored to the end",
                _ => "restored to a moment",
            }),
        }
        log.verify(&new.disk, &new.dir)?;
        self.down(if *is_adopted { End::Stop } else { End::Kill }).await?;
        let left = (log.move_to(new), self.views.set(MemoryViews::new()));
        self.up().await?;
        let found = self.find(at.clone()).await?;
        let Some(found) = found.filter(|_| *is_adopted) else {
            self.down(End::Kill).await?;
            log.move_to(left.0);
            self.views.set(left.1);
            return Ok(());
        };
        self.sim.count("went on with what was restored");
        *log.follower() = None;
        self.models = restored_models(&self.moments[found].models);
        self.moments.truncate(found + 1);
        self.removed_before = self.removed_before.min(found + 1);
        self.lacks = self.told_lack(&self.models).await?;
        self.copied = None;
        Ok(())
    }

    /// Restores to this place, also if that was cut off before.
    fn restored(
        &self,
        (log, hit): (&DiskLog, Option<(u64, Hit)>),
        (from, archive): (PathBuf, Option<PathBuf>),
        (new, until): (&Place, tools::Until),
    ) -> Checked {
        let restore = || {
            let from = (&*from, archive.as_deref());
            tools::restore(&log.options(&new.disk), from, &new.dir, until).map_err(|error| error.to_string())
        };
        if let Some((calls, hit)) = hit {
            new.disk.hit_after(calls, hit);
            let restored = restore();
            let is_hit = new.disk.is_hit();
            new.disk.hit_no_more();
            if !is_hit {
                return restored.map(drop);
            }
            self.sim.count("restore cut off");
            new.disk.kill_process();
            // Only the success was left to report.
            if restored.is_ok() || tools::verify(&log.options(&new.disk), &new.dir).is_ok() {
                return Ok(());
            }
        }
        restore().map(drop)
    }

    /// Returns the end of a restore, the moments it may represent, and whether there may be no such commit.
    fn moments_of(&self, until: Until, at: RangeInclusive<usize>) -> (tools::Until, RangeInclusive<usize>, bool) {
        let (Until::Time(part) | Until::Commit(part)) = until else {
            return (tools::Until::End, at, false);
        };
        let chosen = self.moments.len() * part / 1_000;
        let chosen = (0..=chosen).rfind(|moment| self.moments[*moment].is_exact).unwrap_or(0);
        let within = chosen.min(*at.start())..=chosen.min(*at.end());
        let moment = &self.moments[chosen];
        match moment.upto.filter(|_| matches!(until, Until::Commit(_))) {
            Some(upto) => (tools::Until::Commit(upto), within, chosen > *at.start()),
            None => (tools::Until::Micros(moment.at.micros), within, chosen > *at.start()),
        }
    }

    /// Finds the moment that the service represents, among these.
    async fn find(&self, at: RangeInclusive<usize>) -> Checked<Option<usize>> {
        let is_sure = at.start() == at.end();
        let mut wrong = String::new();
        for moment in at.clone().rev() {
            let Moment { at, models, .. } = &self.moments[moment];
            let by = if self.has_passes { self.sim.now() } else { *at };
            let mut found = self.wrong(&restored_models(models), by).await;
            if found.is_ok() {
                found = self.told_lack(models).await.map(drop);
            }
            match found {
                Ok(()) => return Ok(Some(moment).filter(|_| is_sure)),
                Err(why) if is_sure => wrong = why,
                // The state is in the middle of a command that changed two diaries, or matches none of the moments.
                Err(why) => wrong = format!("{wrong}; {why}"),
            }
        }
        Err(format!("restored to one of the moments {at:?}: {wrong}"))
    }
}

/// Copies the log after this many more syncs.
fn copy_at(backend: Arc<dyn Backend>, (syncs, is_killed): (u64, bool), result: Arc<Mutex<Option<Checked>>>) {
    let Some(log) = backend.log() else { return };
    let disk = log.place().disk;
    let of_disk = backend.clone();
    disk.during_next_sync(move || match (syncs.checked_sub(1), of_disk.log()) {
        (Some(left), _) => copy_at(of_disk, (left, is_killed), result),
        (None, Some(log)) => {
            *result.lock().unwrap() = Some(backup(log));
            if is_killed && !of_disk.is_dead() {
                of_disk.hit_after(0, Hit::Death);
            }
        }
        (None, None) => {}
    });
}

/// Removes a process that a fault has killed.
fn bury(sim: &Sim, backend: &dyn Backend) {
    if backend.is_dead() {
        sim.count("process died in a step");
        backend.end(End::Kill);
        sim.kill();
    }
}

/// Returns the models of the restored journal.
fn restored_models(models: &Models) -> Models {
    let mut models = models.clone();
    models.values_mut().for_each(|model| model.is_restored = true);
    models
}

fn backup(log: &DiskLog) -> Result<(), String> {
    let backed_up = log.backup().map_err(|error| error.to_string())?;
    let verification = backed_up.verification;
    verification
        .is_sound()
        .then_some(())
        .ok_or_else(|| verification.to_string())
}
