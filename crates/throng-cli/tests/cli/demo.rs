//! `throng demo`, end to end on a small trace.

use super::kit::{assert_refused, run, small_trace, throng};
use registration::{reference::Expected, trace::Trace};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Read},
    net::TcpListener,
    path::Path,
    process::Stdio,
};

fn demo(directory: &Path, more: &[&str]) -> std::process::Output {
    let (capacities, requests) = small_trace(directory);
    let data = directory.join("data").display().to_string();
    let mut arguments = vec![
        "demo",
        "--exit",
        "--data",
        &data,
        "--capacities",
        &capacities,
        "--requests",
        &requests,
    ];
    arguments.extend(more);
    run(&arguments)
}

fn expected(directory: &Path) -> (Trace, Expected) {
    let (capacities, requests) = small_trace(directory);
    let trace = Trace::read(Path::new(&capacities), Path::new(&requests)).unwrap().trace;
    let expected = Expected::of(&trace);
    (trace, expected)
}

#[test]
fn a_replay_ends_in_the_reference_s_rosters() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rosters.txt").display().to_string();
    let page = directory.path().join("run.html").display().to_string();
    let output = demo(directory.path(), &["--rosters", &file, "--html", &page]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("all as they must be"), "{said}");
    assert!(
        output.stderr.is_empty(),
        "quiet in a pipe: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let (_, expected) = expected(directory.path());
    let lines: Vec<String> = fs::read_to_string(file).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(lines, expected.rosters.lines());
    assert!(fs::read_to_string(page).unwrap().starts_with("<!"));
}

#[test]
fn json_is_one_object_of_exactly_these_fields() {
    let directory = tempfile::tempdir().unwrap();
    let output = demo(directory.path(), &["--json"]);
    assert!(output.status.success());
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<String>>();
    let fields = [
        "requests",
        "granted",
        "refused",
        "dropped",
        "elapsed_s",
        "requests_per_s",
        "latency_ms",
        "commits",
        "mean_batch",
        "recovery_s",
        "sections",
        "enrolled",
        "differences",
    ];
    assert_eq!(names(&summary), fields.map(String::from).into());
    let latencies = ["min", "mean", "p50", "p95", "p99", "p999", "max"];
    assert_eq!(names(&summary["latency_ms"]), latencies.map(String::from).into());

    let (trace, expected) = expected(directory.path());
    assert_eq!(summary["requests"], trace.requests.len());
    assert_eq!(summary["sections"], trace.sections.len());
    assert_eq!(summary["enrolled"], expected.rosters.enrolled());
    assert_eq!(summary["differences"], 0);
    let of = |name: &str| summary[name].as_u64().unwrap();
    assert_eq!(
        of("granted") + of("refused") + of("dropped"),
        trace.requests.len() as u64
    );
    assert!(of("commits") > 0 && summary["mean_batch"].as_f64().unwrap() >= 1.0);
}

#[test]
fn without_order_the_rosters_follow_from_the_answers() {
    let directory = tempfile::tempdir().unwrap();
    let output = demo(directory.path(), &["--unordered", "--json", "--clients", "200"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["differences"], 0);
}

#[test]
fn a_replay_in_time_takes_every_request() {
    let directory = tempfile::tempdir().unwrap();
    let output = demo(directory.path(), &["--pace", "50000000", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn without_exit_it_stays_up_until_it_is_told_to_end() {
    let directory = tempfile::tempdir().unwrap();
    let (capacities, requests) = small_trace(directory.path());
    let mut child = throng()
        .args(["demo", "--capacities", &capacities, "--requests", &requests, "--data"])
        .arg(directory.path().join("data"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    let mut has_named_console = false;
    let url = loop {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0, "it ended by itself");
        has_named_console |= line.contains("/console") && line.contains("the curves of the replay");
        if let Some((url, _)) = line
            .trim()
            .strip_prefix("http://")
            .and_then(|url| url.split_once("/docs"))
        {
            break url.to_string();
        }
    };
    assert!(has_named_console, "the last lines name the console");
    let mut client = throng_testing::Client::connect(url.parse().unwrap()).unwrap();
    throng_testing::until("the curves of before the restart are there", || {
        let series = client.get("/admin/series").unwrap().json();
        let commands = series["series"]["commands"].as_array().into_iter().flatten();
        commands.filter_map(Value::as_f64).sum::<f64>() > 0.0
    });
    assert_eq!(
        client.get("/sections?limit=3").unwrap().json()["sections"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT).unwrap();
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_second_demo_replaces_the_first_and_leaves_strangers_alone() {
    let directory = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        assert!(demo(directory.path(), &[]).status.success());
    }
    let strange = directory.path().join("data/demo/throng-demo");
    fs::remove_file(strange).unwrap();
    assert_refused(&demo(directory.path(), &[]), &["not of an earlier demo", "--data"]);
}

#[test]
fn a_taken_port_or_a_durability_that_keeps_nothing_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = holder.local_addr().unwrap().port().to_string();
    assert_refused(
        &demo(directory.path(), &["--port", &port]),
        &[&port, "in use by another program"],
    );
    assert_refused(
        &demo(directory.path(), &["--durability", "memory"]),
        &["choose fsync or os"],
    );
}
