//! A surge: more clients and more requests than the service can answer. It measures the rate and the latency of answers, and the time until all is
//! normal again. The service is alone on the machine, or beside other processes that use its cores.

mod load;
mod websocket;

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;
use servers::{Postgres, PostgresOptions as ServerOptions};
use std::{
    fs,
    path::PathBuf,
    process::{Child, ExitCode, Stdio},
    time::Duration,
};
use throng_load::measure::Latencies;
use yardsticks::echo::EchoProcess;

use super::{
    Common, Scratch,
    plot::{self, Picture, Series},
    table::Table,
    yardstick,
};
use crate::units;
use load::{Load, Pace, SurgeOutcomes, Transport};

/// The time before an open load's surge, and the time after it.
const CALM: Duration = Duration::from_millis(1_500);
/// The time before a closed population is measured. Its connections are made, and the first answers are on their way.
const WARM_UP: Duration = Duration::from_millis(1_000);
/// The rate before and after a surge, relative to the capacity.
const CALM_SHARE: f64 = 0.3;
/// The closed population whose goodput is the capacity.
const FEW: usize = 256;

/// The name of a private PostgreSQL.
const PRIVATE: &str = "postgres";

/// The measurement of surges.
#[derive(Debug, Args)]
pub(super) struct SurgeArguments {
    #[command(flatten)]
    common: Common,
    /// A journal to measure in addition to the embedded ones: `postgres`, a private server for the measurement, or the place of a journal, file:DIR
    /// or postgres://…. The measurement's data stays there.
    #[arg(long, value_name = "PLACE")]
    journal: Vec<String>,
    /// The failures that the embedded journal's commits survive: os, fsync. An empty text leaves this journal out.
    #[arg(long, value_delimiter = ',', default_value = "os,fsync")]
    durability: Vec<String>,
    /// Closed populations: connections that send the next request as soon as they have an answer.
    #[arg(long, value_delimiter = ',', default_value = "256,1000,2000,5000,10000")]
    connections: Vec<usize>,
    /// Open loads, as multiples of what a closed population of 256 gets.
    #[arg(long, value_delimiter = ',', default_value = "0.5,1,2,5,10")]
    times: Vec<f64>,
    /// Connections of an open load.
    #[arg(long, default_value_t = 10_000)]
    open_connections: usize,
    /// Busy processes beside the service.
    #[arg(long, value_delimiter = ',', default_value = "0,2")]
    neighbours: Vec<usize>,
    /// Entities the requests are spread over; 1 is a hot one.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=load::SECTIONS_MAX))]
    sections: u64,
    /// The protocol of the requests. Over HTTP/2 clients share connections; each has one request in flight.
    #[arg(long, value_enum, default_value = "http1")]
    transport: Transport,
    /// The messages between entities that are always in flight beside the requests. Each is recorded and sends the next.
    #[arg(long, value_name = "MESSAGES", default_value_t = 0)]
    storm: u32,
    /// Leave out the bare echo, which shows the machine's own loss with more connections.
    #[arg(long)]
    no_echo: bool,
    /// The length of each load.
    #[arg(long = "for", value_name = "TIME", default_value = "4s", value_parser = units::duration)]
    lasts: Duration,
    /// Write a picture of goodput over offered load, as SVG.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// The figures of one load.
#[derive(Debug, Serialize)]
struct Line {
    journal: String,
    neighbours: usize,
    connections: usize,
    /// The rate of an open load relative to the capacity.
    times: Option<f64>,
    offered_per_s: f64,
    goodput_per_s: f64,
    /// The goodput relative to that of a closed population of 256 under the same circumstances, just before and after.
    goodput_share: f64,
    refused_share: f64,
    failed: u64,
    p50_ms: f64,
    p99_ms: f64,
    refused_p99_ms: f64,
    /// The time from the end of an open load to the last refusal or long wait.
    recovery_ms: Option<f64>,
}

/// Processes that use a core each until this is dropped.
struct Neighbours(Vec<Child>);

impl Neighbours {
    fn start(count: usize) -> anyhow::Result<Self> {
        let mut all = Self(Vec::new());
        for _ in 0..count {
            let child = yardstick("spin")?
                .stdin(Stdio::piped())
                .spawn()
                .context("cannot start a busy neighbour")?;
            all.0.push(child);
        }
        Ok(all)
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Fails if it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Uses a core until standard input is closed, which means that the parent is gone.
pub(crate) fn spin() -> ExitCode {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
    loop {
        std::hint::spin_loop();
    }
}

/// A program to measure.
struct Contender {
    name: String,
    yardstick: &'static str,
    options: Vec<String>,
    /// True if it has entities, which are created first.
    has_entities: bool,
}

/// Measures and prints the figures.
pub(super) fn run(arguments: &SurgeArguments) -> anyhow::Result<ExitCode> {
    let scratch = arguments.common.scratch()?;
    let most = arguments.connections.iter().copied().max().unwrap_or(0);
    throng_load::file_descriptors_for(most.max(arguments.open_connections))?;
    let wants_private = arguments.journal.iter().any(|journal| journal == PRIVATE);
    let private = wants_private
        .then(|| Postgres::start(ServerOptions::default()))
        .transpose()?;
    let database = private.as_ref().map(|server| server.url("postgres"));
    let mut lines = Vec::new();
    for contender in contenders(arguments, &scratch, database.as_deref()) {
        let service = start(&contender)?;
        if contender.has_entities {
            load::open_sections(service.address(), arguments.sections)?;
        }
        let mut students = 0;
        for &neighbours in &arguments.neighbours {
            let _neighbours = Neighbours::start(neighbours)?;
            let mut bench = Bench {
                arguments,
                name: &contender.name,
                service: &service,
                neighbours,
                capacity: 0.0,
                students: &mut students,
                lines: &mut lines,
            };
            bench.run()?;
        }
    }
    if let Some(file) = &arguments.plot {
        let picture = plot::svg(&Picture {
            title: "Requests answered in a surge, by what the service can do",
            across: "offered load, by what the service can do",
            across_text: |load| format!("{load} ×"),
            across_step: None,
            up_text: |share| format!("{:.0} %", share * 100.0),
            up_step: 0.25,
            series: &series(&lines),
        });
        fs::write(file, picture).with_context(|| format!("cannot write the picture {}", file.display()))?;
    }
    arguments
        .common
        .print(&serde_json::json!({ "surge": lines }), || text(&lines));
    Ok(ExitCode::SUCCESS)
}

fn contenders(arguments: &SurgeArguments, scratch: &Scratch, database: Option<&str>) -> Vec<Contender> {
    let mut all = Vec::new();
    if !arguments.no_echo && arguments.transport == Transport::Http1 {
        all.push(Contender {
            name: "bare echo".into(),
            yardstick: "echo",
            options: Vec::new(),
            has_entities: false,
        });
    }
    let service = |name: String, mut options: Vec<String>| {
        options.extend(["--storm".into(), arguments.storm.to_string()]);
        Contender {
            name,
            yardstick: "serve",
            options,
            has_entities: true,
        }
    };
    for durability in arguments.durability.iter().filter(|text| !text.is_empty()) {
        let data = scratch.0.join(durability).display().to_string();
        let options = vec!["--data".into(), data, "--durability".into(), durability.clone()];
        all.push(service(format!("log, {durability}"), options));
    }
    for journal in &arguments.journal {
        let name = journal.split(':').next().unwrap_or_default().to_owned();
        let place = database.filter(|_| journal == PRIVATE).unwrap_or(journal);
        all.push(service(name, vec!["--journal".into(), place.to_owned()]));
    }
    all
}

fn start(contender: &Contender) -> anyhow::Result<EchoProcess> {
    let mut command = yardstick(contender.yardstick)?;
    command.args(&contender.options);
    Ok(EchoProcess::start(command, 1)?)
}

/// Runs all loads on one service under the same circumstances.
struct Bench<'a> {
    arguments: &'a SurgeArguments,
    name: &'a str,
    service: &'a EchoProcess,
    neighbours: usize,
    capacity: f64,
    students: &'a mut u64,
    lines: &'a mut Vec<Line>,
}

impl Bench<'_> {
    fn run(&mut self) -> anyhow::Result<()> {
        // The first run is not counted. It touches the memory and loads the entities.
        self.few()?;
        self.capacity = self.few()?;
        for &connections in &self.arguments.connections {
            let load = self.load(connections, Pace::Closed);
            self.measure(&load, None)?;
        }
        for &times in &self.arguments.times {
            let pace = Pace::Open {
                calm: self.capacity * CALM_SHARE,
                surge: self.capacity * times,
            };
            let load = self.load(self.arguments.open_connections, pace);
            self.measure(&load, Some(times))?;
        }
        Ok(())
    }

    /// Measures the rate of a few connections.
    fn few(&mut self) -> anyhow::Result<f64> {
        let few = Load {
            lasts: self.arguments.lasts / 2,
            ..self.load(FEW, Pace::Closed)
        };
        let seen = load::drive(&few, self.students)?;
        anyhow::ensure!(seen.came > 0, "no request succeeded, so there is nothing to measure");
        Ok(seen.came as f64 / few.lasts.as_secs_f64())
    }

    /// Measures a load relative to a few connections just before and after it, because entities grow and machines vary.
    fn measure(&mut self, load: &Load, times: Option<f64>) -> anyhow::Result<()> {
        let before = self.capacity;
        let seen = load::drive(load, self.students)?;
        self.capacity = self.few()?;
        self.note(load, times, &seen, (before + self.capacity) / 2.0);
        Ok(())
    }

    fn load(&self, connections: usize, pace: Pace) -> Load {
        let (before, after) = match pace {
            Pace::Closed => (WARM_UP, Duration::ZERO),
            Pace::Open { .. } => (CALM, CALM),
        };
        Load {
            address: self.service.address(),
            transport: self.arguments.transport,
            connections,
            sections: self.arguments.sections,
            pace,
            before,
            lasts: self.arguments.lasts,
            after,
        }
    }

    fn note(&mut self, load: &Load, times: Option<f64>, seen: &SurgeOutcomes, capacity: f64) {
        let seconds = load.lasts.as_secs_f64();
        let at = |latencies: &Latencies, quantile| units::milliseconds(latencies.value_at_quantile(quantile));
        self.lines.push(Line {
            journal: self.name.to_owned(),
            neighbours: self.neighbours,
            connections: load.connections,
            times,
            offered_per_s: seen.sent as f64 / seconds,
            goodput_per_s: seen.came as f64 / seconds,
            goodput_share: seen.came as f64 / seconds / capacity,
            refused_share: seen.refused.len() as f64 / (seen.sent as f64).max(1.0),
            failed: seen.failed,
            p50_ms: at(&seen.served, 0.5),
            p99_ms: at(&seen.served, 0.99),
            refused_p99_ms: at(&seen.refused, 0.99),
            recovery_ms: times.map(|_| seen.recovery(load).as_secs_f64() * 1e3),
        });
    }
}

fn series(lines: &[Line]) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    for line in lines {
        let Some(times) = line.times else { continue };
        let name = match line.neighbours {
            0 => line.journal.clone(),
            count => format!("{}, beside {count} busy processes", line.journal),
        };
        match all.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push((times, line.goodput_share)),
            None => all.push(Series {
                name,
                points: vec![(times, line.goodput_share)],
            }),
        }
    }
    all
}

fn text(lines: &[Line]) -> String {
    let mut table = Table::new([
        "journal",
        "neighbours",
        "connections",
        "load",
        "sent/s",
        "goodput/s",
        "share",
        "refused %",
        "failed",
        "p50 ms",
        "p99 ms",
        "refused p99",
        "normal after ms",
    ]);
    for line in lines {
        table.row([
            line.journal.clone(),
            line.neighbours.to_string(),
            line.connections.to_string(),
            line.times.map_or("closed".into(), |times| format!("{times} ×")),
            format!("{:.0}", line.offered_per_s),
            format!("{:.0}", line.goodput_per_s),
            format!("{:.2}", line.goodput_share),
            format!("{:.2}", line.refused_share * 100.0),
            line.failed.to_string(),
            format!("{:.1}", line.p50_ms),
            format!("{:.1}", line.p99_ms),
            format!("{:.1}", line.refused_p99_ms),
            line.recovery_ms.map_or("-".into(), |time| format!("{time:.0}")),
        ]);
    }
    table.text()
        + "\n  share: goodput by that of a closed population of 256 before and after; p50, p99: of what was answered; \
           sent/s: an open load loses what no connection is free to send\n"
}
