//! Exhaustive search: every order of the steps by which nodes join, beat, declare dead, take, give and leave off, with a pause anywhere.
//!
//! The real [`Membership`](super::Membership) decides. Around it is a model of what carries it out: of a node's loop (`node_loop.rs`) and of an engine's
//! epochs, one step a statement; and of the directory's and the journal's statements, each of which is atomic. All states that can be
//! reached are visited, breadth first; in each of them must hold:
//!
//! - no shard is written by two, and no stream is open that may hold a shard of another node;
//! - a sealed stream does not grow, and a write lands only where its engine knew the ones before;
//! - what was acknowledged is read by the next owner, and a read that is answered from memory is not older;
//! - nobody was declared dead that had beaten within the time of its silence, nor by one that was cut off itself in that time;
//! - if nothing goes wrong from here on, each process doing what it can in turn, all shards are served.
//!
//! # What is bounded, and how
//!
//! - Time is ticks: a lease lasts one, and one is a silence. What counts them stops at the last that matters. A tick can come between any two
//!   steps, and any process may do nothing for as many as there are: that is a pause. The statement that renews a lease is sent, done and
//!   answered in one step, which is the latest a lease can begin at its engine.
//! - What happens has a number in each search: writes, kills, restarts, lost answers, outages, drains, and pauses that are so long that the
//!   others declare dead the one that pauses; shorter ones have none.
//! - Shards that are nobody's are taken by whoever is below its share, as they are once patience is over; where it is said so, as they are
//!   dealt.
//! - Of a beat only counts whether it is another one, of numbers of nodes and writers their order. They are given again once nobody can remember
//!   them, so that a tie may be broken otherwise than by the numbers there would be.
//! - What ended and is waited for by nobody is forgotten: nodes that own nothing, streams whose leases are over. All that is said of them
//!   is that they are sealed. A stream without shards, which can hold nothing, is never opened.
//! - Processes have no places: states that differ only in who is who are one.
//! - There are no checkpoints, no messages, and no programs of two releases.
//!
//! Not searched here: `node_loop.rs` and the engine's epochs are modelled in `node.rs` and `engine.rs`, step by step, and have to be kept like it.
#![allow(clippy::unwrap_used, reason = "tests")]

mod database;
mod engine;
mod explore;
mod node;
mod state;

use explore::search;
use state::{Budget, World};

/// A deliberate fault of the model, so that the search finds something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Lie {
    /// Shards are given by one whose stream may hold them.
    GivesBesideItsStream,
    /// The streams of one that is declared dead go on.
    DeclaresDeadWithoutSeal,
    /// A node is declared dead by an old beat, though it has beaten since.
    DeclaresDeadByAnOldBeat,
    /// A process whose sessions are gone counts as dead: its port is not asked.
    DeclaresDeadByFreeLocks,
    /// Silence goes on being counted while one cannot beat oneself.
    WatchesOnThroughOutages,
    OpensWithoutLookingAtTheOwner,
    AppendsToSealedStreams,
    /// Nobody's lease is waited for.
    TakesOverAtOnce,
    /// The lease is not waited for of one whose sessions are gone.
    TrustsFreeLocks,
    /// A lease is measured by a clock that stands still while its process does.
    LeasesStandStill,
    /// A lease begins when it is answered, a tick later than when it was asked for.
    LeasesFromTheAnswer,
    ServesBeforeItHasRead,
    /// An engine that has begun for a node which is dead by now serves what its process owns as another node.
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

/// More of each, which takes longer than a test may: `THRONG_SEARCH="2 nodes 1 shards 2 writes 1 drains;…"`.
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
