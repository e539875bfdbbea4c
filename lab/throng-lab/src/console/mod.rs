//! The cost of open consoles: a steady closed load of durable commands while none, one or many consoles are open.

mod viewer;

use anyhow::{Context as _, ensure};
use clap::Args;
use serde::Serialize;
use std::{process::ExitCode, time::Duration};
use yardsticks::echo::EchoProcess;

use super::{
    Common, median,
    requests::{self, Students},
    table::Table,
    yardstick,
};
use crate::units;
use viewer::{Screen, Viewers};

/// The measurement of consoles.
#[derive(Debug, Args)]
pub(super) struct ConsoleArguments {
    #[command(flatten)]
    common: Common,
    /// Rounds. In each, the load is also measured without a console before and after each number of consoles.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=99))]
    rounds: u16,
    /// The numbers of open consoles.
    #[arg(long, value_delimiter = ',', default_value = "1,50")]
    consoles: Vec<usize>,
    /// The screens they show, in turn.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "map,live,trouble,entity,journal"
    )]
    screens: Vec<Screen>,
    /// Connections that send the commands, each one at a time.
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// The least time of each part of a round.
    #[arg(long = "for", value_name = "TIME", default_value = "4s", value_parser = units::duration)]
    lasts: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Part {
    per_s: f64,
    cpu_us: f64,
}

/// The figures for a number of consoles, compared with none just before and after.
#[derive(Debug, Serialize)]
struct Line {
    consoles: usize,
    requests_per_s: f64,
    /// The throughput relative to that without consoles: the median of the rounds, the minimum and the maximum.
    throughput_ratio: [f64; 3],
    cpu_us: f64,
    cpu_ratio: [f64; 3],
    /// The answers to consoles a second.
    answers_per_s: f64,
    /// The bytes of these answers a second.
    answer_bytes_per_s: f64,
}

struct Service {
    process: EchoProcess,
    students: Students,
}

impl Service {
    /// Sends this many commands.
    fn part(&mut self, arguments: &ConsoleArguments, count: usize) -> anyhow::Result<Part> {
        let before = self.process.cpu_time()?;
        let report = requests::add_students(self.process.address(), arguments.connections, count, &mut self.students)?;
        let cpu = self.process.cpu_time()?.saturating_sub(before);
        Ok(Part {
            per_s: report.throughput(),
            cpu_us: cpu.as_secs_f64() * 1e6 / count as f64,
        })
    }
}

/// Returns the median, the minimum and the maximum.
fn spread(figures: &[f64]) -> [f64; 3] {
    let least = figures.iter().copied().fold(f64::INFINITY, f64::min);
    let most = figures.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    [median(figures.iter().copied()), least, most]
}

/// Measures and prints the figures.
pub(super) fn run(arguments: &ConsoleArguments) -> anyhow::Result<ExitCode> {
    ensure!(!arguments.screens.is_empty(), "--screens names no screen");
    let scratch = arguments.common.scratch()?;
    let mut command = yardstick("serve")?;
    command.arg("--data").arg(scratch.0.join("console"));
    let process = EchoProcess::start(command, 1)?;
    requests::open_sections(process.address())?;
    let mut service = Service {
        process,
        students: Students::default(),
    };
    // The first part is not counted. It touches the memory and shows how many requests fill the time of a part.
    let first = service.part(arguments, 20_000)?;
    let count = (first.per_s * arguments.lasts.as_secs_f64()).ceil() as usize;
    service.part(arguments, count)?;
    let mut lines = Vec::new();
    for &consoles in &arguments.consoles {
        lines.push(line(arguments, &mut service, consoles, count)?);
    }
    arguments
        .common
        .print(&serde_json::json!({ "console": lines }), || text(&lines));
    Ok(ExitCode::SUCCESS)
}

fn line(arguments: &ConsoleArguments, service: &mut Service, consoles: usize, count: usize) -> anyhow::Result<Line> {
    let (mut parts, mut throughput, mut cpu) = (Vec::new(), Vec::new(), Vec::new());
    let (mut answers, mut bytes, mut seconds) = (0, 0, 0.0);
    let mut before = service.part(arguments, count)?;
    for _ in 0..arguments.rounds {
        let screens = arguments.screens.iter().copied().cycle().take(consoles);
        let viewers = Viewers::open(service.process.address(), screens.collect())?;
        let seen = viewers.seen();
        let watched = service.part(arguments, count)?;
        let now = viewers.seen();
        viewers.close().context("a console could not go on")?;
        let took = count as f64 / watched.per_s;
        seconds += took;
        answers += now.answers - seen.answers;
        bytes += now.bytes - seen.bytes;
        let after = service.part(arguments, count)?;
        // The mean of the parts before and after cancels a drift of the machine and of the service.
        throughput.push(watched.per_s / f64::midpoint(before.per_s, after.per_s));
        cpu.push(watched.cpu_us / f64::midpoint(before.cpu_us, after.cpu_us));
        parts.push(watched);
        before = after;
    }
    Ok(Line {
        consoles,
        requests_per_s: median(parts.iter().map(|part| part.per_s)),
        throughput_ratio: spread(&throughput),
        cpu_us: median(parts.iter().map(|part| part.cpu_us)),
        cpu_ratio: spread(&cpu),
        answers_per_s: answers as f64 / seconds,
        answer_bytes_per_s: bytes as f64 / seconds,
    })
}

fn text(lines: &[Line]) -> String {
    let mut table = Table::new([
        "consoles",
        "requests/s",
        "ratio",
        "from",
        "to",
        "CPU µs",
        "ratio",
        "from",
        "to",
        "answers/s",
        "MB/s",
    ]);
    let ratio = |figure: f64| format!("{figure:.3}");
    for line in lines {
        let ([throughput, slowest, fastest], [cpu, least, most]) = (line.throughput_ratio, line.cpu_ratio);
        table.row([
            line.consoles.to_string(),
            format!("{:.0}", line.requests_per_s),
            ratio(throughput),
            ratio(slowest),
            ratio(fastest),
            format!("{:.2}", line.cpu_us),
            ratio(cpu),
            ratio(least),
            ratio(most),
            format!("{:.0}", line.answers_per_s),
            format!("{:.1}", line.answer_bytes_per_s / 1e6),
        ]);
    }
    table.text()
        + "\n  ratio: by the same load with no console open just before and after, median of the rounds, and the least and most of them;\n  CPU: of the service, a request; answers: to the consoles, and frames\n"
}

#[cfg(test)]
mod tests {
    use super::spread;

    #[test]
    fn a_spread_is_the_median_between_the_least_and_the_most() {
        assert_eq!(spread(&[0.9, 1.1, 1.0]), [1.0, 0.9, 1.1]);
    }
}
