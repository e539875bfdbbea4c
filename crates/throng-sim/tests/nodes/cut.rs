//! Nodes that are disconnected from each other, but not from the database.

use crate::{
    LEASE, PAUSE, SETTLES,
    counter::{Counter, Events},
};
use throng_sim::{Nodes, Sim, Simulation, Timing};

/// Waits until this many nodes serve all shards.
async fn serve_all(sim: &Sim, nodes: &Nodes, count: usize, when: &str) {
    let until = sim.elapsed() + SETTLES;
    while nodes.serving() != count && sim.elapsed() < until {
        sim.sleep(PAUSE).await;
    }
    if nodes.serving() != count || !nodes.settle(SETTLES).await {
        sim.wrong(format!("{} nodes serve {when}, and not {count}", nodes.serving()));
    }
}

/// Disconnects the nodes before a number from the others, then reconnects all.
fn cut_at(first: usize, count: usize, serving: usize) {
    let run = async |sim: Sim| {
        let nodes = sim.nodes(Timing::of(LEASE));
        for node in 0..count {
            while !nodes.is_started(node) && nodes.start(node).await.is_err() {
                sim.sleep(PAUSE).await;
            }
            serve_all(&sim, &nodes, node + 1, "before the cut").await;
        }
        for one in 0..first {
            (first..count).for_each(|other| nodes.cut(one, other));
        }
        serve_all(&sim, &nodes, serving, "while they are cut in two").await;
        nodes.mend();
        serve_all(&sim, &nodes, count, "after it").await;
        nodes.end();
    };
    let world = Simulation::new(1).with::<Counter>().query::<Counter, Events>();
    world.try_run(run).unwrap();
}

#[test]
fn older_of_two_cut_nodes_serves_all_until_it_is_mended() {
    cut_at(1, 2, 1);
}

#[test]
fn one_half_of_four_nodes_serves_all_until_it_is_mended() {
    cut_at(2, 4, 2);
}

#[test]
fn node_that_the_others_miss_gives_its_shards_to_them() {
    cut_at(1, 3, 2);
}
