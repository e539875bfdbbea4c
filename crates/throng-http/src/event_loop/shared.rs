//! The parts of a loop that its tasks share.

use crate::{
    connection::{Connections, spawn_stream},
    http1::Intake,
    limits::{HEADER_BYTES_MIN, Limits},
    server::Server,
};
use hyper::server::conn::{http1, http2};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::Future,
    rc::Rc,
};
use tokio::sync::Notify;

/// The state that the connection tasks of a loop share.
pub(super) struct EventLoop {
    pub(super) server: Rc<Server>,
    /// The way into the fast path.
    pub(super) intake: Rc<Intake>,
    pub(super) connections: Rc<Connections>,
    pub(super) protocols: Protocols,
    pub(super) refusals: Refusals,
}

/// Connections beyond the limits that are being examined. If there are too many, the oldest is answered at once.
#[derive(Default)]
pub(super) struct Refusals {
    tasks: RefCell<VecDeque<(u64, Rc<Notify>)>>,
    next: Cell<u64>,
}

impl Refusals {
    pub(super) fn push(&self, gives_way: Rc<Notify>, most: usize) -> u64 {
        let number = self.next.replace(self.next.get() + 1);
        let mut tasks = self.tasks.borrow_mut();
        tasks.push_back((number, gives_way));
        while tasks.len() > most
            && let Some((_, oldest)) = tasks.pop_front()
        {
            oldest.notify_one();
        }
        number
    }

    pub(super) fn left(&self, number: u64) {
        self.tasks.borrow_mut().retain(|(other, _)| *other != number);
    }
}

/// Runs the side tasks of an HTTP/2 connection on the same loop.
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

/// The settings of hyper for both versions of HTTP.
pub(super) struct Protocols {
    pub(super) http1: http1::Builder,
    pub(super) http2: http2::Builder<LocalTasks>,
}

impl Protocols {
    pub(super) fn new(limits: &Limits) -> Self {
        let head = limits.header_bytes_max.max(HEADER_BYTES_MIN);
        let (mut http1, mut http2) = (http1::Builder::new(), http2::Builder::new(LocalTasks));
        // The sweep bounds waits, not the parser's timers: a timer for each request costs more than its parsing.
        http1.max_buf_size(head).header_read_timeout(None).half_close(false);
        http2
            .max_concurrent_streams(limits.streams_max)
            .initial_connection_window_size(WINDOW_BYTES)
            .initial_stream_window_size(WINDOW_BYTES)
            .max_header_list_size(u32::try_from(head).unwrap_or(u32::MAX));
        Self { http1, http2 }
    }
}
