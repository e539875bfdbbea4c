//! `throng load` with the shipped plans, against their app.

use super::kit::{Served, throng};
use serde_json::Value;
use std::{
    io::Read,
    net::TcpListener,
    process::{Output, Stdio},
};

/// Runs the shipped registration plan, a minute in half a second.
fn registration(served: &Served, more: &[&str]) -> (Output, Value) {
    let target = format!("http://{}", served.address);
    let output = throng()
        .args([
            "load",
            "run",
            "registration",
            "--quiet",
            "--json",
            "-",
            "--target",
            &target,
        ])
        .args(["--set", "pace=120", "--set", "requests=6000"])
        .args(more)
        .output()
        .unwrap();
    let report = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    (output, report)
}

fn sections(served: &Served) -> usize {
    let mut client = served.client();
    let (mut count, mut after) = (0, String::new());
    loop {
        let page = client.get(&format!("/sections?limit=1000{after}")).unwrap().json();
        count += page["sections"].as_array().unwrap().len();
        match page["after"].as_str() {
            Some(last) => after = format!("&after={}", last.replace(' ', "%20")),
            None => return count,
        }
    }
}

/// Nobody is refused on a busy machine; refusals have other tests.
const PATIENT: &[&str] = &["--wait", "5s"];

#[test]
fn the_registration_plan_opens_all_sections_and_is_answered() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path(), PATIENT);
    let (output, report) = registration(&served, &[]);
    assert!(output.status.success(), "{report}");
    let counters = &report["counters"];
    assert_eq!(counters["failures"], 0, "{counters}");
    assert_eq!(counters["successes"], 5_393 + 5_976, "{counters}");
    let statuses = counters["statuses"].as_object().unwrap();
    assert_eq!(statuses["201"], 5_393);
    assert!(statuses["200"].as_u64().unwrap() > 0, "{statuses:?}");
    assert!(
        statuses
            .keys()
            .all(|status| ["200", "201", "409"].contains(&status.as_str())),
        "{statuses:?}"
    );
    assert_eq!(sections(&served), 5_393);
}

#[test]
fn the_gateway_answers_the_registration_plan_over_http2() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path(), PATIENT);
    let (output, report) = registration(&served, &["--http2", "--streams", "50", "--connections", "2"]);
    assert!(output.status.success(), "{report}");
    let counters = &report["counters"];
    assert_eq!(counters["failures"], 0, "{counters}");
    assert_eq!(counters["successes"], 5_393 + 5_976, "{counters}");
    assert_eq!(report["settings"]["protocol"], "HTTP/2");
    assert_eq!(report["settings"]["streams"], "50");
    assert_eq!(report["connections_opened"], 2, "{report}");
    assert_eq!(sections(&served), 5_393);
}

#[test]
fn without_the_sections_the_registration_plan_fails() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path(), &[]);
    let (output, report) = registration(&served, &["--set", "sections=0"]);
    assert_eq!(output.status.code(), Some(1));
    let counters = &report["counters"];
    assert_eq!(counters["successes"], 0, "{counters}");
    assert_eq!(counters["failures"], 5_976, "{counters}");
    assert_eq!(counters["errors"]["client-error"], 5_976, "{counters}");
    assert_eq!(sections(&served), 0);
}

#[test]
fn a_signal_told_twice_ends_a_run_with_its_report() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("http://{}", listener.local_addr().unwrap());
    let load = throng()
        .args(["load", &target, "--for", "1h", "-c", "1", "-q", "--json", "-"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut connection, _) = listener.accept().unwrap();
    connection.read_exact(&mut [0; 16]).unwrap(); // it is under way
    let process = rustix::process::Pid::from_child(&load);
    for _ in 0..2 {
        rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
    }
    let output = load.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["ended"], "stopped");
    assert_eq!(report["counters"]["errors"]["unanswered"], 1, "{report}");
}
