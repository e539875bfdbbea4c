//! Services, pools and the bus from outside.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod bus;
mod examples;
mod observe;
mod pool;
mod service;
