//! Tests of the service from outside, and against a model.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "a failed unwrap is a failed test")]

mod contract;
mod entities;
mod load;
mod model;
mod pipeline;
mod process;
mod roles;
mod service;
mod simulation;
