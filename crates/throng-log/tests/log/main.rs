//! The embedded log and store from outside, under failures of the disk, the power and the process.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "a failed unwrap is a failed test")]

mod anew;
mod budget;
mod compact;
mod conformance;
mod crashes;
mod damage;
mod disk;
mod ends;
mod errors;
mod formats;
mod full;
mod kit;
mod large;
mod large_state;
mod loss;
mod notes;
mod permissions;
mod process;
mod read_only;
mod removed;
mod store;
mod tools;
mod torn;
mod views;
