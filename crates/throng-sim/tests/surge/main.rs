//! Isolation: a loop, an entity, an exchange of messages or a damaged row delays no other.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod forwards;
mod keys;
mod leading;
mod player;
mod rows;
mod shards;
mod slow;
mod storms;

use player::{Children, Command, Hits, Never, Player};
use std::time::Duration;
use throng::{Options, model::Error};
use throng_sim::{Sim, Simulation};

/// Returns a service of players.
fn service(seed: u64) -> Simulation {
    Simulation::new(seed).setup(|builder| {
        builder
            .with::<Player>()
            .query::<Player, Hits>()
            .query::<Player, Children>()
    })
}

/// Returns options under which nothing happens by itself.
fn quiet_options() -> Options {
    Options {
        checkpoint_every: Duration::from_secs(24 * 3_600),
        ..Options::default()
    }
}

/// Asks a player from a loop that the seed chooses.
async fn ask(sim: &Sim, id: &str, command: Command) -> Result<u64, Error<Never>> {
    let id = id.to_owned();
    let asked = sim.call(|engine| async move { engine.entity::<Player>(id).ask(command).await });
    asked.await.unwrap()
}

/// Asks a player from this loop. Also returns the duration.
async fn ask_on(sim: &Sim, own: usize, id: &str, command: Command) -> (Result<u64, Error<Never>>, Duration) {
    let (id, begun) = (id.to_owned(), sim.elapsed());
    let asked = sim.call_on(
        own,
        |engine| async move { engine.entity::<Player>(id).ask(command).await },
    );
    (asked.await.unwrap(), sim.elapsed() - begun)
}

/// Returns a player's hits, 0 if no message has reached it yet.
async fn hits(sim: &Sim, id: &str) -> u64 {
    let id = id.to_owned();
    let read = sim.call(|engine| async move { engine.entity::<Player>(id).read(Hits {}).await });
    match read.await.unwrap() {
        Err(Error::Unknown { .. }) => 0,
        hits => hits.unwrap(),
    }
}

/// Waits for a condition in virtual time.
async fn eventually(sim: &Sim, what: &str, mut condition: impl AsyncFnMut() -> bool) {
    for _ in 0..1_000 {
        if condition().await {
            return;
        }
        sim.sleep(Duration::from_millis(20)).await;
    }
    panic!("{what}: not within 20 s");
}

/// Returns a value from the engine's metrics.
fn level(sim: &Sim, name: &str) -> i64 {
    let (mut text, engine) = (String::new(), sim.engine().unwrap());
    engine.metrics().encode(&mut text).unwrap();
    let is_it = |line: &&str| line.starts_with(name) && line.as_bytes().get(name.len()) == Some(&b' ');
    let line = text.lines().find(is_it).unwrap();
    line[name.len() + 1..].trim().parse().unwrap()
}

/// Returns the size of the journal's largest commit, in bytes.
fn largest_commit(sim: &Sim) -> usize {
    let commits = sim.history().commits;
    commits.iter().map(|commit| commit.bytes().len()).max().unwrap_or(0)
}
