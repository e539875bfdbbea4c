//! Health, metrics, the OpenAPI document and the HTML pages.

use crate::support::{
    Client,
    http2::Http2,
    plain,
    section::{Enrolment, Refusal},
    start, wait,
};
use serde_json::{Value, json};
use std::{
    io::ErrorKind,
    net::TcpStream,
    sync::{Arc, Mutex},
};
use throng::services::health::{Check, Reason, Status};
use throng_http::{Described, Route};
use throng_testing::openapi_faults;

#[test]
fn health_says_readiness_and_durability() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    assert_eq!(client.get("/health/live").json(), json!({"live": true}));
    let ready = client.get("/health/ready");
    assert_eq!((ready.status, &ready.json()["ready"]), (200, &json!(true)));
    assert_eq!(ready.json()["durability"], "memory");
    wait(gateway.engine().stop());
    let stopped = client.get("/health/ready");
    assert_eq!((stopped.status, &stopped.json()["ready"]), (503, &json!(false)));
    assert!(stopped.json()["reason"].as_str().unwrap().contains("stop"));
    client
        .post("/api/section/S1/open", r#"{"capacity":1}"#)
        .problem(503, "unavailable");
    assert_eq!(client.get("/health/live").status, 200);
}

#[test]
fn a_failing_part_makes_the_service_unready_until_it_passes() {
    let status = Arc::new(Mutex::new((Status::Warn, Reason::None)));
    let asked = status.clone();
    let gateway = start(|gateway| {
        gateway.health(move || {
            let (status, reason) = asked.lock().unwrap().clone();
            let name = "billing".into();
            vec![Check { name, status, reason }]
        })
    });
    let mut client = Client::new(&gateway);
    let ready = client.get("/health/ready");
    assert_eq!((ready.status, &ready.json()["ready"]), (200, &json!(true)));
    let warns = json!([{ "name": "billing", "status": "WARN", "reason": null }]);
    assert_eq!(ready.json()["checks"], warns);
    *status.lock().unwrap() = (Status::Fail, Reason::from("the bank does not answer"));
    let ready = client.get("/health/ready");
    assert_eq!((ready.status, &ready.json()["ready"]), (503, &json!(false)));
    assert_eq!(ready.json()["reason"], "billing fails: the bank does not answer");
    let line = r#"throng_check{name="billing",status="FAIL"} 1"#;
    let metrics = client.get("/metrics");
    let text = metrics.text();
    assert!(text.lines().any(|found| found == line), "{text}");
    *status.lock().unwrap() = (Status::Pass, Reason::None);
    assert_eq!(client.get("/health/ready").status, 200);
}

#[test]
fn metrics_count_requests_by_route_and_problems_by_type() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    client.post("/api/section/S1/open", r#"{"capacity":0}"#);
    client.post("/api/section/S1/add-student", r#"{"student":"7"}"#);
    client.get("/api/section/S1");
    client.get("/api/section/S2");
    let answer = client.get("/metrics");
    assert_eq!(
        answer.header("content-type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    let text = answer.text();
    for line in [
        r#"throng_http_requests_total{route="command",status="2xx"} 1"#,
        r#"throng_http_requests_total{route="command",status="4xx"} 1"#,
        r#"throng_http_requests_total{route="query",status="2xx"} 1"#,
        r#"throng_http_request_seconds_count{route="command"} 2"#,
        r#"throng_http_problems_total{type="full"} 1"#,
        r#"throng_http_problems_total{type="unknown-entity"} 1"#,
        "throng_http_connections 1",
        "throng_http_waiting 0",
        "throng_commits_total 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert!(text.contains("# TYPE throng_commits_total counter\n"), "{text}");
    let accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";
    let open = client.request("GET", "/metrics", &[("accept", accept)], "");
    let media = open.header("content-type").unwrap();
    assert!(media.starts_with("application/openmetrics-text"), "{media}");
    let text = open.text();
    assert!(
        text.contains("# TYPE throng_commits counter\n") && text.ends_with("# EOF\n"),
        "{text}"
    );
}

#[test]
fn the_openapi_document_describes_every_command_and_query() {
    let gateway = start(|gateway| {
        let fragment =
            json!({ "paths": { "/seats": { "get": { "responses": { "200": { "description": "Seats" } } } } } });
        let described = Described::new("seats", "Seats by hand").route(
            Route::post("/seats/{section}/{student}", "Takes a seat")
                .once()
                .replies::<Enrolment>(200, "It is taken")
                .refuses::<Refusal>(),
        );
        gateway.title("Registration", "2").describe(described).openapi(fragment)
    });
    let document = Client::new(&gateway).get("/openapi.json").json();
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["info"]["title"], "Registration");
    assert_eq!(openapi_faults(&document), [""; 0]);
    let paths = document["paths"].as_object().unwrap();
    for path in [
        "",
        "/{id}",
        "/{id}/enrolled",
        "/{id}/events",
        "/{id}/open",
        "/{id}/add_student",
        "/{id}/drop_student",
    ] {
        assert!(paths.contains_key(&format!("/api/section{path}")), "{path}");
    }
    assert!(paths.contains_key("/seats"), "the app's own");
    let own = &document["paths"]["/seats/{section}/{student}"]["post"];
    assert_eq!(
        (&own["tags"], &own["parameters"][1]["name"]),
        (&json!(["seats"]), &json!("student"))
    );
    let reply = &own["responses"]["200"]["content"]["application/json"]["schema"]["$ref"];
    assert_eq!(reply, "#/components/schemas/Enrolment");
    assert!(
        own["responses"]["409"].is_object()
            && document["tags"]
                .as_array()
                .unwrap()
                .contains(&json!({ "name": "seats", "description": "Seats by hand" }))
    );
    let add = &document["paths"]["/api/section/{id}/add_student"]["post"];
    assert_eq!(add["summary"], "Adds a student.");
    let body = &add["requestBody"]["content"]["application/json"]["schema"];
    assert_eq!(body["required"], json!(["student"]));
    assert_eq!(body["properties"]["student"]["description"], "The student's number.");
    for status in ["200", "400", "404", "409", "413", "415", "422", "500", "503", "504"] {
        assert!(add["responses"].get(status).is_some(), "{status}");
    }
    let mut ids = std::collections::BTreeSet::new();
    for operation in paths.values().flat_map(|path| path.as_object().unwrap().values()) {
        if let Some(id) = operation.get("operationId") {
            assert!(ids.insert(id.to_string()), "{id} names two operations");
        }
        for parameter in operation
            .get("parameters")
            .and_then(Value::as_array)
            .unwrap_or(&Vec::new())
        {
            assert!(
                parameter["name"].is_string() && parameter["in"].is_string() && parameter["schema"].is_object(),
                "{parameter}"
            );
            assert!(parameter["in"] != "path" || parameter["required"] == true);
        }
    }
}

#[test]
fn events_of_the_document_are_told_apart_by_name() {
    let document = Client::new(&plain()).get("/openapi.json").json();
    let history = &document["paths"]["/api/section/{id}/events"]["get"]["responses"]["200"];
    let events = &history["content"]["application/json"]["schema"]["properties"]["events"]["items"]["oneOf"];
    let reference = events[0]["$ref"].as_str().unwrap();
    let event = document.pointer(reference.trim_start_matches('#')).unwrap();
    assert!(event["properties"]["name"]["const"].is_string(), "{event}");
    assert!(event["properties"]["payload"].is_object(), "{event}");
}

#[test]
fn administration_has_a_document_of_its_own() {
    let apart = start(|gateway| gateway.admin(([127, 0, 0, 1], 0).into()));
    let together = plain();
    for (address, has_service, has_administration) in [
        (apart.address(), true, false),
        (apart.admin_address().unwrap(), false, true),
        (together.address(), true, true),
    ] {
        let document = Client::of(address).get("/openapi.json").json();
        assert_eq!(openapi_faults(&document), [""; 0]);
        let paths = &document["paths"];
        assert_eq!(paths["/api/section/{id}/open"].is_object(), has_service);
        for (path, method) in [("/metrics", "get"), ("/admin/stuck", "get"), ("/admin/erase", "post")] {
            assert_eq!(paths[path].is_object(), has_administration, "{path}");
            // A service without configured tokens accepts requests without a token.
            let security = json!([{ "administration": [] }, {}]);
            assert!(
                !has_administration || paths[path][method]["security"] == security,
                "{path}"
            );
        }
    }
}

#[test]
fn problem_types_explain_themselves() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    let explained = client.get("/problems/outcome-unknown").json();
    assert_eq!(
        (&explained["type"], &explained["status"]),
        (&json!("/problems/outcome-unknown"), &json!(504))
    );
    let page = client.request("GET", "/problems/expired", &[("accept", "text/html")], "");
    assert_eq!(
        (page.status, page.header("location")),
        (303, Some("/docs#problem-expired"))
    );
}

#[test]
fn the_pages_need_nothing_but_this_server() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    for path in ["/docs", "/"] {
        let page = client.request("GET", path, &[("accept", "text/html")], "");
        assert_eq!(
            (page.status, page.header("content-type")),
            (200, Some("text/html; charset=utf-8"))
        );
        assert!(
            page.header("content-security-policy")
                .unwrap()
                .starts_with("default-src 'none'")
        );
        assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
        assert!(
            !page.text().contains("http://") && !page.text().contains("https://"),
            "{path} asks others"
        );
    }
    assert_eq!(client.get("/").json()["kinds"], json!(["/api/section"]));
}

#[test]
fn owners_of_shards_are_told_where_the_service_has_them() {
    let map = json!({ "version": 3, "shards": 256, "owners": [] });
    let told = map.clone();
    let gateway = start(|gateway| gateway.owners(move || told.clone()));
    let answer = Client::new(&gateway).get("/cluster");
    assert_eq!((answer.status, answer.json()), (200, map));
    assert_eq!(Client::new(&gateway).request("POST", "/cluster", &[], "").status, 405);
    assert_eq!(Client::new(&start(|gateway| gateway)).get("/cluster").status, 404);
}

#[test]
fn entities_answers_name_their_owner_where_it_is_told() {
    let gateway = start(|gateway| gateway.tell_owner(|shard| Some(format!("http://node-{}:80", shard.0))));
    let owner = |id: &str| {
        format!(
            "http://node-{}:80",
            gateway.engine().registry().shard_of("section", id).0
        )
    };
    let mut client = Client::new(&gateway);
    let opened = client.post("/api/section/S%201/open", r#"{"capacity":1}"#);
    assert_eq!(
        (opened.status, opened.header("throng-owner")),
        (200, Some(&*owner("S 1")))
    );
    let add = |student: &str| format!(r#"{{"student":"{student}"}}"#);
    let added = ["1", "2"].map(|student| client.post("/api/section/S%201/add-student", &add(student)));
    for (answer, status) in added.iter().zip([200, 409]) {
        assert_eq!(
            (answer.status, answer.header("throng-owner")),
            (status, Some(&*owner("S 1")))
        );
    }
    for path in ["/api/section/S%201", "/api/section/S%201/events"] {
        let read = client.get(path);
        assert_eq!(
            (read.status, read.header("throng-owner")),
            (200, Some(&*owner("S 1"))),
            "{path}"
        );
    }
    for path in ["/api/section", "/api/section/S2", "/api/nothing/S1", "/health/live"] {
        assert_eq!(client.get(path).header("throng-owner"), None, "{path}");
    }
    wait(async {
        let (http2, _task) = Http2::new(gateway.address(), |_| {}).await;
        let opened = http2.begin("POST", "/api/section/S3/open", r#"{"capacity":1}"#).await;
        assert_eq!(opened.headers()["throng-owner"], *owner("S3"));
    });
    assert_eq!(
        Client::new(&plain())
            .post("/api/section/S1/open", r#"{"capacity":1}"#)
            .header("throng-owner"),
        None
    );
}

#[test]
fn closed_gateway_is_not_ready_until_it_is_opened() {
    let mut gateway = start(|gateway| gateway.closed().admin(([127, 0, 0, 1], 0).into()));
    let mut operator = Client::of(gateway.admin_address().unwrap());
    let ready = operator.get("/health/ready");
    assert_eq!((ready.status, &ready.json()["ready"]), (503, &json!(false)));
    assert!(
        ready.json()["reason"]
            .as_str()
            .unwrap()
            .contains("the port for clients opens")
    );
    assert_eq!(operator.get("/health/live").status, 200);
    let refused = TcpStream::connect(gateway.address()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    gateway.open().unwrap();
    assert_eq!(operator.get("/health/ready").status, 200);
    assert_eq!(Client::new(&gateway).get("/health/ready").status, 200);
}

#[test]
fn index_names_metrics_only_where_they_are() {
    let apart = start(|gateway| gateway.admin(([127, 0, 0, 1], 0).into()));
    let routes = axum::Router::new().route("/own", axum::routing::get(async || "own"));
    let with_app = start(|gateway| gateway.admin(([127, 0, 0, 1], 0).into()).routes(routes));
    let together = plain();
    for (address, is_there) in [
        (apart.address(), false),
        (apart.admin_address().unwrap(), true),
        (with_app.address(), false),
        (with_app.admin_address().unwrap(), true),
        (together.address(), true),
    ] {
        let mut client = Client::of(address);
        assert_eq!(client.get("/metrics").status == 200, is_there);
        assert_eq!(client.get("/").json()["metrics"].is_string(), is_there);
        let page = client.request("GET", "/", &[("accept", "text/html")], "");
        assert_eq!(page.text().contains("/metrics"), is_there);
        assert!(page.text().contains("href=\"/docs\"") && page.text().contains("</html>"));
    }
}
