//! The console's page and its API.

use crate::support::{Client, plain, section::Section, socket::Socket, start};
use serde_json::{Value, json};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};
use throng::projection::{DurableEvent, Interrupt, Projection, Rows};
use throng_http::Gateway;

/// Repeats a request until the answer is as wanted.
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
fn only_permitted_users_see_the_data() {
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
    // A listener bound beyond loopback requires a token.
    let public = start(|gateway| gateway.bind("0.0.0.0:0"));
    let mut client = Client::of(([127, 0, 0, 1], public.address().port()).into());
    client.get("/admin/overview").problem(403, "no-administration");
    // With a separate listener for administration, the console is nowhere else.
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
fn the_overview_lists_the_served_kinds() {
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
fn the_series_counts_work_for_each_second() {
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

/// Sections with hostile names.
const HOSTILE: [&str; 4] = [
    "<script>alert(1)</script>",
    "a/b?c#d&e=f",
    "\"' OR 1=1 --\\",
    "\u{202e}ü\u{1F600}",
];

fn encoded(id: &str) -> String {
    id.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[test]
fn map_is_filtered_by_fields_that_the_kind_names() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    for (id, capacity) in [("CS-1", 30), ("CS-2", 300), ("CX-1", 300), ("D", 9)] {
        client.post(
            &format!("/api/section/{id}/open"),
            &format!(r#"{{"capacity":{capacity}}}"#),
        );
    }
    client.post("/api/section/CS-2/add-student", r#"{"student":"ann, the first"}"#);
    assert_eq!(
        client.get("/admin/overview").json()["kinds"][0]["fields"],
        json!(["capacity", "last"])
    );
    let mut filtered = |filter: &str, more: &str| {
        let page = client
            .get(&format!("/admin/map/section?where={}{more}", encoded(filter)))
            .json();
        let ids = page["entities"].as_array().unwrap().iter();
        let ids: Vec<String> = ids.map(|entity| entity["id"].as_str().unwrap().to_owned()).collect();
        (ids, page)
    };
    let (ids, page) = filtered("capacity >= 30", "");
    assert_eq!(ids, ["CS-1", "CS-2", "CX-1"]);
    assert_eq!(
        (&page["examined"], &page["unknown"], &page["next"]),
        (&json!(4), &json!(0), &Value::Null)
    );
    assert_eq!(page["entities"][0]["fields"], json!({"capacity": 30, "last": null}));
    assert_eq!(filtered(r#"last = "ann, the first""#, "").0, ["CS-2"]);
    assert_eq!(filtered("capacity >= 30", "&prefix=CS-").0, ["CS-1", "CS-2"]);
    let (ids, page) = filtered("capacity >= 30", "&limit=2");
    assert_eq!(
        (ids, &page["next"]),
        (vec!["CS-1".into(), "CS-2".into()], &json!("CS-2"))
    );
    assert_eq!(filtered("capacity >= 30", "&limit=2&after=CS-2").0, ["CX-1"]);
    assert_eq!(filtered("capacity >= 30", "&holds=ann%2C%20the%20first").0, ["CS-2"]);
    assert_eq!(filtered("", "&holds=300").0.len(), 0, "a number is no text");
    for wrong in ["seats=1", "capacity"] {
        let refused = client.get(&format!("/admin/map/section?where={}", encoded(wrong)));
        assert_eq!(refused.json()["field"], "where");
        refused.problem(400, "malformed");
    }
    client
        .get("/admin/entity/section/CS-1/children?where=capacity%3D1")
        .problem(400, "malformed");
}

#[test]
fn a_map_lists_entities_by_prefix_and_page_and_in_groups() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    let ids = ["BIO-1", "CS-1", "CS-2", "CS-3", "CX-1", "D"];
    for id in ids.iter().chain(&HOSTILE) {
        client.post(&format!("/api/section/{}/open", encoded(id)), r#"{"capacity":9}"#);
    }
    let listed = |page: &Value| -> Vec<String> {
        let entities = page["entities"].as_array().unwrap();
        entities
            .iter()
            .map(|entity| entity["id"].as_str().unwrap().to_owned())
            .collect()
    };
    let map = client.get("/admin/map").json();
    assert_eq!(
        (
            &map["kinds"][0]["entities"],
            &map["kinds"][0]["resident"],
            &map["kinds"][0]["stuck"]
        ),
        (&json!(10), &json!(10), &json!(0))
    );
    let page = client.get("/admin/map/section?prefix=CS-&limit=2").json();
    assert_eq!(
        (listed(&page), &page["next"]),
        (vec!["CS-1".into(), "CS-2".into()], &json!("CS-2"))
    );
    assert_eq!(
        (&page["entities"][0]["state"], &page["entities"][0]["seq"]),
        (&json!("resident"), &json!(1))
    );
    let page = client.get("/admin/map/section?prefix=CS-&after=CS-2&limit=2").json();
    assert_eq!((listed(&page), &page["next"]), (vec!["CS-3".into()], &Value::Null));
    let exact = client.get("/admin/map/section?prefix=D").json();
    assert_eq!(listed(&exact), ["D"]);
    for id in HOSTILE {
        let page = client.get(&format!("/admin/map/section?prefix={}", encoded(id))).json();
        assert_eq!(listed(&page), [id]);
    }
    let groups = client.get("/admin/map/section/groups?prefix=C").json();
    assert_eq!(
        groups,
        json!({ "groups": [
            { "prefix": "CS", "first": "CS-1", "is_leaf": false }, { "prefix": "CX-1", "first": "CX-1", "is_leaf": true }
        ], "more": false })
    );
    let all = client.get("/admin/map/section/groups").json();
    assert_eq!(all["groups"].as_array().unwrap().len(), 3 + HOSTILE.len(), "{all}");
    for (wrong, slug) in [
        ("?limit=0", "malformed"),
        ("?limit=1001", "malformed"),
        ("?x=1", "malformed"),
    ] {
        client.get(&format!("/admin/map/section{wrong}")).problem(400, slug);
    }
    client.get("/admin/map/nothing").problem(404, "unknown-kind");
    let shards = client.get("/admin/shards").json();
    let shards = shards["shards"].as_array().unwrap();
    let sum = |name: &str| shards.iter().map(|shard| shard[name].as_u64().unwrap()).sum::<u64>();
    assert_eq!((shards.len(), sum("resident")), (256, 10));
    assert!(sum("done") >= 10);
}

#[test]
fn the_entity_that_is_asked_most_is_hot() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    client.post("/api/section/S1/open", r#"{"capacity":9}"#);
    let hot = loop {
        client.post("/api/section/S1/add_student", r#"{"student":"7"}"#);
        let hot = client.get("/admin/hot?kind=section&limit=1").json();
        if hot["hot"] != json!([]) {
            break hot;
        }
    };
    assert_eq!(
        (&hot["hot"][0]["id"], &hot["hot"][0]["share"]),
        (&json!("S1"), &json!(1.0))
    );
    assert!(hot["hot"][0]["per_second"].as_f64() > Some(0.0));
}

#[test]
fn an_entity_is_shown_as_it_is_and_as_it_was() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    let id = HOSTILE[1];
    let path = format!("/admin/entity/section/{}", encoded(id));
    client.get(&path).problem(404, "unknown-entity");
    client.post(&format!("/api/section/{}/open", encoded(id)), r#"{"capacity":3}"#);
    for student in HOSTILE.iter().take(3) {
        let body = json!({ "student": student }).to_string();
        client.post(&format!("/api/section/{}/add_student", encoded(id)), &body);
    }
    let now = client.get(&path).json();
    assert_eq!(
        (&now["id"], &now["seq"], &now["status"], &now["ended"]),
        (&json!(id), &json!(4), &json!("resident"), &json!(false))
    );
    assert_eq!(now["state"], json!({ "capacity": 3, "students": HOSTILE[..3] }));
    assert_eq!(client.get(&format!("{path}?at=0")).json()["state"], Value::Null);
    for (at, students) in [(1, &HOSTILE[..0]), (3, &HOSTILE[..2]), (4, &HOSTILE[..3])] {
        let then = client.get(&format!("{path}?at={at}")).json();
        assert_eq!(
            (&then["at_seq"], &then["state"]["students"]),
            (&json!(at), &json!(students))
        );
        assert!(then["at"].is_string());
    }
    client.get(&format!("{path}?at=5")).problem(400, "malformed");
    let last = client.get(&format!("{path}/history?before=5&limit=2")).json();
    let seqs = |page: &Value| -> Vec<u64> {
        let events = page["events"].as_array().unwrap();
        events.iter().map(|event| event["seq"].as_u64().unwrap()).collect()
    };
    assert_eq!((seqs(&last), &last["next"]), (vec![3, 4], &json!(3)));
    let first = client.get(&format!("{path}/history?before=3&limit=2")).json();
    assert_eq!((seqs(&first), &first["next"]), (vec![1, 2], &Value::Null));
    assert_eq!(
        (
            &first["events"][0]["cause"]["type"],
            &first["events"][0]["cause"]["name"]
        ),
        (&json!("command"), &Value::Null)
    );
    client
        .get(&format!("{path}/history?before=3&after=1"))
        .problem(400, "malformed");
    client.get("/admin/entity/nothing/x").problem(404, "unknown-kind");
    let long = "x".repeat(300);
    client
        .get(&format!("/admin/entity/section/{long}"))
        .problem(400, "malformed");
}

#[test]
fn the_cause_of_an_event_leads_to_its_sender() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    for id in ["S1", "S2"] {
        client.post(&format!("/api/section/{id}/open"), r#"{"capacity":9}"#);
    }
    client.post("/api/section/S1/recommend", r#"{"to":"S2","student":"7"}"#);
    let path = "/admin/entity/section/S2/history";
    let page = until(&mut client, path, |page| page["events"].as_array().unwrap().len() == 2);
    let cause = &page["events"][1]["cause"];
    assert_eq!(
        (&cause["type"], &cause["is_certain"], &cause["name"], &cause["from"]),
        (
            &json!("message"),
            &json!(true),
            &json!("add_student"),
            &json!({ "kind": "section", "id": "S1" })
        )
    );
    assert_eq!(cause["body"], json!({ "student": "7" }));
    assert!(cause["sent"].is_string() && cause["number"].is_string());
}

#[test]
fn a_state_of_a_mebibyte_and_a_history_of_thousands_are_shown() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    client.post("/api/section/S1/open", r#"{"capacity":5000}"#);
    let pad = "x".repeat(900);
    for batch in 0..12 {
        let requests: String = (0..100)
            .map(|n| {
                let body = json!({ "student": format!("{batch}-{n}-{pad}") }).to_string();
                crate::support::client::request("POST", "/api/section/S1/add_student", &[], &body)
            })
            .collect();
        client.send(requests);
        for _ in 0..100 {
            assert_eq!(client.answer().status, 200);
        }
    }
    let now = client.get("/admin/entity/section/S1").json();
    assert!(now["state_bytes"].as_u64() > Some(1 << 20), "{}", now["state_bytes"]);
    assert_eq!(now["state"]["students"].as_array().unwrap().len(), 1_200);
    let then = client.get("/admin/entity/section/S1?at=601").json();
    assert_eq!(then["state"]["students"].as_array().unwrap().len(), 600);
    let page = client.get("/admin/entity/section/S1/history?after=0&limit=1000").json();
    assert_eq!(page["events"].as_array().unwrap().len(), 1_000);
    assert_eq!(page["next"], 1_000);
    let causes = page["events"].as_array().unwrap().iter();
    assert!(causes.clone().any(|event| event["cause"].is_object()));
}

#[test]
fn an_operator_runs_a_command_and_tries_one_without_a_trace() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    client.post("/api/section/S1/open", r#"{"capacity":1}"#);
    let path = "/admin/entity/section/S1";
    let add = |student: &str| json!({ "name": "add_student", "body": { "student": student } }).to_string();
    let supposed = client.post(&format!("{path}/what-if"), &add("7")).json();
    assert_eq!(
        (
            &supposed["outcome"],
            &supposed["at_seq"],
            &supposed["state"]["students"]
        ),
        (&json!("done"), &json!(1), &json!(["7"]))
    );
    assert_eq!(
        supposed["effects"],
        json!([{ "what": "event added", "content": { "student": "7" } }])
    );
    assert_eq!(supposed["reply"], json!({ "capacity": 1, "students": ["7"] }));
    assert_eq!(client.get(path).json()["seq"], 1, "nothing was recorded");

    let done = client.post(&format!("{path}/command"), &add("7")).json();
    assert_eq!((&done["seq"], &done["reply"]["students"]), (&json!(2), &json!(["7"])));
    client.post(&format!("{path}/command"), &add("8")).problem(409, "full");
    let refused = client.post(&format!("{path}/what-if"), &add("8")).json();
    assert_eq!(
        (&refused["outcome"], &refused["refusal"]),
        (&json!("refused"), &json!("all 1 places are taken"))
    );
    let before = client.post(&format!("{path}/what-if?at=0"), &add("8")).json();
    assert_eq!(before["outcome"], "refused", "there was no such entity: {before}");
    let crash = client.post(&format!("{path}/what-if"), r#"{"name":"crash"}"#).json();
    assert_eq!(crash["outcome"], "failed");

    let internal = r#"{"name":"take_over","body":{"students":["9"]}}"#;
    client
        .post(&format!("{path}/command"), internal)
        .problem(403, "not-public");
    let forced = r#"{"name":"take_over","body":{"students":["9"]},"internal":true}"#;
    assert_eq!(client.post(&format!("{path}/command"), forced).status, 200);
    for wrong in ["", "[]", r#"{"name":"open","x":1}"#] {
        client.post(&format!("{path}/command"), wrong).problem(400, "malformed");
    }
    client
        .post(&format!("{path}/command"), r#"{"name":"nothing"}"#)
        .problem(404, "unknown-command");
    client
        .get(&format!("{path}/command"))
        .problem(405, "method-not-allowed");
    let form = [("content-type", "text/plain")];
    client
        .request("POST", &format!("{path}/command"), &form, &add("7"))
        .problem(415, "unsupported-media-type");
}

#[test]
fn trouble_counts_all_dead_messages_and_lists_the_first() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    client.post("/api/section/S1/open", r#"{"capacity":9}"#);
    for student in 0..130 {
        let body = json!({ "to": HOSTILE[1], "student": student.to_string() }).to_string();
        assert_eq!(client.post("/api/section/S1/recommend", &body).status, 200);
    }
    let trouble = until(&mut client, "/admin/trouble", |trouble| trouble["total"] == 130);
    assert_eq!(
        (&trouble["totals"]["dead"], &trouble["more"]),
        (&json!(130), &json!(true))
    );
    assert_eq!(
        (trouble["items"].as_array().map(Vec::len), &trouble["uncounted"]),
        (Some(100), &json!([]))
    );
}

#[test]
fn trouble_groups_dead_messages_by_cause_with_actions_on_all() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    client.post("/api/section/S1/open", r#"{"capacity":9}"#);
    for student in 0..3 {
        let body = json!({ "to": HOSTILE[1], "student": student.to_string() }).to_string();
        assert_eq!(client.post("/api/section/S1/recommend", &body).status, 200);
    }
    let trouble = until(&mut client, "/admin/trouble", |trouble| {
        trouble["dead_groups"][0]["count"] == 3
    });
    let group = &trouble["dead_groups"][0];
    assert_eq!(
        (&group["kind"], &group["cause"]),
        (&json!("section"), &json!("there is no section \"…\""))
    );
    let path = |value: &Value| value.as_str().unwrap().to_owned();
    // The export is chunked, so it needs a connection of its own.
    let exported = Client::new(&gateway).get(&path(&group["export"]));
    assert_eq!(exported.status, 200);
    let [retry, drop] = &group["actions"].as_array().unwrap()[..] else {
        panic!("{group}")
    };
    assert!(path(&retry["confirm"]).contains("3 when they were counted last") && retry["needs_reason"] == false);
    let retried = client.post(&path(&retry["path"]), "").json();
    assert_eq!(retried, json!({ "done": 0, "refused": 0, "dead": 3, "stopped": null }));
    assert_eq!(drop["needs_reason"], true);
    let dropped = client
        .post(&format!("{}&reason=closed", path(&drop["path"])), "")
        .json();
    assert_eq!(dropped, json!({ "dropped": 3, "stopped": null }));
    until(&mut client, "/admin/trouble", |trouble| {
        trouble["dead_groups"] == json!([])
    });
}

#[test]
fn each_trouble_is_named_with_an_action_that_mends_it() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    assert_eq!(
        client.get("/admin/trouble").json(),
        json!({ "total": 0, "totals": { "quarantined": 0, "stuck": 0, "dead": 0 }, "uncounted": [], "dead_groups": [], "items": [], "more": false })
    );
    client.post("/api/section/S1/open", r#"{"capacity":9}"#);
    let to = HOSTILE[1];
    let body = json!({ "to": to, "student": "7" }).to_string();
    assert_eq!(client.post("/api/section/S1/recommend", &body).status, 200);
    let trouble = until(&mut client, "/admin/trouble", |trouble| trouble["total"] == 1);
    let item = &trouble["items"][0];
    assert_eq!(
        (&item["type"], &item["id"], &item["what"], &item["count"]),
        (
            &json!("dead"),
            &json!(to),
            &json!("add_student from section/S1"),
            &json!(1)
        )
    );
    assert!(item["since"].is_string() && !item["reason"].as_str().unwrap().is_empty());
    client.post(&format!("/api/section/{}/open", encoded(to)), r#"{"capacity":9}"#);
    let [action, drop] = &item["actions"].as_array().unwrap()[..] else {
        panic!("{item}")
    };
    assert_eq!((&action["name"], &action["method"]), (&json!("retry"), &json!("POST")));
    assert_eq!(
        (&drop["name"], &drop["needs_reason"], drop["confirm"].is_string()),
        (&json!("drop"), &json!(true), true)
    );
    let tried = client.post(action["path"].as_str().unwrap(), "").json();
    assert_eq!(tried["retried"][0]["outcome"], "done");
    assert_eq!(client.get("/admin/trouble").json()["total"], 0);
}

/// A projection of the students of all sections. It stops at the student "13" while the flag is set.
struct Students(Arc<AtomicBool>);

impl Projection for Students {
    const NAME: &'static str = "students";
    type Of = Section;

    fn apply(&self, seen: &DurableEvent<Section>, rows: &mut Rows<'_>) -> Result<(), Interrupt> {
        let text = serde_json::to_string(&seen.event).unwrap();
        if self.0.load(Ordering::SeqCst) && text.contains("\"13\"") {
            return Err(Interrupt::poison("13 is no student"));
        }
        rows.put_json(&seen.id, &seen.seq)
    }
}

#[test]
fn an_operator_rebuilds_and_resumes_a_live_projection() {
    let is_poison = Arc::new(AtomicBool::new(false));
    let engine = crate::support::engine_of(|builder| builder.projection(Students(is_poison.clone())));
    let gateway = Gateway::builder(engine).start().unwrap();
    let mut client = Client::new(&gateway);
    client.post("/api/section/S1/open", r#"{"capacity":9}"#);
    client.post("/api/section/S1/add_student", r#"{"student":"13"}"#);
    let one = |journal: &Value| journal["projections"][0].clone();
    let is_done = |journal: &Value| one(journal)["events"] == 2 && one(journal)["is_rebuilding"] == false;
    let journal = until(&mut client, "/admin/journal", is_done);
    let actions = one(&journal)["actions"].take();
    let [rebuild] = &actions.as_array().unwrap()[..] else {
        panic!("{actions}")
    };
    assert!(rebuild["confirm"].as_str().unwrap().contains("not complete"));
    let rebuild = rebuild["path"].as_str().unwrap();
    client.get(rebuild).problem(405, "method-not-allowed");
    client
        .post("/admin/projection/rebuild?name=none", "")
        .problem(400, "malformed");

    is_poison.store(true, Ordering::SeqCst);
    assert_eq!(client.post(rebuild, "").json(), json!({ "asked": "students" }));
    // Until it meets that event, it is listed as being rebuilt.
    let has_stopped = |trouble: &Value| {
        trouble["items"][0]["reason"]
            .as_str()
            .is_some_and(|why| why.contains("13 is no student"))
    };
    let trouble = until(&mut client, "/admin/trouble", has_stopped);
    assert_eq!(trouble["total"], 1);
    let item = &trouble["items"][0];
    let names: Vec<&str> = item["actions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|action| action["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        (&item["type"], &names[..]),
        (&json!("projection"), &["resume", "skip", "rebuild"][..])
    );
    assert_eq!(one(&client.get("/admin/journal").json())["is_rebuilding"], true);
    is_poison.store(false, Ordering::SeqCst);
    client.post(item["actions"][0]["path"].as_str().unwrap(), "").json();
    until(&mut client, "/admin/journal", |journal| {
        one(journal)["is_rebuilding"] == false
    });
    assert_eq!(client.get("/admin/trouble").json()["total"], 0);
}

#[test]
fn a_stopped_projection_skips_only_the_named_event() {
    let engine = crate::support::engine_of(|builder| builder.projection(Students(Arc::new(true.into()))));
    let gateway = Gateway::builder(engine).start().unwrap();
    let mut client = Client::new(&gateway);
    client.post("/api/section/S1/open", r#"{"capacity":9}"#);
    for student in [r#"{"student":"13"}"#, r#"{"student":"14"}"#] {
        client.post("/api/section/S1/add_student", student);
    }
    let one = |journal: &Value| journal["projections"][0].clone();
    let journal = until(&mut client, "/admin/journal", |journal| {
        one(journal)["state"] == "stopped"
    });
    assert_eq!(
        (&one(&journal)["skipped"], &one(&journal)["last_skipped"]),
        (&json!(0), &json!([]))
    );
    let trouble = client.get("/admin/trouble").json();
    assert!(trouble["items"][0]["since"].is_string(), "{trouble}");
    let skip = trouble["items"][0]["actions"][1].clone();
    let path = skip["path"].as_str().unwrap();
    let (_, event) = path.rsplit_once("event=").unwrap();
    assert!(
        skip["confirm"]
            .as_str()
            .unwrap()
            .contains(&format!("the event at {event} and no other"))
    );
    assert_eq!(skip["needs_reason"], true);

    for (asked, slug) in [
        (path.to_owned(), "malformed"),
        (format!("{path}&reason=%20"), "malformed"),
        (
            format!("/admin/projection/skip?name=none&event={event}&reason=x"),
            "malformed",
        ),
        (
            "/admin/projection/skip?name=students&event=1.2&reason=x".into(),
            "malformed",
        ),
    ] {
        client.post(&asked, "").problem(400, slug);
    }
    let other = client.post("/admin/projection/skip?name=students&event=1.1.0&reason=x", "");
    other.problem(409, "not-skipped");
    assert!(String::from_utf8_lossy(&other.body).contains(&format!("it has stopped at the event {event}")));

    let asked = client.post(&format!("{path}&reason=entered%20twice"), "").json();
    assert_eq!(asked, json!({ "asked": "students" }));
    let journal = until(&mut client, "/admin/journal", |journal| one(journal)["skipped"] == 1);
    let skipped = &one(&journal)["last_skipped"][0];
    assert_eq!(
        (&skipped["event"], &skipped["by"], &skipped["reason"]),
        (&json!(event), &json!("local"), &json!("entered twice"))
    );
    assert!(skipped["why"].as_str().unwrap().contains("13 is no student") && skipped["at"].is_string());
    until(&mut client, "/admin/journal", |journal| {
        one(journal)["lag_commits"] == 0
    });
    assert_eq!(client.get("/admin/trouble").json()["total"], 0);
    client
        .post(&format!("{path}&reason=again"), "")
        .problem(409, "not-skipped");
    let metrics = String::from_utf8(client.get("/metrics").body).unwrap();
    assert!(
        metrics.contains("throng_projection_skipped_total{projection=\"students\"} 1"),
        "{metrics}"
    );
}

#[test]
fn the_journal_says_where_it_stands_and_when_it_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().to_str().unwrap().to_owned();
    let gateway = start(|gateway| gateway.journal_place("directory", place.clone()));
    let mut client = Client::new(&gateway);
    client.post("/api/section/S1/open", r#"{"capacity":9}"#);
    crate::support::wait(gateway.engine().checkpoint()).unwrap();
    let journal = client.get("/admin/journal").json();
    assert_eq!(
        (&journal["medium"], &journal["place"]),
        (&json!("directory"), &json!(place))
    );
    assert!(journal["disk"]["free_bytes"].as_u64() > Some(0));
    assert_eq!(journal["retention"], json!([{ "kind": "section", "keep": "forever" }]));
    assert!(journal["checkpoint"]["age_seconds"].as_f64() >= Some(0.0), "{journal}");
    assert_eq!(journal["checkpoint"]["covers"], journal["position"]);
    let parts = client.get("/admin/journal/parts?limit=1").json();
    let writer = &parts["writers"][0];
    assert_eq!(
        (&writer["writer"], &writer["is_open"], &parts["writers_total"]),
        (&journal["writer"], &json!(true), &json!(1)),
        "{parts}"
    );
    assert!(
        writer["begun_at"].is_string() && writer["last"].as_u64() > Some(0),
        "{parts}"
    );
    client.get("/admin/journal/parts?limit=0").problem(400, "malformed");
}

const LIVE: &str = "/admin/live";
const PROTOCOL: (&str, &str) = ("sec-websocket-protocol", "throng.console.v1");

/// Returns the next message of this type, and skips the points in between.
fn next(socket: &mut Socket, wanted: &str) -> Value {
    loop {
        let told = socket.next();
        if told["type"] == wanted {
            return told;
        }
        assert_eq!(told["type"], "point", "{told}");
    }
}

#[test]
fn a_socket_has_a_point_each_second_and_follows_entities() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    client.post("/api/section/S1/open", r#"{"capacity":9}"#);
    let (mut socket, response) = Socket::open_at(&gateway, LIVE, &[PROTOCOL]).unwrap();
    assert_eq!(response.headers()["sec-websocket-protocol"], "throng.console.v1");
    assert_eq!(socket.next()["protocol"], "throng.console.v1");
    let point = next(&mut socket, "point");
    assert!(
        point["series"]["commands"].is_number() && point["limits"]["code"].is_string(),
        "{point}"
    );
    assert!(point["hot"].is_array() && point["missed"] == 0 && point["loops"]["0"].is_number());

    socket.send(&json!({ "type": "subscribe", "subscription": 7, "kind": "section", "id": "S1", "after": 0 }));
    let event = next(&mut socket, "event");
    assert_eq!(
        (&event["subscription"], &event["event"]["seq"], &event["event"]["name"]),
        (&json!(7), &json!(1), &json!("opened"))
    );
    let student = HOSTILE[0];
    let body = json!({ "student": student }).to_string();
    client.post("/api/section/S1/add_student", &body);
    let event = next(&mut socket, "event");
    assert_eq!(
        (&event["event"]["seq"], &event["event"]["payload"]),
        (&json!(2), &json!({ "student": student }))
    );
    socket.send(&json!({ "type": "subscribe", "subscription": 7, "kind": "section", "id": "S1" }));
    assert!(next(&mut socket, "problem")["detail"].as_str().unwrap().contains('7'));
    socket.send(&json!({ "type": "unsubscribe", "subscription": 7 }));
    socket.send(&json!({ "type": "subscribe", "subscription": 8, "kind": "nothing", "id": "S1" }));
    next(&mut socket, "problem");
    socket.send(&json!({ "type": "subscribe", "subscription": 9, "kind": "section", "id": "S9" }));
    assert_eq!(next(&mut socket, "ended")["subscription"], 9);
    socket.send(&json!({ "what": 1 }));
    next(&mut socket, "problem");
}

#[test]
fn a_socket_needs_permission_also_with_a_browsers_token() {
    let gateway = start(|gateway| gateway.admin_token("secret"));
    let open = |fields: &[(&'static str, &str)]| Socket::open_at(&gateway, LIVE, fields).map(|(socket, _)| socket);
    assert_eq!(open(&[PROTOCOL]).err(), Some(401));
    let offered = |token: &str| {
        use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
        format!(
            "throng.console.v1, throng.bearer.{}",
            BASE64_URL_SAFE_NO_PAD.encode(token)
        )
    };
    assert_eq!(open(&[(PROTOCOL.0, &offered("wrong!"))]).err(), Some(401));
    let mut socket = open(&[(PROTOCOL.0, &offered("secret"))]).unwrap();
    assert_eq!(socket.next()["type"], "hello");
    let mut socket = open(&[PROTOCOL, ("authorization", "Bearer secret")]).unwrap();
    assert_eq!(socket.next()["type"], "hello");
    let evil = [
        PROTOCOL,
        ("authorization", "Bearer secret"),
        ("origin", "https://evil.example"),
    ];
    assert_eq!(open(&evil).err(), Some(403));
    assert_eq!(
        open(&[(PROTOCOL.0, "other"), ("authorization", "Bearer secret")]).err(),
        Some(400)
    );
    let mut client = Client::new(&gateway);
    let right = [("authorization", "Bearer secret")];
    client.request("GET", LIVE, &right, "").problem(426, "upgrade-required");
}

#[test]
fn no_more_than_64_consoles_are_open_at_once() {
    let gateway = plain();
    let open = || Socket::open_at(&gateway, LIVE, &[PROTOCOL]);
    let mut sockets: Vec<Socket> = (0..64)
        .map(|_| {
            let (mut socket, _) = open().unwrap();
            assert_eq!(socket.next()["type"], "hello");
            socket
        })
        .collect();
    assert_eq!(open().err(), Some(503));
    drop(sockets.pop());
    while open().is_err() {
        thread::yield_now();
    }
}
