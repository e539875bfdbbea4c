//! The report of a run: for people, for machines, for a browser.

mod cost;
mod csv;
mod distribution;
pub mod html;
mod machine;
mod text;
pub mod units;

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

pub use cost::Cost;
pub(crate) use csv::field as csv_field;
pub use csv::seconds_csv;
pub use distribution::{Summary, curve};
pub use machine::Machine;
pub use text::text;
pub(crate) use units::{bytes, count, nanos};

use crate::Options;
use crate::measure::{
    Counters, Examples, GeneratorUsage, Latencies, Outlier, Sample, Second, Series, examples, latencies,
};

/// The numbers of a finished run. They are serialised to the JSON that `compare` reads.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// Version of this format.
    pub format: u32,
    /// The subject of the run, in a few words.
    pub title: String,
    /// URL of the target.
    pub target: String,
    /// The settings, in words.
    pub settings: BTreeMap<String, String>,
    /// Start, in milliseconds since 1970.
    pub started_unix_millis: u64,
    /// The time from the start to the last answer.
    pub elapsed_nanos: u64,
    /// The reason of its end.
    pub ended: String,
    /// The outcomes of all measured requests, by kind.
    pub counters: Counters,
    /// Time from the intended start to the whole answer.
    #[serde(with = "distribution")]
    pub response: Latencies,
    /// Time from sending to the whole answer.
    #[serde(with = "distribution")]
    pub service: Latencies,
    /// The figures by class (phase and request of a plan).
    pub classes: Vec<ClassReport>,
    /// The series of seconds.
    pub seconds: Vec<Second>,
    /// The slowest requests of each second.
    pub outliers: Vec<Outlier>,
    /// Every n-th request, one by one.
    #[serde(default)]
    pub requests: Sample,
    /// True if requests had an intended start (open model).
    pub open_model: bool,
    /// The requested rate of an open model with a constant rate, in requests a second.
    pub wanted_rate: Option<f64>,
    /// Requests that were due and never sent.
    pub unsent: u64,
    /// The lateness of requests when they were sent.
    #[serde(with = "distribution")]
    pub lateness: Latencies,
    /// The part of the lateness that the generator itself caused.
    #[serde(with = "distribution")]
    pub own_delay: Latencies,
    /// The cost of the generator.
    pub generator: GeneratorUsage,
    /// All connections that were made, including replacements of lost ones.
    pub connections_opened: u64,
    /// Sampled series: of the target's process, its metrics, its broker.
    pub samples: Vec<Samples>,
    /// The plan's text, if there was one.
    pub plan: Option<String>,
    /// The machine it ran on.
    pub machine: Machine,
    /// The facts that a reader must know before believing the numbers.
    pub warnings: Vec<String>,
}

/// A class of requests.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClassReport {
    /// The class's name in the plan.
    pub name: String,
    /// The outcomes of its requests, by kind.
    pub counters: Counters,
    /// The first body of each status of its answers that failed.
    #[serde(default)]
    pub examples: Examples,
    /// Its response times.
    #[serde(with = "distribution")]
    pub response: Latencies,
    /// Its service times.
    #[serde(with = "distribution")]
    pub service: Latencies,
}

/// A series that was sampled during the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Samples {
    /// The name of the sampled value.
    pub name: String,
    /// Its unit, for the axis.
    pub unit: String,
    /// The points: seconds since the start, and value.
    pub points: Vec<(f64, f64)>,
}

impl ClassReport {
    /// Returns an empty class.
    pub fn new(name: &str) -> Self {
        ClassReport {
            name: name.to_string(),
            counters: Counters::default(),
            examples: Examples::new(),
            response: latencies(),
            service: latencies(),
        }
    }
}

/// Returns the outcomes, response times and service times of all classes together.
fn sums(classes: &[ClassReport]) -> (Counters, Latencies, Latencies) {
    let mut counters = Counters::default();
    let (mut response, mut service) = (latencies(), latencies());
    for class in classes {
        counters.add(&class.counters);
        for (all, one) in [(&mut response, &class.response), (&mut service, &class.service)] {
            all.add(one).expect("all our histograms have one shape");
        }
    }
    (counters, response, service)
}

impl Report {
    pub(crate) fn new(
        options: &Options,
        started_at: SystemTime,
        elapsed_nanos: u64,
        ended: &str,
        mut classes: Vec<ClassReport>,
        mut series: Series,
    ) -> Self {
        let (counters, response, service) = sums(&classes);
        classes.retain(|class| class.counters.attempts() > 0);
        series.outliers.sort_by_key(|outlier| outlier.at_nanos);
        let (protocol, at_once) = match options.http2 {
            Some(streams) => ("HTTP/2", ("streams", streams)),
            None => ("HTTP/1.1", ("pipeline", options.pipeline)),
        };
        let settings = [
            ("connections", options.connections.to_string()),
            ("protocol", protocol.to_string()),
            (at_once.0, at_once.1.to_string()),
            ("request timeout", format!("{:?}", options.request_timeout)),
            ("keep-alive", options.keep_alive.to_string()),
        ];
        Report {
            format: 1,
            title: options.target.url(),
            target: options.target.url(),
            settings: settings
                .into_iter()
                .map(|(name, value)| (name.to_string(), value))
                .collect(),
            started_unix_millis: started_at
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_millis() as u64),
            elapsed_nanos,
            ended: ended.to_string(),
            counters,
            response,
            service,
            classes,
            seconds: series.seconds,
            outliers: series.outliers,
            requests: Sample::default(),
            open_model: false,
            wanted_rate: None,
            unsent: 0,
            lateness: latencies(),
            own_delay: latencies(),
            generator: GeneratorUsage::default(),
            connections_opened: 0,
            samples: Vec::new(),
            plan: None,
            machine: Machine::here(),
            warnings: Vec::new(),
        }
    }

    /// Reads a report that was saved as JSON. `name` is the file's, for errors.
    pub fn from_json(text: &str, name: &str) -> crate::Result<Self> {
        serde_json::from_str(text).map_err(|error| crate::Error::Plan {
            file: name.to_string(),
            reason: format!("it is no saved run: {error}"),
        })
    }

    pub(crate) fn with_generator(
        mut self,
        generator: GeneratorUsage,
        lateness: Latencies,
        own_delay: Latencies,
        connections_opened: u64,
        unsent: u64,
    ) -> Self {
        self.open_model = !lateness.is_empty() || unsent > 0;
        self.generator = generator;
        self.lateness = lateness;
        self.own_delay = own_delay;
        self.connections_opened = connections_opened;
        self.unsent = unsent;
        self.find_warnings();
        self
    }

    /// Names the run.
    pub fn titled(mut self, title: impl Into<String>) -> Self {
        self.title = title.into();
        self
    }

    /// Adds a setting.
    pub fn setting(mut self, name: &str, value: impl ToString) -> Self {
        self.settings.insert(name.to_string(), value.to_string());
        self
    }

    /// Returns the time from the start to the last answer.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.elapsed_nanos)
    }

    /// Returns the successes a second.
    pub fn throughput(&self) -> f64 {
        if self.elapsed_nanos == 0 {
            0.0
        } else {
            self.counters.successes as f64 / self.elapsed().as_secs_f64()
        }
    }

    /// Returns the report of these classes only, for the time in which they ran.
    pub(crate) fn of_classes(&self, is_one: impl Fn(&str) -> bool, took: Duration) -> Self {
        let mut report = self.clone();
        report.classes.retain(|class| is_one(&class.name));
        report.elapsed_nanos = took.as_nanos() as u64;
        (report.counters, report.response, report.service) = sums(&report.classes);
        report
    }

    /// Returns the CPU time of the generator for a request, in nanoseconds.
    pub fn cpu_nanos_per_request(&self) -> f64 {
        self.generator.cpu_nanos as f64 / self.counters.attempts().max(1) as f64
    }

    /// Collects the reasons to doubt the numbers.
    fn find_warnings(&mut self) {
        if self.unsent > 0 {
            self.warnings.push(format!(
                "THE RATE WAS NOT KEPT: {} due and never sent; response times cover only those that were",
                units::requests(self.unsent)
            ));
        }
        let late = self.lateness.value_at_quantile(0.99);
        let own = self.own_delay.value_at_quantile(0.99);
        if late > 10_000_000 && late > own.saturating_mul(4) {
            self.warnings.push(format!(
                "requests waited for a free connection (p99 {}): the target is slower than the rate, or --connections is too small; response time includes this wait",
                nanos(late)
            ));
        }
        if own > 5_000_000 {
            self.warnings.push(format!(
                "THE GENERATOR WAS LATE BY ITSELF (p99 {}): it had a connection and no CPU; use fewer requests a second, more cores or another machine",
                nanos(own)
            ));
        }
        if self.generator.busiest_share > 0.9 {
            self.warnings.push(format!(
                "a generator thread used {:.0} % of a core: the client may be the limit; try --threads {}",
                self.generator.busiest_share * 100.0,
                self.generator.threads + 1
            ));
        }
        let starved =
            self.generator.run_delay_nanos as f64 / (self.elapsed_nanos.max(1) * self.generator.threads.max(1)) as f64;
        if starved > 0.1 {
            self.warnings.push(format!(
                "the generator waited {:.0} % of the time for a core: client and server share too few of them",
                starved * 100.0
            ));
        }
        if self.counters.failure_share() > 0.01 {
            self.warnings.push(format!(
                "{:.2} % of the requests failed",
                self.counters.failure_share() * 100.0
            ));
        }
    }

    /// Adds another run of the same kind, as if it had followed this one.
    pub fn absorb(&mut self, other: &Report) {
        let begin = self.seconds.last().map_or(0, |last| last.second + 1);
        self.elapsed_nanos += other.elapsed_nanos;
        self.counters.add(&other.counters);
        add(&mut self.response, &other.response);
        add(&mut self.service, &other.service);
        add(&mut self.lateness, &other.lateness);
        add(&mut self.own_delay, &other.own_delay);
        for class in &other.classes {
            match self.classes.iter_mut().find(|known| known.name == class.name) {
                Some(known) => {
                    known.counters.add(&class.counters);
                    examples::add(&mut known.examples, &class.examples);
                    add(&mut known.response, &class.response);
                    add(&mut known.service, &class.service);
                }
                None => self.classes.push(class.clone()),
            }
        }
        self.seconds.extend(other.seconds.iter().map(|second| Second {
            second: second.second + begin,
            ..second.clone()
        }));
        let later = |outlier: &Outlier| Outlier {
            at_nanos: outlier.at_nanos + begin * 1_000_000_000,
            ..*outlier
        };
        self.outliers.extend(other.outliers.iter().map(later));
        self.requests = other.requests.clone();
        self.unsent += other.unsent;
        self.generator.cpu_nanos += other.generator.cpu_nanos;
        self.generator.run_delay_nanos += other.generator.run_delay_nanos;
        self.generator.busiest_share = self.generator.busiest_share.max(other.generator.busiest_share);
        self.connections_opened += other.connections_opened;
        self.warnings.clear();
        self.find_warnings();
    }

    /// Returns the report as JSON, for machines and for `compare`.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a report has only string keys and finite numbers")
    }
}

fn add(into: &mut Latencies, other: &Latencies) {
    into.add(other).expect("all our histograms have one shape");
}
