//! The program of the book.

#[allow(dead_code, reason = "its main is not called here")]
#[path = "../../examples/stock.rs"]
mod program;

use crate::kit::{depth, get, header, look, until};
use lapin::{BasicProperties, options::BasicPublishOptions, types::FieldTable};
use servers::{RabbitMq, RabbitMqOptions};
use std::fs;

/// The part of the program that the book shows.
fn shown(text: &str) -> &str {
    let begin = text.find("fn read(message: &Message)").unwrap();
    &text[begin..begin + text[begin..].find("\n#[tokio::main]").unwrap()]
}

#[test]
fn the_book_shows_the_program_that_runs() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let book = fs::read_to_string(format!("{root}/docs/brokers.md")).unwrap();
    assert!(
        book.contains(shown(include_str!("../../examples/stock.rs")).trim_end()),
        "copy it from examples/stock.rs to docs/brokers.md"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_program_of_the_book_takes_orders_and_ships_once() {
    let server = RabbitMq::start(RabbitMqOptions::default()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (engine, ingress) = program::start(&server.url(), directory.path()).await.unwrap();
    let connection = look(&server).await;
    let orders = [
        ("1", "Receive", br#"{"pieces":5}"#),
        ("2", "Take", br#"{"pieces":3}"#),
        // Sent twice, and more than there is.
        ("2", "Take", br#"{"pieces":3}"#),
        ("3", "Take", br#"{"pieces":9}"#),
    ];
    for (id, command, body) in orders {
        let mut headers = FieldTable::default();
        headers.insert("article".into(), lapin::types::AMQPValue::LongString("nut".into()));
        let properties = BasicProperties::default()
            .with_message_id(id.into())
            .with_type(command.into())
            .with_headers(headers);
        let options = BasicPublishOptions::default();
        let sent = connection
            .channel
            .basic_publish("".into(), "orders".into(), options, body, properties);
        sent.await.unwrap();
    }
    until("the last order is refused", async || {
        depth(&connection, "orders-dead").await == 1
    })
    .await;
    until("what was taken is shipped", async || {
        depth(&connection, "shipments").await == 1
    })
    .await;
    ingress.stop();
    engine.stop().await;
    let shipped = get(&connection, "shipments").await.unwrap();
    assert_eq!(shipped.data, br#"{"article":"nut","pieces":3}"#);
    assert_eq!(shipped.properties.kind(), &Some("Taken".into()));
    let refused = get(&connection, "orders-dead").await.unwrap();
    let reason = header(&refused, "x-throng-reason").unwrap();
    assert_eq!(reason, "there are only 2 pieces");
    // Started anew, it ships nothing again.
    let (engine, ingress) = program::start(&server.url(), directory.path()).await.unwrap();
    until("it has caught up", async || engine.projections()[0].lag_commits == 0).await;
    ingress.stop();
    engine.stop().await;
    assert_eq!(depth(&connection, "shipments").await, 0);
}
