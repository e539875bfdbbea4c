//! A consumer's process is killed, also between a commit and its acknowledgement.

use crate::{
    counter::ask,
    kit::{self, SERVER, depth, hits, look, message, until},
};
use std::{
    path::Path,
    process::{Child, Command, Stdio},
};
use throng_amqp::{Broker, Ingress, IngressOptions};
use tokio::task::JoinSet;

const BROKER: &str = "THRONG_TEST_BROKER";
const QUEUE: &str = "THRONG_TEST_QUEUE";
const DIRECTORY: &str = "THRONG_TEST_DIRECTORY";

/// Runs in a process of its own, see below.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the process that the test below kills"]
async fn a_process_that_consumes() {
    let variable = |name: &str| std::env::var(name).unwrap();
    let broker: Broker = variable(BROKER).parse().unwrap();
    let engine = kit::engine_in(Path::new(&variable(DIRECTORY))).await;
    let options = IngressOptions {
        prefetch: 64..=64,
        ..IngressOptions::new(broker, variable(QUEUE))
    };
    let _ingress = Ingress::start(&engine, options, crate::counter::read).unwrap();
    std::future::pending::<()>().await;
}

fn consumer(queue: &str, directory: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["process::a_process_that_consumes", "--exact", "--ignored"])
        .env(BROKER, SERVER.url())
        .env(QUEUE, queue)
        .env(DIRECTORY, directory)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_killed_while_it_consumes_loses_and_doubles_nothing() {
    let (kills, each) = (kit::number("THRONG_TEST_CONSUMER_KILLS", 3), 2_000_u32);
    let sent = u64::from(each) * (kills + 1);
    let queue = kit::name();
    let directory = tempfile::tempdir().unwrap();
    let publisher = kit::publisher(&SERVER, &queue);
    let mut published = JoinSet::new();
    for number in 0..sent {
        let (publisher, queue) = (publisher.clone(), queue.clone());
        published.spawn(async move {
            let message = message(&queue, &number.to_string(), ask(&(number % 5).to_string(), "Hit"));
            publisher.publish(message).await
        });
    }
    published
        .join_all()
        .await
        .into_iter()
        .collect::<Result<(), _>>()
        .unwrap();
    let connection = look(&SERVER).await;
    for _ in 0..kills {
        let before = depth(&connection, &queue).await;
        let mut child = consumer(&queue, directory.path());
        // In the midst of it: much is in flight, of which a part is in commits and not acknowledged.
        until("it consumes", async || {
            depth(&connection, &queue).await + each / 2 < before
        })
        .await;
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let counters = || (0..5).map(|counter: u64| counter.to_string());
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
