//! Outgoing webhooks: the requests that a receiver gets, and the effects of its answers.

use super::{
    client::attempt,
    provider::{Provider, answer},
    shop::{self, Order, OrderCommand, Payments},
};
use serde_json::json;
use throng::model::{CallError, Outside, Timestamp};
use throng_testing::{block_on, in_memory, until};
use throng_web::{Bytes, Delivered, Gone, HttpClient, Receiver, Secret, Webhook, Webhooks, http::HeaderMap};

pub(crate) fn secret(byte: char) -> Secret {
    format!("whsec_{}", byte.to_string().repeat(32)).parse().unwrap()
}

fn webhook(url: String) -> Webhook {
    Webhook {
        url,
        event: "order.paid".into(),
        at: Timestamp { micros: 1_500_000 },
        data: json!({ "cents": 7 }),
    }
}

fn webhooks(secrets: Vec<Secret>) -> Webhooks {
    Webhooks::new(HttpClient::to_public_hosts().allow_private(), move |_| secrets.clone())
}

/// The header fields and the body of a request.
fn parts_of(request: &str) -> (HeaderMap, Bytes) {
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let fields = head.lines().skip(1).map(|line| line.split_once(": ").unwrap());
    let field = |(name, value): (&str, &str)| {
        let name: throng_web::http::HeaderName = name.parse().unwrap();
        (name, value.parse().unwrap())
    };
    (fields.map(field).collect(), Bytes::copy_from_slice(body.as_bytes()))
}

#[test]
fn webhook_is_signed_under_the_old_and_the_new_secret() {
    let provider = Provider::start(&[answer("204 No Content", "")]);
    let webhooks = webhooks(vec![secret('a'), secret('b')]);
    let delivered = block_on(webhooks.call(webhook(provider.url()), &attempt()));
    assert_eq!(delivered, Ok(Delivered { status: 204 }));
    let (headers, body) = parts_of(&provider.seen()[0]);
    assert_eq!(headers["webhook-id"], "0123456789abcdef0123456789abcdef");
    assert_eq!(headers["content-type"], "application/json");
    let content: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let expected = json!({ "type": "order.paid", "timestamp": "1970-01-01T00:00:01.5Z", "data": { "cents": 7 } });
    assert_eq!(content, expected);
    let seconds: i64 = headers["webhook-timestamp"].to_str().unwrap().parse().unwrap();
    let now = Timestamp {
        micros: seconds * 1_000_000,
    };
    for (byte, fits) in [('a', true), ('b', true), ('c', false)] {
        let verified = Receiver::standard("shop", [secret(byte)]).verify(&headers, body.clone(), now);
        assert_eq!(verified.is_ok(), fits, "{byte}");
    }
}

#[test]
fn answer_of_a_receiver_decides_the_call() {
    let statuses = [
        "200 OK",
        "410 Gone",
        "429 Too Many Requests",
        "302 Found",
        "404 Not Found",
        "500 Internal Server Error",
    ];
    let provider = Provider::start(&statuses.map(|status| answer(status, "")));
    let webhooks = webhooks(vec![secret('a')]);
    let outcomes = statuses.map(|_| block_on(webhooks.clone().call(webhook(provider.url()), &attempt())));
    assert_eq!(outcomes[0], Ok(Delivered { status: 200 }));
    assert_eq!(outcomes[1], Err(CallError::Failed(Gone {})));
    assert!(matches!(outcomes[2], Err(CallError::NotSent(_))));
    assert!(
        outcomes[3..]
            .iter()
            .all(|outcome| matches!(outcome, Err(CallError::InDoubt(_)))),
        "{outcomes:?}"
    );
}

#[test]
fn receiver_that_hangs_leaves_places_to_others() {
    let refusing = Provider::start(&[answer("402 Payment Required", "")]);
    let (hanging, good) = (
        Provider::start(&["…".into()]),
        Provider::start(&[answer("204 No Content", "")]),
    );
    let payments = Payments {
        client: HttpClient::to_public_hosts().allow_private(),
        url: refusing.url(),
    };
    let receiver = Receiver::standard("payments", [secret('a')]);
    let engine = in_memory(shop::app(payments, receiver, webhooks(vec![secret('a')])).into_builder());
    let pay = |order: String, hook: String| {
        for command in [OrderCommand::Place { cents: 1, hook }, OrderCommand::Pay { cents: 1 }] {
            block_on(engine.entity::<Order>(&order).ask(command)).unwrap();
        }
    };
    let half = Webhooks::CONCURRENCY / 2;
    for order in 0..2 * Webhooks::CONCURRENCY {
        pay(
            order.to_string(),
            format!("http://localhost:{}/hook", hanging.address.port()),
        );
    }
    until("many places hang", || hanging.open() >= half);
    pay("good".into(), good.url());
    until("the other receiver is told", || !good.seen().is_empty());
    assert!(hanging.open() <= half, "{} places hang", hanging.open());
}

#[test]
fn webhook_without_secret_is_not_sent() {
    let provider = Provider::start(&[answer("200 OK", "")]);
    let outcome = block_on(webhooks(Vec::new()).call(webhook(provider.url()), &attempt()));
    assert!(
        matches!(&outcome, Err(CallError::NotSent(why)) if why.contains("no secret")),
        "{outcome:?}"
    );
    assert_eq!(provider.connections(), 0);
}
