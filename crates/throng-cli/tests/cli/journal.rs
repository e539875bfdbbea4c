//! `throng journal`, on the data of a stopped service.

use super::kit::{Served, assert_refused, run, throng};
use rustix::process::Signal;
use serde_json::Value;
use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::Stdio,
};
use throng_testing::Client;

/// Creates a data directory with one section and one student, without a running service.
fn data(directory: &Path) -> String {
    let data = directory.join("data");
    let served = Served::start(&data, &[]);
    let mut client = served.client();
    assert_eq!(
        client
            .post("/sections", None, r#"{"section":"A 1","capacity":3}"#)
            .unwrap()
            .status,
        201
    );
    assert_eq!(
        client
            .post("/sections/A%201/add", None, r#"{"student":"ann"}"#)
            .unwrap()
            .status,
        200
    );
    served.signal(Signal::TERM);
    assert!(served.ended().0.success());
    data.display().to_string()
}

fn json(arguments: &[&str]) -> Value {
    let output = run(arguments);
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_directory_is_inspected_and_verified() {
    let directory = tempfile::tempdir().unwrap();
    let data = data(directory.path());
    let shown = run(&["journal", "inspect", &data, "--entity", "section/A 1"]);
    let said = String::from_utf8(shown.stdout).unwrap();
    assert!(said.contains("Opened") && said.contains("ann"), "{said}");
    let verified = json(&["journal", "verify", &data, "--json"]);
    assert_eq!(
        (&verified["entities"], &verified["damages"]),
        (&2.into(), &serde_json::json!([]))
    );
}

#[test]
fn an_export_imported_elsewhere_serves_the_same_rosters() {
    let directory = tempfile::tempdir().unwrap();
    let data = data(directory.path());
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (lines, copy, backup) = (path("history.jsonl"), path("copy"), path("backup"));
    let exported = json(&["journal", "export", &data, "--output", &lines, "--json"]);
    let imported = json(&["journal", "import", &copy, "--input", &lines, "--json"]);
    assert_eq!(exported["records"], imported["records"]);
    assert!(run(&["journal", "backup", &data, &backup]).status.success());
    assert!(run(&["journal", "compact", &data]).status.success());
    for (place, flags) in [(&data, &[][..]), (&copy, &[]), (&backup, &["--as-primary"])] {
        let served = Served::start(Path::new(place), flags);
        let roster = served.client().get("/sections/A%201/roster").unwrap().json();
        assert_eq!(roster["students"], serde_json::json!(["ann"]), "{place}");
    }
}

#[test]
fn damage_is_named_and_ends_with_an_exit_code() {
    let directory = tempfile::tempdir().unwrap();
    let data = data(directory.path());
    let mut hit = 0;
    for entry in fs::read_dir(&data).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        if path.extension().is_some_and(|extension| extension == "log")
            && let Some(place) = bytes.windows(5).position(|window| window == b"\"ann\"")
        {
            bytes[place + 1] ^= 1;
            fs::write(&path, bytes).unwrap();
            hit += 1;
        }
    }
    assert_eq!(hit, 1, "the student stands in one place");
    let output = run(&["journal", "verify", &data]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(".log"), "{said}");
}

#[test]
fn a_directory_without_data_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let empty = directory.path().display().to_string();
    assert_refused(
        &run(&["journal", "verify", &empty]),
        &[&empty, "there is no log in this directory"],
    );
    let served = Served::start(&directory.path().join("used"), &[]);
    let used = directory.path().join("used").display().to_string();
    let elsewhere = directory.path().join("elsewhere").display().to_string();
    assert_refused(
        &run(&["journal", "import", "--from", &used, "--to", &elsewhere]),
        &["in use by another process"],
    );
    assert_refused(
        &run(&["journal", "compact", &used]),
        &["in use by another process", "POST /admin/compact"],
    );
    let mut administrator = Client::connect(served.admin).unwrap();
    let compacted = administrator.post("/admin/compact", None, "").unwrap().json();
    assert!(
        compacted["needed"] == true && compacted["store_bytes_after"].is_u64(),
        "{compacted}"
    );
    drop(served);
    let wrong = run(&["journal", "inspect", &empty, "--commit", "last"]);
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn backups_of_a_running_service_restore_to_any_commit() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (data, copy, early, late) = (path("data"), path("copy"), path("early"), path("late"));
    let served = Served::start(Path::new(&data), &[]);
    let mut client = served.client();
    let opened = client
        .post("/sections", None, r#"{"section":"A","capacity":9}"#)
        .unwrap();
    assert_eq!(opened.status, 201);
    let mut add = |student: &str| {
        let body = format!(r#"{{"student":"{student}"}}"#);
        assert_eq!(client.post("/sections/A/add", None, &body).unwrap().status, 200);
    };
    add("ann");
    let first = json(&["journal", "backup", &data, &copy, "--json"]);
    add("bob");
    let second = json(&["journal", "backup", &data, &copy, "--json"]);
    assert_ne!(first["upto"], second["upto"]);
    // A following backup is complete when it is told to end.
    let mut follow = throng()
        .args(["journal", "backup", &data, &copy, "--follow"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut said = BufReader::new(follow.stdout.take().unwrap());
    said.read_line(&mut line).unwrap();
    assert!(line.contains("the copy reaches commit"), "{line}");
    add("cid");
    rustix::process::kill_process(rustix::process::Pid::from_child(&follow), Signal::TERM).unwrap();
    let followed = follow.wait_with_output().unwrap();
    assert!(followed.status.success(), "{followed:?}");
    served.signal(Signal::KILL);
    drop(served);
    let at = first["upto"].as_str().unwrap();
    json(&["journal", "restore", &copy, &early, "--at", at, "--json"]);
    json(&["journal", "restore", &copy, &late, "--json"]);
    for (place, students) in [
        (&early, vec!["ann"]),
        (&late, vec!["ann", "bob", "cid"]),
        (&copy, vec!["ann", "bob", "cid"]),
    ] {
        let served = Served::start(Path::new(place), &["--quiet"]);
        let roster = served.client().get("/sections/A/roster").unwrap().json();
        assert_eq!(roster["students"], serde_json::json!(students), "{place}");
    }
}

#[test]
fn copied_journal_acts_only_when_told_to() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (data, backup, restored, copied) = (path("data"), path("backup"), path("restored"), path("copied"));
    let open = r#"{"section":"A","capacity":9}"#;
    let served = Served::start(Path::new(&data), &[]);
    assert_eq!(served.client().post("/sections", None, open).unwrap().status, 201);
    drop(served);
    json(&["journal", "backup", &data, &backup, "--json"]);
    json(&["journal", "restore", &backup, &restored, "--json"]);
    let files = std::process::Command::new("cp").args(["-a", &data, &copied]).status();
    assert!(files.unwrap().success());

    for (copy, why) in [
        (&backup, "backed up from"),
        (&restored, "restored from"),
        (&copied, "inode"),
    ] {
        let refused = run(&["serve", "--listen", "127.0.0.1:0", "--data", copy]);
        assert_refused(&refused, &[why, "--quiet", "--as-primary"]);
        // A quiet service leaves the directory a copy.
        for _ in 0..2 {
            let quiet = Served::start(Path::new(copy), &["--quiet"]);
            let mut client = quiet.client();
            assert_eq!(client.get("/sections/A/roster").unwrap().status, 200, "{copy}");
            let add = client.post("/sections/A/add", None, r#"{"student":"ann"}"#).unwrap();
            assert_eq!(add.status, 503);
            assert!(add.body.contains("quiet"), "{add:?}");
            let ready = client.get("/health/ready").unwrap().json();
            assert!(ready["troubles"].to_string().contains("quiet"), "{ready}");
        }
        for flags in [&["--as-primary"][..], &[]] {
            let primary = Served::start(Path::new(copy), flags);
            let add = primary.client().post("/sections/A/add", None, r#"{"student":"ann"}"#);
            assert_eq!(add.unwrap().status, 200, "{copy}");
        }
    }
}

#[test]
fn a_stopped_directory_loses_history_and_an_erased_entity() {
    let directory = tempfile::tempdir().unwrap();
    let data = data(directory.path());
    let archive = directory.path().join("archive").display().to_string();
    let prune = ["journal", "prune", &data, "--keep", "section=1", "--json"];
    let dry = json(&[&prune[..], &["--dry-run"]].concat());
    assert_eq!((&dry["is_dry"], &dry["entities"]), (&true.into(), &1.into()), "{dry}");
    let events = || {
        let shown = run(&["journal", "inspect", &data, "--entity", "section/A 1"]).stdout;
        String::from_utf8(shown).unwrap()
    };
    assert!(events().contains("Opened"), "a dry run removes nothing");
    let pruned = json(&[&prune[..], &["--archive", &archive]].concat());
    assert!(pruned["records"].as_u64() > Some(0), "{pruned}");
    assert!(
        !events().contains("Opened") && events().contains("Added"),
        "{}",
        events()
    );
    let verified = json(&["journal", "verify", &data, "--json"]);
    assert_eq!(verified["damages"], serde_json::json!([]));
    let verified = String::from_utf8(run(&["journal", "verify", &data]).stdout).unwrap();
    assert!(
        verified.contains("made 20") && verified.contains("Z, was removed"),
        "{verified}"
    );
    let archived = run(&["journal", "inspect", &archive, "--entity", "section/A 1"]).stdout;
    assert!(
        String::from_utf8(archived).unwrap().contains("Opened"),
        "it is in the archive"
    );

    let erase = ["journal", "erase", &data, "section", "A 1", "--archive", &archive];
    let served = Served::start(Path::new(&data), &[]);
    assert_refused(&run(&erase), &["in use by another process"]);
    served.signal(Signal::TERM);
    assert!(served.ended().0.success());
    assert!(run(&erase).status.success());
    for place in [&data, &archive] {
        let shown = run(&["journal", "inspect", place, "--entity", "section/A 1"]).stdout;
        let shown = String::from_utf8(shown).unwrap();
        assert!(
            !shown.contains("section/A 1 event") && !shown.contains("capacity"),
            "{place}: {shown}"
        );
    }
    let nobody = ["journal", "erase", &data, "section", "nobody"];
    assert_refused(&run(&nobody), &["nobody"]);
}
