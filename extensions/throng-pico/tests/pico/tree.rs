//! Tests of picos without installed rulesets, over HTTP: channels, policies, children, subscriptions.

use crate::service::{Service, tagged, text};
use serde_json::{Value, json};
use throng_pico::Settings;

const UI: &str = "io.picolabs.pico-engine-ui";
const WRANGLER: &str = "io.picolabs.wrangler";
const SUBSCRIPTION: &str = "io.picolabs.subscription";

fn service() -> Service {
    Service::start(Settings::default())
}

/// Makes a child, and returns its console channel.
fn child(service: &Service, of: &str, name: &str) -> String {
    let before = service.query(of, UI, "box", "")["children"].as_array().unwrap().len();
    service.event(of, "engine_ui", "new", &json!({ "name": name }));
    let children = service.query(of, UI, "box", "")["children"].clone();
    let ecis = children.as_array().unwrap();
    assert_eq!(ecis.len(), before + 1);
    text(ecis.last().unwrap())
}

fn own(service: &Service, ui: &str) -> String {
    tagged(&service.query(ui, UI, "pico", ""), &["system", "self"])
}

#[test]
fn the_root_pico_and_its_channels_keep_their_identity() {
    let service = service();
    let (ui, root) = (service.ui(), service.root());
    let pico = service.query(&ui, UI, "pico", "");
    assert_eq!(pico["parent"], Value::Null);
    assert_eq!(pico["rulesets"][1]["rid"], json!(WRANGLER));
    let service = service.again();
    assert_eq!((service.ui(), service.root()), (ui.clone(), root));
    assert_eq!(service.query(&ui, UI, "pico", ""), pico);
}

#[test]
fn a_child_knows_name_and_parent_also_after_a_restart() {
    let service = service();
    let ui = service.ui();
    let bob = child(&service, &ui, "Bob");
    let shown = service.query(&bob, UI, "box", "");
    assert_eq!(
        (&shown["name"], &shown["parent"], &shown["eci"]),
        (&json!("Bob"), &json!(ui), &json!(bob))
    );
    let root = service.root();
    let children = service.query(&root, WRANGLER, "children", "");
    assert_eq!(children[0]["name"], json!("Bob"));
    let service = service.again();
    assert_eq!(service.query(&bob, UI, "box", ""), shown);
    assert_eq!(service.query(&root, WRANGLER, "children", ""), children);
}

#[test]
fn a_grandchild_goes_with_its_grandparent_and_its_channels() {
    let service = service();
    let ui = service.ui();
    let bob = child(&service, &ui, "Bob");
    let carl = child(&service, &bob, "Carl");
    let ann = child(&service, &ui, "Ann");
    service.event(&ui, "engine_ui", "del", &json!({ "eci": bob }));
    assert_eq!(service.query(&ui, UI, "box", "")["children"], json!([ann]));
    for gone in [&bob, &carl] {
        let response = service.get(&format!("/c/{gone}/query/{UI}/box"));
        assert_eq!(response.status, 410, "{}", response.body);
    }
    let service = service.again();
    assert_eq!(service.get(&format!("/c/{carl}/query/{UI}/box")).status, 410);
    assert_eq!(service.get(&format!("/c/{ann}/query/{UI}/box")).status, 200);
}

#[test]
fn more_children_than_a_page_holds_are_all_there() {
    let service = service();
    let (ui, root) = (service.ui(), service.root());
    for number in 0..600 {
        service.event(
            &root,
            "wrangler",
            "new_child_request",
            &json!({ "name": format!("c{number}") }),
        );
    }
    let children = service.query(&root, WRANGLER, "children", "");
    let names: Vec<String> = children
        .as_array()
        .unwrap()
        .iter()
        .map(|child| text(&child["name"]))
        .collect();
    assert_eq!(names, (0..600).map(|number| format!("c{number}")).collect::<Vec<_>>());
    let old = text(&children[3]["eci"]);
    service.event(&root, "wrangler", "child_deletion_request", &json!({ "eci": old }));
    let left = service.query(&root, WRANGLER, "children", "");
    assert_eq!(left.as_array().unwrap().len(), 599);
    let service = service.again();
    assert_eq!(service.query(&root, WRANGLER, "children", ""), left);
    assert_eq!(
        service.query(&ui, UI, "box", "")["children"].as_array().unwrap().len(),
        599
    );
}

#[test]
fn a_channel_passes_events_its_policy_allows() {
    let service = service();
    let root = service.root();
    let policy = json!({
        "tags": ["Students!", "b"],
        "eventPolicy": { "allow": [{ "domain": "wrangler", "name": "*" }], "deny": [{ "domain": "*", "name": "child_deletion_request" }] },
        "queryPolicy": { "allow": [{ "rid": WRANGLER, "name": "name" }], "deny": [] },
    });
    service.event(&root, "wrangler", "new_channel_request", &policy);
    let channels = service.query(&root, WRANGLER, "channels", "tags=students-,b");
    let eci = text(&channels[0]["id"]);
    assert_eq!(service.query(&eci, WRANGLER, "name", ""), json!("Pico"));
    let status = |path: &str| service.get(&format!("/c/{eci}/{path}")).status;
    assert_eq!(status("event-wait/wrangler/name_changed?name=Root"), 200);
    assert_eq!(service.query(&eci, WRANGLER, "name", ""), json!("Root"));
    assert_eq!(status("event-wait/wrangler/child_deletion_request"), 403);
    assert_eq!(status("event-wait/other/thing"), 403);
    assert_eq!(status(&format!("query/{WRANGLER}/children")), 403);
    service.event(&root, "wrangler", "channel_deletion_request", &json!({ "eci": eci }));
    assert_eq!(status(&format!("query/{WRANGLER}/name")), 404);
}

#[test]
fn a_family_channel_is_its_familys_alone() {
    let service = service();
    let root = service.root();
    let bob = child(&service, &service.ui(), "Bob");
    let of_parent = text(&service.query(&root, WRANGLER, "children", "")[0]["eci"]);
    let to_parent = text(&service.query(&own(&service, &bob), WRANGLER, "parent_eci", ""));
    for family in [of_parent, to_parent] {
        let response = service.get(&format!("/c/{family}/event-wait/wrangler/name_changed?name=x"));
        assert_eq!(
            (response.status, response.json()["type"].clone()),
            (403, json!("/problems/family-channel"))
        );
    }
    // The family channel works between the two picos.
    service.event(&own(&service, &bob), "wrangler", "ready_for_deletion", &json!({}));
    assert_eq!(service.query(&root, WRANGLER, "children", ""), json!([]));
}

#[test]
fn two_picos_subscribe_to_each_other_and_part_again() {
    let service = service();
    let ui = service.ui();
    let (ann, bob) = (child(&service, &ui, "Ann"), child(&service, &ui, "Bob"));
    let (ann, bob) = (own(&service, &ann), own(&service, &bob));
    let well_known = text(&service.query(&bob, SUBSCRIPTION, "wellKnown_Rx", "")["id"]);
    let ask = json!({ "wellKnown_Tx": well_known, "Rx_role": "student", "Tx_role": "teacher", "name": "class" });
    service.event(&ann, "wrangler", "subscription", &ask);
    let inbound = service.query(&bob, SUBSCRIPTION, "inbound", "");
    assert_eq!(
        (&inbound[0]["Rx_role"], &inbound[0]["Tx_role"]),
        (&json!("teacher"), &json!("student"))
    );
    let id = inbound[0]["Id"].clone();
    service.event(&bob, "wrangler", "pending_subscription_approval", &json!({ "Id": id }));
    let of = |eci: &str| service.query(eci, SUBSCRIPTION, "established", "")[0].clone();
    let (anns, bobs) = (of(&ann), of(&bob));
    assert_eq!(
        (&anns["Tx"], &anns["Rx"], &anns["Id"]),
        (&bobs["Rx"], &bobs["Tx"], &bobs["Id"])
    );
    assert_eq!(service.query(&ann, SUBSCRIPTION, "outbound", ""), json!([]));
    service.event(&ann, "wrangler", "subscription_cancellation", &json!({ "Id": id }));
    for eci in [&ann, &bob] {
        assert_eq!(service.query(eci, SUBSCRIPTION, "established", ""), json!([]));
    }
    assert_eq!(
        service.get(&format!("/c/{}/event/any/thing", text(&bobs["Rx"]))).status,
        404
    );
}

#[test]
fn errors_of_a_request_are_named_and_nothing_is_lost() {
    let service = service();
    let root = service.root();
    let problem = |response: throng_testing::Response| (response.status, text(&response.json()["type"]));
    let other = format!("{}{}", &root[..47], if root.ends_with('0') { '1' } else { '0' });
    for (path, status, kind) in [
        ("/c/nothing/event/a/b".to_owned(), 404, "eci-not-found"),
        (format!("/c/{other}/event/a/b"), 404, "eci-not-found"),
        (format!("/c/{}/event/a/b", "1".repeat(48)), 404, "eci-not-found"),
        (
            format!("/sky/cloud/{root}/no.such.ruleset/name"),
            404,
            "ruleset-not-installed",
        ),
        (format!("/c/{root}/query/{WRANGLER}/nothing"), 404, "no-such-query"),
        ("/api/flush".to_owned(), 400, "malformed"),
        ("/api/flush?url=ftp://x".to_owned(), 422, "ruleset-unusable"),
    ] {
        assert_eq!(
            problem(service.get(&path)),
            (status, format!("/problems/{kind}")),
            "{path}"
        );
    }
    let event = format!("/c/{root}/event/wrangler/name_changed");
    for body in ["[1]", "{", "\"text\""] {
        let response = service.send("POST", &event, "content-type: application/json\r\n", body);
        assert_eq!(response.status, 400, "{body}: {}", response.body);
    }
    let third = json!({ "tags": ["a"], "eventPolicy": { "allow": [], "deny": [], "more": [] }, "queryPolicy": { "allow": [], "deny": [] } });
    let response = service.post(&format!("/c/{root}/event-wait/wrangler/new_channel_request"), &third);
    assert_eq!(response.status, 500, "{}", response.body);
    assert!(text(&response.json()["detail"]).contains("more"), "{}", response.body);
    assert_eq!(response.json()["directives"][0]["name"], json!("error"));
    assert_eq!(service.query(&root, WRANGLER, "name", ""), json!("Pico"));
}

#[test]
fn an_event_that_fails_is_in_the_log_and_has_changed_nothing() {
    let service = service();
    let root = service.root();
    service.event(&root, "wrangler", "name_changed", &json!({ "name": "One" }));
    let wrong = service.post(
        &format!("/c/{root}/event-wait/wrangler/child_deletion_request"),
        &json!({ "eci": "x" }),
    );
    assert_eq!(wrong.status, 500);
    service.event(&root, "wrangler", "name_changed", &json!({ "name": "Two" }));
    let log = service.get(&format!("/c/{root}/log?domain=wrangler")).json();
    let seen: Vec<_> = log["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (text(&entry["name"]), entry["error"].is_string()))
        .collect();
    let expected = [
        ("name_changed", false),
        ("child_deletion_request", true),
        ("name_changed", false),
    ];
    assert_eq!(seen, expected.map(|(name, failed)| (name.to_owned(), failed)));
    let page = service.get(&format!("/c/{root}/log?domain=wrangler&limit=1")).json();
    assert_eq!(page["events"][0]["attrs"], json!({ "name": "One" }));
    let next = format!("/c/{root}/log?limit=1&failed=true&after={}", page["next"]);
    assert_eq!(
        service.get(&next).json()["events"][0]["name"],
        json!("child_deletion_request")
    );
}

#[test]
fn attributes_are_the_query_string_and_over_it_the_body() {
    let service = service();
    let root = service.root();
    let path = format!("/sky/event/{root}/none/wrangler/name_changed?name=a&more=b");
    service.send(
        "PUT",
        &path,
        "content-type: application/x-www-form-urlencoded\r\n",
        "name=c+d",
    );
    assert_eq!(service.query(&root, WRANGLER, "name", ""), json!("c d"));
    let text = service.get(&format!("/sky/cloud/{root}/{WRANGLER}/name.txt"));
    assert_eq!((text.body.as_str(), text.status), ("c d", 200));
    assert!(
        text.headers
            .iter()
            .any(|header| header.to_lowercase().starts_with("content-type: text/plain"))
    );
}

#[test]
fn an_event_under_a_key_takes_effect_once() {
    let service = service();
    let root = service.root();
    let path = format!("/c/{root}/event-wait/wrangler/new_child_request");
    let key = "content-type: application/json\r\nidempotency-key: one\r\n";
    let send = || service.send("POST", &path, key, r#"{"name":"Bob"}"#).json();
    assert_eq!(send(), send());
    assert_eq!(
        service.query(&root, WRANGLER, "children", "").as_array().unwrap().len(),
        1
    );
}

#[test]
fn pico_state_has_no_routes_beside_the_channels() {
    let service = service();
    service.root();
    for path in [
        "/api/pico",
        "/api/pico/0000000000000000",
        "/api/pico/0000000000000000/events",
        "/api/ruleset",
    ] {
        assert_eq!(service.get(path).status, 404, "{path}");
    }
}
