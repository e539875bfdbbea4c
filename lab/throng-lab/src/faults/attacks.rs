//! Attacks on memory and connections: clients that use resources and give nothing back. The service must stay within its memory and report that it is
//! alive.

use super::{
    kind::Kind,
    load::SECTIONS,
    run::{MEMORY_MEGABYTES, Outage, Run},
};
use anyhow::{Context as _, ensure};
use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use crate::http_client::{self, ANSWER_WAIT, Connection};

/// The memory that a process uses in addition to its limit.
const BESIDE_BYTES: u64 = 64 << 20;
/// The time between two checks of the service.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// An attacker waits this long for the service to take more bytes.
const SEND_WAIT: Duration = Duration::from_millis(300);
/// An attacker keeps its connections open this long.
const HELD: Duration = Duration::from_millis(500);

/// Returns the number of attackers for a number of clients.
fn attackers(clients: usize) -> usize {
    4 * clients
}

/// Returns the limit of connections for attacks that open more. It leaves room for the clients, their attackers and the checks of health.
pub(super) fn connections_max(clients: usize) -> usize {
    2 * attackers(clients)
}

/// The service during an attack, as the watcher saw it.
struct Seen {
    resident: u64,
    asked: u64,
    failures: Vec<String>,
}

const EACH: [Kind; 10] = [
    Kind::AttackMessages,
    Kind::AttackBodies,
    Kind::AttackStreams,
    Kind::AttackHistories,
    Kind::AttackHeads,
    Kind::AttackSubscriptions,
    Kind::AttackAnswers,
    Kind::AttackResets,
    Kind::AttackCommands,
    Kind::AttackConnections,
];

impl Run<'_> {
    pub(super) fn attack_in_each_way(&mut self) -> anyhow::Result<Outage> {
        let begun = Outage::Since(self.now());
        EACH.into_iter()
            .map(|kind| self.attack(kind).with_context(|| kind.name()))
            .try_fold(begun, |_, outage| outage)
    }

    pub(super) fn attack(&mut self, kind: Kind) -> anyhow::Result<Outage> {
        let (address, process) = (self.service()?.address, self.service()?.id());
        let (count, most) = (attackers(self.load.clients()), connections_max(self.load.clients()));
        let is_over = Arc::new(AtomicBool::new(false));
        let watcher = thread::Builder::new().name("watch".into()).spawn({
            let is_over = Arc::clone(&is_over);
            move || watch(address, process, &is_over)
        })?;
        let attacked = match kind {
            Kind::AttackMessages => messages(address, count),
            Kind::AttackBodies => bodies(address, count),
            Kind::AttackStreams => unread(address, count, "accept: text/event-stream\r\n"),
            Kind::AttackHistories => unread(address, count, ""),
            Kind::AttackHeads => heads(address, count),
            Kind::AttackSubscriptions => subscriptions(address, count),
            Kind::AttackAnswers => answers(address, count),
            Kind::AttackResets => resets(address, count),
            Kind::AttackCommands => commands(address, count),
            _ => connections(address, most, count),
        };
        is_over.store(true, Ordering::Relaxed);
        let outage = Outage::Since(self.now());
        let seen = watcher.join().map_err(|_| anyhow::anyhow!("the watcher panicked"))??;
        attacked?;
        let memory = (MEMORY_MEGABYTES << 20) + BESIDE_BYTES;
        if seen.resident > memory {
            self.findings
                .other(format!("{} bytes resident, of {memory}", seen.resident));
        }
        for failure in seen.failures {
            self.findings
                .other(format!("health was asked {} times: {failure}", seen.asked));
        }
        Ok(outage)
    }
}

/// Checks health on new connections, and the memory.
fn watch(address: SocketAddr, process: u32, is_over: &AtomicBool) -> anyhow::Result<Seen> {
    let mut seen = Seen {
        resident: 0,
        asked: 0,
        failures: Vec::new(),
    };
    while !is_over.load(Ordering::Relaxed) {
        seen.asked += 1;
        let asked =
            Connection::open(address, ANSWER_WAIT).and_then(|mut one| one.ask(&http_client::get("/health/live")));
        match asked {
            Ok(answer) if answer.status == 200 => {}
            Ok(answer) => seen.failures.push(format!("answered {}", answer.status)),
            Err(error) => seen.failures.push(error.to_string()),
        }
        seen.resident = seen.resident.max(resident(process)?);
        thread::sleep(LOOK_EVERY);
    }
    Ok(seen)
}

/// Returns the resident memory of a process (proc(5), `VmRSS` of `status`).
fn resident(process: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).context("the service runs")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes: Option<u64> = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
    Ok(kibibytes.context("/proc/PID/status has an unknown form")? << 10)
}

fn open(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, ANSWER_WAIT)?;
    stream.set_write_timeout(Some(SEND_WAIT))?;
    stream.set_read_timeout(Some(ANSWER_WAIT))?;
    Ok(stream)
}

/// Sends what the service accepts. The service may refuse the rest.
fn send(stream: &mut TcpStream, bytes: &[u8]) {
    let _refused = stream.write_all(bytes);
}

/// Opens a WebSocket.
fn socket(address: SocketAddr) -> anyhow::Result<TcpStream> {
    const HANDSHAKE: &[u8] = b"GET /api/ws HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
        sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\nsec-websocket-protocol: throng.v1\r\n\r\n";
    let mut socket = open(address)?;
    socket.write_all(HANDSHAKE)?;
    let mut first = [0; 12];
    socket.read_exact(&mut first)?;
    ensure!(&first == b"HTTP/1.1 101", "a WebSocket was not opened");
    Ok(socket)
}

/// Returns the head of a frame of this many bytes, masked with zeros.
fn frame(opcode: u8, length: u64) -> Vec<u8> {
    let mut frame = vec![opcode, 0xff];
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(&[0; 4]);
    frame
}

/// Opens WebSockets and sends a message that does not end, in one frame or in fragments.
fn messages(address: SocketAddr, count: usize) -> anyhow::Result<()> {
    const LENGTH: u64 = 1_900_000;
    let mut sockets = Vec::new();
    for number in 0..count {
        let mut socket = socket(address)?;
        // The first fragment is complete. The single frame lacks its last bytes.
        let (opcode, comes) = if number.is_multiple_of(2) {
            (0x81, LENGTH - 1)
        } else {
            (0x01, LENGTH)
        };
        let mut frame = frame(opcode, LENGTH);
        frame.resize(frame.len() + usize::try_from(comes)?, b' ');
        send(&mut socket, &frame);
        sockets.push(socket);
    }
    thread::sleep(HELD);
    Ok(())
}

/// Sends bodies without their last byte.
fn bodies(address: SocketAddr, count: usize) -> anyhow::Result<()> {
    let whole = http_client::post("/api/section/B0/open", None, &" ".repeat(1_000_000));
    let mut clients = Vec::new();
    for _ in 0..count {
        let mut client = open(address)?;
        send(&mut client, &whole[..whole.len() - 1]);
        clients.push(client);
    }
    thread::sleep(HELD);
    Ok(())
}

/// Asks for answers or streams and does not read them.
fn unread(address: SocketAddr, count: usize, field: &str) -> anyhow::Result<()> {
    let mut clients = Vec::new();
    for number in 0..count {
        // Meanwhile the clients of the load extend the section's history.
        let section = number % SECTIONS as usize;
        let request =
            format!("GET /api/section/S{section}/events?limit=1000 HTTP/1.1\r\nhost: localhost\r\n{field}\r\n");
        let mut client = open(address)?;
        send(&mut client, request.as_bytes());
        clients.push(client);
    }
    thread::sleep(HELD);
    Ok(())
}

/// Sends heads of requests without their end.
fn heads(address: SocketAddr, count: usize) -> anyhow::Result<()> {
    let head = format!(
        "GET /health/live HTTP/1.1\r\nhost: localhost\r\nx: {}",
        "x".repeat(12_000)
    );
    let mut clients = Vec::new();
    for _ in 0..count {
        let mut client = open(address)?;
        send(&mut client, head.as_bytes());
        clients.push(client);
    }
    thread::sleep(HELD);
    Ok(())
}

/// Opens WebSockets with the maximum of subscriptions and reads none of them.
fn subscriptions(address: SocketAddr, count: usize) -> anyhow::Result<()> {
    const SUBSCRIPTIONS: usize = 64;
    let subscribe = |id| serde_json::json!({ "type": "subscribe", "id": id, "kind": "section", "after": "start", "credit": 10_000 });
    let all = serde_json::Value::from((0..SUBSCRIPTIONS).map(subscribe).collect::<Vec<_>>()).to_string();
    let mut message = frame(0x81, all.len() as u64);
    message.extend_from_slice(all.as_bytes());
    let mut sockets = Vec::new();
    for _ in 0..count {
        let mut socket = socket(address)?;
        send(&mut socket, &message);
        sockets.push(socket);
    }
    thread::sleep(HELD);
    Ok(())
}

/// Asks for answers of almost a megabyte, many on each connection, and does not read them.
fn answers(address: SocketAddr, count: usize) -> anyhow::Result<()> {
    const ANSWERS: usize = 16;
    commands(address, 1)?;
    let ask = http_client::get("/api/section/C0").repeat(ANSWERS);
    let mut clients = Vec::new();
    for _ in 0..count {
        let mut client = open(address)?;
        send(&mut client, &ask);
        clients.push(client);
    }
    thread::sleep(HELD);
    Ok(())
}

/// Opens streams of HTTP/2 and resets them at once, until the service closes the connection.
fn resets(address: SocketAddr, count: usize) -> anyhow::Result<()> {
    const STREAMS: u32 = 2_000;
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    // `GET`, `http`, `/` of the static table, and `:authority: localhost`.
    const REQUEST: &[u8] = b"\x82\x86\x84\x41\x09localhost";
    let mut frames = PREFACE.to_vec();
    for stream in (1..).step_by(2).take(STREAMS as usize) {
        let stream = u32::to_be_bytes(stream);
        frames.extend_from_slice(&[0, 0, u8::try_from(REQUEST.len())?, 1, 5]);
        frames.extend_from_slice(&stream);
        frames.extend_from_slice(REQUEST);
        frames.extend_from_slice(&[0, 0, 4, 3, 0]);
        frames.extend_from_slice(&stream);
        frames.extend_from_slice(&[0, 0, 0, 8]);
    }
    for _ in 0..count {
        send(&mut open(address)?, &frames);
    }
    Ok(())
}

/// Sends large commands, each to an entity of its own.
fn commands(address: SocketAddr, count: usize) -> anyhow::Result<()> {
    let mut client = Connection::open(address, ANSWER_WAIT)?;
    for number in 0..count {
        let open = http_client::post(&format!("/api/section/C{number}/open"), None, r#"{"capacity":9}"#);
        client.ask(&open)?;
        let student = serde_json::json!({ "student": "x".repeat(900_000) }).to_string();
        client.ask(&http_client::post(
            &format!("/api/section/C{number}/add"),
            None,
            &student,
        ))?;
    }
    Ok(())
}

/// Opens more idle connections than allowed. Each connection beyond the limit must get a refusal.
fn connections(address: SocketAddr, most: usize, more: usize) -> anyhow::Result<()> {
    let mut clients = (0..most + more)
        .map(|_| open(address))
        .collect::<io::Result<Vec<_>>>()?;
    for client in clients.iter_mut().skip(most) {
        let mut first = [0; 12];
        client
            .read_exact(&mut first)
            .context("a refused connection is answered")?;
        ensure!(
            &first == b"HTTP/1.1 503",
            "a refused connection is told that there is no room"
        );
    }
    Ok(())
}
