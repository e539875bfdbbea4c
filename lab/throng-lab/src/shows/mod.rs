//! Seat reservations over HTTP on a journal: the highest rates with a p99 below 20 ms, closed loops, a hot show, one show alone, a cold start. With
//! two journals, the second's figures are shown relative to the first's, from the same run.

mod load;

use anyhow::{Context as _, ensure};
use clap::Args;
use serde::Serialize;
use std::{
    net::SocketAddr,
    process::ExitCode,
    time::{Duration, Instant},
};
use throng_load::{
    Report,
    capacity::{Promise, Search, Trial, best},
};
use yardsticks::echo::EchoProcess;

use super::{Common, Scratch, median, table::Table, yardstick};
use crate::units;
use load::{Board, Load};

/// The limit of p99 for the response time.
const P99: Duration = Duration::from_millis(20);
/// The number of rounds without and with a hot show.
const HOT_ROUNDS: usize = 5;

/// The measurement of shows.
#[derive(Debug, Args)]
pub(super) struct ShowsArguments {
    #[command(flatten)]
    common: Common,
    /// Journals to measure, file:DIR or postgres://…; the others are compared with the first. The default is an embedded one in a new directory. The
    /// measurement leaves shows behind in a named journal.
    #[arg(long, value_name = "PLACE", value_delimiter = ' ')]
    journal: Vec<String>,
    /// The parts that are measured: open, closed, hot, one, cold.
    #[arg(long, value_delimiter = ',', default_value = "open,closed,hot,one,cold")]
    parts: Vec<String>,
    /// The time for which each rate and each loop is held.
    #[arg(long, value_name = "TIME", default_value = "4s", value_parser = units::duration)]
    hold: Duration,
    /// Shows with seats to reserve.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(100..))]
    shows: u64,
    /// The rate of the runs with and without a hot show.
    #[arg(long, default_value_t = 10_000.0)]
    hot_rate: f64,
    /// The first rate of the search.
    #[arg(long, default_value_t = 8_000.0)]
    from: f64,
    /// Shows in the journal at the cold start.
    #[arg(long, default_value_t = 1_000_000)]
    cold_shows: u64,
    /// Also run the projection of available shows. The original's figures are without it.
    #[arg(long)]
    projections: bool,
}

/// The figures of one journal.
#[derive(Debug, Default, Serialize)]
struct Figures {
    journal: String,
    concurrent: Option<Rate>,
    serial: Option<Rate>,
    closed_64: Option<Rate>,
    closed_256: Option<Rate>,
    hot: Option<Hot>,
    one_show: Option<Rate>,
    cold: Option<Cold>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Rate {
    requests_per_s: f64,
    p99_ms: f64,
    /// The CPU of the service for a request, in microseconds.
    server_cpu_us: f64,
    /// The CPU of PostgreSQL's processes for a request, if PostgreSQL is the journal.
    postgres_cpu_us: f64,
    /// The CPU of the generator for a request.
    generator_cpu_us: f64,
}

/// The p99 at one rate of all shows together, as medians of the rounds.
#[derive(Clone, Copy, Debug, Serialize)]
struct Hot {
    /// The p99 of the other shows, without a hot one.
    rest_without_ms: f64,
    /// The p99 of the other shows, with a hot one.
    rest_with_ms: f64,
    /// The p99 of the hot show.
    hot_ms: f64,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Cold {
    shows: u64,
    /// The time from starting the process to its address.
    start_s: f64,
    /// The time from starting the process to the first answer of a show.
    first_answer_s: f64,
    /// The megabytes that the process has read by then.
    read_mb: f64,
}

/// The service under measurement.
struct Server {
    process: EchoProcess,
    is_postgres: bool,
}

impl Server {
    fn start(place: &str, arguments: &ShowsArguments) -> anyhow::Result<Self> {
        let mut command = yardstick("serve")?;
        command.args(["--app", "shows", "--journal", place]);
        if !arguments.projections {
            command.arg("--no-projections");
        }
        Ok(Self {
            process: EchoProcess::start(command, 1)?,
            is_postgres: place.starts_with("postgres"),
        })
    }

    fn address(&self) -> SocketAddr {
        self.process.address()
    }

    /// Returns the CPU seconds of the service, of PostgreSQL, and of this process.
    fn cpu(&self) -> anyhow::Result<[f64; 3]> {
        let postgres = if self.is_postgres { cpu_of("postgres") } else { 0.0 };
        let own = cpu_of_process("self").unwrap_or(0.0);
        Ok([self.process.cpu_time()?.as_secs_f64(), postgres, own])
    }

    /// Runs a load and returns its report and its costs.
    fn measure(&self, run: impl FnOnce() -> anyhow::Result<Report>) -> anyhow::Result<(Report, Rate)> {
        let before = self.cpu()?;
        let report = run()?;
        let after = self.cpu()?;
        let requests = report.counters.attempts().max(1) as f64;
        let cost = |at: usize| (after[at] - before[at]) * 1e6 / requests;
        let rate = Rate {
            requests_per_s: report.throughput(),
            p99_ms: report.response.value_at_quantile(0.99) as f64 / 1e6,
            server_cpu_us: cost(0),
            postgres_cpu_us: cost(1),
            generator_cpu_us: cost(2),
        };
        Ok((report, rate))
    }
}

/// Returns the user and kernel time of a process, in seconds.
pub(super) fn cpu_of_process(pid: &str) -> Option<f64> {
    stat_seconds(pid, [11, 12])
}

/// Returns that of its children that have ended.
pub(super) fn cpu_of_ended_children(pid: &str) -> Option<f64> {
    stat_seconds(pid, [13, 14])
}

/// Returns the sum of two fields, numbered after the process's name.
fn stat_seconds(pid: &str, at: [usize; 2]) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    // There are a hundred ticks a second on every present Linux.
    Some((ticks(at[0])? + ticks(at[1])?) as f64 / 100.0)
}

/// Returns the user and kernel time of all processes of this name, in seconds.
pub(super) fn cpu_of(name: &str) -> f64 {
    let Ok(all) = std::fs::read_dir("/proc") else {
        return 0.0;
    };
    let pids = all.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    pids.filter(|pid| pid.bytes().all(|byte| byte.is_ascii_digit()))
        .filter(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name))
        .filter_map(|pid| cpu_of_process(&pid))
        .sum()
}

/// Measures and prints the figures.
pub(super) fn run(arguments: &ShowsArguments) -> anyhow::Result<ExitCode> {
    for part in &arguments.parts {
        ensure!(
            ["open", "closed", "hot", "one", "cold"].contains(&part.as_str()),
            "there is no part {part:?}; there are open, closed, hot, one, cold"
        );
    }
    let scratch = arguments.common.scratch()?;
    let embedded = || vec![format!("file:{}", scratch.0.join("shows").display())];
    let places = if arguments.journal.is_empty() {
        embedded()
    } else {
        arguments.journal.clone()
    };
    let all = places
        .iter()
        .map(|place| figures(arguments, place, &scratch))
        .collect::<anyhow::Result<Vec<Figures>>>()?;
    arguments
        .common
        .print(&serde_json::json!({ "shows": all }), || text(&all));
    Ok(ExitCode::SUCCESS)
}

fn note(text: &str) {
    eprintln!("{text}");
}

fn figures(arguments: &ShowsArguments, place: &str, scratch: &Scratch) -> anyhow::Result<Figures> {
    let is_wanted = |part: &str| arguments.parts.iter().any(|wanted| wanted == part);
    let mut figures = Figures {
        journal: place.split('@').next_back().unwrap_or(place).to_owned(),
        ..Figures::default()
    };
    // Every run has shows of its own, even in a journal that was measured before.
    let first = u64::from(std::process::id()) << 24 & 0xff_ffff_ffff;
    let hold = arguments.hold;
    if ["open", "closed", "hot", "one"].into_iter().any(is_wanted) {
        let server = Server::start(place, arguments)?;
        let load = Load {
            address: server.address(),
            first,
            shows: arguments.shows,
            board: Board::new(arguments.shows),
        };
        load.create(0..arguments.shows)?;
        if is_wanted("closed") {
            load.closed(64, arguments.shows, hold / 2)?;
            figures.closed_64 = Some(server.measure(|| load.closed(64, arguments.shows, hold))?.1);
            figures.closed_256 = Some(server.measure(|| load.closed(256, arguments.shows, hold))?.1);
        }
        if is_wanted("one") {
            figures.one_show = Some(server.measure(|| load.closed(50, 1, hold))?.1);
        }
        if is_wanted("open") {
            note(&format!("{}: concurrent", figures.journal));
            figures.concurrent = capacity(arguments, &server, |rate| load.concurrent(rate, hold, false))?;
            note(&format!("{}: serial", figures.journal));
            let mut next = arguments.shows;
            figures.serial = capacity(arguments, &server, |rate| {
                let begin = next;
                next += (rate * hold.as_secs_f64() / 40.0) as u64 + 100;
                load.serial(rate, hold, begin)
            })?;
        }
        if is_wanted("hot") {
            figures.hot = Some(hot(&load, arguments)?);
        }
    }
    if is_wanted("cold") {
        figures.cold = Some(cold(arguments, place, scratch, first)?);
    }
    Ok(figures)
}

/// Measures the same total rate with and without a hot show in turn, so that a disturbance of the machine affects both.
fn hot(load: &Load, arguments: &ShowsArguments) -> anyhow::Result<Hot> {
    let p99 = |report: &Report, class: usize| report.classes[class].response.value_at_quantile(0.99) as f64 / 1e6;
    let mut found: [Vec<f64>; 3] = Default::default();
    for _ in 0..HOT_ROUNDS {
        let without = load.concurrent(arguments.hot_rate, arguments.hold, false)?;
        let with = load.concurrent(arguments.hot_rate, arguments.hold, true)?;
        let round = [p99(&without, 0), p99(&with, 0), p99(&with, 1)];
        note(&format!(
            "  others' p99 {:.2} ms without a hot show, {:.2} ms with; its own {:.2} ms",
            round[0], round[1], round[2]
        ));
        found.iter_mut().zip(round).for_each(|(all, one)| all.push(one));
    }
    let [rest_without_ms, rest_with_ms, hot_ms] = found.map(median);
    Ok(Hot {
        rest_without_ms,
        rest_with_ms,
        hot_ms,
    })
}

/// Returns the highest rate that keeps the limit of p99, and its costs.
fn capacity(
    arguments: &ShowsArguments,
    server: &Server,
    mut attempt: impl FnMut(f64) -> anyhow::Result<Report>,
) -> anyhow::Result<Option<Rate>> {
    let promise = Promise {
        p99_nanos: P99.as_nanos() as u64,
        failure_share: 0.001,
    };
    let search = Search::Bisect {
        from: arguments.from,
        to: 200_000.0,
        precision: 0.06,
    };
    let (mut trials, mut kept) = (Vec::<Trial>::new(), None);
    let mut again = None;
    while let Some(rate) = again.take().or_else(|| search.next(&trials)) {
        let (report, cost) = server.measure(|| attempt(rate))?;
        let trial = Trial::judge(rate, &report, &promise);
        note(&format!(
            "  {rate:>9.0}/s: {:>9.0}/s, p99 {:>8.2} ms, service {:>5.1} µs, {}",
            trial.throughput,
            trial.response.p99 as f64 / 1e6,
            cost.server_cpu_us + cost.postgres_cpu_us,
            trial.broken.as_deref().unwrap_or("kept")
        ));
        // A short disturbance of the machine breaks a rate once. A rate that is too high breaks every time.
        let is_first = trials.last().is_none_or(|last| last.rate != rate);
        if trial.broken.is_some() && is_first {
            again = Some(rate);
        } else if !is_first {
            trials.pop();
        }
        trials.push(trial);
        if best(&trials).is_some_and(|best| best.rate == rate) {
            kept = Some(cost);
        }
        // The backlog of a rate that was too high drains first.
        if trials.last().is_some_and(|trial| trial.broken.is_some()) {
            std::thread::sleep(Duration::from_millis(500));
        }
    }
    Ok(kept)
}

/// Measures the start of a new process on a journal with many shows.
fn cold(arguments: &ShowsArguments, place: &str, scratch: &Scratch, first: u64) -> anyhow::Result<Cold> {
    let place = match place.starts_with("file:") {
        true => format!("file:{}", scratch.0.join("cold").display()),
        false => place.to_owned(),
    };
    let base = first + (1 << 23);
    let server = Server::start(&place, arguments)?;
    let load = Load {
        address: server.address(),
        first: base,
        shows: arguments.cold_shows,
        board: Board::new(0),
    };
    load.create(0..arguments.cold_shows)?;
    // The drop kills it, so that it writes no last checkpoint.
    drop(server);
    let begun = Instant::now();
    let server = Server::start(&place, arguments)?;
    let start_s = begun.elapsed().as_secs_f64();
    let load = Load {
        address: server.address(),
        ..load
    };
    let report = load.look(arguments.cold_shows / 2)?;
    let first_answer_s = begun.elapsed().as_secs_f64();
    ensure!(
        report.counters.successes == 1,
        "a show that was created is not there: {:?}",
        report.counters.statuses
    );
    let read_mb = read_bytes(server.process.id()).context("cannot read what the service has read")? as f64 / 1e6;
    Ok(Cold {
        shows: arguments.cold_shows,
        start_s,
        first_answer_s,
        read_mb,
    })
}

/// Returns the bytes that a process has read through system calls.
fn read_bytes(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("rchar:"))?;
    line.trim().parse().ok()
}

fn text(all: &[Figures]) -> String {
    let mut table = Table::new([
        "",
        "journal",
        "requests/s",
        "p99 ms",
        "CPU µs",
        "of PostgreSQL",
        "generator",
        "by the first",
    ]);
    type Part = (&'static str, fn(&Figures) -> Option<Rate>);
    let parts: [Part; 5] = [
        ("concurrent, p99 < 20 ms", |figures| figures.concurrent),
        ("serial, p99 < 20 ms", |figures| figures.serial),
        ("closed, 64 connections", |figures| figures.closed_64),
        ("closed, 256 connections", |figures| figures.closed_256),
        ("one show alone, 50 connections", |figures| figures.one_show),
    ];
    for (name, part) in parts {
        for figures in all {
            let Some(rate) = part(figures) else { continue };
            let by_first = all
                .first()
                .and_then(part)
                .map_or(f64::NAN, |first| rate.requests_per_s / first.requests_per_s);
            table.row([
                name.to_owned(),
                figures.journal.clone(),
                format!("{:.0}", rate.requests_per_s),
                format!("{:.2}", rate.p99_ms),
                format!("{:.1}", rate.server_cpu_us + rate.postgres_cpu_us),
                format!("{:.1}", rate.postgres_cpu_us),
                format!("{:.1}", rate.generator_cpu_us),
                format!("{by_first:.2}"),
            ]);
        }
    }
    let mut out = table.text();
    for figures in all {
        let name = &figures.journal;
        if let Some(hot) = figures.hot {
            out += &format!(
                "\n  {name}: p99 of the other shows {:.2} ms without a hot one, {:.2} ms with ({:.2} x); of the hot one {:.2} ms (medians of {HOT_ROUNDS})\n",
                hot.rest_without_ms,
                hot.rest_with_ms,
                hot.rest_with_ms / hot.rest_without_ms,
                hot.hot_ms
            );
        }
        if let Some(cold) = figures.cold {
            out += &format!(
                "\n  {name}: {} shows in the journal: ready after {:.2} s, first answer after {:.2} s, {:.0} MB read\n",
                units::count(cold.shows),
                cold.start_s,
                cold.first_answer_s,
                cold.read_mb
            );
        }
    }
    out
}
