//! The wake-ups of `h2`: for the connection, or for some of its streams.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

/// The connection and streams that are to be polled next.
#[derive(Debug, Default)]
pub(super) struct Woken {
    connection: AtomicBool,
    streams: Mutex<VecDeque<u32>>,
}

impl Woken {
    pub(super) fn wake_connection(&self) {
        self.connection.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_connection(&self) -> bool {
        self.connection.load(Ordering::Relaxed)
    }

    pub(super) fn take_connection(&self) -> bool {
        self.connection.swap(false, Ordering::Relaxed)
    }

    pub(super) fn next_stream(&self) -> Option<u32> {
        self.streams().pop_front()
    }

    pub(super) fn connection_waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::new(ConnectionWaker(self.clone())))
    }

    pub(super) fn stream_waker(self: &Arc<Self>, number: u32) -> Waker {
        let woken = self.clone();
        Waker::from(Arc::new(StreamWaker { woken, number }))
    }

    fn streams(&self) -> MutexGuard<'_, VecDeque<u32>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct ConnectionWaker(Arc<Woken>);

impl Wake for ConnectionWaker {
    fn wake(self: Arc<Self>) {
        self.0.wake_connection();
    }
}

struct StreamWaker {
    woken: Arc<Woken>,
    number: u32,
}

impl Wake for StreamWaker {
    fn wake(self: Arc<Self>) {
        self.woken.streams().push_back(self.number);
    }
}
