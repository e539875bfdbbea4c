//! Tests of picos that are exported with all picos below them, and imported elsewhere.

use crate::service::{Service, tagged, text, until};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use throng_pico::Settings;

const UI: &str = "io.picolabs.pico-engine-ui";
const WRANGLER: &str = "io.picolabs.wrangler";
const COLLECTION: &str = "app_section_collection";

fn rulesets() -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../apps/picos/rulesets");
    path.canonicalize().unwrap()
}

fn start() -> Service {
    Service::start(Settings {
        files: Some(rulesets()),
        ..Settings::default()
    })
}

/// Makes another child of the root, and returns its own channel.
fn child(service: &Service, name: &str) -> String {
    let root = service.root();
    service.event(&root, "wrangler", "new_child_request", &json!({ "name": name }));
    let ui = service.query(&service.ui(), UI, "box", "")["children"].clone();
    let ui = text(ui.as_array().unwrap().last().unwrap());
    tagged(&service.query(&ui, UI, "pico", ""), &["system", "self"])
}

/// Makes a collection with two sections, and returns its own channel.
fn collection(service: &Service) -> String {
    let eci = child(service, "Sections");
    let url = format!("file://{}/{COLLECTION}.krl", rulesets().display());
    service.event(&eci, "wrangler", "install_ruleset_request", &json!({ "url": url }));
    for (id, capacity) in [("S 1", 2), ("S 2", 5)] {
        let attributes = json!({ "section_id": id, "capacity": capacity });
        service.event(&eci, "section", "needed", &attributes);
    }
    for (id, student) in [("S 1", "ann"), ("S 1", "bob"), ("S 1", "carl"), ("S 2", "ann")] {
        add(service, &eci, id, student);
    }
    eci
}

fn add(service: &Service, collection: &str, id: &str, student: &str) {
    let attributes = json!({ "section_id": id, "student_id": student });
    service.event(collection, "section", "add_request", &attributes);
}

fn roster(service: &Service, collection: &str, id: &str) -> Value {
    let needed = service.event(collection, "section", "needed", &json!({ "section_id": id }));
    let eci = text(&needed[0]["options"]["eci"]);
    service.query(&eci, "app_section", "sectionInfo", "")["roster"].clone()
}

fn export(service: &Service, eci: &str) -> String {
    let export = service.get(&format!("/c/{eci}/export"));
    assert_eq!(export.status, 200, "{}", export.body);
    export.body
}

fn import(service: &Service, to: &str, query: &str, lines: &str) -> throng_testing::Response {
    service.send("POST", &format!("/c/{to}/import?{query}"), "", lines)
}

/// Imports lines and returns the imported pico's own channel.
fn imported(service: &Service, to: &str, query: &str, lines: &str) -> String {
    let response = import(service, to, query, lines);
    assert_eq!(response.status, 200, "{}", response.body);
    text(&response.json()["eci"])
}

#[test]
fn a_copy_is_one_of_its_own_and_knows_its_own_children() {
    let service = start();
    let original = collection(&service);
    until(|| roster(&service, &original, "S 2") == json!(["ann"]));
    let lines = export(&service, &original);
    let shelf = child(&service, "Shelf");
    let copy = imported(&service, &shelf, "", &lines);
    assert_ne!(copy, original);
    add(&service, &copy, "S 2", "dora");
    until(|| roster(&service, &copy, "S 2") == json!(["ann", "dora"]));
    assert_eq!(roster(&service, &copy, "S 1"), json!(["ann", "bob"]));
    assert_eq!(roster(&service, &original, "S 2"), json!(["ann"]));
    let children = service.query(&shelf, WRANGLER, "children", "");
    assert_eq!(children[0]["name"], json!("Sections"));
    // The copy has its own children: it deletes one, and the original's stays.
    service.event(&copy, "section", "offline", &json!({ "section_id": "S 1" }));
    let service = service.again();
    assert_eq!(service.query(&copy, COLLECTION, "sections", ""), json!(["S 2"]));
    assert_eq!(
        service.query(&copy, WRANGLER, "children", "").as_array().unwrap().len(),
        1
    );
    assert_eq!(roster(&service, &original, "S 1"), json!(["ann", "bob"]));
}

#[test]
fn an_identical_pico_keeps_its_channels_and_can_come_back() {
    let (here, there) = (start(), start());
    let eci = collection(&here);
    until(|| roster(&here, &eci, "S 2") == json!(["ann"]));
    let lines = export(&here, &eci);
    assert_eq!(imported(&there, &there.root(), "identical=true", &lines), eci);
    assert_eq!(roster(&there, &eci, "S 1"), json!(["ann", "bob"]));
    let shown = there.query(&there.ui(), UI, "box", "")["children"].clone();
    assert_eq!(there.query(&text(&shown[0]), UI, "box", "")["name"], json!("Sections"));
    let twice = import(&here, &here.root(), "identical=true", &lines);
    assert!(twice.status == 422 && twice.body.contains("already"), "{}", twice.body);

    add(&there, &eci, "S 2", "bob");
    until(|| roster(&there, &eci, "S 2") == json!(["ann", "bob"]));
    let back = export(&there, &eci);
    let root = here.root();
    let family = here.query(&root, WRANGLER, "children", "")[0]["eci"].clone();
    here.event(&root, "wrangler", "child_deletion_request", &json!({ "eci": family }));
    until(|| here.get(&format!("/c/{eci}/query/{WRANGLER}/name")).status == 410);
    assert_eq!(imported(&here, &root, "identical=true", &back), eci);
    let here = here.again();
    assert_eq!(roster(&here, &eci, "S 2"), json!(["ann", "bob"]));
}

#[test]
fn console_channel_stays_valid_after_identical_import() {
    let (here, there) = (start(), start());
    let eci = child(&here, "Bob");
    let box_of = |service: &Service, ui: &str| service.query(ui, UI, "box", "");
    let only_child = |service: &Service| text(&box_of(service, &service.ui())["children"][0]);
    let ui = only_child(&here);
    here.event(&ui, "engine_ui", "testing_eci", &json!({ "eci": ui }));
    assert_eq!(
        imported(&there, &there.root(), "identical=true", &export(&here, &eci)),
        eci
    );
    // Its new engine adds a console channel. The known one still works, and so do the ECIs in variables.
    let own = only_child(&there);
    assert_ne!(own, ui);
    for known in [&own, &ui] {
        let shown = box_of(&there, known);
        assert_eq!((&shown["name"], &shown["eci"]), (&json!("Bob"), &json!(own)), "{known}");
    }
    assert_eq!(there.query(&own, UI, "testingECI", ""), json!(ui));
    // Back on the first engine, both work.
    let back = export(&there, &eci);
    let family = here.query(&here.root(), WRANGLER, "children", "")[0]["eci"].clone();
    here.event(
        &here.root(),
        "wrangler",
        "child_deletion_request",
        &json!({ "eci": family }),
    );
    until(|| here.get(&format!("/c/{eci}/query/{WRANGLER}/name")).status == 410);
    assert_eq!(imported(&here, &here.root(), "identical=true", &back), eci);
    let here = here.again();
    assert_eq!(only_child(&here), ui);
    for known in [&own, &ui] {
        assert_eq!(box_of(&here, known)["eci"], json!(ui), "{known}");
    }
    // A copy has only new channels.
    let copy = imported(&here, &here.root(), "", &back);
    let channels = here.query(&copy, WRANGLER, "channels", "").to_string();
    for known in [&eci, &own, &ui] {
        assert!(!channels.contains(known.as_str()), "{known}: {channels}");
    }
}

#[test]
fn a_damaged_export_is_refused_with_its_line() {
    let service = start();
    let eci = collection(&service);
    let root = service.root();
    let lines = export(&service, &eci);
    let all: Vec<&str> = lines.lines().collect();
    let without = |line: usize| -> String {
        let left = all.iter().enumerate().filter(|(at, _)| *at != line - 1);
        left.map(|(_, line)| format!("{line}\n")).collect()
    };
    let moved = format!("{}\n{}", all[1], lines);
    let count = all.len();
    for (what, says) in [
        (lines.replacen("\"ann\"", "\"eve\"", 1), "was altered".to_owned()),
        (without(3), "line 3: its sum".to_owned()),
        (without(count), format!("cut after line {}", count - 1)),
        (lines[..lines.len() - 1].to_owned(), format!("line {count}: it is cut")),
        (
            format!("{lines}{{}}\n"),
            format!("line {}: it stands behind", count + 1),
        ),
        (moved, "line 1: its sum".to_owned()),
        (
            "{\"throng_picos\":1}\n".to_owned(),
            "line 1: it carries no sum".to_owned(),
        ),
        (String::new(), "cut after line 0".to_owned()),
    ] {
        let refused = import(&service, &root, "", &what);
        assert_eq!(refused.status, 422, "{}", refused.body);
        assert!(
            text(&refused.json()["detail"]).contains(&says),
            "{says}: {}",
            refused.body
        );
    }
    let children = service.query(&root, WRANGLER, "children", "");
    assert_eq!(children.as_array().unwrap().len(), 1);
}

#[test]
fn more_children_than_a_page_holds_come_along_also_from_a_file() {
    let home = tempfile::tempdir().unwrap();
    let service = Service::start(Settings {
        files: Some(home.path().to_owned()),
        ..Settings::default()
    });
    let many = child(&service, "Many");
    for number in 0..600 {
        let name = json!({ "name": format!("c{number}") });
        service.event(&many, "wrangler", "new_child_request", &name);
    }
    let listed = |service: &Service, eci: &str| service.query(eci, WRANGLER, "children", "");
    let family = listed(&service, &many)[7]["eci"].clone();
    service.event(&many, "wrangler", "child_deletion_request", &json!({ "eci": family }));
    let file = home.path().join("many.jsonl");
    std::fs::write(&file, export(&service, &many)).unwrap();
    let copy = imported(
        &service,
        &service.root(),
        &format!("file=file://{}", file.display()),
        "",
    );
    let names = |service: &Service, eci: &str| -> Vec<String> {
        let children = listed(service, eci);
        children
            .as_array()
            .unwrap()
            .iter()
            .map(|child| text(&child["name"]))
            .collect()
    };
    assert_eq!(names(&service, &copy), names(&service, &many));
    let family = listed(&service, &copy)[11]["eci"].clone();
    service.event(&copy, "wrangler", "child_deletion_request", &json!({ "eci": family }));
    service.event(&copy, "wrangler", "new_child_request", &json!({ "name": "new" }));
    let service = service.again();
    let found = names(&service, &copy);
    assert_eq!((found.len(), found.last().unwrap().as_str()), (599, "new"));
    assert!(!found.contains(&"c12".into()) && found.contains(&"c11".into()));
    let outside = import(&service, &service.root(), "file=file:///etc/passwd", "");
    assert_eq!(outside.status, 422, "{}", outside.body);
}

#[test]
fn only_a_channel_that_may_exports_and_imports() {
    let service = start();
    let eci = child(&service, "Bob");
    let lines = export(&service, &eci);
    let ui = service.ui();
    assert_eq!(service.get(&format!("/c/{ui}/export")).status, 403);
    assert_eq!(import(&service, &ui, "", &lines).status, 403);
    assert_eq!(service.get(&format!("/c/{}/export", "1".repeat(48))).status, 404);
}
