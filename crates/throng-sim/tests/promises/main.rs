//! The engine's promises, checked with thousands of seeds.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod account;
mod book;
mod checker;
mod client;
mod janitor;
mod proofs;
mod relay;
mod run;
mod worlds;

use run::{CALM, Scenario};
use throng_sim::for_each_seed;

fn all(test: &str, seeds: u64, scenario: Scenario) {
    for_each_seed("throng-sim", test, seeds, |seed, keep_trace| {
        match run::seed(seed, scenario, keep_trace) {
            Ok(run) => {
                if keep_trace {
                    println!("{}", run.trace.join("\n"));
                }
                Ok(())
            }
            Err(failure) => Err(format!("seed {seed}:\n{failure}")),
        }
    });
}

//= promise 1: one command at a time
#[test]
fn a_calm_service_keeps_its_promises() {
    all("a_calm_service_keeps_its_promises", 300, CALM);
}

//= promise 2: acknowledged events survive
#[test]
fn a_service_that_is_killed_keeps_its_promises() {
    let scenario = Scenario { crashes: true, ..CALM };
    all("a_service_that_is_killed_keeps_its_promises", 500, scenario);
}

//= promise 3: answers rest on durable events
#[test]
fn a_service_on_a_failing_journal_keeps_its_promises() {
    let scenario = Scenario { faults: true, ..CALM };
    all("a_service_on_a_failing_journal_keeps_its_promises", 500, scenario);
}

#[test]
fn everything_at_once_keeps_its_promises() {
    let scenario = Scenario {
        faults: true,
        crashes: true,
        upgrades: true,
        rivals: true,
        ..CALM
    };
    all("everything_at_once_keeps_its_promises", 2_000, scenario);
}

#[test]
fn several_loops_keep_the_promises() {
    let scenario = Scenario {
        faults: true,
        crashes: true,
        upgrades: true,
        rivals: true,
        loops: true,
        ..CALM
    };
    all("several_loops_keep_the_promises", 300, scenario);
}

#[test]
fn power_loss_at_os_durability_takes_the_end_and_nothing_else() {
    let scenario = Scenario {
        faults: true,
        crashes: true,
        power_loss: true,
        ..CALM
    };
    all(
        "power_loss_at_os_durability_takes_the_end_and_nothing_else",
        1_000,
        scenario,
    );
}
