//! Tests of the engine of picos from outside, with its pages in a browser.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "a failed unwrap is a failed test")]

mod console;
mod service;
mod student;
