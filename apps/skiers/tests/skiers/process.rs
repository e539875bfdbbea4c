//! The service as processes, asked over HTTP.

use serde_json::Value;
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// A test that hangs fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
pub(crate) const JSON: &str = "content-type: application/json\r\n";

/// A process of the service; it ends with this.
pub(crate) struct Process {
    child: Child,
    pub(crate) address: SocketAddr,
}

/// The service in a role, not yet started.
pub(crate) fn command(role: &str, address: SocketAddr, directory: &Path, variables: &[(&str, String)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_skiers"));
    command
        .args(["serve", "--role", role, "--listen", &address.to_string(), "--data"])
        .arg(directory)
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null());
    command
}

impl Process {
    pub(crate) fn start(role: &str, address: SocketAddr, directory: &Path, variables: &[(&str, String)]) -> Self {
        let mut child = command(role, address, directory, variables)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert!(line.starts_with("http://"), "the {role} did not start");
        Self { child, address }
    }
}

impl Process {
    pub(crate) fn kill(&mut self) {
        // Both fail only for a process that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(crate) fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Makes one request on a connection of its own; an error is the connection's.
pub(crate) fn ask(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> std::io::Result<(u16, String, String)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(std::io::ErrorKind::UnexpectedEof)?;
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or(0);
    Ok((status, head.to_ascii_lowercase(), body.to_owned()))
}

/// Waits for a query's answer.
pub(crate) fn get(address: SocketAddr, path: &str) -> Value {
    let begun = Instant::now();
    loop {
        match ask(address, "GET", path, "", "") {
            Ok((200, head, body)) => {
                // A body that is passed on may come in chunks.
                let body = if head.contains("transfer-encoding: chunked") {
                    unchunked(&body)
                } else {
                    body
                };
                return serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"));
            }
            other => assert!(begun.elapsed() < PATIENCE, "{path}: {other:?}"),
        }
        thread::sleep(Duration::from_millis(50));
    }
}

pub(crate) fn unchunked(body: &str) -> String {
    let (mut rest, mut whole) = (body, String::new());
    while let Some((length, after)) = rest.split_once("\r\n") {
        let length = usize::from_str_radix(length.trim(), 16).unwrap();
        whole.push_str(&after[..length]);
        rest = after.get(length + 2..).unwrap_or_default();
    }
    whole
}

pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The check of a service's readiness, and whether it is ready for all of them.
pub(crate) fn check(address: SocketAddr, name: &str) -> Option<(u16, Value)> {
    let (status, _, body) = ask(address, "GET", "/health/ready", "", "").ok()?;
    let body: Value = serde_json::from_str(&body).ok()?;
    let checks = body["checks"].as_array()?;
    let check = checks.iter().find(|check| check["name"] == name)?;
    Some((status, check.clone()))
}
