//! Tests of the service as a user runs it: the real engine behind the real gateway, over sockets.

use serde_json::{Value, json};
use std::net::SocketAddr;
use throng::Engine;
use throng_http::{Gateway, Running};
use throng_testing::{JSON, in_memory, request};

struct Service {
    running: Option<Running>,
}

impl Service {
    fn start() -> Self {
        let engine = in_memory(registration::kinds(Engine::builder()));
        let running = Gateway::builder(engine.clone())
            .routes(registration::routes(engine))
            .describe(registration::describe())
            .start()
            .unwrap();
        Self { running: Some(running) }
    }

    fn address(&self) -> SocketAddr {
        self.running.as_ref().unwrap().address()
    }

    fn get(&self, path: &str) -> (u16, Value) {
        self.exchange("GET", path, "", "")
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.post_text(path, JSON, &body.to_string())
    }

    fn post_text(&self, path: &str, headers: &str, body: &str) -> (u16, Value) {
        self.exchange("POST", path, headers, body)
    }

    fn exchange(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, Value) {
        let response = request(self.address(), method, path, headers, body).unwrap();
        (response.status, response.json())
    }

    fn open(&self, section: &str, capacity: u32) {
        let (status, reply) = self.post("/sections", &json!({ "section": section, "capacity": capacity }));
        let expected = json!({ "change": "opened", "capacity": capacity, "taken": 0, "remaining": capacity });
        assert_eq!((status, reply), (201, expected));
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop_blocking();
        }
    }
}

fn problem(answer: &(u16, Value)) -> (u16, &str) {
    (
        answer.0,
        answer.1["type"].as_str().unwrap().strip_prefix("/problems/").unwrap(),
    )
}

#[test]
fn a_student_takes_and_returns_a_seat_over_the_apps_routes() {
    let service = Service::start();
    service.open("C S 142-1", 1);
    let path = "/sections/C%20S%20142-1";
    let ann = json!({ "student": "ann" });
    let added = service.post(&format!("{path}/add"), &ann);
    assert_eq!(
        added,
        (
            200,
            json!({ "change": "added", "capacity": 1, "taken": 1, "remaining": 0 })
        )
    );
    let full = service.post(&format!("{path}/add"), &json!({ "student": "bob" }));
    assert_eq!(problem(&full), (409, "section-full"));
    assert_eq!(full.1["rejection"], json!({ "reason": "full", "capacity": 1 }));
    assert_eq!(
        service.get(&format!("{path}/roster")),
        (200, json!({ "students": ["ann"], "after": null }))
    );
    assert_eq!(service.get(&format!("{path}/roster/ann")), (200, json!(true)));
    assert_eq!(service.get(&format!("{path}/roster/bob")), (200, json!(false)));
    let dropped = service.post(&format!("{path}/drop"), &ann);
    assert_eq!(dropped.1["change"], "dropped");
    let view = json!({ "section": "C S 142-1", "capacity": 1, "taken": 0, "remaining": 1 });
    assert_eq!(service.get(path), (200, view.clone()));
    assert_eq!(
        service.get("/api/section/C%20S%20142-1"),
        (200, view),
        "the generic route says the same"
    );
}

#[test]
fn the_collection_lists_its_sections_and_passes_requests_on() {
    let service = Service::start();
    assert_eq!(
        service.get("/sections"),
        (200, json!({ "sections": [], "after": null }))
    );
    for section in ["B-1", "A-1", "C-1"] {
        service.open(section, 2);
    }
    assert_eq!(
        service.get("/sections?limit=2"),
        (200, json!({ "sections": ["A-1", "B-1"], "after": "B-1" }))
    );
    assert_eq!(
        service.get("/sections?after=B-1"),
        (200, json!({ "sections": ["C-1"], "after": null }))
    );
    assert_eq!(service.get("/api/collection/all"), (200, json!({ "sections": 3 })));
    let routed = |section: &str, operation: &str| {
        service.post(
            "/requests",
            &json!({ "section": section, "student": "ann", "operation": operation }),
        )
    };
    assert_eq!(routed("A-1", "add").1["change"], "added");
    assert_eq!(routed("A-1", "add").1["change"], "already-present");
    assert_eq!(service.get("/sections/A-1/roster/ann"), (200, json!(true)));
    assert_eq!(routed("A-1", "drop").1["change"], "dropped");
    assert_eq!(problem(&routed("Z-9", "add")), (404, "no-section"));
}

#[test]
fn anything_missing_is_404_on_every_route() {
    let service = Service::start();
    let ann = json!({ "student": "ann" });
    assert_eq!(problem(&service.get("/sections/Z-9")), (404, "unknown-entity"));
    assert_eq!(problem(&service.get("/sections/Z-9/roster")), (404, "unknown-entity"));
    assert_eq!(
        problem(&service.post("/sections/Z-9/add", &ann)),
        (404, "unknown-entity")
    );
    assert_eq!(
        problem(&service.post("/api/section/Z-9/add", &ann)),
        (404, "unknown-entity")
    );
    let routed = service.post(
        "/requests",
        &json!({ "section": "Z-9", "student": "ann", "operation": "drop" }),
    );
    assert_eq!(problem(&routed), (404, "no-section"));
}

#[test]
fn a_section_is_opened_once() {
    let service = Service::start();
    service.open("A-1", 3);
    let again = service.post("/sections", &json!({ "section": "A-1", "capacity": 9 }));
    assert_eq!(problem(&again), (409, "section-already-open"));
    assert_eq!(service.get("/sections/A-1").1["capacity"], 3);
}

#[test]
fn bad_input_is_said_with_its_field_and_changes_nothing() {
    let service = Service::start();
    service.open("A-1", 3);
    let json_type = "content-type: application/json\r\n";
    for (path, body, word) in [
        ("/sections/A-1/add", "{", "EOF"),
        ("/sections/A-1/add", "{}", "student"),
        ("/sections/A-1/add", r#"{"student":7}"#, "student"),
        ("/sections", r#"{"section":"B-1","capacity":-1}"#, "capacity"),
        (
            "/requests",
            r#"{"section":"A-1","student":"ann","operation":"swap"}"#,
            "swap",
        ),
    ] {
        let answer = service.post_text(path, json_type, body);
        assert_eq!(problem(&answer), (400, "malformed"), "{body}");
        assert!(answer.1["detail"].as_str().unwrap().contains(word), "{answer:?}");
    }
    let unfit = service.post("/sections/A-1/add", &json!({ "student": "a,b" }));
    assert_eq!(
        (problem(&unfit), unfit.1["field"].as_str()),
        ((422, "invalid-student"), Some("student"))
    );
    let unfit = service.post("/sections", &json!({ "section": "x".repeat(257), "capacity": 1 }));
    assert_eq!(
        (problem(&unfit), unfit.1["field"].as_str()),
        ((422, "invalid-section"), Some("section"))
    );
    let plain = service.post_text("/sections/A-1/add", "content-type: text/plain\r\n", "ann");
    assert_eq!(problem(&plain), (415, "unsupported-media-type"));
    assert_eq!(problem(&service.get("/sections?limit=many")), (400, "malformed"));
    assert_eq!(service.get("/sections/A-1").1["taken"], 0);
    assert_eq!(service.get("/sections").1["sections"], json!(["A-1"]));
}

#[test]
fn a_key_makes_a_request_take_effect_once() {
    let service = Service::start();
    service.open("A-1", 3);
    let headers = "content-type: application/json\r\nidempotency-key: 7f3a\r\n";
    for path in ["/sections/A-1/add", "/sections/A-1/add"] {
        let (status, reply) = service.post_text(path, headers, r#"{"student":"ann"}"#);
        assert_eq!((status, &reply["change"]), (200, &json!("added")));
    }
    let other = service.post_text("/sections/A-1/add", headers, r#"{"student":"bob"}"#);
    assert_eq!(problem(&other), (422, "key-reused"));
    assert_eq!(service.get("/sections/A-1").1["taken"], 1);
}

#[test]
fn every_route_of_the_app_s_own_is_there_and_documented() {
    let service = Service::start();
    service.open("S1", 3);
    let (status, document) = service.get("/openapi.json");
    assert_eq!(status, 200);
    let described = registration::describe();
    let paths: Vec<(&str, &str)> = described.paths().collect();
    assert_eq!(paths.len(), 8);
    for (method, path) in paths {
        let operation = &document["paths"][path][method.to_ascii_lowercase()];
        assert!(operation["summary"].is_string(), "{method} {path}");
        let path = path.replace("{id}", "S1").replace("{student}", "ann");
        let (status, answer) = match method {
            "GET" => service.get(&path),
            _ => service.post(&path, &json!({})),
        };
        // A route that is not mounted gives 404 or 405. An empty body is malformed.
        let expected = if method == "GET" { 200 } else { 400 };
        assert_eq!(status, expected, "{method} {path}: {answer}");
    }
}
