//! The state of an open WebSocket, and the unfinished work that it takes along between the fast path and its task.

use super::message::Id;
use crate::{
    access,
    connection::{Connection, InFlight},
    metrics::Level,
    routes,
    server::Server,
};
use bytes::Bytes;
use std::{collections::VecDeque, rc::Rc};
use throng::driver::Charge;
use tokio::task::AbortHandle;

/// A WebSocket that is open.
pub(crate) struct Opened {
    _level: Level,
    /// The socket counts as one long request of its connection, so that it may be silent for long.
    _in_flight: InFlight<Rc<Connection>>,
    /// Watches whether the token that opened it is still accepted.
    watch: Option<AbortHandle>,
}

impl Opened {
    pub(crate) fn new(server: &Rc<Server>, connection: &Rc<Connection>) -> Self {
        let watch = connection.take_held().map(|held| {
            let (server, connection) = (server.clone(), connection.clone());
            let watching = tokio::task::spawn_local(async move {
                access::ends(Some(&held), &server).await;
                connection.expires();
            });
            watching.abort_handle()
        });
        Self {
            _level: server.metrics().socket_opened(),
            _in_flight: InFlight::begin(connection.clone(), http::Version::HTTP_11),
            watch,
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Some(watch) = &self.watch {
            watch.abort();
        }
    }
}

/// An executed command whose answer waits for its commit.
pub(crate) struct Staged {
    pub(crate) id: Id,
    pub(crate) staged: routes::Staged,
}

/// The unfinished work of a WebSocket that becomes a task.
#[derive(Default)]
pub(crate) struct Left {
    /// The received bytes that are not finished. Of the first frame, `skip` messages are finished.
    pub(crate) came: Bytes,
    pub(crate) skip: usize,
    /// Commands in their order.
    pub(crate) staged: VecDeque<Staged>,
    /// Frames that have to be sent before all others.
    pub(crate) output: Vec<u8>,
    /// The memory of large replies in them.
    pub(crate) charge: Option<Charge>,
    /// The socket is new: its client has not been greeted.
    pub(crate) hello: bool,
    /// The number of commands that wait for nothing after which the socket returns to the fast path.
    pub(crate) plain: u32,
}

impl Left {
    /// Returns the work of a socket that has just been opened, with the bytes that have already arrived.
    pub(crate) fn new(came: Bytes) -> Self {
        let hello = true;
        Self {
            came,
            hello,
            ..Self::default()
        }
    }
}
