//! Retention while several nodes write history: passes on all of them, with kills, pauses, hand-offs and drains.

use crate::{
    LEASE, NODES, PAUSE, SETTLES,
    counted::SharedViews,
    diary::{AGE, AGED, COUNTED, Command, Diary, DiaryEvent, EVENTS, FOREVER, KINDS, Look, Never, keep},
    in_time, start_all, step,
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use throng::{
    Cursor, Engine, Follow, Options, PruneReport,
    journal::{RecordKind, ViewRange, Views as _},
    model::*,
    projection::{DurableEvent, Interrupt, Projection, Rows},
};
use throng_sim::{Failure, Faults, Lie, Nodes, Run, Sim, Simulation, Timing, for_each_seed_with};

/// The number of diaries of each kind that clients write to.
const DIARIES: u64 = 4;
const CLIENTS: u64 = 3;
/// The first id of closed diaries.
const CLOSED: u64 = 100;
/// The first id of diaries whose writes make checkpoints cover everything before.
const AFTER: u64 = 1_000;
/// The largest error of a node's time of day.
const CLOCKS: Duration = Duration::from_secs(10);

/// The number of each counted diary's events, and their sum. Missing and repeated events are refused.
struct Sums;

impl Projection for Sums {
    const NAME: &'static str = "sums";
    type Of = Diary<COUNTED>;
    fn apply(&self, seen: &DurableEvent<Diary<COUNTED>>, rows: &mut Rows<'_>) -> Result<(), Interrupt> {
        let key = seen.id.to_string();
        let (events, sum) = rows.json::<(u64, u64)>(&key)?.unwrap_or_default();
        if seen.seq != events + 1 {
            return Err(Interrupt::poison(format!("event {} follows {events}", seen.seq)));
        }
        let number = match &seen.event {
            DiaryEvent::Written { number, .. } => *number,
            DiaryEvent::Closed => 0,
        };
        rows.put_json(&key, &(seen.seq, sum + number))
    }
}

/// The expected diary, according to everything acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Model {
    count: u64,
    sum: u64,
}

/// A kind and an id.
type Of = (usize, u64);

async fn write(engine: Engine, (kind, id): Of, key: String, command: Command) -> Result<u64, Error<Never>> {
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

struct World {
    sim: Sim,
    nodes: Nodes,
    models: Mutex<BTreeMap<Of, Model>>,
    closed: Mutex<Vec<u64>>,
    numbers: AtomicU64,
    is_over: AtomicBool,
    /// True once nobody follows any more.
    is_told: AtomicBool,
}

impl World {
    async fn any_node(&self) -> usize {
        loop {
            let up = self.nodes.up();
            if !up.is_empty() {
                return up[self.sim.below(up.len() as u64) as usize];
            }
            self.sim.sleep(PAUSE).await;
        }
    }

    /// Asks any node, repeatedly, until the outcome is known.
    async fn ask_until_known<T, F>(&self, ask: impl Fn(Engine) -> F + Clone + Send + 'static) -> Result<T, Error<Never>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error<Never>>> + Send + 'static,
    {
        loop {
            let node = self.any_node().await;
            let called = self.nodes.call(node, ask.clone());
            match in_time(&self.sim, Duration::from_secs(1), called).await {
                Some(Ok(Ok(answer))) => return Ok(answer),
                Some(Ok(Err(error @ (Error::Ended { .. } | Error::Unknown { .. } | Error::Quarantined { .. })))) => {
                    return Err(error);
                }
                Some(Ok(Err(why))) => self.sim.note(format_args!("it is asked again: {why}")),
                _ => {}
            }
            self.sim.sleep(PAUSE).await;
        }
    }

    async fn write(&self, of: Of, to: Option<u64>) {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        let ask = move |engine| write(engine, of, format!("write {number}"), Command::Write { number, to });
        if let Err(why) = self.ask_until_known(ask).await {
            return self.sim.wrong(format!("writing to {of:?}: {why}"));
        }
        let mut models = self.models.lock().unwrap();
        for id in [Some(of.1), to].into_iter().flatten() {
            let model = models.entry((of.0, id)).or_default();
            model.count += 1;
            model.sum += number;
        }
    }

    async fn client(self: Arc<Self>) {
        while !self.is_over.load(Ordering::Relaxed) {
            self.sim.sleep(Duration::from_micros(self.sim.below(200_000))).await;
            let of = (self.sim.below(KINDS.len() as u64) as usize, self.sim.below(DIARIES));
            let to = Some(self.sim.below(DIARIES)).filter(|to| *to != of.1 && self.sim.chance(0.4));
            if self.sim.chance(0.05) {
                self.close().await;
            }
            if self.sim.chance(0.1) {
                self.begin_anew().await;
            }
            self.write(of, to).await;
        }
    }

    /// Writes to a diary and closes it.
    async fn close(&self) {
        let id = CLOSED + self.numbers.fetch_add(1, Ordering::Relaxed);
        let begin = move |engine| {
            let command = Command::Write { number: id, to: None };
            write(engine, (AGED, id), format!("begin {id}"), command)
        };
        let end = move |engine| write(engine, (AGED, id), format!("end {id}"), Command::Close);
        for asked in [self.ask_until_known(begin).await, self.ask_until_known(end).await] {
            if let Err(why) = asked {
                return self.sim.wrong(format!("closing {id}: {why}"));
            }
        }
        self.sim.count("diary closed");
        self.closed.lock().unwrap().push(id);
    }

    /// Begins one of the closed diaries anew, preferably an older one, which may be removed by now.
    async fn begin_anew(&self) {
        let id = {
            let mut closed = self.closed.lock().unwrap();
            let at = self.sim.below(1 + closed.len() as u64) as usize;
            if at >= closed.len() {
                return;
            }
            closed.remove(at / 2)
        };
        let number = self.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        let ask = move |engine| write(engine, (AGED, id), format!("anew {id}"), Command::Begin { number });
        if let Err(why) = self.ask_until_known(ask).await {
            return self.sim.wrong(format!("beginning {id} anew: {why}"));
        }
        self.sim.count("diary begun anew");
        let model = Model { count: 1, sum: number };
        self.models.lock().unwrap().insert((AGED, id), model);
        if self.sim.chance(0.5) {
            self.write((AGED, id), None).await;
        }
    }

    /// Requests a pass at any node, as an operator does. All nodes make one.
    async fn prune(&self, is_dry: bool) -> Result<PruneReport, String> {
        let node = self.any_node().await;
        let pass = self
            .nodes
            .call(node, move |engine| async move { engine.prune(is_dry).await });
        match in_time(&self.sim, Duration::from_secs(30), pass).await {
            Some(Ok(Ok(report))) => Ok(report),
            Some(Ok(Err(why))) => Err(why.to_string()),
            Some(Err(gone)) => Err(gone.to_string()),
            None => Err("it takes too long".into()),
        }
    }

    async fn pruner(self: Arc<Self>) {
        while !self.is_over.load(Ordering::Relaxed) {
            self.sim.sleep(Duration::from_micros(self.sim.below(3_000_000))).await;
            match self.prune(self.sim.chance(0.1)).await {
                Ok(report) if !report.is_dry => self.sim.count("pass of all nodes"),
                Ok(_) => {}
                Err(why) => self.sim.note(format_args!("no pass of all nodes: {why}")),
            }
        }
    }

    /// Follows a kind at one node after another. Every event that it lacks must have been removed, and reported as removed.
    async fn follow(self: Arc<Self>, kind: usize, told: Arc<Mutex<Told>>) {
        let mut place: Option<String> = None;
        while !self.is_told.load(Ordering::Relaxed) {
            let (node, from) = (self.any_node().await, place.clone());
            let (pages, limit) = (1 + self.sim.below(4), 1 + self.sim.below(9) as usize);
            let sim = self.sim.clone();
            let called = self
                .nodes
                .call(node, move |engine| follow(engine, sim, (kind, from), (pages, limit)));
            let called = in_time(&self.sim, Duration::from_secs(5), called).await;
            let Some(Ok(Some(page))) = called else {
                self.sim.sleep(PAUSE).await;
                continue;
            };
            self.note(kind, &page, &mut told.lock().unwrap());
            place = Some(page.place);
            if let Some(why) = page.why {
                self.sim.note(format_args!("a follower at node {node}: {why}"));
                self.sim.sleep(PAUSE).await;
            }
            if self.sim.chance(0.1) && !self.is_over.load(Ordering::Relaxed) {
                // Long enough for passes to proceed beyond the cursor.
                self.sim.sleep(Duration::from_micros(self.sim.below(6_000_000))).await;
            }
        }
    }

    fn note(&self, kind: usize, page: &Page, told: &mut Told) {
        told.pages += 1;
        if page.is_told_of_removal {
            told.removal = told.pages;
        }
        for (id, seq) in &page.events {
            let (last, at) = told.last.get(id).copied().unwrap_or_default();
            // The removed events were skipped with this page, or with one after the diary's last event.
            if *seq > last + 1 && told.removal >= at && told.removal > 0 {
                self.sim.count("follower told that history was removed");
            } else if *seq != last + 1 {
                let kind = KINDS[kind];
                self.sim
                    .wrong(format!("a follower was told event {seq} of {kind} {id} after {last}"));
            }
            told.last.insert(id.clone(), (*seq, told.pages));
        }
    }

    /// Returns the faults of the diaries' answers.
    async fn wrong_shown(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let models = self.models.lock().unwrap().clone();
        for (of, model) in models {
            let shown = self.ask_until_known(move |engine| look(engine, of)).await;
            if !matches!(shown, Ok(shown) if shown == (model.count, model.sum)) {
                wrong.push(format!("{of:?} is shown as {shown:?}, it is {model:?}"));
            }
        }
        let closed = self.closed.lock().unwrap().clone();
        for id in closed {
            let shown = self.ask_until_known(move |engine| look(engine, (AGED, id))).await;
            // Its state can be read as long as its history is kept.
            if !matches!(shown, Ok((1, sum)) if sum == id) && !matches!(shown, Err(Error::Ended { .. })) {
                wrong.push(format!("the closed diary {id} is shown as {shown:?}"));
            }
        }
        wrong
    }

    /// Returns the faults of the remaining records in the journal.
    async fn wrong_left(&self) -> Vec<String> {
        let history = self.nodes.left().await;
        let (mut wrong, models) = (Vec::new(), self.models.lock().unwrap().clone());
        for ((kind, id), model) in models {
            let events = history.events(KINDS[kind], &id.to_string());
            let left: Vec<u64> = events.iter().map(|event| event.seq).collect();
            let first = match kind {
                AGED => model.count,
                COUNTED => model.count.saturating_sub(EVENTS),
                _ => 0,
            };
            if left != (first + 1..=model.count).collect::<Vec<u64>>() {
                wrong.push(format!(
                    "the events {left:?} are left of {} {id}, {model:?}",
                    KINDS[kind]
                ));
            }
        }
        let closed = self.closed.lock().unwrap().clone();
        for id in closed {
            let all = history.commits.iter().flat_map(|commit| commit.records().flatten());
            let own = all.filter(|record| record.kind == KINDS[AGED] && record.id == id.to_string());
            let own = own.map(|record| record.record).filter(|kind| *kind != RecordKind::Key);
            let own: Vec<RecordKind> = own.collect();
            if own != [RecordKind::Ended] {
                wrong.push(format!("the records {own:?} are left of the closed diary {id}"));
            }
        }
        wrong
    }

    /// Checks until there is no fault, for at most this time. Reports the last faults.
    async fn eventually(&self, at_most: Duration, look: impl AsyncFn() -> Vec<String>) {
        let until = self.sim.elapsed() + at_most;
        loop {
            let wrong = look().await;
            if wrong.is_empty() {
                return;
            }
            if self.sim.elapsed() > until {
                return wrong.into_iter().for_each(|wrong| self.sim.wrong(wrong));
            }
            self.sim.sleep(PAUSE * 10).await;
        }
    }
}

/// The events that a follower received, page by page.
#[derive(Default)]
struct Told {
    pages: u64,
    /// The last page that reported removed history.
    removal: u64,
    /// The number of each diary's last event, and its page.
    last: BTreeMap<String, (u64, u64)>,
}

/// A page that a follower received, and the cursor after it.
struct Page {
    events: Vec<(String, u64)>,
    place: String,
    /// The reason that there are no more.
    why: Option<String>,
    /// True if a follower at the old cursor is told that history was removed.
    is_told_of_removal: bool,
}

/// Follows for a while. `None`: it is unknown what was missed, and it resumes at the old cursor.
async fn follow(
    engine: Engine,
    sim: Sim,
    (kind, from): (usize, Option<String>),
    (pages, limit): (u64, usize),
) -> Option<Page> {
    let from = match from {
        None => engine.place(true).await.ok()?,
        Some(from) => from.parse::<Cursor>().unwrap_or_default(),
    };
    let begin = || Follow::Kind {
        kind,
        from: from.clone(),
    };
    let mut follower = engine.follow(begin()).await.ok()?;
    let (mut events, mut why) = (Vec::new(), None);
    for _ in 0..pages {
        match in_time(&sim, Duration::from_millis(700), follower.next(limit)).await {
            Some(Ok(page)) => events.extend(page.iter().map(|event| (event.id.to_string(), event.event.seq))),
            Some(Err(error)) => why = Some(error.to_string()),
            None => break,
        }
        if why.is_some() {
            break;
        }
    }
    let place = follower.place().to_string();
    let again = engine.follow(begin()).await.ok()?;
    Some(Page {
        events,
        place,
        why,
        is_told_of_removal: again.removed_upto().is_some(),
    })
}

async fn rows_of(views: &SharedViews) -> BTreeMap<u64, Model> {
    let rows = views.0.scan(Sums::NAME, ViewRange::default()).await.unwrap();
    let row = |(key, value): (Vec<u8>, Vec<u8>)| {
        let id = String::from_utf8(key).ok()?.parse().ok()?;
        let (count, sum) = serde_json::from_slice(&value).ok()?;
        Some((id, Model { count, sum }))
    };
    rows.into_iter().filter_map(row).collect()
}

/// Checks that everything is as acknowledged, expired history is removed, and the rest is enough to restart from.
async fn check(world: &World, views: &SharedViews, told: [&Mutex<Told>; 2]) {
    let (sim, nodes) = (&world.sim, &world.nodes);
    world
        .eventually(Duration::from_secs(20), async || world.wrong_shown().await)
        .await;
    sim.sleep(AGE + CLOCKS).await;
    let left = async || {
        // Each node writes another event, so everything before is covered.
        for id in AFTER..AFTER + 24 {
            world.write((FOREVER, id), None).await;
        }
        if let Err(why) = world.prune(false).await {
            return vec![format!("no pass is made: {why}")];
        }
        world.wrong_left().await
    };
    world.eventually(Duration::from_secs(30), left).await;
    world
        .eventually(Duration::from_secs(20), async || {
            let models = world.models.lock().unwrap().clone();
            let counted = models.into_iter().filter(|((kind, _), _)| *kind == COUNTED);
            let counted: BTreeMap<u64, Model> = counted.map(|((_, id), model)| (id, model)).collect();
            let rows = rows_of(views).await;
            match rows == counted {
                true => Vec::new(),
                false => vec![format!("the read model has {rows:?}, the diaries {counted:?}")],
            }
        })
        .await;
    world
        .eventually(Duration::from_secs(20), async || {
            let models = world.models.lock().unwrap().clone();
            let mut wrong = Vec::new();
            for (kind, told) in [FOREVER, COUNTED].into_iter().zip(told) {
                let told = told.lock().unwrap();
                let all = models.iter().filter(|((of, _), _)| *of == kind);
                let missing = all.filter(|((_, id), model)| {
                    told.last
                        .get(&id.to_string())
                        .is_none_or(|(last, _)| *last != model.count)
                });
                wrong.extend(missing.map(|(of, model)| format!("followers were not told all of {of:?}: {model:?}")));
            }
            wrong
        })
        .await;
    world.is_told.store(true, Ordering::Relaxed);
    // The journal alone must be enough, for any distribution of shards.
    (0..NODES).for_each(|node| nodes.kill(node));
    sim.sleep(LEASE * 4).await;
    nodes.lose_store();
    start_all(sim, nodes).await;
    if !nodes.settle(SETTLES).await {
        sim.wrong(format!("not all is served evenly {SETTLES:?} after the store was lost"));
    }
    // There was enough time for repeated deliveries and timers.
    sim.sleep(Duration::from_secs(3)).await;
    world
        .eventually(Duration::ZERO, async || world.wrong_shown().await)
        .await;
    let closed = world.closed.lock().unwrap().clone();
    for id in closed {
        let shown = world.ask_until_known(move |engine| look(engine, (AGED, id))).await;
        if !matches!(shown, Err(Error::Ended { .. })) {
            sim.wrong(format!(
                "nothing is kept of the closed diary {id}, and it is shown as {shown:?}"
            ));
        }
    }
}

fn seed(seed: u64, lie: Option<Lie>, keep_trace: bool) -> Result<Run, Box<Failure>> {
    let mut faults = Faults::random(seed);
    faults.lie = lie;
    faults.stall_micros = 50_000..300_000;
    let views = SharedViews::default();
    let of_nodes = views.clone();
    let simulation = Simulation::new(seed)
        .with::<Diary<FOREVER>>()
        .query::<Diary<FOREVER>, Look>()
        .with::<Diary<AGED>>()
        .query::<Diary<AGED>, Look>()
        .with::<Diary<COUNTED>>()
        .query::<Diary<COUNTED>, Look>()
        .setup(move |builder| builder.projection(Sums).views(Arc::new(of_nodes.clone())))
        .options(Options {
            keep: keep().into(),
            prune_every: Some(Duration::from_millis([200, 1_500, 10_000_000][(seed % 3) as usize])),
            checkpoint_every: Duration::from_millis([300, 1_000][(seed / 3 % 2) as usize]),
            ..Options::default()
        })
        .faults(faults)
        .keep_trace(keep_trace);
    let run = async |sim: Sim| {
        let nodes = sim.nodes(Timing::of(LEASE));
        start_all(&sim, &nodes).await;
        let world = Arc::new(World {
            sim: sim.clone(),
            nodes: nodes.clone(),
            models: Mutex::default(),
            closed: Mutex::default(),
            numbers: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            is_told: AtomicBool::new(false),
        });
        let mut running: Vec<_> = (0..CLIENTS).map(|_| sim.spawn(world.clone().client())).collect();
        running.push(sim.spawn(world.clone().pruner()));
        let told: [Arc<Mutex<Told>>; 2] = Default::default();
        let following = [FOREVER, COUNTED].into_iter().zip(&told);
        let following: Vec<_> = following
            .map(|(kind, told)| sim.spawn(world.clone().follow(kind, told.clone())))
            .collect();
        for _ in 0..25 {
            sim.sleep(Duration::from_millis(20 + sim.below(1_500))).await;
            step(&sim, &nodes).await;
        }
        nodes.calm();
        start_all(&sim, &nodes).await;
        for node in 0..NODES {
            nodes.drain(node, false).await;
            nodes.set_clock(node, 0);
        }
        if !nodes.settle(SETTLES).await {
            sim.wrong(format!("not all is served evenly {SETTLES:?} after the last fault"));
        }
        world.is_over.store(true, Ordering::Relaxed);
        for task in running {
            task.await.unwrap();
        }
        check(&world, &views, [&told[0], &told[1]]).await;
        for task in following {
            task.await.unwrap();
        }
        nodes.end();
    };
    simulation.try_run(run).map(|((), run)| run)
}

#[test]
fn history_ends_as_it_is_kept_whatever_happens_to_nodes() {
    let test = "history_ends_as_it_is_kept_whatever_happens_to_nodes";
    let happens = [
        "node declared dead that lived",
        "shards given",
        "record removed",
        "history removed by whoever has lost its shards",
        "pass of all nodes",
        "diary closed",
        "diary begun anew",
        "follower told that history was removed",
        "store lost",
    ];
    for_each_seed_with(("throng-sim --test nodes", test), 30, &happens, |number, keep_trace| {
        seed(number, None, keep_trace)
    });
}

/// Finds the first seed in which a broken promise shows as a fault.
fn is_noticed(lie: Lie, words: &str) {
    let noticed = (0..200).find_map(|number| {
        let failure = seed(number, Some(lie), false).err()?;
        let wrong = failure.wrong.into_iter().find(|wrong| wrong.contains(words))?;
        Some((number, wrong))
    });
    match noticed {
        Some((seed, wrong)) => println!("{lie:?} is noticed with seed {seed}: {wrong}"),
        None => panic!("nobody noticed {lie:?} as {words:?}"),
    }
}

#[test]
fn messages_that_go_before_they_are_taken_are_noticed() {
    is_noticed(Lie::RemovesMessages, "is shown as");
}

#[test]
fn a_node_that_judges_shards_of_others_is_noticed() {
    is_noticed(Lie::RemovesOthers, "is shown as");
}

#[test]
fn states_that_go_while_something_rests_on_them_are_noticed() {
    is_noticed(Lie::DropsStates, "is shown as");
}

#[test]
fn events_that_go_though_they_are_kept_are_noticed() {
    is_noticed(Lie::RemovesTooMuch, "are left of");
}

#[test]
fn a_store_that_needs_the_first_event_is_noticed() {
    is_noticed(Lie::NeedsFirstEvent, "is shown as Err(Quarantined");
}
