//! The queue from outside. Its interleavings are in loom.rs, a separate program that needs the feature.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod behaviour;
mod properties;
mod tasks;
