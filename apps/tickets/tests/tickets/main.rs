//! Tests of the service from outside.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "a failed unwrap is a failed test")]

mod kills;
mod load;
mod program;
mod routes;
mod service;
