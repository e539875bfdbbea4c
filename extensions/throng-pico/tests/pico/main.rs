//! Tests of picos over HTTP, on a real engine.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "a failed unwrap is a failed test")]

mod bad_input;
mod fairness;
mod log;
mod moving;
mod multiplying;
mod original;
mod registration;
mod rulesets;
mod service;
mod transfer;
mod tree;
