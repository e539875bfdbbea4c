//! State that the console keeps between two requests.

mod cluster;
mod kept;
mod limiting;
mod questions;
mod recorded;
mod series;

pub use cluster::Cluster;
pub(crate) use recorded::Recorder;
pub(crate) use series::Reading;

use crate::{admission::WaitTimes, places::Places};
use kept::SharedAnswers;
use questions::Questions;
use serde_json::{Map, Value, json};
use series::Series;
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::SystemTime,
};
use throng::journal::ShardId;
use tokio::sync::broadcast;

/// Points that wait for a client.
const POINTS_MAX: usize = 16;
const SOCKETS_MAX: usize = 64;

/// A point, without its closing brace.
pub(crate) type Point = Arc<str>;

/// Formats the point that consoles get each second.
pub(crate) fn point(mut last: Map<String, Value>, hot: Vec<Value>, trouble: Option<usize>) -> Point {
    last.insert("hot".into(), hot.into());
    last.insert("trouble".into(), json!(trouble));
    let mut text = Value::Object(last).to_string();
    text.pop();
    text.into()
}

/// Members of a point that a console shows of another node.
const SUMMED_UP: [&str; 7] = [
    "commands",
    "queries",
    "messages",
    "latency_p99_ms",
    "commit_p99_ms",
    "in_flight",
    "refused",
];

/// Returns the summary of a point: what a console shows of a node beside others.
fn summary(mut last: Map<String, Value>) -> Value {
    let series = SUMMED_UP.map(|name| (name.to_owned(), last["series"][name].take()));
    let loops = last["loops"].as_object().into_iter().flat_map(Map::values);
    let busiest = loops.filter_map(Value::as_f64).reduce(f64::max);
    json!({
        "at": last["at"], "series": Map::from_iter(series), "memory": last["memory"]["process"], "busiest_loop": busiest,
        "limits": last["limits"]["code"],
    })
}

/// The state that the console's parts share, one for each gateway.
pub(crate) struct Console {
    pub(crate) series: Mutex<Series>,
    pub(crate) passes: Mutex<Vec<Arc<WaitTimes>>>,
    /// Sends a point a second to every open socket.
    pub(crate) points: broadcast::Sender<Point>,
    /// Places for open sockets.
    pub(crate) sockets: Places,
    /// Answers that several consoles share.
    pub(crate) kept: SharedAnswers,
    pub(crate) questions: Questions,
    pub(crate) started: SystemTime,
    /// Set by an operator action; cleared when the series next checks what is wrong.
    pub(crate) is_changed: AtomicBool,
    pub(crate) about: About,
}

/// Facts about the service that the console shows.
#[derive(Default)]
pub(crate) struct About {
    pub(crate) title: String,
    pub(crate) version: String,
    /// The journal's type (`directory`, `postgresql`, `memory`), and its place in words for people.
    pub(crate) place: Option<(&'static str, String)>,
    /// The most loops.
    pub(crate) loops_max: usize,
    /// The nodes of the cluster with their shards, as this node sees them; `None` without a cluster.
    pub(crate) cluster: Option<Box<dyn Cluster>>,
    /// The URL for clients, if known.
    pub(crate) url: String,
    /// Returns the owners of all shards, if clients get them.
    pub(crate) owners: Option<OwnersReport>,
    /// Returns a shard's owner for answers about one entity, if clients get it.
    pub(crate) owner: Option<OwnerOf>,
}

/// Returns the owners of a cluster's shards; `null` if they are not known yet.
pub(crate) type OwnersReport = Box<dyn Fn() -> Value + Send + Sync>;

/// Returns the URL of a shard's owner; `None` if it is not known yet.
pub(crate) type OwnerOf = Box<dyn Fn(ShardId) -> Option<String> + Send + Sync>;

impl Console {
    pub(crate) fn new(about: About) -> Self {
        Self {
            series: Mutex::default(),
            passes: Mutex::default(),
            points: broadcast::Sender::new(POINTS_MAX),
            sockets: Places::new(SOCKETS_MAX),
            kept: SharedAnswers::default(),
            questions: Questions::default(),
            started: SystemTime::now(),
            is_changed: AtomicBool::new(false),
            about,
        }
    }

    /// A loop begins, and is watched.
    pub(crate) fn watch(&self, pass: Arc<WaitTimes>) {
        self.passes.lock().unwrap_or_else(PoisonError::into_inner).push(pass);
    }

    /// Returns the newest point's summary; `null` before the first.
    pub(crate) fn now(&self) -> Value {
        let last = self.series.lock().unwrap_or_else(PoisonError::into_inner).last();
        last.map_or(Value::Null, summary)
    }

    /// Notes an operator's change, so that the operator sees its effect at once.
    pub(crate) fn changed(&self) {
        self.kept.clear();
        self.is_changed.store(true, Ordering::Release);
    }

    pub(crate) fn passes(&self) -> Vec<Arc<WaitTimes>> {
        self.passes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl About {
    /// Returns the directory of the journal, if it is in one.
    pub(crate) fn directory(&self) -> Option<&str> {
        let (medium, place) = self.place.as_ref()?;
        (*medium == "directory").then_some(place)
    }

    /// `directory`, `postgresql` or `memory`.
    pub(crate) fn medium(&self) -> &'static str {
        self.place.as_ref().map_or("memory", |(medium, _)| *medium)
    }
}
