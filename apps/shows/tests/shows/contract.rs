//! Tests of the HTTP contract, byte for byte: the real engine behind the real gateway, over sockets.

use crate::service::Service;
use serde_json::{Value, json};
use throng::Engine;
use throng_http::Gateway;
use throng_testing::{in_memory, request};

const ID: &str = "0b31ab76-c5a3-4d3c-9f3f-6f6ad9a5a3b7";
const OTHER: &str = "7f1c9a52-1b8e-4c0f-8f60-3d2b6f4a9e01";

fn create(id: &str, seats: i64) -> String {
    json!({ "showId": id, "title": "show title Q7bX01aZ", "maxSeats": seats }).to_string()
}

fn text(status: u16, body: &str) -> (u16, String) {
    (status, body.to_owned())
}

fn problem(answer: &(u16, String)) -> (u16, String, Option<String>) {
    let body: Value = serde_json::from_str(&answer.1).unwrap();
    let kind = body["type"].as_str().unwrap().strip_prefix("/problems/").unwrap();
    (answer.0, kind.to_owned(), body["field"].as_str().map(str::to_owned))
}

fn malformed(field: &str) -> (u16, String, Option<String>) {
    (400, "malformed".into(), Some(field.into()))
}

#[test]
fn a_show_is_created_once() {
    let service = Service::start();
    assert_eq!(service.post("/shows", &create(ID, 50)), text(201, "Show created"));
    assert_eq!(
        service.post("/shows", &create(ID, 50)),
        text(409, "Show already created")
    );
    assert_eq!(
        service.post("/shows", &create(ID, 101)),
        text(409, "Show already created"),
        "that it exists is tested before its size"
    );
    assert_eq!(
        service.post("/shows", &create(OTHER, 101)),
        text(400, "Show creation failed with: TOO_MANY_SEATS")
    );
    assert_eq!(service.get(&format!("/shows/{OTHER}")), text(404, ""));
    assert_eq!(service.post("/shows", &create(OTHER, 100)), text(201, "Show created"));
}

#[test]
fn a_show_is_shown_with_all_its_seats() {
    let service = Service::start();
    service.post("/shows", &create(ID, 3));
    service.change(ID, 1, "RESERVE");
    let (status, body) = service.get(&format!("/shows/{ID}"));
    let seat = |number: u8, status: &str| json!({ "number": number, "status": status, "price": 100 });
    let expected = json!({
        "id": ID, "title": "show title Q7bX01aZ",
        "seats": [seat(0, "AVAILABLE"), seat(1, "RESERVED"), seat(2, "AVAILABLE")],
    });
    assert_eq!((status, serde_json::from_str::<Value>(&body).unwrap()), (200, expected));
}

#[test]
fn a_seat_is_reserved_and_given_back_in_words() {
    let service = Service::start();
    service.post("/shows", &create(ID, 50));
    assert_eq!(service.change(ID, 7, "RESERVE"), text(202, "RESERVE successful"));
    assert_eq!(
        service.change(ID, 7, "RESERVE"),
        text(400, "RESERVE failed with: SEAT_NOT_AVAILABLE")
    );
    assert_eq!(
        service.change(ID, 7, "CANCEL_RESERVATION"),
        text(202, "CANCEL_RESERVATION successful")
    );
    assert_eq!(
        service.change(ID, 7, "CANCEL_RESERVATION"),
        text(400, "CANCEL_RESERVATION failed with: SEAT_NOT_RESERVED")
    );
    for (seat, action) in [(50, "RESERVE"), (-1, "RESERVE"), (50, "CANCEL_RESERVATION")] {
        assert_eq!(
            service.change(ID, seat, action),
            text(400, &format!("{action} failed with: SEAT_NOT_EXISTS"))
        );
    }
    assert_eq!(service.change(ID, 0, "RESERVE").0, 202);
    assert_eq!(service.change(ID, 49, "RESERVE").0, 202);
}

#[test]
fn a_missing_thing_is_400_to_a_change_and_404_to_a_read() {
    let service = Service::start();
    for action in ["RESERVE", "CANCEL_RESERVATION"] {
        assert_eq!(
            service.change(ID, 0, action),
            text(400, &format!("{action} failed with: SHOW_NOT_EXISTS"))
        );
    }
    assert_eq!(service.get(&format!("/shows/{ID}")), text(404, ""));
}

#[test]
fn a_base_url_that_ends_in_a_slash_is_tolerated() {
    let service = Service::start();
    assert_eq!(service.post("//shows", &create(ID, 1)), text(201, "Show created"));
    let change = service.send("PATCH", &format!("//shows/{ID}/seats/0"), r#"{"action":"RESERVE"}"#);
    assert_eq!(change, text(202, "RESERVE successful"));
    assert_eq!(service.get(&format!("//shows/{ID}")).0, 200);
    assert_eq!(service.get(&format!("/shows/{ID}/")).0, 200);
    assert_eq!(service.get("/shows/?available=true").0, 200);
    assert_eq!(service.post("/shows/", &create(OTHER, 1)), text(201, "Show created"));
    let change = service.send("PATCH", &format!("/shows/{OTHER}/seats/0/"), r#"{"action":"RESERVE"}"#);
    assert_eq!(change, text(202, "RESERVE successful"));
}

#[test]
fn an_id_in_capitals_is_the_same_show() {
    let service = Service::start();
    service.post("/shows", &create(&ID.to_uppercase(), 1));
    assert_eq!(service.change(ID, 0, "RESERVE").0, 202);
    let (_, body) = service.get(&format!("/shows/{}", ID.to_uppercase()));
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (&body["id"], &body["seats"][0]["status"]),
        (&json!(ID), &json!("RESERVED"))
    );
}

#[test]
fn an_unreadable_request_is_400_and_changes_nothing() {
    let service = Service::start();
    service.post("/shows", &create(ID, 2));
    let reserve = r#"{"action":"RESERVE"}"#;
    let path = |id: &str, seat: &str| format!("/shows/{id}/seats/{seat}");
    for (id, seat, field) in [
        ("7", "0", "showId"),
        (&ID[..35], "0", "showId"),
        (ID, "one", "seatNumber"),
        (ID, "1.0", "seatNumber"),
        (ID, "99999999999", "seatNumber"),
    ] {
        assert_eq!(
            problem(&service.send("PATCH", &path(id, seat), reserve)),
            malformed(field)
        );
    }
    assert_eq!(problem(&service.get("/shows/7")), malformed("showId"));
    let invalid = json!({ "showId": "7", "title": "x", "maxSeats": 1 }).to_string();
    assert_eq!(problem(&service.post("/shows", &invalid)), malformed("showId"));
    for body in [
        "",
        "{",
        "[]",
        "{}",
        r#"{"action":"SELL"}"#,
        r#"{"action":"reserve"}"#,
        r#"{"action":1}"#,
    ] {
        let answer = service.send("PATCH", &path(ID, "0"), body);
        assert_eq!(problem(&answer).1, "malformed", "{body}");
        assert_eq!(answer.0, 400, "{body}");
    }
    for body in [
        create(OTHER, -1),
        json!({ "showId": OTHER, "title": 7, "maxSeats": 1 }).to_string(),
        json!({ "showId": OTHER, "maxSeats": 1 }).to_string(),
        json!({ "showId": OTHER, "title": "x", "maxSeats": "1" }).to_string(),
        json!({ "title": "x", "maxSeats": 1 }).to_string(),
    ] {
        assert_eq!(service.post("/shows", &body).0, 400, "{body}");
    }
    assert_eq!(service.get(&format!("/shows/{OTHER}")).0, 404);
    let (_, body) = service.get(&format!("/shows/{ID}"));
    assert!(!body.contains("RESERVED"), "{body}");
}

#[test]
fn a_body_that_is_not_json_is_415() {
    let service = Service::start();
    service.post("/shows", &create(ID, 2));
    let path = format!("/shows/{ID}/seats/0");
    for header in [
        "content-type: text/plain\r\n",
        "content-type: application/x-www-form-urlencoded\r\n",
        "",
    ] {
        let answer = service.exchange("PATCH", &path, header, r#"{"action":"RESERVE"}"#);
        assert_eq!(problem(&answer).0, 415, "{header}");
        let answer = service.exchange("POST", "/shows", header, &create(OTHER, 1));
        assert_eq!(problem(&answer).0, 415, "{header}");
    }
    let charset = "content-type: application/JSON; charset=utf-8\r\n";
    let answer = service.exchange("PATCH", &path, charset, r#"{"action":"RESERVE"}"#);
    assert_eq!(answer, text(202, "RESERVE successful"));
}

#[test]
fn a_key_makes_a_request_take_effect_once() {
    let service = Service::start();
    service.post("/shows", &create(ID, 2));
    let headers = "content-type: application/json\r\nidempotency-key: 7f3a\r\n";
    let path = format!("/shows/{ID}/seats/0");
    for _ in 0..2 {
        let answer = service.exchange("PATCH", &path, headers, r#"{"action":"RESERVE"}"#);
        assert_eq!(answer, text(202, "RESERVE successful"));
    }
    let other = service.exchange("PATCH", &path, headers, r#"{"action":"CANCEL_RESERVATION"}"#);
    assert_eq!(problem(&other).1, "key-reused");
}

#[test]
fn the_generic_routes_and_metrics_stand_beside() {
    let service = Service::start();
    let created = service.post(
        &format!("/api/show/{ID}/create-show"),
        r#"{"title":"Hamlet","maxSeats":2}"#,
    );
    assert_eq!(created, text(200, r#"{"available":2}"#));
    let reserved = service.post(&format!("/api/show/{ID}/reserve-seat"), r#"{"seat":1}"#);
    assert_eq!(reserved, text(200, r#"{"available":1}"#));
    assert_eq!(
        service.get(&format!("/api/show/{ID}")),
        service.get(&format!("/shows/{ID}")),
        "both say the same"
    );
    let again = service.post(&format!("/api/show/{ID}/reserve-seat"), r#"{"seat":1}"#);
    assert_eq!(problem(&again), (409, "seat-not-available".into(), Some("seat".into())));
    let (status, metrics) = service.get("/metrics");
    assert!(
        status == 200 && metrics.contains("throng_commands_done_total 2\n"),
        "{metrics}"
    );
}

#[test]
fn the_originals_pages_for_operators_are_there() {
    let service = Service::start();
    service.post("/shows", &create(ID, 50));
    service.change(ID, 7, "RESERVE");
    let page = |path: &str| {
        let (status, body) = service.get(path);
        (status, serde_json::from_str::<Value>(&body).unwrap_or_default())
    };
    assert_eq!(page("/actuator/health"), (200, json!({ "status": "UP" })));
    assert_eq!(page("/actuator/info").1["app"]["name"], "shows");
    let (_, plain) = service.get("/actuator/prometheus");
    let declared = "# TYPE throng_commands_done_total counter\nthrong_commands_done_total 2\n";
    assert!(plain.contains(declared) && !plain.contains("# EOF"), "{plain}");
    let names = page("/actuator/metrics").1["names"].clone();
    assert!(
        names.as_array().unwrap().contains(&json!("throng_commands_done_total")),
        "{names}"
    );
    let done = page("/actuator/metrics/throng_commands_done_total").1;
    assert_eq!(done["measurements"], json!([{ "statistic": "COUNT", "value": 2.0 }]));
    assert_eq!(service.get("/actuator/metrics/nothing").0, 404);
}

#[test]
fn metrics_are_where_administration_is() {
    let engine = in_memory(shows::kinds(Engine::builder()));
    let running = Gateway::builder(engine.clone())
        .routes(shows::routes(engine))
        .admin(([127, 0, 0, 1], 0).into())
        .start()
        .unwrap();
    let admin = running.admin_address().unwrap();
    for (path, public) in [
        ("/actuator/health", 200),
        ("/actuator/info", 200),
        ("/actuator/prometheus", 404),
        ("/actuator/metrics", 404),
        ("/actuator/metrics/throng_commands_done_total", 404),
    ] {
        let status = |address| request(address, "GET", path, "", "").unwrap().status;
        assert_eq!((status(running.address()), status(admin)), (public, 200), "{path}");
    }
    running.stop_blocking();
}
