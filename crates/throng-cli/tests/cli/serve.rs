//! `throng serve`: refusals at the start, and a graceful stop.

use super::kit::{Served, assert_refused, run, throng};
use rustix::process::Signal;
use serde_json::json;
use std::{fs, net::TcpListener};
use throng_testing::{Client, JSON, until};

#[test]
fn a_second_process_on_one_data_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().display().to_string();
    let _first = Served::start(directory.path(), &[]);
    let second = run(&["serve", "--listen", "127.0.0.1:0", "--data", &data]);
    assert_eq!(second.status.code(), Some(1));
    assert_refused(
        &second,
        &[&data, "in use by another process", "choose another directory"],
    );
}

#[test]
fn a_taken_port_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = holder.local_addr().unwrap().to_string();
    let output = run(&[
        "serve",
        "--listen",
        &address,
        "--data",
        &directory.path().display().to_string(),
    ]);
    assert_refused(&output, &[&address, "in use by another program", "choose another port"]);
}

#[test]
fn a_directory_of_another_version_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path(), &[]);
    assert_eq!(
        served
            .client()
            .post("/sections", None, r#"{"section":"S","capacity":1}"#)
            .unwrap()
            .status,
        201
    );
    served.signal(Signal::TERM);
    assert!(served.ended().0.success());

    // The version of the format begins at byte 8 of a segment's header, and of its copy one sector later.
    let segments: Vec<_> = fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    assert!(!segments.is_empty());
    for segment in &segments {
        let mut bytes = fs::read(segment).unwrap();
        for header in [0, 512] {
            bytes[header + 8..header + 12].copy_from_slice(&9_u32.to_le_bytes());
        }
        fs::write(segment, bytes).unwrap();
    }
    let output = run(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data",
        &directory.path().display().to_string(),
    ]);
    assert_refused(&output, &["version 9", "this program reads 1"]);
    for segment in &segments {
        assert_eq!(fs::read(segment).unwrap()[8], 9);
    }
}

#[test]
fn a_data_directory_that_is_a_file_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().display().to_string();
    let output = run(&["serve", "--listen", "127.0.0.1:0", "--data", &path]);
    assert_refused(&output, &["cannot open the data directory", &path]);
}

#[test]
fn arguments_that_make_no_sense_are_explained() {
    for (arguments, part) in [
        (&["serve", "--listen", "nowhere"][..], "--listen"),
        (&["demo", "--pace", "0"], "above 0"),
        (&["demo", "--capacities", "c.txt"], "--requests"),
        (&["demo", "--clients", "0"], "--clients"),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn sigterm_answers_and_keeps_requests_in_flight() {
    const CLIENTS: usize = 8;
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path(), &["--sync-delay", "300ms"]);
    let mut watcher = Client::connect(served.admin).unwrap();
    assert_eq!(
        served
            .client()
            .post("/sections", None, r#"{"section":"S","capacity":9}"#)
            .unwrap()
            .status,
        201
    );
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| served.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        let body = json!({ "student": format!("s{number}") }).to_string();
        client.send("POST", "/api/section/S/add", JSON, &body).unwrap();
    }
    // The answer of a read waits for the state that it shows. So the requests are counted where nothing waits: among the commands taken.
    until("all requests are taken", || {
        let metrics = watcher.get("/metrics").unwrap().body;
        let done = metrics
            .lines()
            .find_map(|line| line.strip_prefix("throng_commands_done_total ")?.parse().ok());
        done.unwrap_or(0.0) >= (CLIENTS + 1) as f64
    });
    served.signal(Signal::TERM);
    for client in &mut clients {
        assert_eq!(client.response().unwrap().status, 200);
    }
    let (status, said) = served.ended();
    assert_eq!(status.code(), Some(0), "{said}");

    let again = Served::start(directory.path(), &[]);
    assert_eq!(again.client().get("/sections/S").unwrap().json()["taken"], CLIENTS);
}

#[test]
fn durability_below_fsync_is_said_loudly() {
    for (durability, word) in [("os", "NOT POWER LOSS"), ("memory", "NOTHING IS WRITTEN")] {
        let directory = tempfile::tempdir().unwrap();
        let served = Served::start(directory.path(), &["--durability", durability]);
        served.signal(Signal::TERM);
        let (status, said) = served.ended();
        assert!(status.success());
        assert!(said.contains("WARN") && said.contains(word), "{said}");
        let is_empty = fs::read_dir(directory.path()).unwrap().next().is_none();
        assert_eq!(is_empty, durability == "memory");
    }
}

#[test]
fn a_token_that_was_made_lets_its_caller_in() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens").display().to_string();
    let made = run(&["token", "ann", "--tokens", &file]);
    let token = String::from_utf8(made.stdout).unwrap();
    assert!(token.starts_with("throng_") && !fs::read_to_string(&file).unwrap().contains(token.trim()));
    let served = Served::start(&directory.path().join("data"), &["--tokens", &file]);
    let mut client = served.client();
    assert_eq!(client.get("/api/section").unwrap().status, 401);
    let bearer = format!("authorization: Bearer {}\r\n", token.trim());
    assert_eq!(client.request("GET", "/api/section", &bearer, "").unwrap().status, 200);
    assert_eq!(client.get("/health/ready").unwrap().status, 200);
    assert_refused(&run(&["token", "a b"]), &["\"a b\" is no name"]);
    let over = run(&["token", "ann", "--until", "2020-01-31T00:00:00Z"]);
    let warned = String::from_utf8_lossy(&over.stderr).into_owned();
    assert!(over.status.success() && warned.contains("over already"), "{warned}");
}

#[test]
fn a_service_open_to_everybody_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = throng();
    command
        .args(["serve", "--listen", "0.0.0.0:0", "--data"])
        .arg(directory.path());
    let served = Served::spawn(command);
    served.signal(Signal::TERM);
    let (_, said) = served.ended();
    assert!(said.contains("WARN") && said.contains("NO AUTHENTICATION"), "{said}");
}

#[test]
fn help_names_every_command() {
    let output = throng().arg("--help").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    for command in ["demo", "serve", "load", "journal", "trace"] {
        assert!(said.contains(&format!("\n  {command} ")), "{said}");
    }
}

#[test]
fn the_access_log_file_is_made_anew_after_it_is_moved() {
    let directory = tempfile::tempdir().unwrap();
    let (data, file) = (directory.path().join("data"), directory.path().join("access.log"));
    let name = file.display().to_string();
    let served = Served::start(&data, &["--access-log", "all", "--access-log-file", &name]);
    served
        .client()
        .post("/sections", None, r#"{"section":"S","capacity":1}"#)
        .unwrap();
    until("the line is written", || {
        fs::read_to_string(&file).unwrap().contains("\"path\":\"/sections\"")
    });
    fs::rename(&file, directory.path().join("access.log.1")).unwrap();
    served.client().get("/sections?limit=5").unwrap();
    until("the file is made anew", || {
        fs::read_to_string(&file).is_ok_and(|text| !text.is_empty())
    });
    served.signal(Signal::TERM);
    assert!(served.ended().0.success());
    let line = fs::read_to_string(&file).unwrap();
    assert!(line.contains("\"status\":200") && !line.contains("limit"), "{line}");
}

#[test]
fn read_models_of_a_service_that_runs_are_told_by_itself() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().display().to_string();
    let _served = Served::start(directory.path(), &[]);
    let output = run(&["projection", "list", "--data", &data]);
    assert_refused(&output, &["its own /metrics says how far", "in use by another process"]);
    assert_refused(&run(&["projection", "list"]), &["say where the read models stand"]);
}

#[test]
fn top_shows_numbers_over_tls_if_it_trusts_the_certificate() {
    let directory = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name).display().to_string();
        fs::write(&path, text).unwrap();
        path
    };
    let certificate = file("cert.pem", &made.cert.pem());
    let key = file("key.pem", &made.signing_key.serialize_pem());
    let mut command = throng();
    command
        .args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--admin-listen",
            "0.0.0.0:0",
            "--data",
        ])
        .arg(directory.path().join("data"))
        .args(["--tls-cert", &certificate, "--tls-key", &key])
        .env("THRONG_ADMIN_TOKEN", "a-token-of-this-test");
    let served = Served::spawn(command);
    let url = format!("https://127.0.0.1:{}", served.admin.port());
    let top = |more: &[&str]| {
        let asked = ["top", &url, "--once", "--token", "a-token-of-this-test"];
        run(&[&asked, more].concat())
    };
    let shown = top(&["--tls-roots", &certificate]);
    let said = String::from_utf8_lossy(&shown.stdout);
    assert!(
        shown.status.success() && said.contains("commands/s"),
        "{said} {}",
        String::from_utf8_lossy(&shown.stderr)
    );
    assert_refused(&top(&[]), &["--tls-roots"]);
}

#[test]
fn requests_go_on_for_the_grace_while_ready_is_false() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path(), &["--drain-grace", "600s"]);
    let mut client = served.client();
    assert_eq!(client.get("/health/ready").unwrap().status, 200);
    served.signal(Signal::TERM);
    until("it is not ready", || {
        served.client().get("/health/ready").unwrap().status == 503
    });
    let why = served.client().get("/health/ready").unwrap().json();
    assert!(why["reason"].as_str().unwrap().contains("--drain-grace"), "{why}");
    let made = served
        .client()
        .post("/sections", None, r#"{"section":"S","capacity":1}"#)
        .unwrap();
    assert_eq!(made.status, 201);
    served.signal(Signal::TERM);
    assert_eq!(served.ended().0.code(), Some(130), "a second signal does not wait");
}
