//! Recommendations: the computation in a plain loop, over the Rust API, and over HTTP, in alternating rounds.
//!
//! The cost of the Rust API is the difference to the plain loop's throughput times the cores. Over HTTP the service has one loop, and the client
//! takes the other core. The service is compared with a core that does only the computation and a bare echo of the same requests.
//!
//! A saturated echo never wakes its client, which always has something to do. A service that computes for 30 µs a request wakes it for nearly every
//! answer, and pays for that. So the echo is also measured at the rate of the service. The difference belongs to the system, not to the engine.

use anyhow::Context as _;
use clap::Args;
use preferences::{
    catalogue::{Catalogue, ITEMS},
    rules::recommend,
    user::{Act, ActionKind, Recommend, Summary, User, UserCommand},
};
use serde::Serialize;
use serde_json::json;
use std::{hint::black_box, net::SocketAddr, process::ExitCode, thread, time::Instant};
use throng::{
    Engine,
    journal::{MemoryJournal, MemoryStore},
};
use throng_load::{Next, Options, Outcome, Report, Request, Shot, Source, Target, Verdict};
use yardsticks::echo::EchoProcess;

use super::{Common, median, requests, table::Table, yardstick};

/// The measurement of recommendations.
#[derive(Debug, Args)]
pub(super) struct PreferencesArguments {
    #[command(flatten)]
    common: Common,
    /// Alternating rounds; the median of their ratios counts.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=99))]
    rounds: u16,
    /// Users, each with 40 actions.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    users: u32,
    /// Recommendations a round, of 10 items each.
    #[arg(long, default_value_t = 20_000)]
    requests: usize,
    /// Connections over which requests come.
    #[arg(long, default_value_t = 64)]
    connections: usize,
}

const LIMIT: usize = 10;
const ACTIONS: u32 = 40;

/// A round: recommendations or requests a second, and the CPU of a request in another process.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// The rate of one thread in a plain loop.
    alone: f64,
    /// The rate of plain loops on all cores together.
    together: f64,
    /// The rate over the Rust API, with a thread for each core.
    rust: f64,
    http: Http,
    generic: Http,
    echo: Http,
    /// The echo at the rate of `http`.
    paced: Http,
}

#[derive(Clone, Copy, Debug)]
struct Http {
    per_s: f64,
    cpu_us: f64,
}

impl Round {
    /// Returns the rate of one core that computes and echoes.
    fn ceiling(&self) -> f64 {
        1.0 / (1.0 / self.alone + 1.0 / self.echo.per_s)
    }

    /// Returns the CPU of a request for such a core.
    fn ceiling_cpu_us(&self) -> f64 {
        1e6 / self.alone + self.echo.cpu_us
    }

    /// Returns the CPU of a request for such a core at the service's rate.
    fn paced_cpu_us(&self) -> f64 {
        1e6 / self.alone + self.paced.cpu_us
    }
}

#[derive(Debug, Serialize)]
struct Figures {
    cores: usize,
    recommendation_us: f64,
    loop_per_s: f64,
    loops_together_per_s: f64,
    rust_per_s: f64,
    rust_by_loop_times_cores: f64,
    rust_by_loops_together: f64,
    echo_per_s: f64,
    echo_cpu_us: f64,
    http_per_s: f64,
    http_cpu_us: f64,
    http_by_loop_and_echo: f64,
    http_cpu_loop_and_echo_by_it: f64,
    echo_at_that_rate_cpu_us: f64,
    http_cpu_loop_and_echo_at_that_rate_by_it: f64,
    generic_per_s: f64,
    generic_cpu_us: f64,
    generic_by_loop_and_echo: f64,
    generic_cpu_loop_and_echo_by_it: f64,
}

/// Measures and prints the figures.
pub(super) fn run(arguments: &PreferencesArguments) -> anyhow::Result<ExitCode> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let users: Vec<Vec<Act>> = (0..arguments.users).map(actions).collect();
    let summaries: Vec<Summary> = users.iter().map(|actions| summary(actions)).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let engine = runtime.block_on(engine(&users))?;
    let service = service(&users, arguments.connections)?;
    let echo = EchoProcess::start(yardstick("echo")?, 1)?;
    let round = || -> anyhow::Result<Round> {
        let count = arguments.requests;
        let http = |process: &EchoProcess, path: &str, rate: Option<f64>| requests_of(process, path, arguments, rate);
        let served = http(&service, "/users/", None)?;
        Ok(Round {
            alone: plain_loop(&summaries, 1, count),
            together: plain_loop(&summaries, cores, count),
            rust: rust_api(&engine, arguments.users, cores, count)?,
            http: served,
            echo: http(&echo, "/users/", None)?,
            paced: http(&echo, "/users/", Some(served.per_s))?,
            generic: http(&service, "/api/user/", None)?,
        })
    };
    // The first round is not counted.
    round()?;
    let rounds = (0..arguments.rounds)
        .map(|_| round())
        .collect::<anyhow::Result<Vec<_>>>()?;
    runtime.block_on(engine.stop());
    let of = |figure: &dyn Fn(&Round) -> f64| median(rounds.iter().map(figure));
    let figures = Figures {
        cores,
        recommendation_us: of(&|round| 1e6 / round.alone),
        loop_per_s: of(&|round| round.alone),
        loops_together_per_s: of(&|round| round.together),
        rust_per_s: of(&|round| round.rust),
        rust_by_loop_times_cores: of(&|round| round.rust / (round.alone * cores as f64)),
        rust_by_loops_together: of(&|round| round.rust / round.together),
        echo_per_s: of(&|round| round.echo.per_s),
        echo_cpu_us: of(&|round| round.echo.cpu_us),
        http_per_s: of(&|round| round.http.per_s),
        http_cpu_us: of(&|round| round.http.cpu_us),
        http_by_loop_and_echo: of(&|round| round.http.per_s / round.ceiling()),
        http_cpu_loop_and_echo_by_it: of(&|round| round.ceiling_cpu_us() / round.http.cpu_us),
        echo_at_that_rate_cpu_us: of(&|round| round.paced.cpu_us),
        http_cpu_loop_and_echo_at_that_rate_by_it: of(&|round| round.paced_cpu_us() / round.http.cpu_us),
        generic_per_s: of(&|round| round.generic.per_s),
        generic_cpu_us: of(&|round| round.generic.cpu_us),
        generic_by_loop_and_echo: of(&|round| round.generic.per_s / round.ceiling()),
        generic_cpu_loop_and_echo_by_it: of(&|round| round.ceiling_cpu_us() / round.generic.cpu_us),
    };
    arguments
        .common
        .print(&json!({ "preferences": figures }), || text(&figures));
    Ok(ExitCode::SUCCESS)
}

/// Returns the actions of a user, the same in every run.
fn actions(user: u32) -> Vec<Act> {
    let kinds = [ActionKind::View, ActionKind::View, ActionKind::Like, ActionKind::Buy];
    // The multiples of primes make users differ and spread their items over the catalogue.
    let item = |n: u32| user.wrapping_mul(7_919).wrapping_add(n.wrapping_mul(613)) % ITEMS as u32;
    (0..ACTIONS)
        .map(|n| Act {
            action: kinds[((user + n) % 4) as usize],
            item: item(n),
        })
        .collect()
}

fn summary(actions: &[Act]) -> Summary {
    let mut summary = Summary::default();
    for Act { action, item } in actions {
        summary.add(*action, *item, Catalogue::get().category(*item), 0);
    }
    summary
}

fn name(user: u32) -> String {
    format!("u{user}")
}

async fn engine(users: &[Vec<Act>]) -> anyhow::Result<Engine> {
    let journal = MemoryJournal::new();
    let store = MemoryStore::new(journal.clone());
    let engine = preferences::kinds(Engine::builder()).start(journal, store).await?;
    for (user, actions) in (0_u32..).zip(users) {
        let command = UserCommand::Act {
            actions: actions.clone(),
        };
        engine.entity::<User>(name(user)).ask(command).await?;
    }
    Ok(engine)
}

/// Starts the service in a process of its own, so that its CPU time can be measured. Nothing of it touches a disk.
fn service(users: &[Vec<Act>], connections: usize) -> anyhow::Result<EchoProcess> {
    let mut command = yardstick("serve")?;
    command.args(["--app", "preferences", "--journal", "memory:"]);
    let process = EchoProcess::start(command, 1)?;
    let host = process.address().to_string();
    let post = |(user, actions): (u32, &Vec<Act>)| {
        let body = json!({ "actions": actions }).to_string();
        Request::build("POST", &host, &format!("/users/{}/actions", name(user)))
            .json(&body)
            .into_bytes()
    };
    requests::drive(process.address(), connections, (0..).zip(users).map(post).collect())?;
    Ok(process)
}

/// Computes recommendations on threads that do nothing else, and returns their rate.
fn plain_loop(summaries: &[Summary], threads: usize, count: usize) -> f64 {
    let begun = Instant::now();
    thread::scope(|scope| {
        for first in 0..threads {
            scope.spawn(move || {
                for number in (first..count).step_by(threads) {
                    black_box(recommend(black_box(&summaries[number % summaries.len()]), LIMIT));
                }
            });
        }
    });
    count as f64 / begun.elapsed().as_secs_f64()
}

/// Asks the engine for recommendations on threads, and returns their rate.
fn rust_api(engine: &Engine, users: u32, threads: usize, count: usize) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let ask = |first: usize| -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            for number in (first..count).step_by(threads) {
                let user = u32::try_from(number % users as usize)?;
                let list = engine
                    .entity::<User>(name(user))
                    .read(Recommend { limit: LIMIT })
                    .await?;
                anyhow::ensure!(
                    black_box(list).items.len() == LIMIT,
                    "the list of user {user} is not whole"
                );
            }
            Ok(())
        })
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|first| scope.spawn(move || ask(first))).collect();
        threads.into_iter().try_for_each(|thread| {
            let asked = thread.join();
            asked.unwrap_or_else(|_| Err(anyhow::anyhow!("a thread that asks has panicked")))
        })
    })?;
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}

fn requests_of(
    process: &EchoProcess,
    path: &str,
    arguments: &PreferencesArguments,
    rate: Option<f64>,
) -> anyhow::Result<Http> {
    let count = arguments.requests;
    let address: SocketAddr = process.address();
    let host = address.to_string();
    let get = |number: usize| -> anyhow::Result<Vec<u8>> {
        let user = name(u32::try_from(number % arguments.users as usize)?);
        let path = format!("{path}{user}/recommendations?limit={LIMIT}");
        Ok(Request::build("GET", &host, &path).into_bytes())
    };
    let requests = (0..count).map(get).collect::<anyhow::Result<Vec<_>>>()?;
    let before = process.cpu_time()?;
    let report = match rate {
        None => requests::drive(address, arguments.connections, requests),
        Some(rate) => pace(address, arguments.connections, requests, rate),
    }
    .context("the recommendations cannot be asked for")?;
    let cpu = process.cpu_time()?.saturating_sub(before);
    Ok(Http {
        per_s: report.throughput(),
        cpu_us: cpu.as_secs_f64() * 1e6 / count as f64,
    })
}

/// Requests at even intervals.
struct Paced {
    requests: Vec<Vec<u8>>,
    next: usize,
    interval_nanos: f64,
}

impl Source for Paced {
    fn next(&mut self, now_nanos: u64) -> Next<'_> {
        let Some(bytes) = self.requests.get(self.next) else {
            return Next::Done;
        };
        let due_nanos = (self.next as f64 * self.interval_nanos) as u64;
        if due_nanos > now_nanos {
            return Next::WaitUntil(due_nanos);
        }
        self.next += 1;
        Next::Send(Shot::due(bytes, self.next as u64, due_nanos))
    }

    fn answered(&mut self, _: u64, _: &Outcome<'_>) -> Verdict {
        Verdict::ByStatus
    }
}

fn pace(address: SocketAddr, connections: usize, requests: Vec<Vec<u8>>, rate: f64) -> anyhow::Result<Report> {
    let mut options = Options::new(Target::resolve(&format!("http://{address}"), false)?);
    options.connections = connections;
    let count = requests.len() as u64;
    let paced = Paced {
        requests,
        next: 0,
        interval_nanos: 1e9 / rate,
    };
    let report = throng_load::run(&options, vec![paced])?.report;
    anyhow::ensure!(report.counters.successes == count, "not all paced requests succeeded");
    Ok(report)
}

fn text(figures: &Figures) -> String {
    let mut table = Table::new(["recommendations of 10 items", "a second", "share", "CPU µs", "share"]);
    let row = |table: &mut Table, name: &str, per_s: f64, share: Option<f64>, cpu: Option<(f64, f64)>| {
        let ratio = |ratio: f64| format!("{ratio:.2}");
        table.row([
            name.to_owned(),
            format!("{per_s:.0}"),
            share.map(ratio).unwrap_or_default(),
            cpu.map(|(cpu, _)| format!("{cpu:.1}")).unwrap_or_default(),
            cpu.and_then(|(_, share)| share.is_finite().then(|| ratio(share)))
                .unwrap_or_default(),
        ]);
    };
    let of_one = Some((figures.recommendation_us, f64::NAN));
    row(&mut table, "plain loop, one thread", figures.loop_per_s, None, of_one);
    row(
        &mut table,
        "plain loop, a thread a core",
        figures.loops_together_per_s,
        Some(figures.loops_together_per_s / (figures.loop_per_s * figures.cores as f64)),
        None,
    );
    row(
        &mut table,
        "Rust API, a thread a core",
        figures.rust_per_s,
        Some(figures.rust_by_loop_times_cores),
        None,
    );
    let of_echo = Some((figures.echo_cpu_us, f64::NAN));
    row(
        &mut table,
        "bare HTTP echo, one loop",
        figures.echo_per_s,
        None,
        of_echo,
    );
    row(
        &mut table,
        "GET /users/{id}/recommendations, one loop",
        figures.http_per_s,
        Some(figures.http_by_loop_and_echo),
        Some((figures.http_cpu_us, figures.http_cpu_loop_and_echo_by_it)),
    );
    row(
        &mut table,
        "GET /api/user/{id}/recommendations, one loop",
        figures.generic_per_s,
        Some(figures.generic_by_loop_and_echo),
        Some((figures.generic_cpu_us, figures.generic_cpu_loop_and_echo_by_it)),
    );
    let at_that_rate = Some((
        figures.echo_at_that_rate_cpu_us,
        figures.http_cpu_loop_and_echo_at_that_rate_by_it,
    ));
    row(
        &mut table,
        "bare HTTP echo at that rate; the service against it",
        figures.http_per_s,
        None,
        at_that_rate,
    );
    table.text()
        + &format!(
            "\n  share of the loop's throughput × {} cores; over HTTP, of one core that computes and echoes and does nothing else\n  \
             against loops on all cores together: {:.2}; the client of the HTTP rounds runs beside, on the same machine\n",
            figures.cores, figures.rust_by_loops_together
        )
}
