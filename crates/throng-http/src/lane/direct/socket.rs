//! A WebSocket as the lane knows it.

use crate::websocket::Opened;

/// A WebSocket among the direct connections.
pub(in crate::lane) struct Socket {
    pub(super) opened: Opened,
    /// So many messages of the frame that has come are done with.
    pub(super) done: usize,
    /// So many commands had come to the queue with its last.
    pub(super) come: u64,
}

impl Socket {
    pub(super) fn new(opened: Opened) -> Box<Self> {
        Box::new(Self {
            opened,
            done: 0,
            come: 0,
        })
    }
}
