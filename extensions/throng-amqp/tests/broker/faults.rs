//! The broker is killed under load, or a queue is long at the start. In the end every confirmed message counts once.

use crate::{
    counter::ask,
    kit::{self, depth, hits, look, message, until},
};
use servers::{RabbitMq, RabbitMqOptions, Stop};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
use throng_amqp::{FrameOptions, Frames};
use throng_testing::pause;
use tokio::task::JoinSet;

fn counters() -> impl Iterator<Item = String> {
    (0..8).map(|counter: u64| counter.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_killed_under_load_loses_and_doubles_nothing() {
    let rounds = kit::number("THRONG_TEST_BROKER_KILLS", 2);
    let mut server = RabbitMq::start(RabbitMqOptions::default()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (queue, engine) = (kit::name(), kit::engine_in(directory.path()).await);
    let publisher = kit::publisher(&server, &queue);
    let ingress = kit::ingress(&engine, &server, &queue);
    let (end, confirmed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut clients = JoinSet::new();
    for client in 0..8_u64 {
        let (publisher, queue) = (publisher.clone(), queue.clone());
        let (end, confirmed) = (end.clone(), confirmed.clone());
        clients.spawn(async move {
            let mut sent = 0_u64;
            while !end.load(Ordering::Acquire) {
                let message = message(&queue, &format!("{client}-{sent}"), ask(&client.to_string(), "Hit"));
                // After any failure the message is sent again under its id.
                while publisher.publish(message.clone()).await.is_err() {
                    pause().await;
                }
                sent += 1;
                confirmed.fetch_add(1, Ordering::AcqRel);
            }
            sent
        });
    }
    let more = async |count: u64| {
        let enough = confirmed.load(Ordering::Acquire) + count;
        until("more is confirmed", async || {
            confirmed.load(Ordering::Acquire) >= enough
        })
        .await;
    };
    for _ in 0..rounds {
        more(200).await;
        server.restart(Stop::Immediate).unwrap();
    }
    more(200).await;
    end.store(true, Ordering::Release);
    let sent: u64 = clients.join_all().await.into_iter().sum();
    until("all are counted", async || hits(&engine, counters()).await >= sent).await;
    let connection = look(&server).await;
    until("all are acknowledged", async || depth(&connection, &queue).await == 0).await;
    ingress.stop();
    assert_eq!(hits(&engine, counters()).await, sent);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_queue_is_worked_off_within_the_prefetch() {
    work_off(10_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a minute; `cargo test -p throng-amqp --test broker -- --ignored hundred_thousand`"]
async fn a_queue_of_a_hundred_thousand_messages_is_worked_off() {
    work_off(100_000).await;
}

/// Publishes this many messages before anything consumes them.
async fn work_off(waiting: u64) {
    let directory = tempfile::tempdir().unwrap();
    let (queue, engine) = (kit::name(), kit::engine_in(directory.path()).await);
    let publisher = kit::publisher(&kit::SERVER, &queue);
    let options = FrameOptions {
        messages_max: 1,
        frames_max: 500,
        waiting_max: usize::try_from(waiting).unwrap(),
    };
    let frames = Frames::start(publisher, queue.clone(), options);
    let mut published = JoinSet::new();
    for number in 0..waiting {
        let frames = frames.clone();
        published.spawn(async move { frames.publish(ask(&(number % 8).to_string(), "Hit")).await });
    }
    published
        .join_all()
        .await
        .into_iter()
        .collect::<Result<(), _>>()
        .unwrap();
    assert_eq!(u64::from(depth(&look(&kit::SERVER).await, &queue).await), waiting);
    let ingress = kit::ingress(&engine, &kit::SERVER, &queue);
    until("all are counted", async || hits(&engine, counters()).await >= waiting).await;
    ingress.stop();
    assert_eq!(depth(&look(&kit::SERVER).await, &queue).await, 0);
    assert_eq!(hits(&engine, counters()).await, waiting);
    engine.stop().await;
}
