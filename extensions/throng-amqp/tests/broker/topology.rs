//! Declaring and checking exchanges and queues.

use crate::{
    counter,
    kit::{self, SERVER, broker, queue},
};
use throng_amqp::{
    Error, Exchange, Overflow, Publisher, PublisherOptions, Queue, QueueOptions, QueueType, Routing, Topology,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_is_another_than_asked_for_is_named() {
    let (name, engine) = (kit::name(), kit::engine().await);
    let _first = kit::publisher(&SERVER, &name);
    let mut other = queue(&name);
    other.queues[0].durable = false;
    let options = QueueOptions {
        topology: other,
        ..QueueOptions::new(broker(&SERVER), &*name)
    };
    let error = kit::start(&engine, options, counter::read).unwrap_err();
    assert!(matches!(&error, Error::Mismatch { .. }), "{error}");
    let said = error.to_string();
    assert!(said.contains(&name) && said.contains("durable"), "{said}");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_part_of_the_topology_is_named() {
    let topology = Topology {
        exchanges: vec![Exchange {
            name: "nowhere".into(),
            routing: Routing::Fanout,
            durable: false,
        }],
        must_exist: true,
        ..Topology::default()
    };
    let options = PublisherOptions {
        topology,
        ..PublisherOptions::new(broker(&SERVER), "nowhere")
    };
    let error = Publisher::start(options).unwrap_err();
    assert!(
        matches!(&error, Error::Missing { what, .. } if what.contains("nowhere")),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_queue_of_a_fanout_exchange_gets_every_message() {
    let (exchange, queues) = (kit::name(), [kit::name(), kit::name()]);
    let bound = |name: &String| Queue {
        name: name.clone(),
        bindings: vec![(exchange.clone(), String::new())],
        ..Queue::default()
    };
    let topology = Topology {
        exchanges: vec![Exchange {
            name: exchange.clone(),
            routing: Routing::Fanout,
            durable: false,
        }],
        queues: queues.iter().map(bound).collect(),
        must_exist: false,
    };
    let options = PublisherOptions {
        topology,
        ..PublisherOptions::new(broker(&SERVER), &*exchange)
    };
    let publisher = Publisher::start(options).unwrap();
    publisher.publish(kit::message("", "1", b"{}".to_vec())).await.unwrap();
    let connection = kit::look(&SERVER).await;
    for queue in &queues {
        assert_eq!(kit::depth(&connection, queue).await, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_queue_confirms_kept_messages_and_is_not_classic() {
    let exchange = kit::name();
    let with = |queue_type| {
        let topology = Topology {
            exchanges: vec![Exchange {
                name: exchange.clone(),
                routing: Routing::Fanout,
                durable: true,
            }],
            queues: vec![Queue {
                name: exchange.clone(),
                durable: true,
                queue_type,
                bindings: vec![(exchange.clone(), String::new())],
                ..Queue::default()
            }],
            must_exist: false,
        };
        Publisher::start(PublisherOptions {
            topology,
            persistent: true,
            ..PublisherOptions::new(broker(&SERVER), &*exchange)
        })
    };
    let publisher = with(QueueType::Quorum).unwrap();
    publisher.publish(kit::message("", "1", b"{}".to_vec())).await.unwrap();
    let error = with(QueueType::Classic).unwrap_err();
    assert!(error.to_string().contains(&exchange), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queue_with_limits_is_declared_and_found_again() {
    let name = kit::name();
    let with_limits = Queue {
        queue_type: QueueType::Quorum,
        max_length: Some(1_000),
        overflow: Some(Overflow::DropHead),
        delivery_limit: Some(20),
        single_active_consumer: true,
        ..queue(&name).queues.remove(0)
    };
    let start = |queue: Queue| {
        Publisher::start(PublisherOptions {
            topology: Topology {
                queues: vec![queue],
                ..Topology::default()
            },
            ..PublisherOptions::new(broker(&SERVER), "")
        })
    };
    for _ in 0..2 {
        start(with_limits.clone()).unwrap();
    }
    let others = [
        (
            "x-max-length",
            Queue {
                max_length: None,
                ..with_limits.clone()
            },
        ),
        (
            "x-overflow",
            Queue {
                overflow: None,
                ..with_limits.clone()
            },
        ),
        (
            "x-single-active-consumer",
            Queue {
                single_active_consumer: false,
                ..with_limits
            },
        ),
    ];
    for (argument, other) in others {
        let error = start(other).unwrap_err().to_string();
        assert!(error.contains(argument), "{error}");
    }
}
