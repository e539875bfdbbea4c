//! The program in the book.

#[allow(dead_code, reason = "its main is not called here")]
#[path = "../../examples/stock.rs"]
mod program;

use crate::kit::{Look, depth, get, header, look, until};
use lapin::{BasicProperties, options::BasicPublishOptions, types::FieldTable};
use servers::{RabbitMq, RabbitMqOptions};
use std::fs;

/// Returns the part of the program that the book shows: everything except the entity.
fn shown(text: &str) -> &str {
    &text[text.find("use serde_json::json;").unwrap()..]
}

#[test]
fn book_shows_the_program_that_runs() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let book = fs::read_to_string(format!("{root}/docs/brokers.md")).unwrap();
    assert!(
        book.contains(shown(include_str!("../../examples/stock.rs"))),
        "copy it from examples/stock.rs to docs/brokers.md"
    );
}

/// Sends an order for the article `nut`.
async fn order(connection: &Look, id: &str, command: &str, pieces: u64) {
    let mut headers = FieldTable::default();
    headers.insert("article".into(), lapin::types::AMQPValue::LongString("nut".into()));
    let properties = BasicProperties::default()
        .with_message_id(id.into())
        .with_type(command.into())
        .with_headers(headers);
    let body = format!(r#"{{"pieces":{pieces}}}"#);
    let options = BasicPublishOptions::default();
    let channel = &connection.channel;
    let sent = channel.basic_publish("".into(), "orders".into(), options, body.as_bytes(), properties);
    sent.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn program_of_the_book_takes_orders_and_ships_once() {
    let server = RabbitMq::start(RabbitMqOptions::default()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (engine, ingress) = program::start(&server.url(), directory.path()).await.unwrap();
    let connection = look(&server).await;
    order(&connection, "1", "Receive", 5).await;
    // Sent twice; then more than there is in stock.
    for (id, pieces) in [("2", 3), ("2", 3), ("3", 9)] {
        order(&connection, id, "Take", pieces).await;
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
    drop(engine);
    let shipped = get(&connection, "shipments").await.unwrap();
    assert_eq!(shipped.data, br#"{"article":"nut","pieces":3}"#);
    assert_eq!(shipped.properties.kind(), &Some("Taken".into()));
    let refused = get(&connection, "orders-dead").await.unwrap();
    let reason = header(&refused, "x-throng-reason").unwrap();
    assert_eq!(reason, "there are only 2 pieces");
    // After a restart it ships the next order, and does not repeat earlier ones.
    let (engine, ingress) = program::start(&server.url(), directory.path()).await.unwrap();
    order(&connection, "4", "Take", 1).await;
    until("something is shipped", async || {
        depth(&connection, "shipments").await > 0
    })
    .await;
    let shipped = get(&connection, "shipments").await.unwrap();
    assert_eq!(shipped.data, br#"{"article":"nut","pieces":1}"#);
    ingress.stop();
    engine.stop().await;
}
