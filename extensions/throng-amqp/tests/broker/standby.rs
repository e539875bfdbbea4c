//! A single active consumer takes the queue's messages, while another stands by.

use crate::{
    counter::{self, ask},
    kit::{self, SERVER, broker, check, depth, hits, look, message, until},
};
use throng::{Engine, services::health::Status};
use throng_amqp::{Ingress, Publisher, PublisherOptions, QueueOptions, QueueType, Topology};

fn topology(queue: &str, queue_type: QueueType) -> Topology {
    let mut topology = kit::queue(queue);
    topology.queues[0].queue_type = queue_type;
    topology
}

fn consume(engine: &Engine, queue: &str, queue_type: QueueType) -> Ingress {
    let options = QueueOptions {
        topology: topology(queue, queue_type),
        ..QueueOptions::new(broker(&SERVER), queue)
    };
    kit::start(engine, options, counter::read).unwrap()
}

async fn hits_of(engine: &Engine) -> u64 {
    hits(engine, ["a".to_owned()].into_iter()).await
}

async fn stands_by_and_takes_over(queue_type: QueueType) {
    let (queue, first, second) = (kit::name(), kit::engine().await, kit::engine().await);
    let publisher = Publisher::start(PublisherOptions {
        topology: topology(&queue, queue_type),
        ..PublisherOptions::new(broker(&SERVER), "")
    })
    .unwrap();
    let publish = async |from: u64, to: u64| {
        for number in from..to {
            let message = message(&queue, &number.to_string(), ask("a", "Hit"));
            publisher.publish(message).await.unwrap();
        }
    };
    let name = format!("queue {queue}");
    let active = consume(&first, &queue, queue_type);
    let other = consume(&second, &queue, queue_type);
    until("the second stands by and says so", async || {
        let (status, reason) = check(&second, &name);
        status == Status::Warn && reason.contains("stands by: another consumer")
    })
    .await;
    assert_eq!(check(&first, &name).0, Status::Pass);
    publish(0, 100).await;
    until("the first counts all", async || hits_of(&first).await == 100).await;
    active.stop();
    publish(100, 150).await;
    until("the second takes over", async || hits_of(&second).await == 50).await;
    assert_eq!(check(&second, &name).0, Status::Pass);
    other.stop();
    assert_eq!(depth(&look(&SERVER).await, &queue).await, 0);
    assert_eq!((hits_of(&first).await, hits_of(&second).await), (100, 50));
    first.stop().await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_consumer_of_a_classic_queue_stands_by() {
    stands_by_and_takes_over(QueueType::Classic).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_consumer_of_a_quorum_queue_stands_by() {
    stands_by_and_takes_over(QueueType::Quorum).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumers_that_start_together_leave_the_queue_to_one() {
    for queue_type in [QueueType::Classic, QueueType::Quorum] {
        let queue = kit::name();
        let mut engines = Vec::new();
        for _ in 0..4 {
            engines.push(kit::engine().await);
        }
        let starting: Vec<_> = engines
            .iter()
            .map(|engine| {
                let (engine, queue) = (engine.clone(), queue.clone());
                std::thread::spawn(move || consume(&engine, &queue, queue_type))
            })
            .collect();
        let ingresses: Vec<Ingress> = starting.into_iter().map(|started| started.join().unwrap()).collect();
        let name = format!("queue {queue}");
        until("one consumes, and the others stand by", async || {
            let mut statuses: Vec<Status> = engines.iter().map(|engine| check(engine, &name).0).collect();
            statuses.sort_unstable();
            statuses == [Status::Pass, Status::Warn, Status::Warn, Status::Warn]
        })
        .await;
        ingresses.into_iter().for_each(Ingress::stop);
        for engine in engines {
            engine.stop().await;
        }
    }
}
