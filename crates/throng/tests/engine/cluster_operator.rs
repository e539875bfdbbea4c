//! An operator's decisions about entities of several nodes, requested at any of them.

use crate::{
    kinds::{Account, Command, View, ask, balance, eventually},
    nodes::{Cluster, Node, SHARDS, shards},
};
use throng::{OperatorDecision, journal::ShardSet, model::Error};

const PAID: i64 = 40;

fn ann() -> OperatorDecision<'static> {
    OperatorDecision::new("ann", "it is watched")
}

/// Two nodes. The second has an account that a payer on each node pays, and another account that they pay as well.
struct World {
    cluster: Cluster,
    nodes: [Node; 2],
    bad: String,
    good: String,
    payers: [String; 2],
}

impl World {
    async fn new() -> Self {
        let cluster = Cluster::new();
        let nodes = [cluster.node("one").await, cluster.node("other").await];
        let halves = [shards(0, 128), shards(128, SHARDS)];
        cluster.take(&nodes[0], &halves[0]).await;
        cluster.take(&nodes[1], &halves[1]).await;
        let on = |half: &ShardSet, name: &str| {
            let registry = nodes[0].engine.registry();
            let mut ids = (0..).map(|number| format!("{name}-{number}"));
            ids.find(|id| half.contains(registry.shard_of("account", id))).unwrap()
        };
        let world = Self {
            bad: on(&halves[1], "bad"),
            good: on(&halves[1], "good"),
            payers: [on(&halves[0], "payer"), on(&halves[1], "payer")],
            cluster,
            nodes,
        };
        for id in [&world.bad, &world.good, &world.payers[0], &world.payers[1]] {
            let opened = ask(&world.nodes[0].engine, id, Command::Open { balance: 1_000 }).await;
            opened.unwrap();
        }
        world
    }

    async fn pay(&self, to: &str, times: i64) {
        for _ in 0..times {
            for payer in &self.payers {
                let (to, amount) = (to.to_owned(), 1);
                ask(&self.nodes[1].engine, payer, Command::Pay { to, amount })
                    .await
                    .unwrap();
            }
        }
    }

    async fn refused(&self, node: usize) -> Error<crate::kinds::Short> {
        let read = self.nodes[node].engine.entity::<Account>(&*self.bad).read(View {});
        read.await.unwrap_err()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn quarantine_asked_at_any_node_holds_up_no_node() {
    let world = World::new().await;
    let engines = [&world.nodes[0].engine, &world.nodes[1].engine];
    assert!(engines[0].quarantine("account", &world.bad, ann()).await.unwrap());
    assert!(!engines[1].quarantine("account", &world.bad, ann()).await.unwrap());
    for node in 0..2 {
        let told = world.refused(node).await;
        assert!(
            matches!(
                told,
                Error::Quarantined {
                    by_operator: true,
                    seq: 0,
                    ..
                }
            ),
            "{told:?}"
        );
    }
    world.pay(&world.bad, PAID).await;
    world.pay(&world.good, PAID).await;
    eventually(async || balance(engines[0], &world.good).await == 1_000 + 2 * PAID).await;
    // The other node's messages wait there.
    eventually(async || engines[0].stuck().iter().any(|stuck| *stuck.address.id == *world.bad)).await;
    // The next owner respects the decision, too.
    let (one, other) = (&world.nodes[0], &world.nodes[1]);
    let moved = engines[0].registry().shard_of("account", &world.bad);
    world.cluster.give(other, one, &[moved].into_iter().collect()).await;
    assert!(matches!(
        world.refused(1).await,
        Error::Quarantined { by_operator: true, .. }
    ));
    assert_eq!(engines[0].quarantined(9).await.unwrap().len(), 1);
    assert!(engines[1].release("account", &world.bad, ann()).await.unwrap());
    eventually(async || balance(engines[1], &world.bad).await == 1_000 + 2 * PAID).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_wait_at_all_nodes_are_dropped() {
    let world = World::new().await;
    let engines = [&world.nodes[0].engine, &world.nodes[1].engine];
    engines[0].quarantine("account", &world.bad, ann()).await.unwrap();
    world.pay(&world.bad, PAID).await;
    let mut dropped = 0;
    // Messages in flight between nodes do not count as waiting yet.
    eventually(async || {
        dropped += engines[0].drop_messages("account", &world.bad, ann()).await.unwrap();
        dropped == 2 * PAID.cast_unsigned()
    })
    .await;
    assert!(engines[0].release("account", &world.bad, ann()).await.unwrap());
    world.pay(&world.bad, 1).await;
    eventually(async || balance(engines[0], &world.bad).await == 1_002).await;
    eventually(async || engines.iter().all(|engine| engine.stuck().is_empty())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_of_an_older_program_prevents_quarantines() {
    let world = World::new().await;
    *world.cluster.wires.old.lock().unwrap() = Some("grandpa".into());
    let told = world.nodes[0].engine.quarantine("account", &world.good, ann()).await;
    let told = told.unwrap_err().to_string();
    assert!(
        told.contains("\"grandpa\"") && told.contains("upgrade it first"),
        "{told}"
    );
}
