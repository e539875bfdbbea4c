//! Limits of the gateway, with their defaults.

use std::{num::NonZeroU32, time::Duration};

/// The limits of a gateway: one for each of its waits, buffers and counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request's head: request line and header fields. At least 8 KiB. Above: 431, and the connection ends.
    pub header_bytes_max: usize,
    /// Bytes of a request's body. Above: 413.
    pub body_bytes_max: usize,
    /// Open connections, over all loops. Above: 503 and close. The system's limit of open files bounds it; by default, the [engine's
    /// memory](throng::Options::memory_bytes_max) does, too.
    pub connections_max: usize,
    /// Open connections of one address (for IPv6, its network of 64 bits), over all loops. Above: 503 and close. `None`: three quarters of
    /// [all](Self::connections_max), and connections from this machine are not counted, since a proxy may speak for all clients.
    pub connections_per_address_max: Option<usize>,
    /// Connections above these limits: half of them for requests for health, metrics and administration, half for telling others that there
    /// is no room.
    pub spare_connections_max: usize,
    /// Connections of one address a second, with a second's worth at once. Above: 429 and close.
    pub connection_rate_max: Option<NonZeroU32>,
    /// Requests of one address a second, with a second's worth at once. Above: 429. Health, metrics and administration are not
    /// counted, here and below.
    pub request_rate_max: Option<NonZeroU32>,
    /// Requests a second of one caller, as named by [a trusted header](crate::Gateway::client_header). Above: 429.
    pub caller_request_rate_max: Option<NonZeroU32>,
    /// Concurrent streams of one HTTP/2 connection.
    pub streams_max: u32,
    /// Live event streams (`text/event-stream`) and subscriptions of WebSockets, over all loops. Above: 503.
    pub live_max: usize,
    /// Commands and queries of one WebSocket in flight. Further ones are not read until some are answered.
    pub socket_requests_max: usize,
    /// Subscriptions of one WebSocket.
    pub socket_subscriptions_max: usize,
    /// Messages in one frame from a WebSocket's client. Above: none of them is executed.
    pub socket_messages_max: usize,
    /// Bytes of a frame a WebSocket's client sends. Above: closed with 1009.
    pub socket_frame_bytes_max: usize,
    /// The silence of a WebSocket's client after which it gets a ping; after the same time again the socket is closed.
    pub socket_ping: Duration,
    /// The time after which a subscription whose events wait for credit ends.
    pub socket_credit_wait: Duration,
    /// A connection without a request is closed after this long.
    pub idle: Duration,
    /// The time after its first byte within which a request's head must be complete. Otherwise the connection ends.
    pub header_wait: Duration,
    /// A request's body must be complete this long after its head. Otherwise: 408.
    pub body_wait: Duration,
    /// The least rate of a body's arrival in bytes a second, on average, after its [grace](Self::body_grace). Below: 408.
    pub body_rate_min: u32,
    /// The time in which a body may arrive at any speed.
    pub body_grace: Duration,
    /// Bytes of bodies in flight over all connections: those that arrive in several pieces, from the first piece to the request's answer.
    /// They count as [memory of the engine](throng::Options::memory_bytes_max). Above: 503.
    pub bodies_bytes_max: usize,
    /// The time after which a client that takes nothing of its answer is cut off: its connection, or on HTTP/2 the answer's stream.
    pub write_wait: Duration,
    /// The least rate at which a client takes waiting bytes, a second, over each [`write_wait`](Self::write_wait). Below, it is cut off.
    pub write_rate_min: u32,
    /// The time for which a client's bytes after its last answer are read and dropped. Without it a reset could lose the answer.
    pub linger_wait: Duration,
    /// A graceful stop lets requests in flight take this long.
    pub drain: Duration,
    /// The deadline of a request that sets none.
    pub deadline: Duration,
    /// The longest deadline a request may name.
    pub deadline_max: Duration,
    /// The CPU time of a loop's batch. Requests that are ready beyond it wait for the next batch.
    pub batch: Duration,
    /// Bytes of bodies of one batch.
    pub batch_bytes_max: usize,
    /// The longest wait for a batch. As many ready requests may wait as the loop handles in this time; others are refused with 503, before
    /// anything is decided.
    pub wait_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            header_bytes_max: 16 << 10,
            body_bytes_max: 1 << 20,
            connections_max: usize::MAX,
            connections_per_address_max: None,
            spare_connections_max: 64,
            connection_rate_max: None,
            request_rate_max: None,
            caller_request_rate_max: None,
            streams_max: 128,
            live_max: 1_000,
            socket_requests_max: 1_024,
            socket_subscriptions_max: 64,
            socket_messages_max: 10_000,
            socket_frame_bytes_max: 2 << 20,
            socket_ping: Duration::from_secs(20),
            socket_credit_wait: Duration::from_secs(30),
            idle: Duration::from_secs(75),
            header_wait: Duration::from_secs(10),
            body_wait: Duration::from_secs(30),
            body_rate_min: 1_000,
            body_grace: Duration::from_secs(5),
            bodies_bytes_max: 64 << 20,
            write_wait: Duration::from_secs(30),
            write_rate_min: 1_000,
            linger_wait: Duration::from_secs(2),
            drain: Duration::from_secs(10),
            deadline: Duration::from_secs(5),
            deadline_max: Duration::from_secs(3_600),
            batch: Duration::from_millis(5),
            batch_bytes_max: 8 << 20,
            wait_max: Duration::from_millis(500),
        }
    }
}

impl Limits {
    /// Returns the interval between two checks of waits: a quarter of the shortest wait, from 5 ms to 1 s.
    pub(crate) fn sweep_every(&self) -> Duration {
        let waits = [
            self.idle,
            self.header_wait,
            self.body_wait,
            self.write_wait,
            self.socket_ping,
        ];
        (waits.into_iter().min().unwrap_or_default() / 4).clamp(Duration::from_millis(5), Duration::from_secs(1))
    }
}

/// Most loops of a gateway.
pub const LOOPS_MAX: usize = 64;
/// The bytes of a connection, with a head or a message of up to 4 KiB.
pub(crate) const CONNECTION_BYTES: usize = 6 << 10;
/// Fewest bytes the HTTP/1 parser can be limited to.
pub(crate) const HEADER_BYTES_MIN: usize = 8 << 10;
/// Longest idempotency key, in bytes.
pub(crate) const KEY_BYTES_MAX: usize = throng::limits::NAME_BYTES_MAX;
/// The events or entities on a page by default.
pub(crate) const PAGE_DEFAULT: usize = 100;
/// The most events or entities on a page.
pub(crate) const PAGE_MAX: usize = 1_000;
