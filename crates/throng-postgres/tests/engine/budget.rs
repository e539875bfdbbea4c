//! A disk budget of several nodes on one server.

use crate::{
    counter::{Command, Counter},
    kit,
    over_nodes::{Node, Wires, give, join_with, serve, shards},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use throng::{
    Options,
    journal::Directory,
    limits,
    model::{Error, Keep},
};
use throng_testing::{eventually, eventually_ok};

const SHARDS: u16 = 256;
const BUDGET: u64 = 300_000;

fn options() -> Options {
    Options {
        disk_bytes_max: Some(BUDGET),
        // All durable history is expired, but nothing is removed by itself.
        keep: BTreeMap::from([("counter".to_owned(), Keep::Age(Duration::ZERO))]),
        prune_every: Some(Duration::MAX),
        checkpoint_every: Duration::from_millis(200),
        ..Options::default()
    }
}

/// Returns the id of a counter in this shard.
fn of_shard(shard: u16) -> String {
    let is_there = |id: &String| limits::shard_of(limits::hash("counter", id), SHARDS).0 == shard;
    (0..).map(|number: u32| number.to_string()).find(is_there).unwrap()
}

async fn is_refused(node: &Node, id: &str) -> bool {
    match node.engine.entity::<Counter>(id.to_owned()).ask(Command::Hit {}).await {
        Ok(_) => false,
        Err(Error::StorageFull { .. }) => true,
        Err(other) => panic!("{id}: {other}"),
    }
}

/// Waits until a command is refused, or accepted.
async fn until_refused(node: &Node, id: &str, refused: bool) {
    eventually_ok("a command is refused or taken", async || {
        match is_refused(node, id).await {
            is_refused if is_refused == refused => Ok(()),
            is_refused => Err(format!(
                "refused: {is_refused}, at {:?} bytes",
                node.engine.disk_bytes()
            )),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_budget_filled_by_others_refuses_until_history_goes() {
    let schema = kit::schema();
    let wires: Arc<Wires> = Arc::default();
    let one = join_with(&schema, "one", &wires, options()).await;
    let other = join_with(&schema, "other", &wires, options()).await;
    for (node, own) in [(&one, shards(0, 1)), (&other, shards(1, SHARDS))] {
        assert_eq!(node.directory.take(node.id, &own).await.unwrap(), own);
        serve(node, &wires).await;
    }
    let (own, of_other) = (of_shard(0), of_shard(1));
    assert!(!is_refused(&one, &own).await);
    let mut hits = 0;
    while !is_refused(&other, &of_other).await {
        hits += 1;
    }
    assert!(hits > 100, "{hits} commands fill it");
    until_refused(&one, &own, true).await;
    let troubles = one.engine.health().troubles;
    assert!(
        troubles.iter().any(|trouble| trouble.contains("commands are refused")),
        "{troubles:?}"
    );

    // The projection stores its progress with its rows, within a second. Before that nothing is removed.
    eventually("something is removed", async || {
        other.engine.prune(false).await.unwrap().commits > 0
    })
    .await;
    until_refused(&one, &own, false).await;
    until_refused(&other, &of_other, false).await;

    // The table's files stay as large as before. A new engine counts their contents instead.
    let third = join_with(&schema, "third", &wires, options()).await;
    serve(&third, &wires).await;
    give(&one, &third, &shards(0, 1), &wires).await;
    until_refused(&third, &own, false).await;
    let psql = kit::psql(&kit::SERVER).await;
    let taken = format!(
        "SELECT pg_total_relation_size('{schema}.commits'), (SELECT sum(octet_length(body) + 100)::bigint FROM {schema}.commits)"
    );
    let counts = async || {
        let row = psql.query_one(&taken, &[]).await.unwrap();
        let (files, left): (i64, i64) = (row.get(0), row.get(1));
        assert!(files.cast_unsigned() > BUDGET, "{files} bytes of files");
        [&one, &other, &third].map(|node| (node.engine.disk_bytes(), Some(left.cast_unsigned())))
    };
    eventually_ok("each node counts what is there", async || {
        let counts = counts().await;
        match counts.iter().all(|(counted, left)| counted == left) {
            true => Ok(()),
            false => Err(format!("{counts:?}")),
        }
    })
    .await;
    for node in [one, other, third] {
        node.engine.stop().await;
        node.directory.leave(node.id).await.unwrap();
    }
}
