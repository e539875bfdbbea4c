//! Messages that would block their queue, and dead letters that cannot be stored.

use crate::{
    counter::{self, ask},
    kit::{self, CONSUMER, Look, SERVER, broker, check, depth, get, header, hits_of, look, message, until},
    proxy::{Passage, Proxy},
};
use lapin::{
    BasicProperties,
    options::{BasicPublishOptions, ExchangeDeclareOptions, QueueBindOptions},
    types::{AMQPValue, FieldTable},
};
use servers::{RabbitMq, RabbitMqOptions};
use throng::{Engine, services::health::Status};
use throng_amqp::{Ingress, Metrics, QueueOptions};

async fn publish(look: &Look, queue: &str, properties: BasicProperties, body: &[u8]) {
    let options = BasicPublishOptions::default();
    let sent = look
        .channel
        .basic_publish("".into(), queue.into(), options, body, properties);
    sent.await.unwrap().await.unwrap();
    until("it is there", async || depth(look, queue).await > 0).await;
}

/// Consumes as another user than the publisher.
fn consume(engine: &Engine, queue: &str) -> Ingress {
    let broker = SERVER.url_of(CONSUMER, CONSUMER).parse().unwrap();
    kit::start(engine, kit::ingress_options(broker, queue), counter::read).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letter_is_kept_without_its_user_and_expiration() {
    let (queue, engine) = (kit::name(), kit::engine().await);
    let (publisher, connection) = (kit::publisher(&SERVER, &queue), look(&SERVER).await);
    let properties = BasicProperties::default()
        .with_user_id(RabbitMq::USER.into())
        .with_expiration("86400000".into())
        .with_message_id("bad".into())
        .with_app_id("gate".into());
    publish(&connection, &queue, properties, b"{").await;
    publisher.publish(message(&queue, "1", ask("a", "Hit"))).await.unwrap();
    let ingress = consume(&engine, &queue);
    until("the one behind it is counted", async || {
        hits_of(&engine, "a").await == 1
    })
    .await;
    let dead = format!("{queue}-dead");
    until("it is put aside", async || depth(&connection, &dead).await == 1).await;
    let letter = get(&connection, &dead).await.unwrap();
    let kept = &letter.properties;
    assert_eq!((kept.user_id(), kept.expiration()), (&None, &None));
    assert_eq!(kept.message_id(), &Some("bad".into()));
    assert_eq!(kept.app_id(), &Some("gate".into()));
    ingress.stop();
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_that_fill_a_frame_do_not_stop_the_queue() {
    const FRAME: usize = 128 << 10;
    let (queue, engine) = (kit::name(), kit::engine().await);
    let (publisher, connection) = (kit::publisher(&SERVER, &queue), look(&SERVER).await);
    // There is room for a short reason, or for none.
    for (id, room) in [("short", 400), ("none", 80)] {
        let mut headers = FieldTable::default();
        headers.insert("long".into(), AMQPValue::LongString("x".repeat(FRAME - room).into()));
        let properties = BasicProperties::default()
            .with_message_id(id.into())
            .with_headers(headers);
        publish(&connection, &queue, properties, b"{").await;
    }
    publisher.publish(message(&queue, "1", ask("a", "Hit"))).await.unwrap();
    let ingress = consume(&engine, &queue);
    until("the one behind them is counted", async || {
        hits_of(&engine, "a").await == 1
    })
    .await;
    let dead = format!("{queue}-dead");
    until("they are put aside", async || depth(&connection, &dead).await == 2).await;
    let mut reasons = Vec::new();
    while let Some(letter) = get(&connection, &dead).await {
        let reason = header(&letter, "x-throng-reason").is_some();
        reasons.push((letter.properties.message_id().clone().unwrap().to_string(), reason));
    }
    reasons.sort_unstable();
    assert_eq!(reasons, [("none".into(), false), ("short".into(), true)]);
    ingress.stop();
    engine.stop().await;
}

/// Replaces `NOT-UTF8` by bytes that are not UTF-8.
fn garble(frame: &mut [u8]) -> Passage {
    const MARK: &[u8] = b"NOT-UTF8";
    while let Some(at) = frame.windows(MARK.len()).position(|part| part == MARK) {
        frame[at..at + MARK.len()].copy_from_slice(b"caf\xe9\xff\xfe!!");
    }
    Passage::Passed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn properties_that_are_not_utf8_do_not_stop_the_queue() {
    let (queue, engine) = (kit::name(), kit::engine().await);
    let (publisher, connection) = (kit::publisher(&SERVER, &queue), look(&SERVER).await);
    let proxy = Proxy::filtering(SERVER.port(), garble, |_| Passage::Passed);
    let garbled = kit::look_at(&kit::url_by(&SERVER, proxy.port())).await;
    let named = BasicProperties::default().with_message_id("NOT-UTF8".into());
    publish(&garbled, &queue, named, &ask("named", "Hit")).await;
    let typed = BasicProperties::default()
        .with_message_id("typed".into())
        .with_content_type("NOT-UTF8".into());
    publish(&garbled, &queue, typed, &ask("typed", "Hit")).await;
    publisher.publish(message(&queue, "1", ask("a", "Hit"))).await.unwrap();
    let ingress = consume(&engine, &queue);
    until("the one behind them is counted", async || {
        hits_of(&engine, "a").await == 1
    })
    .await;
    until("a type nobody needs holds up none", async || {
        hits_of(&engine, "typed").await == 1
    })
    .await;
    let dead = format!("{queue}-dead");
    until("the one without a name is put aside", async || {
        depth(&connection, &dead).await == 1
    })
    .await;
    let letter = get(&connection, &dead).await.unwrap();
    let reason = header(&letter, "x-throng-reason").unwrap();
    assert!(reason.contains("message-id is not UTF-8"), "{reason}");
    assert_eq!(letter.properties.message_id(), &None, "what it is sent again with");
    ingress.stop();
    assert_eq!(depth(&connection, &queue).await, 0);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_that_cannot_be_kept_hold_up_no_message() {
    let (queue, engine) = (kit::name(), kit::engine().await);
    let (publisher, connection) = (kit::publisher(&SERVER, &queue), look(&SERVER).await);
    let dead = format!("{queue}-dead");
    // No queue is bound to this exchange.
    let options = ExchangeDeclareOptions::default();
    let declared = connection.channel.exchange_declare(
        dead.clone().into(),
        lapin::ExchangeKind::Fanout,
        options,
        FieldTable::default(),
    );
    declared.await.unwrap();
    for number in 0..40 {
        let message = message(&queue, &format!("bad {number}"), b"{".to_vec());
        publisher.publish(message).await.unwrap();
    }
    for number in 0..200 {
        let message = message(&queue, &number.to_string(), ask("a", "Hit"));
        publisher.publish(message).await.unwrap();
    }
    let options = QueueOptions {
        topology: kit::queue(&queue),
        dead_letters: Some(dead.clone()),
        // There are more dead letters than may be in flight.
        prefetch: 16..=16,
        ..QueueOptions::new(broker(&SERVER), &*queue)
    };
    let ingress = kit::start(&engine, options, counter::read).unwrap();
    until("the others are counted", async || hits_of(&engine, "a").await == 200).await;
    // Creating the publisher declares the queue.
    let _publisher = kit::publisher(&SERVER, &dead);
    let options = QueueBindOptions::default();
    let bound = connection.channel.queue_bind(
        dead.clone().into(),
        dead.clone().into(),
        "".into(),
        options,
        FieldTable::default(),
    );
    bound.await.unwrap();
    until("the dead letters are kept", async || {
        depth(&connection, &dead).await == 40
    })
    .await;
    ingress.stop();
    assert_eq!(depth(&connection, &queue).await, 0, "each is settled, and once");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broker_short_of_memory_keeps_queue_with_dead_letter_going() {
    let server = RabbitMq::start(RabbitMqOptions::default()).unwrap();
    let (queue, engine) = (kit::name(), kit::engine().await);
    let (publisher, connection) = (kit::publisher(&server, &queue), look(&server).await);
    publisher.publish(message(&queue, "bad", b"{".to_vec())).await.unwrap();
    for number in 0..1_000 {
        let message = message(&queue, &number.to_string(), ask("a", "Hit"));
        publisher.publish(message).await.unwrap();
    }
    server.control(&["set_vm_memory_high_watermark", "0.0001"]).unwrap();
    let ingress = kit::ingress(&engine, &server, &queue);
    until("the messages are counted", async || {
        hits_of(&engine, "a").await == 1_000
    })
    .await;
    server.control(&["set_vm_memory_high_watermark", "0.6"]).unwrap();
    let dead = format!("{queue}-dead");
    until("the dead letter is kept", async || depth(&connection, &dead).await == 1).await;
    ingress.stop();
    assert_eq!(depth(&connection, &queue).await, 0);
    engine.stop().await;
}

/// Cuts the connection at a frame that contains `KILL`.
fn kill(frame: &mut [u8]) -> Passage {
    match frame.windows(4).any(|part| part == b"KILL") {
        true => Passage::Cut,
        false => Passage::Passed,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delivery_that_kills_the_session_is_isolated_and_reported() {
    let (queue, engine) = (kit::name(), kit::engine().await);
    let (publisher, connection) = (kit::publisher(&SERVER, &queue), look(&SERVER).await);
    publisher
        .publish(message(&queue, "bad", b"KILL".to_vec()))
        .await
        .unwrap();
    for number in 0..20 {
        let message = message(&queue, &number.to_string(), ask("a", "Hit"));
        publisher.publish(message).await.unwrap();
    }
    let proxy = Proxy::filtering(SERVER.port(), |_| Passage::Passed, kill);
    let metrics = Metrics::default();
    engine.metrics().register(|registry| metrics.register(registry));
    let broker = kit::url_by(&SERVER, proxy.port()).parse().unwrap();
    let options = QueueOptions {
        metrics,
        ..kit::ingress_options(broker, &queue)
    };
    let ingress = kit::start(&engine, options, counter::read).unwrap();
    let name = format!("queue {queue}");
    until("it is reported", async || {
        let (status, reason) = check(&engine, &name);
        status == Status::Warn && reason.contains("its first message may be why")
    })
    .await;
    let prefetch = format!("amqp_prefetch{{queue=\"{queue}\"}} 1\n");
    until("messages come one by one", async || {
        let mut text = String::new();
        engine.metrics().encode(&mut text).unwrap();
        text.contains(&prefetch)
    })
    .await;
    until("the first message is taken away", async || {
        let Some(taken) = get(&connection, &queue).await else {
            return false;
        };
        if taken.data == b"KILL" {
            return true;
        }
        // The consumer holds the first message at this moment, and the next one was taken out.
        let id = taken.properties.message_id().as_ref().map_or("", |id| id.as_str());
        let again = message(&queue, id, taken.data.clone());
        publisher.publish(again).await.unwrap();
        false
    })
    .await;
    until("the others are counted", async || hits_of(&engine, "a").await == 20).await;
    until("it is well again", async || check(&engine, &name).0 == Status::Pass).await;
    ingress.stop();
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_message_id_is_none() {
    let (queue, engine) = (kit::name(), kit::engine().await);
    let (_publisher, connection) = (kit::publisher(&SERVER, &queue), look(&SERVER).await);
    for _ in 0..2 {
        let properties = BasicProperties::default().with_message_id("".into());
        publish(&connection, &queue, properties, &ask("a", "Hit")).await;
    }
    let ingress = consume(&engine, &queue);
    until("each is counted", async || hits_of(&engine, "a").await == 2).await;
    ingress.stop();
    assert_eq!(depth(&connection, &format!("{queue}-dead")).await, 0);
    engine.stop().await;
}
