//! Diaries whose history is removed, copied, restored and lost, in random order.
//!
//! Each seed is a list of steps. A model has the expected diaries, histories and read model after each step. A restore is complete as of its moment,
//! or refused. A failing seed prints a short list of steps that is enough to fail.
//!
//! Each of these faults was put back into the product, one at a time, to check that the world finds it within 300 seeds:
//!
//! | fault | put back as | found with seed |
//! |---|---|---|
//! | a diary that was begun anew after it was gone is quarantined | the store refuses a first event above 1 without a state | 0 |
//! | a restore to before a removal is not refused | `Removed::refuse_incomplete` refuses nothing | 2 |
//! | a backup that is cut off leaves a removal without what replaces it | `LiveBackup::copy` stages nothing | 85 |
//! | a copy with a segment that the log has dropped is refused | `LiveBackup::was_dropped` says no | 120 |
//! | a read model that is rebuilt is not told of removed history | `removed_upto` goes by how far passes have come | 2 |
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod at_once;
#[path = "../diary/mod.rs"]
mod diary;
#[path = "../../../throng-log/tests/log/disk.rs"]
#[allow(dead_code, unreachable_pub, reason = "a disk for all tests of the log")]
mod disk;
mod journals;
mod known;
mod model;
mod step;
mod world;

use diary::{AGED, COUNTED, Diary, FOREVER, Look, keep};
use journals::{Backend, DiskLog, Schema};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use step::Step;
use throng::Options;
use throng_sim::{Failure, Run, Simulation, for_each_seed_with};
use world::{Numbers, SharedViews, World};

const PACKAGE: &str = "throng-sim --test combinations";
/// Also bounds the search for a shorter list of failing steps.
const SHRINKING_MAX: Duration = Duration::from_mins(2);

fn run(seed: u64, steps: &[Step], backend: Arc<dyn Backend>, keep_trace: bool) -> Result<Run, Box<Failure>> {
    let views = SharedViews::default();
    let has_passes = seed % 4 == 3;
    let options = Options {
        keep: keep().into(),
        prune_every: Some(Duration::from_millis(if has_passes { 700 } else { 10_000_000 })),
        memory_bytes_max: [2_500, 1 << 26][(seed / 4 % 2) as usize],
        checkpoint_every: Duration::from_millis([20, 10_000_000][(seed / 8 % 2) as usize]),
        drain: Duration::from_millis(50),
        ..Options::default()
    };
    let (of_engines, opening) = (views.clone(), backend.clone());
    let simulation = Simulation::new(seed)
        .with::<Diary<FOREVER>>()
        .query::<Diary<FOREVER>, Look>()
        .with::<Diary<AGED>>()
        .query::<Diary<AGED>, Look>()
        .with::<Diary<COUNTED>>()
        .query::<Diary<COUNTED>, Look>()
        .setup(move |builder| builder.projection(Numbers).views(Arc::new(of_engines.get())))
        .options(options)
        .shards(2)
        .journal(move || opening.open())
        .within(Duration::from_hours(100))
        .keep_trace(keep_trace);
    let live = async |sim: throng_sim::Sim| {
        let world = World::new(sim.clone(), backend, views, has_passes);
        if let Err(wrong) = world.live(steps).await {
            sim.wrong(wrong);
        }
    };
    simulation.try_run(live).map(|((), run)| run)
}

/// Returns the fault without its step and numbers. A shorter list of steps must fail in the same way.
fn gist(failure: &Failure) -> String {
    let wrong = failure.wrong.last().map_or("", String::as_str);
    let (_, wrong) = wrong.rsplit_once(" }: ").unwrap_or(("", wrong));
    wrong.chars().filter(|char| !char.is_ascii_digit()).take(24).collect()
}

/// Runs the steps of a seed. If they fail, the failure names a short list of steps.
fn seed(
    (seed, keep_trace): (u64, bool),
    (count, has_copies): (usize, bool),
    backend: impl Fn() -> Arc<dyn Backend>,
) -> Result<Run, Box<Failure>> {
    let steps = Step::all(seed, count, has_copies);
    let mut failure = match run(seed, &steps, backend(), keep_trace) {
        Ok(run) => return Ok(run),
        Err(failure) => failure,
    };
    let (mut left, begun, gist_of_all) = (steps, Instant::now(), gist(&failure));
    let mut piece = left.len() / 2;
    while piece > 0 {
        let mut at = 0;
        while at < left.len() && begun.elapsed() < SHRINKING_MAX {
            let mut fewer = left.clone();
            fewer.drain(at..(at + piece).min(left.len()));
            match run(seed, &fewer, backend(), false) {
                Err(fails) if gist(&fails) == gist_of_all => {
                    failure.wrong = fails.wrong;
                    left = fewer;
                }
                _ => at += piece,
            }
        }
        piece /= 2;
    }
    let steps: Vec<String> = left.iter().map(|step| format!("  {step:?}")).collect();
    failure
        .wrong
        .push(format!("these steps are enough:\n{}", steps.join("\n")));
    Err(failure)
}

#[test]
fn log_keeps_its_promises_in_any_order_of_operations() {
    let test = "log_keeps_its_promises_in_any_order_of_operations";
    let happens = [
        "begun anew",
        "erased",
        "pass that removed records",
        "pass after which a diary is gone",
        "process died in a step",
        "store lost",
        "read model told that history was removed",
        "backup made",
        "backup cut off",
        "restored to the end",
        "restored to a moment",
        "restore refused",
        "restore cut off",
        "went on with what was restored",
    ];
    for_each_seed_with((PACKAGE, test), 16, &happens, |number, keep_trace| {
        seed((number, keep_trace), (40, true), || Arc::new(DiskLog::new(number)))
    });
}

#[test]
fn postgres_keeps_its_promises_in_any_order_of_operations() {
    let test = "postgres_keeps_its_promises_in_any_order_of_operations";
    let happens = ["begun anew", "erased", "pass that removed records"];
    for_each_seed_with((PACKAGE, test), 2, &happens, |number, keep_trace| {
        seed((number, keep_trace), (25, false), || Arc::new(Schema::new()))
    });
}
