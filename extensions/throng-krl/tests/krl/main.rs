//! Tests of the language from outside: sources in, results and errors out.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod bounds;
mod format;
mod original;
mod rulesets;
