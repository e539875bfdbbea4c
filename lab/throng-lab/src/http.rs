//! Durable commands over HTTP against a bare epoll echo of the same requests, in alternating rounds.

use clap::Args;
use serde::Serialize;
use std::{process::ExitCode, time::Duration};
use yardsticks::{
    disk::{self, Mode},
    echo::EchoProcess,
};

use super::{
    Common, Scratch, median,
    requests::{self, Students},
    table::Table,
    yardstick,
};
use crate::units;

/// The measurement over HTTP.
#[derive(Debug, Args)]
pub(super) struct HttpArguments {
    #[command(flatten)]
    common: Common,
    /// Alternating rounds; the median of their ratios counts.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=99))]
    rounds: u16,
    /// Numbers of connections.
    #[arg(long, value_delimiter = ',', default_value = "2,64,256")]
    connections: Vec<usize>,
    /// Requests a round and server.
    #[arg(long, default_value_t = 60_000)]
    requests: usize,
    /// The delay of every sync of a second service; 0 leaves this service out.
    #[arg(long, value_name = "TIME", default_value = "2ms", value_parser = units::duration)]
    sync_delay: Duration,
}

/// The figures of a round on one server.
#[derive(Clone, Copy, Debug)]
struct Round {
    requests_per_s: f64,
    cpu_us: f64,
    p50_us: f64,
    p99_us: f64,
}

/// The medians for a number of connections.
#[derive(Debug, Serialize)]
struct Line {
    connections: usize,
    sync_delay_ms: f64,
    requests_per_s: f64,
    echo_requests_per_s: f64,
    requests_ratio: f64,
    cpu_us: f64,
    echo_cpu_us: f64,
    cpu_ratio: f64,
    p50_us: f64,
    p99_us: f64,
    echo_p50_us: f64,
    sync_p50_us: f64,
    /// The median latency, relative to that of a 4 KiB sync plus that of an echo.
    p50_ratio: f64,
}

struct Server {
    process: EchoProcess,
    students: Students,
}

impl Server {
    fn round(&mut self, connections: usize, count: usize) -> anyhow::Result<Round> {
        let before = self.process.cpu_time()?;
        let report = requests::add_students(self.process.address(), connections, count, &mut self.students)?;
        let cpu = self.process.cpu_time()?.saturating_sub(before);
        let at = |quantile| report.service.value_at_quantile(quantile) as f64 / 1e3;
        Ok(Round {
            requests_per_s: report.throughput(),
            cpu_us: cpu.as_secs_f64() * 1e6 / count as f64,
            p50_us: at(0.5),
            p99_us: at(0.99),
        })
    }
}

fn echo() -> anyhow::Result<Server> {
    Ok(Server {
        process: EchoProcess::start(yardstick("echo")?, 1)?,
        students: Students::default(),
    })
}

fn service(scratch: &Scratch, sync_delay: Duration) -> anyhow::Result<Server> {
    let mut command = yardstick("serve")?;
    command
        .arg("--data")
        .arg(scratch.0.join(format!("delay-{}", sync_delay.as_micros())));
    command.args(["--sync-delay", &format!("{}us", sync_delay.as_micros())]);
    let process = EchoProcess::start(command, 1)?;
    requests::open_sections(process.address())?;
    Ok(Server {
        process,
        students: Students::default(),
    })
}

/// Measures and prints the figures.
pub(super) fn run(arguments: &HttpArguments) -> anyhow::Result<ExitCode> {
    let scratch = arguments.common.scratch()?;
    let mut lines = Vec::new();
    let mut echo = echo()?;
    let delays = [
        Some(Duration::ZERO),
        Some(arguments.sync_delay).filter(|delay| !delay.is_zero()),
    ];
    for delay in delays.into_iter().flatten() {
        let mut service = service(&scratch, delay)?;
        for &connections in &arguments.connections {
            // Two connections under a delay would take minutes and show only the delay.
            if !delay.is_zero() && connections < 64 {
                continue;
            }
            lines.push(line(
                arguments,
                &scratch,
                (&mut echo, &mut service),
                connections,
                delay,
            )?);
        }
    }
    arguments
        .common
        .print(&serde_json::json!({ "http": lines }), || text(&lines));
    Ok(ExitCode::SUCCESS)
}

fn line(
    arguments: &HttpArguments,
    scratch: &Scratch,
    (echo, service): (&mut Server, &mut Server),
    connections: usize,
    delay: Duration,
) -> anyhow::Result<Line> {
    let count = if connections < 16 {
        arguments.requests.div_ceil(6)
    } else {
        arguments.requests
    };
    // This round is not counted. It touches the memory and makes the journal's first segment.
    echo.round(connections, count.div_ceil(4))?;
    service.round(connections, count.div_ceil(4))?;
    let mut rounds = Vec::new();
    for round in 0..arguments.rounds {
        let sync = disk::measure(&scratch.0, 4096, 300, Mode::PreZeroed)?.p50_us;
        // The order alternates, so that a drift of the machine favours neither server.
        let (bare, durable) = if round % 2 == 0 {
            let bare = echo.round(connections, count)?;
            (bare, service.round(connections, count)?)
        } else {
            let durable = service.round(connections, count)?;
            (echo.round(connections, count)?, durable)
        };
        rounds.push((bare, durable, sync));
    }
    let of = |figure: &dyn Fn(&(Round, Round, f64)) -> f64| median(rounds.iter().map(figure));
    Ok(Line {
        connections,
        sync_delay_ms: delay.as_secs_f64() * 1e3,
        requests_per_s: of(&|(_, durable, _)| durable.requests_per_s),
        echo_requests_per_s: of(&|(bare, ..)| bare.requests_per_s),
        requests_ratio: of(&|(bare, durable, _)| durable.requests_per_s / bare.requests_per_s),
        cpu_us: of(&|(_, durable, _)| durable.cpu_us),
        echo_cpu_us: of(&|(bare, ..)| bare.cpu_us),
        cpu_ratio: of(&|(bare, durable, _)| durable.cpu_us / bare.cpu_us),
        p50_us: of(&|(_, durable, _)| durable.p50_us),
        p99_us: of(&|(_, durable, _)| durable.p99_us),
        echo_p50_us: of(&|(bare, ..)| bare.p50_us),
        sync_p50_us: of(&|(.., sync)| *sync),
        p50_ratio: of(&|(bare, durable, sync)| durable.p50_us / (bare.p50_us + sync)),
    })
}

fn text(lines: &[Line]) -> String {
    let mut table = Table::new([
        "connections",
        "delay ms",
        "requests/s",
        "echo",
        "ratio",
        "CPU µs",
        "echo",
        "ratio",
        "p50 µs",
        "p99",
        "echo p50",
        "sync p50",
        "p50 ratio",
    ]);
    for line in lines {
        table.row([
            line.connections.to_string(),
            format!("{:.1}", line.sync_delay_ms),
            format!("{:.0}", line.requests_per_s),
            format!("{:.0}", line.echo_requests_per_s),
            format!("{:.2}", line.requests_ratio),
            format!("{:.1}", line.cpu_us),
            format!("{:.1}", line.echo_cpu_us),
            format!("{:.2}", line.cpu_ratio),
            format!("{:.0}", line.p50_us),
            format!("{:.0}", line.p99_us),
            format!("{:.0}", line.echo_p50_us),
            format!("{:.0}", line.sync_p50_us),
            format!("{:.2}", line.p50_ratio),
        ]);
    }
    table.text()
        + "\n  ratio: durable commands by bare echoes, median of the rounds; p50 ratio: by a 4 KiB sync and an echo together\n"
}
