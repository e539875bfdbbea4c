//! The cost of live followers: the CPU of a delivered event, with few followers and with many.

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use futures_util::{SinkExt as _, StreamExt as _};
use serde::Serialize;
use std::{
    net::SocketAddr,
    path::PathBuf,
    process::{Command, ExitCode},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{net::TcpStream, task::JoinSet, time::MissedTickBehavior};
use tokio_tungstenite::{WebSocketStream, client_async, tungstenite::Message};
use yardsticks::echo::EchoProcess;

use super::{
    Common, median,
    requests::{self, SECTIONS},
    table::Table,
    yardstick,
};
use crate::units;

/// The events for which a follower grants credit at a time.
const CREDIT: u64 = 10_000;
/// The longest wait for deliveries after the last event.
const DELIVERY_WAIT: Duration = Duration::from_secs(20);

/// The measurement of followers.
#[derive(Debug, Args)]
pub(super) struct FollowersArguments {
    #[command(flatten)]
    common: Common,
    /// Rounds, each with all lines. The medians of the rounds are shown.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=99))]
    rounds: u16,
    /// Numbers of followers, each on a WebSocket of its own.
    #[arg(long, value_delimiter = ',', default_value = "10,100,1000")]
    followers: Vec<usize>,
    /// Commands a second, each one event.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    rate: u64,
    /// The time for which each line is measured in a round.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = units::duration)]
    time: Duration,
    /// Measure the service of another build of this program, to compare two versions.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

/// The entities that are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Followed {
    /// All entities of the kind. Each event goes to every follower.
    Kind,
    /// An entity for each follower. An event goes to few followers, or none.
    Entity,
}

/// The medians of a number of followers.
#[derive(Debug, Serialize)]
struct Line {
    followed: Followed,
    followers: usize,
    events_per_s: f64,
    deliveries_per_s: f64,
    /// The CPU of the service, in percent of one core.
    cpu_percent: f64,
    /// The CPU in addition to that of the same commands without a follower.
    cpu_us_per_event: f64,
    cpu_us_per_delivery: f64,
}

/// The figures of one round of a line.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    events: u64,
    deliveries: u64,
    cpu: Duration,
    took: Duration,
}

type Socket = WebSocketStream<TcpStream>;

async fn open(address: SocketAddr) -> anyhow::Result<Socket> {
    let stream = TcpStream::connect(address).await.context("cannot connect")?;
    stream.set_nodelay(true)?;
    let url = format!("ws://{address}/api/ws");
    let (mut socket, _) = client_async(url, stream).await.context("cannot open a WebSocket")?;
    text(&mut socket).await.context("the service says no hello")?;
    Ok(socket)
}

/// Returns the next text frame.
async fn text(socket: &mut Socket) -> anyhow::Result<String> {
    loop {
        match socket.next().await.context("the service has closed the socket")?? {
            Message::Text(frame) => return Ok(frame.as_str().to_owned()),
            Message::Ping(_) => {}
            other => bail!("the service says {other:?}"),
        }
    }
}

/// Follows from now on, and counts the events.
async fn follow(mut socket: Socket, delivered: Arc<AtomicU64>) -> anyhow::Result<()> {
    let mut left = CREDIT;
    loop {
        let frame = text(&mut socket).await?;
        let events = frame.matches("\"seq\":").count() as u64;
        ensure!(events > 0, "a subscription does not go on: {frame}");
        delivered.fetch_add(events, Ordering::Relaxed);
        left = left.saturating_sub(events);
        if left < CREDIT / 2 {
            let credit = format!(r#"{{"type":"credit","id":0,"credit":{}}}"#, CREDIT - left);
            socket.send(Message::text(credit)).await?;
            left = CREDIT;
        }
    }
}

/// Opens the WebSockets and starts a subscription on each.
async fn followers(
    address: SocketAddr,
    followed: Followed,
    count: usize,
    delivered: &Arc<AtomicU64>,
) -> anyhow::Result<JoinSet<anyhow::Result<()>>> {
    let mut tasks = JoinSet::new();
    for follower in 0..count {
        let mut socket = open(address).await?;
        // Past events are skipped: the kind's events begin now, an entity's with its first one.
        let of = match followed {
            Followed::Kind => String::new(),
            Followed::Entity => format!(r#","entity":"S{}""#, follower % SECTIONS),
        };
        let subscribe = format!(r#"{{"type":"subscribe","id":0,"kind":"section"{of},"credit":{CREDIT}}}"#);
        socket.send(Message::text(subscribe)).await?;
        let frame = text(&mut socket).await?;
        ensure!(frame.contains("\"subscribed\""), "no subscription: {frame}");
        tasks.spawn(follow(socket, delivered.clone()));
    }
    Ok(tasks)
}

/// Sends commands at a rate, one after the other, and returns their number.
async fn command(address: SocketAddr, rate: u64, time: Duration, first: u64) -> anyhow::Result<u64> {
    let mut socket = open(address).await?;
    let mut every = tokio::time::interval(Duration::from_secs_f64(1.0 / rate as f64));
    every.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let begun = Instant::now();
    let mut done = 0;
    while begun.elapsed() < time {
        every.tick().await;
        let student = first + done;
        let section = student % SECTIONS as u64;
        let command = format!(
            r#"{{"type":"command","id":{student},"kind":"section","entity":"S{section}","command":"add","body":{{"student":"{student:08}"}}}}"#
        );
        socket.send(Message::text(command)).await?;
        let frame = text(&mut socket).await?;
        ensure!(frame.contains("\"reply\""), "a command was refused: {frame}");
        done += 1;
    }
    Ok(done)
}

/// Waits until there are at least this many deliveries and no more arrive for a while.
async fn settled(delivered: &AtomicU64, least: u64) -> anyhow::Result<()> {
    let begun = Instant::now();
    let mut before = None;
    loop {
        let now = delivered.load(Ordering::Relaxed);
        if now >= least && before == Some(now) {
            return Ok(());
        }
        ensure!(
            begun.elapsed() < DELIVERY_WAIT,
            "{now} of {least} deliveries came within {DELIVERY_WAIT:?}"
        );
        before = Some(now);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn round(
    service: &EchoProcess,
    arguments: &FollowersArguments,
    (followed, count): (Followed, usize),
    next: &mut u64,
) -> anyhow::Result<Figures> {
    let delivered = Arc::new(AtomicU64::new(0));
    let mut tasks = followers(service.address(), followed, count, &delivered).await?;
    settled(&delivered, 0).await?;
    delivered.store(0, Ordering::Relaxed);
    let (before, begun) = (service.cpu_time()?, Instant::now());
    let events = command(service.address(), arguments.rate, arguments.time, *next).await?;
    *next += events;
    let expected = match followed {
        Followed::Kind => events * count as u64,
        Followed::Entity => 0,
    };
    settled(&delivered, expected).await?;
    let figures = Figures {
        events,
        deliveries: delivered.load(Ordering::Relaxed),
        cpu: service.cpu_time()?.saturating_sub(before),
        took: begun.elapsed(),
    };
    if let Some(ended) = tasks.try_join_next() {
        ended.context("a follower has ended")?.context("a follower has ended")?;
    }
    Ok(figures)
}

/// Measures and prints the figures.
pub(super) fn run(arguments: &FollowersArguments) -> anyhow::Result<ExitCode> {
    let scratch = arguments.common.scratch()?;
    let mut command = match &arguments.program {
        None => yardstick("serve")?,
        Some(program) => {
            let mut command = Command::new(program);
            command.args(["yardstick", "serve"]);
            command
        }
    };
    command.arg("--data").arg(scratch.0.join("followers"));
    let service = EchoProcess::start(command, 1)?;
    requests::open_sections(service.address())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut lines: Vec<(Followed, usize)> = vec![(Followed::Kind, 0)];
    for followed in [Followed::Kind, Followed::Entity] {
        lines.extend(arguments.followers.iter().map(|&count| (followed, count)));
    }
    let mut figures = vec![Vec::new(); lines.len()];
    let mut next = 0;
    for number in 0..=arguments.rounds {
        for (line, figures) in lines.iter().zip(&mut figures) {
            let round = runtime.block_on(round(&service, arguments, *line, &mut next))?;
            // The first round is not counted, because it touches the memory.
            if number > 0 {
                figures.push(round);
            }
        }
    }
    let alone = figures[0].clone();
    let lines: Vec<Line> = lines
        .iter()
        .zip(&figures)
        .map(|(&(followed, followers), own)| {
            let beyond = |own: &Figures, alone: &Figures| {
                let per_event = |figures: &Figures| figures.cpu.as_secs_f64() * 1e6 / figures.events as f64;
                (per_event(own) - per_event(alone)) * own.events as f64
            };
            let each = |of: &dyn Fn(&Figures, f64) -> f64| {
                median(own.iter().zip(&alone).map(|(own, alone)| of(own, beyond(own, alone))))
            };
            Line {
                followed,
                followers,
                events_per_s: each(&|own, _| own.events as f64 / own.took.as_secs_f64()),
                deliveries_per_s: each(&|own, _| own.deliveries as f64 / own.took.as_secs_f64()),
                cpu_percent: each(&|own, _| own.cpu.as_secs_f64() * 100.0 / own.took.as_secs_f64()),
                cpu_us_per_event: each(&|own, beyond| beyond / own.events as f64),
                cpu_us_per_delivery: each(&|own, beyond| beyond / own.deliveries as f64),
            }
        })
        .collect();
    arguments
        .common
        .print(&serde_json::json!({ "followers": lines }), || show(&lines));
    Ok(ExitCode::SUCCESS)
}

fn show(lines: &[Line]) -> String {
    let mut table = Table::new([
        "followed",
        "followers",
        "events/s",
        "deliveries/s",
        "CPU %",
        "µs an event",
        "µs a delivery",
    ]);
    for line in lines {
        let finite = |figure: f64, digits: usize| match figure.is_finite() {
            true => format!("{figure:.digits$}"),
            false => "-".into(),
        };
        table.row([
            match line.followed {
                _ if line.followers == 0 => "nothing".into(),
                Followed::Kind => "the kind".into(),
                Followed::Entity => "an entity each".into(),
            },
            line.followers.to_string(),
            finite(line.events_per_s, 0),
            finite(line.deliveries_per_s, 0),
            finite(line.cpu_percent, 1),
            finite(line.cpu_us_per_event, 0),
            finite(line.cpu_us_per_delivery, 1),
        ]);
    }
    table.text()
        + "\n  CPU of the service; µs: beyond what the same commands cost without a follower, median of the rounds\n"
}
