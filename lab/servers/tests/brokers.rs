//! Private brokers and caches start, stop and are removed.
#![allow(clippy::unwrap_used, reason = "a test may")]

use servers::{RabbitMq, RabbitMqOptions, Redis, Stop};
use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

#[test]
fn a_killed_broker_restarts_on_its_ports_and_leaves_nothing() {
    let mut broker = RabbitMq::start(RabbitMqOptions {
        management: true,
        users: vec![("consumer".into(), "admin".into())],
        ..RabbitMqOptions::default()
    })
    .unwrap();
    let first = broker.process_id().unwrap();
    broker.restart(Stop::Immediate).unwrap();
    assert_ne!(broker.process_id(), Some(first));
    let mut connection = TcpStream::connect(("127.0.0.1", broker.port())).unwrap();
    connection.write_all(b"AMQP\x00\x00\x09\x01").unwrap();
    let mut frame = [0; 1];
    connection.read_exact(&mut frame).unwrap();
    assert_eq!(frame, [1], "connection.start is a method frame");
    let mut management = TcpStream::connect(broker.management()).unwrap();
    management
        .write_all(b"GET /api/whoami HTTP/1.0\r\nAuthorization: Basic Y29uc3VtZXI6YWRtaW4=\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    management.read_to_string(&mut answer).unwrap();
    assert!(answer.contains(r#""name":"consumer""#), "{answer}");
    let port = broker.port();
    drop(broker);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
}

#[test]
fn a_killed_redis_holds_the_writes_it_answered() {
    let mut redis = Redis::start().unwrap();
    let ask = |port: u16, command: &str| {
        let mut connection = TcpStream::connect(("127.0.0.1", port)).unwrap();
        writeln!(connection, "{command}\r\nQUIT\r").unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(ask(redis.port(), "SET a 1").starts_with("+OK"));
    redis.stop(Stop::Immediate);
    redis.resume().unwrap();
    assert!(ask(redis.port(), "GET a").contains("\r\n1\r\n"));
    let port = redis.port();
    drop(redis);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
}
