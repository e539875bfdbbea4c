//! The rate of whoever asks, and what wrong credentials cost.
//!
//! A request is its caller's, where a token or a certificate says who asks; else its address's: the one that a trusted header names, or its
//! connection's. What is refused here spends a rate of its own, so that wrong tokens of an address slow no right one: a proxy is one address.

use super::{Caller, NO_CREDENTIALS};
use crate::{
    clients::Rate,
    connection::Connection,
    gate::Client,
    metrics::Limit,
    places::{Places, Taken},
    problem::{Answered, Problem},
    server::Server,
};
use http::{HeaderMap, StatusCode};
use std::{
    collections::HashMap,
    num::NonZeroU32,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Wrong credentials that an address may show a second before their answers are held back.
const WRONG_A_SECOND: Option<NonZeroU32> = NonZeroU32::new(100);
/// The time for which the answer is held back then.
const WRONG_WAIT: Duration = Duration::from_secs(1);
/// Answers that are held back at a time.
const WRONG_WAITING_MAX: usize = 1_024;
/// A cause is logged once in this time.
const LOGGED_EVERY: Duration = Duration::from_secs(60);
/// Causes that are told apart.
const CAUSES_MAX: usize = 64;

/// The one whose rate a request spends.
#[derive(Clone, Copy)]
pub(crate) struct RateOwner<'a> {
    /// The address it asks from.
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

/// Requests that were refused for who asks.
pub(crate) struct Wrong {
    /// Refusals of each address, as often as it may ask.
    refused: Option<Rate>,
    shown: Option<Rate>,
    waiting: Places,
    causes: Mutex<HashMap<String, Cause>>,
}

/// The last line about a cause, and how often it came since.
struct Cause {
    logged: Instant,
    count: u64,
}

impl Wrong {
    pub(crate) fn new(a_second: Option<NonZeroU32>) -> Self {
        Self {
            refused: Rate::new(a_second),
            shown: Rate::new(WRONG_A_SECOND),
            waiting: Places::new(WRONG_WAITING_MAX),
            causes: Mutex::default(),
        }
    }

    /// Counts a cause; returns how often it came since its last line, if it is time for another one.
    fn logs(&self, cause: &str, now: Instant) -> Option<u64> {
        let mut causes = self.causes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = causes.get_mut(cause) {
            known.count += 1;
            let is_due = now.saturating_duration_since(known.logged) >= LOGGED_EVERY;
            return is_due.then(|| {
                known.logged = now;
                std::mem::take(&mut known.count)
            });
        }
        if causes.len() >= CAUSES_MAX {
            return None;
        }
        let (logged, count) = (now, 0);
        causes.insert(cause.to_owned(), Cause { logged, count });
        Some(1)
    }

    /// A place to wait in, if this address has shown too much that is wrong.
    fn holds_back(&self, client: Client, now: Instant) -> Option<Taken> {
        let rate = self.shown.as_ref()?;
        rate.take(client, now).is_err().then(|| self.waiting.take()).flatten()
    }
}

/// Spends one request of whoever asks.
pub(crate) fn spend(server: &Server, owner: RateOwner<'_>) -> Answered<()> {
    let (shared, client) = (server.shared(), owner.client);
    take(server, shared.request_rate.as_ref(), client, Limit::RequestRate)?;
    let caller = owner.caller.map_or(client, Caller::client);
    take(server, shared.caller_rate.as_ref(), caller, Limit::CallerRequestRate)
}

/// The answer to a request that was refused for who asks: this problem, or that it is too often.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cause_is_logged_once_a_minute_with_its_count() {
        let (wrong, now) = (Wrong::new(None), Instant::now());
        assert_eq!(wrong.logs("a", now), Some(1));
        for _ in 0..5 {
            assert_eq!(wrong.logs("a", now), None);
        }
        assert_eq!(wrong.logs("b", now), Some(1), "another cause");
        assert_eq!(wrong.logs("a", now + LOGGED_EVERY), Some(6));
        for number in 0..1_000 {
            wrong.logs(&number.to_string(), now);
        }
        assert_eq!(wrong.causes.lock().unwrap().len(), CAUSES_MAX);
    }

    #[test]
    fn wrong_tokens_beyond_a_rate_are_held_back_in_a_bounded_number() {
        let (wrong, now) = (Wrong::new(None), Instant::now());
        let held: Vec<_> = (0..3_000).filter_map(|_| wrong.holds_back(7, now)).collect();
        assert_eq!(held.len(), WRONG_WAITING_MAX);
        assert!(wrong.holds_back(8, now).is_none(), "another address shows its first");
    }
}
