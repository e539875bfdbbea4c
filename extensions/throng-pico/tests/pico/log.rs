//! Tests of the live log of a pico.

use crate::service::{Service, tagged, text};
use serde_json::{Value, json};
use std::num::NonZeroU32;
use throng::Engine;
use throng_http::{AccessLog, Gateway, Role, make_token};
use throng_pico::{Picos, Settings};
use throng_testing::{in_memory, request};

const WRANGLER: &str = "io.picolabs.wrangler";

fn rename(service: &Service, eci: &str, name: &str) {
    service.event(eci, "wrangler", "name_changed", &json!({ "name": name }));
}

fn name(event: &Value) -> String {
    text(&event["attrs"]["name"])
}

#[test]
fn a_log_follower_sees_past_and_new_lines() {
    let service = Service::start(Settings::default());
    let root = service.root();
    rename(&service, &root, "one");
    let mut live = service.live(&format!("/c/{root}/log?domain=wrangler"), "");
    let (first, event) = live.next().unwrap();
    assert_eq!(name(&event), "one");
    assert_eq!(event["changes"][0]["put"]["value"], json!("one"));
    service.event(&root, "other", "thing", &json!({}));
    rename(&service, &root, "two");
    let (second, event) = live.next().unwrap();
    assert_eq!((name(&event), event["seq"].as_u64()), ("two".into(), Some(second)));
    assert_eq!(second, first + 2);
    let mut again = service.live(&format!("/c/{root}/log"), &format!("last-event-id: {first}\r\n"));
    assert_eq!(again.next().unwrap().1["domain"], json!("other"));
}

#[test]
fn a_live_log_ends_with_its_channel_and_with_its_pico() {
    let service = Service::start(Settings::default());
    let root = service.root();
    let policies = json!({ "tags": ["log"], "eventPolicy": { "allow": [], "deny": [] },
        "queryPolicy": { "allow": [{ "rid": "io.picolabs.pico-engine-ui", "name": "logs" }], "deny": [] } });
    service.event(&root, "wrangler", "new_channel_request", &policies);
    let channels = service.query(&root, WRANGLER, "channels", "tags=log");
    let eci = text(&channels[0]["id"]);
    let after = service.get(&format!("/c/{root}/log")).json()["events"][0]["seq"].clone();
    let mut live = service.live(&format!("/c/{eci}/log?after={after}"), "");
    rename(&service, &root, "one");
    while name_of(&live.next().unwrap().1) != Some("one".into()) {}
    service.event(&root, "wrangler", "channel_deletion_request", &json!({ "eci": eci }));
    assert!(live.next().is_none());
    assert_eq!(service.get(&format!("/c/{eci}/log")).status, 404);

    service.event(&root, "wrangler", "new_child_request", &json!({ "name": "Bob" }));
    let child = service.query(&root, WRANGLER, "children", "")[0]["eci"].clone();
    let ui = service.query(&service.ui(), "io.picolabs.pico-engine-ui", "box", "")["children"][0].clone();
    let mut live = service.live(&format!("/c/{}/log", text(&ui)), "");
    assert_eq!(live.next().unwrap().1["name"], json!("born"));
    service.event(&root, "wrangler", "child_deletion_request", &json!({ "eci": child }));
    assert!(live.next().is_none());
}

#[test]
fn log_after_an_event_that_never_was_is_refused() {
    let service = Service::start(Settings::default());
    let root = service.root();
    let log = service.get(&format!("/c/{root}/log")).json();
    let last = log["events"].as_array().unwrap().last().unwrap()["seq"].as_u64();
    let path = |after| format!("/c/{root}/log?after={after}");
    assert_eq!(service.get(&path(last.unwrap())).status, 200);
    for fields in ["", "accept: text/event-stream\r\n"] {
        let lost = service.send("GET", &path(9_999), fields, "");
        assert_eq!(lost.status, 410, "{}", lost.body);
        assert!(lost.body.contains("/problems/history-lost"), "{}", lost.body);
    }
}

#[test]
fn a_live_log_ends_when_the_service_stops() {
    let service = Service::start(Settings::default());
    let root = service.root();
    let mut live = service.live(&format!("/c/{root}/log"), "");
    rename(&service, &root, "one");
    while name_of(&live.next().unwrap().1) != Some("one".into()) {}
    let stopping = std::thread::spawn(move || drop(service));
    assert!(live.next().is_none());
    stopping.join().unwrap();
}

fn name_of(event: &Value) -> Option<String> {
    event["attrs"]["name"].as_str().map(str::to_owned)
}

#[test]
fn a_channel_that_may_not_read_the_log_may_not_follow_it() {
    let service = Service::start(Settings::default());
    let root = service.root();
    let nobody = json!({ "tags": ["none"], "eventPolicy": { "allow": [], "deny": [] }, "queryPolicy": { "allow": [], "deny": [] } });
    service.event(&root, "wrangler", "new_channel_request", &nobody);
    let channels = service.query(&root, WRANGLER, "channels", "tags=none");
    let path = format!("/c/{}/log", text(&channels[0]["id"]));
    assert_eq!(
        service.send("GET", &path, "accept: text/event-stream\r\n", "").status,
        403
    );
    let wrong = service.send(
        "GET",
        &format!("/c/{root}/log"),
        "accept: text/event-stream\r\nlast-event-id: x\r\n",
        "",
    );
    assert_eq!(wrong.status, 400, "{}", wrong.body);
}

#[test]
fn secret_of_a_channel_stands_in_no_access_log() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("access.log");
    let engine = in_memory(throng_pico::kinds(Engine::builder()));
    let picos = Picos::new(engine.clone(), Settings::default());
    let end = picos.work().unwrap();
    let gateway = Gateway::builder(engine).routes(throng_pico::routes(picos));
    let gateway = gateway.access_log(AccessLog {
        one_in: NonZeroU32::MIN,
        file: Some(file.clone()),
    });
    let running = throng_pico::gateway(gateway).start().unwrap();
    let get = |path: &str| request(running.address(), "GET", path, "", "").unwrap();
    let eci = text(&get("/api/ui-context").json()["eci"]);
    let written: String = eci
        .chars()
        .map(|character| match character {
            'a' => "%61".to_owned(),
            '1' => "%31".to_owned(),
            other => other.to_string(),
        })
        .collect();
    for eci in [&eci, &written, &format!("{eci}.html")] {
        for path in [
            format!("/c/{eci}/query/io.picolabs.wrangler/myself"),
            format!("/sky/event/{eci}/none/a/b"),
            format!("/sky/cloud/{eci}/io.picolabs.wrangler/myself"),
            format!("/C/{eci}/log"),
            format!("/api/section/{eci}/open"),
        ] {
            get(&path);
        }
    }
    end();
    running.stop_blocking();
    let log = std::fs::read_to_string(&file).unwrap();
    assert_eq!(log.lines().count(), 16, "{log}");
    for secret in [&eci[16..32], &eci[32..], &written[written.len() - 12..]] {
        assert!(!log.contains(secret), "{log}");
    }
    assert!(
        log.contains("/c/*/query/io.picolabs.wrangler/myself") && log.contains("/C/*/log"),
        "{log}"
    );
}

#[test]
fn root_channel_is_told_to_known_callers_by_administration() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens");
    let (token, line) = make_token("ann", None).unwrap();
    std::fs::write(&file, line).unwrap();
    let engine = in_memory(throng_pico::kinds(Engine::builder()));
    let picos = Picos::new(engine.clone(), Settings::default());
    let end = picos.work().unwrap();
    let gateway = Gateway::builder(engine).routes(throng_pico::routes(picos));
    // Anonymous callers get no more rights than named ones.
    let gateway = throng_pico::gateway(gateway)
        .tokens(&file)
        .anonymous()
        .admin(([127, 0, 0, 1], 0).into());
    let running = gateway.start().unwrap();
    let bearer = format!("authorization: Bearer {token}\r\n");
    let ask = |address, fields: &str| request(address, "GET", "/api/ui-context", fields, "").unwrap();
    for fields in [&*bearer, ""] {
        let refused = ask(running.address(), fields);
        assert!(
            refused.status == 403 && !refused.body.contains("eci\""),
            "{}",
            refused.body
        );
    }
    assert_eq!(ask(running.admin_address().unwrap(), &bearer).status, 200);
    end();
    running.stop_blocking();
}

#[test]
fn viewer_raises_no_event_by_get() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("admin");
    let [viewer, operator] = [Role::Viewer, Role::Operator].map(|role| {
        let (token, line) = make_token(&format!("the-{role}"), None).unwrap();
        (format!("authorization: Bearer {token}\r\n"), format!("{role} {line}\n"))
    });
    std::fs::write(&file, format!("{}{}", viewer.1, operator.1)).unwrap();
    let engine = in_memory(throng_pico::kinds(Engine::builder()));
    let picos = Picos::new(engine.clone(), Settings::default());
    let end = picos.work().unwrap();
    let gateway = Gateway::builder(engine).routes(throng_pico::routes(picos));
    let gateway = throng_pico::gateway(gateway)
        .admin(([127, 0, 0, 1], 0).into())
        .admin_tokens(&file);
    let running = gateway.start().unwrap();
    let admin = running.admin_address().unwrap();
    let get = |path: &str, fields: &str| request(admin, "GET", path, fields, "").unwrap();
    let ui = text(&get("/api/ui-context", &viewer.0).json()["eci"]);
    let root = get(&format!("/c/{ui}/query/io.picolabs.pico-engine-ui/pico"), &viewer.0);
    let eci = tagged(&root.json(), &["system", "self"]);
    let read = format!("/c/{eci}/query/{WRANGLER}/myself");
    for (at, path) in [
        format!("/sky/event/{eci}/none/wrangler/name_changed?name=new-0"),
        format!("/c/{eci}/event/wrangler/name_changed?name=new-1"),
        format!("/c/{eci}/event-wait/wrangler/name_changed?name=new-2"),
        format!("/c/{eci}/event/wrangler/name_changed/query/{WRANGLER}/myself?name=new-3"),
    ]
    .iter()
    .enumerate()
    {
        let name = format!("new-{at}");
        let refused = get(path, &viewer.0);
        assert!(
            refused.status == 403 && refused.body.contains("this needs operator"),
            "{path}: {}",
            refused.body
        );
        let seen = get(&read, &viewer.0).json();
        assert!(!seen.to_string().contains(&name), "{seen}");
        let done = get(path, &operator.0);
        assert_eq!(done.status, 200, "{path}: {}", done.body);
        let seen = get(&read, &viewer.0).json();
        assert!(seen.to_string().contains(&name), "{seen}");
    }
    let refused = get("/api/flush?url=http://nowhere.test/a.krl", &viewer.0);
    assert_eq!(refused.status, 403, "{}", refused.body);
    end();
    running.stop_blocking();
}

#[test]
fn log_page_ends_with_a_mebibyte_of_events() {
    let service = Service::start(Settings::default());
    let root = service.root();
    let large = "x".repeat(300_000);
    for _ in 0..8 {
        service.event(&root, "other", "thing", &json!({ "large": large }));
    }
    let (mut after, mut found) = (Some(0), Vec::new());
    while let Some(seq) = after {
        let page = service
            .get(&format!("/c/{root}/log?domain=other&limit=1000&after={seq}"))
            .json();
        found.push(page["events"].as_array().unwrap().len());
        after = page["next"].as_u64();
    }
    assert_eq!(found, [4, 4, 0]);
}

const CHOOSY: &str = r#"ruleset choosy {
  rule always { select when choosy ask
    fired { raise choosy event "asked" } }
  rule never { select when choosy ask
    if false then noop() }
  rule elsewhere { select when choosy ask by re#^ann$# }
  rule each { select when choosy ask foreach [1, 2, 3] setting(n)
    if n > 1 then noop() }
  rule after { select when choosy asked }
  rule fails { select when choosy fail
    pre { nothing = event:attrs{"nothing"} }
    if nothing() then noop() }
}
"#;

#[test]
fn log_names_selected_rules_and_whether_each_fired() {
    let service = Service::start(Settings::default());
    let ui = service.ui();
    let root = service.root();
    let installed = service.post(&format!("/c/{ui}/install"), &json!({ "source": CHOOSY }));
    assert_eq!(installed.status, 200, "{}", installed.body);
    service.event(&root, "choosy", "ask", &json!({ "by": "bob" }));
    service.post(&format!("/c/{root}/event-wait/choosy/fail"), &json!({}));
    let log = service.get(&format!("/c/{root}/log?domain=choosy")).json();
    let rule = |name: &str| json!({ "rid": "choosy", "rule": name });
    let with = |name: &str, counts: &[(&str, u32)]| {
        let mut rule = rule(name);
        for (count, times) in counts {
            rule[count] = json!(times);
        }
        rule
    };
    assert_eq!(
        log["events"][0]["rules"],
        json!([
            with("always", &[("fired", 1)]),
            with("never", &[("not_fired", 1)]),
            with("each", &[("fired", 2), ("not_fired", 1)]),
            with("after", &[("fired", 1)]),
        ]),
        "{log}"
    );
    let failed = &log["events"][1];
    assert!(failed["error"].is_string(), "{failed}");
    assert_eq!(failed["rules"], json!([rule("fails")]));
}
