//! Users with few permissions, or none.

use crate::{
    counter::{self, ask},
    kit::{self, MAY_CONSUME, MAY_PUBLISH, SERVER, broker, check, depth, hits, look, message, until},
};
use throng::services::health::Status;
use throng_amqp::{Broker, Error, Exchange, Publisher, PublisherOptions, Queue, QueueOptions, Routing, Topology};

/// Returns an exchange, the queue of the same name bound to it, and its dead letters.
fn topology(name: &str) -> Topology {
    Topology {
        exchanges: vec![Exchange {
            name: name.into(),
            routing: Routing::Fanout,
            durable: true,
        }],
        queues: vec![Queue {
            name: name.into(),
            durable: true,
            bindings: vec![(name.into(), String::new())],
            ..Queue::default()
        }],
        must_exist: false,
    }
    .with_dead_letters(&format!("{name}-dead"))
}

fn publisher(broker: Broker, name: &str) -> Result<Publisher, Error> {
    Publisher::start(PublisherOptions {
        topology: topology(name),
        mandatory: true,
        ..PublisherOptions::new(broker, name)
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_with_least_rights_are_served() {
    let (name, engine) = (kit::name(), kit::engine().await);
    // An administrator has declared everything.
    drop(publisher(broker(&SERVER), &name).unwrap());
    let nothing = "^$";
    let restrict = |user: &str, write: &str, read: &str| {
        SERVER
            .control(&["set_permissions", user, nothing, write, read])
            .unwrap();
    };
    restrict(MAY_PUBLISH, &format!("^{name}$"), nothing);
    restrict(MAY_CONSUME, &format!("^{name}-dead$"), &format!("^{name}$"));
    let of = |user: &str| SERVER.url_of(user, user).parse::<Broker>().unwrap();
    let publisher = publisher(of(MAY_PUBLISH), &name).unwrap();
    let options = QueueOptions {
        topology: topology(&name),
        dead_letters: Some(format!("{name}-dead")),
        ..QueueOptions::new(of(MAY_CONSUME), &*name)
    };
    let ingress = kit::start(&engine, options, counter::read).unwrap();
    publisher.publish(message("", "bad", b"{".to_vec())).await.unwrap();
    publisher.publish(message("", "good", ask("a", "Hit"))).await.unwrap();
    until("it is counted", async || {
        hits(&engine, ["a".to_owned()].into_iter()).await == 1
    })
    .await;
    let connection = look(&SERVER).await;
    let dead = format!("{name}-dead");
    until("the other is put aside", async || depth(&connection, &dead).await == 1).await;
    ingress.stop();
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broker_that_refuses_the_user_ends_the_start() {
    let engine = kit::engine().await;
    let right = SERVER.url();
    let wrong = [right.replace("a-secret", "no-secret"), format!("{right}/no-such-host")];
    for url in wrong {
        let broker: Broker = url.parse().unwrap();
        let error = publisher(broker.clone(), "any").unwrap_err();
        let said = error.to_string();
        assert!(matches!(error, Error::Refused { .. }), "{said}");
        assert!(said.contains(&format!("127.0.0.1:{}", SERVER.port())), "{said}");
        let options = QueueOptions::new(broker, "any");
        let error = kit::start(&engine, options, counter::read).unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error}");
    }
    assert!(engine.checks().checks().is_empty(), "what has ended says nothing");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_fail_until_the_broker_was_reached_and_warn_later() {
    let mut server = servers::RabbitMq::start(servers::RabbitMqOptions::default()).unwrap();
    let (queue, engine) = (kit::name(), kit::engine().await);
    server.stop(servers::Stop::Immediate);
    let publisher = kit::publisher(&server, &queue);
    publisher.report_to(engine.checks());
    let ingress = kit::ingress(&engine, &server, &queue);
    let place = format!("127.0.0.1:{}", server.port());
    let checks = || [format!("broker {queue}"), format!("queue {queue}")].map(|name| check(&engine, &name));
    for (status, reason) in checks() {
        assert_eq!(status, Status::Fail);
        assert!(reason.contains(&place), "{reason}");
    }
    server.resume().unwrap();
    until("both are well", async || {
        checks().iter().all(|(status, _)| *status == Status::Pass)
    })
    .await;
    server.stop(servers::Stop::Immediate);
    until("both warn", async || {
        let is_told = |(status, reason): &(Status, String)| *status == Status::Warn && reason.contains(&place);
        checks().iter().all(is_told)
    })
    .await;
    ingress.stop();
    engine.stop().await;
}
