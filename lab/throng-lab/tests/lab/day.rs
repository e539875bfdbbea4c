//! `throng-lab day`, on a small trace.

use super::kit::run;
use registration::{
    reference::Expected,
    trace::{DEFAULT_SEED, Shape, Trace, generate},
};
use std::{fs, path::Path, process::Output};

fn small_trace() -> Trace {
    generate(&Shape::one_in(60), DEFAULT_SEED).unwrap()
}

fn day(directory: &Path, more: &[&str]) -> Output {
    let path = |name: &str| directory.join(name).display().to_string();
    let (capacities, requests, data) = (path("capacities.txt"), path("requests.txt"), path("data"));
    small_trace()
        .write(Path::new(&capacities), Path::new(&requests))
        .unwrap();
    let usual = [
        "day",
        "--exit",
        "--data",
        &data,
        "--capacities",
        &capacities,
        "--requests",
        &requests,
    ];
    run(&[&usual[..], more].concat())
}

#[test]
fn day_through_picos_ends_in_reference_rosters() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rosters.txt").display().to_string();
    let output = day(directory.path(), &["--picos", "--rosters", &file]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("every one right"), "{said}");
    let (console, opened) = (said.find("  console    http://"), said.find("  opened "));
    assert!(console.is_some() && console < opened, "{said}");
    let expected = Expected::of(&small_trace());
    let lines: Vec<String> = fs::read_to_string(file).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(lines, expected.rosters.lines());
}

#[test]
fn day_on_several_nodes_ends_in_reference_rosters() {
    let directory = tempfile::tempdir().unwrap();
    let output = day(directory.path(), &["--nodes", "3", "--pace", "50000000"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for word in ["killed", "started", "drained", "undrained", "every one right"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    for node in ["node-1", "node-2", "node-3"] {
        let line = said
            .lines()
            .find(|line| line.trim().starts_with(node))
            .unwrap_or_default();
        assert!(line.contains("console http://127.0.0.1:"), "{node}: {said}");
    }
}
