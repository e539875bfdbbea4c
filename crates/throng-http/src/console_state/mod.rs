//! What the console keeps between two requests.

mod kept;
mod limiting;
mod questions;
mod recorded;
mod series;

pub(crate) use recorded::Recorder;
pub(crate) use series::Reading;

use crate::{gate::Pass, places::Places};
use kept::Kept;
use questions::Questions;
use serde_json::{Map, Value, json};
use series::Series;
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};
use tokio::sync::broadcast;

/// Points that wait for a client.
const POINTS_MAX: usize = 16;
const SOCKETS_MAX: usize = 64;

/// A point, without its closing brace.
pub(crate) type Point = Arc<str>;

/// What is told each second.
pub(crate) fn point(mut last: Map<String, Value>, hot: Vec<Value>, trouble: Option<usize>) -> Point {
    last.insert("hot".into(), hot.into());
    last.insert("trouble".into(), json!(trouble));
    let mut text = Value::Object(last).to_string();
    text.pop();
    text.into()
}

/// What the console's parts share, one a gateway.
pub(crate) struct Console {
    pub(crate) series: Mutex<Series>,
    pub(crate) passes: Mutex<Vec<Arc<Pass>>>,
    /// One point a second to every open socket.
    pub(crate) points: broadcast::Sender<Point>,
    /// Places for open sockets.
    pub(crate) sockets: Places,
    /// What several consoles are answered alike.
    pub(crate) kept: Kept,
    pub(crate) questions: Questions,
    pub(crate) started: SystemTime,
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
    /// The owners of all shards, for clients that are told them.
    pub(crate) owners: Option<ClusterReport>,
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

    pub(crate) fn passes(&self) -> Vec<Arc<Pass>> {
        self.passes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl About {
    /// The directory of the journal, if it is in one.
    pub(crate) fn directory(&self) -> Option<&str> {
        let (medium, place) = self.place.as_ref()?;
        (*medium == "directory").then_some(place)
    }

    /// `directory`, `postgresql` or `memory`.
    pub(crate) fn medium(&self) -> &'static str {
        self.place.as_ref().map_or("memory", |(medium, _)| *medium)
    }
}
