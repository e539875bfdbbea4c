//! `throng-lab long`, shortened. Its verdicts need half an hour. These tests check that it observes the service and that history is removed.

use super::kit::run;
use serde_json::Value;

fn short(journal: &str) -> Value {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().display().to_string();
    let output = run(&[
        "long",
        "--for",
        "30s",
        "--rate",
        // The number is large enough that the log finishes its first segment. Nothing is removed from the segment being written.
        "600",
        "--connections",
        "32",
        "--checkpoint",
        "2",
        "--journal",
        journal,
        "--data",
        &data,
        "--json",
    ]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    found["long"][0].clone()
}

fn assert_history_goes_and_nothing_leaks(journal: &str) {
    let run = short(journal);
    let windows = run["windows"].as_array().unwrap();
    let last = windows.last().unwrap();
    assert!(
        run["commands"].as_u64() > Some(0) && run["checkpoints"].as_u64() > Some(0),
        "{run}"
    );
    assert!(last["pruned"].as_u64() > Some(0), "closed tickets go: {run}");
    for figure in ["resident_mb", "descriptors", "disk_mb"] {
        assert!(last[figure].as_f64() > Some(0.0), "{figure}: {run}");
    }
    assert_eq!(run["verdicts"]["are_descriptors_flat"], true, "{run}");
}

#[test]
fn a_directory_is_watched_for_a_while_and_closed_tickets_go() {
    assert_history_goes_and_nothing_leaks("embedded");
}

#[test]
fn a_database_is_watched_for_a_while_and_closed_tickets_go() {
    assert_history_goes_and_nothing_leaks("postgres");
}
