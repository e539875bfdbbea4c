//! The disk loop as a program.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::process::Command;

#[test]
fn the_program_prints_one_line_of_figures() {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_disk"))
        .args(["--block-bytes", "4096", "--blocks", "10", "--mode", "growing", "--dir"])
        .arg(directory.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.starts_with("10 blocks of 4096 bytes, Growing: p50 "), "{said}");
    assert_eq!(said.lines().count(), 1);
}

#[test]
fn a_directory_that_is_not_there_is_a_sentence() {
    let output = Command::new(env!("CARGO_BIN_EXE_disk"))
        .args(["--dir", "/no/such/directory"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.starts_with("disk: could not create a file in /no/such/directory: "),
        "{said}"
    );
}
