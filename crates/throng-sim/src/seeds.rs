//! Runs a test for many seeds.

use crate::{Failure, Run, reached};
use std::{collections::BTreeMap, io::Write as _};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn is_one_alone() -> bool {
    number("THRONG_SIM_SEED").is_some()
}

/// Returns the divisor of `THRONG_SIM_PART`, by which a quick run reduces the seeds.
fn part() -> u64 {
    number("THRONG_SIM_PART").unwrap_or(1).max(1)
}

/// Runs a test for each of this many seeds. `THRONG_SIM_SEEDS` sets another number, `THRONG_SIM_SEED=n` runs only seed n, and
/// `THRONG_SIM_PART=n` runs the first n-th of the seeds. The test is told whether to keep its trace, and returns its faults. Prints what
/// the runs have [reached](crate::Reached), and warns of commands and events that no run reached.
///
/// # Panics
/// At the first seed that fails, with the command that replays it.
pub fn for_each_seed(package: &str, test: &str, seeds: u64, mut run: impl FnMut(u64, bool) -> Result<(), String>) {
    let (first, count) = match number("THRONG_SIM_SEED") {
        Some(seed) => (seed, 1),
        None => (0, number("THRONG_SIM_SEEDS").unwrap_or(seeds).div_ceil(part())),
    };
    drop(reached::take());
    for seed in first..first + count {
        if let Err(wrong) = run(seed, is_one_alone()) {
            panic!("{wrong}\nreplay it with: THRONG_SIM_SEED={seed} cargo test -p {package} {test} -- --nocapture");
        }
    }
    let (runs, reached) = reached::take();
    print!("{reached}");
    let never = reached.never();
    if !never.is_empty() && !is_one_alone() && part() == 1 {
        // Written directly, so that it shows even if the output of passing tests is hidden.
        let warning = format!("warning: {test}: {runs} runs have never reached {}\n", never.join(", "));
        let _ = std::io::stderr().write_all(warning.as_bytes());
    }
}

/// Works like [`for_each_seed`]. In addition each of these things must happen in at least one run; otherwise the test would show nothing. A
/// reduced number of seeds may miss some. Prints how often each happened.
///
/// # Panics
/// At the first seed that fails, or if something never happened.
pub fn for_each_seed_with(
    (package, test): (&str, &str),
    seeds: u64,
    happens: &[&str],
    mut run: impl FnMut(u64, bool) -> Result<Run, Box<Failure>>,
) {
    let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
    let mut seeds_with: BTreeMap<&'static str, u64> = BTreeMap::new();
    for_each_seed(package, test, seeds, |seed, keep_trace| {
        let run = run(seed, keep_trace).map_err(|failure| format!("seed {seed}:\n{failure}"))?;
        run.trace.iter().for_each(|line| println!("{line}"));
        for (what, count) in run.counts {
            *counts.entry(what).or_default() += count;
            *seeds_with.entry(what).or_default() += u64::from(count > 0);
        }
        Ok(())
    });
    println!("{counts:?}");
    for what in happens {
        println!("{what}: with {} seeds", seeds_with.get(what).copied().unwrap_or(0));
        let has_happened = counts.get(what).is_some_and(|count| *count > 0);
        assert!(
            has_happened || is_one_alone() || part() > 1,
            "never: {what}; {counts:?}"
        );
    }
}
