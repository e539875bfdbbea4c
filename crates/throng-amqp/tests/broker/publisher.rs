//! Confirms, and brokers that are down.

use crate::{
    counter::ask,
    kit::{self, SERVER, broker, depth, look, message, until},
};
use servers::{RabbitMq, RabbitMqOptions, Stop};
use std::time::Duration;
use throng_amqp::{Message, PublishError, Publisher, PublisherOptions};
use throng_breaker::{Breaker, Settings, State};

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
async fn while_the_broker_is_down_messages_are_refused_without_being_sent_and_later_taken_again() {
    let mut server = RabbitMq::start(RabbitMqOptions::default()).unwrap();
    let (queue, breaker) = (
        kit::name(),
        Breaker::new(
            "broker",
            Settings {
                pause_max: Duration::from_secs(1),
                ..Settings::default()
            },
        ),
    );
    let options = PublisherOptions {
        topology: kit::queue(&queue),
        breaker: breaker.clone(),
        ..PublisherOptions::new(broker(&server), "")
    };
    let publisher = Publisher::start(options).unwrap();
    let publish = async |id: u64| {
        publisher
            .publish(message(&queue, &id.to_string(), ask("a", "Hit")))
            .await
    };
    publish(0).await.unwrap();
    server.stop(Stop::Immediate);
    let mut id = 0;
    until("the breaker opens", async || {
        id += 1;
        let told = publish(id).await;
        assert!(told.is_err(), "nobody can have confirmed it");
        breaker.state() == State::Open
    })
    .await;
    let refused = publish(id + 1).await;
    assert!(matches!(refused, Err(PublishError::Unavailable { .. })), "{refused:?}");
    server.resume().unwrap();
    until("messages are taken again", async || {
        id += 1;
        publish(id).await.is_ok()
    })
    .await;
    assert_eq!(breaker.state(), State::Closed);
    assert_eq!(
        depth(&look(&server).await, &queue).await,
        2,
        "the first and the last, no other was confirmed"
    );
}
