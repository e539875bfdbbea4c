//! Plans in TOML: users, phases, data and checks.

mod check;
mod compile;
mod csv;
mod data;
mod expression;
mod groups;
mod model;
pub mod shipped;
mod source;
mod template;

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cli::values;
use crate::error::{Error, Result};
use crate::{Options, Progress, Report, Target, run_watched};
use compile::{Compiled, Crowd};
use source::PlanSource;

/// The most connections of an open phase if the plan does not say.
const OPEN_PHASE_CONNECTIONS: u64 = 256;

/// A plan that was read, with values for its variables.
#[derive(Debug, Clone)]
pub struct Plan {
    file: model::PlanFile,
    text: String,
    name: String,
    directory: Option<PathBuf>,
}

/// A comparison of two targets in a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadToHeadShape {
    /// The path of the requests to both targets.
    pub path: String,
    /// The number of requests in a round.
    pub requests: u64,
    /// The connections of the requests.
    pub concurrency: usize,
    /// The rounds before those that count.
    pub warmup: u32,
    /// The rounds that count.
    pub rounds: u32,
}

/// The series of the target that are sampled during a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampleShape {
    /// The URL of the page.
    pub url: String,
    /// The series of the page.
    pub series: Vec<String>,
}

impl Plan {
    /// Reads a plan file, or a shipped plan by its name.
    pub fn open(name: &str) -> Result<Self> {
        if let Some(text) = shipped::text(name) {
            return Plan::parse(text, name, None);
        }
        let path = Path::new(name);
        let text = std::fs::read_to_string(path).map_err(|error| Error::Plan {
            file: name.to_string(),
            reason: format!(
                "cannot be read ({error}), and no shipped plan has this name; there are: {}",
                shipped::names().join(", ")
            ),
        })?;
        Plan::parse(&text, name, path.parent())
    }

    /// Reads a plan from its text. `directory` holds its CSV files.
    pub fn parse(text: &str, name: &str, directory: Option<&Path>) -> Result<Self> {
        let file = toml::from_str(text).map_err(|error| Error::Plan {
            file: name.to_string(),
            reason: error.to_string().trim_end().to_string(),
        })?;
        Ok(Plan {
            file,
            text: text.to_string(),
            name: name.to_string(),
            directory: directory.map(Path::to_path_buf),
        })
    }

    /// Returns the title of the plan.
    pub fn name(&self) -> &str {
        &self.file.name
    }

    /// Returns the purpose of the plan.
    pub fn description(&self) -> &str {
        &self.file.description
    }

    /// Returns the text of the plan.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the target in the plan, if any.
    pub fn target(&self) -> Option<&str> {
        self.file.target.as_deref()
    }

    /// Returns the variables of the plan and their values, by name.
    pub fn variables(&self) -> &BTreeMap<String, f64> {
        &self.file.variables
    }

    /// Sets a variable of the plan.
    pub fn set(&mut self, name: &str, value: f64) -> Result<()> {
        match self.file.variables.get_mut(name) {
            Some(variable) => *variable = value,
            None => {
                let known = values::known(self.file.variables.keys().map(String::as_str));
                return Err(self.wrong(format!("it has no variable `{name}`; {known}")));
            }
        }
        Ok(())
    }

    /// Returns the head-to-head in the plan, if it is one.
    pub fn head_to_head(&self) -> Option<HeadToHeadShape> {
        self.file.head2head.as_ref().map(|shape| HeadToHeadShape {
            path: shape.path.clone(),
            requests: shape.requests,
            concurrency: shape.concurrency,
            warmup: shape.warmup,
            rounds: shape.rounds,
        })
    }

    /// Returns the series to sample.
    pub fn samples(&self) -> Vec<SampleShape> {
        let samples = compile::samples(&self.file).iter();
        samples
            .map(|sample| SampleShape {
                url: sample.url.clone(),
                series: sample.series.clone(),
            })
            .collect()
    }

    /// Returns the number of requests of all phases against a target, if every user's steps are known. Retries are not included.
    pub fn requests_expected(&self, target: &Target) -> Result<Option<u64>> {
        Ok(self.compile(target)?.requests_expected())
    }

    /// Returns the method of a class's requests. A class is named by phase and request.
    pub(crate) fn method_of(&self, class: &str) -> &str {
        let of_class = |name: &str| class.strip_suffix(name).is_some_and(|phase| phase.ends_with('/'));
        let found = self.file.request.iter().find(|(name, _)| of_class(name));
        found.map_or("", |(_, request)| request.method())
    }

    fn wrong(&self, reason: String) -> Error {
        Error::Plan {
            file: self.name.clone(),
            reason,
        }
    }

    fn compile(&self, target: &Target) -> Result<Compiled> {
        compile::compile(&self.file, target, &self.file.variables, self.directory.as_deref())
            .map_err(|reason| self.wrong(reason))
    }

    /// Returns the most connections: those in the plan, or one for each user that may be active, up to 1,024.
    fn connections(&self, compiled: &Compiled) -> Result<usize> {
        if let Some(amount) = &self.file.connections {
            return amount
                .whole(&self.file.variables)
                .map(|count| count as usize)
                .map_err(|reason| self.wrong(reason));
        }
        let each = compiled.phases.iter().map(|phase| match phase.crowd {
            Crowd::Closed { users, .. } => users,
            Crowd::Open { .. } => OPEN_PHASE_CONNECTIONS,
        });
        Ok(each.sum::<u64>().clamp(1, 1024) as usize)
    }

    /// Returns the connections that are made before the clock starts: those of users who all begin at once. The target decides how many users of an
    /// open phase are active at once, so its connections are made when needed.
    fn connections_ahead(compiled: &Compiled) -> usize {
        let each = compiled.phases.iter().map(|phase| match phase.crowd {
            Crowd::Closed { users, .. } => users,
            Crowd::Open { .. } => 0,
        });
        each.sum::<u64>().min(1024) as usize
    }

    /// Runs the plan on `threads` workers. `options` are used except for the classes, and except for the connections if `connections` is `None`.
    pub fn run(
        &self,
        mut options: Options,
        connections: Option<usize>,
        threads: usize,
        watch: impl FnMut(&Progress<'_>),
    ) -> Result<Report> {
        let compiled = self.fresh().compile(&options.target)?;
        options.connections = match connections {
            Some(connections) => connections,
            None => self.connections(&compiled)?.max(threads),
        };
        options.connections_ahead = Plan::connections_ahead(&compiled);
        options.classes = compiled.classes.clone();
        let open_seconds: Vec<f64> = compiled
            .phases
            .iter()
            .filter_map(|phase| match &phase.crowd {
                Crowd::Open { arrivals, .. } => Some(arrivals.seconds()),
                Crowd::Closed { .. } => None,
            })
            .collect();
        let run = run_watched(&options, PlanSource::split(compiled, threads), watch)?;
        let mut report = run.report.titled(self.name()).setting("plan", &self.name);
        if !open_seconds.is_empty() {
            report = report.setting(
                "model",
                format!("plan with open phases of {:.1} s", open_seconds.iter().sum::<f64>()),
            );
        }
        for (name, value) in &self.file.variables {
            report = report.setting(&format!("variable {name}"), value);
        }
        report.plan = Some(self.text.clone());
        Ok(report)
    }

    /// Returns the part of a report that the open phases made. A search varies their rate. It does not judge requests that only prepare something.
    /// `None` if all phases are of one kind.
    pub(crate) fn open_part(&self, report: &Report, target: &Target) -> Result<Option<Report>> {
        let (open, closed): (Vec<_>, Vec<_>) = self.file.phase.iter().partition(|phase| !phase.arrivals.is_empty());
        if open.is_empty() || closed.is_empty() {
            return Ok(None);
        }
        let compiled = self.compile(target)?;
        let seconds = compiled.phases.iter().map(|phase| match &phase.crowd {
            Crowd::Open { arrivals, .. } => arrivals.seconds(),
            Crowd::Closed { .. } => 0.0,
        });
        let is_open = |class: &str| {
            class
                .split_once('/')
                .is_some_and(|(of, _)| open.iter().any(|phase| phase.name == of))
        };
        Ok(Some(report.of_classes(is_open, Duration::from_secs_f64(seconds.sum()))))
    }

    /// Returns the plan with a random seed if it has none, so that a second run on the same target creates other things.
    fn fresh(&self) -> Self {
        let mut plan = self.clone();
        while plan.file.seed == 0 {
            plan.file.seed = RandomState::new().hash_one(plan.file.phase.len());
        }
        plan
    }

    /// Returns the streams on a connection of HTTP/2, if the plan uses it.
    pub fn http2(&self) -> Result<Option<usize>> {
        let streams = match (&self.file.streams, self.file.http2) {
            (None, true) => 1,
            (None, false) => return Ok(None),
            (Some(_), false) => return Err(self.wrong("`streams` is of HTTP/2: say `http2 = true`, too".into())),
            (Some(streams), true) => streams
                .whole(&self.file.variables)
                .map_err(|reason| self.wrong(reason))?,
        };
        Ok(Some(streams as usize))
    }

    /// Returns the requests in flight on a connection of HTTP/1.1.
    pub fn pipeline(&self) -> Result<usize> {
        let pipeline = self.file.pipeline.as_ref();
        let pipeline = pipeline.map_or(Ok(1), |pipeline| pipeline.whole(&self.file.variables));
        pipeline
            .map(|count| count as usize)
            .map_err(|reason| self.wrong(format!("`pipeline`: {reason}")))
    }

    /// Returns the request timeout in the plan.
    pub fn timeout(&self) -> Result<Option<Duration>> {
        let timeout = self.file.timeout.as_deref().map(values::time).transpose();
        timeout.map_err(|reason| self.wrong(format!("`timeout`: {reason}")))
    }

    /// Returns a copy with another value of a variable, for a capacity search.
    pub(crate) fn with(&self, name: &str, value: f64) -> Result<Self> {
        let mut plan = self.clone();
        plan.set(name, value)?;
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        let target = Target::parse("http://127.0.0.1:9", false).unwrap();
        let refused = match Plan::parse(text, "p.toml", None) {
            Ok(plan) => plan.timeout().err().or(plan.compile(&target).err()),
            Err(error) => Some(error),
        };
        refused.map_or_else(|| panic!("taken: {text}"), |error| error.to_string())
    }

    #[test]
    fn a_mistake_is_told_with_its_place_and_a_correction() {
        let with = |request: &str, phase: &str| {
            format!("name = \"x\"\n[request.get]\npath = \"/\"\n{request}\n[[phase]]\nname = \"a\"\n{phase}\n")
        };
        for (text, parts) in [
            (
                with("", "users = 1\nthink = \"1x\"\nsteps = [\"get\"]"),
                &["phase `a`", "`think`", "`1x`", "use us, ms"][..],
            ),
            (
                with("", "users = 1\nsteps = [{ pause = \"soon\" }]"),
                &["`pause`", "`soon`", "20ms"],
            ),
            (
                with(
                    "retry = { tries = 2, pauses = [\"x\"] }",
                    "users = 1\nsteps = [\"get\"]",
                ),
                &["`get`", "`retry.pauses`"],
            ),
            (
                with("", "arrivals = [{ rate = \"r\", for = 1 }]\nsteps = [\"get\"]"),
                &["no variable `r`", "there are none"],
            ),
            (
                with("", "arrivals = [{ rate = inf, for = 1 }]\nsteps = [\"get\"]"),
                &["inf is no number"],
            ),
            (
                with("", "arrivals = [{ rate = true, for = 1 }]\nsteps = [\"get\"]"),
                &["line 7", "expected a number, or a formula"],
            ),
            (
                with("", "users = 1\nsteps = [{ request = \"get\", tims = 2 }]"),
                &["line 8", "expected a step"],
            ),
            (
                with("", "users = 1\nsteps = [\"gett\"]"),
                &["no request `gett`", "there are: get"],
            ),
            (
                with("body = \"${n}\"", "users = 1\nsteps = [\"get\"]"),
                &["`${n}`", "data, capture or variable", "there are none"],
            ),
            (
                format!("timeout = \"0s\"\n{}", with("", "users = 1\nsteps = [\"get\"]")),
                &["`timeout`", "more than 0"],
            ),
        ] {
            let error = refusal(&text);
            for part in parts {
                assert!(error.contains(part), "no {part:?} in {error}");
            }
        }
    }
}
