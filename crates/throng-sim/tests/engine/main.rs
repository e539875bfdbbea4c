//! The engine in simulated worlds, a part of it each.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../diary/mod.rs"]
mod diary;
mod loops;
mod projection;
mod quiet;
mod retention;
mod stepped;
mod undone;
mod upgrade;
