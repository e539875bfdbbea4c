//! The gateway from outside: over real connections, on a real engine with a journal in memory.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod app;
mod bad_input;
mod connections;
mod http2;
mod live;
mod overload;
mod pages;
mod routes;
mod stop;
mod support;
