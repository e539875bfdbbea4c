//! Answers compared with pico-engine 1.4 over HTTP, from which each table was recorded.

use crate::service::{Service, text, until};
use serde_json::{Value, json};
use std::fs;
use tempfile::TempDir;
use throng_pico::Settings;
use throng_testing::JSON;

const UI: &str = "io.picolabs.pico-engine-ui";
const WRANGLER: &str = "io.picolabs.wrangler";

const TOLD: &str = r##"
ruleset told {
  meta {
    use module io.picolabs.wrangler alias wrangler
    shares seen, sky, pico, own, config, numbers, deep, sum, attrs
  }
  global {
    seen = function() { ent:seen }
    sky = function(eci, mod, func) { wrangler:skyQuery(eci, mod, func) }
    pico = function(eci, mod, func) { wrangler:picoQuery(eci, mod, func) }
    own = function() { [wrangler:skyQuery(meta:eci, "told", "seen"), wrangler:picoQuery(meta:eci, "told", "seen")] }
    config = function() { [meta:rulesetConfig, meta:rid_url == ctx:rid_url, meta:rulesetURI == ctx:rid_url] }
    numbers = function() { [10000000000000000, 100000000000000000000, 9007199254740993, 0.000001, 0.0000001, 1.5] }
    deep = function() { deep() + 1 }
    sum = function(a, b) { a + b }
    attrs = function() { ent:attrs }
  }
  rule send { select when told send event:send({"eci": event:attr("eci"), "domain": "a", "type": "b"}) setting(eid) always { ent:seen := ["sent", eid.typeof()] } }
  rule ctx { select when told ctx_event ctx:event(event:attr("eci"), "a", "b", {}) always { ent:seen := "sent" } }
  rule fail { select when told fail pre { x = "a" * 2 } noop() }
  rule attrs { select when told attrs always { ent:attrs := event:attrs } }
  rule lines {
    select when told lines
    pre { x = {"a": 1}.klog("klogged") }
    noop()
    fired { log info "hello"; log warn {"a": 1}; log error 5 }
  }
  rule needed { select when wrangler subscription_request_needed always { ent:seen := event:attrs } }
  rule subs { select when wrangler send_event_to_subs always { ent:seen := event:attrs{"subs"}.length() } }
  rule no_subs { select when wrangler failed_to_send_event_to_sub always { ent:seen := event:attrs } }
}
"##;

struct Told {
    service: Service,
    home: TempDir,
    root: String,
}

impl Told {
    fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("told.krl"), TOLD).unwrap();
        let service = Service::start(Settings {
            files: Some(home.path().to_owned()),
            ..Settings::default()
        });
        let root = service.root();
        let told = Self { service, home, root };
        let install = json!({ "url": told.url("told"), "config": { "k": 1 } });
        told.service
            .event(&told.root, "wrangler", "install_ruleset_request", &install);
        told
    }

    fn url(&self, name: &str) -> String {
        format!("file://{}/{name}.krl", self.home.path().display())
    }

    fn path(&self, event: &str) -> String {
        format!("/c/{}/event-wait/{event}", self.root)
    }

    fn query(&self, name: &str, arguments: &str) -> Value {
        self.service.query(&self.root, "told", name, arguments)
    }
}

#[test]
fn errors_carry_the_text_of_pico_engine() {
    let told = Told::start();
    let query = |rid: &str, name: &str| format!("/c/{}/query/{rid}/{name}", told.root);
    let flush = format!("/api/flush?url={}", told.url("none"));
    let install = format!(
        "/c/{}/event-wait/engine_ui/install?url={}",
        told.service.ui(),
        told.url("none")
    );
    for (path, status, error) in [
        ("/c/foo/event/a/b".to_owned(), 404, "Error: ECI not found foo"),
        (query("none", "x"), 404, "Error: Pico doesn't have none installed."),
        (
            query("told", "zzz"),
            404,
            "Error: Ruleset told does not have query function \"zzz\"",
        ),
        (
            query("told", "deep"),
            500,
            "RangeError: Maximum call stack size exceeded",
        ),
        (told.path("told/fail"), 500, "TypeError: a cannot be multiplied by 2"),
        ("/api/flush".to_owned(), 400, "TypeError: Expected `url`"),
        (flush, 422, "Error: "),
        (install, 500, "Error: "),
    ] {
        let response = told.service.get(&path);
        let body = response.json();
        let found = text(&body["error"]);
        assert_eq!(response.status, status, "{path}: {body}");
        assert!(
            found == error || (error == "Error: " && found.starts_with(error)),
            "{path}: {found}"
        );
        assert_eq!(body["status"], json!(status), "it is a problem, too: {body}");
    }
    // For a person, the error has its location.
    let failed = told.service.get(&told.path("told/fail")).json();
    assert!(text(&failed["detail"]).contains(" [at line "), "{failed}");
    assert_eq!(failed["directives"][0]["options"]["error"], failed["error"]);
    let malformed = told.service.send("POST", &told.path("told/attrs"), JSON, "[1");
    assert_eq!(malformed.status, 400);
    assert!(text(&malformed.json()["error"]).starts_with("TypeError: "));
}

#[test]
fn event_to_no_channel_is_only_logged() {
    let told = Told::start();
    let nonsense = json!({ "eci": "nonsense" });
    told.service.event(&told.root, "told", "send", &nonsense);
    assert_eq!(told.query("seen", ""), json!(["sent", "Null"]));
    let log = told.service.get(&format!("/c/{}/log?name=send", told.root)).json();
    assert_eq!(
        log["events"][0]["log"][0]["message"],
        json!("Error: ECI not found nonsense")
    );
    for (name, eci, error) in [
        ("send", json!(5), "TypeError: eci was 5 instead of a string"),
        ("ctx_event", json!("nonsense"), "Error: ECI not found nonsense"),
    ] {
        let sent = told
            .service
            .post(&told.path(&format!("told/{name}")), &json!({ "eci": eci }));
        assert_eq!((sent.status, &sent.json()["error"]), (500, &json!(error)), "{name}");
    }
    let subscription = json!({ "wellKnown_Tx": "nonsense", "name": "n", "Rx_role": "a", "Tx_role": "b" });
    told.service
        .event(&told.root, "wrangler", "subscription", &subscription);
}

#[test]
fn sky_query_answers_failures_as_a_map() {
    let told = Told::start();
    let wrong = |status: (u16, &str), error: &str| {
        json!({
            "error": "sky query request was unsuccesful.",
            "httpStatus": { "code": status.0, "message": status.1 },
            "picoQueryError": error,
            "picoQueryErrorMsg": 0,
            "picoQueryReturnValue": { "error": error },
        })
    };
    told.service
        .event(&told.root, "wrangler", "new_child_request", &json!({ "name": "kid" }));
    let family = text(&told.service.query(&told.root, WRANGLER, "children", "")[0]["eci"]);
    let ui = text(&told.service.query(&told.service.ui(), UI, "box", "")["children"][0]);
    let gone = format!("{}{}", &ui[..16], "0".repeat(32));
    let to = |eci: &str, func: &str| format!("eci={eci}&mod={UI}&func={func}");
    for (query, arguments, answer) in [
        ("sky", to(&ui, "name"), json!("kid")),
        (
            "sky",
            to("nope", "name"),
            wrong((200, "OK"), "Error: ECI not found nope"),
        ),
        (
            "sky",
            to(&gone, "name"),
            wrong((200, "OK"), &format!("Error: ECI not found {gone}")),
        ),
        (
            "sky",
            to(&family, "name"),
            wrong(
                (200, "OK"),
                "Error: This is a family channel and only the owner can use it.",
            ),
        ),
        ("pico", to(&family, "name"), json!("kid")),
    ] {
        assert_eq!(told.query(query, &arguments), answer, "{query} {arguments}");
    }
    let own = (400, "HTTP/1.1 400 Pico should not query itself");
    assert_eq!(
        told.query("own", ""),
        json!([
            wrong(own, "Pico should not query itself"),
            { "status_code": 400, "status_line": own.1, "content": r#"{"error":"Pico should not query itself"}"# },
        ])
    );
    let path = format!("/c/{}/query/told/pico?{}", told.root, to("nope", "name"));
    let asked = told.service.get(&path).json();
    assert_eq!(asked["error"], json!("Error: ECI not found nope"));
}

#[test]
fn child_has_the_name_it_was_given_text_or_not() {
    let told = Told::start();
    let names = [json!(5), Value::Null, json!(true), json!({ "a": 1 }), json!("kid")];
    for name in &names {
        told.service
            .event(&told.root, "wrangler", "new_child_request", &json!({ "name": name }));
    }
    for nameless in [json!({}), json!({ "name": "" })] {
        told.service
            .event(&told.root, "wrangler", "new_child_request", &nameless);
    }
    let children = || told.service.query(&told.root, WRANGLER, "children", "");
    until(|| {
        children()
            .as_array()
            .unwrap()
            .iter()
            .map(|child| child["name"].clone())
            .eq(names.clone())
    });
}

#[test]
fn options_tells_the_methods_and_runs_no_event() {
    let told = Told::start();
    told.service.event(&told.root, "told", "attrs", &json!({ "before": 1 }));
    for path in [
        told.path("told/attrs?m=1"),
        format!("/c/{}/event/told/attrs", told.root),
        format!("/sky/event/{}/none/told/attrs", told.root),
        format!("/c/{}/event/told/attrs/query/told/attrs", told.root),
        format!("/c/{}/query/told/attrs", told.root),
    ] {
        let options = told.service.send("OPTIONS", &path, "", "");
        assert_eq!((options.status, options.body.as_str()), (200, ""), "{path}");
        assert!(
            options
                .headers
                .iter()
                .any(|header| header.eq_ignore_ascii_case("allow: GET, POST, OPTIONS")),
            "{:?}",
            options.headers
        );
    }
    assert_eq!(told.query("attrs", ""), json!({ "before": 1 }));
}

#[test]
fn attributes_are_read_of_a_request_as_by_the_original() {
    let told = Told::start();
    let form = "content-type: application/x-www-form-urlencoded\r\n";
    for (kind, body, attrs) in [
        ("", "", json!({ "a": ["q", "r"], "z": { "x": "9" } })),
        (form, "a=1&a=2", json!({ "a": ["1", "2"], "z": { "x": "9" } })),
        (JSON, r#"{"a":1}"#, json!({ "a": 1, "z": { "x": "9" } })),
        (
            "content-type: text/plain\r\n",
            "hello",
            json!({ "a": ["q", "r"], "z": { "x": "9" } }),
        ),
        ("", "hello", json!({ "a": ["q", "r"], "z": { "x": "9" } })),
    ] {
        let path = told.path("told/attrs?a=q&a=r&z[x]=9");
        let sent = told.service.send("POST", &path, kind, body);
        assert_eq!(sent.status, 200, "{kind}{body}: {}", sent.body);
        assert_eq!(told.query("attrs", ""), attrs, "{kind}{body}");
    }
}

#[test]
fn meta_tells_where_a_ruleset_is_from_and_its_configuration() {
    let told = Told::start();
    assert_eq!(told.query("config", ""), json!([{ "k": 1 }, true, true]));
}

#[test]
fn numbers_are_answered_as_javascript_writes_them() {
    let told = Told::start();
    let answer = told.service.get(&format!("/c/{}/query/told/numbers", told.root));
    assert_eq!(
        answer.body,
        "[10000000000000000,100000000000000000000,9007199254740992,0.000001,1e-7,1.5]"
    );
}

#[test]
fn lines_of_the_log_name_their_ruleset() {
    let told = Told::start();
    told.service.event(&told.root, "told", "lines", &json!({}));
    let logs = told.service.query(&told.service.ui(), UI, "logs", "");
    let episodes = logs.as_array().unwrap();
    let episode = episodes
        .iter()
        .find(|one| text(&one["header"]).contains("told:lines"))
        .unwrap();
    let lines: Vec<String> = episode["entries"].as_array().unwrap().iter().map(text).collect();
    let ends = [
        r#"[KLOG] klogged {"a":1}"#,
        r#"[INFO] hello {"rid":"told"}"#,
        r#"[WARN] {"a":1} {"rid":"told"}"#,
        r#"[ERROR] 5 {"rid":"told"}"#,
    ];
    let rules = [
        r#"[DEBUG] rule selected {"rid":"told","rule_name":"lines"}"#,
        r#"[DEBUG] fired {"rid":"told","rule_name":"lines"}"#,
    ];
    assert_eq!(lines.len(), 1 + rules.len() + ends.len(), "{lines:?}");
    for (line, end) in lines[1..].iter().zip(rules.into_iter().chain(ends)) {
        assert!(line.ends_with(end), "{line}: {end}");
    }
}

#[test]
fn subscriptions_raise_the_events_between_two_steps() {
    let told = Told::start();
    let subscription = json!({ "wellKnown_Tx": "nonsense", "name": "n", "Rx_role": "a", "Tx_role": "b" });
    told.service
        .event(&told.root, "wrangler", "subscription", &subscription);
    let seen = told.query("seen", "");
    for (key, value) in [
        ("channel_name", "n"),
        ("channel_type", "Tx_Rx"),
        ("wellKnown_Tx", "nonsense"),
    ] {
        assert_eq!(seen[key], json!(value), "{seen}");
    }
    assert!(seen["Rx"].is_string() && seen["Id"].is_string(), "{seen}");
    let none = json!({ "domain": "a", "Tx_role": "b" });
    told.service.event(&told.root, "wrangler", "send_event_on_subs", &none);
    assert_eq!(
        told.query("seen", ""),
        json!({ "domain": "a", "Tx_role": "b", "foundSubsToSendTo": false, "domainGiven": true, "typeGiven": false })
    );
}
