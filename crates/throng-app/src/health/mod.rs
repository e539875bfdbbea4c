//! The command `health`, for containers that have no other program to ask a service with; and the supervisor of a service.

pub(crate) mod supervisor;

use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::Value;
use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    process::ExitCode,
    time::Duration,
};

use crate::security::address;

/// The route that says whether the process answers.
pub(crate) const LIVE: &str = "/health/live";
/// The route that says whether commands are taken.
const READY: &str = "/health/ready";
/// The longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest answer that is read.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// A service to be asked.
#[derive(Debug, Args)]
pub struct HealthArguments {
    /// The service's listener for administration, or its own where that has no TLS.
    #[arg(value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9080", value_parser = address)]
    address: SocketAddr,
    /// Ask whether the process answers at all, not whether it takes commands: for restarts.
    #[arg(long)]
    live: bool,
}

impl HealthArguments {
    /// Asks once. The exit code is 0 if the service is well.
    ///
    /// # Errors
    /// There is no answer, or the service is not ready.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let (path, word) = if self.live { (LIVE, "live") } else { (READY, "ready") };
        ask(self.address, path, PATIENCE)?;
        // Writing fails if the reader has gone away, which is no error here.
        let _ = writeln!(std::io::stdout(), "{word}");
        Ok(ExitCode::SUCCESS)
    }
}

/// Asks for a route of health, and returns the answer's body.
///
/// # Errors
/// There is no answer within `patience`, or it is another than 200.
pub(crate) fn ask(address: SocketAddr, path: &str, patience: Duration) -> anyhow::Result<String> {
    let mut stream =
        TcpStream::connect_timeout(&address, patience).with_context(|| format!("cannot reach {address}"))?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    let read = stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer);
    read.with_context(|| format!("{address} does not answer {path}"))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    if head.split(' ').nth(1) != Some("200") {
        let said: Value = serde_json::from_str(body).unwrap_or_default();
        let reason = said["reason"].as_str().or(said["detail"].as_str());
        bail!(
            "{address} says: {}",
            reason.or(head.lines().next()).unwrap_or("nothing")
        );
    }
    Ok(body.to_owned())
}
