//! A graceful stop.

use crate::support::{Client, client::request, plain, start};
use std::{thread, time::Duration};
use throng_http::{Gateway, Limits};

#[test]
fn requests_in_flight_are_answered_and_idle_connections_close() {
    let gateway = plain();
    let mut idle = Client::new(&gateway);
    idle.get("/health/live");
    let mut client = Client::new(&gateway);
    client.post("/api/section/S1/open", r#"{"capacity":9}"#);
    // Its head has arrived and its body has not, so the request is in flight.
    client.send(
        "POST /api/section/S1/add-student HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nexpect: 100-continue\r\ncontent-length: 15\r\n\r\n",
    );
    assert_eq!(client.line().unwrap(), "HTTP/1.1 100 Continue");
    assert_eq!(client.line().unwrap(), "");
    let address = gateway.address();
    let engine = gateway.engine().clone();
    let stopping = thread::spawn(move || gateway.stop_blocking());
    idle.is_closed();
    client.send(r#"{"student":"7"}"#);
    let added = client.answer();
    assert_eq!(added.json()["students"], serde_json::json!(["7"]));
    assert_eq!(added.header("connection"), Some("close"));
    client.is_closed();
    stopping.join().unwrap();
    assert!(!engine.health().ready);
    assert!(
        std::net::TcpStream::connect(address).is_err(),
        "nobody listens any more"
    );
}

#[test]
fn a_client_that_never_finishes_does_not_hold_up_the_end() {
    let limits = Limits {
        drain: Duration::from_millis(30),
        ..Limits::default()
    };
    let gateway = start(|gateway| gateway.limits(limits));
    let mut client = Client::new(&gateway);
    client
        .send("POST /api/section/S1/open HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nexpect: 100-continue\r\ncontent-length: 15\r\n\r\n");
    assert_eq!(client.line().unwrap(), "HTTP/1.1 100 Continue");
    gateway.stop_blocking();
    assert_eq!(client.line().unwrap(), "");
    client.is_closed();
}

#[test]
fn a_stop_works_from_within_a_runtime_too() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    client.send(request("POST", "/api/section/S1/open", &[], r#"{"capacity":1}"#));
    assert_eq!(client.answer().status, 200);
    crate::support::wait(gateway.stop());
}

#[test]
fn closed_gateway_refuses_connections_until_it_is_opened() {
    let mut gateway = start(Gateway::closed);
    let address = gateway.address();
    assert!(std::net::TcpStream::connect(address).is_err(), "it is closed");
    gateway.open().unwrap();
    assert_eq!(Client::new(&gateway).get("/health/live").status, 200);
    gateway.stop_blocking();
    let gateway = start(Gateway::closed);
    gateway.stop_blocking();
}
