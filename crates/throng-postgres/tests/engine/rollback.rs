//! The database is replaced by an older copy, as if a standby without the last commits was promoted.

use crate::{
    counter::{Command, Counter, Hits, engine_with, until},
    kit::{self, Copy},
    nodes::{Node, append, open, shards, try_join},
};
use std::time::Duration;
use throng::{Engine, FeedError, Follow, Options, StartError};
use throng_journal::{
    AppendError, Directory as _, Error, Journal as _, Loss, NodeState, Store as _, Witness, WriterId,
};
use throng_postgres::{OnLoss, PostgresOptions, open_postgres, tools};
use throng_testing::eventually_ok;

/// Disables checkpoints, because they would notice the loss, too.
fn without_checkpoints() -> Options {
    Options {
        checkpoint_every: Duration::from_secs(3_600),
        ..Options::default()
    }
}

/// Hits under a key until the hit is acknowledged.
async fn hit(engine: &Engine, key: &str) -> u64 {
    let asked = eventually_ok("it is hit", async || {
        engine.entity::<Counter>("one").once(key).ask(Command::Hit {}).await
    });
    asked.await
}

async fn hits(engine: &Engine) -> Option<u64> {
    engine.entity::<Counter>("one").read(Hits).await.ok()
}

/// Returns the recorded losses: writer, last acknowledged commit, last commit that is there.
async fn losses(schema: &str) -> Vec<(i64, i64, i64)> {
    let rows = format!("SELECT writer, commit, held FROM {schema}.losses ORDER BY loss");
    let rows = kit::psql(&kit::SERVER).await.query(&rows, &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
}

async fn start(options: PostgresOptions) -> Result<Engine, StartError> {
    let opened = open_postgres(options).unwrap();
    let builder = Engine::builder().with::<Counter>().query::<Counter, Hits>();
    builder.start_shared(opened.journal, opened.store).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_engine_stops_where_commits_are_lost_until_accepted() {
    for lease in ["lease=1s", "lease=0"] {
        let schema = kit::schema();
        let engine = engine_with(kit::options(&schema, lease), without_checkpoints()).await;
        for key in ["a", "b", "c"] {
            hit(&engine, key).await;
        }
        let copy = Copy::of(&schema).await;
        for key in ["d", "e", "f", "g"] {
            hit(&engine, key).await;
        }
        copy.put_back().await;
        let is_told = || {
            engine
                .health()
                .reason
                .is_some_and(|reason| reason.contains("commits are lost"))
        };
        until("it says that it stopped", is_told).await;
        assert_eq!(hits(&engine).await, None);
        let [(writer, 7, 3)] = losses(&schema).await[..] else {
            panic!("{:?}", losses(&schema).await)
        };
        let loss: Loss = engine_loss(writer, 7, 3);
        let trouble = engine.health().troubles.join(" ");
        assert!(trouble.contains(&loss.to_string()), "{trouble}");
        match start(kit::options(&schema, lease)).await {
            Err(StartError::Journal(Error::Lost { loss: refused, .. })) => assert_eq!(refused, loss),
            other => panic!("{:?}", other.err()),
        }
        let mut accepting = kit::options(&schema, lease);
        accepting.accept_loss = Some(loss.covered);
        let next = start(accepting).await.unwrap();
        assert_eq!(hits(&next).await, Some(3));
        next.stop().await;
        engine.stop().await;
        let options = kit::options(&schema, "");
        let found = tokio::task::spawn_blocking(move || tools::verify(&options).unwrap());
        let found = found.await.unwrap();
        assert!(
            found.damages.iter().any(|damage| damage.place == "accepted loss"),
            "{found}"
        );
    }
}

fn engine_loss(writer: i64, commit: i64, held: i64) -> Loss {
    let at = |commit: i64| format!("{writer}.{commit}").parse().unwrap();
    Loss {
        covered: at(commit),
        held: at(held),
        witness: Witness::Engine,
    }
}

//= promise 10: damage is found
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engine_told_to_go_on_names_exactly_the_lost_commits() {
    let schema = kit::schema();
    let mut options = kit::options(&schema, "lease=1s");
    options.on_loss = OnLoss::Continue;
    let engine = engine_with(options, without_checkpoints()).await;
    hit(&engine, "a").await;
    let copy = Copy::of(&schema).await;
    for key in ["b", "c"] {
        hit(&engine, key).await;
    }
    copy.put_back().await;
    // The commit finds no predecessor, and the seal reports that.
    assert_eq!(hit(&engine, "d").await, 2);
    assert_eq!(
        losses(&schema)
            .await
            .iter()
            .map(|loss| (loss.1, loss.2))
            .collect::<Vec<_>>(),
        [(3, 1)]
    );
    let lost = format!("SELECT number, entities, keys FROM {schema}.lost_commits ORDER BY number");
    let rows = kit::psql(&kit::SERVER).await.query(&lost, &[]).await.unwrap();
    let lost: Vec<(i64, Vec<String>, Vec<String>)> =
        rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
    let one = vec!["counter/one".to_owned()];
    assert_eq!(lost, [(2, one.clone(), vec!["b".into()]), (3, one, vec!["c".into()])]);
    let mut metrics = String::new();
    engine.metrics().encode_plain(&mut metrics).unwrap();
    assert!(metrics.contains("\nthrong_losses 1\n"), "{metrics}");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_of_lost_commits_are_told_and_others_go_on() {
    let schema = kit::schema();
    let mut options = kit::options(&schema, "lease=1s");
    options.on_loss = OnLoss::Continue;
    let engine = engine_with(options, without_checkpoints()).await;
    let kind = engine.kind("counter").unwrap();
    let start = engine.place(true).await.unwrap();
    hit(&engine, "a").await;
    let copy = Copy::of(&schema).await;
    let of_kind = || Follow::Kind {
        kind,
        from: start.clone(),
    };
    let (mut current, mut behind) = (
        engine.follow(of_kind()).await.unwrap(),
        engine.follow(of_kind()).await.unwrap(),
    );
    assert_eq!(behind.next(1).await.unwrap().len(), 1);
    for key in ["b", "c"] {
        hit(&engine, key).await;
    }
    let mut told = 0;
    while told < 3 {
        told += current.next(10).await.unwrap().len();
    }
    let (waiting, lost) = (current.place().clone(), current.place().clone());
    let waits = tokio::spawn(async move { current.next(1).await.map(drop) });
    copy.put_back().await;
    assert_eq!(hit(&engine, "d").await, 2);
    let ended = waits.await.unwrap();
    assert!(
        matches!(ended, Err(FeedError::Lost(_))),
        "{ended:?}, which followed from {waiting}"
    );
    let again = engine.follow(lost).await.map(drop);
    assert!(matches!(again, Err(FeedError::Lost(_))), "{again:?}");
    let next = behind.next(10).await.unwrap();
    assert_eq!(next.iter().map(|event| event.event.seq).collect::<Vec<_>>(), [2]);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rollback_without_a_lost_commit_is_no_loss() {
    let schema = kit::schema();
    let engine = engine_with(kit::options(&schema, "lease=1s"), without_checkpoints()).await;
    hit(&engine, "a").await;
    let copy = Copy::of(&schema).await;
    copy.put_back().await;
    assert_eq!(hit(&engine, "b").await, 2);
    // A writer that never committed is absent: it has acknowledged nothing.
    engine.stop().await;
    drop(engine);
    let copy = Copy::of(&schema).await;
    let engine = engine_with(kit::options(&schema, "lease=1s"), without_checkpoints()).await;
    assert_eq!(hits(&engine).await, Some(2));
    copy.put_back().await;
    assert_eq!(hit(&engine, "c").await, 3);
    assert_eq!(losses(&schema).await, []);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_in_an_older_directory_has_to_join_again() {
    for what in ["beats", "version", "row"] {
        let schema = kit::schema();
        open(&schema, "").await;
        let before = Copy::of(&schema).await;
        let node = Node::join(&schema, "", "a").await;
        let directory = &node.opened.directory;
        directory.beat(node.id, NodeState::Serving).await.unwrap();
        let joined = Copy::of(&schema).await;
        if what == "version" {
            node.take(&[0]).await;
        }
        directory.beat(node.id, NodeState::Serving).await.unwrap();
        match what {
            "row" => before.put_back().await,
            _ => joined.put_back().await,
        }
        if what == "version" {
            // The counters of beats equal those before, though no node has beaten.
            let beats = format!("UPDATE {schema}.nodes SET beat = beat + 1");
            kit::psql(&kit::SERVER).await.execute(&beats, &[]).await.unwrap();
        }
        let told = beat(&node).await;
        assert!(matches!(told, Err(Error::RolledBack(_))), "{what}: {told:?}");
        let opened = node.opened.journal.open_shards(node.id, &shards(&[])).await;
        assert!(matches!(opened, Err(Error::RolledBack(_))), "{what}: {opened:?}");
        let again = try_join(&node.opened, "a").await.unwrap();
        assert_ne!(again, node.id);
        directory.beat(again, NodeState::Serving).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_with_lost_commits_joins_again_once() {
    let schema = kit::schema();
    let mut node = Node::serving(&schema, "lease=3600s", "a", &[0]).await;
    node.append(&[(0, 1)]).await.unwrap();
    let copy = Copy::of(&schema).await;
    node.append(&[(0, 2)]).await.unwrap();
    copy.put_back().await;
    let told = beat(&node).await;
    assert!(matches!(told, Err(Error::RolledBack(_))), "{told:?}");
    let number = i64::try_from(node.writer.0).unwrap();
    assert_eq!(losses(&schema).await, [(number, 2, 1)]);
    let accept = format!("UPDATE {schema}.losses SET accepted_at = now()");
    kit::psql(&kit::SERVER).await.execute(&accept, &[]).await.unwrap();
    node.id = try_join(&node.opened, "a").await.unwrap();
    beat(&node).await.unwrap();
    node.take(&[0]).await;
    node.open(&[0]).await.unwrap();
    node.append(&[(0, 2)]).await.unwrap();
    beat(&node).await.unwrap();
    assert_eq!(losses(&schema).await.len(), 1);
}

/// Repeats a beat until it is answered, because connections were ended.
async fn beat(node: &Node) -> Result<(), Error> {
    loop {
        match node.opened.directory.beat(node.id, NodeState::Serving).await {
            Err(Error::Backend { .. }) => {}
            other => return other.map(drop),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checkpoint_of_lost_commits_ends_the_epoch() {
    let schema = kit::schema();
    let mut node = Node::serving(&schema, "lease=3600s", "a", &[0]).await;
    node.append(&[(0, 1)]).await.unwrap();
    let copy = Copy::of(&schema).await;
    node.append(&[(0, 2)]).await.unwrap();
    let checkpoint = node.upto_here().await;
    copy.put_back().await;
    let told = loop {
        match node.opened.store.advance(checkpoint.clone()).await {
            Err(Error::Backend { .. }) => {}
            other => break other,
        }
    };
    assert!(matches!(told, Err(Error::RolledBack(_))), "{told:?}");
    assert!(!node.opened.journal.holds(node.writer));
    let ended = node.opened.journal.ended(node.writer);
    assert!(matches!(ended, Some(AppendError::RolledBack(_))), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_of_a_lost_writer_does_not_land_in_a_newer_stream() {
    let schema = kit::schema();
    let a = Node::serving(&schema, "lease=3600s", "a", &[0]).await;
    let lost = a.writer;
    // Acts as another process that got this number from a server that did not know of the first.
    let again = format!(
        "SET search_path TO {schema}; UPDATE writers SET session = 'another', shards = NULL WHERE writer = {}",
        lost.0
    );
    kit::psql(&kit::SERVER).await.batch_execute(&again).await.unwrap();
    let refused = append(&a.opened, lost, 1, &[(0, 1)]).await;
    assert!(refused.is_err(), "{refused:?}");
    let sealed = a.opened.journal.seal(lost).await;
    assert!(matches!(sealed, Err(Error::RolledBack(_))), "{sealed:?}");
    let open = format!(
        "SELECT sealed_at IS NULL AND last IS NULL FROM {schema}.writers WHERE writer = {}",
        lost.0
    );
    let open: bool = kit::psql(&kit::SERVER)
        .await
        .query_one(&open, &[])
        .await
        .unwrap()
        .get(0);
    assert!(open, "another engine's stream was sealed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_of_lost_writers_are_not_given_again() {
    let schema = kit::schema();
    open(&schema, "").await;
    let copy = Copy::of(&schema).await;
    let mut numbers: Vec<WriterId> = Vec::new();
    for _ in 0..3 {
        let opened = open(&schema, "lease=0").await;
        numbers.push(opened.journal.open("node").await.unwrap().writer);
        drop(opened);
        copy.put_back().await;
    }
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 3, "{numbers:?}");
}
