//! An old node that has not checked the others since the next release joined. A message that only that release understands waits for a check.

use super::{AFTER, BEFORE, Lie, NEW, PAGES, World, all_is_taken, is_noticed};
use crate::{PAUSE, SETTLES, in_time};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use throng::journal::ShardId;
use throng_core::limits;
use throng_sim::{Failure, Faults, Run, Sim, Simulation, Timing, for_each_seed};

/// Long enough for the sender's shard to move to the next release well before the lease of the node that does not notice expires.
const LEASE: Duration = Duration::from_secs(20);
const SHARDS: u16 = 2;
/// The node that has not checked.
const UNLOOKED: usize = 0;
const WAITS: &str = "waits at a node that has not looked";

fn page_of(shard: u16) -> u64 {
    let mut pages = 0..PAGES;
    let is_of = |page: &u64| limits::shard_of(limits::hash("page", &page.to_string()), SHARDS) == ShardId(shard);
    pages.find(is_of).unwrap()
}

async fn meet(sim: Sim) {
    let nodes = sim.nodes(Timing::of(LEASE));
    let world = Arc::new(World::new(&sim, &nodes, [BEFORE, BEFORE, BEFORE, 0]));
    // A node that has just started owns nothing until the others reach it.
    let pin = async |shard, node| {
        let shards = [ShardId(shard)].into_iter().collect();
        while !nodes.pin(&shards, Some(node)).await {
            sim.sleep(PAUSE).await;
        }
    };
    world.start_all().await;
    pin(0, UNLOOKED).await;
    pin(1, 1).await;
    if !nodes.settle(SETTLES).await {
        return sim.wrong("the old nodes do not serve".into());
    }
    nodes.cut_from_directory(UNLOOKED);
    world.apps[NEW].store(AFTER, Ordering::Relaxed);
    world.start_all().await;
    pin(1, NEW).await;
    let (from, to) = (page_of(1), page_of(0));
    let send = async {
        while world.ask_at(NEW, from, "SendNew", to, "key").await.is_err() {
            sim.sleep(PAUSE).await;
        }
    };
    if in_time(&sim, LEASE / 2, send).await.is_none() {
        return sim.wrong("the next release sends nothing".into());
    }
    let judged = async {
        loop {
            match world.left().await {
                (dead, waiting) if dead.is_empty() && waiting.is_empty() => sim.sleep(PAUSE).await,
                (_, waiting) if waiting.is_empty() => return,
                _ => return sim.count(WAITS),
            }
        }
    };
    if in_time(&sim, LEASE / 4, judged).await.is_none() {
        return sim.wrong("the message neither waits nor is dead".into());
    }
    nodes.mend();
    nodes.kill(UNLOOKED);
    world.apps[UNLOOKED].store(AFTER, Ordering::Relaxed);
    world.start_all().await;
    all_is_taken(&world).await;
    nodes.end();
}

fn seed(seed: u64, lie: Option<Lie>, keep_trace: bool) -> Result<Run, Box<Failure>> {
    let faults = Faults { lie, ..Faults::none() };
    let world = Simulation::new(seed).shards(SHARDS).faults(faults);
    world.keep_trace(keep_trace).try_run(meet).map(|((), run)| run)
}

#[test]
fn message_waits_at_a_node_that_has_not_looked() {
    let test = "rolling_upgrade::unlooked::message_waits_at_a_node_that_has_not_looked";
    for_each_seed("throng-sim --test nodes", test, 3, |number, keep_trace| {
        let run = seed(number, None, keep_trace).map_err(|failure| failure.to_string())?;
        run.trace.iter().for_each(|line| println!("{line}"));
        let waits = run.counts.contains_key(WAITS);
        waits.then_some(()).ok_or_else(|| "it did not wait".to_owned())
    });
}

#[test]
fn message_dead_by_an_early_look_is_noticed() {
    for number in 0..3 {
        is_noticed(Lie::LooksTooEarly, number..number + 1, |number, lie| {
            seed(number, lie, false)
        });
    }
}
