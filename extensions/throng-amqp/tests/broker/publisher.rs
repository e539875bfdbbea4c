//! Confirms, and unavailable brokers.

use crate::{
    counter::ask,
    kit::{self, SERVER, broker, depth, look, message, until},
};
use servers::{RabbitMq, RabbitMqOptions, Stop};
use std::time::Duration;
use throng_amqp::{Message, Overflow, PublishError, Publisher, PublisherOptions};
use throng_breaker::{Breaker, CircuitState, Settings};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_no_queue_takes_is_refused_where_that_matters() {
    let options = PublisherOptions {
        mandatory: true,
        ..PublisherOptions::new(broker(&SERVER), "")
    };
    let publisher = Publisher::start(options).unwrap();
    let refused = publisher.publish(message("no such queue", "1", ask("a", "Hit"))).await;
    assert!(matches!(refused, Err(PublishError::Refused(_))), "{refused:?}");
    let long = Message {
        id: Some("x".repeat(256)),
        ..message("no such queue", "1", Vec::new())
    };
    assert!(matches!(publisher.publish(long).await, Err(PublishError::Refused(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_messages_wait_for_their_confirms_than_may() {
    let queue = kit::name();
    let options = PublisherOptions {
        unconfirmed_max: 1,
        topology: kit::queue(&queue),
        ..PublisherOptions::new(broker(&SERVER), "")
    };
    let publisher = Publisher::start(options).unwrap();
    let (first, second) = tokio::join!(
        publisher.publish(message(&queue, "1", ask("a", "Hit"))),
        publisher.publish(message(&queue, "2", ask("a", "Hit"))),
    );
    assert_eq!((first, second), (Ok(()), Err(PublishError::Full(1))));
    publisher.publish(message(&queue, "3", ask("a", "Hit"))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publisher_takes_messages_as_soon_as_the_broker_is_back() {
    let mut server = RabbitMq::start(RabbitMqOptions::default()).unwrap();
    let (queue, breaker) = (kit::name(), wary());
    let options = PublisherOptions {
        topology: kit::queue(&queue),
        breaker: breaker.clone(),
        ..PublisherOptions::new(broker(&server), "")
    };
    let publisher = Publisher::start(options).unwrap();
    let publish = async |id: &str| publisher.publish(message(&queue, id, ask("a", "Hit"))).await;
    publish("first").await.unwrap();
    server.stop(Stop::Immediate);
    until("messages are refused without being sent", async || {
        matches!(publish("refused").await, Err(PublishError::Unavailable { .. }))
    })
    .await;
    // Simulates that confirms failed before the connection did.
    breaker.enter().into_iter().for_each(throng_breaker::Call::failed);
    assert_eq!(breaker.state(), CircuitState::Open);
    server.resume().unwrap();
    until("messages are taken again", async || publish("last").await.is_ok()).await;
    assert_eq!(breaker.state(), CircuitState::Closed);
    let confirmed = depth(&look(&server).await, &queue).await;
    assert_eq!(confirmed, 2, "the first and the last");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_longer_than_a_frame_is_refused_and_harms_no_other() {
    let queue = kit::name();
    let publisher = kit::publisher(&SERVER, &queue);
    let long = Message {
        headers: vec![("long".into(), "x".repeat(128 << 10))],
        ..message(&queue, "long", Vec::new())
    };
    let (refused, taken) = tokio::join!(
        publisher.publish(long),
        publisher.publish(message(&queue, "1", ask("a", "Hit"))),
    );
    assert!(matches!(refused, Err(PublishError::Refused(_))), "{refused:?}");
    assert_eq!(taken, Ok(()));
}

/// Returns a breaker that the first failure opens for good.
fn wary() -> Breaker {
    let settings = Settings {
        calls_min: 1,
        pause_first: Duration::from_secs(3_600),
        pause_max: Duration::from_secs(3_600),
        ..Settings::default()
    };
    Breaker::new("broker", settings)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_queue_refuses_messages_and_opens_no_breaker() {
    let (queue, breaker) = (kit::name(), wary());
    let mut topology = kit::queue(&queue);
    topology.queues[0].max_length = Some(1);
    topology.queues[0].overflow = Some(Overflow::RejectPublish);
    let options = PublisherOptions {
        topology,
        breaker: breaker.clone(),
        ..PublisherOptions::new(broker(&SERVER), "")
    };
    let publisher = Publisher::start(options).unwrap();
    let publish = async |id: &str| publisher.publish(message(&queue, id, ask("a", "Hit"))).await;
    publish("first").await.unwrap();
    assert_eq!(publish("second").await, Err(PublishError::NotTaken));
    assert_eq!(breaker.state(), CircuitState::Closed);
    let connection = look(&SERVER).await;
    assert!(kit::get(&connection, &queue).await.is_some());
    publish("third").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocked_publisher_refuses_at_once_and_goes_on_after() {
    let server = RabbitMq::start(RabbitMqOptions::default()).unwrap();
    let (queue, breaker) = (kit::name(), wary());
    let options = PublisherOptions {
        topology: kit::queue(&queue),
        breaker: breaker.clone(),
        confirm_max: Duration::from_secs(1),
        ..PublisherOptions::new(broker(&server), "")
    };
    let publisher = Publisher::start(options).unwrap();
    let publish = async |id: &str| publisher.publish(message(&queue, id, ask("a", "Hit"))).await;
    until("it is connected", async || publish("first").await.is_ok()).await;
    server.control(&["set_vm_memory_high_watermark", "0.0001"]).unwrap();
    // The broker reports its alarm only to publishing connections, and does not take this message yet.
    let under_way = publish("under way").await;
    assert!(matches!(under_way, Err(PublishError::Unknown(_))), "{under_way:?}");
    until("it is told", async || !publisher.is_connected()).await;
    assert_eq!(breaker.state(), CircuitState::Open);
    match publish("refused").await {
        Err(PublishError::Unavailable { retry_after }) => assert!(retry_after < Duration::from_secs(10)),
        other => panic!("{other:?}"),
    }
    server.control(&["set_vm_memory_high_watermark", "0.6"]).unwrap();
    until("messages are taken again", async || publish("last").await.is_ok()).await;
}
