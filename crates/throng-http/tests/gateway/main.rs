//! The gateway from outside: over real connections, on a real engine with a journal in memory.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod access;
mod actors;
mod admin;
mod app;
mod bad_input;
mod browsers;
mod connections;
mod direct;
mod fairness;
mod history;
mod http2;
mod jwt;
mod live;
mod overload;
mod pages;
mod routes;
mod stop;
mod subscriptions;
mod support;
mod tls;
mod websocket;
