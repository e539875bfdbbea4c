//! Plans: users, phases, data, checks, written down in TOML.

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

/// Connections an open phase may grow to, where the plan does not say.
const OPEN_PHASE_CONNECTIONS: u64 = 256;

/// A plan that has been read, with its variables set.
#[derive(Debug, Clone)]
pub struct Plan {
    file: model::PlanFile,
    text: String,
    name: String,
    directory: Option<PathBuf>,
}

/// Two targets compared, as a plan describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadToHeadShape {
    /// Path requested of both.
    pub path: String,
    /// Requests a round.
    pub requests: u64,
    /// Connections the requests are spread over.
    pub concurrency: usize,
    /// Rounds before those that count.
    pub warmup: u32,
    /// Rounds that count.
    pub rounds: u32,
}

/// A series of the target to sample beside a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampleShape {
    /// The URL where it is read.
    pub url: String,
    /// The series that are read there.
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

    /// Reads a plan from its text; `directory` is where its CSV files lie.
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

    /// The title the plan gives itself.
    pub fn name(&self) -> &str {
        &self.file.name
    }

    /// Returns the purpose of the plan.
    pub fn description(&self) -> &str {
        &self.file.description
    }

    /// Its text as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The target it names, if it does.
    pub fn target(&self) -> Option<&str> {
        self.file.target.as_deref()
    }

    /// Returns the variables that can be set in it, by name.
    pub fn variables(&self) -> &BTreeMap<String, f64> {
        &self.file.variables
    }

    /// Sets a variable the plan has.
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

    /// The head-to-head it describes, if it is one.
    pub fn head_to_head(&self) -> Option<HeadToHeadShape> {
        self.file.head2head.as_ref().map(|shape| HeadToHeadShape {
            path: shape.path.clone(),
            requests: shape.requests,
            concurrency: shape.concurrency,
            warmup: shape.warmup,
            rounds: shape.rounds,
        })
    }

    /// Series it wants sampled.
    pub fn samples(&self) -> Vec<SampleShape> {
        let samples = compile::samples(&self.file).iter();
        samples
            .map(|sample| SampleShape {
                url: sample.url.clone(),
                series: sample.series.clone(),
            })
            .collect()
    }

    /// Requests of all its phases for a target, where its users' way is known; retries come on top.
    pub fn requests_expected(&self, target: &Target) -> Result<Option<u64>> {
        Ok(self.compile(target)?.requests_expected())
    }

    /// The method of a class's requests; classes are called by phase and request.
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

    /// Connections at most: as the plan says, else one for each user that may be under way, at most 1,024.
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

    /// Connections made before the clock starts: those of users who all begin at once. How many arrivals
    /// will be under way together is the target's answer, so those of open phases grow with need.
    fn connections_ahead(compiled: &Compiled) -> usize {
        let each = compiled.phases.iter().map(|phase| match phase.crowd {
            Crowd::Closed { users, .. } => users,
            Crowd::Open { .. } => 0,
        });
        each.sum::<u64>().min(1024) as usize
    }

    /// Runs it on `threads` workers. `options` lend everything but classes, and connections where
    /// `connections` is not given.
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

    /// Returns the part of a report of this plan that its open phases made. A search varies their rate: requests that only prepare
    /// something are not judged. `None` where all are of one kind.
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

    /// Returns the plan with a seed of its own, where it has none: a second run on the same target creates other things.
    fn fresh(&self) -> Self {
        let mut plan = self.clone();
        while plan.file.seed == 0 {
            plan.file.seed = RandomState::new().hash_one(plan.file.phase.len());
        }
        plan
    }

    /// Streams on a connection of HTTP/2, where it asks for that.
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

    /// Requests in flight on a connection of HTTP/1.1.
    pub fn pipeline(&self) -> Result<usize> {
        let pipeline = self.file.pipeline.as_ref();
        let pipeline = pipeline.map_or(Ok(1), |pipeline| pipeline.whole(&self.file.variables));
        pipeline
            .map(|count| count as usize)
            .map_err(|reason| self.wrong(format!("`pipeline`: {reason}")))
    }

    /// The request timeout it names.
    pub fn timeout(&self) -> Result<Option<Duration>> {
        let timeout = self.file.timeout.as_deref().map(values::time).transpose();
        timeout.map_err(|reason| self.wrong(format!("`timeout`: {reason}")))
    }

    /// A copy for `stop`-able repetition with other variables, as a capacity search makes it.
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
