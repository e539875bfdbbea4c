//! The checker can fail: it notices each promise that a journal or store breaks.

use crate::run::{self, CALM, Scenario};
use throng_sim::Lie;

/// Finds the first seed that reveals the lie. Returns it with the report.
fn noticed(lie: Lie, seeds: u64, words: &[&str]) -> Option<(u64, String)> {
    let scenario = Scenario {
        faults: true,
        crashes: true,
        rivals: lie == Lie::IgnoresSeals,
        lie: Some(lie),
        ..CALM
    };
    (0..seeds).find_map(|seed| {
        let failure = run::seed(seed, scenario, false).err()?;
        let is_it = |wrong: &String| words.iter().any(|word| wrong.contains(word));
        let wrong = failure.wrong.into_iter().find(is_it)?;
        Some((seed, wrong))
    })
}

fn is_noticed(lie: Lie, words: &[&str]) {
    match noticed(lie, 200, words) {
        Some((seed, wrong)) => println!("{lie:?} is noticed with seed {seed}: {wrong}"),
        None => panic!("nobody noticed {lie:?} as one of {words:?}"),
    }
}

//= promise 2: acknowledged events survive
#[test]
fn a_journal_that_loses_an_acknowledged_commit_is_noticed() {
    is_noticed(Lie::LosesAcknowledged, &["promise 2", "promise 3"]);
}

//= promise 5: numbers have no gaps
#[test]
fn a_commit_that_lands_twice_is_noticed() {
    is_noticed(Lie::LandsTwice, &["promise 5", "promise 4", "promise 6"]);
}

//= promise 6: taken exactly once
#[test]
fn a_lost_receipt_of_a_message_is_noticed() {
    is_noticed(Lie::DropsTaken, &["promise 6"]);
}

//= promise 3: answers rest on durable events
#[test]
fn a_stale_state_is_noticed() {
    is_noticed(Lie::StaleState, &["promise 5", "promise 3", "ends as"]);
}

//= promise 7: a sealed writer cannot commit
#[test]
fn a_seal_that_is_ignored_is_noticed() {
    is_noticed(Lie::IgnoresSeals, &["promise 2", "promise 3"]);
}

#[test]
fn a_commit_that_lands_in_part_is_noticed() {
    is_noticed(Lie::TearsCommit, &["promise 2", "promise 3", "in part", "promise 5"]);
}

//= promise 4: a key takes effect once
#[test]
fn a_store_that_forgets_keys_is_noticed() {
    is_noticed(Lie::ForgetsKeys, &["promise 4"]);
}
