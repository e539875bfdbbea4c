//! Tests of the service and its traces from outside.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod program;
mod service;
mod trace_files;
mod trace_generated;
