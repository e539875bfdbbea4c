//! Parts of the engine in simulated worlds.

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
