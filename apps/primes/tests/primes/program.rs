//! Tests of the service's program: it has no data, and writes nothing.

#![cfg(unix)]

use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    io::{BufRead, BufReader, Read},
    process::{Command, Stdio},
};

#[test]
fn a_service_without_entities_writes_nothing_and_warns_not() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_primes"))
        .args(["serve", "--listen", "127.0.0.1:0"])
        .current_dir(directory.path())
        .env_remove("RUST_LOG")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let mut log = String::new();
    child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    assert!(child.wait().unwrap().success(), "{log}");
    assert!(log.contains("primes has nothing to keep"), "{log}");
    assert!(!log.contains("WARN"), "{log}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}
