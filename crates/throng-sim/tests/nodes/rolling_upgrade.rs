//! A rolling upgrade. The next release sends messages and sets timers that the previous one does not understand. Nodes of both are killed, paused,
//! disconnected and drained. Each message is taken once, in order, and none is dead unless the next release is gone for good.

mod page;
mod unlooked;

use super::{LEASE, PAUSE, SETTLES, in_time};
use page::{After, Before, FIRST_LEAF, Known, Leaf, Told, ToldAfter, ToldLeaf};
use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use throng::model::Error;
use throng_sim::{Failure, Faults, Lie, Nodes, Run, Sim, Simulation, Timing, for_each_seed};

/// The number of nodes, all of the previous release at first.
const OLD: usize = 3;
/// The node of the next release. Once started, it is not replaced.
const NEW: usize = OLD;
const BEFORE: u64 = 1;
const AFTER: u64 = 2;
const CLIENTS: u64 = 4;
const PAGES: u64 = 6;
/// The number of steps between two replacements.
const EVERY: u64 = 6;

#[derive(Clone, Copy)]
struct Upgrade {
    /// True if the next release is rolled back in the end.
    is_taken_back: bool,
    lie: Option<Lie>,
}

/// Starts a node with a release.
async fn start(sim: &Sim, nodes: &Nodes, node: usize, app: u64) -> bool {
    nodes.set_app(node, app);
    match app {
        BEFORE => sim.upgrade(|engine| engine.with::<Before>().query::<Before, Told>()),
        _ => sim.upgrade(|engine| {
            let engine = engine.with::<After>().query::<After, ToldAfter>();
            engine.with::<Leaf>().query::<Leaf, ToldLeaf>()
        }),
    }
    nodes.start(node).await.is_ok()
}

struct World {
    sim: Sim,
    nodes: Nodes,
    /// The release of each node at its next start.
    apps: [std::sync::atomic::AtomicU64; OLD + 1],
    is_over: AtomicBool,
}

impl World {
    fn new(sim: &Sim, nodes: &Nodes, apps: [u64; OLD + 1]) -> Self {
        Self {
            sim: sim.clone(),
            nodes: nodes.clone(),
            apps: apps.map(Into::into),
            is_over: false.into(),
        }
    }

    fn app(&self, node: usize) -> u64 {
        self.apps[node].load(Ordering::Relaxed)
    }

    async fn start(&self, node: usize) -> bool {
        start(&self.sim, &self.nodes, node, self.app(node)).await
    }

    async fn start_all(&self) {
        for node in 0..=OLD {
            while self.app(node) > 0 && !self.nodes.is_started(node) && !self.start(node).await {
                self.sim.sleep(Duration::from_millis(200)).await;
            }
        }
    }

    /// Ends a node, and starts another release in its place.
    async fn replace(self: &Arc<Self>, node: usize, app: u64) {
        if self.sim.chance(0.5) {
            self.nodes.drain(node, true).await;
            self.sim.sleep(Duration::from_millis(self.sim.below(2_000))).await;
        }
        self.nodes.kill(node);
        self.apps[node].store(app, Ordering::Relaxed);
        self.sim.count("node replaced");
        let world = self.clone();
        drop(self.sim.spawn(async move { world.start(node).await }));
    }

    /// Applies one random step, but spares the only node of the next release.
    async fn step(self: &Arc<Self>) {
        let (sim, nodes) = (&self.sim, &self.nodes);
        let up: Vec<usize> = nodes.up();
        let one = || up.get(sim.below(up.len() as u64) as usize).copied();
        let down = (0..OLD).find(|node| !nodes.is_started(*node));
        match (sim.below(13), one(), one()) {
            (0, Some(node), _) if node != NEW => nodes.kill(node),
            (1..=3, ..) if down.is_some() => {
                let (world, node) = (self.clone(), down.unwrap());
                drop(sim.spawn(async move { world.start(node).await }));
            }
            (4, Some(node), _) if node != NEW => nodes.pause(node, Duration::from_millis(sim.below(5_000))),
            (5, Some(one), Some(other)) if one != other => nodes.cut(one, other),
            (6 | 12, Some(node), _) if node != NEW && sim.chance(0.5) => nodes.cut_from_directory(node),
            (6, Some(node), _) if node != NEW => nodes.cut_from_database(node),
            (7, ..) => nodes.mend(),
            (8, ..) => nodes.restart_database(),
            (9, Some(node), _) if node != NEW => nodes.drain(node, sim.chance(0.5)).await,
            (10, Some(node), _) => nodes.set_clock(node, i64::try_from(sim.below(4_000_000)).unwrap() - 2_000_000),
            _ => {}
        }
    }

    /// Asks any running node.
    async fn ask(&self, page: u64, name: &'static str, to: u64, key: &str) -> Result<(), String> {
        let up = self.nodes.up();
        let Some(node) = up.get(self.sim.below(up.len() as u64) as usize).copied() else {
            return Err("no node runs".into());
        };
        self.ask_at(node, page, name, to, key).await
    }

    async fn ask_at(&self, node: usize, page: u64, name: &'static str, to: u64, key: &str) -> Result<(), String> {
        let key = key.to_owned();
        let called = self.nodes.call(node, move |engine| async move {
            let driver = engine.driver();
            let body = format!(r#"{{"to":{to}}}"#).into_bytes();
            let attempt = driver.command(0, page.to_string(), name, body)?.once(key)?;
            driver.answer(attempt).await
        });
        match in_time(&self.sim, Duration::from_secs(1), called).await {
            None => Err("no answer in time".into()),
            Some(Err(gone)) => Err(gone.to_string()),
            Some(Ok(answer)) => answer.map(drop).map_err(|error| error.to_string()),
        }
    }

    async fn client(self: Arc<Self>, client: u64) {
        for number in 0.. {
            let page = self.sim.below(PAGES);
            let to = (page + 1 + self.sim.below(PAGES - 1)) % PAGES;
            let (name, to) = match self.sim.below(6) {
                0 | 1 => ("Send", to),
                2 | 3 => ("SendNew", to),
                4 => ("SendToLeaf", FIRST_LEAF + to),
                _ => ("Remind", to),
            };
            let key = format!("{client}-{number}");
            // A request that only a newer node understands is given up soon, in case that node owns the page.
            for _ in 0..6 {
                if self.is_over.load(Ordering::Relaxed) {
                    return;
                }
                match self.ask(page, name, to, &key).await {
                    Ok(()) => break,
                    Err(why) if why.contains("a newer release") => self.sim.count("left to a newer release"),
                    Err(why) => self.sim.note(format_args!("{key}: {why}")),
                }
                self.sim.sleep(PAUSE).await;
            }
            self.sim.sleep(Duration::from_micros(self.sim.below(150_000))).await;
        }
    }

    /// Returns the messages that each page and leaf has sent and taken, if any.
    async fn known(&self) -> BTreeMap<u64, Known> {
        let mut known = BTreeMap::new();
        let leaves = (0..PAGES).map(|leaf| FIRST_LEAF + leaf);
        for id in (0..PAGES).chain(leaves) {
            let kind = usize::from(id >= FIRST_LEAF);
            for node in self.nodes.up() {
                let asked = self.nodes.call(node, move |engine| async move {
                    let driver = engine.driver();
                    driver.answer(driver.query(kind, id.to_string(), "known", "")?).await
                });
                let told = match in_time(&self.sim, Duration::from_secs(1), asked).await {
                    Some(Ok(Ok(answer))) => serde_json::from_slice(&answer).unwrap(),
                    Some(Ok(Err(Error::Unknown { .. }))) => Known::default(),
                    _ => continue,
                };
                known.insert(id, told);
                break;
            }
        }
        known
    }

    /// Returns the dead messages by receiver, and the waiting ones with their reasons.
    async fn left(&self) -> (Vec<(u64, String)>, Vec<String>) {
        let (mut dead, mut stuck) = (BTreeMap::new(), Vec::new());
        for node in self.nodes.up() {
            let called = self.nodes.call(node, |engine| async move {
                (engine.dead_messages(None, None, 1_000).await, engine.stuck())
            });
            let Some(Ok((Ok(page), waiting))) = in_time(&self.sim, Duration::from_secs(5), called).await else {
                continue;
            };
            for message in page.messages {
                let to = message.receiver.id.parse().unwrap();
                dead.insert((message.receiver, message.number), (to, message.reason));
            }
            stuck.extend(
                waiting
                    .into_iter()
                    .map(|stuck| format!("{}: {}", stuck.address, stuck.reason)),
            );
        }
        (dead.into_values().collect(), stuck)
    }
}

fn seed(seed: u64, upgrade: Upgrade, keep_trace: bool) -> Result<Run, Box<Failure>> {
    let mut faults = Faults::random(seed);
    faults.lie = upgrade.lie;
    faults.stall_micros = 50_000..300_000;
    let world = Simulation::new(seed)
        .options(throng::Options {
            checkpoint_every: Duration::from_secs(1),
            ..throng::Options::default()
        })
        .faults(faults)
        .keep_trace(keep_trace);
    let run = async |sim: Sim| {
        let nodes = sim.nodes(Timing::of(LEASE));
        let world = Arc::new(World::new(&sim, &nodes, [BEFORE, BEFORE, BEFORE, 0]));
        world.start_all().await;
        world.apps[NEW].store(AFTER, Ordering::Relaxed);
        world.start_all().await;
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| sim.spawn(world.clone().client(client)))
            .collect();
        let replaced = if upgrade.is_taken_back { 1 } else { OLD as u64 };
        for number in 0..(replaced + 1) * EVERY {
            sim.sleep(Duration::from_millis(20 + sim.below(1_200))).await;
            let (_, waiting) = world.left().await;
            if waiting.iter().any(|why| why.contains("a newer release")) {
                sim.count("waited for a newer release");
            }
            match usize::try_from(number / EVERY).unwrap() {
                node if node < OLD && number % EVERY == EVERY - 1 && (node as u64) < replaced => {
                    world.replace(node, AFTER).await;
                }
                _ => world.step().await,
            }
        }
        nodes.calm();
        if upgrade.is_taken_back {
            // All at once, so that no node of the next release remains.
            for (node, app) in world.apps.iter().enumerate() {
                if app.load(Ordering::Relaxed) == AFTER {
                    nodes.kill(node);
                    app.store(if node == NEW { 0 } else { BEFORE }, Ordering::Relaxed);
                }
            }
        }
        world.start_all().await;
        for node in 0..=OLD {
            nodes.drain(node, false).await;
            nodes.set_clock(node, 0);
        }
        world.is_over.store(true, Ordering::Relaxed);
        for client in clients {
            client.await.unwrap();
        }
        if !nodes.settle(SETTLES).await {
            sim.wrong(format!("not all is served evenly {SETTLES:?} after the last fault"));
        }
        match upgrade.is_taken_back {
            false => all_is_taken(&world).await,
            true => all_is_taken_or_dead(&world).await,
        }
        nodes.end();
    };
    world.try_run(run).map(|((), run)| run)
}

/// Returns messages not taken, timers not fired, and messages taken twice or out of order.
fn missing(known: &BTreeMap<u64, Known>) -> Vec<String> {
    let mut missing = Vec::new();
    for (id, of) in known {
        missing.extend(of.wrong.iter().map(|wrong| format!("{id}: {wrong}")));
        for (to, sent) in &of.sent {
            let taken = known
                .get(to)
                .and_then(|to| to.taken.get(id))
                .map_or(0, |taken| taken.count);
            if taken != *sent {
                missing.push(format!("{to} has taken {taken} of {sent} messages of {id}"));
            }
        }
        if of.rung != of.set {
            missing.push(format!("of {} timers of {id} {} have rung", of.set, of.rung));
        }
    }
    missing
}

async fn all_is_taken(world: &World) {
    let sim = &world.sim;
    let until = sim.elapsed() + Duration::from_secs(40);
    let mut wrong = missing(&world.known().await);
    while !wrong.is_empty() && sim.elapsed() < until {
        sim.sleep(PAUSE * 10).await;
        wrong = missing(&world.known().await);
    }
    let (dead, waiting) = world.left().await;
    wrong.extend(dead.into_iter().map(|(to, why)| format!("dead: to {to}, {why}")));
    wrong.extend(waiting.into_iter().map(|why| format!("waits still: {why}")));
    wrong.into_iter().for_each(|wrong| sim.wrong(wrong));
}

/// Checks, after the next release is gone, that everything only it understands is dead with the reason, and nothing waits.
async fn all_is_taken_or_dead(world: &World) {
    let sim = &world.sim;
    // Timers and messages wait two minutes for its return, and are retried at least once a minute.
    let until = sim.elapsed() + Duration::from_secs(240);
    loop {
        let known = world.known().await;
        let (dead, waiting) = world.left().await;
        let to_pages = dead.iter().filter(|(to, _)| *to < FIRST_LEAF).count() as u64;
        let sent: u64 = known
            .values()
            .flat_map(|of| &of.sent)
            .filter(|(to, _)| **to < FIRST_LEAF)
            .map(|(_, sent)| sent)
            .sum();
        let taken: u64 = known
            .values()
            .flat_map(|of| of.taken.values())
            .map(|taken| taken.count)
            .sum();
        let (set, rung): (u64, u64) = known.values().fold((0, 0), |sum, of| (sum.0 + of.set, sum.1 + of.rung));
        let is_done = waiting.is_empty()
            && sent + set == taken + rung + to_pages
            && known.range(..FIRST_LEAF).count() as u64 == PAGES;
        if is_done {
            let is_reason = |why: &String| why.contains("unknown variant") || why.contains("was not given the kind");
            dead.iter().for_each(|_| sim.count("dead, as nobody understands it"));
            for (to, why) in dead.iter().filter(|(_, why)| !is_reason(why)) {
                sim.wrong(format!("dead: to {to}, {why}"));
            }
            for wrong in known.values().flat_map(|of| &of.wrong) {
                sim.wrong(wrong.clone());
            }
            return;
        }
        if sim.elapsed() > until {
            sim.wrong(format!(
                "sent {sent} and set {set}, taken {taken}, rung {rung}, dead {to_pages}: {dead:?}; waiting {waiting:?}; {known:?}"
            ));
            return;
        }
        sim.sleep(PAUSE * 10).await;
    }
}

fn each_seed(test: &str, seeds: u64, upgrade: Upgrade, counted: &[&str]) {
    let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
    for_each_seed("throng-sim --test nodes", test, seeds, |number, keep_trace| {
        let run = seed(number, upgrade, keep_trace).map_err(|failure| failure.to_string())?;
        if keep_trace {
            run.trace.iter().for_each(|line| println!("{line}"));
        }
        for (what, count) in run.counts {
            *counts.entry(what).or_default() += count;
        }
        Ok(())
    });
    if std::env::var("THRONG_SIM_SEED").is_err() {
        for what in counted {
            assert!(
                counts.get(what).is_some_and(|count| *count > 0),
                "never: {what}; {counts:?}"
            );
        }
    }
    println!("{counts:?}");
}

#[test]
fn newer_messages_are_taken_once_in_order_after_the_upgrade() {
    let test = "rolling_upgrade::newer_messages_are_taken_once_in_order_after_the_upgrade";
    let upgrade = Upgrade {
        is_taken_back: false,
        lie: None,
    };
    let counted = [
        "node replaced",
        "node killed",
        "node paused",
        "shards given",
        "left to a newer release",
        "waited for a newer release",
    ];
    each_seed(test, 60, upgrade, &counted);
}

#[test]
fn newer_messages_are_dead_once_the_release_is_taken_back() {
    let test = "rolling_upgrade::newer_messages_are_dead_once_the_release_is_taken_back";
    let upgrade = Upgrade {
        is_taken_back: true,
        lie: None,
    };
    let counted = ["waited for a newer release", "dead, as nobody understands it"];
    each_seed(test, 40, upgrade, &counted);
}

/// Finds the first of these seeds in which a broken promise shows as a dead message.
fn is_noticed(lie: Lie, seeds: Range<u64>, run: impl Fn(u64, Option<Lie>) -> Result<Run, Box<Failure>>) {
    let noticed = seeds.into_iter().find_map(|number| {
        let failure = run(number, Some(lie)).err()?;
        let wrong = failure.wrong.into_iter().find(|wrong| wrong.contains("dead: to"))?;
        Some((number, wrong))
    });
    match noticed {
        Some((seed, wrong)) => println!("{lie:?} is noticed with seed {seed}: {wrong}"),
        None => panic!("nobody noticed {lie:?}"),
    }
}

#[test]
fn a_message_that_is_dead_at_once_is_noticed() {
    let upgrade = |lie| Upgrade {
        is_taken_back: false,
        lie,
    };
    is_noticed(Lie::SeesNoNewer, 0..300, |number, lie| {
        seed(number, upgrade(lie), false)
    });
}
