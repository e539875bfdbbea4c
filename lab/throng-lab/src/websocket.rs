//! Durable commands over WebSockets against the same over HTTP, one at a time and in batches.

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use futures_util::{SinkExt as _, StreamExt as _};
use serde::Serialize;
use std::{
    fmt::Write as _,
    net::SocketAddr,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
};
use tokio_tungstenite::{client_async, tungstenite::Message};
use yardsticks::echo::EchoProcess;

use super::{
    Common, median,
    requests::{self, SECTIONS},
    table::Table,
    yardstick,
};
use crate::units;

/// The measurement of WebSockets.
#[derive(Debug, Args)]
pub(super) struct WebsocketArguments {
    #[command(flatten)]
    common: Common,
    /// Rounds, each through all transports; the medians count.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=99))]
    rounds: u16,
    /// Numbers of connections.
    #[arg(long, value_delimiter = ',', default_value = "1,64")]
    connections: Vec<usize>,
    /// Commands of one frame, or pipelined over HTTP; each connection waits for their answers before it sends more.
    #[arg(long, value_delimiter = ',', default_value = "1,32")]
    batches: Vec<usize>,
    /// The time for which each is measured in a round.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::duration)]
    time: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Transport {
    Http,
    WebSocket,
}

/// The medians of one transport.
#[derive(Debug, Serialize)]
struct Line {
    transport: Transport,
    connections: usize,
    batch: usize,
    commands_per_s: f64,
    cpu_us: f64,
    /// The commands, relative to those over HTTP with one command at a time and equally many connections, in the same round.
    commands_ratio: f64,
    cpu_ratio: f64,
}

/// The client of one connection.
enum Client {
    Http(TcpStream),
    WebSocket(Box<tokio_tungstenite::WebSocketStream<TcpStream>>),
}

impl Client {
    async fn open(transport: Transport, address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await.context("cannot connect")?;
        stream.set_nodelay(true)?;
        Ok(match transport {
            Transport::Http => Self::Http(stream),
            Transport::WebSocket => {
                let url = format!("ws://{address}/api/ws");
                let (mut socket, _) = client_async(url, stream).await.context("cannot open a WebSocket")?;
                socket.next().await.context("the service says no hello")??;
                Self::WebSocket(Box::new(socket))
            }
        })
    }

    /// Adds this many students and waits for all answers.
    async fn add(&mut self, batch: usize, next: &AtomicU64, text: &mut String) -> anyhow::Result<()> {
        text.clear();
        let first = next.fetch_add(batch as u64, Ordering::Relaxed);
        let students = first..first + batch as u64;
        match self {
            Self::Http(stream) => {
                for student in students {
                    let section = student % SECTIONS as u64;
                    write!(
                        text,
                        "POST /api/section/S{section}/add HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 22\r\n\r\n{{\"student\":\"{student:08}\"}}"
                    )?;
                }
                stream.write_all(text.as_bytes()).await?;
                let mut answers = Answers::default();
                let mut bytes = vec![0; 16 << 10];
                while answers.ended < batch {
                    let read = stream.read(&mut bytes).await?;
                    ensure!(read > 0, "the service has closed the connection");
                    answers.look(&bytes[..read]);
                }
                ensure!(answers.good >= batch, "some of {batch} commands were refused");
            }
            Self::WebSocket(socket) => {
                let mut separator = if batch > 1 { '[' } else { ' ' };
                for student in students {
                    let section = student % SECTIONS as u64;
                    write!(
                        text,
                        "{separator}{{\"type\":\"command\",\"id\":{student},\"kind\":\"section\",\"entity\":\"S{section}\",\"command\":\"add\",\"body\":{{\"student\":\"{student:08}\"}}}}"
                    )?;
                    separator = ',';
                }
                if batch > 1 {
                    text.push(']');
                }
                socket.send(Message::text(text.as_str())).await?;
                let mut replies = 0;
                while replies < batch {
                    match socket.next().await.context("the service has closed the socket")?? {
                        Message::Text(frame) => {
                            ensure!(
                                !frame.contains("\"type\":\"problem\""),
                                "a command was refused: {frame}"
                            );
                            replies += frame.matches("\"type\":\"reply\"").count();
                        }
                        Message::Ping(_) => {}
                        other => bail!("the service says {other:?}"),
                    }
                }
            }
        }
        Ok(())
    }
}

/// Counts responses that arrive in pieces.
#[derive(Default)]
struct Answers {
    ended: usize,
    good: usize,
    seen: [u8; 13],
}

impl Answers {
    fn look(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.seen.rotate_left(1);
            self.seen[12] = byte;
            match byte {
                b'\n' => self.ended += usize::from(self.seen.ends_with(b"\r\n\r\n")),
                b' ' => self.good += usize::from(&self.seen == b"HTTP/1.1 200 "),
                _ => {}
            }
        }
    }
}

/// Returns the number of commands done within a time.
async fn drive(
    address: SocketAddr,
    (transport, connections, batch): (Transport, usize, usize),
    time: Duration,
    next: &Arc<AtomicU64>,
) -> anyhow::Result<(u64, Duration)> {
    let mut clients = Vec::with_capacity(connections);
    for _ in 0..connections {
        clients.push(Client::open(transport, address).await?);
    }
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for mut client in clients {
        let next = next.clone();
        tasks.spawn(async move {
            let (mut done, mut text) = (0, String::new());
            while begun.elapsed() < time {
                client.add(batch, &next, &mut text).await?;
                done += batch as u64;
            }
            anyhow::Ok(done)
        });
    }
    let mut total = 0;
    while let Some(done) = tasks.join_next().await {
        total += done??;
    }
    Ok((total, begun.elapsed()))
}

/// Measures and prints the figures.
pub(super) fn run(arguments: &WebsocketArguments) -> anyhow::Result<ExitCode> {
    let scratch = arguments.common.scratch()?;
    let mut command = yardstick("serve")?;
    command.arg("--data").arg(scratch.0.join("websocket"));
    let service = EchoProcess::start(command, 1)?;
    requests::open_sections(service.address())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let next = Arc::new(AtomicU64::new(0));
    let ways: Vec<(Transport, usize, usize)> = arguments
        .connections
        .iter()
        .flat_map(|&connections| {
            [Transport::Http, Transport::WebSocket]
                .into_iter()
                .flat_map(move |transport| {
                    arguments
                        .batches
                        .iter()
                        .map(move |&batch| (transport, connections, batch))
                })
        })
        .collect();
    // The commands a second and the CPU microseconds of each, by transport and round.
    let mut figures = vec![Vec::new(); ways.len()];
    for round in 0..=arguments.rounds {
        for (way, figures) in ways.iter().zip(&mut figures) {
            let before = service.cpu_time()?;
            let (done, took) = runtime.block_on(drive(service.address(), *way, arguments.time, &next))?;
            let cpu = service.cpu_time()?.saturating_sub(before);
            // The first round is not counted. It touches the memory and fills the students' lists.
            if round > 0 {
                figures.push((done as f64 / took.as_secs_f64(), cpu.as_secs_f64() * 1e6 / done as f64));
            }
        }
    }
    let plain = |connections: usize| {
        let at = ways.iter().position(|way| *way == (Transport::Http, connections, 1));
        at.map(|at| figures[at].as_slice()).unwrap_or_default()
    };
    let lines: Vec<Line> = ways
        .iter()
        .zip(&figures)
        .map(|(&(transport, connections, batch), own)| {
            let pairs = || own.iter().zip(plain(connections));
            Line {
                transport,
                connections,
                batch,
                commands_per_s: median(own.iter().map(|figures| figures.0)),
                cpu_us: median(own.iter().map(|figures| figures.1)),
                commands_ratio: median(pairs().map(|(own, plain)| own.0 / plain.0)),
                cpu_ratio: median(pairs().map(|(own, plain)| own.1 / plain.1)),
            }
        })
        .collect();
    arguments
        .common
        .print(&serde_json::json!({ "websocket": lines }), || text(&lines));
    Ok(ExitCode::SUCCESS)
}

fn text(lines: &[Line]) -> String {
    let mut table = Table::new([
        "transport",
        "connections",
        "batch",
        "commands/s",
        "ratio",
        "CPU µs",
        "ratio",
    ]);
    for line in lines {
        table.row([
            match line.transport {
                Transport::Http => "HTTP".into(),
                Transport::WebSocket => "WebSocket".into(),
            },
            line.connections.to_string(),
            line.batch.to_string(),
            format!("{:.0}", line.commands_per_s),
            format!("{:.2}", line.commands_ratio),
            format!("{:.1}", line.cpu_us),
            format!("{:.2}", line.cpu_ratio),
        ]);
    }
    table.text() + "\n  ratio: by HTTP with one command at a time over as many connections, median of the rounds\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_wherever_their_pieces_are_cut() {
        let bytes = b"HTTP/1.1 200 OK\r\na: b\r\n\r\n{}HTTP/1.1 409 Conflict\r\n\r\nHTTP/1.1 200 OK\r\n\r\n1";
        for cut in 0..bytes.len() {
            let mut answers = Answers::default();
            answers.look(&bytes[..cut]);
            answers.look(&bytes[cut..]);
            assert_eq!((answers.ended, answers.good), (3, 2), "cut at {cut}");
        }
    }
}
