//! Requests to a service over many connections, by the load lab's inner loop.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use throng_load::{Aftermath, Options, OrderedReplay, Outcome, Report, Target, Trace, Verdict, run_watched};

use crate::progress::Progress;

/// The most times that a request is sent again after a 503.
const TRIES_MAX: u8 = 100;
const PAUSE: Duration = Duration::from_millis(100);

/// A service, and how many connections to it.
pub struct Client {
    address: SocketAddr,
    options: Options,
}

impl Client {
    /// Returns a client of the service at this address, with this number of connections.
    ///
    /// # Errors
    /// The address cannot be resolved.
    pub fn new(address: SocketAddr, connections: usize) -> anyhow::Result<Self> {
        let target = Target::resolve(&format!("http://{address}"), false)?;
        let mut options = Options::new(target);
        options.connections = connections;
        options.request_timeout = Duration::from_secs(30);
        options.drain = options.request_timeout;
        Ok(Self { address, options })
    }

    /// Returns the address of the service.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The `Host` of requests.
    pub fn authority(&self) -> &str {
        &self.options.target.authority
    }

    /// Sends all requests of a trace and passes each answer to `look`, which tells whether it is right.
    ///
    /// Requests of one key are sent one after the other, each after the previous answer. A request answered by 503 (nothing was done) is
    /// sent again after a pause. So is one answered by 504 (the outcome is unknown), if it is a `GET` or has an idempotency key. `speed` is
    /// a multiple of the recorded speed; 0 is as fast as possible.
    pub fn send(
        &self,
        trace: Arc<Trace>,
        speed: f64,
        progress: Option<Progress>,
        mut look: impl FnMut(usize, &Outcome<'_>) -> bool + Send,
    ) -> anyhow::Result<Report> {
        let done = AtomicU64::new(0);
        let mut tries = vec![0_u8; trace.len()];
        let total = trace.len();
        let sent = Arc::clone(&trace);
        let judge = |index: usize, outcome: &Outcome<'_>| {
            let is_open = match outcome.status() {
                503 => true,
                504 => takes_effect_once(sent.bytes(index)),
                _ => false,
            };
            if is_open && tries[index] < TRIES_MAX {
                tries[index] += 1;
                return Aftermath::Again(PAUSE);
            }
            done.fetch_add(1, Ordering::Relaxed);
            Aftermath::Done(if look(index, outcome) {
                Verdict::Success
            } else {
                Verdict::CheckFailed
            })
        };
        let replay = OrderedReplay::new(trace, judge).speed(speed).look_ahead(total);
        let mut options = self.options.clone();
        options.connections = options.connections.min(total).max(1);
        let mut progress = progress;
        let run = run_watched(&options, vec![replay], |_| {
            if let Some(progress) = &mut progress {
                progress.show(done.load(Ordering::Relaxed));
            }
        })?;
        Ok(run.report)
    }
}

/// Tells whether a request that is sent twice takes effect once: a `GET`, or one with an idempotency key.
fn takes_effect_once(request: &[u8]) -> bool {
    let head = request.windows(4).position(|end| end == b"\r\n\r\n");
    let head = String::from_utf8_lossy(&request[..head.unwrap_or(request.len())]);
    let mut lines = head.lines();
    lines.next().is_some_and(|line| line.starts_with("GET "))
        || lines.any(|line| {
            line.split_once(':')
                .is_some_and(|(name, _)| name.eq_ignore_ascii_case("idempotency-key"))
        })
}

#[cfg(test)]
mod tests {
    use super::takes_effect_once;

    #[test]
    fn requests_without_key_are_not_sent_twice() {
        assert!(takes_effect_once(b"GET /a HTTP/1.1\r\nHost: b\r\n\r\n"));
        assert!(takes_effect_once(b"POST /a HTTP/1.1\r\nidempotency-key: b\r\n\r\n{}"));
        assert!(!takes_effect_once(
            b"POST /a HTTP/1.1\r\nHost: b\r\n\r\nidempotency-key: c\r\n"
        ));
    }
}
