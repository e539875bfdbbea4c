//! Tests of the service and its program from outside.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod program;
mod service;
