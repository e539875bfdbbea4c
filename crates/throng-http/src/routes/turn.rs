//! A request's part of its loop's turn.

use crate::{
    connection::Connection,
    gate::{Admitted, Client},
    problem::{Answered, Problem},
    request::headers,
    server::Server,
};
use http::HeaderMap;
use std::time::{Duration, Instant};

/// Passes the turn's gate, and says how much time is left to the deadline.
pub(super) async fn admit(
    server: &Server,
    connection: &Connection,
    headers: &HeaderMap,
    bytes: usize,
    arrived: &mut Option<Instant>,
) -> Answered<Duration> {
    let limits = server.limits();
    let deadline = headers::timeout(headers, limits.deadline, limits.deadline_max)?;
    let client = server.shared().client(connection, headers);
    enter(server, connection, client, deadline, bytes, arrived).await
}

/// The same, for a request without header fields of its own.
pub(crate) async fn enter(
    server: &Server,
    connection: &Connection,
    client: Client,
    deadline: Duration,
    bytes: usize,
    arrived: &mut Option<Instant>,
) -> Answered<Duration> {
    let admitted = server.gate.enter(&connection.place, bytes, || client).await;
    let admitted = admitted.map_err(|refused| Problem::refused(refused.reason, refused.wait).boxed())?;
    time_left(admitted, deadline, arrived)
}

/// Says how much time is left to the deadline of a request that is admitted.
pub(super) fn time_left(admitted: Admitted, deadline: Duration, arrived: &mut Option<Instant>) -> Answered<Duration> {
    *arrived = Some(admitted.arrived);
    let waited = admitted.now.saturating_duration_since(admitted.arrived);
    match deadline.saturating_sub(waited) {
        Duration::ZERO => Err(Problem::expired().boxed()),
        left => Ok(left),
    }
}
