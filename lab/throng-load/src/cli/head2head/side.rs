//! A target and the results of its rounds.

use std::time::Duration;

use super::target::{Process, TargetArgument};
use crate::cli::common::Common;
use crate::cli::progress::{Display, Goal};
use crate::comparison::Repetition;
use crate::plan::HeadToHeadShape;
use crate::report::{Cost, html};
use crate::sample::Usage;
use crate::{Closed, Options, Report, Request, Stop, run_watched};

/// The extent of a round.
#[derive(Debug, Clone, Copy)]
pub(super) enum Load {
    Requests(u64),
    For(Duration),
}

pub(super) struct Side {
    target: TargetArgument,
    options: Options,
    process: Option<Process>,
    pub(super) repetitions: Vec<Repetition>,
    report: Option<Report>,
    cpu_nanos: u64,
    memory_bytes_max: u64,
    measured: bool,
}

impl Side {
    pub(super) fn new(
        argument: TargetArgument,
        shape: Option<&HeadToHeadShape>,
        common: &Common,
        stop: &Stop,
        load: Load,
        concurrency: usize,
    ) -> anyhow::Result<Self> {
        let mut target = common.target(&argument.url)?;
        if let (Some(shape), "/") = (shape, target.path.as_str()) {
            target.path = shape.path.clone();
        }
        let mut options = common.options(target, stop)?;
        options.http2 = argument.http2.or(options.http2);
        let most = match load {
            Load::Requests(requests) => usize::try_from(requests).unwrap_or(usize::MAX),
            Load::For(duration) => {
                options.duration = Some(duration);
                usize::MAX
            }
        };
        let connections = concurrency.min(most).div_ceil(options.http2.unwrap_or(1).max(1));
        options.connections = connections.max(common.threads());
        Ok(Side {
            target: argument,
            options,
            process: None,
            repetitions: Vec::new(),
            report: None,
            cpu_nanos: 0,
            memory_bytes_max: 0,
            measured: true,
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.target.name
    }

    /// Starts the target's command, if it has one.
    pub(super) fn start(&mut self, stop: &Stop) -> anyhow::Result<()> {
        if let Some(command) = &self.target.command {
            self.process = Some(Process::start(&self.target.name, command, &self.options.target, stop)?);
        }
        Ok(())
    }

    pub(super) fn stop(&mut self) {
        self.process = None;
    }

    fn usage(&self) -> Option<Usage> {
        let pid = self.process.as_ref().map(Process::id).or(self.target.pid)?;
        Usage::of(pid).ok()
    }

    /// Loads the target for one round. A stopped round does not count.
    pub(super) fn round(&mut self, label: &str, load: Load, common: &Common, counts: bool) -> anyhow::Result<()> {
        let target = &self.options.target;
        let request = Request::get(&target.authority, &target.path);
        let (total, goal) = match load {
            Load::Requests(requests) => (requests, Goal::Requests(requests)),
            Load::For(duration) => (u64::MAX, Goal::Time(duration)),
        };
        let mut display = Display::new(label, goal, common.quiet);
        let sources = Closed::split(&request, total, common.threads());
        let before = self.usage();
        let run = run_watched(&self.options, sources, |progress| display.update(progress));
        let after = self.usage();
        display.finish();
        let run = run?;
        if !counts || run.report.ended == "stopped" {
            return Ok(());
        }
        let attempts = run.report.counters.attempts();
        let mut repetition = Repetition::of_run(&run.report);
        match (before, after) {
            (Some(before), Some(after)) => {
                let cpu_nanos = after.cpu_nanos_since(&before);
                self.cpu_nanos += cpu_nanos;
                self.memory_bytes_max = self.memory_bytes_max.max(after.resident_bytes);
                repetition.cpu_nanos = Some(cpu_nanos as f64 / attempts.max(1) as f64);
            }
            _ => self.measured = false,
        }
        self.repetitions.push(repetition);
        match &mut self.report {
            Some(whole) => whole.absorb(&run.report),
            None => self.report = Some(run.report),
        }
        Ok(())
    }

    /// Returns all of its rounds for display; `None` before the first.
    pub(super) fn shown(&self) -> Option<html::Side<'_>> {
        let report = self.report.as_ref()?;
        Some(html::Side {
            name: &self.target.name,
            report,
            cost: self.measured.then(|| Cost {
                cpu_nanos_per_request: self.cpu_nanos as f64 / report.counters.attempts().max(1) as f64,
                memory_bytes: self.memory_bytes_max,
            }),
            repetitions: &self.repetitions,
        })
    }
}
