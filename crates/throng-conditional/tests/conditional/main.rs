//! The protocol over a store in memory, with and without faults.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod conformance;
mod engine;
mod simulation;
mod weather;
mod world;
