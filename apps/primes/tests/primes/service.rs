//! The service from outside.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use throng::{
    Engine,
    journal::{MemoryJournal, MemoryStore},
};
use throng_http::{Gateway, Running};

async fn start() -> Running {
    let journal = MemoryJournal::new();
    let store = MemoryStore::new(journal.clone());
    let engine = primes::kinds(Engine::builder()).start(journal, store).await.unwrap();
    let routes = primes::routes(engine.clone());
    Gateway::builder(engine).routes(routes).start().unwrap()
}

/// Status, and all that was said.
fn ask(address: SocketAddr, method: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    (said[9..12].parse().unwrap(), said)
}

fn body(said: &str) -> &str {
    said.split_once("\r\n\r\n").unwrap().1
}

#[tokio::test]
async fn the_contract_is_kept() {
    let gateway = start().await;
    let address = gateway.address();
    let (status, said) = ask(address, "GET", "/primes/20");
    assert_eq!(status, 200, "{said}");
    assert!(said.contains("content-type: application/json\r\n"), "{said}");
    assert!(body(&said).starts_with(r#"["2","3","5""#) && body(&said).ends_with(r#""67","71"]"#));
    assert_eq!(body(&ask(address, "GET", "/primes/0").1), "[]");

    let (status, said) = ask(address, "GET", "/primes/100000");
    assert_eq!(status, 200);
    assert!(body(&said).ends_with(r#","1299709"]"#));
    assert_eq!(body(&said).matches(',').count(), 99_999);
    gateway.stop().await;
}

#[tokio::test]
async fn what_is_no_count_is_told_why() {
    let gateway = start().await;
    for (n, part) in [
        ("-1", "no -1 primes"),
        ("100001", "more than are computed"),
        ("340282366920938463463374607431768211456", "more than are computed"),
        ("twenty", "no number"),
        ("%ff", "UTF-8"),
        ("1e3", "no number"),
    ] {
        let (status, said) = ask(gateway.address(), "GET", &format!("/primes/{n}"));
        assert_eq!(status, 400, "{n}: {said}");
        assert!(said.contains("application/problem+json"), "{said}");
        assert!(body(&said).contains(part), "{said}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn other_methods_and_paths_are_refused() {
    let gateway = start().await;
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        let (status, said) = ask(gateway.address(), method, "/primes/20");
        assert_eq!(status, 405, "{said}");
        assert!(said.to_ascii_lowercase().contains("allow: get"), "{said}");
    }
    for path in ["/primes", "/primes/", "/primes/20/anything"] {
        assert_eq!(ask(gateway.address(), "GET", path).0, 404, "{path}");
    }
    gateway.stop().await;
}
