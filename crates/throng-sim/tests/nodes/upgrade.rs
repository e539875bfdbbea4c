//! A rolling upgrade: nodes are replaced by those of the next release, one after another, while clients ask and faults happen.

use super::{NODES, Scenario, seed};
use std::time::Duration;
use throng_sim::{Nodes, Sim, for_each_seed_with};

/// The release of all nodes at first, and the one at the end.
pub(crate) const BEFORE: u64 = 1;
const AFTER: u64 = 2;
/// The number of steps between two replacements.
const EVERY: u64 = 7;

/// Returns the node to be replaced in this step.
pub(crate) fn next(step: u64, scenario: Scenario) -> Option<usize> {
    let number = usize::try_from(step / EVERY).ok()?;
    (scenario.upgrades && step % EVERY == EVERY - 1 && number < NODES).then_some(number)
}

/// Ends a node, with or without handing its shards over, and starts the next release in its place.
pub(crate) async fn replace(sim: &Sim, nodes: &Nodes, node: usize) {
    if sim.chance(0.5) {
        nodes.drain(node, true).await;
        sim.sleep(Duration::from_millis(sim.below(2_000))).await;
    }
    nodes.kill(node);
    nodes.set_app(node, AFTER);
    sim.count("node replaced");
    let owners = nodes.shards_by_app().await;
    if owners.contains_key(&BEFORE) && owners.contains_key(&AFTER) {
        sim.count("both releases owned shards");
    }
    let starts = nodes.clone();
    drop(sim.spawn(async move { starts.start(node).await }));
}

/// Waits until the next release owns everything.
pub(crate) async fn is_over(sim: &Sim, nodes: &Nodes) {
    let owners = nodes.shards_by_app().await;
    if owners.keys().any(|app| *app != AFTER) {
        sim.wrong(format!("shards by release, after all nodes were replaced: {owners:?}"));
    }
}

#[test]
fn in_a_rolling_upgrade_no_shard_goes_back_to_an_older_node() {
    let test = "upgrade::in_a_rolling_upgrade_no_shard_goes_back_to_an_older_node";
    let happens = [
        "node replaced",
        "both releases owned shards",
        "node declared dead",
        "shards given",
    ];
    for_each_seed_with(("throng-sim --test nodes", test), 15, &happens, |number, keep_trace| {
        let scenario = Scenario {
            steps: 4 * EVERY,
            changes: 63,
            upgrades: true,
            lie: None,
        };
        seed(number, scenario, keep_trace)
    });
}
