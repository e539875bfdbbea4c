//! A private server starts, stops and is removed.
#![allow(clippy::unwrap_used, reason = "a test may")]

use servers::{Postgres, PostgresOptions, Stop};
use std::{net::TcpStream, path::Path, process::Command, time::Instant};

#[test]
fn a_restarted_server_keeps_its_data_and_leaves_nothing() {
    let mut server = Postgres::start(PostgresOptions::default()).unwrap();
    let (port, directory) = (server.port(), server.socket().to_owned());
    let first = server.process_id().unwrap();
    server.restart(Stop::Fast).unwrap();
    assert_ne!(server.process_id(), Some(first));
    server.restart(Stop::Immediate).unwrap();
    assert_eq!(server.port(), port);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_ok());
    drop(server);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    assert!(!directory.exists(), "{}", directory.display());
}

#[test]
fn a_setting_the_server_refuses_is_said() {
    let options = PostgresOptions {
        settings: vec![("shared_buffers".into(), "'a lot'".into())],
        ..PostgresOptions::default()
    };
    let said = Postgres::start(options).unwrap_err().to_string();
    assert!(said.contains("shared_buffers"), "{said}");
}

/// Runs in a process of its own, see below.
#[test]
#[ignore = "the process that the test below kills"]
fn a_process_with_a_server() {
    let server = Postgres::start(PostgresOptions::default()).unwrap();
    println!("directory:{}", server.socket().display());
    std::io::Read::read(&mut std::io::stdin(), &mut [0]).unwrap();
}

#[test]
fn a_server_ends_with_its_owner_even_if_that_is_killed() {
    use std::io::BufRead as _;
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["a_process_with_a_server", "--exact", "--ignored", "--nocapture"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
    let directory = lines
        .map_while(Result::ok)
        .find_map(|line| line.split_once("directory:").map(|(_, path)| path.to_owned()))
        .unwrap();
    assert!(Path::new(&directory).join("data").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    let begun = Instant::now();
    while Path::new(&directory).exists() {
        assert!(begun.elapsed().as_secs() < 60, "{directory} is still there");
        std::thread::yield_now();
    }
}

#[test]
fn standby_follows_lags_and_is_promoted() {
    let server = Postgres::start(PostgresOptions::default()).unwrap();
    server.sql("CREATE TABLE t (n int); INSERT INTO t VALUES (1)").unwrap();
    let mut backup = server.backup().unwrap();
    let standby = server.standby("follower").unwrap();
    let count = |of: &Postgres| of.sql("SELECT count(*) FROM t").unwrap().trim().to_owned();
    server.sql("INSERT INTO t VALUES (2)").unwrap();
    while count(&standby) != "2" {
        std::thread::yield_now();
    }
    standby.hold_back().unwrap();
    server.sql("INSERT INTO t VALUES (3)").unwrap();
    standby.promote().unwrap();
    standby.sql("INSERT INTO t VALUES (4), (5), (6)").unwrap();
    backup.resume().unwrap();
    assert_eq!([count(&server), count(&standby), count(&backup)], ["3", "5", "1"]);
}

#[test]
fn standby_with_unreplayed_cleanup_is_promoted_at_once() {
    // A statement that blocks the recovery is cancelled at once. By default that happens after half a minute.
    let delays = ["max_standby_streaming_delay", "max_standby_archive_delay"];
    let server = Postgres::start(PostgresOptions {
        settings: delays.map(|name| (name.to_owned(), "0".to_owned())).to_vec(),
        ..PostgresOptions::default()
    })
    .unwrap();
    server.sql("CREATE TABLE t (n int); INSERT INTO t VALUES (1)").unwrap();
    let standby = server.standby("follower").unwrap();
    standby.sql("SELECT pg_wal_replay_pause()").unwrap();
    standby
        .until("SELECT pg_get_wal_replay_pause_state() = 'paused'")
        .unwrap();
    server.sql("DELETE FROM t").unwrap();
    server.sql("VACUUM t").unwrap();
    server
        .until("SELECT bool_and(flush_lsn >= pg_current_wal_lsn()) FROM pg_stat_replication")
        .unwrap();
    standby.promote().unwrap();
    assert_eq!(standby.sql("SELECT count(*) FROM t").unwrap().trim(), "0");
}

#[test]
fn frozen_server_ends_when_it_is_dropped() {
    let server = Postgres::start(PostgresOptions::default()).unwrap();
    let id = server.process_id().unwrap().to_string();
    let signal = |name: &str| Command::new("kill").args([name, &id]).status().unwrap();
    assert!(signal("-STOP").success());
    let directory = server.socket().to_owned();
    let (ended, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop(server);
        ended.send(()).unwrap();
    });
    let is_over = end.recv_timeout(std::time::Duration::from_mins(1));
    if is_over.is_err() {
        signal("-KILL");
    }
    assert_eq!(is_over, Ok(()));
    assert!(!directory.exists(), "{}", directory.display());
}
