//! TLS connects only to a broker with a trusted certificate.

use crate::kit;
use servers::{RabbitMq, RabbitMqOptions};
use throng_amqp::{Broker, Error, Publisher, PublisherOptions};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_is_reached_over_tls_if_its_certificate_is_trusted() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let server = RabbitMq::start(RabbitMqOptions {
        tls: Some((made.cert.pem(), made.signing_key.serialize_pem())),
        ..RabbitMqOptions::default()
    })
    .unwrap();
    let directory = tempfile::tempdir().unwrap();
    let trusted = directory.path().join("trusted.pem");
    std::fs::write(&trusted, made.cert.pem()).unwrap();
    let broker: Broker = server.tls_url().parse().unwrap();
    let start = |broker: Broker| {
        let name = kit::name();
        let options = PublisherOptions {
            topology: kit::queue(&name),
            ..PublisherOptions::new(broker, "")
        };
        (name, Publisher::start(options))
    };
    let (name, publisher) = start(broker.clone().trust(trusted));
    publisher
        .unwrap()
        .publish(kit::message(&name, "1", b"{}".to_vec()))
        .await
        .unwrap();
    let (_, publisher) = start(broker.clone());
    assert!(matches!(publisher.unwrap_err(), Error::Untrusted { .. }));
    let (_, publisher) = start(broker.trust(directory.path().join("none.pem")));
    assert!(matches!(publisher.unwrap_err(), Error::Certificates { .. }));
}
