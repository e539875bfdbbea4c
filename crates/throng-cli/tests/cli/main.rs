//! The program `throng` from outside: processes, sockets, files, signals.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod bench;
mod cluster;
mod crash;
mod demo;
mod failover;
mod faults;
mod journal;
mod kit;
mod krl;
mod load;
mod long;
mod new;
mod postgres;
mod serve;
mod trace;
