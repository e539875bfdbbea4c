//! The generic routes, over real connections.

use crate::support::{Client, both_paths::in_both, plain, start};
use serde_json::json;

#[test]
fn a_command_is_answered_with_its_reply_and_seen_by_queries() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    let opened = client.post("/api/section/C%20S%20142-1/open", r#"{"capacity":2}"#);
    assert_eq!(opened.status, 200, "{}", opened.text());
    assert_eq!(opened.header("content-type"), Some("application/json"));
    assert_eq!(opened.json(), json!({"capacity": 2, "students": []}));
    let added = client.post("/api/section/C%20S%20142-1/add-student", r#"{"student":"7"}"#);
    assert_eq!(added.json(), json!({"capacity": 2, "students": ["7"]}));
    let same = client.post("/api/section/C%20S%20142-1/add_student", r#"{"student":"7"}"#);
    assert_eq!(same.json(), json!({"capacity": 2, "students": ["7"]}));
    assert_eq!(
        client.get("/api/section/C%20S%20142-1").json(),
        json!({"capacity": 2, "students": ["7"]})
    );
    assert_eq!(
        client.get("/api/section/C%20S%20142-1/enrolled?student=7").json(),
        json!(true)
    );
    assert_eq!(
        client.get("/api/section/C%20S%20142-1/enrolled?student=8").json(),
        json!(false)
    );
    gateway.stop_blocking();
}

#[test]
fn a_rejection_has_its_code_status_field_and_value() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    client.post("/api/section/S1/open", r#"{"capacity":0}"#);
    let full = client
        .post("/api/section/S1/add-student", r#"{"student":"7"}"#)
        .problem(409, "full");
    assert_eq!(full["rejection"], json!({"full": {"capacity": 0}}));
    assert_eq!(full["detail"], "All 0 places are taken.");
    assert_eq!(full["instance"], "/api/section/S1/add-student");
    let absent = client
        .post("/api/section/S1/drop-student", r#"{"student":"7"}"#)
        .problem(422, "not-enrolled");
    assert_eq!(absent["field"], "student");
}

//= promise 4: a key takes effect once
#[test]
fn a_key_takes_effect_once_and_refuses_another_command() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    client.post("/api/section/S1/open", r#"{"capacity":9}"#);
    let mut keyed = |path: &str, body: &str| client.request("POST", path, &[("idempotency-key", "k1")], body);
    let first = keyed("/api/section/S1/add-student", r#"{"student":"7"}"#);
    assert_eq!(first.json()["students"], json!(["7"]));
    keyed("/api/section/S1/drop-student", r#"{"student":"7"}"#).problem(422, "key-reused");
    let again = keyed("/api/section/S1/add-student", r#"{"student":"7"}"#);
    assert_eq!(again.body, first.body);
    assert_eq!(
        client.get("/api/section/S1/events").json()["events"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[test]
fn the_history_comes_page_by_page() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    client.post("/api/section/S1/open", r#"{"capacity":9}"#);
    for student in ["7", "8"] {
        client.post(
            "/api/section/S1/add-student",
            &json!({ "student": student }).to_string(),
        );
    }
    let page = client.get("/api/section/S1/events?limit=2").json();
    let events = page["events"].as_array().unwrap();
    assert_eq!(events.len(), 2);
    assert_eq!(
        (&events[0]["seq"], &events[0]["name"], &events[0]["version"]),
        (&json!(1), &json!("opened"), &json!(1))
    );
    assert_eq!(events[1]["payload"], json!({"student": "7"}));
    assert!(events[1]["at"].as_str().unwrap().ends_with('Z'));
    assert!(events[1]["position"].as_str().unwrap().contains('.'));
    assert_eq!(page["next"], 2);
    let page = client.get("/api/section/S1/events?limit=2&after=2").json();
    assert_eq!(page["events"][0]["payload"], json!({"student": "8"}));
    assert_eq!(page["events"].as_array().unwrap().len(), 1);
    assert_eq!(page["next"], json!(null));
    let whole = client.get("/api/section/S1/events?limit=3").json();
    assert_eq!(
        (whole["events"].as_array().unwrap().len(), &whole["next"]),
        (3, &json!(null))
    );
    let end = client.get("/api/section/S1/events?after=3").json();
    assert_eq!(end, json!({"events": [], "next": null}));
    for beyond in ["S1/events?after=4", "S1/events?after=99", "nobody/events?after=1"] {
        let lost = client
            .get(&format!("/api/section/{beyond}"))
            .problem(410, "history-lost");
        assert_eq!(lost["field"], "after");
    }
}

#[test]
fn the_entities_of_a_kind_come_in_the_order_of_their_ids() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    assert_eq!(client.get("/api/section").json(), json!({"entities": [], "next": null}));
    for id in ["b", "a", "c"] {
        client.post(&format!("/api/section/{id}/open"), r#"{"capacity":1}"#);
    }
    let page = client.get("/api/section?limit=2").json();
    assert_eq!(
        page,
        json!({"entities": [{"id": "a", "seq": 1}, {"id": "b", "seq": 1}], "next": "b"})
    );
    let page = client.get("/api/section?limit=2&after=b").json();
    assert_eq!(page, json!({"entities": [{"id": "c", "seq": 1}], "next": null}));
}

#[test]
fn a_request_may_name_its_deadline() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    for (name, value) in [("request-timeout", "2"), ("x-request-timeout", "750ms")] {
        let opened = client.request("POST", "/api/section/S1/open", &[(name, value)], r#"{"capacity":1}"#);
        assert_eq!(opened.status, 200, "{}", opened.text());
    }
}

#[test]
fn options_tells_the_methods_of_every_route() {
    let routes = axum::Router::new()
        .route("/seats", axum::routing::post(async || "seated").get(async || "seats"))
        .route("/own", axum::routing::options(async || "own"));
    let gateway = start(|gateway| gateway.routes(routes));
    Client::new(&gateway).post("/api/section/S1/open", r#"{"capacity":9}"#);
    let service = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
    for (path, allow) in [
        ("*", service),
        ("/", "GET, HEAD, OPTIONS"),
        ("/health/ready", "GET, HEAD, OPTIONS"),
        ("/metrics", "GET, HEAD, OPTIONS"),
        ("/docs", "GET, HEAD, OPTIONS"),
        ("/problems/expired", "GET, HEAD, OPTIONS"),
        ("/console/", "GET, HEAD, OPTIONS"),
        ("/admin/overview", "GET, HEAD, OPTIONS"),
        ("/admin/prune", "POST, OPTIONS"),
        ("/api/ws", "GET, HEAD, OPTIONS"),
        ("/api/section", "GET, HEAD, OPTIONS"),
        ("/api/section/S1", "GET, HEAD, OPTIONS"),
        ("/api/section/S1/enrolled", "GET, HEAD, OPTIONS"),
        ("/api/section/S1/open", "POST, OPTIONS"),
        ("/seats", "POST,GET,HEAD, OPTIONS"),
    ] {
        for told in in_both(&gateway, "OPTIONS", path, &[], "") {
            assert_eq!((told.status, told.header("allow")), (204, Some(allow)), "{path}");
        }
    }
    assert_eq!(
        Client::new(&gateway).request("OPTIONS", "/own", &[], "").text(),
        "own",
        "the app has its own answer"
    );
    for told in in_both(&gateway, "OPTIONS", "/none", &[], "") {
        told.problem(404, "unknown-route");
    }
    for refused in in_both(&gateway, "GET", "*", &[], "") {
        refused.problem(405, "method-not-allowed");
        assert_eq!(refused.header("allow"), Some("OPTIONS"));
    }
    let without_app = plain();
    for told in in_both(&without_app, "OPTIONS", "/", &[], "") {
        assert_eq!((told.status, told.header("allow")), (204, Some("GET, HEAD, OPTIONS")));
    }
    // The health check of HAProxy, verbatim.
    let told = Client::new(&without_app).send("OPTIONS / HTTP/1.0\r\n\r\n").answer();
    assert_eq!(told.status, 204);
}
