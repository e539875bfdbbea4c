use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::{Target, TlsOptions};

/// Tells a run from outside to end: it stops giving requests and reports what was done.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// A switch that nobody has thrown.
    pub fn new() -> Self {
        Stop::default()
    }

    /// Ends the run.
    pub fn now(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// True if the run should end.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The flag itself, for a signal handler.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }
}

/// The options of a run. A [`crate::Source`] decides the requests.
#[derive(Debug, Clone)]
pub struct Options {
    /// The target of the requests.
    pub target: Target,
    /// Connections over all workers at most, 1 to 65,535.
    pub connections: usize,
    /// The connections that are made before the clock starts; each further one is made when a request is due and none is free.
    pub connections_ahead: usize,
    /// Requests in flight on one connection of HTTP/1.1; above 1 is pipelining.
    pub pipeline: usize,
    /// Speaks HTTP/2, with so many streams (requests in flight) on one connection at most, 1 to 1,024, and no more than
    /// the target allows. `https` targets are asked for it in the handshake (ALPN), `http` ones are known to speak it.
    pub http2: Option<usize>,
    /// No new request after this time; `None`: until the sources are done.
    pub duration: Option<Duration>,
    /// The longest time of a request, from being given to a connection to its whole answer.
    pub request_timeout: Duration,
    /// The longest time for making a connection.
    pub connect_timeout: Duration,
    /// The time for which answers are waited for after the end. At most the request timeout makes sense.
    pub drain: Duration,
    /// Uses a connection again after an answer.
    pub keep_alive: bool,
    /// Names for [`crate::Shot::class`].
    pub classes: Vec<String>,
    /// The file that gets a CSV line for each request.
    pub log: Option<PathBuf>,
    /// Ends the run early.
    pub stop: Stop,
    /// The options of `https` targets.
    pub tls: TlsOptions,
}

impl Options {
    /// The defaults: 64 connections, all made ahead, no pipelining, 10 s a request, 1 s to connect.
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

/// Makes sure that this process may open so many connections: raises its soft limit as far as
/// needed, and names the limit and the remedy where that is not enough.
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
