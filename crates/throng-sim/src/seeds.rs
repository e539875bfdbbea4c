//! A test for each of many seeds.

/// Runs a test for each of so many seeds, from `THRONG_SIM_SEEDS` if that is set; with `THRONG_SIM_SEED=n` for that one
/// alone. The test is told whether to keep its trace, and says what was wrong.
///
/// # Panics
/// With the first seed that fails, and the command that replays it.
pub fn for_each_seed(package: &str, test: &str, seeds: u64, mut run: impl FnMut(u64, bool) -> Result<(), String>) {
    let number = |name| {
        std::env::var(name)
            .ok()
            .and_then(|text: String| text.parse::<u64>().ok())
    };
    let (first, count) = match number("THRONG_SIM_SEED") {
        Some(seed) => (seed, 1),
        None => (0, number("THRONG_SIM_SEEDS").unwrap_or(seeds)),
    };
    let replays = number("THRONG_SIM_SEED").is_some();
    for seed in first..first + count {
        if let Err(wrong) = run(seed, replays) {
            panic!("{wrong}\nreplay it with: THRONG_SIM_SEED={seed} cargo test -p {package} {test} -- --nocapture");
        }
    }
}
