//! A plan as it is written in TOML.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The whole file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlanFile {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) description: String,
    pub(crate) target: Option<String>,
    pub(crate) connections: Option<Amount>,
    pub(crate) timeout: Option<String>,
    #[serde(default)]
    pub(crate) http2: bool,
    /// Requests in flight on one connection of HTTP/2.
    pub(crate) streams: Option<Amount>,
    /// Requests in flight on one connection of HTTP/1.1.
    pub(crate) pipeline: Option<Amount>,
    /// The seed. With one, every run draws the same values; without (or 0), each run draws others, so that what it creates is new.
    #[serde(default)]
    pub(crate) seed: u64,
    /// A head-to-head or replay plan names its shape here instead of phases.
    #[serde(default)]
    pub(crate) variables: BTreeMap<String, f64>,
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) data: BTreeMap<String, Data>,
    #[serde(default)]
    pub(crate) request: BTreeMap<String, RequestModel>,
    #[serde(default)]
    pub(crate) phase: Vec<PhaseModel>,
    pub(crate) head2head: Option<HeadToHead>,
    #[serde(default)]
    pub(crate) sample: Vec<SampleModel>,
}

/// A number, or a formula over the plan's variables.
#[derive(Debug, Clone, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a number, or a formula over the plan's variables in quotes"
)]
pub(crate) enum Amount {
    Number(f64),
    Formula(String),
}

/// The source of values. Exactly one of `range`, `list`, `csv`, `uuid`, `text`, `grouped`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Data {
    pub(crate) range: Option<[Amount; 2]>,
    pub(crate) list: Option<Vec<serde_json::Value>>,
    pub(crate) csv: Option<String>,
    pub(crate) uuid: Option<Amount>,
    pub(crate) text: Option<Amount>,
    pub(crate) grouped: Option<Grouped>,
    pub(crate) pick: Pick,
    pub(crate) exponent: Option<Amount>,
    /// Other data of the plan: a value is drawn again while it equals that one's.
    pub(crate) unlike: Option<String>,
    pub(crate) per: Per,
    pub(crate) walk: Walk,
    pub(crate) share: Share,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Pick {
    /// Each independently, uniformly.
    Random,
    /// Values in order, then from the start again.
    #[default]
    Sequence,
    /// Values in one order drawn once, then again.
    Shuffled,
    /// Each independently, the first most often.
    Zipf,
}

/// The time for which a drawn value stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Per {
    #[default]
    Request,
    Iteration,
    User,
}

/// The owner of a place in a sequence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Walk {
    #[default]
    Shared,
    /// Every user begins at the start.
    User,
}

/// The part of the values from which a user draws.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Share {
    #[default]
    All,
    /// Its own part, of equal size, apart from every other user's of the phase.
    Disjoint,
}

/// Members of aggregates, group by group.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Grouped {
    /// The data whose values are the aggregates' ids.
    pub(crate) aggregates: String,
    pub(crate) members: [Amount; 2],
    #[serde(default)]
    pub(crate) actions: Vec<String>,
    /// Aggregates a group.
    pub(crate) group: Amount,
    #[serde(default)]
    pub(crate) order: Order,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Order {
    /// Shuffled within the group.
    #[default]
    Concurrent,
    /// The members of an aggregate follow each other.
    Serial,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RequestModel {
    #[serde(default)]
    pub(crate) method: Option<String>,
    pub(crate) path: String,
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Option<String>,
    #[serde(default)]
    pub(crate) check: Check,
    #[serde(default)]
    pub(crate) capture: BTreeMap<String, Capture>,
    pub(crate) retry: Option<Retry>,
}

impl RequestModel {
    /// Returns the written method, or the one that goes with a body or none.
    pub(crate) fn method(&self) -> &str {
        let usual = if self.body.is_some() { "POST" } else { "GET" };
        self.method.as_deref().unwrap_or(usual)
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Check {
    pub(crate) status: Vec<u16>,
    pub(crate) contains: Option<String>,
    /// JSON pointer → expected value.
    pub(crate) json: BTreeMap<String, serde_json::Value>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) enum Capture {
    /// A JSON pointer into the body.
    Json(String),
    /// A header's value.
    Header(String),
    /// The text between two texts of the body.
    Between([String; 2]),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Retry {
    /// Attempts in all.
    pub(crate) tries: u32,
    /// Pause before each further one; the last is used again.
    #[serde(default)]
    pub(crate) pauses: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PhaseModel {
    pub(crate) name: String,
    /// Closed model: so many users at once.
    pub(crate) users: Option<Amount>,
    /// The time over which their starts are spread.
    pub(crate) ramp: Option<String>,
    /// The number of times that a user goes through the steps.
    pub(crate) repeat: Option<Amount>,
    /// Or for how long.
    #[serde(rename = "for")]
    pub(crate) duration: Option<String>,
    /// Open model: users arrive like this, and go through the steps once.
    #[serde(default)]
    pub(crate) arrivals: Vec<StageModel>,
    #[serde(default)]
    pub(crate) poisson: bool,
    #[serde(default)]
    pub(crate) start: Start,
    /// Pause after every request.
    pub(crate) think: Option<String>,
    #[serde(default)]
    pub(crate) on_failure: OnFailure,
    #[serde(default)]
    pub(crate) data: BTreeMap<String, Data>,
    pub(crate) steps: Vec<PlanStep>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StageModel {
    pub(crate) rate: Option<Amount>,
    pub(crate) from: Option<Amount>,
    pub(crate) to: Option<Amount>,
    #[serde(rename = "for")]
    pub(crate) duration: Amount,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Start {
    /// Name of a phase; the one before by default.
    pub(crate) after: Option<String>,
    /// Share of its users that are done, 0 to 1.
    pub(crate) done: Option<f64>,
    /// Or a time since the start of the run.
    pub(crate) at: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OnFailure {
    #[default]
    Continue,
    /// The user leaves the rest of its steps and begins the next iteration.
    NextIteration,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "expected a step: the name of a request, { request = \"NAME\", times = NUMBER }, or { pause = \"TIME\" }"
)]
pub(crate) enum PlanStep {
    Request(String),
    Times { request: String, times: Amount },
    Pause { pause: String },
}

/// The shape of a comparison of two targets.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeadToHead {
    pub(crate) path: String,
    pub(crate) requests: u64,
    pub(crate) concurrency: usize,
    pub(crate) warmup: u32,
    pub(crate) rounds: u32,
}

/// A series of the target to sample beside the run.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SampleModel {
    /// Prometheus text, or a RabbitMQ management API.
    pub(crate) url: String,
    pub(crate) series: Vec<String>,
}
