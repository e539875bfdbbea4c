//! What becomes of the log when the disk, the power or the process fails.
#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test may")]

mod compact;
mod crashes;
mod damage;
mod disk;
mod ends;
mod errors;
mod full;
mod kit;
mod loss;
mod notes;
mod process;
mod store;
mod torn;
mod views;
