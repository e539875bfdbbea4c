//! The service and the journal's tools on a private object storage.

use super::{
    crash::hold_what_was_acknowledged,
    kit::{Served, assert_refused, throng},
    postgres::{fill, students},
};
use rustix::process::Signal;
use serde_json::{Value, json};
use servers::Seaweed;
use std::{process::Command, sync::LazyLock};

static SERVER: LazyLock<Seaweed> = LazyLock::new(|| {
    let server = Seaweed::start().unwrap();
    server.create_bucket("journals").unwrap();
    server
});

fn url(prefix: &str) -> String {
    format!("s3://journals/{prefix}?endpoint={}", SERVER.endpoint())
}

fn keyed(arguments: &[&str]) -> Command {
    let mut command = throng();
    command
        .env("AWS_ACCESS_KEY_ID", Seaweed::ACCESS_KEY)
        .env("AWS_SECRET_ACCESS_KEY", Seaweed::SECRET_KEY)
        .args(arguments);
    command
}

fn serve(place: &str, more: &[&str]) -> Served {
    let mut command = keyed(&["serve", "--listen", "127.0.0.1:0", "--journal", place]);
    command.args(more);
    Served::spawn(command)
}

#[test]
fn acknowledged_requests_survive_kill_9_on_object_storage() {
    let url = url("killed");
    hold_what_was_acknowledged(1, 400, &|more| serve(&url, more));
}

#[test]
fn stopped_service_starts_again_and_its_journal_is_sound() {
    let url = url("stopped");
    let served = serve(&url, &[]);
    fill(&served);
    served.signal(Signal::TERM);
    let (status, said) = served.ended();
    assert!(status.success() && said.contains("s3://journals/stopped"), "{said}");
    let again = serve(&url, &[]);
    assert_eq!(students(&again), json!(["ann"]));
    // Verification also works beside a running service.
    let verified = keyed(&["journal", "verify", &url, "--json"]).output().unwrap();
    let said = String::from_utf8_lossy(&verified.stderr);
    assert!(verified.status.success(), "{said}");
    let found: Value = serde_json::from_slice(&verified.stdout).unwrap();
    assert!(found["commits"].as_u64().unwrap() >= 2, "{found}");
    assert_eq!((&found["writers"], &found["damage"]), (&json!(2), &Value::Null));
    let checked = keyed(&["check", "--journal", &url]).output().unwrap();
    assert!(checked.status.success(), "{checked:?}");
}

#[test]
fn storage_that_holds_no_journal_is_refused_with_the_reason() {
    let missing = format!("s3://no-such-bucket/a?endpoint={}", SERVER.endpoint());
    let refused = |arguments: &[&str], parts: &[&str]| assert_refused(&keyed(arguments).output().unwrap(), parts);
    for command in [&["serve", "--journal", &missing][..], &["journal", "verify", &missing]] {
        refused(command, &["no such bucket", "s3://no-such-bucket/a"]);
    }
    let url = url("other");
    assert_refused(&keyed(&["check", "--journal", &url]).output().unwrap(), &["no journal"]);
    refused(
        &["serve", "--journal", &url, "--cluster", "--name", "a"],
        &["PostgreSQL"],
    );
    refused(&["serve", "--journal", &url, "--archive", "old"], &["--archive"]);
    refused(&["journal", "export", &url], &["object storage", "verify"]);
    refused(&["serve", "--journal", "s3://Journals/a"], &["bucket"]);
}
