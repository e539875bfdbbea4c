//! The load generator from outside: its commands and its runs, against servers that behave and servers that do not.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod browser;
mod cli;
mod faults;
mod http2;
mod models;
mod support;
mod tls;
