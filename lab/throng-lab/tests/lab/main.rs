//! The program `throng-lab` from outside: measurements print figures, campaigns find nothing, and days end right.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod apps;
mod day;
mod faults;
#[allow(dead_code, reason = "the kit of the tests of `throng`, of which some is needed")]
#[path = "../../../../crates/throng-cli/tests/cli/kit.rs"]
mod kit;
mod long;
mod measure;

/// The program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_throng-lab");
