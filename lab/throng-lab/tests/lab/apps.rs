//! The apps' own programs, which the lab starts as processes.

use super::kit::{Served, assert_refused, run, throng};
use rustix::process::Signal;
use serde_json::Value;
use servers::{Postgres, PostgresOptions};
use std::sync::LazyLock;
use throng_testing::{Client, openapi_faults, until};

static SERVER: LazyLock<Postgres> = LazyLock::new(|| Postgres::start(PostgresOptions::default()).unwrap());

fn serve(app: &str, data: &str) -> Served {
    let mut command = throng();
    command.args(["app", app, "serve", "--listen", "127.0.0.1:0", "--data", data]);
    Served::spawn(command)
}

fn json(arguments: &[&str]) -> Value {
    let output = run(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn primes_are_served() {
    let directory = tempfile::tempdir().unwrap();
    let served = serve("primes", &directory.path().display().to_string());
    let mut client = served.client();
    let three = client.get("/primes/3").unwrap();
    assert_eq!((three.status, three.body.as_str()), (200, r#"["2","3","5"]"#));
    assert_eq!(client.get("/primes/-3").unwrap().status, 400);
    assert_eq!(client.get("/primes/5000").unwrap().json()[4_999], "48611");
}

#[test]
fn generators_take_the_documents_of_all_apps() {
    for app in [
        "bank",
        "picos",
        "preferences",
        "primes",
        "registration",
        "shows",
        "skiers",
        "tickets",
    ] {
        let directory = tempfile::tempdir().unwrap();
        let served = serve(app, &directory.path().display().to_string());
        let document = served.client().get("/openapi.json").unwrap().json();
        assert_eq!(openapi_faults(&document), [""; 0], "{app}");
        assert!(document["paths"]["/metrics"].is_null(), "{app}");
    }
}

#[test]
fn check_names_kinds_the_program_lacks() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().display().to_string();
    let served = serve("registration", &data);
    served
        .client()
        .post("/sections", None, r#"{"section":"S","capacity":1}"#)
        .unwrap();
    let check = |app: &str| run(&["app", app, "check", "--data", &data]);
    assert_eq!(check("registration").status.code(), Some(0));
    let other = check("shows");
    assert_eq!(other.status.code(), Some(1));
    let said = String::from_utf8(other.stdout).unwrap();
    assert!(said.contains("the program was not given this kind"), "{said}");
}

#[test]
fn entity_of_a_stopped_directory_is_quarantined_and_released() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data").display().to_string();
    let serve = || serve("bank", &data);
    let ask = |client: &mut Client, path: &str, body: &str| client.post(path, None, body).unwrap().status;
    let end = |served: Served| {
        served.signal(Signal::TERM);
        assert!(served.ended().0.success());
    };
    let decide = |what: &str, id: &str| {
        let entity = [data.as_str(), "account", id, "--json"];
        [
            &["app", "bank", "journal", what],
            &entity[..],
            &["--reason", "a loop", "--by", "ann"],
        ]
        .concat()
        .into_iter()
        .map(str::to_owned)
        .collect::<Vec<_>>()
    };
    let decided = |what: &str| {
        let arguments = decide(what, "bob");
        json(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let served = serve();
    let mut client = served.client();
    for (path, body) in [
        ("ann/open", "{}"),
        ("bob/open", "{}"),
        ("ann/deposit", r#"{"cents":500}"#),
    ] {
        assert_eq!(ask(&mut client, &format!("/api/account/{path}"), body), 200);
    }
    let in_use = decide("quarantine", "bob");
    let in_use: Vec<&str> = in_use.iter().map(String::as_str).collect();
    assert_refused(&run(&in_use), &["in use by another process"]);
    end(served);
    assert_eq!(decided("quarantine"), serde_json::json!({ "quarantined": true }));
    assert_eq!(decided("quarantine"), serde_json::json!({ "quarantined": false }));
    let shown = run(&["app", "bank", "journal", "inspect", &data, "--entity", "account/bob"]).stdout;
    assert!(String::from_utf8(shown).unwrap().contains("~quarantine"));

    let served = serve();
    let mut client = served.client();
    assert_eq!(ask(&mut client, "/api/account/bob/deposit", r#"{"cents":1}"#), 500);
    let transfer = r#"{"to":"bob","cents":200}"#;
    assert_eq!(ask(&mut client, "/api/account/ann/transfer", transfer), 200);
    end(served);
    assert_eq!(decided("drop-messages"), serde_json::json!({ "dropped": 1 }));
    assert_eq!(decided("drop-messages"), serde_json::json!({ "dropped": 0 }));
    assert_eq!(decided("release"), serde_json::json!({ "released": true }));
    assert_eq!(decided("release"), serde_json::json!({ "released": false }));

    let served = serve();
    let mut client = served.client();
    assert_eq!(ask(&mut client, "/api/account/bob/deposit", r#"{"cents":1}"#), 200);
    // The answer says that the transfer was dropped.
    while client.get("/api/account/ann").unwrap().json()["cents"] != 500 {}
    end(served);
    let nobody = decide("quarantine", "nobody");
    let nobody: Vec<&str> = nobody.iter().map(String::as_str).collect();
    assert_refused(&run(&nobody), &["nobody"]);
}

/// Starts the app `shows`. Variables name its database, as in the original's deployments.
fn serve_shows(schema: &str, projections: &str) -> Served {
    let mut command = throng();
    command.args(["app", "shows", "serve", "--listen", "127.0.0.1:0"]);
    command
        .env("SQL_HOST", "127.0.0.1")
        .env("SQL_PORT", SERVER.port().to_string());
    command
        .env("SQL_USER", Postgres::USER)
        .env("SQL_PASSWORD", Postgres::PASSWORD);
    command
        .env("SQL_DB_NAME", schema)
        .env("APP_RUN_PROJECTIONS", projections);
    Served::spawn(command)
}

fn is_available(served: &Served, show: &str) -> bool {
    let page = served.client().get("/shows?available=true").unwrap();
    page.status == 200 && page.body.contains(show)
}

#[test]
fn shows_take_the_original_variables_and_rebuild_a_read_model() {
    const SHOW: &str = "0b31ab76-c5a3-4d3c-9f3f-6f6ad9a5a3b7";
    const NAME: &str = "available-shows";
    let created = SERVER.run("createdb", &["shows"]);
    assert!(created.is_ok(), "{created:?}");
    let served = serve_shows("shows", "true");
    let create = format!(r#"{{"showId":"{SHOW}","title":"Hamlet","maxSeats":50}}"#);
    assert_eq!(served.client().post("/shows", None, &create).unwrap().status, 201);
    until("the show is available", || is_available(&served, SHOW));
    served.signal(Signal::TERM);
    let (status, said) = served.ended();
    assert!(
        status.success() && said.contains("/shows, schema throng") && !said.contains("secret"),
        "{said}"
    );

    let place = ["--journal", &SERVER.url("shows")];
    let projection = |command: &[&str]| run(&[&["app", "shows", "projection"], command, &place].concat());
    let listed = String::from_utf8(projection(&["list"]).stdout).unwrap();
    assert!(listed.starts_with("available-shows: up to commit "), "{listed}");
    let rebuilt = String::from_utf8(projection(&["rebuild", NAME]).stdout).unwrap();
    assert!(rebuilt.starts_with("available-shows had come to commit"), "{rebuilt}");
    assert_refused(
        &projection(&["rebuild", NAME]),
        &["there is no read model \"available-shows\" that was written"],
    );

    let without = serve_shows("shows", "false");
    assert!(!is_available(&without, SHOW), "no projection runs");
    assert_eq!(without.client().get(&format!("/shows/{SHOW}")).unwrap().status, 200);
    without.signal(Signal::TERM);
    assert!(without.ended().0.success());
    let with = serve_shows("shows", "true");
    until("it is rebuilt", || is_available(&with, SHOW));

    let mut neither = throng();
    neither.args(["app", "shows", "serve"]).env("APP_RUN_PROJECTIONS", "no");
    assert_refused(
        &neither.output().unwrap(),
        &["APP_RUN_PROJECTIONS is \"no\"", "true or false"],
    );
}
