//! Messages and events take effect once, whatever stops in between.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod kills;
mod memory;
