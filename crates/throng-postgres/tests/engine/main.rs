//! Whole engines on a real server, and their failures.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod budget;
mod counter;
mod crowd;
mod ends;
mod events;
mod failover;
mod formats;
#[path = "../kit/mod.rs"]
mod kit;
mod loss;
mod nodes;
mod outages;
mod over_nodes;
mod places;
mod pooler;
mod refusals;
mod rollback;
mod takeover;
mod tls;
