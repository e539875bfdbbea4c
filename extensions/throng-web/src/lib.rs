//! HTTP for a service: a client for outside calls, and webhooks in both directions (`docs/webhooks.md`).
//!
//! - [`HttpClient`] makes the requests of an [`Outside`](throng::model::Outside) worker, and tells whether a failed request was not sent or
//!   is in doubt.
//! - [`Webhooks`] is a worker that sends signed webhooks in the format of Standard Webhooks.
//! - [`Receiver`] is a route that takes a provider's webhooks, applies each once, and answers after the commit.

mod client;
mod connection;
mod hosts;
mod incoming;
mod outgoing;
mod signature;

pub use client::{HttpClient, post_json, read_json, retry};
pub use incoming::{Received, Receiver};
pub use outgoing::{Delivered, Gone, Webhook, Webhooks};
pub use signature::{InvalidSecret, Secret};

/// The types of requests and answers.
pub use bytes::Bytes;
pub use http;
/// The settings of TLS.
pub use rustls;
/// The time for which a webhook's id is remembered.
pub use throng::driver::KeyLife;
