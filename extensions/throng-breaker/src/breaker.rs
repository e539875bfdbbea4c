//! A breaker that many callers share.

use crate::{Circuit, CircuitState, Outcome, Permit, Settings};
use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// A circuit breaker for the calls to one server. Clones share its state.
#[derive(Clone)]
pub struct Breaker {
    inner: Arc<Inner>,
}

struct Inner {
    name: &'static str,
    begun: Instant,
    circuit: Mutex<Circuit>,
    /// 0 closed, 1 half-open, 2 open.
    state: Gauge,
    openings: Counter,
    refused: Counter,
}

/// A call was refused, because recent calls failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The time after which another call may succeed.
    pub retry_after: Duration,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.retry_after.as_secs_f64();
        write!(f, "too many calls have failed; ask again in {seconds:.1} s")
    }
}

impl std::error::Error for Refused {}

impl Breaker {
    /// Returns a closed breaker without metrics. The name is that of the server, for logs.
    #[must_use]
    pub fn new(name: &'static str, settings: Settings) -> Self {
        Breakers::default().breaker(name, settings)
    }

    /// Returns the present treatment of calls.
    #[must_use]
    pub fn state(&self) -> CircuitState {
        self.with(|circuit, _| circuit.state())
    }

    /// Asks to make a call. A [`Call`] dropped without a result counts as abandoned.
    ///
    /// # Errors
    /// [`Refused`]: the call must not be made.
    pub fn enter(&self) -> Result<Call, Refused> {
        match self.with(Circuit::ask) {
            Ok(permit) => Ok(Call {
                breaker: self.clone(),
                permit: Some(permit),
            }),
            Err(retry_after) => {
                self.inner.refused.inc();
                Err(Refused { retry_after })
            }
        }
    }

    /// Closes the breaker: the caller knows that the server is well, for example because it just connected.
    pub fn close(&self) {
        self.with(Circuit::close);
    }

    fn with<R>(&self, change: impl FnOnce(&mut Circuit, Duration) -> R) -> R {
        let Inner { name, .. } = *self.inner;
        let mut circuit = self.inner.circuit.lock().unwrap_or_else(PoisonError::into_inner);
        let before = circuit.state();
        let changed = change(&mut circuit, self.inner.begun.elapsed());
        let after = circuit.state();
        drop(circuit);
        if before != after {
            self.inner.state.set(match after {
                CircuitState::Closed => 0,
                CircuitState::HalfOpen => 1,
                CircuitState::Open => 2,
            });
            if after == CircuitState::Open {
                self.inner.openings.inc();
            }
            tracing::info!(
                "calls to {name}: {}",
                match after {
                    CircuitState::Closed => "well again, all pass",
                    CircuitState::HalfOpen => "probing",
                    CircuitState::Open => "too many have failed, refused for now",
                }
            );
        }
        changed
    }
}

type Labels = [(&'static str, &'static str); 1];

/// The breakers of a process, whose metrics are shown together: `breaker_state` (0 closed, 1 half-open, 2 open), `breaker_openings` and
/// `breaker_refused`, each with the label `breaker`.
#[derive(Clone, Debug, Default)]
pub struct Breakers {
    states: Family<Labels, Gauge>,
    openings: Family<Labels, Counter>,
    refused: Family<Labels, Counter>,
}

impl Breakers {
    /// Returns a closed breaker. The name is that of the server, for metrics and logs.
    #[must_use]
    pub fn breaker(&self, name: &'static str, settings: Settings) -> Breaker {
        let labels = [("breaker", name)];
        Breaker {
            inner: Arc::new(Inner {
                name,
                begun: Instant::now(),
                circuit: Mutex::new(Circuit::new(settings)),
                state: self.states.get_or_create_owned(&labels),
                openings: self.openings.get_or_create_owned(&labels),
                refused: self.refused.get_or_create_owned(&labels),
            }),
        }
    }

    /// Registers the metrics of these breakers, including those made later.
    pub fn register(&self, registry: &mut Registry) {
        let (states, openings, refused) = (self.states.clone(), self.openings.clone(), self.refused.clone());
        registry.register(
            "breaker_state",
            "0: calls pass; 1: a few pass as probes; 2: none passes",
            states,
        );
        registry.register("breaker_openings", "Times a breaker has opened", openings);
        registry.register(
            "breaker_refused",
            "Calls that were not made since the last ones failed",
            refused,
        );
    }
}

impl fmt::Debug for Breaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Breaker")
            .field("name", &self.inner.name)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

/// A call under way.
#[must_use = "how the call ended has to be told"]
#[derive(Debug)]
pub struct Call {
    breaker: Breaker,
    permit: Option<Permit>,
}

impl Call {
    /// Records that the server did its work, whatever the answer.
    pub fn succeeded(mut self) {
        self.end(Outcome::Succeeded);
    }

    /// Records that the server cannot be reached, or is in trouble.
    pub fn failed(mut self) {
        self.end(Outcome::Failed);
    }

    fn end(&mut self, outcome: Outcome) {
        if let Some(permit) = self.permit.take() {
            self.breaker.with(|circuit, now| circuit.end(now, permit, outcome));
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.end(Outcome::Abandoned);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_show_every_breaker_by_its_name() {
        let breakers = Breakers::default();
        let settings = Settings {
            calls_min: 1,
            ..Settings::default()
        };
        let (broker, _redis) = (
            breakers.breaker("broker", settings),
            breakers.breaker("redis", settings),
        );
        let mut registry = Registry::default();
        breakers.register(&mut registry);
        broker.enter().unwrap().failed();
        assert!(broker.enter().is_err());
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            r#"breaker_state{breaker="broker"} 2"#,
            r#"breaker_state{breaker="redis"} 0"#,
            r#"breaker_openings_total{breaker="broker"} 1"#,
            r#"breaker_refused_total{breaker="broker"} 1"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }
}
