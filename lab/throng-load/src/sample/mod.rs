//! Series of the target, sampled once a second during a run.

mod fetch;
mod metrics;
mod process;
mod rabbitmq;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Doing as _, Result};
use crate::report::Samples;

pub use fetch::Address;
pub use process::Usage;

const EVERY: Duration = Duration::from_secs(1);
/// The most series of one run. Further ones are left out.
const SERIES_MAX: usize = 48;
const POINTS_MAX: usize = 100_000;

/// A value to sample.
#[derive(Debug, Clone)]
pub enum Probe {
    /// CPU and memory of a process on this machine.
    Process {
        /// The process id.
        pid: u32,
    },
    /// Chosen series of a page: Prometheus text by name, or JSON by pointer (`/queue_totals/messages`).
    Metrics {
        /// The address of the page.
        address: Address,
        /// The names (`http_requests_total`) or pointers. Each label set is a series, and counters become rates.
        series: Vec<String>,
    },
    /// The depth and the message rates of every queue of a RabbitMQ broker, from its management API.
    RabbitMq {
        /// The management API, for example `http://guest:guest@127.0.0.1:15672`.
        address: Address,
    },
}

/// A value read from a probe.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reading {
    pub(crate) name: String,
    /// The unit of the value, or of its rate.
    pub(crate) unit: &'static str,
    pub(crate) value: f64,
    /// True if it only grows, so that its rate is shown.
    pub(crate) counter: bool,
}

/// Samples the probes on a thread of its own until it is finished.
#[derive(Debug)]
pub struct Sampler {
    gathered: Arc<Mutex<Gathered>>,
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Gathered {
    series: Vec<Samples>,
    /// The last value and time of counters, by index in `series`.
    last: Vec<Option<(f64, f64)>>,
    failures: Vec<String>,
}

impl Sampler {
    /// Starts to sample the probes on a thread of its own.
    pub fn start(probes: Vec<Probe>) -> Result<Self> {
        let gathered = Arc::new(Mutex::new(Gathered::default()));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = if probes.is_empty() {
            None
        } else {
            let (gathered, stop) = (gathered.clone(), stop.clone());
            let work = move || sample(&probes, &gathered, &stop);
            Some(
                thread::Builder::new()
                    .name("sampler".into())
                    .spawn(work)
                    .doing(|| "start the sampling thread".into())?,
            )
        };
        Ok(Sampler { gathered, stop, thread })
    }

    /// Stops and returns the series, and the errors of probes.
    pub fn finish(mut self) -> (Vec<Samples>, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        let mut series = std::mem::take(&mut gathered.series);
        series.retain(|series| !series.points.is_empty());
        (series, std::mem::take(&mut gathered.failures))
    }
}

fn sample(probes: &[Probe], gathered: &Mutex<Gathered>, stop: &AtomicBool) {
    let start = Instant::now();
    let mut next = start;
    // For each probe that could be read, the series that never appeared, perhaps because of a typing error.
    let mut missing: Vec<Option<Vec<&str>>> = vec![None; probes.len()];
    while !stop.load(Ordering::Relaxed) {
        for (probe, missing) in probes.iter().zip(&mut missing) {
            let read = probe.read();
            if let Ok(readings) = &read {
                let names = || readings.iter().map(|reading| &reading.name);
                let missing = missing.get_or_insert_with(|| probe.wanted());
                missing.retain(|wanted| !names().any(|name| metrics::is_chosen(name, wanted)));
            }
            let at = start.elapsed().as_secs_f64();
            let mut gathered = gathered.lock().unwrap_or_else(PoisonError::into_inner);
            match read {
                Ok(readings) => readings.into_iter().for_each(|reading| gathered.add(at, reading)),
                Err(reason) if !gathered.failures.contains(&reason) && gathered.failures.len() < 8 => {
                    gathered.failures.push(reason);
                }
                Err(_) => {}
            }
        }
        next += EVERY;
        while !stop.load(Ordering::Relaxed) && Instant::now() < next {
            thread::park_timeout(next.saturating_duration_since(Instant::now()));
        }
    }
    let mut gathered = gathered.lock().unwrap_or_else(PoisonError::into_inner);
    for name in missing.into_iter().flatten().flatten() {
        gathered.failures.push(format!("nothing to sample is called {name}"));
    }
}

impl Probe {
    fn wanted(&self) -> Vec<&str> {
        match self {
            Probe::Metrics { series, .. } => series.iter().map(String::as_str).collect(),
            Probe::Process { .. } | Probe::RabbitMq { .. } => Vec::new(),
        }
    }

    fn read(&self) -> std::result::Result<Vec<Reading>, String> {
        match self {
            Probe::Process { pid } => process::read(*pid),
            Probe::Metrics { address, series } => metrics::read(&address.get("")?, series),
            Probe::RabbitMq { address } => rabbitmq::read(&address.get("/api/queues")?),
        }
    }
}

impl Gathered {
    fn add(&mut self, at: f64, reading: Reading) {
        let place = match self.series.iter().position(|series| series.name == reading.name) {
            Some(place) => place,
            None if self.series.len() >= SERIES_MAX => return,
            None => {
                self.series.push(Samples {
                    name: reading.name,
                    unit: reading.unit.to_string(),
                    points: Vec::new(),
                });
                self.last.push(None);
                self.series.len() - 1
            }
        };
        let value = if reading.counter {
            match self.last[place].replace((at, reading.value)) {
                Some((before, value)) if at > before => (reading.value - value).max(0.0) / (at - before),
                _ => return,
            }
        } else {
            reading.value
        };
        let points = &mut self.series[place].points;
        if points.len() < POINTS_MAX && value.is_finite() {
            points.push((at, value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_become_rates_and_gauges_stay() {
        let mut gathered = Gathered::default();
        for (at, value) in [(0.0, 100.0), (1.0, 150.0), (3.0, 150.0), (4.0, 7.0)] {
            gathered.add(
                at,
                Reading {
                    name: "c".into(),
                    unit: "",
                    value,
                    counter: true,
                },
            );
            gathered.add(
                at,
                Reading {
                    name: "g".into(),
                    unit: "",
                    value,
                    counter: false,
                },
            );
        }
        assert_eq!(gathered.series[0].points, [(1.0, 50.0), (3.0, 0.0), (4.0, 0.0)]);
        assert_eq!(gathered.series[1].points[3], (4.0, 7.0));
    }

    #[test]
    fn this_process_can_be_sampled() {
        let readings = process::read(std::process::id()).unwrap();
        assert!(
            readings
                .iter()
                .any(|reading| reading.name.contains("memory") && reading.value > 0.0)
        );
    }

    #[test]
    fn a_process_that_is_not_there_is_named() {
        assert!(process::read(u32::MAX).unwrap_err().contains("4294967295"));
    }
}
