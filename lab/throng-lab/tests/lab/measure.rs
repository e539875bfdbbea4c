//! Measurements. People judge the figures. These tests check that each requested figure is printed.

use super::kit::run;
use serde_json::Value;

fn measured(arguments: &[&str]) -> Value {
    let output = run(&[arguments, &["--rounds", "1", "--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn assert_positive(row: &Value, names: &[&str]) {
    for name in names {
        assert!(row[name].as_f64().is_some_and(|figure| figure > 0.0), "{name}: {row}");
    }
}

#[test]
fn the_log_is_measured_as_a_recorder_at_three_sizes() {
    let figures = measured(&["journal", "--mb", "1"]);
    let rows = figures["journal"].as_array().unwrap();
    let sizes: Vec<_> = rows.iter().map(|row| row["event_bytes"].as_u64().unwrap()).collect();
    assert_eq!(sizes, [100, 1024, 10_240]);
    for row in rows {
        assert_positive(row, &["log_megabytes_per_s", "ratio", "growing_ratio", "commit_p50_us"]);
    }
}

#[test]
fn fields_to_filter_by_are_measured_beside_none() {
    let figures = measured(&["filters", "--rate", "500", "--seconds", "1", "--entities", "300"]);
    let rows = figures["filters"].as_array().unwrap();
    let fields: Vec<_> = rows.iter().map(|row| row["fields"].as_u64().unwrap()).collect();
    assert_eq!(fields, [0, 3]);
    for row in rows {
        assert_positive(row, &["commands_per_s", "cpu_us", "p99_ms", "store_bytes"]);
    }
    assert_positive(&rows[1], &["filter_ms", "filter_of_rows_ms"]);
}

#[test]
fn durable_commands_are_measured_beside_an_echo() {
    let figures = measured(&[
        "http",
        "--connections",
        "64",
        "--requests",
        "640",
        "--sync-delay",
        "1ms",
    ]);
    let rows = figures["http"].as_array().unwrap();
    let delays: Vec<_> = rows.iter().map(|row| row["sync_delay_ms"].as_f64().unwrap()).collect();
    assert_eq!(delays, [0.0, 1.0]);
    for row in rows {
        assert_positive(row, &["requests_ratio", "p50_us", "sync_p50_us", "p50_ratio"]);
    }
}

#[test]
fn lift_rides_are_measured_until_the_read_models_hold_them() {
    let plots = tempfile::tempdir().unwrap();
    let file = plots.path().join("limits.svg");
    let figures = measured(&[
        "skiers",
        "--clients",
        "16",
        "--skiers",
        "160",
        "--limits",
        "1,adaptive",
        "--plot",
        file.to_str().unwrap(),
    ]);
    let rows = figures["skiers"].as_array().unwrap();
    let limits: Vec<_> = rows.iter().map(|row| row["limit"].as_str().unwrap()).collect();
    assert_eq!(limits, ["1", "adaptive"]);
    for row in rows {
        assert_eq!(row["failures"], 0);
        // The sum of 4 threads × 80, 16 × 60 and 1 × 1.
        assert_eq!(row["rides"], 1_281);
        assert_positive(
            row,
            &[
                "rides_per_s",
                "end_to_end_per_s",
                "p99_ms",
                "rides_a_commit",
                "server_cpu_us",
            ],
        );
    }
    let a_commit = |row: &Value| row["rides_a_commit"].as_f64().unwrap();
    assert!(a_commit(&rows[0]) < a_commit(&rows[1]), "{rows:?}");
    for name in ["limits.svg", "limits-p99.svg"] {
        assert!(
            std::fs::read_to_string(plots.path().join(name))
                .unwrap()
                .contains(">adaptive<")
        );
    }
}

#[test]
fn transfers_are_measured_and_survive_kill_and_power_loss() {
    use std::os::unix::fs::PermissionsExt as _;
    // The servers run as other users, who need access.
    let for_all = std::fs::Permissions::from_mode(0o755);
    let directory = tempfile::Builder::new().permissions(for_all).tempdir().unwrap();
    let figures = measured(&[
        "transfers",
        "--accounts",
        "100",
        "--exponents",
        "1.5",
        "--in-flight",
        "1,4",
        "--connections",
        "4",
        "--hold",
        "1s",
        "--data",
        directory.path().to_str().unwrap(),
    ]);
    let rows = figures["transfers"].as_array().unwrap();
    let of = |name: &str| rows.iter().filter(|row| row["contender"] == name).count();
    assert_eq!((of("Throng's bank"), of("PostgreSQL function")), (2, 2), "{figures}");
    for row in rows {
        assert_positive(row, &["transfers_per_s", "bank_ratio"]);
    }
    let losses = figures["losses"].as_array().unwrap();
    assert!(losses.len() >= 2, "{figures}");
    for loss in losses {
        assert!(loss["acknowledged"].as_u64() > Some(0), "{loss}");
        assert_eq!((&loss["lost"], &loss["other"]), (&0.into(), &0.into()), "{loss}");
    }
}
