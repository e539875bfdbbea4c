//! The gateway from outside: over real connections, on a real engine with a journal in memory.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod routes;
mod support;
