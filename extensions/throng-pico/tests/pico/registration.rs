//! Tests of a university's sections as picos: requests go through the collection, which asks the sections for rosters.

use crate::service::{Service, text};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};
use throng_pico::Settings;

const COLLECTION: &str = "app_section_collection";

/// Starts a service whose root pico is the collection.
fn start() -> (Service, String) {
    let rulesets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../apps/picos/rulesets");
    let rulesets = rulesets.canonicalize().unwrap();
    let service = Service::start(Settings {
        files: Some(rulesets.clone()),
        ..Settings::default()
    });
    let root = service.root();
    let url = format!("file://{}/{COLLECTION}.krl", rulesets.display());
    service.event(&root, "wrangler", "install_ruleset_request", &json!({ "url": url }));
    (service, root)
}

/// Returns a section's channel, once the section exists.
fn section(service: &Service, root: &str, id: &str) -> String {
    let directives = service.event(
        root,
        "section",
        "needed",
        &json!({ "section_id": id, "student_id": "ann" }),
    );
    assert_eq!(
        directives[0]["options"]["section_state"],
        json!("ready"),
        "{directives}"
    );
    text(&directives[0]["options"]["eci"])
}

fn roster(service: &Service, eci: &str) -> BTreeSet<String> {
    let info = service.query(eci, "app_section", "sectionInfo", "");
    let roster: BTreeSet<String> = info["roster"].as_array().unwrap().iter().map(text).collect();
    assert_eq!(info["taken"], json!(roster.len()));
    roster
}

#[test]
fn every_roster_equals_the_models_also_after_a_restart() {
    let (service, root) = start();
    let capacities = BTreeMap::from([("A HTG 100-1", 3_usize), ("C S 142-1", 5), ("EMPTY 1", 0)]);
    for (id, capacity) in &capacities {
        let made = service.event(
            &root,
            "section",
            "needed",
            &json!({ "section_id": id, "capacity": capacity }),
        );
        assert_eq!(made[0]["options"]["section_state"], json!("creating"));
    }
    let mut model: BTreeMap<&str, BTreeSet<String>> = capacities.keys().map(|id| (*id, BTreeSet::new())).collect();
    let ids: Vec<&str> = capacities.keys().copied().collect();
    let mut random = 7_u32;
    let mut below = |bound: u32| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 16) % bound
    };
    for _ in 0..300 {
        let (id, student) = (ids[below(3) as usize], format!("{}", 10_000_000 + below(9)));
        let seats = model.get_mut(id).unwrap();
        let request = match below(3) {
            0 => {
                seats.remove(&student);
                "drop_request"
            }
            _ => {
                if seats.len() < capacities[id] {
                    seats.insert(student.clone());
                }
                "add_request"
            }
        };
        service.event(
            &root,
            "section",
            request,
            &json!({ "section_id": id, "student_id": student }),
        );
    }
    let compare = |service: &Service| {
        for id in &ids {
            assert_eq!(roster(service, &section(service, &root, id)), model[id], "{id}");
        }
    };
    compare(&service);
    compare(&service.again());
}

#[test]
fn a_section_reports_each_request_and_obeys_its_collection() {
    let (service, root) = start();
    let attributes = |id: &str| json!({ "section_id": id, "capacity": 1 });
    service.event(&root, "section", "needed", &attributes("S 1"));
    let eci = section(&service, &root, "S 1");
    let names = |name: &str, student: &str| -> Vec<String> {
        let directives = service.event(&eci, "section", name, &json!({ "student_id": student }));
        directives
            .as_array()
            .unwrap()
            .iter()
            .map(|one| text(&one["name"]))
            .collect()
    };
    assert_eq!(names("add_request", "7"), ["request_granted", "section"]);
    assert_eq!(names("add_request", "8"), ["section"]);
    assert_eq!(
        service.query(&eci, "app_section", "inRoster", "student_id=7"),
        json!(true)
    );
    assert_eq!(
        service.query(&eci, "app_section", "inRoster", "student_id=8"),
        json!(false)
    );
    assert_eq!(names("drop_request", "7"), ["section"]);
    assert_eq!(names("add_request", "8"), ["request_granted", "section"]);
    assert_eq!(
        service
            .get(&format!("/c/{eci}/event/section/config_empty?capacity=9"))
            .status,
        403
    );
    service.event(&root, "section", "offline", &attributes("S 1"));
    assert_eq!(
        service.query(&root, COLLECTION, "sections", ""),
        Value::Array(Vec::new())
    );
    assert_eq!(
        service.get(&format!("/c/{eci}/query/app_section/sectionInfo")).status,
        410
    );
}
