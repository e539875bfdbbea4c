//! The protocol over a store in memory, in fair weather and in bad.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod conformance;
mod engine;
mod simulation;
mod weather;
mod world;
