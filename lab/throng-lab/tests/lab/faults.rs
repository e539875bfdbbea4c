//! `throng-lab faults`, once for each main kind: nothing is lost or doubled, it serves again, and the checker can find a loss.

use super::kit::throng;
use serde_json::Value;
use std::process::Output;

fn campaign(kinds: &str, more: &[&str]) -> (Output, Vec<Value>) {
    let directory = tempfile::tempdir().unwrap();
    let mut command = throng();
    command.args(["faults", "--runs", "1", "--clients", "16", "--json", "--only", kinds]);
    command.args(more).arg("--data").arg(directory.path());
    let output = command.output().unwrap();
    let found: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let lines = found["faults"].as_array().unwrap().clone();
    assert_eq!(lines.len(), kinds.split(',').count());
    (output, lines)
}

fn assert_clean(kinds: &str) {
    let (output, lines) = campaign(kinds, &[]);
    for line in &lines {
        if let Some(why) = line["unavailable"].as_str() {
            assert!(why.starts_with("needs "), "{line}");
            println!("{} was not run: {why}", line["fault"]);
            continue;
        }
        assert!(line["acknowledged"].as_u64() > Some(0), "{line}");
        for what in ["lost", "doubled", "other"] {
            assert_eq!(line[what], 0, "{line}");
        }
        assert!(line["recovery_max_s"].is_number(), "it serves again: {line}");
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_checker_finds_the_losses_of_a_service_without_journal() {
    let (output, lines) = campaign("kill", &["--durability", "memory"]);
    assert!(lines[0]["lost"].as_u64() > Some(0), "{lines:?}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn kills_and_pauses_lose_nothing() {
    assert_clean("kill-start,kill-end,pause");
}

#[test]
fn errors_of_the_disk_lose_nothing_and_need_no_restart() {
    assert_clean("errors-log,errors-store,errors-kill");
}

#[test]
fn a_full_disk_and_a_power_loss_lose_nothing() {
    assert_clean("full,power");
}

#[test]
fn attacks_stay_within_the_memory_and_lose_nothing() {
    assert_clean("attacks");
}

#[test]
fn a_following_backup_is_restored_at_any_commit() {
    assert_clean("restore");
}

#[test]
fn failures_of_the_database_lose_nothing() {
    assert_clean("pg-terminate,pg-crash");
}

#[test]
fn a_standby_takes_over_without_loss_or_stale_reads() {
    assert_clean("take-over,take-over-paused");
}

#[test]
fn dying_pausing_and_giving_nodes_cause_no_loss_or_stale_read() {
    assert_clean("cluster-kill,cluster-pause,cluster-drain,cluster-move,cluster-roll");
}

#[test]
fn nodes_cut_off_from_all_cause_no_loss_or_stale_read() {
    assert_clean("cluster-cut");
}

#[test]
fn held_and_reset_connections_cause_no_loss_or_stale_read() {
    assert_clean("cluster-cut-proxied");
}

#[test]
fn several_faults_of_a_cluster_and_its_database_lose_nothing() {
    assert_clean("cluster-terminate,cluster-pg-restart,cluster-storm");
}
