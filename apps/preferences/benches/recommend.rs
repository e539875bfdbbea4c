//! Measures one recommendation in isolation: `cargo bench -p preferences`.

use preferences::{
    catalogue::{Catalogue, ITEMS},
    rules::recommend,
    user::{ActionKind, Summary},
};
use std::{hint::black_box, time::Instant};

const USERS: usize = 2_000;
const ACTIONS: usize = 40;
const ROUNDS: usize = 9;

fn main() {
    let mut random = fastrand::Rng::with_seed(1);
    let kinds = [ActionKind::View, ActionKind::Like, ActionKind::Buy];
    let users: Vec<Summary> = (0..USERS)
        .map(|_| {
            let mut summary = Summary::default();
            for at_s in 0..ACTIONS {
                let item = random.u32(..ITEMS as u32);
                summary.add(
                    kinds[random.usize(..3)],
                    item,
                    Catalogue::get().category(item),
                    at_s as i64,
                );
            }
            summary
        })
        .collect();
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let begun = Instant::now();
            for user in &users {
                black_box(recommend(black_box(user), 10));
            }
            begun.elapsed().as_secs_f64() * 1e6 / USERS as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!(
        "a recommendation of 10 items out of {ITEMS}: {:.1} µs (median of {ROUNDS} rounds over {USERS} users; {:.1} to {:.1})",
        rounds[ROUNDS / 2],
        rounds[0],
        rounds[ROUNDS - 1]
    );
}
