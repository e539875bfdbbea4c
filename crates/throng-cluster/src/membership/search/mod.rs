//! Exhaustive search: all orders of the steps by which nodes join, beat, declare others dead, take and give shards, and end, with pauses anywhere.
//!
//! The real [`Membership`](super::Membership) decides. A model carries the decisions out. It has a node's loop (`node_loop.rs`) and an engine's
//! epochs, with one step per statement, and the statements of the directory and the journal, each of them atomic. All reachable states are visited,
//! breadth first. These invariants must hold in each:
//!
//! - no shard has two writers, and no open stream may hold a shard of another node;
//! - a sealed stream does not grow, and a write lands only where its engine knew the ones before;
//! - the next owner reads everything acknowledged, and a read answered from memory is not older;
//! - no node was declared dead that had beaten within the time of silence, nor by a node that was disconnected itself in that time;
//! - without further faults, if each process in turn does what it can, all shards get served.
//!
//! # What is bounded, and how
//!
//! - Time is counted in ticks: a lease lasts one, and a silence lasts one. Counters stop at the last tick that matters. A tick can come between any
//!   two steps. A process may do nothing for any number of ticks, which is a pause. The statement that renews a lease is sent, executed and answered
//!   in one step. That is the latest start of a lease at its engine.
//! - Each search limits the number of writes, kills, restarts, lost answers, outages, drains, and of pauses so long that the others declare the
//!   process dead. Shorter pauses are not limited.
//! - A node below its share takes free shards, as it does once patience is over. With `is_dealt` they are taken as dealt.
//! - Beats are only compared for equality, and numbers of nodes and writers for their order. Numbers are reused once nobody can remember them, so a
//!   tie may be broken differently than with the real numbers.
//! - Ended things that nobody waits for are forgotten: nodes that own nothing, and streams with expired leases. A forgotten stream counts as sealed.
//!   A stream without shards can hold nothing, so it is never opened.
//! - Processes are interchangeable: states that differ only in their order are the same.
//! - There are no checkpoints, no messages, and no programs of two releases.
//!
//! Not searched here: `node_loop.rs` and the engine's epochs are modelled in `node.rs` and `engine.rs`, step by step. The code and its model must be
//! kept equal.
#![allow(clippy::unwrap_used, reason = "tests")]

mod database;
mod engine;
mod explore;
mod node;
mod state;

use explore::search;
use state::{Budget, World};

/// A deliberate fault of the model, to check that the search finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Lie {
    /// A node gives shards away while its open stream may hold them.
    GivesBesideItsStream,
    /// The streams of a node declared dead go on.
    DeclaresDeadWithoutSeal,
    /// A node is declared dead by an old beat, though it has beaten since.
    DeclaresDeadByAnOldBeat,
    /// A process whose sessions are gone counts as dead, without a check of its port.
    DeclaresDeadByFreeLocks,
    /// Silence is still counted while a node cannot beat itself.
    WatchesOnThroughOutages,
    OpensWithoutLookingAtTheOwner,
    AppendsToSealedStreams,
    /// No lease is waited for.
    TakesOverAtOnce,
    /// The lease of a process whose sessions are gone is not waited for.
    TrustsFreeLocks,
    /// A lease is measured by a clock that stands still while its process is paused.
    LeasesStandStill,
    /// A lease begins at the answer, a tick later than at the request.
    LeasesFromTheAnswer,
    ServesBeforeItHasRead,
    /// An engine that started for a node which is dead by now serves what its process owns as another node.
    CountsWhatTheLifeBeforeBegan,
}

fn all_holds(what: &str, world: World) {
    let begun = std::time::Instant::now();
    let searched = search(world);
    println!(
        "{what}: {} states, {:.1} s",
        searched.states,
        begun.elapsed().as_secs_f64()
    );
    if let Some((wrong, steps)) = searched.wrong {
        panic!(
            "{what}: {}, after\n{}\n{wrong}",
            &wrong[..wrong.len().min(90)],
            steps.join("\n")
        );
    }
}

fn is_noticed(lie: Lie, mut world: World, wrong: &str) {
    world.lie = Some(lie);
    let searched = search(world);
    let Some((found, steps)) = searched.wrong else {
        panic!("nobody noticed {lie:?} in {} states", searched.states);
    };
    println!(
        "{lie:?} is noticed after {} states and {} steps: {}",
        searched.states,
        steps.len(),
        found.lines().next().unwrap_or_default()
    );
    assert!(found.contains(wrong), "{found}, after\n{}", steps.join("\n"));
}

fn left(kinds: &[(&str, u8)]) -> Budget {
    let mut left = Budget::default();
    for (kind, count) in kinds {
        *match *kind {
            "writes" => &mut left.writes,
            "kills" => &mut left.kills,
            "restarts" => &mut left.restarts,
            "pauses" => &mut left.pauses,
            "lost" => &mut left.lost_answers,
            "outages" => &mut left.outages,
            "drains" => &mut left.drains,
            _ => panic!("{kind} are none of the things that may happen"),
        } = *count;
    }
    left
}

/// Two nodes that have not joined yet.
fn two(shards: usize, counts: &[(&str, u8)]) -> World {
    World::new(2, shards, left(counts))
}

#[test]
fn one_of_two_nodes_is_killed_and_started_again() {
    all_holds(
        "a kill, a start, a write",
        two(1, &[("kills", 1), ("restarts", 1), ("writes", 1)]),
    );
}

#[test]
fn one_of_two_nodes_pauses_until_it_is_declared_dead() {
    all_holds("a pause, a write", two(1, &[("pauses", 1), ("writes", 1)]));
}

#[test]
fn one_of_two_nodes_is_asked_to_give_its_shards() {
    all_holds("a drain, a write", two(1, &[("drains", 1), ("writes", 1)]));
}

#[test]
fn two_nodes_share_two_shards() {
    all_holds("two shards", two(2, &[("writes", 0)]));
}

#[test]
fn an_answer_of_a_statement_that_was_done_is_lost() {
    all_holds("a lost answer, a write", two(1, &[("lost", 1), ("writes", 1)]));
}

#[test]
fn the_database_is_away_for_a_while() {
    all_holds("an outage, a write", two(1, &[("outages", 1), ("writes", 1)]));
    all_holds("an outage, a pause", two(1, &[("outages", 1), ("pauses", 1)]));
}

#[test]
fn one_of_three_nodes_is_killed() {
    let mut world = World::new(3, 1, left(&[("kills", 1)])).served();
    world.is_dealt = true;
    all_holds("three nodes, a kill", world);
}

/// Searches further worlds, longer than a test may take: `THRONG_SEARCH="2 nodes 1 shards 2 writes 1 drains;…"`.
#[test]
fn the_environment_names_worlds_to_search() {
    let Ok(wanted) = std::env::var("THRONG_SEARCH") else {
        return;
    };
    for what in wanted.split(';') {
        let words: Vec<&str> = what.split_whitespace().collect();
        let counts: Vec<(&str, u8)> = words
            .chunks(2)
            .map(|pair| (pair[1], pair[0].parse().unwrap()))
            .collect();
        let of = |kind: &str| {
            counts
                .iter()
                .find(|(of, _)| *of == kind)
                .map_or(1, |(_, count)| usize::from(*count))
        };
        all_holds(what, World::new(of("nodes"), of("shards"), left(&counts[2..])));
    }
}

const TWO_OWNERS: &str = "a stream is open that may hold shards of another node";
const STALE: &str = "a read is answered that is older";

#[test]
fn each_lie_is_noticed() {
    let of = |counts: &[(&str, u8)]| World::new(2, 1, left(counts)).served();
    let pause = || of(&[("writes", 1), ("pauses", 1)]);
    let outage = || of(&[("writes", 1), ("pauses", 1), ("outages", 1)]);
    is_noticed(Lie::GivesBesideItsStream, of(&[("drains", 1)]), TWO_OWNERS);
    is_noticed(Lie::DeclaresDeadWithoutSeal, pause(), TWO_OWNERS);
    is_noticed(
        Lie::OpensWithoutLookingAtTheOwner,
        of(&[("drains", 1), ("lost", 1)]),
        TWO_OWNERS,
    );
    is_noticed(
        Lie::DeclaresDeadByAnOldBeat,
        pause(),
        "a node was declared dead that has beaten",
    );
    is_noticed(
        Lie::DeclaresDeadByFreeLocks,
        outage(),
        "a node was declared dead that has beaten",
    );
    is_noticed(
        Lie::WatchesOnThroughOutages,
        outage(),
        "declared dead by one that was cut off itself",
    );
    is_noticed(Lie::AppendsToSealedStreams, pause(), "a sealed stream has grown");
    is_noticed(
        Lie::ServesBeforeItHasRead,
        pause(),
        "an owner has not read what was acknowledged",
    );
    is_noticed(Lie::TakesOverAtOnce, pause(), STALE);
    is_noticed(Lie::LeasesStandStill, pause(), STALE);
    is_noticed(Lie::LeasesFromTheAnswer, pause(), STALE);
    is_noticed(Lie::TrustsFreeLocks, outage(), STALE);
    let begins = two(1, &[("pauses", 1)]);
    is_noticed(
        Lie::CountsWhatTheLifeBeforeBegan,
        begins,
        "a shard is never served again",
    );
}
