//! Epochs of one node over a store with faults, and over one that breaks its promises: kills, pauses, late requests of dead processes.

use crate::{
    weather::{LATEST, Remote, Server, Weather},
    world::{Group, Process, World},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    time::Duration,
};
use throng_conditional::{ConditionalJournal, ConditionalOptions, Opened, open_conditional};
use throng_journal::{
    Address, AppendError, Checkpoint, CommitBuilder, CommitNo, Error, Journal as _, Maybe, Position, RecordKind,
    ShardId, ShardSet, Stamp, Store as _, WriterId,
};

const SHARDS: u16 = 4;
const LEASE: Duration = Duration::from_secs(10);

/// The outcome of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Sent,
    Durable,
    /// Must never be there.
    Never,
}

/// The knowledge of the clients: what was acknowledged, and what may be there.
#[derive(Default)]
struct Clients {
    values: BTreeMap<u64, Outcome>,
    /// The newest position that a reported checkpoint covers.
    covered: Option<Position>,
    /// All writers opened, in all processes.
    writers: Vec<(ConditionalJournal, WriterId)>,
    /// True if reads may be stale. A lease renewed by reads needs reads that are not.
    reads_are_stale: bool,
}

type Shared = Arc<Mutex<Clients>>;
/// The result of an epoch, once it has ended.
type Done = Arc<Mutex<Option<Result<(), String>>>>;

fn with<T>(clients: &Shared, look: impl FnOnce(&mut Clients) -> T) -> T {
    look(&mut clients.lock().unwrap_or_else(PoisonError::into_inner))
}

fn open(world: &Arc<World>, server: &Arc<Server>, group: Group, weather: Weather) -> Opened {
    let remote = Remote {
        world: Arc::clone(world),
        server: Arc::clone(server),
        weather,
    };
    let host = Process {
        world: Arc::clone(world),
        group,
    };
    let options = ConditionalOptions {
        lease: LEASE,
        depth: 1 + world.below(3) as usize,
    };
    open_conditional(Arc::new(remote), Arc::new(host), options)
}

/// Returns the values of the whole history before this writer, and the ends of its streams.
async fn history(opened: &Opened, by: WriterId) -> Result<(Vec<u64>, Vec<Position>), Error> {
    let shards: Vec<ShardId> = ShardSet::first(SHARDS).iter().collect();
    let (mut values, mut ends) = (Vec::new(), Vec::new());
    for taken in opened.journal.take(by, &shards).await? {
        let mut at = Position::new(taken.writer, CommitNo(0));
        while at.commit < taken.last {
            let commits = opened.journal.read(at, 1 << 12).await?;
            if commits.is_empty() {
                return Err(Error::NoCommit(at));
            }
            for commit in commits {
                assert_eq!(commit.stamp().number, at.commit.next(), "numbers follow each other");
                at = commit.position();
                let bodies = commit
                    .records()
                    .flatten()
                    .filter(|record| record.record == RecordKind::Event);
                values.extend(bodies.map(|record| u64::from_le_bytes(record.body.try_into().unwrap())));
            }
        }
        assert_eq!(at.commit, taken.last, "a stream ends where its seal said");
        ends.push(at);
    }
    Ok((values, ends))
}

/// Compares the history with what clients were told. Everything durable before this epoch began must be there.
fn compare(clients: &Shared, before: &BTreeSet<u64>, values: &[u64]) -> Result<(), String> {
    with(clients, |clients| {
        let mut count: BTreeMap<u64, u32> = BTreeMap::new();
        values.iter().for_each(|value| *count.entry(*value).or_default() += 1);
        for (value, times) in &count {
            if *times > 1 {
                return Err(format!("value {value} is there {times} times"));
            }
            if clients.values.get(value) == Some(&Outcome::Never) {
                return Err(format!("value {value} is there, and was said never to be"));
            }
        }
        let lost = before.iter().find(|value| !count.contains_key(value));
        match lost {
            Some(value) => Err(format!("value {value} was acknowledged and is lost")),
            None => Ok(()),
        }
    })
}

/// Returns normally if another epoch has ended this one. Every other error is a fault found.
fn told(why: Error) -> String {
    match why {
        Error::Sealed(_) => "over".into(),
        why => format!("caught: {why}"),
    }
}

/// Runs one epoch: opens, recovers, compares, appends, makes checkpoints, until it is killed or ends.
async fn live(world: Arc<World>, opened: Opened, clients: Shared, commits: u64) -> Result<(), String> {
    let is_durable = |(value, outcome): (&u64, &Outcome)| (*outcome == Outcome::Durable).then_some(*value);
    let before: BTreeSet<u64> = with(&clients, |clients| {
        clients.values.iter().filter_map(is_durable).collect()
    });
    let covered = with(&clients, |clients| clients.covered);
    let writer = opened.journal.open("node").await.map_err(told)?.writer;
    with(&clients, |clients| {
        let mut others = clients.writers.iter().filter(|_| !clients.reads_are_stale);
        if let Some((_, old)) = others.find(|(journal, old)| *old < writer && journal.holds(*old)) {
            return Err(format!("writer {old} may still answer while writer {writer} serves"));
        }
        clients.writers.push(((*opened.journal).clone(), writer));
        Ok(())
    })?;
    let (values, ends) = history(&opened, writer).await.map_err(told)?;
    compare(&clients, &before, &values)?;
    check_rows(&opened, covered, writer, &ends).await?;
    let mut flights = Vec::new();
    let mut durable = 0;
    for number in 1..=commits {
        let value = world.below(u64::MAX);
        with(&clients, |clients| clients.values.insert(value, Outcome::Sent));
        let mut open = CommitBuilder::default();
        let shard = ShardId(world.below(u64::from(SHARDS)) as u16);
        let address = Address::new("kind", format!("{value:x}"));
        open.push(RecordKind::Event, shard, &address, 1, "Added", 1, &value.to_le_bytes());
        let commit = open.finish(Stamp::new(writer, CommitNo(number), 0));
        flights.push((number, value, opened.journal.append(commit)));
        let is_full = flights.len() >= opened.journal.depth();
        if !is_full && number < commits {
            continue;
        }
        let landing = if number == commits { flights.len() } else { 1 };
        for (number, value, flight) in flights.drain(..landing) {
            let outcome = match flight.landed().await.result {
                Ok(()) => Outcome::Durable,
                Err(AppendError::Sealed) => Outcome::Never,
                Err(AppendError::RolledBack(why)) => return Err(format!("caught: {why}")),
                Err(_) => Outcome::Sent,
            };
            with(&clients, |clients| clients.values.insert(value, outcome));
            if outcome != Outcome::Durable {
                // The writer's next check sees what the store has done, and ends its epoch.
                world.sleep(Duration::from_secs(60)).await;
                let broken = opened.journal.losses().first().map(ToString::to_string);
                return broken.map_or(Ok(()), |why| Err(format!("caught: {why}")));
            }
            durable = number;
        }
        if world.chance(200) {
            let upto = Position::new(writer, CommitNo(durable));
            let row = (
                b"count".to_vec(),
                Some((values.len() as u64 + durable).to_le_bytes().to_vec()),
            );
            let checkpoint = Checkpoint {
                upto,
                shards: ShardSet::first(SHARDS),
                sealed: ends.clone(),
                system: vec![row],
                ..Checkpoint::default()
            };
            match opened.store.advance(checkpoint).await {
                Ok(()) => with(&clients, |clients| clients.covered = clients.covered.max(Some(upto))),
                Err(Error::RolledBack(why)) => return Err(format!("caught: {why}")),
                Err(_) => {}
            }
        }
        if world.chance(300) {
            world.sleep(Duration::from_millis(world.below(2_000))).await;
        }
    }
    Ok(())
}

/// Checks that the rows of the last checkpoint match the history up to it, and that no acknowledged checkpoint is gone.
async fn check_rows(opened: &Opened, covered: Option<Position>, by: WriterId, ends: &[Position]) -> Result<(), String> {
    let shards = ShardSet::first(SHARDS);
    let found = opened.store.covers(&shards).await.map_err(told)?;
    if found.len() != 1 {
        return Err(format!("the shards are covered unlike: {found:?}"));
    }
    let upto = found[0].upto;
    if covered > upto {
        return Err(format!("the store covers {upto:?} after it had covered {covered:?}"));
    }
    // A later writer may have taken over meanwhile.
    let Some(upto) = upto.filter(|upto| upto.writer < by) else {
        return Ok(());
    };
    let count = match opened.store.system(b"count") {
        Maybe::Ready(row) => row,
        Maybe::Later(row) => row.await,
    };
    let count = count
        .map_err(told)?
        .map(|row| u64::from_le_bytes(row.try_into().unwrap()));
    let before = ends
        .iter()
        .filter(|end| end.writer < upto.writer)
        .map(|end| end.commit.0);
    let expected = before.sum::<u64>() + upto.commit.0;
    if count != Some(expected) {
        return Err(format!(
            "the rows count {count:?} commits up to {upto}, and there are {expected}"
        ));
    }
    // Each event up to there is indexed exactly once.
    let entities = opened.store.entities("kind", None, usize::MAX).await.map_err(told)?;
    if entities.len() as u64 != expected {
        return Err(format!(
            "{} events are indexed up to {upto}, of {expected}",
            entities.len()
        ));
    }
    Ok(())
}

#[derive(Debug, Default)]
struct Tally {
    lies: u64,
    caught: u64,
    durable: u64,
}

/// Runs several epochs one after another and concurrently. With a store that breaks its promises no writer is killed: damage to a writer that dies at
/// once could not be seen.
fn run(seed: u64, weather: Weather, tally: &mut Tally) -> Result<(), String> {
    let world = World::new(seed);
    let server: Arc<Server> = Arc::default();
    let clients: Shared = Arc::default();
    let lies = weather.two_win > 0;
    with(&clients, |clients| clients.reads_are_stale = weather.stale > 0);
    let mut lives: Vec<(Group, Opened, Done)> = Vec::new();
    let result = |of: &Done| of.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let begin = |group: Group, commits: u64, weather: Weather| {
        let opened = open(&world, &server, group, weather);
        let done = Done::default();
        let (told, life) = (
            Arc::clone(&done),
            live(Arc::clone(&world), opened.clone(), Arc::clone(&clients), commits),
        );
        let task = async move {
            let result = life.await;
            *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        };
        world.spawn(group, Box::pin(task));
        (opened, done)
    };
    let mut found: Vec<String> = Vec::new();
    for group in 1..=4 + world.below(3) {
        let (opened, done) = begin(group, 1 + world.below(40), weather);
        // Waits until the node serves, has failed, or takes too long.
        let patience = world.now() + Duration::from_secs(60 + world.below(100));
        let count = with(&clients, |clients| clients.writers.len());
        world.run(async {
            let serves = || with(&clients, |clients| clients.writers.len()) > count;
            while !serves() && result(&done).is_none() && world.now() < patience {
                world.sleep(Duration::from_millis(100)).await;
            }
        });
        world.run(world.sleep(Duration::from_millis(world.below(20_000))));
        match world.below(4) {
            0 if !lies => world.kill(group),
            1 => world.pause(group, true),
            2 => {}
            _ => world.run(async {
                let late = world.now() + Duration::from_secs(200);
                while result(&done).is_none() && world.now() < late {
                    world.sleep(Duration::from_millis(500)).await;
                }
            }),
        }
        lives.push((group, opened, done));
        // Some paused epochs continue beside the later ones.
        for (group, ..) in &lives {
            if world.chance(150) {
                world.pause(*group, false);
            }
        }
    }
    lives.iter().for_each(|(group, ..)| world.pause(*group, false));
    // The last epochs see everything, without faults, before and after the late requests.
    for group in [1_000, 1_001] {
        let (opened, done) = begin(group, 5, Weather::FAIR);
        world.run(async {
            let late = world.now() + Duration::from_secs(2_000);
            while result(&done).is_none() && world.now() < late {
                world.sleep(Duration::from_secs(1)).await;
            }
        });
        lives.push((group, opened, done));
        world.run(world.sleep(LATEST));
    }
    for (group, opened, done) in &lives {
        let losses = opened.journal.losses();
        found.extend(losses.first().map(|loss| format!("caught by life {group}: {loss}")));
        match result(done) {
            Some(Err(why)) if why == "over" && *group < 1_000 => {}
            Some(Err(why)) if lies && why.starts_with("caught") => found.push(why),
            Some(Err(why)) if lies => found.push(format!("wrong: {why}")),
            Some(Err(why)) => return Err(format!("life {group}: {why}")),
            Some(Ok(())) => {}
            None if *group >= 1_000 && !lies => return Err("the last life does not serve".into()),
            None => {}
        }
    }
    tally.durable += with(&clients, |clients| {
        clients.values.values().filter(|is| **is == Outcome::Durable).count() as u64
    });
    let told = server.lies.lock().unwrap_or_else(PoisonError::into_inner).clone();
    tally.lies += u64::from(!told.is_empty());
    let is_caught = found.iter().any(|why| why.starts_with("caught"));
    tally.caught += u64::from(is_caught);
    match found.iter().find(|why| why.starts_with("wrong")) {
        Some(wrong) if !is_caught => Err(format!("nobody has caught it: {wrong}; {told:?}")),
        _ if !found.is_empty() && told.is_empty() => Err(format!("the store has not lied: {found:?}")),
        _ => Ok(()),
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs a test for this many seeds. `THRONG_SIM_SEEDS` overrides the number, `THRONG_SIM_SEED` selects one seed.
fn for_each_seed(test: &str, seeds: u64, weather: Weather) -> Tally {
    let (first, count) = match number("THRONG_SIM_SEED") {
        Some(seed) => (seed, 1),
        None => (
            0,
            number("THRONG_SIM_SEEDS")
                .unwrap_or(seeds)
                .div_ceil(number("THRONG_SIM_PART").unwrap_or(1).max(1)),
        ),
    };
    let mut tally = Tally::default();
    for seed in first..first + count {
        if let Err(wrong) = run(seed, weather, &mut tally) {
            panic!(
                "seed {seed}: {wrong}\nreplay it with: THRONG_SIM_SEED={seed} cargo test -p throng-conditional {test} -- --nocapture"
            );
        }
    }
    println!("{test}: {count} seeds, {tally:?}");
    tally
}

#[test]
fn nothing_is_lost_or_doubled_in_rough_weather() {
    let tally = for_each_seed("nothing_is_lost_or_doubled_in_rough_weather", 200, Weather::ROUGH);
    assert!(tally.durable > 0);
}

#[test]
fn stale_reads_are_harmless() {
    let weather = Weather {
        stale: 150,
        ..Weather::ROUGH
    };
    for_each_seed("stale_reads_are_harmless", 100, weather);
}

#[test]
fn a_store_that_lets_two_win_is_caught() {
    let weather = Weather {
        two_win: 300,
        ..Weather::ROUGH
    };
    for_each_seed("a_store_that_lets_two_win_is_caught", 100, weather);
}

#[test]
fn an_idle_node_puts_nothing() {
    let (world, server) = (World::new(7), Arc::<Server>::default());
    let opened = open(&world, &server, 1, Weather::FAIR);
    let writer = world.run(opened.journal.open("node")).unwrap().writer;
    let before = server.puts.load(Ordering::Relaxed);
    world.run(world.sleep(LEASE * 100));
    assert!(opened.journal.holds(writer), "it keeps its lease by reads");
    assert_eq!(server.puts.load(Ordering::Relaxed), before);
}
