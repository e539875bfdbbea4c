//! Several nodes compared with one: the cost of a request at any node, and how long hand-offs and fail-overs delay requests.

use super::{
    Common,
    http_client::{self, ANSWER_WAIT, Connection},
    median,
    service::{Launch, Service},
    shows::{cpu_of, cpu_of_process},
    table::Table,
};
use crate::units::count;
use anyhow::{Context as _, ensure};
use clap::Args;
use serde::Serialize;
use servers::{Postgres, PostgresOptions};
use std::{
    collections::HashMap,
    net::SocketAddr,
    path::Path,
    process::ExitCode,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// The number of entities that get requests.
const SECTIONS: u32 = 256;
/// The time for which the load continues after a node was killed or a hand-off began.
const AFTER: Duration = Duration::from_millis(2_500);
const PAUSE: Duration = Duration::from_millis(5);

/// The measurement of several nodes beside one.
#[derive(Debug, Args)]
pub(super) struct ClusterArguments {
    #[command(flatten)]
    common: Common,
    /// Nodes of the cluster.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(2..=8))]
    nodes: u16,
    /// Requests a second and node, each a durable command to an entity chosen at random, at a node chosen at random.
    #[arg(long, default_value_t = 1_500, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
    /// Connections to each node, each with one request at a time.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    connections: u32,
    /// The time for which each arrangement is loaded.
    #[arg(long = "for", value_name = "TIME", default_value = "5s", value_parser = crate::units::duration)]
    time: Duration,
    /// Rounds, each with all arrangements in turn. Only the median of the rounds is shown.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Hand-offs, and as many fail-overs, that are timed.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    moves: u32,
}

/// The medians of one arrangement's rounds under load.
#[derive(Debug, Serialize)]
struct Rate {
    arrangement: &'static str,
    requests_per_s: f64,
    engine_cpu_us: f64,
    postgres_cpu_us: f64,
    client_cpu_us: f64,
    p50_ms: f64,
    p99_ms: f64,
    failures: u64,
}

/// The waits of requests during one kind of event.
#[derive(Debug, Serialize)]
struct Held {
    what: &'static str,
    times: u32,
    /// The longest wait of an entity's requests, in seconds: the median of the entities. Then the 99th percentile and the maximum.
    p50_s: f64,
    p99_s: f64,
    max_s: f64,
    failures: u64,
}

#[derive(Debug, Serialize)]
struct Figures {
    rates: Vec<Rate>,
    held: Vec<Held>,
}

/// Measures all arrangements, then the delays by hand-offs and kills.
pub(super) fn run(arguments: &ClusterArguments) -> anyhow::Result<ExitCode> {
    let scratch = arguments.common.scratch()?;
    let server = Postgres::start(PostgresOptions::default())?;
    let arrangements = [
        ("alone", 1, false),
        ("one node", 1, true),
        ("nodes", arguments.nodes, true),
    ];
    let mut rounds: HashMap<&str, Vec<Rate>> = HashMap::new();
    for round in 0..arguments.rounds {
        for (name, nodes, is_cluster) in arrangements {
            let schema = format!("bench_{}_{round}", name.replace(' ', "_"));
            let nodes = start(&server, &schema, (nodes, is_cluster), &scratch.0)?;
            let rate = measure(arguments, name, &nodes)?;
            eprintln!("  round {}: {}", round + 1, rate.cells().join("  "));
            rounds.entry(name).or_default().push(rate);
            end(nodes)?;
        }
    }
    let rates = arrangements
        .iter()
        .filter_map(|(name, ..)| rounds.get(name).map(|rounds| Rate::median(rounds)));
    let figures = Figures {
        rates: rates.collect(),
        held: held(arguments, &server, &scratch.0)?,
    };
    arguments.common.print(&figures, || text(&figures));
    Ok(ExitCode::SUCCESS)
}

fn start(
    server: &Postgres,
    schema: &str,
    (nodes, is_cluster): (u16, bool),
    scratch: &Path,
) -> anyhow::Result<Vec<(Launch, Service)>> {
    let launch = |number: u16| {
        let cluster = ["--cluster", "--name", &format!("n{number}")].map(str::to_owned);
        Launch {
            app: "registration",
            place: format!("{}?schema={schema}", server.url("postgres")),
            arguments: if is_cluster { cluster.to_vec() } else { Vec::new() },
            environment: Vec::new(),
            log: scratch.join("service.log"),
            within: None,
        }
    };
    let started = (0..nodes).map(launch).map(|launch| {
        let service = launch.start()?;
        Ok((launch, service))
    });
    let started: Vec<_> = started.collect::<anyhow::Result<_>>()?;
    let mut connection = Connection::open(started[0].1.address, ANSWER_WAIT)?;
    for section in 0..SECTIONS {
        let open = http_client::post(
            &format!("/api/section/S{section}/open"),
            None,
            r#"{"capacity":1000000}"#,
        );
        let answer = connection.ask(&open)?;
        ensure!(answer.status == 200, "opening a section was answered {}", answer.status);
    }
    Ok(started)
}

fn end(nodes: Vec<(Launch, Service)>) -> anyhow::Result<()> {
    nodes.into_iter().try_for_each(|(_, service)| service.end())
}

fn measure(arguments: &ClusterArguments, name: &'static str, nodes: &[(Launch, Service)]) -> anyhow::Result<Rate> {
    let addresses: Vec<SocketAddr> = nodes.iter().map(|(_, service)| service.address).collect();
    let cpu = || {
        let engine: f64 = nodes
            .iter()
            .filter_map(|(_, service)| cpu_of_process(&service.id().to_string()))
            .sum();
        [engine, cpu_of("postgres"), cpu_of_process("self").unwrap_or(0.0)]
    };
    let load = Load::start(arguments, &addresses);
    // The warm-up is not counted.
    thread::sleep(Duration::from_secs(1));
    let (before, begun) = (cpu(), Instant::now());
    let done_before = load.shared.done.load(Ordering::Relaxed);
    thread::sleep(arguments.time);
    let (after, elapsed) = (cpu(), begun.elapsed());
    let done = load.shared.done.load(Ordering::Relaxed) - done_before;
    let failures = load.shared.failed.load(Ordering::Relaxed);
    let mut waits: Vec<f64> = load
        .stop()
        .into_iter()
        .map(|wait| wait.took.as_secs_f64() * 1e3)
        .collect();
    waits.sort_by(f64::total_cmp);
    let cost = |at: usize| (after[at] - before[at]) * 1e6 / done.max(1) as f64;
    Ok(Rate {
        arrangement: name,
        requests_per_s: done as f64 / elapsed.as_secs_f64(),
        engine_cpu_us: cost(0),
        postgres_cpu_us: cost(1),
        client_cpu_us: cost(2),
        p50_ms: quantile(&waits, 0.5),
        p99_ms: quantile(&waits, 0.99),
        failures,
    })
}

/// Measures the waits of requests during a hand-off and after the death of a node.
fn held(arguments: &ClusterArguments, server: &Postgres, scratch: &Path) -> anyhow::Result<Vec<Held>> {
    let mut nodes = start(server, "bench_moves", (arguments.nodes, true), scratch)?;
    let last = nodes.len() - 1;
    let mut held = Vec::new();
    for what in [
        "a node drains",
        "it gets its share again",
        "a node is killed",
        "it begins again",
    ] {
        held.push((what, Vec::new(), 0));
    }
    for _ in 0..arguments.moves {
        for (what, all, failures) in &mut held {
            let addresses: Vec<SocketAddr> = nodes.iter().take(last).map(|(_, service)| service.address).collect();
            // Only the other nodes get requests: a client connected to a node that dies notices that at once.
            let load = Load::start(arguments, &addresses);
            thread::sleep(Duration::from_millis(500));
            let begun = Instant::now();
            match *what {
                "a node drains" => nodes[last].0.ask_cluster(&["drain", &format!("n{last}")])?,
                "it gets its share again" => nodes[last].0.ask_cluster(&["undrain", &format!("n{last}")])?,
                "a node is killed" => {
                    let (launch, service) = nodes.pop().context("there is a node")?;
                    service.kill();
                    thread::sleep(AFTER);
                    *failures += load.shared.failed.load(Ordering::Relaxed);
                    all.extend(longest(&load.stop(), begun));
                    nodes.push((launch.clone(), launch.spawn()?));
                    continue;
                }
                _ => nodes[last].1.wait_until_served()?,
            }
            thread::sleep(AFTER);
            *failures += load.shared.failed.load(Ordering::Relaxed);
            all.extend(longest(&load.stop(), begun));
        }
    }
    end(nodes)?;
    let held = held.into_iter().map(|(what, mut all, failures)| {
        all.sort_by(f64::total_cmp);
        Held {
            what,
            times: arguments.moves,
            p50_s: quantile(&all, 0.5),
            p99_s: quantile(&all, 0.99),
            max_s: all.last().copied().unwrap_or(0.0),
            failures,
        }
    });
    Ok(held.collect())
}

/// Returns each entity's longest wait since a moment, for a client that repeats failed requests.
fn longest(waits: &[Wait], since: Instant) -> Vec<f64> {
    let mut of_entity: HashMap<u32, Vec<&Wait>> = HashMap::new();
    for wait in waits.iter().filter(|wait| wait.at >= since) {
        of_entity.entry(wait.section).or_default().push(wait);
    }
    let longest = of_entity.into_values().map(|mut waits| {
        waits.sort_unstable_by_key(|wait| wait.at);
        let (mut asked, mut longest) = (None, Duration::ZERO);
        for wait in waits {
            let begun = *asked.get_or_insert(wait.at - wait.took);
            if wait.is_done {
                longest = longest.max(wait.at - begun);
                asked = None;
            }
        }
        longest.as_secs_f64()
    });
    longest.collect()
}

/// A request, answered or failed.
struct Wait {
    section: u32,
    at: Instant,
    took: Duration,
    is_done: bool,
}

struct Load {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    done: AtomicU64,
    failed: AtomicU64,
    waits: Mutex<Vec<Wait>>,
}

impl Load {
    /// Starts clients at all of these nodes, each at a steady rate.
    fn start(arguments: &ClusterArguments, addresses: &[SocketAddr]) -> Self {
        let shared = Arc::new(Shared::default());
        let every = Duration::from_secs(1) * arguments.connections / arguments.rate;
        let clients = addresses.iter().enumerate().flat_map(|(node, address)| {
            let (shared, address) = (Arc::clone(&shared), *address);
            (0..arguments.connections).map(move |client| {
                let shared = Arc::clone(&shared);
                let seed = u64::from(client) << 8 | node as u64;
                thread::spawn(move || shared.client(address, every, seed))
            })
        });
        Self {
            clients: clients.collect(),
            shared,
        }
    }

    fn stop(self) -> Vec<Wait> {
        self.shared.is_over.store(true, Ordering::Relaxed);
        for client in self.clients {
            let _ = client.join();
        }
        std::mem::take(&mut *self.shared.waits.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Shared {
    fn client(&self, address: SocketAddr, every: Duration, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut connection = None;
        let mut own = Vec::new();
        let mut due = Instant::now() + every.mul_f64(random.f64());
        while !self.is_over.load(Ordering::Relaxed) {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            due = (due + every).max(Instant::now().checked_sub(every).unwrap_or(due));
            let section = random.u32(..SECTIONS);
            let request = http_client::post(
                &format!("/api/section/S{section}/add"),
                None,
                &format!(r#"{{"student":"s{}"}}"#, random.u32(..1_000)),
            );
            let begun = Instant::now();
            let answer = match connection.take() {
                Some(open) => Ok(open),
                None => Connection::open(address, ANSWER_WAIT),
            }
            .and_then(|mut open| {
                let answer = open.ask(&request)?;
                connection = Some(open);
                Ok(answer)
            });
            let is_done = answer.is_ok_and(|answer| answer.status == 200);
            let counter = if is_done { &self.done } else { &self.failed };
            counter.fetch_add(1, Ordering::Relaxed);
            own.push(Wait {
                section,
                at: Instant::now(),
                took: begun.elapsed(),
                is_done,
            });
            if !is_done {
                thread::sleep(PAUSE);
            }
        }
        self.waits
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .append(&mut own);
    }
}

fn quantile(sorted: &[f64], part: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted
        .get((last as f64 * part).round() as usize)
        .copied()
        .unwrap_or(0.0)
}

impl Rate {
    fn median(rounds: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| median(rounds.iter().map(figure));
        Self {
            arrangement: rounds[0].arrangement,
            requests_per_s: of(|rate| rate.requests_per_s),
            engine_cpu_us: of(|rate| rate.engine_cpu_us),
            postgres_cpu_us: of(|rate| rate.postgres_cpu_us),
            client_cpu_us: of(|rate| rate.client_cpu_us),
            p50_ms: of(|rate| rate.p50_ms),
            p99_ms: of(|rate| rate.p99_ms),
            failures: rounds.iter().map(|rate| rate.failures).sum(),
        }
    }

    fn cells(&self) -> [String; 8] {
        [
            self.arrangement.to_owned(),
            count(self.requests_per_s as u64),
            format!("{:.1}", self.engine_cpu_us),
            format!("{:.1}", self.postgres_cpu_us),
            format!("{:.1}", self.client_cpu_us),
            format!("{:.2}", self.p50_ms),
            format!("{:.2}", self.p99_ms),
            count(self.failures),
        ]
    }
}

fn text(figures: &Figures) -> String {
    let mut rates = Table::new([
        "",
        "requests/s",
        "engine µs",
        "postgres µs",
        "client µs",
        "p50 ms",
        "p99 ms",
        "failures",
    ]);
    for rate in &figures.rates {
        rates.row(rate.cells());
    }
    let mut held = Table::new(["an entity waits while", "times", "p50 s", "p99 s", "max s", "failures"]);
    for row in &figures.held {
        held.row([
            row.what.to_owned(),
            row.times.to_string(),
            format!("{:.3}", row.p50_s),
            format!("{:.3}", row.p99_s),
            format!("{:.3}", row.max_s),
            count(row.failures),
        ]);
    }
    format!("{}\n{}", rates.text(), held.text())
}
