//! The gateway from outside: over real connections, on a real engine with a journal in memory.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod access;
mod access_log;
mod actors;
mod admin;
mod app;
mod bad_input;
mod bodies;
mod browsers;
mod calls;
mod clients;
mod closing;
mod coding;
mod connections;
mod console;
mod direct;
mod fairness;
mod fields;
mod flood;
mod frames;
mod head;
mod history;
mod http2;
mod jwt;
mod live;
mod meaning;
mod operator_view;
mod order;
mod overload;
mod pages;
mod pages_held;
mod quarantine;
mod questions;
mod rest;
mod roles;
mod rolling_upgrade;
mod routes;
#[cfg(target_os = "linux")]
mod signal;
mod slow_readers;
mod sockets;
mod stop;
mod subscriptions;
mod support;
mod tls;
mod websocket;
