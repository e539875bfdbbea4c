//! The service and the journal's tools on a private PostgreSQL server.

use super::kit::{Served, assert_refused, run, throng};
use rustix::process::Signal;
use serde_json::{Value, json};
use servers::{Postgres, PostgresOptions};
use std::sync::LazyLock;
use throng_testing::until;

static SERVER: LazyLock<Postgres> = LazyLock::new(|| Postgres::start(PostgresOptions::default()).unwrap());

fn url(schema: &str) -> String {
    format!("{}?schema={schema}&lease=1s", SERVER.url("postgres"))
}

fn serve(place: &str) -> Served {
    serve_with(place, &[])
}

pub(super) fn serve_with(place: &str, more: &[&str]) -> Served {
    let mut command = throng();
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--journal", place])
        .args(more);
    Served::spawn(command)
}

pub(super) fn json_of(arguments: &[&str]) -> Value {
    let output = run(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

pub(super) fn fill(served: &Served) {
    let mut client = served.client();
    let opened = client
        .post("/sections", None, r#"{"section":"A 1","capacity":3}"#)
        .unwrap();
    assert_eq!(opened.status, 201);
    let added = client
        .post("/sections/A%201/add", None, r#"{"student":"ann"}"#)
        .unwrap();
    assert_eq!(added.status, 200);
}

pub(super) fn students(served: &Served) -> Value {
    served.client().get("/sections/A%201/roster").unwrap().json()["students"].clone()
}

#[test]
fn a_service_starts_again_from_its_database_also_after_a_kill() {
    let url = url("killed");
    let served = serve(&url);
    fill(&served);
    served.signal(Signal::KILL);
    drop(served.ended());
    let again = serve(&url);
    assert_eq!(students(&again), json!(["ann"]));
    again.signal(Signal::TERM);
    let (status, said) = again.ended();
    assert!(status.success(), "{said}");
    assert!(
        said.contains("DURABILITY fsync") && said.contains("schema killed"),
        "{said}"
    );
    assert!(!said.contains("secret"), "{said}");
}

#[test]
fn one_command_moves_a_journal_to_a_database_and_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| format!("file:{}", directory.path().join(name).display());
    let (here, back, url) = (path("here"), path("back"), url("moved"));
    let served = serve(&here);
    fill(&served);
    served.signal(Signal::TERM);
    assert!(served.ended().0.success());

    let moved = json_of(&["journal", "import", "--from", &here, "--to", &url, "--json"]);
    assert_eq!(json_of(&["journal", "verify", &url, "--json"])["damages"], json!([]));
    assert_eq!(
        json_of(&["journal", "verify", &url, "--json"])["records"],
        moved["records"]
    );
    let twice = run(&["journal", "import", "--from", &here, "--to", &url]);
    assert_refused(&twice, &["there is a journal in this schema already", "schema=NAME"]);

    let export = |place: &str| String::from_utf8(run(&["journal", "export", place]).stdout).unwrap();
    assert_eq!(export(&url), export(&here));
    json_of(&["journal", "import", "--from", &url, "--to", &back, "--json"]);
    assert_eq!(export(&back), export(&here));

    let served = serve(&url);
    assert_eq!(students(&served), json!(["ann"]));
    served.signal(Signal::TERM);
    assert!(served.ended().0.success());
    let shown = run(&["journal", "inspect", &url, "--entity", "section/A 1"]);
    let said = String::from_utf8(shown.stdout).unwrap();
    assert!(
        said.contains("Opened") && said.contains("ann") && said.contains("schema moved"),
        "{said}"
    );
    assert_eq!(json_of(&["journal", "verify", &url, "--json"])["damages"], json!([]));
}

/// Returns the statements that `docs/postgresql.md` gives after these words.
fn documented(words: &str) -> String {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/postgresql.md");
    let text = std::fs::read_to_string(document).unwrap();
    let (_, after) = text.split_once(words).expect("the document says how");
    let (_, block) = after.split_once("```sql\n").unwrap();
    block.split_once("```").unwrap().0.to_owned()
}

#[test]
fn a_dump_is_restored_and_the_store_rebuilt_as_documented() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("kept.dump").display().to_string();
    SERVER.run("createdb", &["kept"]).unwrap();
    SERVER.run("createdb", &["restored"]).unwrap();
    let served = serve(&SERVER.url("kept"));
    fill(&served);
    let dump = ["--format=custom", "--schema=throng", "--file", &file, "kept"];
    SERVER.run("pg_dump", &dump).unwrap();
    drop(served);
    SERVER.run("pg_restore", &["--dbname=restored", &file]).unwrap();

    let statement = |sql: &str| {
        let arguments = [
            "--dbname=restored",
            "--set=ON_ERROR_STOP=1",
            "--tuples-only",
            "--command",
            sql,
        ];
        let said = String::from_utf8(SERVER.run("psql", &arguments).unwrap()).unwrap();
        said.trim().to_owned()
    };
    for rebuilds in [false, true] {
        if rebuilds {
            statement(&documented("To rebuild the store from the commits"));
            assert_eq!(statement("SELECT count(*) FROM throng.events"), "0");
        }
        if !rebuilds {
            let refused = run(&["serve", "--listen", "127.0.0.1:0", "--journal", &SERVER.url("restored")]);
            assert_refused(&refused, &["is a copy", "database", "--quiet", "--as-primary"]);
        }
        let again = match rebuilds {
            false => serve_with(&SERVER.url("restored"), &["--as-primary"]),
            true => serve(&SERVER.url("restored")),
        };
        assert_eq!(students(&again), json!(["ann"]));
        again.signal(Signal::TERM);
        assert!(again.ended().0.success());
        let whole = "SELECT (SELECT count(*) FROM throng.events) = (SELECT sum(seq) FROM throng.entities)";
        assert_eq!(statement(whole), "t", "every event is there");
    }
}

#[test]
fn a_paused_engine_answers_and_commits_nothing_after_a_takeover() {
    let url = url("paused");
    let first = serve(&url);
    fill(&first);
    first.signal(Signal::STOP);
    let second = serve(&url);
    let mut client = second.client();
    let dropped = client
        .post("/sections/A%201/drop", None, r#"{"student":"ann"}"#)
        .unwrap();
    assert_eq!(dropped.status, 200, "{}", dropped.body);
    first.signal(Signal::CONT);
    let answer = first.client().get("/sections/A%201/roster").unwrap();
    assert_ne!(answer.status, 200, "ann has left: {}", answer.body);
    let refused = first
        .client()
        .post("/sections/A%201/add", None, r#"{"student":"bob"}"#)
        .unwrap();
    assert_ne!(refused.status, 200, "{}", refused.body);
    until("the first one says that it is not ready", || {
        first
            .client()
            .get("/health/ready")
            .is_ok_and(|health| health.status == 503)
    });
    assert_eq!(students(&second), json!([]));
}

#[test]
fn a_taken_over_service_names_its_successor_and_may_exit() {
    let url = url("exits");
    let mut command = throng();
    command.args([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--when-taken-over",
        "exit",
        "--journal",
        &url,
    ]);
    let first = Served::spawn(command);
    fill(&first);
    let second = serve(&url);
    let (status, said) = first.ended();
    assert_eq!(status.code(), Some(3), "{said}");
    assert!(said.contains("was sealed by another engine"), "{said}");
    assert_eq!(students(&second), json!(["ann"]));
}

#[test]
fn a_wrong_database_is_refused_without_showing_the_password() {
    let nothing = url("nothing_there");
    assert_refused(
        &run(&["journal", "verify", &nothing]),
        &["there is no journal in this schema", "schema nothing_there"],
    );
    // Twice, because a check must not set anything up.
    for _ in 0..2 {
        assert_refused(
            &run(&["cluster", "status", "--journal", &nothing]),
            &["there is no journal in this schema"],
        );
    }
    let nobody = nothing.replace("a%20secret", "a%20wrong%20secret");
    for arguments in [&["serve", "--journal", &*nobody][..], &["journal", "inspect", &nobody]] {
        let output = run(arguments);
        assert_refused(
            &output,
            &["password authentication failed", "look at user and password"],
        );
        assert!(!String::from_utf8_lossy(&output.stderr).contains("secret"));
    }
    let unreadable = nobody.replace("lease=1s", "events=often");
    for arguments in [
        &["serve", "--journal", &*unreadable][..],
        &["demo", "--journal", &unreadable],
        &["journal", "export", &unreadable],
        &["journal", "compact", &nothing],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(
            !String::from_utf8_lossy(&output.stderr).contains("secret"),
            "{output:?}"
        );
    }
}

#[test]
fn an_unused_database_loses_history_and_an_erased_entity() {
    let place = url("ends");
    let served = serve(&place);
    fill(&served);
    let prune = ["journal", "prune", &place, "--keep", "section=1", "--json"];
    assert!(!run(&prune).status.success(), "a service uses it");
    served.signal(Signal::TERM);
    assert!(served.ended().0.success());
    let pruned = json_of(&prune);
    assert!(pruned["records"].as_u64() > Some(0), "{pruned}");
    let erased = json_of(&["journal", "erase", &place, "section", "A 1", "--json"]);
    assert!(erased["records"].as_u64() > Some(0), "{erased}");
    let verified = json_of(&["journal", "verify", &place, "--json"]);
    assert_eq!(verified["damages"], json!([]));
    let served = serve(&place);
    assert_eq!(served.client().get("/sections/A%201/roster").unwrap().status, 410);
}
