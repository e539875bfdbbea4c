//! A plan as it is written in TOML.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The contents of the file.
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
    /// The seed. With a seed, every run draws the same values. Without one (or with 0), each run draws others, so that it creates new things.
    #[serde(default)]
    pub(crate) seed: u64,
    /// The plan's variables and their values. A head-to-head plan has `head2head` instead of phases.
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

/// A number, or a formula of the plan's variables.
#[derive(Debug, Clone, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a number, or a formula over the plan's variables in quotes"
)]
pub(crate) enum Amount {
    Number(f64),
    Formula(String),
}

/// A source of values. It has exactly one of `range`, `list`, `csv`, `uuid`, `text`, `grouped`.
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
    /// Other data of the plan. A value is drawn again while it equals the value of that data.
    pub(crate) unlike: Option<String>,
    pub(crate) per: Per,
    pub(crate) walk: Walk,
    pub(crate) share: Share,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Pick {
    /// Each value independently and uniformly.
    Random,
    /// The values in order, again and again.
    #[default]
    Sequence,
    /// The values in one shuffled order, again and again.
    Shuffled,
    /// Each value independently, the first one most often.
    Zipf,
}

/// The time for which a drawn value is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Per {
    #[default]
    Request,
    Iteration,
    User,
}

/// The owner of the position in a sequence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Walk {
    #[default]
    Shared,
    /// Each user has its own and begins at the start.
    User,
}

/// The part of the values from which a user draws.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Share {
    #[default]
    All,
    /// Each user has its own part. The parts have equal size and do not overlap within the phase.
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
    /// The number of aggregates in a group.
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
    /// Returns the given method, or the default with or without a body.
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
    /// The expected values by JSON pointer.
    pub(crate) json: BTreeMap<String, serde_json::Value>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) enum Capture {
    /// The value at a JSON pointer into the body.
    Json(String),
    /// The value of a header.
    Header(String),
    /// The text between two texts of the body.
    Between([String; 2]),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Retry {
    /// The most attempts.
    pub(crate) tries: u32,
    /// The pause before each further attempt. The last pause is used again.
    #[serde(default)]
    pub(crate) pauses: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PhaseModel {
    pub(crate) name: String,
    /// The closed model, with this many users at once.
    pub(crate) users: Option<Amount>,
    /// The time over which their starts are spread.
    pub(crate) ramp: Option<String>,
    /// The number of times that a user goes through the steps.
    pub(crate) repeat: Option<Amount>,
    /// The time for which users repeat the steps, instead of `repeat`.
    #[serde(rename = "for")]
    pub(crate) duration: Option<String>,
    /// The open model. Users arrive at these rates, and go through the steps once.
    #[serde(default)]
    pub(crate) arrivals: Vec<StageModel>,
    #[serde(default)]
    pub(crate) poisson: bool,
    #[serde(default)]
    pub(crate) start: Start,
    /// The pause after every request.
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
    /// The name of the phase to wait for, by default the one before.
    pub(crate) after: Option<String>,
    /// The share of the phase's users that are done, 0 to 1.
    pub(crate) done: Option<f64>,
    /// A time since the start of the run, instead.
    pub(crate) at: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OnFailure {
    #[default]
    Continue,
    /// The user skips the rest of its steps and begins the next iteration.
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

/// A series of the target that is sampled during the run.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SampleModel {
    /// The URL of a page in Prometheus text, or of a RabbitMQ management API.
    pub(crate) url: String,
    pub(crate) series: Vec<String>,
}
