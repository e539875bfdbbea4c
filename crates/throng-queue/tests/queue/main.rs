//! The queue from outside; its interleavings are in loom.rs, a program of its own, which is built with the feature.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod behaviour;
mod properties;
mod tasks;
