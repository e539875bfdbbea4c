//! The rate limits of callers, and the cost of wrong credentials.
//!
//! A request counts for its caller, if a token or a certificate names one; otherwise for its address, which is that in a trusted header, or
//! the connection's. Refusals have a rate of their own, so that wrong tokens from an address do not slow requests with right ones: a proxy
//! is one address.

use super::NO_CREDENTIALS;
use crate::{
    admission::Client,
    caller::Caller,
    clients::Rate,
    connection::Connection,
    metrics::Limit,
    problem::{Answered, Problem},
    server::Server,
};
use http::{HeaderMap, StatusCode};
use std::time::{Duration, Instant};

/// The time for which the answer is held back then.
const WRONG_WAIT: Duration = Duration::from_secs(1);

/// The owner of the rate that a request counts for.
#[derive(Clone, Copy)]
pub(crate) struct RateOwner<'a> {
    /// The address of the request.
    pub(crate) client: Client,
    pub(crate) caller: Option<&'a Caller>,
}

impl<'a> RateOwner<'a> {
    pub(crate) fn of(
        server: &Server,
        connection: &Connection,
        headers: &HeaderMap,
        caller: Option<&'a Caller>,
    ) -> Self {
        let client = server.shared().client(connection, headers);
        Self { client, caller }
    }
}

/// Counts one request of its owner.
pub(crate) fn spend(server: &Server, owner: RateOwner<'_>) -> Answered<()> {
    let (shared, client) = (server.shared(), owner.client);
    take(server, shared.request_rate.as_ref(), client, Limit::RequestRate)?;
    let caller = owner.caller.map_or(client, Caller::client);
    take(server, shared.caller_rate.as_ref(), caller, Limit::CallerRequestRate)
}

/// Returns the answer to a request refused for its credentials: this problem, or that there were too many.
pub(crate) async fn refused(
    server: &Server,
    connection: &Connection,
    headers: &HeaderMap,
    problem: Box<Problem>,
) -> Box<Problem> {
    let shared = server.shared();
    let (client, now) = (shared.client(connection, headers), Instant::now());
    if problem.http_status() == StatusCode::UNAUTHORIZED && problem.detail() != NO_CREDENTIALS {
        if let Some(count) = shared.wrong.logs(problem.detail(), now) {
            tracing::warn!(
                "credentials were refused, {count} times since this was logged last, now from {}: {}",
                shared.client_address(connection, headers),
                problem.detail()
            );
        }
        if let Some(_place) = shared.wrong.holds_back(client, now) {
            tokio::time::sleep(WRONG_WAIT).await;
        }
    }
    match take(server, shared.wrong.refused.as_ref(), client, Limit::RequestRate) {
        Ok(()) => problem,
        Err(too_often) => too_often,
    }
}

fn take(server: &Server, rate: Option<&Rate>, client: Client, limit: Limit) -> Answered<()> {
    let Some(rate) = rate else { return Ok(()) };
    rate.take(client, Instant::now()).map_err(|later| {
        server.metrics().limited(limit);
        let whose = match limit {
            Limit::CallerRequestRate => "A caller",
            _ => "An address",
        };
        Problem::too_often(whose, "ask", rate.a_second(), later).boxed()
    })
}
