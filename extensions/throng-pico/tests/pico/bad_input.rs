//! Tests of bad requests: each gets an answer that names the fault, nothing is lost, and no other pico notices.

use crate::service::{Service, tagged, text};
use serde_json::{Value, json};
use std::fs;
use tempfile::TempDir;
use throng_pico::Settings;
use throng_testing::Response;

const UI: &str = "io.picolabs.pico-engine-ui";
const WRANGLER: &str = "io.picolabs.wrangler";

const TRIES: &str = r##"
ruleset tries {
  meta {
    shares count, matches, kept
  }
  global {
    count = function() { ent:count.defaultsTo(0) }
    matches = function(text) { text.match(re#^(a+)+$#) }
    kept = function() { ent:kept.keys() }
    doubled = function(text, times) { times < 1 => text | doubled(<<#{text}#{text}>>, times - 1) }
    deeper = function(n) { deeper(n + 1) + 1 }
  }
  rule count { select when tries count always { ent:count := ent:count.defaultsTo(0) + 1 } }
  rule chevron {
    select when tries chevron
    pre { long = doubled("0123456789", 24) }
    always { ent:count := long.length() }
  }
  rule recursion { select when tries recursion pre { n = deeper(0) } always { ent:count := n } }
  rule types { select when tries types pre { x = math:hash("no such", [1]) } always { ent:count := x } }
  rule sort { select when tries sort pre { x = [1].map("no function") } always { ent:count := x } }
  rule module { select when tries module pre { x = ctx:nothing } always { ent:count := x } }
  rule policy {
    select when tries policy
    ctx:newChannel(tags=["a"], eventPolicy={"allow": [], "deny": [], "maybe": []}, queryPolicy={"allow": [], "deny": []})
    always { ent:count := 9 }
  }
  rule to_nobody {
    select when tries to_nobody
    event:send({"eci": event:attr("eci"), "domain": "tries", "type": "count"})
    always { ent:count := ent:count.defaultsTo(0) + 1 }
  }
  rule keep {
    select when tries keep
    pre { long = doubled("0123456789", 17) }
    always { ent:kept{[event:attr("name")]} := long + event:attr("name") }
  }
  rule keep_much {
    select when tries keep_much
    pre { long = doubled("0123456789", 17) }
    always { ent:kept{["x"]} := long + "1"; ent:kept{["y"]} := long + "2"; ent:kept{["z"]} := long + "3"; ent:kept{["w"]} := long + "4" }
  }
  rule tell_much {
    select when tries tell_much
    foreach 1.range(6) setting(n)
    send_directive("much", {"long": doubled("0123456789", 17) + n.as("String")})
  }
}
"##;

/// A pico that gets the bad requests, and another one that must not notice.
struct Tries {
    service: Service,
    home: TempDir,
    root: String,
    other: String,
}

impl Tries {
    fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("tries.krl"), TRIES).unwrap();
        let service = Service::start(Settings {
            files: Some(home.path().to_owned()),
            ..Settings::default()
        });
        let root = service.root();
        service.event(&root, "wrangler", "new_child_request", &json!({ "name": "other" }));
        let ui = service.query(&service.ui(), UI, "box", "")["children"][0].clone();
        let other = tagged(&service.query(&text(&ui), UI, "pico", ""), &["system", "self"]);
        let tries = Self {
            service,
            home,
            root,
            other,
        };
        for eci in [&tries.root, &tries.other] {
            let installed = tries.install(eci, "tries");
            assert_eq!(installed.status, 200, "{}", installed.body);
        }
        tries
    }

    fn install(&self, eci: &str, name: &str) -> Response {
        let url = format!("file://{}/{name}.krl", self.home.path().display());
        let path = format!("/c/{eci}/event-wait/wrangler/install_ruleset_request");
        self.service.post(&path, &json!({ "url": url }))
    }

    /// Writes a ruleset and tries to install it.
    fn install_new(&self, name: &str, source: &str) -> Response {
        fs::write(self.home.path().join(format!("{name}.krl")), source).unwrap();
        self.install(&self.root, name)
    }

    fn send(&self, name: &str, attributes: &Value) -> Response {
        let path = format!("/c/{}/event-wait/tries/{name}", self.root);
        self.service.post(&path, attributes)
    }

    /// Checks that both picos still work.
    fn is_well(&self) {
        for eci in [&self.root, &self.other] {
            let before = self.service.query(eci, "tries", "count", "").as_u64().unwrap();
            self.service.event(eci, "tries", "count", &json!({}));
            let after = self.service.query(eci, "tries", "count", "").as_u64().unwrap();
            assert_eq!(after, before + 1);
        }
    }
}

fn refused(response: &Response, says: &str) {
    assert_eq!(response.status, 500, "{}", response.body);
    let detail = text(&response.json()["detail"]);
    assert!(detail.contains(says), "{says}: {detail}");
}

#[test]
fn a_ruleset_that_is_none_is_refused_with_its_place() {
    let tries = Tries::start();
    for (source, says) in [
        ("ruleset wrong { rule a { select when } }", "line 1"),
        ("", "ruleset"),
        (
            "ruleset wrong { global { f = function() { nowhere:call(1) } } }",
            "nowhere",
        ),
        (
            "ruleset wrong { meta { use module io.nowhere } global { f = function() { nobody } } }",
            "nobody",
        ),
        (
            "ruleset wrong { global { f = function(x) { x.match(re#(a)\\1#) } } }",
            "more than linear time",
        ),
    ] {
        refused(&tries.install_new("wrong", source), says);
        tries.is_well();
    }
    let installed = tries.service.query(&tries.root, WRANGLER, "installedRIDs", "");
    assert!(!installed.as_array().unwrap().contains(&json!("wrong")));
}

#[test]
fn a_ruleset_is_installed_only_beside_the_modules_it_uses() {
    let tries = Tries::start();
    let source =
        "ruleset user { meta { use module io.nowhere alias no shares f } global { f = function() { no:f() } } }";
    refused(
        &tries.install_new("user", source),
        "Dependant module not loaded: io.nowhere",
    );
    let module = "ruleset io.nowhere { meta { provides f } global { f = function() { 7 } } }";
    assert_eq!(tries.install_new("nowhere", module).status, 200);
    assert_eq!(tries.install(&tries.root, "user").status, 200);
    assert_eq!(tries.service.query(&tries.root, "user", "f", ""), json!(7));
    tries.is_well();
}

#[test]
fn a_source_that_is_too_long_is_refused_and_not_read_to_its_end() {
    let tries = Tries::start();
    let chevron = format!("ruleset long {{ global {{ x = <<{}>> }} }}", "x".repeat(100 << 20));
    refused(&tries.install_new("long", &chevron), "bytes");
    tries.is_well();
}

#[test]
fn a_rule_that_goes_wrong_ends_with_an_error_and_leaves_nothing() {
    let tries = Tries::start();
    for (name, says) in [
        ("chevron", "more than"),
        ("recursion", "Maximum call stack size exceeded"),
        ("types", "no such"),
        ("sort", ""),
        ("module", "ctx:nothing"),
        ("policy", "maybe"),
    ] {
        let response = tries.send(name, &json!({}));
        assert_eq!(response.status, 500, "{name}: {}", response.body);
        refused(&response, says);
        tries.is_well();
    }
    // The size of one event's record is limited, too.
    let much = tries.send("keep_much", &json!({}));
    assert_eq!(much.status, 413, "{}", much.body);
    tries.is_well();
    let log = tries.service.get(&format!("/c/{}/log?failed=true", tries.root)).json();
    assert_eq!(log["events"].as_array().unwrap().len(), 6, "each is in the log");
    assert_eq!(tries.service.query(&tries.root, "tries", "kept", ""), json!([]));
}

#[test]
fn a_regular_expression_takes_linear_time() {
    let tries = Tries::start();
    let text = format!("{}b", "a".repeat(5_000));
    let found = tries
        .service
        .query(&tries.root, "tries", "matches", &format!("text={text}"));
    assert_eq!(found, json!(false));
}

#[test]
fn an_event_to_a_pico_that_was_deleted_is_nothing_to_its_sender() {
    let tries = Tries::start();
    let family = tries.service.query(&tries.root, WRANGLER, "children", "")[0]["eci"].clone();
    let request = json!({ "eci": family });
    tries
        .service
        .event(&tries.root, "wrangler", "child_deletion_request", &request);
    let asked = tries.service.get(&format!("/c/{}/event/tries/count", tries.other));
    assert_eq!(asked.status, 410, "{}", asked.body);
    let sent = tries.send("to_nobody", &json!({ "eci": tries.other }));
    assert_eq!(sent.status, 200, "{}", sent.body);
    let nobody = tries.send("to_nobody", &json!({ "eci": "no eci" }));
    assert_eq!(nobody.status, 200, "{}", nobody.body);
    assert_eq!(tries.service.query(&tries.root, "tries", "count", ""), json!(2));
}

#[test]
fn attributes_that_are_no_map_are_refused() {
    let tries = Tries::start();
    for body in ["[1]", "7", "null", "\"a\"", "{\"a\":"] {
        let path = format!("/c/{}/event-wait/tries/count", tries.root);
        let response = tries.service.send("POST", &path, throng_testing::JSON, body);
        assert_eq!(response.status, 400, "{body}: {}", response.body);
    }
    assert_eq!(tries.service.query(&tries.root, "tries", "count", ""), json!(0));
}

#[test]
fn a_pico_has_a_thousand_rulesets_and_not_one_more() {
    let tries = Tries::start();
    for number in 1..1_000 {
        let source = format!("ruleset r{number} {{ }}");
        let installed = tries.install_new(&format!("r{number}"), &source);
        assert_eq!(installed.status, 200, "{}", installed.body);
    }
    refused(&tries.install_new("r1000", "ruleset r1000 { }"), "1000 rulesets");
    // A ruleset that is installed already is configured anew.
    assert_eq!(tries.install(&tries.root, "r7").status, 200);
    tries.is_well();
}

#[test]
fn a_picos_state_is_bounded_and_the_pico_goes_on() {
    let tries = Tries::start();
    let mut kept = Vec::new();
    let refusal = loop {
        let name = format!("k{}", kept.len());
        let response = tries.send("keep", &json!({ "name": name }));
        match response.status {
            200 => kept.push(json!(name)),
            _ => break response,
        }
        assert!(kept.len() < 100, "it takes anything");
    };
    assert!(refusal.body.contains("bytes"), "{}", refusal.body);
    assert_eq!(
        tries.service.query(&tries.root, "tries", "kept", ""),
        Value::Array(kept.clone())
    );
    tries.is_well();
    let service = tries.service.again();
    assert_eq!(service.query(&tries.root, "tries", "kept", ""), Value::Array(kept));
}

#[test]
fn an_answer_that_is_too_long_is_an_error_and_not_lost_work() {
    let tries = Tries::start();
    let told = tries.send("tell_much", &json!({}));
    assert!(matches!(told.status, 200 | 500), "{}", told.status);
    tries.is_well();
}

#[test]
fn body_that_is_compressed_or_has_a_mark_is_told_so() {
    let tries = Tries::start();
    let path = format!("/c/{}/event/tries/count", tries.root);
    let coded = "content-type: application/json\r\ncontent-encoding: gzip\r\n";
    let refused = tries.service.send("POST", &path, coded, "{}");
    assert_eq!(refused.status, 415, "{}", refused.body);
    assert!(refused.body.contains("Content-Encoding"), "{}", refused.body);
    let plain = "content-type: application/json\r\n";
    let refused = tries.service.send("POST", &path, plain, "\u{feff}{}");
    assert_eq!(refused.status, 400, "{}", refused.body);
    assert!(refused.body.contains("byte order mark"), "{}", refused.body);
    tries.is_well();
}
