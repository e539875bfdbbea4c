//! What a WebSocket is from its opening to its end, and what goes along when another looks after it.

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
    /// It is one long request to its connection: it may be silent for long.
    _in_flight: InFlight<Rc<Connection>>,
    /// Watches whether what it was opened by is still taken.
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

/// A command that was executed; its answer waits for its commit.
pub(crate) struct Staged {
    pub(crate) id: Id,
    pub(crate) staged: routes::Staged,
}

/// What is left to do with a WebSocket.
#[derive(Default)]
pub(crate) struct Left {
    /// What has come and is not done with, but for so many messages of its first frame.
    pub(crate) came: Bytes,
    pub(crate) skip: usize,
    /// Commands in their order.
    pub(crate) staged: VecDeque<Staged>,
    /// Frames that are to go before all others.
    pub(crate) output: Vec<u8>,
    /// The memory of large replies in them.
    pub(crate) charge: Option<Charge>,
    /// Nothing was told of it: it is new.
    pub(crate) hello: bool,
    /// So many commands that wait for nothing make it the lane's.
    pub(crate) plain: u32,
}

impl Left {
    /// Of one that has just been opened, of which this has come already.
    pub(crate) fn new(came: Bytes) -> Self {
        let hello = true;
        Self {
            came,
            hello,
            ..Self::default()
        }
    }
}
