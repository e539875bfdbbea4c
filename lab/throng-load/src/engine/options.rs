use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::{Target, TlsOptions};

/// Ends a run from outside. The run then sends no new requests and reports its results.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Returns a switch that is off.
    pub fn new() -> Self {
        Stop::default()
    }

    /// Ends the run.
    pub fn now(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns true if the run should end.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns the flag itself, for a signal handler.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }
}

/// The options of a run. A [`crate::Source`] chooses the requests.
#[derive(Debug, Clone)]
pub struct Options {
    /// The target of the requests.
    pub target: Target,
    /// The most connections of all workers together, 1 to 65,535.
    pub connections: usize,
    /// The connections that are made before the clock starts. Further ones are made when a request is due and no connection is free.
    pub connections_ahead: usize,
    /// The requests in flight on one connection of HTTP/1.1; more than 1 is pipelining.
    pub pipeline: usize,
    /// The most streams (requests in flight) on one connection of HTTP/2, 1 to 1,024, as far as the target allows. `None` is HTTP/1.1. HTTP/2 is
    /// negotiated with `https` targets in the handshake (ALPN), and assumed of `http` ones.
    pub http2: Option<usize>,
    /// The time after which no new request is sent; `None` lasts until the sources are done.
    pub duration: Option<Duration>,
    /// The longest time of a request, from its connection's assignment to the end of its answer.
    pub request_timeout: Duration,
    /// The longest time for making a connection.
    pub connect_timeout: Duration,
    /// The longest wait for answers after the end. More than the request timeout makes no sense.
    pub drain: Duration,
    /// True if a connection is used again after an answer.
    pub keep_alive: bool,
    /// The names for [`crate::Shot::class`].
    pub classes: Vec<String>,
    /// The file that gets a CSV line for each request.
    pub log: Option<PathBuf>,
    /// Ends the run early.
    pub stop: Stop,
    /// The options of `https` targets.
    pub tls: TlsOptions,
}

impl Options {
    /// Returns the defaults: 64 connections, all made ahead, no pipelining, 10 s for a request, 1 s to connect.
    pub fn new(target: Target) -> Self {
        Options {
            target,
            connections: 64,
            connections_ahead: usize::MAX,
            pipeline: 1,
            http2: None,
            duration: None,
            request_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(1),
            drain: Duration::from_secs(10),
            keep_alive: true,
            classes: vec!["request".to_string()],
            log: None,
            stop: Stop::new(),
            tls: TlsOptions::default(),
        }
    }

    pub(crate) fn check(&self, workers: usize) -> Result<()> {
        if !(1..=65_535).contains(&self.connections) {
            return Err(Error::Option(format!(
                "{} connections: give 1 to 65535",
                self.connections
            )));
        }
        if self.connections < workers {
            return Err(Error::Option(format!(
                "{} connections cannot be shared by {workers} threads: give at least one each",
                self.connections
            )));
        }
        if !(1..=1024).contains(&self.pipeline) {
            return Err(Error::Option(format!(
                "a pipeline of {}: give 1 to 1024",
                self.pipeline
            )));
        }
        if let Some(streams) = self.http2 {
            if !(1..=1024).contains(&streams) {
                return Err(Error::Option(format!("{streams} streams a connection: give 1 to 1024")));
            }
            if self.pipeline > 1 || !self.keep_alive {
                return Err(Error::Option(
                    "HTTP/2 has streams and keeps its connections: pipelining and connections for one request each are of HTTP/1.1".into(),
                ));
            }
        }
        file_descriptors_for(self.connections)
    }
}

/// Ensures that this process may open this many connections. Raises its soft limit as far as needed.
///
/// # Errors
/// [`Error::FileDescriptors`](crate::Error::FileDescriptors) names the limit and the remedy if that is not enough.
pub fn file_descriptors_for(connections: usize) -> Result<()> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let needed = connections as u64 + 64;
    let mut limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.unwrap_or(u64::MAX);
    if hard < needed {
        return Err(Error::FileDescriptors {
            wanted: connections,
            needed,
            limit: hard,
        });
    }
    let soft = limit.current.unwrap_or(u64::MAX);
    if soft < needed {
        limit.current = Some(needed);
        if setrlimit(Resource::Nofile, limit).is_err() {
            return Err(Error::FileDescriptors {
                wanted: connections,
                needed,
                limit: soft,
            });
        }
    }
    Ok(())
}
