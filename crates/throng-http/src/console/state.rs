//! What the console keeps between two requests.

use super::{kept::Kept, questions::Questions, series::Series};
use crate::{gate::Pass, places::Places};
use serde_json::Value;
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};
use tokio::sync::broadcast;

/// Points that wait for a client.
const POINTS_MAX: usize = 16;
const SOCKETS_MAX: usize = 64;

/// A point, without its closing brace.
pub(super) type Point = Arc<str>;

/// What the console's parts share, one a gateway.
pub(crate) struct Console {
    pub(super) series: Mutex<Series>,
    pub(super) passes: Mutex<Vec<Arc<Pass>>>,
    /// One point a second to every open socket.
    pub(super) points: broadcast::Sender<Point>,
    /// Places for open sockets.
    pub(super) sockets: Places,
    /// What several consoles are answered alike.
    pub(super) kept: Kept,
    pub(super) questions: Questions,
    pub(super) started: SystemTime,
    pub(crate) about: About,
}

/// What the service says of itself.
#[derive(Default)]
pub(crate) struct About {
    pub(crate) title: String,
    pub(crate) version: String,
    /// Where the journal stands, for people, and what it is: `directory`, `postgresql`, `memory`.
    pub(crate) place: Option<(&'static str, String)>,
    /// The most loops there may be.
    pub(crate) loops_max: usize,
    /// Of a node of a cluster: the nodes and what they own, as it sees them.
    pub(crate) cluster: Option<ClusterReport>,
}

/// Says how the nodes of a cluster are; `null` as long as that is not known.
pub(crate) type ClusterReport = Box<dyn Fn() -> Value + Send + Sync>;

impl Console {
    pub(crate) fn new(about: About) -> Self {
        Self {
            series: Mutex::default(),
            passes: Mutex::default(),
            points: broadcast::Sender::new(POINTS_MAX),
            sockets: Places::new(SOCKETS_MAX),
            kept: Kept::default(),
            questions: Questions::default(),
            started: SystemTime::now(),
            about,
        }
    }

    /// A loop begins, and is watched.
    pub(crate) fn watch(&self, pass: Arc<Pass>) {
        self.passes.lock().unwrap_or_else(PoisonError::into_inner).push(pass);
    }

    /// Something was changed by hand: who did it sees that at once.
    pub(crate) fn changed(&self) {
        self.kept.clear();
    }

    pub(super) fn passes(&self) -> Vec<Arc<Pass>> {
        self.passes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl About {
    /// The directory of the journal, if it is in one.
    pub(super) fn directory(&self) -> Option<&str> {
        let (medium, place) = self.place.as_ref()?;
        (*medium == "directory").then_some(place)
    }

    /// `directory`, `postgresql` or `memory`.
    pub(super) fn medium(&self) -> &'static str {
        self.place.as_ref().map_or("memory", |(medium, _)| *medium)
    }
}
