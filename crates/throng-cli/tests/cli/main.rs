//! The program `throng` from outside: processes, sockets, files, signals.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod client;
mod cluster;
mod crash;
mod demo;
mod failover;
mod journal;
mod kit;
mod krl;
mod load;
mod new;
mod objects;
mod postgres;
mod rolling;
mod serve;
mod supervisor;
mod trace;

/// The program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_throng");
