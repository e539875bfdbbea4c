//! The console's page and its API.

use crate::support::{Client, plain, start};
use serde_json::{Value, json};
use std::thread;

/// Asks until the answer is as wanted.
pub(crate) fn until(client: &mut Client, path: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
    loop {
        let answer = client.get(path).json();
        if is_wanted(&answer) {
            return answer;
        }
        thread::yield_now();
    }
}

#[test]
fn the_page_is_sent_with_a_policy_compressed_and_only_once() {
    let gateway = start(|gateway| gateway.admin_token("secret"));
    let mut client = Client::new(&gateway);
    let page = client.get("/console/");
    assert_eq!(page.status, 200, "it holds no data, and needs no token");
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'"));
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    let tag = page.header("etag").unwrap().to_owned();
    let again = client.request("GET", "/console/", &[("if-none-match", &tag)], "");
    assert_eq!((again.status, again.body.len()), (304, 0));
    let small = client.request("GET", "/console/console.js", &[("accept-encoding", "br, gzip")], "");
    assert_eq!(small.header("content-encoding"), Some("gzip"));
    assert_eq!(&small.body[..2], [0x1f, 0x8b]);
    let refused = client.request("GET", "/console/console.js", &[("accept-encoding", "gzip;q=0")], "");
    assert_eq!(refused.header("content-encoding"), None);
    let moved = client.get("/console");
    assert_eq!((moved.status, moved.header("location")), (308, Some("/console/")));
    for unknown in [
        "/console/../Cargo.toml",
        "/console/%2e%2e/x",
        "/console/x.js",
        "/consoles",
    ] {
        client.get(unknown).problem(404, "unknown-route");
    }
    client.post("/console/", "").problem(405, "method-not-allowed");
}

#[test]
fn only_who_may_sees_the_data() {
    let gateway = start(|gateway| gateway.admin_token("secret"));
    let mut client = Client::new(&gateway);
    for path in ["/admin/overview", "/admin/series"] {
        client.get(path).problem(401, "unauthorized");
        let wrong = [("authorization", "Bearer wrong!")];
        client.request("GET", path, &wrong, "").problem(401, "unauthorized");
        let right = [("authorization", "Bearer secret")];
        let answer = client.request("GET", path, &right, "");
        assert_eq!((answer.status, answer.header("cache-control")), (200, Some("no-store")));
        let page = [("authorization", "Bearer secret"), ("origin", "https://evil.example")];
        client.request("GET", path, &page, "").problem(403, "forbidden-origin");
    }
    // Bound beyond loopback, nobody without a token.
    let public = start(|gateway| gateway.bind("0.0.0.0:0"));
    let mut client = Client::of(([127, 0, 0, 1], public.address().port()).into());
    client.get("/admin/overview").problem(403, "no-administration");
    // With a listener of its own, nowhere else.
    let apart = start(|gateway| gateway.admin(([127, 0, 0, 1], 0).into()));
    let mut client = Client::new(&apart);
    for path in ["/admin/overview", "/console/"] {
        assert_eq!(client.get(path).status, 404, "{path}");
    }
    let mut client = Client::of(apart.admin_address().unwrap());
    for path in ["/admin/overview", "/console/"] {
        assert_eq!(client.get(path).status, 200, "{path}");
    }
}

#[test]
fn the_overview_says_what_is_served() {
    let gateway = start(|gateway| gateway.title("Sections", "1.4.0").journal_place("directory", "/data"));
    let mut client = Client::new(&gateway);
    for id in ["S1", "S2"] {
        client.post(&format!("/api/section/{id}/open"), r#"{"capacity":9}"#);
    }
    let overview = client.get("/admin/overview").json();
    assert_eq!(
        (&overview["service"], &overview["version"]),
        (&json!("Sections"), &json!("1.4.0"))
    );
    assert_eq!((&overview["ready"], &overview["shards"]), (&json!(true), &json!(256)));
    assert_eq!(overview["console"]["by"], "local");
    assert_eq!(
        (&overview["journal"]["medium"], &overview["journal"]["place"]),
        (&json!("directory"), &json!("/data"))
    );
    let kind = &overview["kinds"][0];
    assert_eq!(
        (&kind["name"], &kind["entities"], &kind["resident"], &kind["keep"]),
        (&json!("section"), &json!(2), &json!(2), &json!("forever"))
    );
    let commands = kind["commands"].as_array().unwrap();
    let named = |name: &str| commands.iter().find(|command| command["name"] == name).unwrap();
    let open = named("open");
    assert_eq!(
        (&open["is_public"], &open["description"]),
        (&json!(true), &json!("Opens the section."))
    );
    assert_eq!(open["schema"]["required"], json!(["capacity"]));
    assert_eq!(named("take_over")["is_public"], false);
    let reference = named("take_over")["schema"]["$ref"].as_str().unwrap();
    assert!(overview.pointer(&reference[1..]).is_some(), "{reference}");
    client.get("/admin/overview?x=1").problem(400, "malformed");
}

#[test]
fn the_series_has_a_point_for_each_second_with_what_was_done() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    until(&mut client, "/admin/series", |all| all["times"] != json!([]));
    client.post("/api/section/S1/open", r#"{"capacity":9}"#);
    let done = |all: &Value| {
        let commands = all["series"]["commands"].as_array().unwrap();
        commands.iter().any(|count| count.as_f64() > Some(0.0))
    };
    let all = until(&mut client, "/admin/series", done);
    let points = all["times"].as_array().unwrap().len();
    for group in ["series", "refusals", "memory", "loops"] {
        for (name, column) in all[group].as_object().unwrap() {
            assert_eq!(column.as_array().unwrap().len(), points, "{group} {name}");
        }
    }
    let at = all["series"]["commands"]
        .as_array()
        .unwrap()
        .iter()
        .position(|count| count.as_f64() > Some(0.0))
        .unwrap();
    let ms = |name: &str| all["series"][name][at].as_f64().unwrap();
    assert!(ms("latency_p50_ms") > 0.0 && ms("latency_p99_ms") >= ms("latency_p50_ms"));
    assert_eq!(all["series"]["resident"][points - 1], 1.0);
    assert!(all["memory"]["entities"][points - 1].as_f64() > Some(0.0));
    assert!(all["refusals"]["request_rate_max"][0] == 0.0 && all["loops"]["0"][0].is_number());
    let codes = ["idle", "client", "loop", "sync", "entity"];
    assert!(
        codes.contains(&all["limits"]["code"].as_str().unwrap()),
        "{}",
        all["limits"]
    );
    let last = all["times"][points - 1].as_i64().unwrap();
    let since = client.get(&format!("/admin/series?since={last}")).json();
    assert!(
        since["times"]
            .as_array()
            .unwrap()
            .iter()
            .all(|at| at.as_i64() > Some(last))
    );
    client.get("/admin/series?since=x").problem(400, "malformed");
}
