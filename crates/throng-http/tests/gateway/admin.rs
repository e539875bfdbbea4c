//! Operator actions.

use crate::support::{Client, client::request, plain, start};
use serde_json::{Value, json};
use std::thread;

/// Sends messages to sections that are not open.
fn fail(client: &mut Client) -> Vec<Value> {
    client.post("/api/section/S1/open", r#"{"capacity":9}"#);
    for (to, student) in [("S2", "7"), ("S2", "8"), ("S3", "9")] {
        let body = json!({ "to": to, "student": student }).to_string();
        assert_eq!(client.post("/api/section/S1/recommend", &body).status, 200);
    }
    loop {
        let page = client.get("/admin/dead").json();
        let messages = page["messages"].as_array().unwrap();
        if messages.len() == 3 {
            assert_eq!(page["next"], Value::Null);
            return messages.clone();
        }
        thread::yield_now();
    }
}

#[test]
fn dead_messages_are_listed_and_tried_again_one_by_one_and_all() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    let dead = fail(&mut client);
    let first = &dead[0];
    assert_eq!(
        (&first["receiver"], &first["sender"], &first["name"]),
        (
            &json!({ "kind": "section", "id": "S2" }),
            &json!({ "kind": "section", "id": "S1" }),
            &json!("add_student")
        )
    );
    assert!(first["reason"].as_str().unwrap().contains("S2") && first["at"].as_str().unwrap().ends_with('Z'));
    let page = client.get("/admin/dead?kind=section&id=S2&limit=1").json();
    assert_eq!(page["messages"].as_array().unwrap().len(), 1);
    let next = page["next"].as_str().unwrap();
    let page = client
        .get(&format!("/admin/dead?kind=section&id=S2&limit=1&after={next}"))
        .json();
    assert_eq!(page["messages"], json!([dead[1]]));

    let number = first["number"].as_str().unwrap();
    let one = format!("/admin/dead/retry?kind=section&id=S2&number={number}");
    let again = client.post(&one, "").json();
    assert_eq!(
        (&again["retried"][0]["number"], &again["retried"][0]["outcome"]),
        (&json!(number), &json!("dead"))
    );
    client.post("/api/section/S2/open", r#"{"capacity":9}"#);
    assert_eq!(
        client.post(&one, "").json(),
        json!({ "retried": [{ "number": number, "outcome": "done" }], "next": null })
    );
    client.post(&one, "").problem(404, "unknown-entity");
    let all = client.post("/admin/dead/retry?kind=section&id=S2", "").json();
    assert_eq!(
        (all["retried"].as_array().unwrap().len(), &all["retried"][0]["outcome"]),
        (1, &json!("done"))
    );
    assert_eq!(client.get("/api/section/S2").json()["students"], json!(["7", "8"]));
    assert_eq!(client.get("/admin/dead").json()["messages"], json!([dead[2]]));
}

/// Polls until `/health/ready` has a trouble with these words.
fn trouble(client: &mut Client, words: &str) -> String {
    loop {
        let ready = client.get("/health/ready").json();
        let troubles = ready["troubles"].as_array().unwrap();
        if let Some(told) = troubles
            .iter()
            .find_map(|told| told.as_str().filter(|told| told.contains(words)))
        {
            return told.to_owned();
        }
        thread::yield_now();
    }
}

#[test]
fn all_dead_messages_of_a_kind_or_a_cause_are_done_by_one_call() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    let dead = fail(&mut client);
    let cause = dead[0]["cause"].as_str().unwrap();
    assert_eq!(
        (cause, &dead[1]["cause"]),
        ("there is no section \"…\"", &dead[0]["cause"])
    );
    assert_eq!(
        trouble(&mut client, "3 messages"),
        format!("waiting for an operator: 3 messages to the kind section, dead: {cause}")
    );
    let asked = "cause=there%20is%20no%20section%20%22%E2%80%A6%22";
    let listed = client.get(&format!("/admin/dead?{asked}")).json();
    assert_eq!(listed["messages"], json!(dead));
    let none = client.get("/admin/dead?cause=overflow").json();
    assert_eq!((&none["messages"], &none["next"]), (&json!([]), &Value::Null));

    client.send(request("GET", &format!("/admin/dead/export?{asked}"), &[], ""));
    let exported = client.head().unwrap();
    assert_eq!(exported.header("content-type"), Some("application/x-ndjson"));
    let mut lines: Vec<Value> = Vec::new();
    // The answer is in chunks, and the last one is empty.
    loop {
        match client.line().unwrap().as_str() {
            "0" => break,
            line if line.starts_with('{') => lines.push(serde_json::from_str(line).unwrap()),
            _ => {}
        }
    }
    assert_eq!(client.line().unwrap(), "");
    assert_eq!(
        (lines.len(), &lines[0]["command"], &lines[3]),
        (4, &json!({ "student": "7" }), &json!({ "exported": 3 }))
    );
    assert_eq!(
        (&lines[0]["number"], &lines[2]["receiver"]),
        (&dead[0]["number"], &dead[2]["receiver"])
    );

    client.post("/api/section/S2/open", r#"{"capacity":9}"#);
    let retried = client.post(&format!("/admin/dead/retry?{asked}"), "").json();
    assert_eq!(retried, json!({ "done": 2, "refused": 0, "dead": 1, "stopped": null }));
    client
        .post("/admin/dead/drop?kind=section", "")
        .problem(400, "malformed");
    let dropped = client.post("/admin/dead/drop?kind=section&reason=gone", "").json();
    assert_eq!(dropped, json!({ "dropped": 1, "stopped": null }));
    assert_eq!(client.get("/admin/dead").json()["messages"], json!([]));
    for wrong in [
        "kind=section&number=1.1",
        "kind=section&id=S2&cause=x&number=1.1",
        "id=S2",
        "kind=section&after=00",
    ] {
        client
            .post(&format!("/admin/dead/retry?{wrong}"), "")
            .problem(400, "malformed");
    }
}

#[test]
fn nonsensical_requests_are_refused_with_a_reason() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    client.get("/admin").problem(404, "unknown-route");
    client.get("/admin/else").problem(404, "unknown-route");
    client.get("/admin/dead/retry").problem(405, "method-not-allowed");
    client.post("/admin/dead", "").problem(405, "method-not-allowed");
    for wrong in ["id=S1", "limit=0", "after=x", "what=x"] {
        client.get(&format!("/admin/dead?{wrong}")).problem(400, "malformed");
    }
    client.post("/admin/dead/retry", "").problem(400, "malformed");
    client
        .post("/admin/dead/retry?kind=section&id=S1&number=x", "")
        .problem(400, "malformed");
}

#[test]
fn only_administrators_administrate() {
    let gateway = start(|gateway| gateway.admin_token("secret"));
    let mut client = Client::new(&gateway);
    let refused = client.get("/admin/dead");
    refused.problem(401, "unauthorized");
    assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
    let with = |token: &'static str| [("authorization", token)];
    client
        .request("GET", "/admin/dead", &with("Bearer wrong!"), "")
        .problem(401, "unauthorized");
    assert_eq!(
        client.request("GET", "/admin/dead", &with("Bearer secret"), "").status,
        200
    );
    // A foreign page in the operator's own browser.
    let open = plain();
    let mut client = Client::new(&open);
    let page = [("origin", "https://evil.example")];
    client
        .request("POST", "/admin/dead/retry?kind=section&id=S1", &page, "")
        .problem(403, "forbidden-origin");
    assert_eq!(client.get("/admin/dead").status, 200);
    // A listener bound beyond loopback requires a token.
    let public = start(|gateway| gateway.bind("0.0.0.0:0"));
    let mut client = Client::of(([127, 0, 0, 1], public.address().port()).into());
    client.get("/admin/dead").problem(403, "no-administration");
}

#[test]
fn entities_that_cannot_be_brought_back_are_listed_and_released() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    client.post("/api/section/S1/open", r#"{"capacity":9}"#);
    assert_eq!(
        client.get("/admin/stuck").json(),
        json!({ "entities": [], "retrying": 0, "quarantined": 0 })
    );
    let released = client.post("/admin/release?kind=section&id=S1", "").json();
    let nothing = json!({ "released": false, "loaded": null, "reason": null });
    assert_eq!(released, nothing, "it is not quarantined");
    client.post("/admin/release?kind=section", "").problem(400, "malformed");
    client
        .get("/admin/release?kind=section&id=S1")
        .problem(405, "method-not-allowed");
}

#[test]
fn history_is_removed_and_an_entity_is_erased_by_hand() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    for id in ["S1", "S2"] {
        client.post(&format!("/api/section/{id}/open"), r#"{"capacity":9}"#);
    }
    let dry = client.post("/admin/prune?dry_run=true", "").json();
    assert_eq!(
        (&dry["is_dry"], &dry["records"]),
        (&json!(true), &json!(0)),
        "all is kept"
    );
    let erased = client.post("/admin/erase?kind=section&id=S1", "").json();
    assert!(erased["records"].as_u64() > Some(0), "{erased}");
    client
        .post("/api/section/S1/open", r#"{"capacity":9}"#)
        .problem(410, "ended");
    assert_eq!(client.get("/api/section/S2/events").status, 200);
    client
        .post("/admin/erase?kind=section&id=S9", "")
        .problem(404, "unknown-entity");
    client.get("/admin/prune").problem(405, "method-not-allowed");
    let compacted = client.post("/admin/compact", "").json();
    assert_eq!(compacted, json!({ "needed": false }), "what is in memory has no file");
    client.get("/admin/compact").problem(405, "method-not-allowed");
}

#[test]
fn a_dead_message_is_dropped_only_for_a_reason() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    let dead = fail(&mut client);
    let number = dead[0]["number"].as_str().unwrap();
    let path = format!("/admin/dead/drop?kind=section&id=S2&number={number}");
    client.get(&path).problem(405, "method-not-allowed");
    for wrong in ["", "&reason=", "&reason=+"] {
        client.post(&format!("{path}{wrong}"), "").problem(400, "malformed");
    }
    assert_eq!(client.get("/admin/dead").json()["messages"], json!(dead));
    let path = format!("{path}&reason=S2%20is%20no%20more");
    assert_eq!(client.post(&path, "").json(), json!({ "dropped": number }));
    client.post(&path, "").problem(404, "unknown-entity");
    assert_eq!(client.get("/admin/dead").json()["messages"], json!(dead[1..]));
    client.post("/api/section/S2/open", r#"{"capacity":9}"#);
    client.post("/admin/dead/retry?kind=section&id=S2", "");
    assert_eq!(
        client.get("/api/section/S2").json()["students"],
        json!(["8"]),
        "the other one"
    );
}

#[test]
fn only_a_timer_that_could_not_be_fired_is_cancelled() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    client.post("/api/section/S1/open", r#"{"capacity":9}"#);
    let path = "/admin/timer/cancel?kind=section&id=S1&name=close";
    client.post(path, "").problem(400, "malformed");
    client
        .post(&format!("{path}&reason=gone"), "")
        .problem(404, "unknown-entity");
}
