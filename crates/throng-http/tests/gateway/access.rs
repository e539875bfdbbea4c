//! Access: public commands, callers, a service's own hook, and the listener for administration.

use crate::{
    console::until,
    support::{
        Client,
        both_paths::{FULL, in_both},
        client::{PATIENCE, request},
        engine,
        held::held_with,
        plain,
        section::{Command, Enrolment, Section},
        socket::{Socket, command, query},
        start, tokens,
    },
};
use axum::{
    Json,
    extract::{Path, State},
};
use serde_json::{Value, json};
use std::{fs, time::Instant};
use throng::{Engine, Options};
use throng_http::{Access, Action, Caller, Gateway, Limits, Means, Once, Problem, Running, StartError, make_token};

#[test]
fn a_command_that_is_not_public_is_no_route_and_in_no_document() {
    let gateway = plain();
    Client::new(&gateway).post("/api/section/S1/open", r#"{"capacity":9}"#);
    for name in ["take_over", "take-over"] {
        let path = format!("/api/section/S1/{name}");
        for refused in in_both(&gateway, "POST", &path, &[], r#"{"students":["eve"]}"#) {
            let detail = refused.problem(403, "not-public")["detail"].to_string();
            assert!(detail.contains("take_over") && detail.contains("PUBLIC"), "{detail}");
        }
    }
    let mut client = Client::new(&gateway);
    client.get("/api/section/S1/take_over").problem(404, "unknown-query");
    let unknown = client
        .post("/api/section/S1/close", "{}")
        .problem(404, "unknown-command");
    assert!(!unknown["detail"].to_string().contains("take_over"), "{unknown}");
    let document = client.get("/openapi.json");
    let document = document.text();
    assert!(document.contains("/api/section/{id}/add_student") && document.contains("Enrolment"));
    assert!(
        !document.contains("take_over") && !document.contains("Moved"),
        "{document}"
    );

    let mut socket = Socket::new(&gateway);
    socket.send(&command(1, "S1", "take_over", &json!({ "students": ["eve"] })));
    socket.problem(1, "not-public");
    assert_eq!(client.get("/api/section/S1").json()["students"], json!([]));
}

#[test]
fn a_kind_may_have_no_routes_at_all() {
    let gateway = start(|gateway| gateway.without_routes("section"));
    let mut client = Client::new(&gateway);
    client
        .post("/api/section/S1/open", r#"{"capacity":9}"#)
        .problem(404, "unknown-kind");
    for path in ["/api/section", "/api/section/S1", "/api/section/S1/events"] {
        client.get(path).problem(404, "unknown-kind");
    }
    assert!(!client.get("/openapi.json").text().contains("/api/section"));
    let error = Gateway::builder(engine()).without_routes("sektion").start().err();
    assert!(matches!(error, Some(StartError::NoSuchKind { kind }) if kind == "sektion"));
}

#[test]
fn a_hook_decides_about_each_access() {
    let gateway = start(|gateway| {
        gateway.authorize(|access: &Access<'_>| match access.action {
            Action::Command("rename") => Err(Problem::forbidden("Nobody renames a section.").into()),
            Action::Events if access.id.is_none() => Err(Problem::unauthorized("Say who you are.").into()),
            Action::List => Err(Problem::unauthorized("Say who you are.").into()),
            Action::Query("view") if access.id == Some("S2") => Err(Problem::forbidden("Not this one.").into()),
            _ => Ok(()),
        })
    });
    let mut client = Client::new(&gateway);
    assert_eq!(client.post("/api/section/S1/open", r#"{"capacity":9}"#).status, 200);
    for refused in in_both(&gateway, "POST", "/api/section/S1/rename", &[], r#"{"title":"x"}"#) {
        let problem = refused.problem(403, "forbidden");
        assert_eq!(problem["detail"], "Nobody renames a section.");
    }
    for refused in in_both(&gateway, "GET", "/api/section", &[], "") {
        refused.problem(401, "unauthorized");
        assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
    }
    client.get("/api/section/S2").problem(403, "forbidden");
    assert_eq!(client.get("/api/section/S1").status, 200);
    assert_eq!(client.get("/api/section/S1/events").status, 200);

    let mut socket = Socket::new(&gateway);
    for (asked, slug) in [
        (command(1, "S1", "rename", &json!({ "title": "x" })), "forbidden"),
        (query(1, "S2", "view", &json!({})), "forbidden"),
        (
            json!({ "type": "subscribe", "id": 1, "kind": "section", "credit": 1 }),
            "unauthorized",
        ),
    ] {
        socket.send(&asked);
        socket.problem(1, slug);
    }
}

#[test]
fn event_filter_decides_for_each_reader() {
    let (dir, [ann, bob]) = tokens(["ann", "bob"]);
    let gateway = start(|gateway| {
        gateway
            .tokens(dir.path().join("tokens"))
            .filter_events(|access: &Access<'_>, event| {
                let is_ann = access.caller.is_some_and(|caller| caller.name() == "ann");
                is_ann || (access.id, &*event.name) != (Some("S1"), "opened")
            })
    });
    let by = |bearer: &str| [("authorization", bearer.to_owned().leak() as &'static str)];
    let mut client = Client::new(&gateway);
    for (section, command) in [("S1", "open"), ("S1", "sign"), ("S2", "open")] {
        let body = if command == "open" { r#"{"capacity":9}"# } else { "{}" };
        let path = format!("/api/section/{section}/{command}");
        assert_eq!(client.request("POST", &path, &by(&ann), body).status, 200);
    }
    for (reader, first) in [(&ann, 1), (&bob, 2)] {
        let fields = by(reader);
        let page = client.request("GET", "/api/section/S1/events", &fields, "").json();
        assert_eq!(page["events"][0]["seq"], first, "{page}");
        let page = client
            .request("GET", "/api/section/S1/events?limit=1", &fields, "")
            .json();
        assert_eq!(page["next"], 1, "a page that shows nothing has a next one: {page}");

        let mut stream = Client::new(&gateway);
        let accepts = [fields[0], ("accept", "text/event-stream")];
        stream.send(request("GET", "/api/section/S1/events", &accepts, ""));
        stream.head().unwrap();
        let id = std::iter::repeat_with(|| stream.line().unwrap()).find(|line| line.starts_with("id:"));
        assert!(id.unwrap().starts_with(&format!("id: {first}@")));

        let (mut socket, _) = Socket::open(&gateway, &fields).unwrap();
        socket.next();
        let all = json!({ "type": "subscribe", "id": 1, "kind": "section", "after": "start", "credit": 9 });
        socket.send(&all).expect("subscribed", 1);
        let told = socket.expect("events", 1);
        let sections: Vec<_> = told["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(|event| &event["seq"])
            .collect();
        assert_eq!(sections, [&[1, 2, 1][first - 1..]].concat(), "{told}");
    }
}

#[test]
fn a_token_names_the_caller_and_without_one_little_is_open() {
    let (dir, [ann, bob]) = tokens(["ann", "bob"]);
    let gateway = start(|gateway| gateway.tokens(dir.path().join("tokens")));
    let mut client = Client::new(&gateway);
    let by = |bearer: &'static str| [("authorization", bearer)];
    let (ann, bob): (&'static str, &'static str) = (ann.leak(), bob.leak());
    let open = client.request("POST", "/api/section/S1/open", &by(ann), r#"{"capacity":9}"#);
    assert_eq!(open.status, 200);
    for bearer in [ann, bob, ann] {
        for answer in in_both(&gateway, "POST", "/api/section/S1/sign", &by(bearer), "{}") {
            assert_eq!(answer.status, 200);
        }
    }
    let students = client.request("GET", "/api/section/S1", &by(bob), "").json()["students"].clone();
    assert_eq!(students, json!(["ann", "ann", "bob", "bob", "ann", "ann"]));

    for (shown, reason) in [
        (&[][..], "has to know who asks"),
        (
            &[("authorization", "Bearer throng_wrong")],
            "not one that this service takes",
        ),
        (&[("authorization", "Bearer ")], "is not Bearer"),
        (&[("authorization", "Basic YW5uOmFubg==")], "is not Bearer"),
        (&[("authorization", "Bearer")], "is not Bearer"),
    ] {
        for (method, path) in [
            ("POST", "/api/section/S1/sign"),
            ("GET", "/api/section/S1"),
            ("GET", "/api/section"),
            ("GET", "/apps-own"),
            ("GET", "/api/section/S1/events"),
            ("GET", "/metrics"),
        ] {
            for refused in in_both(&gateway, method, path, shown, "{}") {
                let problem = refused.problem(401, "unauthorized");
                assert!(problem["detail"].to_string().contains(reason), "{problem}");
                assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
            }
        }
        let shown: Vec<_> = shown.to_vec();
        assert_eq!(Socket::open(&gateway, &shown).err(), Some(401));
    }
    for path in [
        "/health/live",
        "/health/ready",
        "/openapi.json",
        "/docs",
        "/problems/overloaded",
    ] {
        assert_eq!(Client::new(&gateway).get(path).status, 200, "{path}");
    }
    let (mut socket, _) = Socket::open(&gateway, &by(bob))
        .map_err(|status| status.to_string())
        .unwrap();
    socket.next();
    let signed = socket.command("S1", "sign", &json!({}));
    assert_eq!(signed["students"].as_array().unwrap().last(), Some(&json!("bob")));
}

#[test]
fn each_command_of_a_batch_is_authenticated() {
    let (dir, [ann]) = tokens(["ann"]);
    let gateway = start(|gateway| gateway.tokens(dir.path().join("tokens")));
    let good = request(
        "POST",
        "/api/section/S1/open",
        &[("authorization", &ann)],
        r#"{"capacity":9}"#,
    );
    let bad = request(
        "POST",
        "/api/section/S1/open",
        &[("authorization", "Bearer x")],
        r#"{"capacity":1}"#,
    );
    let none = request("POST", "/api/section/S1/open", &[], r#"{"capacity":1}"#);
    let mut client = Client::new(&gateway);
    client.send([&good[..], &bad, &good, &none, &good].concat());
    let statuses: Vec<u16> = (0..5).map(|_| client.answer().status).collect();
    assert_eq!(statuses, [200, 401, 200, 401, 200]);
}

#[test]
fn a_changed_token_file_is_read_and_expired_tokens_are_refused() {
    let (dir, [ann]) = tokens(["ann"]);
    let file = dir.path().join("tokens");
    let gateway = start(|gateway| gateway.tokens(&file));
    let mut client = Client::new(&gateway);
    let mut ask = |bearer: &str| client.request("GET", "/api/section", &[("authorization", bearer)], "");
    assert_eq!(ask(&ann).status, 200);
    let (bob, bob_line) = make_token("bob", None).unwrap();
    let (old, old_line) = make_token("old", "2001-01-01T00:00:00Z".parse().ok()).unwrap();
    fs::write(&file, format!("{bob_line}\n{old_line}\n")).unwrap();
    while ask(&format!("Bearer {bob}")).status != 200 {
        std::thread::yield_now();
    }
    ask(&ann).problem(401, "unauthorized");
    let expired = ask(&format!("Bearer {old}")).problem(401, "unauthorized");
    assert_eq!(expired["detail"], "The token has expired.");
    let missing = Gateway::builder(engine())
        .tokens(dir.path().join("none"))
        .start()
        .err()
        .unwrap();
    assert!(missing.to_string().contains("none"), "{missing}");
}

/// Opens a live stream of a section, and reads its beginning.
fn stream(gateway: &Running, bearer: &str) -> Client {
    let mut client = Client::new(gateway);
    let fields = [("authorization", bearer), ("accept", "text/event-stream")];
    client.send(request("GET", "/api/section/S1/events", &fields, ""));
    assert_eq!(client.head().unwrap().status, 200);
    client
}

/// Reads a live stream to its end.
fn ends(client: &mut Client) {
    let until = Instant::now() + PATIENCE;
    while client.line().unwrap() != "0" {
        assert!(Instant::now() < until, "it does not end");
    }
}

#[test]
fn credentials_that_cannot_be_read_are_a_warning_until_they_are() {
    let (dir, [ann]) = tokens(["ann"]);
    let (file, away) = (dir.path().join("tokens"), dir.path().join("away"));
    let gateway = start(|gateway| gateway.tokens(&file));
    let mut client = Client::new(&gateway);
    let is_warned = |ready: &Value| {
        let checks = ready["checks"].as_array().into_iter().flatten();
        let mut own = checks.filter(|check| check["name"] == "credentials");
        own.any(|check| check["status"] == "WARN" && check["reason"].as_str().unwrap().contains("holds"))
    };
    let ready = client.get("/health/ready");
    assert!(!is_warned(&ready.json()), "{}", ready.text());
    fs::rename(&file, &away).unwrap();
    until(&mut client, "/health/ready", is_warned);
    assert_eq!(client.get("/health/ready").status, 200, "it serves");
    let metrics = client.request("GET", "/metrics", &[("authorization", &ann)], "");
    let line = r#"throng_check{name="credentials",status="WARN"} 1"#;
    assert!(metrics.text().contains(line), "{}", metrics.text());
    fs::rename(&away, &file).unwrap();
    until(&mut client, "/health/ready", |ready| !is_warned(ready));
}

#[test]
fn connections_of_a_token_end_when_it_is_revoked() {
    let (dir, [ann, bob]) = tokens(["ann", "bob"]);
    let file = dir.path().join("tokens");
    let gateway = start(|gateway| gateway.tokens(&file));
    let open = |bearer: &str| {
        let opened = Socket::open(&gateway, &[("authorization", bearer)]);
        let (mut socket, _) = opened.map_err(|status| status.to_string()).unwrap();
        socket.next();
        socket
    };
    let (mut of_ann, mut of_bob) = (open(&ann), open(&bob));
    of_ann.command("S1", "open", &json!({ "capacity": 9 }));
    for socket in [&mut of_ann, &mut of_bob] {
        let subscribe =
            json!({ "type": "subscribe", "id": 1, "kind": "section", "entity": "S1", "after": 1, "credit": 9 });
        socket.send(&subscribe).expect("subscribed", 1);
    }
    of_bob.send(&command("later", "S1", "sign", &json!({})));
    while of_bob.next()["id"] != "later" {}
    let (mut stream_of_ann, mut stream_of_bob) = (stream(&gateway, &ann), stream(&gateway, &bob));
    let lines = fs::read_to_string(&file).unwrap();
    fs::write(&file, lines.lines().next().unwrap()).unwrap();
    assert_eq!(of_bob.close_code(), 4401);
    ends(&mut stream_of_bob);
    // The other streams go on.
    of_ann.send(&command("later", "S1", "sign", &json!({})));
    while of_ann.next()["id"] != "later" {}
    while !stream_of_ann.line().unwrap().contains(r#""seq":3"#) {}
}

#[test]
fn a_waiting_command_of_a_revoked_token_is_answered() {
    let (dir, [ann, _bob]) = tokens(["ann", "bob"]);
    let file = dir.path().join("tokens");
    let options = Options {
        commit_bytes_max: 1,
        ..Options::default()
    };
    let limits = Limits {
        deadline: PATIENCE,
        ..Limits::default()
    };
    let (gateway, hold) = held_with(options, |gateway| gateway.tokens(&file).limits(limits));
    let bearer = [("authorization", ann.as_str())];
    let (mut socket, _) = Socket::open(&gateway, &bearer).unwrap();
    socket.next();
    socket.command("S1", "open", &json!({ "capacity": 9 }));
    hold.send(true).unwrap();
    // The first command fills its commit, so the second must wait for the next one.
    let add = |id: u64| command(id, "S1", "add-student", &json!({ "student": id.to_string() }));
    socket.send(&json!([add(1), add(2)]));
    let lines = fs::read_to_string(&file).unwrap();
    fs::write(&file, lines.lines().next_back().unwrap()).unwrap();
    let mut client = Client::new(&gateway);
    while client.request("GET", "/api/nobody", &bearer, "").status != 401 {}
    hold.send(false).unwrap();
    socket.expect("reply", 1);
    socket.expect("reply", 2);
    assert_eq!(socket.close_code(), 4401);
}

#[test]
fn connections_of_a_token_end_when_it_expires() {
    // Opening both may take any time, so a token that expired too early is replaced by one with a longer life.
    let opened = [2, 8, 32].into_iter().find_map(|seconds| {
        let until = jiff::Timestamp::now() + std::time::Duration::from_secs(seconds);
        let (token, line) = make_token("ann", Some(until)).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tokens");
        fs::write(&file, line).unwrap();
        let gateway = start(|gateway| gateway.tokens(&file));
        let bearer = format!("Bearer {token}");
        let mut client = Client::new(&gateway);
        let fields = [("authorization", bearer.as_str()), ("accept", "text/event-stream")];
        let create = client.request("POST", "/api/section/S1/open", &fields, r#"{"capacity":9}"#);
        client.send(request("GET", "/api/section/S1/events", &fields, ""));
        let is_streaming = create.status == 200 && client.head().unwrap().status == 200;
        let (socket, _) = Socket::open(&gateway, &fields[..1]).ok().filter(|_| is_streaming)?;
        Some((gateway, socket, client))
    });
    let (_gateway, mut socket, mut client) = opened.unwrap();
    assert_eq!(socket.close_code(), 4401);
    ends(&mut client);
}

#[test]
fn a_hook_and_the_apps_own_routes_see_the_caller() {
    let (dir, [ann, bob]) = tokens(["ann", "bob"]);
    let name = async |caller: Option<Caller>| caller.map_or("nobody".to_owned(), |caller| caller.name().to_owned());
    let only = async |caller: Caller| format!("{:?}", caller.means() == Means::Token);
    let routes = axum::Router::new()
        .route("/me", axum::routing::get(name))
        .route("/only", axum::routing::get(only));
    let gateway = start(|gateway| {
        gateway
            .tokens(dir.path().join("tokens"))
            .anonymous()
            .routes(routes)
            .authorize(
                |access: &Access<'_>| match (access.id, access.caller.map(Caller::name)) {
                    (Some(id), Some(name)) if id == name => Ok(()),
                    (_, Some(name)) => {
                        Err(Problem::forbidden(format!("{name} has a section of that name, and no other.")).into())
                    }
                    (_, None) => Err(Problem::unauthorized("Sections are for people with names.").into()),
                },
            )
    });
    for (bearer, name, status) in [
        (Some(&ann), "ann", 200),
        (Some(&bob), "bob", 403),
        (None, "nobody", 401),
    ] {
        let fields: Vec<_> = bearer.iter().map(|bearer| ("authorization", bearer.as_str())).collect();
        for answer in in_both(&gateway, "GET", "/me", &fields, "") {
            assert_eq!(answer.text(), name);
        }
        for answer in in_both(&gateway, "GET", "/only", &fields, "") {
            assert_eq!(answer.status, if name == "nobody" { 401 } else { 200 });
        }
        for answer in in_both(&gateway, "POST", "/api/section/ann/open", &fields, r#"{"capacity":1}"#) {
            assert_eq!(answer.status, status, "{name}");
        }
    }
    // A caller with wrong credentials is not treated as anonymous.
    let wrong = [("authorization", "Bearer x")];
    Client::new(&gateway)
        .request("GET", "/me", &wrong, "")
        .problem(401, "unauthorized");
}

#[test]
fn administration_has_a_listener_of_its_own() {
    let gateway = start(|gateway| gateway.admin(([127, 0, 0, 1], 0).into()));
    let (service, admin) = (gateway.address(), gateway.admin_address().unwrap());
    assert_ne!(service, admin);
    for path in ["/admin/dead", "/admin/stuck", "/metrics"] {
        for refused in in_both(&gateway, "GET", path, &[], "") {
            let problem = refused.problem(404, "unknown-route");
            assert!(
                problem["detail"].to_string().contains("listener of their own"),
                "{problem}"
            );
        }
        assert_eq!(Client::of(admin).get(path).status, 200, "{path}");
    }
    let mut client = Client::of(admin);
    assert_eq!(client.get("/health/ready").status, 200);
    for more in [&[][..], &[FULL]] {
        let refused = Client::of(admin)
            .request("POST", "/api/section/S1/open", more, "{}")
            .problem(404, "unknown-route");
        assert!(
            refused["detail"].to_string().contains("for administration"),
            "{refused}"
        );
        // The console also uses the service's own routes.
        assert_eq!(Client::of(admin).request("GET", "/api/section", more, "").status, 200);
    }
    client.send("GET /admin/dead HTTP/1.1\r\nhost: evil.example\r\n\r\n");
    client.answer().problem(421, "misdirected");
    let page = [("origin", "https://evil.example")];
    Client::of(admin)
        .request("GET", "/metrics", &page, "")
        .problem(403, "forbidden-origin");
}

#[test]
fn a_request_through_a_local_proxy_is_not_local() {
    for gateway in [plain(), start(|gateway| gateway.admin(([127, 0, 0, 1], 0).into()))] {
        let admin = gateway.admin_address().unwrap_or(gateway.address());
        assert_eq!(Client::of(admin).get("/admin/dead").status, 200);
        for by in [
            "forwarded",
            "via",
            "x-forwarded-for",
            "x-forwarded-host",
            "x-real-ip",
            "X-Forwarded-Proto",
            "X-Forwarded-Port",
            "X-Forwarded-Server",
            "X-Client-IP",
            "CF-Connecting-IP",
            "True-Client-IP",
        ] {
            for more in [&[][..], &[FULL]] {
                let fields = [&[(by, "8.8.8.8")][..], more].concat();
                let refused = Client::of(admin).request("GET", "/admin/dead", &fields, "");
                refused.problem(403, "no-administration");
            }
        }
    }
}

#[test]
fn remote_administration_is_closed_until_an_admin_is_named() {
    let (dir, [ann, bob]) = tokens(["ann", "bob"]);
    let everywhere = || ([0, 0, 0, 0], 0).into();
    let closed = start(|gateway| gateway.admin(everywhere()));
    let at = |gateway: &Running| ([127, 0, 0, 1], gateway.admin_address().unwrap().port()).into();
    for path in ["/admin/dead", "/metrics", "/api/section"] {
        Client::of(at(&closed)).get(path).problem(403, "no-administration");
    }
    let named = start(|gateway| {
        let gateway = gateway.admin(everywhere()).tokens(dir.path().join("tokens"));
        gateway.administrator("ann").admin_token("secret")
    });
    for path in ["/admin/dead", "/metrics", "/api/section"] {
        let ask = |bearer: &str| Client::of(at(&named)).request("GET", path, &[("authorization", bearer)], "");
        assert_eq!([ask(&ann).status, ask("Bearer secret").status], [200, 200], "{path}");
        ask(&bob).problem(403, "forbidden");
        ask("Bearer wrong").problem(401, "unauthorized");
        Client::of(at(&named)).get(path).problem(401, "unauthorized");
    }
}

/// Adds a student to the section `S1`, under the key of the request.
pub(crate) async fn add_once(
    State(engine): State<Engine>,
    once: Once,
    Path(student): Path<String>,
) -> Result<Json<Enrolment>, Problem> {
    let section = once.of(engine.entity::<Section>("S1".to_owned()));
    Ok(Json(section.ask(Command::AddStudent { student }).await?))
}

#[test]
fn idempotency_key_is_its_callers_own_on_every_route() {
    let (dir, [ann, bob]) = tokens(["ann", "bob"]);
    let engine = engine();
    let routes = axum::Router::new().route("/add/{student}", axum::routing::post(add_once));
    let gateway = Gateway::builder(engine.clone())
        .tokens(dir.path().join("tokens"))
        .routes(routes.with_state(engine))
        .start()
        .unwrap();
    let mut client = Client::new(&gateway);
    let mut ask = |bearer: &str, path: &str, key: &str, body: &str| {
        let fields = [("authorization", bearer), ("idempotency-key", key)];
        client.request("POST", path, &fields, body)
    };
    let add = "/api/section/S1/add_student";
    assert_eq!(
        ask(&bob, "/api/section/S1/open", "first", r#"{"capacity":9}"#).status,
        200
    );
    for (bearer, student) in [(&bob, "1"), (&ann, "2")] {
        let body = json!({ "student": student }).to_string();
        let enrolled = ask(bearer, add, "K", &body);
        assert_eq!(
            (enrolled.status, enrolled.json()),
            (200, ask(bearer, add, "K", &body).json())
        );
        let reused = ask(bearer, add, "K", r#"{"student":"9"}"#).problem(422, "key-reused");
        let detail = reused["detail"].as_str().unwrap();
        assert!(detail.contains('K') && !detail.contains('@'), "{detail}");
    }
    for (bearer, student) in [(&bob, "3"), (&ann, "4")] {
        assert_eq!(ask(bearer, &format!("/add/{student}"), "own", "").status, 200);
    }
    let spaced = ask(&ann, "/add/5", "own key", "").problem(400, "malformed");
    assert_eq!(spaced["field"], "Idempotency-Key", "{spaced}");
    let (mut socket, _) = Socket::open(&gateway, &[("authorization", &ann)]).unwrap();
    socket.next();
    let mut again = command(1, "S1", "add_student", &json!({ "student": "2" }));
    again["key"] = "K".into();
    assert_eq!(
        socket.send(&again).expect("reply", 1)["body"]["students"],
        json!(["1", "2"])
    );
    let now = ask(&ann, "/api/section/S1/sign", "last", "{}").json();
    assert_eq!(now["students"], json!(["1", "2", "3", "4", "ann"]));
}

#[test]
fn browser_opens_a_socket_and_a_stream_without_a_header() {
    let (dir, [ann, bob]) = tokens(["ann", "bob"]);
    let file = dir.path().join("tokens");
    let gateway = start(|gateway| gateway.tokens(&file));
    let offered = |bearer: &str| {
        let token = base64::Engine::encode(&base64::prelude::BASE64_URL_SAFE_NO_PAD, &bearer[7..]);
        format!("throng.v1, throng.bearer.{token}")
    };
    let open = |offered: &str| Socket::open(&gateway, &[("sec-websocket-protocol", offered)]);
    let (mut socket, response) = open(&offered(&ann)).unwrap();
    assert_eq!(response.headers()["sec-websocket-protocol"], "throng.v1");
    socket.next();
    socket.command("S1", "open", &json!({ "capacity": 9 }));
    assert_eq!(socket.command("S1", "sign", &json!({}))["students"], json!(["ann"]));
    assert_eq!(open(&offered("Bearer throng_wrong")).err(), Some(401));

    let events = "/api/section/S1/events";
    let make = format!("/api/ticket?path={events}");
    let mut client = Client::new(&gateway);
    client.post(&make, "").problem(401, "unauthorized");
    let made = client.request("POST", &make, &[("authorization", &bob)], "");
    assert_eq!((made.status, made.header("cache-control")), (200, Some("no-store")));
    let ticket = made.json()["ticket"].as_str().unwrap().to_owned();
    let follow = |path: &str| {
        let mut client = Client::new(&gateway);
        client.send(request("GET", path, &[("accept", "text/event-stream")], ""));
        let status = client.head().unwrap().status;
        (client, status)
    };
    let (mut stream, status) = follow(&format!("{events}?after=0&ticket={ticket}"));
    assert_eq!(status, 200);
    while !stream.line().unwrap().contains(r#""student":"ann""#) {}
    assert_eq!(follow(&format!("/api/section/S2/events?ticket={ticket}")).1, 401);
    assert_eq!(follow(&format!("{events}?ticket=x")).1, 401);
    client
        .get(&format!("/api/section/S1?ticket={ticket}"))
        .problem(401, "unauthorized");
    // The ticket belongs to the token, and everything opened with it ends with the token.
    let lines = fs::read_to_string(&file).unwrap();
    fs::write(&file, lines.lines().next().unwrap()).unwrap();
    ends(&mut stream);
    assert_eq!(follow(&format!("{events}?ticket={ticket}")).1, 401);
}

#[test]
fn taken_port_of_administration_is_named_as_such() {
    let first = start(|gateway| gateway.admin(([127, 0, 0, 1], 0).into()));
    let taken = first.admin_address().unwrap();
    let error = Gateway::builder(engine())
        .admin(taken)
        .start()
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains(&taken.to_string()) && error.contains("--admin-listen"),
        "{error}"
    );
}

#[test]
fn open_route_of_an_app_needs_no_credentials() {
    let (dir, [_ann]) = tokens(["ann"]);
    let own = || axum::routing::get(async |caller: Option<Caller>| caller.is_none().to_string());
    let gateway = start(|gateway| {
        let routes = axum::Router::new().route("/up", own()).route("/up/more", own());
        gateway
            .tokens(dir.path().join("tokens"))
            .routes(routes)
            .open_route("/up")
    });
    for answer in in_both(&gateway, "GET", "/up", &[], "") {
        assert_eq!((answer.status, answer.text()), (200, "true"));
    }
    for refused in in_both(&gateway, "GET", "/up/more", &[], "") {
        refused.problem(401, "unauthorized");
    }
}
