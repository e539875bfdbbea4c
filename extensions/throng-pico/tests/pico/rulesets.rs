//! Tests of picos with rulesets in KRL, over HTTP.

use crate::service::{self, Service, text, until};
use serde_json::{Value, json};
use std::{
    io::{Read, Write},
    net::TcpListener,
    path::{Path, PathBuf},
};
use throng_pico::Settings;

fn rulesets() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rulesets")
}

fn url(directory: &Path, name: &str) -> String {
    format!("file://{}/{name}.krl", directory.display())
}

struct Counters {
    service: Service,
    root: String,
}

impl Counters {
    /// Starts a root pico with the counter.
    fn start() -> Self {
        Self::with(Settings {
            files: Some(rulesets()),
            ..Settings::default()
        })
    }

    fn with(settings: Settings) -> Self {
        let service = Service::start(settings);
        let root = service.root();
        let counters = Self { service, root };
        counters.install(&counters.root);
        counters
    }

    fn install(&self, eci: &str) {
        let request = json!({ "url": url(&rulesets(), "counter") });
        self.service.event(eci, "wrangler", "install_ruleset_request", &request);
    }

    fn event(&self, name: &str, attributes: &Value) -> Value {
        self.service.event(&self.root, "counter", name, attributes)
    }

    fn names(&self, name: &str, attributes: &Value) -> Vec<String> {
        let directives = self.event(name, attributes);
        directives
            .as_array()
            .unwrap()
            .iter()
            .map(|one| text(&one["name"]))
            .collect()
    }

    fn failure(&self, name: &str) -> String {
        let response = self
            .service
            .post(&format!("/c/{}/event-wait/counter/{name}", self.root), &json!({}));
        assert_eq!(response.status, 500, "{}", response.body);
        text(&response.json()["detail"])
    }

    fn count(&self, eci: &str) -> Value {
        self.service.query(eci, "counter", "count", "")
    }

    /// Makes a child with the counter, and returns its own channel.
    fn child(&self) -> String {
        self.service
            .event(&self.root, "wrangler", "new_child_request", &json!({ "name": "child" }));
        let children = self
            .service
            .query(&self.service.ui(), "io.picolabs.pico-engine-ui", "box", "")["children"]
            .clone();
        let ui = text(children.as_array().unwrap().last().unwrap());
        let pico = self.service.query(&ui, "io.picolabs.pico-engine-ui", "pico", "");
        let eci = service::tagged(&pico, &["system", "self"]);
        self.install(&eci);
        eci
    }

    fn again(self) -> Self {
        Self {
            service: self.service.again(),
            root: self.root,
        }
    }
}

#[test]
fn a_ruleset_answers_events_and_queries() {
    let counters = Counters::start();
    let directives = counters.event("hit", &json!({ "by": 2 }));
    assert_eq!(directives[0]["name"], json!("hit"));
    assert_eq!(directives[0]["options"], json!({ "by": 2 }));
    assert_eq!(directives[0]["meta"]["rid"], json!("counter"));
    assert_eq!(
        directives[1]["options"],
        json!({ "by": 2 }),
        "what was raised runs in the same transaction"
    );
    assert_eq!(counters.count(&counters.root), json!(2));
    let path = format!("/c/{}/event/counter/hit/query/counter/count", counters.root);
    assert_eq!(counters.service.get(&path).json(), json!(3));
    assert_eq!(
        counters.service.query(&counters.root, "counter", "seen", ""),
        json!({ "by": [null, true, true] })
    );
}

#[test]
fn a_rulesets_state_survives_a_restart_without_its_file() {
    let counters = Counters::start();
    counters.event("hit", &json!({ "by": 2 }));
    assert_eq!(counters.names("first", &json!({})), [""; 0]);
    let before = counters.service.query(&counters.root, "counter", "seen", "");
    let counters = counters.again();
    assert_eq!(counters.service.query(&counters.root, "counter", "seen", ""), before);
    // The progress of its rules is kept.
    assert_eq!(counters.names("second", &json!({})), ["pair"]);
}

#[test]
fn an_event_that_fails_leaves_nothing_behind() {
    let counters = Counters::start();
    counters.event("hit", &json!({}));
    assert!(counters.failure("hit_and_fail").contains("child ECI"));
    assert_eq!(counters.count(&counters.root), json!(1));
}

#[test]
fn an_event_without_end_is_ended() {
    let counters = Counters::start();
    for (name, says) in [("loop", "Maximum call stack size exceeded"), ("again", "more than")] {
        assert!(counters.failure(name).contains(says), "{name}");
        assert_eq!(counters.names("hit", &json!({})), ["hit", "was_hit"]);
    }
}

#[test]
fn an_event_reaches_another_pico_and_a_child() {
    let counters = Counters::start();
    let child = counters.child();
    counters.event("pass_on", &json!({ "eci": child }));
    assert_eq!(counters.count(&child), json!(5));
    counters.event("spawn", &json!({}));
    counters.event("to_child", &json!({}));
    let children = counters
        .service
        .query(&counters.service.ui(), "io.picolabs.pico-engine-ui", "pico", "")["children"]
        .clone();
    let ui = text(children.as_array().unwrap().last().unwrap());
    let pico = counters.service.query(&ui, "io.picolabs.pico-engine-ui", "pico", "");
    let own = service::tagged(&pico, &["system", "self"]);
    assert_eq!(counters.count(&own), json!(1));
    assert_eq!(
        counters.service.query(&own, "counter", "config", ""),
        json!({ "of": "parent" })
    );
}

#[test]
fn a_rule_asks_another_pico_and_runs_again_with_its_answer() {
    let counters = Counters::start();
    let child = counters.child();
    counters.service.event(&child, "counter", "hit", &json!({ "by": 9 }));
    let directives = counters.event("ask", &json!({ "eci": child }));
    assert_eq!(
        directives,
        json!([{ "type": "directive", "name": "found", "options": { "count": 9 }, "meta": directives[0]["meta"] }])
    );
    assert_eq!(counters.count(&counters.root), json!(9));
    // A query makes requests, too.
    assert_eq!(
        counters
            .service
            .query(&counters.root, "counter", "sibling", &format!("eci={child}")),
        json!(9)
    );
}

#[test]
fn an_event_by_message_waits_for_its_answer_in_its_pico() {
    let counters = Counters::start();
    let (asking, asked) = (counters.child(), counters.child());
    counters.service.event(&asked, "counter", "hit", &json!({ "by": 4 }));
    counters.event("ask_by_message", &json!({ "eci": asking, "of": asked }));
    until(|| counters.count(&asking) == json!(4));
}

#[test]
fn a_scheduled_event_comes() {
    let counters = Counters::start();
    counters.event("later", &json!({}));
    until(|| counters.count(&counters.root) == json!(7));
}

#[test]
fn directives_set_cookies_and_redirect() {
    let counters = Counters::start();
    let response = counters
        .service
        .get(&format!("/sky/event/{}/none/counter/cookie", counters.root));
    assert_eq!(response.status, 302);
    let has = |header: &str| response.headers.iter().any(|found| found.eq_ignore_ascii_case(header));
    assert!(
        has("set-cookie: a=b") && has("location: /elsewhere"),
        "{:?}",
        response.headers
    );
}

#[test]
fn redirect_of_a_ruleset_leads_to_a_page_only() {
    let counters = Counters::start();
    let ask = |to: &str| {
        let path = format!("/sky/event/{}/none/counter/away?to={to}", counters.root);
        counters.service.get(&path)
    };
    for to in [
        "https://shop.example/a:b",
        "HTTP://shop.example",
        "/elsewhere:1",
        "next?a=b:c",
    ] {
        assert_eq!(ask(to).status, 302, "{to}");
    }
    for to in [
        "javascript:alert(1)",
        "%20JavaScript:alert(1)",
        "java%09script:alert(1)",
        "data:text/html,a",
        "file:///a",
    ] {
        let answer = ask(to);
        assert_eq!(answer.status, 200, "{to}");
        assert_eq!(answer.json()["directives"][0]["name"], "_redirect");
    }
}

#[test]
fn page_of_another_site_sends_no_event() {
    let counters = Counters::start();
    let (hit, flush) = (
        format!("/c/{}/event/counter/hit", counters.root),
        "/api/flush?url=file:///none",
    );
    let ask = |path: &str, site: &str, mode: &str| {
        let fields = format!("sec-fetch-site: {site}\r\nsec-fetch-mode: {mode}\r\n");
        counters.service.send("GET", path, &fields, "").status
    };
    let before = counters.count(&counters.root);
    assert_eq!(ask(&hit, "cross-site", "no-cors"), 403);
    for frame in ["iframe", "frame", "embed", "object"] {
        let mode = format!("navigate\r\nsec-fetch-dest: {frame}");
        assert_eq!(ask(&hit, "cross-site", &mode), 403, "{frame}");
    }
    assert_eq!(counters.count(&counters.root), before);
    assert_eq!(
        [
            ask(flush, "cross-site", "no-cors"),
            ask(flush, "cross-site", "navigate")
        ],
        [403, 403]
    );
    for (site, mode) in [
        ("same-origin", "cors"),
        ("none", "navigate"),
        ("cross-site", "navigate"),
        ("cross-site", "navigate\r\nsec-fetch-dest: document"),
        ("same-origin", "navigate\r\nsec-fetch-dest: iframe"),
    ] {
        assert_eq!(ask(&hit, site, mode), 200, "{site} {mode}");
    }
    assert_ne!(counters.count(&counters.root), before);
}

#[test]
fn page_of_a_ruleset_runs_without_the_rights_of_its_origin() {
    let counters = Counters::start();
    for path in ["c/ECI/query/counter/count.html", "sky/cloud/ECI/counter/count.html"] {
        let page = counters
            .service
            .get(&format!("/{}", path.replace("ECI", &counters.root)));
        assert_eq!(page.status, 200, "{}", page.body);
        let has = |header: &str| page.headers.iter().any(|found| found.eq_ignore_ascii_case(header));
        assert!(has("content-type: text/html; charset=utf-8"), "{:?}", page.headers);
        assert!(
            has("content-security-policy: sandbox allow-forms"),
            "{:?}",
            page.headers
        );
        assert!(has("x-content-type-options: nosniff"), "{:?}", page.headers);
    }
}

#[test]
fn a_flush_updates_every_pico_and_a_broken_one_changes_none() {
    let home = tempfile::tempdir().unwrap();
    let write = |text: &str| std::fs::write(home.path().join("v.krl"), text).unwrap();
    let version = |number: u8| {
        format!("ruleset v {{ meta {{ shares version }} global {{ version = function() {{ {number} }} }} }}")
    };
    write(&version(1));
    let service = Service::start(Settings {
        files: Some(home.path().to_owned()),
        ..Settings::default()
    });
    let root = service.root();
    let url = url(home.path(), "v");
    service.event(&root, "wrangler", "install_ruleset_request", &json!({ "url": url }));
    assert_eq!(service.query(&root, "v", "version", ""), json!(1));
    let flush = || service.get(&format!("/api/flush?url={url}"));
    write(&version(2));
    assert_eq!(service.query(&root, "v", "version", ""), json!(1));
    let flushed = flush();
    assert_eq!((flushed.status, flushed.json()["rid"].clone()), (200, json!("v")));
    assert_eq!(service.query(&root, "v", "version", ""), json!(2));
    write("ruleset v { rule }");
    let broken = flush();
    assert_eq!(broken.status, 422);
    assert!(text(&broken.json()["detail"]).contains("line 1"), "{}", broken.body);
    assert_eq!(service.query(&root, "v", "version", ""), json!(2));
    std::fs::remove_file(home.path().join("v.krl")).unwrap();
    let service = service.again();
    assert_eq!(service.query(&root, "v", "version", ""), json!(2));
}

#[test]
fn a_used_module_stays_installed_and_cycles_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let write = |name: &str, uses: &str| {
        let used = if uses.is_empty() {
            String::new()
        } else {
            format!("use module {uses}")
        };
        let source =
            format!("ruleset {name} {{ meta {{ {used} provides f shares f }} global {{ f = function() {{ 1 }} }} }}");
        std::fs::write(home.path().join(format!("{name}.krl")), source).unwrap();
    };
    write("module.a", "");
    write("module.b", "module.a");
    let service = Service::start(Settings {
        files: Some(home.path().to_owned()),
        ..Settings::default()
    });
    let root = service.root();
    for name in ["module.a", "module.b"] {
        service.event(
            &root,
            "wrangler",
            "install_ruleset_request",
            &json!({ "url": url(home.path(), name) }),
        );
    }
    let uninstall = |rid: &str| {
        service.post(
            &format!("/c/{root}/event-wait/wrangler/uninstall_ruleset_request"),
            &json!({ "rid": rid }),
        )
    };
    let refused = uninstall("module.a");
    assert_eq!(refused.status, 500);
    assert!(refused.body.contains("module.b depends on it"), "{}", refused.body);
    write("module.a", "module.b");
    let cycle = service.get(&format!("/api/flush?url={}", url(home.path(), "module.a")));
    assert_eq!(cycle.status, 422);
    assert!(cycle.body.contains("cycle"), "{}", cycle.body);
    assert_eq!(uninstall("module.b").status, 200);
    assert_eq!(uninstall("module.a").status, 200);
    assert_eq!(service.get(&format!("/c/{root}/query/module.a/f")).status, 404);
}

/// Starts a server that answers one request with this body. Returns its address.
fn web(body: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4_096]).unwrap();
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                body.len()
            );
            stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        }
    });
    address
}

#[test]
fn a_ruleset_asks_only_hosts_that_are_named() {
    let address = web("hello");
    let status = |hosts: Vec<String>| {
        let counters = Counters::with(Settings {
            files: Some(rulesets()),
            hosts,
            ..Settings::default()
        });
        let response = counters.service.get(&format!(
            "/c/{}/query/counter/status?url=http://{address}/",
            counters.root
        ));
        (response.status, response.body)
    };
    assert_eq!(status(vec![address.clone()]), (200, "200".into()));
    for hosts in [vec![], vec!["*".to_owned()], vec!["127.0.0.1:1".to_owned()]] {
        let (status, body) = status(hosts);
        assert_eq!(status, 500, "{body}");
        assert!(body.contains("asked"), "{body}");
    }
}

/// A counter in tens, as a draft that somebody edits.
const TENS: &str = r#"ruleset counter {
  meta { shares count }
  global { count = function() { ent:count } }
  rule add {
    select when counter add
    send_directive("ten", { "by": event:attr("by") })
    fired { ent:count := ent:count.defaultsTo(0) + 10 }
  }
}
"#;

#[test]
fn a_check_names_places_of_errors_and_possible_trials() {
    let counters = Counters::start();
    let check = |source: &str| {
        let response = counters.service.post("/api/krl", &json!({ "source": source }));
        assert_eq!(response.status, 200, "{}", response.body);
        response.json()
    };
    let sound = check(TENS);
    assert_eq!((&sound["sound"], &sound["rid"]), (&json!(true), &json!("counter")));
    assert_eq!(sound["testing"]["events"][0]["name"], "add");
    assert_eq!(sound["testing"]["events"][0]["attrs"], json!(["by"]));
    let wrong = check("ruleset counter {\n  rule add {\n    select where\n  }\n}\n");
    assert_eq!(
        (&wrong["sound"], &wrong["errors"][0]["line"]),
        (&json!(false), &json!(4)),
        "{wrong}"
    );
    assert!(wrong["errors"][0]["column"].as_u64() > Some(1) && !text(&wrong["errors"][0]["message"]).is_empty());
    let large = json!({ "source": " ".repeat(300_000) });
    assert_eq!(counters.service.post("/api/krl", &large).status, 400);
}

#[test]
fn a_ruleset_is_laid_out_in_the_standard_way() {
    let counters = Counters::start();
    let format = |source: &str| counters.service.post("/api/krl-format", &json!({ "source": source }));
    let laid_out = format("ruleset a{rule b{select when c d}}");
    assert_eq!(laid_out.status, 200, "{}", laid_out.body);
    assert_eq!(laid_out.json()["source"], "ruleset a { rule b { select when c d } }\n");
    let broken = format("ruleset a {\n  rule b {\n    select where\n  }\n}\n");
    assert_eq!(broken.status, 400, "{}", broken.body);
    assert!(broken.body.contains("line 4"), "{}", broken.body);
}

#[test]
fn a_trial_runs_on_a_copy_of_the_pico_and_records_nothing() {
    let counters = Counters::start();
    let ui = counters.service.ui();
    counters.event("hit", &json!({}));
    let before = (
        counters.count(&counters.root),
        counters.service.get(&format!("/c/{ui}/log")).json(),
    );
    let tried = |what: Value| {
        let mut asked = what;
        asked["source"] = json!(TENS);
        let response = counters.service.post(&format!("/c/{ui}/try"), &asked);
        assert_eq!(response.status, 200, "{}", response.body);
        response.json()
    };
    let event = tried(json!({ "event": { "domain": "counter", "name": "add", "attrs": { "by": "ann" } } }));
    assert_eq!(
        (&event["error"], &event["directives"][0]["name"]),
        (&Value::Null, &json!("ten")),
        "{event}"
    );
    assert!(
        event["changes"].to_string().contains("11"),
        "over what the pico holds: {event}"
    );
    assert_eq!(tried(json!({ "query": { "name": "count" } }))["result"], before.0);
    assert!(text(&tried(json!({ "query": { "name": "none" } }))["error"]).contains("does not share"));
    let after = (
        counters.count(&counters.root),
        counters.service.get(&format!("/c/{ui}/log")).json(),
    );
    assert_eq!(after, before);
    let other = format!("/c/{}/try", counters.root);
    let asked = json!({ "source": "ruleset", "event": { "domain": "a", "name": "b" } });
    assert_ne!(counters.service.post(&other, &asked).status, 200);
}

#[test]
fn a_trial_makes_no_http_request_even_to_a_named_host() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let counters = Counters::with(Settings {
        files: Some(rulesets()),
        hosts: vec![address.clone()],
        ..Settings::default()
    });
    let path = format!("/c/{}/try", counters.service.ui());
    let tried = |what: Value| {
        let response = counters.service.post(&path, &what);
        assert_eq!(response.status, 200, "{}", response.body);
        response.json()
    };
    let source = r#"ruleset counter {
  meta { shares status }
  global { status = function(url) { http:get(url){"status_code"} } }
  rule ask {
    select when counter ask
    http:post(event:attr("url"))
  }
}
"#;
    let url = format!("http://{address}/");
    let query = tried(json!({ "source": source, "query": { "name": "status", "args": { "url": url } } }));
    let event = json!({ "domain": "counter", "name": "ask", "attrs": { "url": url } });
    let event = tried(json!({ "source": source, "event": event }));
    for (tried, request) in [(query, "HTTP request (GET)"), (event, "HTTP request (POST)")] {
        let error = text(&tried["error"]);
        assert!(error.contains(request), "it says what it waits for: {error}");
    }
    let accepted = listener.accept().map(|(_, from)| from);
    assert_eq!(
        accepted.map_err(|error| error.kind()),
        Err(std::io::ErrorKind::WouldBlock)
    );
}

#[test]
fn a_ruleset_is_installed_as_it_stands_and_outlives_a_restart() {
    let counters = Counters::start();
    let ui = counters.service.ui();
    counters.event("hit", &json!({}));
    let install = |source: &str| {
        counters
            .service
            .post(&format!("/c/{ui}/install"), &json!({ "source": source }))
    };
    assert_eq!(install("ruleset counter {").status, 400);
    let installed = install(TENS);
    assert_eq!(installed.status, 200, "{}", installed.body);
    let url = text(&installed.json()["url"]);
    assert!(url.starts_with("krl:") && url.ends_with("/counter"), "{url}");
    assert_eq!(counters.names("add", &json!({})), ["ten"]);
    let flushed = counters.service.get(&format!("/api/flush?url={url}"));
    assert_eq!(flushed.json()["hash"], installed.json()["hash"], "{}", flushed.body);
    let counters = Counters {
        service: counters.service.again(),
        root: counters.root,
    };
    assert_eq!(counters.names("add", &json!({})), ["ten"]);
    assert_eq!(counters.count(&counters.root), json!(21));
}
