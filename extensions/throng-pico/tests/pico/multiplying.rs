//! A test of a pico whose rule sends itself two events for each one. The engine stops it, and no other pico is delayed.

use crate::service::{Service, text, until};
use serde_json::{Value, json};
use std::path::Path;
use throng::Options;
use throng_pico::Settings;

const UI: &str = "io.picolabs.pico-engine-ui";
const WRANGLER: &str = "io.picolabs.wrangler";

/// Starts a service whose engine holds few messages in memory. Returns it with the URL of the ruleset.
fn service() -> (Service, String) {
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rulesets");
    let url = format!("file://{}/twice.krl", files.display());
    let settings = Settings {
        files: Some(files),
        ..Settings::default()
    };
    let options = Options {
        outbox_max: 64,
        ..Options::default()
    };
    (Service::with(settings, options), url)
}

/// True if the pico of this channel handles an event.
fn is_served(service: &Service, root: &str) -> bool {
    service.get(&format!("/c/{root}/event-wait/other/event")).status == 200
}

fn post(service: &Service, path: &str) -> Value {
    let response = service.send("POST", path, "", "");
    assert_eq!(response.status, 200, "{path}: {}", response.body);
    response.json()
}

/// Returns the first trouble of this type.
fn trouble(service: &Service, r#type: &str) -> Option<Value> {
    let trouble = service.get("/admin/trouble").json();
    let items = trouble["items"].as_array().unwrap().iter();
    items.clone().find(|item| item["type"] == r#type).cloned()
}

#[test]
fn multiplying_pico_is_quarantined_and_deleted_beside_others() {
    let (service, url) = service();
    let (ui, root) = (service.ui(), service.root());
    service.event(&ui, "engine_ui", "new", &json!({ "name": "Bad" }));
    let bad = text(&service.query(&ui, UI, "box", "")["children"][0]);
    service.event(&bad, "engine_ui", "install", &json!({ "url": url }));
    let children = service.query(&root, WRANGLER, "children", "");
    let eci = text(&children[0]["eci"]);
    let own = service.query(&bad, UI, "pico", "");
    let own = crate::service::tagged(&own, &["system", "self"]);
    assert_eq!(service.get(&format!("/c/{own}/event-wait/a/twice")).status, 200);
    until(|| trouble(&service, "quarantined").is_some());
    let stopped = trouble(&service, "quarantined").unwrap();
    let (kind, id) = (text(&stopped["kind"]), text(&stopped["id"]));
    assert_eq!(kind, "pico");
    let of = format!("kind={kind}&id={id}");
    until(|| is_served(&service, &root));
    let refused = service.get(&format!("/c/{own}/event-wait/a/twice"));
    assert!(refused.body.contains("quarantined by an operator"), "{}", refused.body);

    let service = service.again();
    until(|| is_served(&service, &root));
    let quarantined = trouble(&service, "quarantined").unwrap();
    assert_eq!(quarantined["id"], json!(id));
    assert!(
        text(&quarantined["reason"]).starts_with("it multiplies: "),
        "{quarantined}"
    );
    // Its parent deletes it. The quarantined child does not handle the deletion yet, either.
    service.event(&root, "wrangler", "child_deletion_request", &json!({ "eci": eci }));
    assert_eq!(service.query(&ui, UI, "box", "")["children"], json!([]));
    let erased = post(&service, &format!("/admin/erase?{of}"));
    assert!(erased["records"].as_u64() > Some(0), "{erased}");
    assert_eq!(trouble(&service, "quarantined"), None);
    let service = service.again();
    assert!(is_served(&service, &root));
    assert_ne!(service.get(&format!("/c/{own}/query/{UI}/box")).status, 200);
}

#[test]
fn pico_with_a_mended_loop_goes_on_without_its_old_events() {
    let (service, url) = service();
    let root = service.root();
    service.event(&root, "wrangler", "install_ruleset_request", &json!({ "url": url }));
    assert_eq!(service.get(&format!("/c/{root}/event-wait/a/twice")).status, 200);
    until(|| trouble(&service, "quarantined").is_some());
    let id = text(&trouble(&service, "quarantined").unwrap()["id"]);
    let of = format!("kind=pico&id={id}");
    let dropped = post(&service, &format!("/admin/messages/drop?{of}&reason=it%20multiplies"));
    assert!(dropped["dropped"].as_u64() > Some(0), "{dropped}");
    assert_eq!(
        post(&service, &format!("/admin/release?{of}")),
        json!({ "released": true, "loaded": true, "reason": null })
    );
    until(|| is_served(&service, &root));
    assert_eq!(trouble(&service, "crowding"), None);
}
