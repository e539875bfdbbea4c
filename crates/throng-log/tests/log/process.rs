//! Real processes on a real directory: a second process is refused, and a killed one loses nothing that it acknowledged as durable.

use crate::kit::{append, count, open_writer};
use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
};
use throng_journal::{Error, WriterId};
use throng_log::{Log, Options};

const DIR: &str = "THRONG_LOG_TEST_DIR";

/// Runs this test binary again as a child that runs only one test.
fn child(test: &str, dir: &std::path::Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Returns the child's lines that begin with this word, without the word.
fn lines<'a>(child: &'a mut Child, word: &'static str) -> impl Iterator<Item = String> + 'a {
    let output = BufReader::new(child.stdout.as_mut().unwrap());
    output.lines().map_while(Result::ok).filter_map(move |line| {
        let at = line.find(word)?;
        Some(line[at + word.len()..].trim().to_owned())
    })
}

/// Acts as the second process of the test below. Checks nothing by itself.
#[test]
fn as_a_child_try_to_open() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    match Log::open(std::path::PathBuf::from(dir), Options::default()) {
        Ok(_) => println!("found: it is free"),
        Err(Error::InUse { what }) => println!("found: in use: {what}"),
        Err(other) => println!("found: {other}"),
    }
}

#[test]
fn a_second_process_on_the_same_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let log = Log::open(dir.path(), Options::default()).unwrap();
    let ask = || {
        let mut child = child("process::as_a_child_try_to_open", dir.path());
        let found = lines(&mut child, "found:").next();
        assert!(child.wait().unwrap().success());
        found.unwrap()
    };
    let told = ask();
    assert!(told.starts_with("in use: the data directory"), "{told}");
    assert!(told.contains(&dir.path().display().to_string()), "{told}");
    assert!(told.contains(&format!("process {}", std::process::id())), "{told}");
    // The lock file remains after every end, so a person may take it for garbage.
    std::fs::remove_file(dir.path().join("lock")).unwrap();
    for _ in 0..2 {
        let told = ask();
        assert!(
            told.starts_with("in use: the data directory"),
            "without the file: {told}"
        );
    }
    drop(log);
    assert_eq!(ask(), "it is free");
}

/// Acts as the killed process of the test below. Checks nothing by itself.
#[test]
fn as_a_child_append_until_killed() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let log = Log::open(std::path::PathBuf::from(dir), Options::default()).unwrap();
    let writer = open_writer(&log).unwrap();
    println!("writer: {writer}");
    for number in 1.. {
        append(&log, writer, number, 300).unwrap();
        println!("acknowledged: {number}");
    }
}

//= promise 2: acknowledged events survive
#[test]
fn a_killed_process_loses_nothing_it_was_told_is_durable() {
    let dir = tempfile::tempdir().unwrap();
    let mut told: Vec<(WriterId, u64)> = Vec::new();
    for round in 0..5 {
        let mut child = child("process::as_a_child_append_until_killed", dir.path());
        let (mut writer, mut acknowledged) = (WriterId(0), 0);
        let mut output = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .map_while(Result::ok);
        for line in &mut output {
            if let Some((_, id)) = line.split_once("writer: ") {
                writer = WriterId(id.parse().unwrap());
            }
            if let Some((_, number)) = line.split_once("acknowledged: ") {
                acknowledged = number.parse().unwrap();
            }
            if acknowledged == 50 + round * 37 {
                break;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        for line in output {
            // Lines that the child printed before it died.
            if let Some((_, number)) = line.split_once("acknowledged: ") {
                acknowledged = number.parse().unwrap_or(acknowledged);
            }
        }
        told.push((writer, acknowledged));
        let log = Log::open(dir.path(), Options::default()).unwrap();
        for (writer, acknowledged) in &told {
            let found = count(&log, *writer);
            assert!(found >= *acknowledged, "writer {writer}: {found} of {acknowledged}");
        }
        told = told.iter().map(|(writer, _)| (*writer, count(&log, *writer))).collect();
    }
}
