//! Tests of the service from outside.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "a failed unwrap is a failed test")]

mod available;
mod contract;
mod load;
mod service;
