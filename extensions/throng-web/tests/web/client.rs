//! The client: its requests, and its errors when no answer arrives.

use super::provider::{Provider, answer};
use std::{net::TcpListener, sync::Arc, time::Duration};
use throng::model::{Attempt, CallError, Timestamp};
use throng_testing::block_on;
use throng_web::{
    HttpClient, post_json, retry,
    rustls::{self, pki_types},
};

pub(crate) fn attempt() -> Attempt {
    Attempt {
        call: "0123456789abcdef0123456789abcdef".parse().unwrap(),
        number: 1,
        begun: Timestamp {
            micros: 1_700_000_000_000_000,
        },
        deadline: Timestamp::default(),
        trace: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".parse().ok(),
    }
}

/// Returns a client for servers on this machine.
fn client() -> HttpClient {
    HttpClient::to_public_hosts().allow_private()
}

/// Makes one attempt. Returns the status and the body of its answer.
async fn call(client: &HttpClient, url: &str) -> Result<(u16, String), CallError<()>> {
    let request = post_json(url, &"hello")?;
    let read = |status: throng_web::http::StatusCode, headers: &_, body: &[u8]| match status.as_u16() {
        429 | 503 => Err(retry(status, headers)),
        status => Ok((status, String::from_utf8_lossy(body).into_owned())),
    };
    client.call(request, &attempt(), read).await
}

fn is_not_sent(called: &Result<(u16, String), CallError<()>>, why: &str) -> bool {
    matches!(called, Err(CallError::NotSent(text)) if text.contains(why))
}

fn is_in_doubt(called: &Result<(u16, String), CallError<()>>, why: &str) -> bool {
    matches!(called, Err(CallError::InDoubt(text)) if text.contains(why))
}

#[test]
fn one_connection_carries_calls_under_their_keys() {
    let provider = Provider::start(&[answer("200 OK", "one"), answer("201 Created", "two")]);
    let client = client();
    block_on(async {
        assert_eq!(call(&client, &provider.url()).await, Ok((200, "one".into())));
        assert_eq!(call(&client.clone(), &provider.url()).await, Ok((201, "two".into())));
    });
    assert_eq!(provider.connections(), 1);
    for request in provider.seen() {
        assert!(request.starts_with("POST /hook HTTP/1.1\r\n"), "{request}");
        let host = format!("host: {}\r\n", provider.address);
        let key = "idempotency-key: 0123456789abcdef0123456789abcdef\r\n";
        assert!(
            request.contains(&host) && request.contains(key) && request.ends_with("\r\n\r\n\"hello\""),
            "{request}"
        );
        let parent = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n";
        assert!(request.contains(parent), "{request}");
    }
}

#[test]
fn call_without_connection_is_not_sent() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let provider = Provider::start(&[answer("200 OK", "")]);
    block_on(async {
        let called = call(&client(), &format!("http://{free}/")).await;
        assert!(is_not_sent(&called, "cannot connect to 127.0.0.1"), "{called:?}");
        let called = call(&client(), "http://no..such/").await;
        assert!(is_not_sent(&called, "no..such"), "{called:?}");
        let called = call(&client(), "no url").await;
        assert!(is_not_sent(&called, "URL"), "{called:?}");
        // The server does not speak TLS.
        let quick = client().connect_timeout(Duration::from_millis(200));
        let called = call(&quick, &provider.url().replace("http:", "https:")).await;
        assert!(is_not_sent(&called, "127.0.0.1"), "{called:?}");
    });
}

#[test]
fn server_that_may_not_be_called_sees_nothing() {
    let provider = Provider::start(&[answer("200 OK", "")]);
    block_on(async {
        let called = call(&HttpClient::to_public_hosts(), &provider.url()).await;
        assert!(is_not_sent(&called, "HttpClient::allow_private"), "{called:?}");
        let called = call(&HttpClient::to_hosts(["a.example"]).allow_private(), &provider.url()).await;
        assert!(is_not_sent(&called, "HttpClient::to_hosts"), "{called:?}");
    });
    assert_eq!(provider.connections(), 0);
}

#[test]
fn call_without_whole_answer_is_in_doubt() {
    let truncated = "!HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf".to_owned();
    for (answer, why) in [
        ("!", "127.0.0.1: "),
        ("!nonsense\r\n\r\n", "127.0.0.1: "),
        (&*truncated, "body"),
        ("…", "no whole answer within 100ms"),
    ] {
        let provider = Provider::start(&[answer.to_owned()]);
        let impatient = match answer {
            "…" => client().answer_timeout(Duration::from_millis(100)),
            _ => client(),
        };
        let called = block_on(call(&impatient, &provider.url()));
        assert!(is_in_doubt(&called, why), "{answer}: {called:?}");
    }
}

#[test]
fn longer_answer_is_in_doubt_and_ends_its_connection() {
    let long = "x".repeat(101);
    let chunked = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n65\r\n{long}\r\n0\r\n\r\n");
    let provider = Provider::start(&[answer("200 OK", &long), chunked, answer("200 OK", &long[1..])]);
    let client = client().answer_bytes_max(100);
    block_on(async {
        for _ in 0..2 {
            let called = call(&client, &provider.url()).await;
            assert!(is_in_doubt(&called, "more than 100 bytes"), "{called:?}");
        }
        assert_eq!(call(&client, &provider.url()).await, Ok((200, long[1..].into())));
    });
    assert_eq!(provider.connections(), 3);
}

#[test]
fn redirect_is_an_answer() {
    let other = Provider::start(&[answer("200 OK", "")]);
    let redirect = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nlocation: {}\r\ncontent-length: 0\r\n\r\n",
        other.url()
    );
    let provider = Provider::start(&[redirect]);
    assert_eq!(block_on(call(&client(), &provider.url())), Ok((307, String::new())));
    assert_eq!(other.connections(), 0);
}

#[test]
fn pause_that_a_provider_asks_for_is_kept() {
    let busy =
        |status: &str, after: &str| format!("HTTP/1.1 {status}\r\nretry-after: {after}\r\ncontent-length: 0\r\n\r\n");
    let provider = Provider::start(&[
        busy("429 Too Many Requests", "7"),
        busy("503 Service Unavailable", "Mon, 31 Dec 2300 23:59:59 GMT"),
        busy("503 Service Unavailable", "Sun, 06 Nov 1994 08:49:37 GMT"),
        busy("503 Service Unavailable", "soon"),
    ]);
    let client = client();
    let called = || block_on(call(&client, &provider.url())).unwrap_err();
    let why = "the provider answered 429 Too Many Requests".to_owned();
    let (after, is_sent) = (Duration::from_secs(7), false);
    assert_eq!(called(), CallError::RetryAfter { after, is_sent, why });
    for is_past in [false, true] {
        let CallError::RetryAfter {
            after, is_sent: true, ..
        } = called()
        else {
            panic!("a date says when");
        };
        assert_eq!(after.is_zero(), is_past);
    }
    assert!(is_in_doubt(&Err(called()), "503 Service Unavailable"));
}

#[test]
fn tls_server_is_called_if_its_certificate_is_trusted() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let ring = || Arc::new(rustls::crypto::ring::default_provider());
    let key = pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let server = rustls::ServerConfig::builder_with_provider(ring())
        .with_safe_default_protocol_versions()
        .unwrap();
    let server = server
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key);
    let server = Arc::new(server.unwrap());
    let provider = Provider::over(&[answer("200 OK", "private")], move |stream| {
        rustls::StreamOwned::new(rustls::ServerConnection::new(server.clone()).unwrap(), stream)
    });
    let trusting = |certificates: Vec<_>| {
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(certificates);
        let config = rustls::ClientConfig::builder_with_provider(ring())
            .with_safe_default_protocol_versions()
            .unwrap();
        client().tls(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
    };
    let url = format!("https://localhost:{}/", provider.address.port());
    block_on(async {
        let called = call(&trusting(Vec::new()), &url).await;
        assert!(is_not_sent(&called, "TLS with localhost"), "{called:?}");
        assert_eq!(
            call(&trusting(vec![made.cert.der().clone()]), &url).await,
            Ok((200, "private".into()))
        );
    });
}

#[test]
fn dropped_call_leaves_no_connection_behind() {
    let provider = Provider::start(&["…".to_owned(), answer("200 OK", "")]);
    let client = client();
    block_on(async {
        let url = provider.url();
        let mut hanging = Box::pin(call(&client, &url));
        let seen = throng_testing::eventually("the request came", async || {
            tokio::select! { biased; _ = &mut hanging => true, () = throng_testing::pause() => !provider.seen().is_empty() }
        });
        seen.await;
        drop(hanging);
        assert_eq!(call(&client, &url).await, Ok((200, String::new())));
    });
    assert_eq!(provider.connections(), 2);
}
