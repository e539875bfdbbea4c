//! An app's own routes besides the generic ones.

use crate::support::{
    Client,
    both_paths::FULL,
    engine,
    section::{Command, Enrolment, Section},
};
use axum::{
    Json, Router,
    extract::{Path, State},
    routing::{get, post},
};
use throng::Engine;
use throng_http::{Gateway, Problem, Running};

async fn seat(
    State(engine): State<Engine>,
    Path((section, student)): Path<(String, String)>,
) -> Result<Json<Enrolment>, Problem> {
    Ok(Json(
        engine
            .entity::<Section>(section)
            .ask(Command::AddStudent { student })
            .await?,
    ))
}

fn with_app() -> Running {
    let engine = engine();
    let routes = Router::new()
        .route("/seats/{section}/{student}", post(seat))
        .route("/length", post(async |body: String| body.len().to_string()))
        .route("/crash", get(async || -> &'static str { panic!("it was asked to") }))
        .with_state(engine.clone());
    Gateway::builder(engine).routes(routes).start().unwrap()
}

#[test]
fn a_handler_asks_entities_and_answers_problems() {
    let gateway = with_app();
    let mut client = Client::new(&gateway);
    client.post("/seats/S1/7", "").problem(404, "unknown-entity");
    client.post("/api/section/S1/open", r#"{"capacity":1}"#);
    let taken = client.post("/seats/S1/7", "");
    assert_eq!((taken.status, taken.json()["students"][0].as_str()), (200, Some("7")));
    let full = client.post("/seats/S1/8", "").problem(409, "full");
    assert_eq!(full["rejection"]["full"]["capacity"], 1);
    gateway.stop_blocking();
}

#[test]
fn routes_of_the_gateway_are_not_asked_of_the_app() {
    let gateway = with_app();
    let mut client = Client::new(&gateway);
    let own = [
        "/console",
        "/console/",
        "/console/console.js",
        "/metrics",
        "/health/live",
        "/docs",
    ];
    let statuses = own.map(|path| client.get(path).status);
    assert_eq!(statuses, [308, 200, 200, 200, 200, 200]);
    client.get("/console/none.js").problem(404, "unknown-route");
    gateway.stop_blocking();
}

#[test]
fn an_unknown_route_of_the_app_is_a_problem_too() {
    let gateway = with_app();
    let mut client = Client::new(&gateway);
    client.get("/seats").problem(404, "unknown-route");
    let answer = client.get("/length");
    let problem = answer.problem(405, "method-not-allowed");
    assert_eq!(problem["detail"], "GET is not possible here; POST is.");
    assert_eq!(problem["instance"], "/length");
    assert_eq!(answer.header("allow"), Some("POST"));
    assert_eq!(
        client.get("/").json()["docs"],
        "/docs",
        "the index is there unless the app has its own"
    );
}

#[test]
fn a_handlers_body_has_the_gateways_limit() {
    let gateway = with_app();
    let mut client = Client::new(&gateway);
    assert_eq!(
        client.request("POST", "/length", &[], &"x".repeat(1 << 20)).text(),
        (1 << 20).to_string()
    );
    client
        .request("POST", "/length", &[], &"x".repeat((1 << 20) + 1))
        .problem(413, "too-large");
}

#[test]
fn a_handler_that_panics_costs_its_request_and_nothing_else() {
    let gateway = with_app();
    let mut client = Client::new(&gateway);
    let problem = client.get("/crash").problem(500, "crashed");
    assert_eq!(
        problem["detail"],
        "The handler of this request crashed: it was asked to."
    );
    assert_eq!(client.get("/health/live").status, 200);
}

#[test]
fn an_app_may_have_the_front_page() {
    let routes = Router::new().route("/", get(async || "welcome"));
    let gateway = Gateway::builder(engine()).routes(routes).start().unwrap();
    assert_eq!(Client::new(&gateway).get("/").text(), "welcome");
}

#[test]
fn an_app_answers_the_names_below_api_that_are_its_own() {
    let routes = Router::new().route("/api/context", get(async || "ours").post(async || "ours, too"));
    let gateway = Gateway::builder(engine())
        .routes(routes)
        .app_name("context")
        .start()
        .unwrap();
    let mut client = Client::new(&gateway);
    assert_eq!(client.get("/api/context").text(), "ours");
    assert_eq!(client.post("/api/context", "{}").text(), "ours, too");
    client.get("/api/context/S1").problem(404, "unknown-kind");
    assert_eq!(client.post("/api/section/S1/open", r#"{"capacity":1}"#).status, 200);
}

#[test]
fn listener_for_administration_serves_no_page_of_an_app() {
    let page = async || axum::response::Html("<script>fetch('/admin/overview')</script>");
    let picture = async || ([("content-type", "image/svg+xml")], "<svg/>");
    let routes = Router::new()
        .route("/page", get(page))
        .route("/picture", get(picture))
        .route("/data", get(async || Json("<b>")));
    let gateway = Gateway::builder(engine())
        .routes(routes)
        .admin(([127, 0, 0, 1], 0).into())
        .start()
        .unwrap();
    let admin = gateway.admin_address().unwrap();
    for more in [&[][..], &[FULL]] {
        for (path, kind) in [
            ("/page", "text/plain; charset=utf-8"),
            ("/picture", "text/plain; charset=utf-8"),
            ("/data", "application/json"),
        ] {
            let shown = Client::of(admin).request("GET", path, more, "");
            assert_eq!(
                (shown.status, shown.header("content-type")),
                (200, Some(kind)),
                "{path}"
            );
            assert_eq!(shown.header("x-content-type-options"), Some("nosniff"), "{path}");
            let policy = shown.header("content-security-policy");
            assert_eq!(policy, Some("sandbox; default-src 'none'"), "{path}");
        }
        let own = Client::new(&gateway).request("GET", "/page", more, "");
        assert_eq!(own.header("content-type"), Some("text/html; charset=utf-8"));
    }
}
