//! Dead letters return to their queues, and none is lost.

use crate::{
    counter::Counter,
    kit::{self, SERVER, broker, depth, get, header, hits_of, look, message, until},
    proxy::{Passage, Proxy},
};
use lapin::options::QueueDeleteOptions;
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use throng::Engine;
use throng_amqp::{
    EntityCommand, Exchange, Ingress, Message, Publisher, PublisherOptions, QueueOptions, ResendOptions, ResendReport,
    Routing, Topology, resend,
};

/// Returns a direct exchange and the queue of the same name, with the counters' names as keys, and dead letters.
fn topology(queue: &str) -> Topology {
    let mut topology = kit::queue(queue);
    topology.exchanges.push(Exchange {
        name: queue.into(),
        routing: Routing::Direct,
        durable: true,
    });
    let key = |counter: &str| (queue.to_owned(), counter.to_owned());
    topology.queues[0].bindings = vec![key("a"), key("b")];
    topology.with_dead_letters(&dead(queue))
}

fn dead(queue: &str) -> String {
    format!("{queue}-dead")
}

fn publisher(queue: &str) -> Publisher {
    let options = PublisherOptions {
        topology: topology(queue),
        mandatory: true,
        ..PublisherOptions::new(broker(&SERVER), queue)
    };
    Publisher::start(options).unwrap()
}

/// Hits the counter named by the routing key, once `may` is set. The key `never` is unreadable.
fn consume(engine: &Engine, queue: &str, may: &Arc<AtomicBool>) -> Ingress {
    let options = QueueOptions {
        topology: topology(queue),
        dead_letters: Some(dead(queue)),
        ..QueueOptions::new(broker(&SERVER), queue)
    };
    let may = may.clone();
    let read = move |message: &Message| {
        if message.body == b"never" {
            return Err("never".to_owned());
        }
        if !may.load(Ordering::Acquire) {
            return Err("not yet".to_owned());
        }
        Ok(vec![EntityCommand::new(
            <Counter as throng::model::Entity>::KIND,
            message.routing_key.clone(),
            "Hit",
            Vec::new(),
        )])
    };
    kit::start(engine, options, read).unwrap()
}

async fn sent_again(options: ResendOptions) -> (u64, BTreeMap<String, u64>) {
    let ResendReport { sent, left } = resend(&options).await.unwrap();
    (sent.values().sum(), left)
}

fn options(queue: &str) -> ResendOptions {
    ResendOptions::new(broker(&SERVER), dead(queue))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_sent_again_take_effect_once_or_stay() {
    let (queue, engine, may) = (kit::name(), kit::engine().await, Arc::default());
    let publisher = publisher(&queue);
    let ingress = consume(&engine, &queue, &may);
    for (id, counter, body) in [("1", "a", "x"), ("2", "a", "x"), ("3", "b", "x"), ("4", "a", "never")] {
        publisher.publish(message(counter, id, body.into())).await.unwrap();
    }
    let connection = look(&SERVER).await;
    let are_dead = async |count: u32| {
        until("so many are dead", async || {
            depth(&connection, &dead(&queue)).await == count && depth(&connection, &queue).await == 0
        })
        .await;
    };
    are_dead(4).await;
    may.store(true, Ordering::Release);
    let looked = ResendOptions {
        dry_run: true,
        ..options(&queue)
    };
    assert_eq!(sent_again(looked).await.0, 4);
    are_dead(4).await;
    let one = ResendOptions {
        reason: Some("not yet".into()),
        sent_max: 1,
        ..options(&queue)
    };
    assert_eq!(sent_again(one).await.0, 1);
    until("it is counted", async || hits_of(&engine, "a").await == 1).await;
    are_dead(3).await;
    let (sent, left) = sent_again(options(&queue)).await;
    assert_eq!((sent, left.len()), (3, 0));
    until("the others are counted", async || {
        hits_of(&engine, "a").await == 2 && hits_of(&engine, "b").await == 1
    })
    .await;
    are_dead(1).await;
    let (sent, left) = sent_again(options(&queue)).await;
    assert_eq!((sent, left.values().sum::<u64>()), (0, 1), "it has failed again");
    assert!(left.keys().all(|why| why.contains("sent again before")), "{left:?}");
    are_dead(1).await;
    let twice = ResendOptions {
        times_max: 2,
        ..options(&queue)
    };
    assert_eq!(sent_again(twice).await.0, 1);
    are_dead(1).await;
    let letter = get(&connection, &dead(&queue)).await.unwrap();
    assert_eq!(header(&letter, "x-throng-routing-key").as_deref(), Some("a"));
    assert_eq!(letter.properties.message_id(), &Some("4".into()));
    ingress.stop();
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_message_goes_back_to_its_queue_only_once() {
    let queue = kit::name();
    let mut topology = topology(&queue);
    topology.queues[0].message_ttl = Some(Duration::from_millis(1));
    topology.queues[0].dead_letters = Some(dead(&queue));
    let publisher = Publisher::start(PublisherOptions {
        topology,
        ..PublisherOptions::new(broker(&SERVER), &*queue)
    })
    .unwrap();
    publisher.publish(message("a", "1", b"x".to_vec())).await.unwrap();
    let connection = look(&SERVER).await;
    let is_dead = async || {
        until("it has expired", async || depth(&connection, &dead(&queue)).await == 1).await;
    };
    is_dead().await;
    let other = ResendOptions {
        reason: Some("rejected".into()),
        ..options(&queue)
    };
    assert_eq!(sent_again(other).await.0, 0);
    is_dead().await;
    assert_eq!(
        resend(&options(&queue)).await.unwrap().sent,
        BTreeMap::from([(queue.clone(), 1)])
    );
    is_dead().await;
    assert_eq!(sent_again(options(&queue)).await.0, 0);
    is_dead().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letter_without_a_queue_to_go_to_stays() {
    let (queue, engine) = (kit::name(), kit::engine().await);
    let publisher = publisher(&queue);
    let ingress = consume(&engine, &queue, &Arc::default());
    publisher.publish(message("a", "1", b"x".to_vec())).await.unwrap();
    let connection = look(&SERVER).await;
    let is_dead = async || {
        until("it is dead", async || depth(&connection, &dead(&queue)).await == 1).await;
    };
    is_dead().await;
    ingress.stop();
    let deleted = connection
        .channel
        .queue_delete(queue.as_str().into(), QueueDeleteOptions::default());
    deleted.await.unwrap();
    let (sent, left) = sent_again(options(&queue)).await;
    assert_eq!((sent, left.values().sum::<u64>()), (0, 1), "{left:?}");
    is_dead().await;
    engine.stop().await;
}

/// Cuts the connection of a publisher.
fn cut_publish(frame: &mut [u8]) -> Passage {
    const METHOD: u8 = 1;
    const PUBLISH: [u8; 4] = [0, 60, 0, 40];
    match frame[0] == METHOD && frame[7..].starts_with(&PUBLISH) {
        true => Passage::Cut,
        false => Passage::Passed,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letter_is_acknowledged_only_once_it_is_sent() {
    let (queue, engine, may) = (kit::name(), kit::engine().await, Arc::default());
    let publisher = publisher(&queue);
    let ingress = consume(&engine, &queue, &may);
    publisher.publish(message("a", "1", b"x".to_vec())).await.unwrap();
    let connection = look(&SERVER).await;
    let is_dead = async || {
        until("it is dead", async || depth(&connection, &dead(&queue)).await == 1).await;
    };
    is_dead().await;
    may.store(true, Ordering::Release);
    let by = |proxy: &Proxy| {
        let broker = kit::url_by(&SERVER, proxy.port()).parse().unwrap();
        ResendOptions::new(broker, dead(&queue))
    };
    let cutting = Proxy::filtering(SERVER.port(), cut_publish, |_| Passage::Passed);
    let error = resend(&by(&cutting)).await.unwrap_err().to_string();
    assert!(error.contains("sending dead letters again"), "{error}");
    is_dead().await;
    // The letter arrives, but the broker does not get its acknowledgement.
    let swallowing = Proxy::start(SERVER.port());
    assert_eq!(sent_again(by(&swallowing)).await.0, 1);
    until("it is counted", async || hits_of(&engine, "a").await == 1).await;
    is_dead().await;
    assert_eq!(sent_again(options(&queue)).await.0, 1);
    until("it has come again", async || {
        depth(&connection, &dead(&queue)).await + depth(&connection, &queue).await == 0
    })
    .await;
    ingress.stop();
    assert_eq!(hits_of(&engine, "a").await, 1, "under its id");
    engine.stop().await;
}
