//! Several nodes of one service. They are killed, paused, drained, and disconnected from each other and from the database; an operator moves shards,
//! and clocks differ. Each answer must be as one machine's, and each acknowledged command and message must count once.
#![allow(clippy::unwrap_used, reason = "tests")]

mod counted;
mod counter;
mod cut;
#[path = "../diary/mod.rs"]
mod diary;
mod follower;
mod retention;
mod rolling_upgrade;
mod seen;
mod unknown;
mod upgrade;

use counted::{Counted, SharedViews};
use counter::{Command, Counter, Events, Odd};
use follower::Followed;
use seen::{CounterAnswer, Seen};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use throng::{
    Options,
    journal::{ShardId, ViewRange, Views as _},
    model::Error,
};
use throng_sim::{Failure, Faults, Lie, Nodes, Run, Sim, Simulation, Timing, for_each_seed_with};

const NODES: usize = 3;
const CLIENTS: u64 = 4;
const COUNTERS: u64 = 6;
const LEASE: Duration = Duration::from_secs(2);
/// The time within which everything is served again after the last fault.
const SETTLES: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Clone, Copy)]
struct Scenario {
    /// The number of faults of nodes and connections.
    steps: u64,
    /// The percentage of requests that change something.
    changes: u64,
    /// True if the nodes are replaced by those of the next release, one after another.
    upgrades: bool,
    lie: Option<Lie>,
}

/// The next request of a client.
#[derive(Clone, Copy)]
enum Ask {
    Read,
    Add,
    Send { to: u64 },
    Forward { to: u64 },
    AddToEven,
}

/// An answer with a certain outcome.
enum Told {
    /// The number of events, including the requested one.
    Events(u64),
    /// The number of events. The requested one was not added, and never will be.
    Refused(u64),
    /// An earlier attempt under the same key was refused.
    RefusedBefore,
}

struct Clients {
    sim: Sim,
    nodes: Nodes,
    seen: Mutex<Seen>,
    is_over: AtomicBool,
    /// Counters that were erased.
    erased: Mutex<Vec<u64>>,
    /// True once nobody follows any more.
    is_told: AtomicBool,
    changes: u64,
}

impl Clients {
    /// Returns a running node, as a balancer would choose one.
    async fn any_node(&self) -> usize {
        loop {
            let up = self.nodes.up();
            if !up.is_empty() {
                return up[self.sim.below(up.len() as u64) as usize];
            }
            self.sim.sleep(PAUSE).await;
        }
    }

    async fn ask(&self, ask: Ask, counter: u64, key: &str) -> Result<Told, String> {
        let (node, key) = (self.any_node().await, key.to_owned());
        let called = self.nodes.call(node, move |engine| async move {
            let command = match ask {
                Ask::Read => return engine.entity::<Counter>(counter).read(Events {}).await,
                Ask::Add => Command::Add,
                Ask::Send { to } => Command::Send { to },
                Ask::Forward { to } => Command::Forward { to },
                Ask::AddToEven => Command::AddToEven,
            };
            engine.entity::<Counter>(counter).once(&key).ask(command).await
        });
        // A client does not wait for ever for a paused node.
        let called = in_time(&self.sim, Duration::from_secs(1), called).await;
        match called {
            None => Err("no answer in time".into()),
            Some(Err(gone)) => Err(gone.to_string()),
            Some(Ok(Ok(events))) => Ok(Told::Events(events)),
            Some(Ok(Err(Error::Rejected(Odd { events })))) => Ok(Told::Refused(events)),
            Some(Ok(Err(Error::KeyRefused(_)))) => Ok(Told::RefusedBefore),
            // Before the first event there is nothing to read.
            Some(Ok(Err(Error::Unknown { .. }))) if matches!(ask, Ask::Read) => Ok(Told::Events(0)),
            Some(Ok(Err(error))) => Err(error.to_string()),
        }
    }

    fn note(&self, ask: Ask, answer: CounterAnswer) {
        let mut seen = self.seen.lock().unwrap();
        if let Ask::Send { to } = ask {
            *seen.sent.entry(to).or_default() += 1;
        }
        seen.answers.push(answer);
    }

    async fn client(self: Arc<Self>, client: u64) {
        let mut number = 0;
        while !self.is_over.load(Ordering::Relaxed) {
            number += 1;
            let (counter, other) = (self.sim.below(COUNTERS), self.sim.below(COUNTERS));
            let ask = match self.sim.below(7) {
                _ if self.sim.below(100) >= self.changes => Ask::Read,
                0..=2 => Ask::Add,
                3 => Ask::Send { to: other },
                4 | 5 => Ask::AddToEven,
                _ => Ask::Forward { to: other },
            };
            let key = format!("{client}-{number}");
            let first = self.sim.elapsed();
            let (last, told) = loop {
                let last = self.sim.elapsed();
                match self.ask(ask, counter, &key).await {
                    Ok(told) => break (last, told),
                    Err(why) => {
                        self.sim.note(format_args!("client {client}, {number}: {why}"));
                        self.sim.sleep(PAUSE).await;
                    }
                }
            };
            let mut is_refused = false;
            // A read or a refusal counts from the last attempt. A change may have been made by the first attempt.
            let (asked, events, is_read) = match told {
                Told::Events(events) if !matches!(ask, Ask::Read) => (first, events, false),
                Told::Events(events) => (last, events, true),
                Told::Refused(events) => {
                    self.sim.count("command refused");
                    is_refused = true;
                    (last, events, true)
                }
                Told::RefusedBefore => {
                    self.sim.count("copy refused");
                    continue;
                }
            };
            let answer = CounterAnswer {
                counter: match ask {
                    Ask::Forward { to } => to,
                    _ => counter,
                },
                asked,
                given: self.sim.elapsed(),
                events,
                is_read,
            };
            self.note(ask, answer);
            if is_refused && self.sim.chance(0.5) {
                self.copy(ask, counter, &key).await;
            }
            self.sim.sleep(Duration::from_micros(self.sim.below(100_000))).await;
        }
    }

    /// Sends a late copy of a refused request. It must have no effect, even if it would be accepted by now.
    async fn copy(&self, ask: Ask, counter: u64, key: &str) {
        self.sim.sleep(Duration::from_micros(self.sim.below(500_000))).await;
        loop {
            match self.ask(ask, counter, key).await {
                Ok(Told::RefusedBefore) => return self.sim.count("copy refused"),
                Ok(Told::Refused(_)) => return,
                Ok(Told::Events(_)) => {
                    let why = format!("{key} to counter {counter} was refused, and its copy took effect");
                    return self.sim.wrong(why);
                }
                Err(why) => self.sim.note(format_args!("a copy of {key}: {why}")),
            }
            self.sim.sleep(PAUSE).await;
        }
    }
}

/// The first id of counters that are erased. No other client uses them.
const ERASED: u64 = 1_000;

impl Clients {
    /// Asks until there is an answer.
    async fn ask_until_known(&self, ask: Ask, counter: u64, key: &str) -> CounterAnswer {
        let asked = self.sim.elapsed();
        loop {
            if let Ok(Told::Events(events)) = self.ask(ask, counter, key).await {
                return CounterAnswer {
                    counter,
                    asked,
                    given: self.sim.elapsed(),
                    events,
                    is_read: false,
                };
            }
            self.sim.sleep(PAUSE).await;
        }
    }

    /// Lets counters send and receive messages, then erases them, at any node.
    async fn eraser(self: Arc<Self>) {
        for id in ERASED.. {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            let (counter, other) = (self.sim.below(COUNTERS), self.sim.below(COUNTERS));
            self.ask_until_known(Ask::Send { to: counter }, id, &format!("from {id}"))
                .await;
            *self.seen.lock().unwrap().sent.entry(counter).or_default() += 1;
            let sent = self
                .ask_until_known(Ask::Send { to: id }, other, &format!("to {id}"))
                .await;
            self.seen.lock().unwrap().answers.push(sent);
            self.sim.sleep(Duration::from_micros(self.sim.below(2_000_000))).await;
            for _ in 0..10 {
                let node = self.any_node().await;
                let erase = move |engine: throng::Engine| async move { engine.erase("counter", &id.to_string()).await };
                let called = in_time(&self.sim, Duration::from_secs(10), self.nodes.call(node, erase)).await;
                match called {
                    Some(Ok(Ok(_))) => {
                        self.erased.lock().unwrap().push(id);
                        self.sim.count("counter erased");
                        break;
                    }
                    Some(Ok(Err(why))) => self.sim.note(format_args!("counter {id} is not erased: {why}")),
                    _ => {}
                }
                self.sim.sleep(PAUSE * 10).await;
            }
        }
    }
}

/// Waits for a future. `None`: it was not ready in time.
async fn in_time<T>(sim: &Sim, at_most: Duration, future: impl Future<Output = T>) -> Option<T> {
    let (mut future, mut over) = (std::pin::pin!(future), std::pin::pin!(sim.sleep(at_most)));
    std::future::poll_fn(|context| {
        use std::task::Poll;
        if let Poll::Ready(value) = future.as_mut().poll(context) {
            return Poll::Ready(Some(value));
        }
        over.as_mut().poll(context).map(|()| None)
    })
    .await
}

/// Applies one random fault to nodes, connections or clocks.
async fn step(sim: &Sim, nodes: &Nodes) {
    let up = nodes.up();
    let one = || up.get(sim.below(up.len() as u64) as usize).copied();
    let down: Vec<usize> = (0..NODES).filter(|node| !nodes.is_started(*node)).collect();
    match (sim.below(13), one(), one()) {
        (0, Some(node), _) => nodes.kill(node),
        (1..=3, ..) if !down.is_empty() => {
            let node = down[sim.below(down.len() as u64) as usize];
            let starts = nodes.clone();
            drop(sim.spawn(async move { starts.start(node).await }));
        }
        (4, Some(node), _) => nodes.pause(node, Duration::from_millis(sim.below(5_000))),
        (5, Some(one), Some(other)) if one != other => nodes.cut(one, other),
        (6, Some(node), _) if sim.chance(0.5) => nodes.cut_from_directory(node),
        (6, Some(node), _) => nodes.cut_from_database(node),
        (7, ..) => nodes.mend(),
        (8, ..) => nodes.restart_database(),
        (9, Some(node), _) => nodes.drain(node, sim.chance(0.5)).await,
        (11, node, _) => {
            let all = u64::from(sim.shards());
            let first = sim.below(all);
            let shards = first..=first + sim.below(all - first);
            let shards = shards.map(|shard| ShardId(u16::try_from(shard).unwrap())).collect();
            nodes.pin(&shards, node.filter(|_| sim.chance(0.7))).await;
        }
        (10, Some(node), _) => {
            let ahead = i64::try_from(sim.below(20_000_000)).unwrap() - 10_000_000;
            nodes.set_clock(node, ahead);
        }
        _ => {}
    }
}

async fn start_all(sim: &Sim, nodes: &Nodes) {
    for node in 0..NODES {
        while !nodes.is_started(node) && nodes.start(node).await.is_err() {
            sim.sleep(Duration::from_millis(200)).await;
        }
    }
}

fn seed(seed: u64, scenario: Scenario, keep_trace: bool) -> Result<Run, Box<Failure>> {
    let mut faults = Faults::random(seed);
    faults.lie = scenario.lie;
    // A call that takes as long as a lease is a broken connection, which is another fault.
    faults.stall_micros = 50_000..300_000;
    let views = SharedViews::default();
    let of_nodes = views.clone();
    let world = Simulation::new(seed)
        .with::<Counter>()
        .query::<Counter, Events>()
        .setup(move |builder| builder.projection(Counted).views(Arc::new(of_nodes.clone())))
        .options(Options {
            checkpoint_every: Duration::from_secs(1),
            ..Options::default()
        })
        .faults(faults)
        .keep_trace(keep_trace);
    let run = async |sim: Sim| {
        let nodes = sim.nodes(Timing::of(LEASE));
        (0..NODES).for_each(|node| nodes.set_app(node, upgrade::BEFORE));
        start_all(&sim, &nodes).await;
        let clients = Arc::new(Clients {
            sim: sim.clone(),
            nodes: nodes.clone(),
            seen: Mutex::default(),
            is_over: AtomicBool::new(false),
            erased: Mutex::default(),
            is_told: AtomicBool::new(false),
            changes: scenario.changes,
        });
        let running: Vec<_> = (0..CLIENTS)
            .map(|client| sim.spawn(clients.clone().client(client)))
            .collect();
        let erasing = sim.spawn(clients.clone().eraser());
        let followed = Arc::new(Followed::default());
        let following = sim.spawn(followed.clone().follow(clients.clone()));
        for number in 0..scenario.steps {
            sim.sleep(Duration::from_millis(20 + sim.below(1_500))).await;
            match upgrade::next(number, scenario) {
                Some(node) => upgrade::replace(&sim, &nodes, node).await,
                None => step(&sim, &nodes).await,
            }
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
        if scenario.upgrades {
            upgrade::is_over(&sim, &nodes).await;
        }
        clients.is_over.store(true, Ordering::Relaxed);
        for client in running {
            client.await.unwrap();
        }
        erasing.await.unwrap();
        counts_once(&sim, &clients, &views, &followed).await;
        clients.is_told.store(true, Ordering::Relaxed);
        following.await.unwrap();
        nodes.end();
    };
    world.try_run(run).map(|((), run)| run)
}

/// Checks that each counter has exactly its requested events, once all messages have arrived.
async fn counts_once(sim: &Sim, clients: &Clients, views: &SharedViews, followed: &Followed) {
    let seen = std::mem::take(&mut *clients.seen.lock().unwrap());
    let until = sim.elapsed() + Duration::from_secs(20);
    let mut wrong = seen.wrong();
    for counter in 0..COUNTERS {
        let expected = seen.events(counter);
        let found = loop {
            match clients.ask(Ask::Read, counter, "").await {
                Ok(Told::Events(events)) if events == expected => break events,
                Ok(Told::Events(events)) if sim.elapsed() > until => break events,
                _ if sim.elapsed() > until + Duration::from_secs(10) => {
                    wrong.push(format!("counter {counter} cannot be read"));
                    break expected;
                }
                _ => sim.sleep(PAUSE).await,
            }
        };
        if found != expected {
            wrong.push(format!(
                "counter {counter} has {found} events, {expected} were asked for"
            ));
        }
    }
    let erased = std::mem::take(&mut *clients.erased.lock().unwrap());
    for id in erased {
        match clients.ask(Ask::Read, id, "").await {
            Ok(Told::Events(events)) => wrong.push(format!("counter {id} was erased, and has {events} events")),
            Err(why) if why.contains("quarantined") => wrong.push(format!("counter {id} was erased, and {why}")),
            _ => {}
        }
    }
    let expected = (0..COUNTERS).map(|counter| (counter.to_string(), seen.events(counter)));
    let expected: BTreeMap<String, u64> = expected.filter(|(_, events)| *events > 0).collect();
    let mut rows = rows_of(views).await;
    while rows != expected && sim.elapsed() < until + Duration::from_secs(10) {
        sim.sleep(PAUSE).await;
        rows = rows_of(views).await;
    }
    if rows != expected {
        wrong.push(format!("the read model has {rows:?}, the counters {expected:?}"));
        for node in clients.nodes.up() {
            let projections = clients.nodes.call(node, |engine| async move { engine.projections() });
            sim.note(format_args!("projections of node {node}: {:?}", projections.await));
        }
    }
    let told = || followed.told.lock().unwrap().clone();
    while told() != expected && sim.elapsed() < until + Duration::from_secs(10) {
        sim.sleep(PAUSE).await;
    }
    if told() != expected {
        wrong.push(format!(
            "the follower was told {:?}, the counters have {expected:?}",
            told()
        ));
    }
    sim.note(format_args!("{} answers were seen", seen.answers.len()));
    wrong.into_iter().for_each(|wrong| sim.wrong(wrong));
}

async fn rows_of(views: &SharedViews) -> BTreeMap<String, u64> {
    let rows = views.0.scan("counted", ViewRange::default()).await.unwrap();
    let row = |(key, value): (Vec<u8>, Vec<u8>)| {
        Some((String::from_utf8(key).unwrap(), serde_json::from_slice(&value).ok()?))
    };
    rows.into_iter().filter_map(row).collect()
}

//= promise 1: one command at a time
#[test]
fn whatever_happens_to_nodes_each_answer_is_as_one_machines() {
    let test = "whatever_happens_to_nodes_each_answer_is_as_one_machines";
    let happens = [
        "node declared dead",
        "node declared dead that lived",
        "shards given",
        "shards pinned",
        "waited for a lease",
        "asked another node",
        "append to a sealed stream",
        "append in doubt",
        "counter erased",
        "command refused",
        "copy refused",
    ];
    for_each_seed_with(
        ("throng-sim --test nodes", test),
        100,
        &happens,
        |number, keep_trace| {
            let scenario = Scenario {
                steps: 25,
                changes: [63, 63, 5][usize::try_from(number % 3).unwrap()],
                upgrades: false,
                lie: None,
            };
            seed(number, scenario, keep_trace)
        },
    );
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let scenario = Scenario {
        steps: 10,
        changes: 63,
        upgrades: false,
        lie: None,
    };
    let hash = || seed(3, scenario, false).map(|run| run.trace_hash).unwrap();
    assert_eq!(hash(), hash());
}

/// Finds the first seed in which a broken promise shows as a fault.
fn is_noticed(lie: Lie, changes: u64, words: &[&str]) {
    let scenario = Scenario {
        steps: 40,
        changes,
        upgrades: false,
        lie: Some(lie),
    };
    let noticed = (0..1_000).find_map(|number| {
        let failure = seed(number, scenario, false).err()?;
        let is_it = |wrong: &String| words.iter().any(|word| wrong.contains(word));
        let wrong = failure.wrong.into_iter().find(is_it)?;
        Some((number, wrong))
    });
    match noticed {
        Some((seed, wrong)) => println!("{lie:?} is noticed with seed {seed}: {wrong}"),
        None => panic!("nobody noticed {lie:?} as one of {words:?}"),
    }
}

//= promise 7: a sealed writer cannot commit
#[test]
fn a_seal_that_is_ignored_is_noticed() {
    is_noticed(Lie::IgnoresSeals, 63, &["promised twice", "stale", "were asked for"]);
}

#[test]
fn a_take_over_before_the_lease_is_over_is_noticed() {
    is_noticed(Lie::TakesOverAtOnce, 5, &["stale"]);
}

#[test]
fn a_lease_by_the_time_of_day_is_noticed() {
    is_noticed(Lie::LeaseByTimeOfDay, 5, &["stale"]);
}

#[test]
fn a_take_over_because_sessions_are_gone_is_noticed() {
    is_noticed(Lie::TrustsFreeLock, 5, &["stale"]);
}

#[test]
fn a_message_that_is_taken_before_it_is_durable_is_noticed() {
    is_noticed(Lie::TakesBeforeDurable, 63, &["were asked for"]);
}

#[test]
fn a_stream_that_is_told_as_ended_too_early_is_noticed() {
    is_noticed(Lie::EndsStreamsEarly, 63, &["the read model has"]);
    is_noticed(Lie::EndsStreamsEarly, 63, &["the follower was told"]);
}
