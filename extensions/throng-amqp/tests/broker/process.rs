//! A consumer's process is killed, even between a commit and its acknowledgement.

use crate::{
    counter::{Command as Hit, Counter, ask},
    egress::HitsOut,
    kit::{self, SERVER, depth, hits, look, message, until},
    proxy::Proxy,
};
use std::{
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
};
use throng::Engine;
use throng_amqp::{Broker, Egress, ExchangeTarget, Publisher, PublisherOptions, QueueOptions};
use tokio::task::JoinSet;

const BROKER: &str = "THRONG_TEST_BROKER";
const QUEUE: &str = "THRONG_TEST_QUEUE";
const DIRECTORY: &str = "THRONG_TEST_DIRECTORY";

/// Runs in a separate process, see below.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the process that the test below kills"]
async fn a_process_that_consumes() {
    let variable = |name: &str| std::env::var(name).unwrap();
    let broker: Broker = variable(BROKER).parse().unwrap();
    let engine = kit::engine_in(Path::new(&variable(DIRECTORY))).await;
    let options = QueueOptions {
        prefetch: 64..=64,
        ..QueueOptions::new(broker, variable(QUEUE))
    };
    let _ingress = kit::start(&engine, options, crate::counter::read).unwrap();
    std::future::pending::<()>().await;
}

fn consumer(broker: &str, queue: &str, directory: &Path) -> Child {
    process("process::a_process_that_consumes", broker, queue, directory)
}

fn process(test: &str, broker: &str, queue: &str, directory: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--ignored"])
        .env(BROKER, broker)
        .env(QUEUE, queue)
        .env(DIRECTORY, directory)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Publishes this many messages, each of which hits one of the counters.
async fn publish_hits(queue: &str, count: u64) {
    let publisher = kit::publisher(&SERVER, queue);
    let mut published = JoinSet::new();
    for number in 0..count {
        let (publisher, queue) = (publisher.clone(), queue.to_owned());
        published.spawn(async move {
            let message = message(&queue, &number.to_string(), ask(&(number % 5).to_string(), "Hit"));
            publisher.publish(message).await
        });
    }
    let published: Result<(), _> = published.join_all().await.into_iter().collect();
    published.unwrap();
}

fn counters() -> impl Iterator<Item = String> {
    (0..5).map(|counter: u64| counter.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_killed_between_commit_and_ack_counts_once() {
    let (queue, sent) = (kit::name(), 40);
    let directory = tempfile::tempdir().unwrap();
    publish_hits(&queue, sent).await;
    let (proxy, connection) = (Proxy::start(SERVER.port()), look(&SERVER).await);
    let broker = kit::url_by(&SERVER, proxy.port());
    let mut child = consumer(&broker, &queue, directory.path());
    // The process acknowledges durable messages, but the broker never receives that.
    until("it acknowledges", async || proxy.swallowed() > 0).await;
    child.kill().unwrap();
    child.wait().unwrap();
    until("the broker has all of them back", async || {
        u64::from(depth(&connection, &queue).await) == sent
    })
    .await;
    let engine = kit::engine_in(directory.path()).await;
    assert!(
        hits(&engine, counters()).await > 0,
        "what was to be acknowledged is durable"
    );
    let ingress = kit::ingress(&engine, &SERVER, &queue);
    until("all are acknowledged", async || depth(&connection, &queue).await == 0).await;
    until("all are counted", async || hits(&engine, counters()).await >= sent).await;
    ingress.stop();
    assert_eq!(hits(&engine, counters()).await, sent);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_killed_at_work_loses_and_doubles_nothing() {
    let (kills, each) = (kit::number("THRONG_TEST_CONSUMER_KILLS", 3), 2_000_u32);
    let sent = u64::from(each) * (kills + 1);
    let queue = kit::name();
    let directory = tempfile::tempdir().unwrap();
    publish_hits(&queue, sent).await;
    let connection = look(&SERVER).await;
    for _ in 0..kills {
        let before = depth(&connection, &queue).await;
        let mut child = consumer(&SERVER.url(), &queue, directory.path());
        // Kills in the middle: much is in flight, and a part of it is committed but not acknowledged.
        until("it consumes", async || {
            depth(&connection, &queue).await + each / 2 < before
        })
        .await;
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let engine = kit::engine_in(directory.path()).await;
    let already = hits(&engine, counters()).await;
    assert!(already > 0, "those that were killed had done something");
    let ingress = kit::ingress(&engine, &SERVER, &queue);
    until("all are counted", async || hits(&engine, counters()).await >= sent).await;
    ingress.stop();
    assert_eq!(depth(&connection, &queue).await, 0);
    assert_eq!(hits(&engine, counters()).await, sent);
    engine.stop().await;
}

/// Starts an engine that publishes hits to a queue, with its journal and read models in a directory.
async fn publishing_engine(broker: Broker, queue: &str, directory: &Path) -> Engine {
    let (log, store) = throng_log::open_embedded(directory, throng_log::Options::default()).unwrap();
    let views = throng_log::EmbeddedViews::open(log.clone()).unwrap();
    let publisher = Publisher::start(PublisherOptions {
        topology: kit::queue(queue),
        ..PublisherOptions::new(broker, "")
    });
    let outbound = HitsOut { queue: queue.into() };
    let builder = kit::builder().sink(Egress::new(outbound, ExchangeTarget::new(publisher.unwrap())));
    builder.views(Arc::new(views)).start_shared(log, store).await.unwrap()
}

async fn published(engine: &Engine) {
    until("all is published", async || {
        let progress = &engine.projections()[0];
        progress.lag_commits == 0 && progress.events > 0
    })
    .await;
}

/// Runs in a separate process, see below.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the process that the test below kills"]
async fn a_process_that_publishes() {
    let variable = |name: &str| std::env::var(name).unwrap();
    let directory = variable(DIRECTORY);
    let engine = publishing_engine(
        variable(BROKER).parse().unwrap(),
        &variable(QUEUE),
        Path::new(&directory).join("data").as_path(),
    )
    .await;
    for _ in 0..50 {
        engine.entity::<Counter>("a").ask(Hit::Hit {}).await.unwrap();
    }
    published(&engine).await;
    std::fs::write(Path::new(&directory).join("published"), "").unwrap();
    std::future::pending::<()>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_publisher_repeats_no_batch_that_was_confirmed() {
    let queue = kit::name();
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("data")).unwrap();
    let mut child = process(
        "process::a_process_that_publishes",
        &SERVER.url(),
        &queue,
        directory.path(),
    );
    until("it has published all", async || {
        directory.path().join("published").exists()
    })
    .await;
    child.kill().unwrap();
    child.wait().unwrap();
    let engine = publishing_engine(kit::broker(&SERVER), &queue, &directory.path().join("data")).await;
    engine.entity::<Counter>("a").ask(Hit::Hit {}).await.unwrap();
    published(&engine).await;
    assert_eq!(depth(&look(&SERVER).await, &queue).await, 51);
    engine.stop().await;
}
