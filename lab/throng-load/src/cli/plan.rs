//! `throng load run` and `throng load plans`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;

use super::common::{Common, show, stop_on_signals};
use super::course;
use super::progress::{Display, Goal};
use super::values;
use crate::Options;
use crate::plan::{Plan, shipped};

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// A plan file, or the name of a shipped plan (see `plans`).
    plan: String,
    #[command(flatten)]
    pub(crate) planned: Planned,
    /// End after this time, whatever the plan says.
    #[arg(long = "for", short = 'd', value_parser = values::time, value_name = "TIME")]
    duration: Option<Duration>,
    /// Also print the report of the skiers course's load client, and write its CSV line for each request to this file:
    /// start_time,latency,request_type,response_code.
    #[arg(long, value_name = "FILE", conflicts_with = "csv")]
    course: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// A plan with its target.
#[derive(Debug, Args)]
pub(crate) struct Planned {
    /// Base URL, instead of the plan's.
    #[arg(long)]
    pub(crate) target: Option<String>,
    /// Set a variable of the plan, NAME=VALUE; repeatable.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub(crate) variables: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PlansArgs {
    /// The plan to print, or a file it draws from.
    name: Option<String>,
}

impl Planned {
    /// Opens a plan, sets its variables, and prepares options for its target.
    pub(crate) fn open(&self, name: &str, common: &Common, stop: &crate::Stop) -> anyhow::Result<(Plan, Options)> {
        let mut plan = Plan::open(name)?;
        for text in &self.variables {
            let (variable, value) = text
                .split_once('=')
                .with_context(|| format!("`{text}` is not NAME=VALUE"))?;
            let value: f64 = value.parse().with_context(|| format!("`{value}` is no number"))?;
            plan.set(variable, value)?;
        }
        let Some(url) = self.target.as_deref().or(plan.target()) else {
            bail!("the plan names no target: give --target URL");
        };
        let mut options = common.options(common.target(url)?, stop)?;
        if let (None, Some(timeout)) = (common.timeout, plan.timeout()?) {
            options.request_timeout = timeout;
            options.drain = timeout;
        }
        options.http2 = options.http2.or(plan.http2()?);
        options.pipeline = plan.pipeline()?;
        Ok((plan, options))
    }
}

pub(crate) fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let common = &args.common;
    let stop = stop_on_signals()?;
    let (plan, mut options) = args.planned.open(&args.plan, common, &stop)?;
    if plan.head_to_head().is_some() {
        bail!(
            "`{}` compares two targets: run it with `head2head A_URL B_URL --plan {}`",
            args.plan,
            args.plan
        );
    }
    options.duration = args.duration;
    if let Some(path) = &args.course {
        options.log = Some(path.clone());
    }
    if plan.requests_expected(&options.target)? == Some(0) {
        bail!(
            "{}: it would not make one request: every phase is without users, arrivals or requests (a rate, time or count of 0?)",
            args.plan
        );
    }
    let goal = match (plan.requests_expected(&options.target)?, args.duration) {
        (_, Some(duration)) => Goal::Time(duration),
        (Some(total), None) => Goal::Requests(total),
        (None, None) => Goal::Unknown,
    };
    let sampler = common.sampler(&plan.samples())?;
    let mut display = Display::new(&args.plan, goal, common.quiet);
    let report = plan.run(options, common.connections, common.threads(), |progress| {
        display.update(progress)
    });
    display.finish();
    let report = Common::sampled(sampler, report?);
    let code = common.deliver(&report)?;
    if let Some(path) = &args.course {
        course::rewrite(path, &report, &plan)?;
        if common.json.as_deref() != Some(Path::new("-")) {
            show(&format!("\n{}", course::text(&report)));
        }
    }
    Ok(code)
}

pub(crate) fn list(args: &PlansArgs) -> anyhow::Result<ExitCode> {
    if let Some(name) = &args.name {
        let text = shipped::text(name)
            .or_else(|| shipped::data(name))
            .with_context(|| format!("no shipped plan `{name}`; there are: {}", shipped::names().join(", ")))?;
        show(text);
        return Ok(ExitCode::SUCCESS);
    }
    let mut lines = String::new();
    for name in shipped::names() {
        let plan = Plan::open(name)?;
        let _ = writeln!(lines, "{name:18} {}", plan.name());
        let variables: Vec<String> = plan
            .variables()
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        if !variables.is_empty() {
            let _ = writeln!(lines, "{:18} --set {}", "", variables.join(" "));
        }
    }
    show(&lines);
    Ok(ExitCode::SUCCESS)
}
