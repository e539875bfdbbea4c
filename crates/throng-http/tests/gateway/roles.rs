//! Roles of administration, and the audit of their actions.

use crate::{
    access::add_once,
    support::{Client, client::request, engine, engine_of, start, wait},
};
use axum::routing::get;
use serde_json::{Value, json};
use std::{fs, net::SocketAddr};
use throng::OperatorDecision;
use throng_http::{Audit, Gateway, MayAct, Role, Running, make_token};

const ROLES: [Role; 4] = [Role::Metrics, Role::Viewer, Role::Operator, Role::Owner];

/// Writes a file with a token for each role, named `the-ROLE`.
fn role_tokens() -> (tempfile::TempDir, [String; 4]) {
    let dir = tempfile::tempdir().unwrap();
    let made = ROLES.map(|role| make_token(&format!("the-{role}"), None).unwrap());
    let lines = ROLES.iter().zip(&made);
    let lines: String = lines.map(|(role, (_, line))| format!("{role} {line}\n")).collect();
    fs::write(dir.path().join("admin"), lines).unwrap();
    (dir, made.map(|(token, _)| format!("Bearer {token}")))
}

fn local() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

fn admin(gateway: &Running) -> Client {
    Client::of(gateway.admin_address().unwrap())
}

#[test]
fn each_role_may_do_its_part_of_administration() {
    let (dir, tokens) = role_tokens();
    let gateway = start(|gateway| gateway.admin(local()).admin_tokens(dir.path().join("admin")));
    Client::new(&gateway).post("/api/section/S1/open", r#"{"capacity":9}"#);
    let command = r#"{"name":"add_student","body":{"student":"7"}}"#;
    for (method, path, body, needed) in [
        ("GET", "/metrics", "", Role::Metrics),
        ("GET", "/admin/overview", "", Role::Viewer),
        ("GET", "/admin/dead", "", Role::Viewer),
        ("GET", "/api/section", "", Role::Viewer),
        ("POST", "/admin/entity/section/S1/what-if", command, Role::Viewer),
        ("POST", "/admin/entity/section/S1/command", command, Role::Operator),
        (
            "POST",
            "/admin/quarantine?kind=section&id=S1&reason=test",
            "",
            Role::Operator,
        ),
        ("POST", "/admin/release?kind=section&id=S1", "", Role::Operator),
        ("POST", "/admin/call/attempt?kind=section&id=S1", "", Role::Operator),
        (
            "POST",
            "/admin/call/give-up?kind=section&id=S1&reason=test",
            "",
            Role::Operator,
        ),
        ("POST", "/admin/compact", "", Role::Operator),
        ("POST", "/admin/prune?dry_run=true", "", Role::Owner),
        ("POST", "/admin/erase?kind=section&id=S2", "", Role::Owner),
    ] {
        admin(&gateway)
            .request(method, path, &[], body)
            .problem(401, "unauthorized");
        for (role, token) in ROLES.into_iter().zip(&tokens) {
            let fields = [("authorization", token.as_str())];
            let answer = admin(&gateway).request(method, path, &fields, body);
            if role >= needed {
                assert!(![401, 403].contains(&answer.status), "{role} {path}: {}", answer.text());
                continue;
            }
            let problem = answer.problem(403, "forbidden");
            let detail = problem["detail"].as_str().unwrap();
            assert!(detail.contains(&format!("the-{role} has the role {role}")), "{detail}");
            assert!(detail.contains(&format!("needs {needed}")), "{detail}");
        }
    }
}

#[test]
fn viewer_changes_nothing_by_a_get_of_the_services_own() {
    let (dir, [metrics, viewer, operator, owner]) = role_tokens();
    let engine = engine();
    let routes = axum::Router::new()
        .route("/add/{student}", get(add_once))
        .route("/flush", get(async |_: MayAct| "flushed"))
        .route("/look", get("as of now"));
    let gateway = Gateway::builder(engine.clone())
        .admin(local())
        .admin_tokens(dir.path().join("admin"))
        .routes(routes.with_state(engine))
        .start()
        .unwrap();
    Client::new(&gateway).post("/api/section/S1/open", r#"{"capacity":9}"#);
    let ask =
        |method: &str, path: &str, token: &str| admin(&gateway).request(method, path, &[("authorization", token)], "");
    for (path, needed) in [("/look", "viewer"), ("/add/1", "operator"), ("/flush", "operator")] {
        let refused = ask("GET", path, &metrics).problem(403, "forbidden");
        assert!(refused["detail"].to_string().contains("this needs viewer"), "{refused}");
        if needed == "operator" {
            let refused = ask("GET", path, &viewer).problem(403, "forbidden");
            let why = "the-viewer has the role viewer in administration, and this needs operator.";
            assert_eq!(refused["detail"], why);
            let mut client = admin(&gateway);
            client.send(request("HEAD", path, &[("authorization", &viewer)], ""));
            assert_eq!(client.head().unwrap().status, 403);
        } else {
            assert_eq!(ask("GET", path, &viewer).status, 200);
        }
        for token in [&operator, &owner] {
            assert_eq!(ask("GET", path, token).status, 200, "{path}");
        }
        // The service's own listener accepts everybody here.
        assert_eq!(Client::new(&gateway).get(path).status, 200);
    }
    let section = Client::new(&gateway).get("/api/section/S1").json();
    assert_eq!(section["students"], json!(["1"]));
}

#[test]
fn socket_for_commands_has_the_services_port_only() {
    let (dir, [_, viewer, _, owner]) = role_tokens();
    let gateway = start(|gateway| gateway.admin(local()).admin_tokens(dir.path().join("admin")));
    for token in [&viewer, &owner] {
        let fields = [
            ("authorization", token.as_str()),
            ("connection", "upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        let refused = admin(&gateway).request("GET", "/api/ws", &fields, "");
        let refused = refused.problem(404, "unknown-route");
        assert!(
            refused["detail"].to_string().contains("for administration"),
            "{refused}"
        );
    }
}

#[test]
fn actions_name_the_role_that_their_routes_need() {
    let (dir, tokens) = role_tokens();
    let gateway = start(|gateway| gateway.admin(local()).admin_tokens(dir.path().join("admin")));
    Client::new(&gateway).post("/api/section/S1/open", r#"{"capacity":9}"#);
    let as_role = |role: usize, method: &str, path: &str| {
        admin(&gateway).request(method, path, &[("authorization", tokens[role].as_str())], "")
    };
    let entity = as_role(1, "GET", "/admin/entity/section/S1").json();
    let actions = entity["actions"].as_array().unwrap();
    let named: Vec<_> = actions
        .iter()
        .map(|action| (&action["name"], &action["needs_role"]))
        .collect();
    let (quarantine, erase) = (
        (json!("quarantine"), json!("operator")),
        (json!("erase"), json!("owner")),
    );
    assert_eq!(named, [(&quarantine.0, &quarantine.1), (&erase.0, &erase.1)]);
    for action in actions {
        let path = format!("{}&reason=test", action["path"].as_str().unwrap());
        let needed: Role = action["needs_role"].as_str().unwrap().parse().unwrap();
        for (at, role) in ROLES.into_iter().enumerate() {
            let status = as_role(at, "POST", &path).status;
            assert_eq!(status == 403, role < needed, "{role} {path}: {status}");
        }
    }
}

#[test]
fn role_of_a_caller_is_taken_back_with_its_token() {
    let (dir, [metrics, ..]) = role_tokens();
    let file = dir.path().join("admin");
    let gateway = start(|gateway| gateway.admin(local()).admin_tokens(&file));
    let ask = |bearer: &str| {
        admin(&gateway)
            .request("GET", "/metrics", &[("authorization", bearer)], "")
            .status
    };
    assert_eq!((ask(&metrics), ask("Bearer throng_x")), (200, 401));
    fs::write(&file, "# nobody\n").unwrap();
    while ask(&metrics) != 401 {
        std::thread::yield_now();
    }
}

/// Returns the events of the audit, without their times.
fn audited(gateway: &Running, path: &str) -> Vec<(String, Value)> {
    let page = admin(gateway).get(path).json();
    let events = page["events"].as_array().unwrap_or_else(|| panic!("{page}"));
    let told = |event: &Value| (event["name"].as_str().unwrap().to_owned(), event["payload"].clone());
    events.iter().map(told).collect()
}

#[test]
fn actions_are_audited_with_name_reason_and_end() {
    let engine = engine_of(|builder| builder.with::<Audit>());
    let gateway = Gateway::builder(engine).admin(local()).start().unwrap();
    assert!(audited(&gateway, "/admin/audit").is_empty());
    Client::new(&gateway).post("/api/section/S1/open", r#"{"capacity":9}"#);
    let mut client = admin(&gateway);
    let quarantine = "/admin/quarantine?kind=section&id=S1&reason=it+multiplies";
    assert_eq!(client.post(quarantine, "").status, 200);
    let refused = client.post("/admin/erase?kind=nothing&id=S1", "");
    let problem = refused.json()["type"].as_str().unwrap().replace("/problems/", "");
    let command = r#"{"name":"rename","body":{"title":"secret"}}"#;
    client.post("/admin/entity/section/S2/command", command);
    let asked = |number: u64, action: &str, fields: Value, reason: &str| {
        let asked = json!({ "number": number, "by": "local", "role": "owner", "at": "127.0.0.1", "action": action,
            "fields": fields, "reason": reason });
        ("asked".to_owned(), asked)
    };
    let events = audited(&gateway, "/admin/audit");
    assert_eq!(events.len(), 6, "{events:?}");
    let of_section = json!({ "kind": "section", "id": "S1" });
    assert_eq!(events[0], asked(1, "quarantine", of_section, "it multiplies"));
    assert_eq!(
        events[1],
        ("ended".into(), json!({ "number": 1, "status": 200, "problem": null }))
    );
    assert_eq!(
        events[2],
        asked(2, "erase", json!({ "kind": "nothing", "id": "S1" }), "")
    );
    assert_eq!(
        events[3],
        (
            "ended".into(),
            json!({ "number": 2, "status": refused.status, "problem": problem })
        )
    );
    let fields = json!({ "kind": "section", "id": "S2", "command": "rename" });
    assert_eq!(events[4], asked(3, "command", fields, ""));
    assert_eq!(audited(&gateway, "/admin/audit?before=3&limit=1"), events[1..2]);

    client.send(request("GET", "/admin/audit/export", &[], ""));
    assert_eq!(
        client.head().unwrap().header("content-type"),
        Some("application/x-ndjson")
    );
    let mut lines: Vec<Value> = Vec::new();
    // The answer is in chunks, and the last one is empty.
    loop {
        match client.line().unwrap().as_str() {
            "0" => break,
            line if line.starts_with('{') => lines.push(serde_json::from_str(line).unwrap()),
            _ => {}
        }
    }
    assert_eq!((lines.len(), &lines[6]), (7, &json!({ "exported": 6 })));
    assert_eq!(lines[0]["payload"], events[0].1);
}

#[test]
fn entity_is_erased_while_the_audit_takes_no_entry() {
    let engine = engine_of(|builder| builder.with::<Audit>());
    let gateway = Gateway::builder(engine.clone()).admin(local()).start().unwrap();
    let mut client = Client::new(&gateway);
    let mut admin = admin(&gateway);
    client.post("/api/section/S1/open", r#"{"capacity":9}"#);
    assert_eq!(admin.post("/admin/compact", "").status, 200, "it has an entry");
    let by = OperatorDecision::new("ann", "it is out of order");
    assert!(wait(engine.quarantine("throng-audit", "all", by)).unwrap());
    let erased = admin.post("/admin/erase?kind=section&id=S1", "");
    assert_eq!(erased.status, 200, "{}", erased.json());
    assert_eq!(client.get("/api/section/S1").status / 100, 4, "it is gone");
}

#[test]
fn audit_has_no_route_of_the_service_and_is_never_changed() {
    let engine = engine_of(|builder| builder.with::<Audit>());
    let gateway = Gateway::builder(engine).admin(local()).start().unwrap();
    let mut client = admin(&gateway);
    client.post("/admin/compact", "");
    let before = audited(&gateway, "/admin/audit");
    let command = r#"{"name":"end","body":{"number":1,"status":200},"internal":true}"#;
    for (path, body) in [
        ("/admin/erase?kind=throng-audit&id=all", ""),
        ("/admin/quarantine?kind=throng-audit&id=all&reason=x", ""),
        ("/admin/entity/throng-audit/all/command", command),
    ] {
        client.post(path, body).problem(403, "forbidden");
    }
    assert_eq!(audited(&gateway, "/admin/audit"), before);
    for path in ["/api/throng-audit", "/api/throng-audit/all/events"] {
        Client::new(&gateway).get(path).problem(404, "unknown-kind");
    }
}

#[test]
fn engine_without_the_kind_has_no_audit() {
    let gateway = start(|gateway| gateway.admin(local()));
    for path in ["/admin/audit", "/admin/audit/export"] {
        admin(&gateway).get(path).problem(404, "unknown-route");
    }
    let overview = admin(&gateway).get("/admin/overview").json();
    assert_eq!(
        (&overview["audit"], &overview["console"]["role"]),
        (&json!(false), &json!("owner"))
    );
}
