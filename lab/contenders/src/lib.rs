//! The common part of the Rust contenders: the address they listen on, and the parsing of a path.

use anyhow::Context as _;
use socket2::{Domain, Protocol, Socket, Type};
use std::net::SocketAddr;
use tokio::net::TcpListener;

/// The connections that may wait to be accepted: a thousand arrive at once.
const BACKLOG: i32 = 4096;

/// Returns the number of serving threads: `THREADS`, or one for each core.
#[must_use]
pub fn threads() -> usize {
    let given = std::env::var("THREADS").ok().and_then(|text| text.parse().ok());
    given.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// Listens on `PORT` of 127.0.0.1, by default 8080. Several sockets may share the port. Needs a tokio runtime.
///
/// # Errors
/// The port is no number, or cannot be listened on.
pub fn listen() -> anyhow::Result<TcpListener> {
    let port: u16 = std::env::var("PORT").map_or(Ok(8080), |text| text.parse().context("PORT is no port"))?;
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket
        .bind(&SocketAddr::from(([127, 0, 0, 1], port)).into())
        .with_context(|| format!("cannot listen at 127.0.0.1:{port}"))?;
    socket.listen(BACKLOG)?;
    Ok(TcpListener::from_std(socket.into())?)
}

/// Returns the count that a path contains, if it is a number.
#[must_use]
pub fn count(text: &str) -> Option<usize> {
    text.parse().ok().filter(|n| *n <= primes::MOST)
}
