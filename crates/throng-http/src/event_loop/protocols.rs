//! The settings of hyper.

use crate::{
    connection::spawn_stream,
    limits::{HEADER_BYTES_MIN, Limits},
};
use hyper::server::conn::{http1, http2};
use std::future::Future;

/// Runs what an HTTP/2 connection does beside, on the same loop.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocalTasks;

impl<F: Future + 'static> hyper::rt::Executor<F> for LocalTasks
where
    F::Output: 'static,
{
    fn execute(&self, future: F) {
        spawn_stream(future);
    }
}

/// Bytes of bodies of an HTTP/2 connection that its client may send before they are read.
const WINDOW_BYTES: u32 = 256 << 10;

/// How HTTP is spoken.
pub(super) struct Protocols {
    pub(super) http1: http1::Builder,
    pub(super) http2: http2::Builder<LocalTasks>,
}

impl Protocols {
    pub(super) fn new(limits: &Limits) -> Self {
        let head = limits.header_bytes_max.max(HEADER_BYTES_MIN);
        let (mut http1, mut http2) = (http1::Builder::new(), http2::Builder::new(LocalTasks));
        // Waits are bounded by the sweep, not by timers of the parser: a timer a request costs more than its parsing.
        http1.max_buf_size(head).header_read_timeout(None).half_close(false);
        http2
            .max_concurrent_streams(limits.streams_max)
            .initial_connection_window_size(WINDOW_BYTES)
            .initial_stream_window_size(WINDOW_BYTES)
            .max_header_list_size(u32::try_from(head).unwrap_or(u32::MAX));
        Self { http1, http2 }
    }
}
