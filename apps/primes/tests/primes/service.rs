//! Tests of the service over HTTP.

use throng::Engine;
use throng_http::{Gateway, Running};
use throng_testing::{Response, in_memory, request};

fn start() -> Running {
    let engine = in_memory(primes::kinds(Engine::builder()));
    let routes = primes::routes(engine.clone());
    Gateway::builder(engine).routes(routes).start().unwrap()
}

fn ask(gateway: &Running, method: &str, path: &str) -> Response {
    request(gateway.address(), method, path, "", "").unwrap()
}

#[test]
fn the_contract_is_kept() {
    let gateway = start();
    let twenty = ask(&gateway, "GET", "/primes/20");
    assert_eq!(twenty.status, 200, "{twenty:?}");
    assert_eq!(twenty.header("content-type"), Some("application/json"));
    assert!(twenty.body.starts_with(r#"["2","3","5""#) && twenty.body.ends_with(r#""67","71"]"#));
    assert_eq!(ask(&gateway, "GET", "/primes/0").body, "[]");
    assert_eq!(ask(&gateway, "GET", "/primes/20/").body, twenty.body);

    let most = ask(&gateway, "GET", "/primes/100000");
    assert_eq!(most.status, 200);
    assert!(most.body.ends_with(r#","1299709"]"#));
    assert_eq!(most.body.matches(',').count(), 99_999);
    gateway.stop_blocking();
}

#[test]
fn bad_count_is_told_with_its_reason() {
    let gateway = start();
    for (n, part) in [
        ("-1", "no -1 primes"),
        ("100001", "more than are computed"),
        ("340282366920938463463374607431768211456", "more than are computed"),
        ("twenty", "no number"),
        ("%ff", "UTF-8"),
        ("1e3", "no number"),
    ] {
        let said = ask(&gateway, "GET", &format!("/primes/{n}"));
        assert_eq!(said.status, 400, "{n}: {said:?}");
        assert_eq!(said.header("content-type"), Some("application/problem+json"));
        assert!(said.body.contains(part), "{said:?}");
    }
    gateway.stop_blocking();
}

#[test]
fn other_methods_and_paths_are_refused() {
    let gateway = start();
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        let said = ask(&gateway, method, "/primes/20");
        assert_eq!(said.status, 405, "{said:?}");
        assert!(said.header("allow").unwrap().starts_with("GET"), "{said:?}");
    }
    for path in ["/primes", "/primes/", "/primes/20/anything"] {
        assert_eq!(ask(&gateway, "GET", path).status, 404, "{path}");
    }
    gateway.stop_blocking();
}
