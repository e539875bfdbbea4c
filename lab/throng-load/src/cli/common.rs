//! The arguments of all commands that drive load.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;

use super::values;
use crate::plan::SampleShape;
use crate::report::html;
use crate::sample::{Address, Probe, Sampler, Usage};
use crate::{Error, Options, Report, Stop, Target, report};

/// The options of every command.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Connections over all threads [default: 64, or as the plan says].
    #[arg(long, short = 'c')]
    pub(crate) connections: Option<usize>,
    /// Worker threads; one drives more than 100,000 requests a second.
    #[arg(long, short = 't', default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) threads: u16,
    /// Speak HTTP/2: negotiated with an https target, assumed of an http one.
    #[arg(long)]
    pub(crate) http2: bool,
    /// The most requests in flight on one connection of HTTP/2, as far as the target allows [default: 1].
    #[arg(long, value_name = "N", requires = "http2")]
    pub(crate) streams: Option<usize>,
    /// The longest time of a request [default: 10s, or as the plan says].
    #[arg(long, value_parser = values::time)]
    pub(crate) timeout: Option<Duration>,
    /// The longest time for making a connection.
    #[arg(long, default_value = "1s", value_parser = values::time)]
    pub(crate) connect_timeout: Duration,
    /// Write the whole report as JSON to this file (`-`: standard output, instead of the text).
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write one CSV line for each request to this file, and one for each second to FILE.seconds.csv.
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Write the report as one self-contained page.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Sample CPU and memory of this process; repeatable.
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Vec<u32>,
    /// Sample series of a page, URL=SERIES[,SERIES…]: Prometheus names (`*` at the end), or JSON pointers; repeatable.
    #[arg(long, value_name = "URL=SERIES")]
    pub(crate) sample: Vec<String>,
    /// Sample every queue of a RabbitMQ broker by its management API, for example http://guest:guest@127.0.0.1:15672
    #[arg(long, value_name = "URL")]
    pub(crate) rabbitmq: Option<String>,
    /// Show no progress while it runs.
    #[arg(long, short = 'q')]
    pub(crate) quiet: bool,
    /// Allow a target that is neither loopback nor on a private network.
    #[arg(long)]
    pub(crate) i_own_this_target: bool,
    /// Accept any TLS certificate.
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Trust the certificates of this PEM file.
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_roots: Option<PathBuf>,
}

impl Common {
    /// Returns the target with its addresses. A name without an address is no error here; its requests are counted as failed.
    pub(crate) fn target(&self, url: &str) -> anyhow::Result<Target> {
        let mut target = Target::parse(url, self.i_own_this_target)?;
        match target.look_up() {
            Err(error @ Error::Dns { .. }) => note(&format!("warning: {error}")),
            found => found?,
        }
        Ok(target)
    }

    pub(crate) fn threads(&self) -> usize {
        self.threads.into()
    }

    /// Returns the options of a run against `target`. Fails if its files cannot be written.
    pub(crate) fn options(&self, target: Target, stop: &Stop) -> anyhow::Result<Options> {
        let files = [&self.json, &self.csv, &self.html].into_iter().flatten();
        for path in files.filter(|path| path.as_os_str() != "-") {
            // The check comes first, because after the run the report would be lost.
            let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
            file.with_context(|| format!("cannot write {}", path.display()))?;
        }
        let mut options = Options::new(target);
        options.connections = self.connections.unwrap_or(options.connections);
        options.request_timeout = self.timeout.unwrap_or(options.request_timeout);
        options.connect_timeout = self.connect_timeout.min(options.request_timeout);
        options.drain = options.request_timeout;
        options.stop = stop.clone();
        options.log = self.csv.clone();
        options.http2 = self.http2.then(|| self.streams.unwrap_or(1));
        options.tls.insecure = self.insecure;
        options.tls.roots = self.tls_roots.clone();
        Ok(options)
    }

    /// Refuses `--csv`, because several runs cannot share one file.
    pub(crate) fn refuse_csv(&self) -> anyhow::Result<()> {
        match self.csv {
            Some(_) => bail!("--csv holds the requests of a single run; this command makes several: use --json"),
            None => Ok(()),
        }
    }

    /// Starts to sample what the options and the plan ask for.
    pub(crate) fn sampler(&self, planned: &[SampleShape]) -> anyhow::Result<Sampler> {
        let mut probes = Vec::new();
        for &pid in &self.pid {
            Usage::of(pid).map_err(anyhow::Error::msg).context("--pid")?;
            probes.push(Probe::Process { pid });
        }
        let owned = self.i_own_this_target;
        for text in &self.sample {
            let (url, series) = text
                .rsplit_once('=')
                .with_context(|| format!("`{text}` is not URL=SERIES"))?;
            let series = series.split(',').map(str::to_string).collect();
            probes.push(Probe::Metrics {
                address: Address::parse(url, owned)?,
                series,
            });
        }
        for sample in planned {
            probes.push(Probe::Metrics {
                address: Address::parse(&sample.url, owned)?,
                series: sample.series.clone(),
            });
        }
        if let Some(url) = &self.rabbitmq {
            probes.push(Probe::RabbitMq {
                address: Address::parse(url, owned)?,
            });
        }
        Ok(Sampler::start(probes)?)
    }

    /// Adds the samples to the report, and a warning for each series that could not be sampled.
    pub(crate) fn sampled(sampler: Sampler, mut report: Report) -> Report {
        let (samples, failures) = sampler.finish();
        report.samples = samples;
        report.warnings.extend(failures);
        report
    }

    /// Writes the requested files and prints the report.
    pub(crate) fn deliver(&self, report: &Report) -> anyhow::Result<ExitCode> {
        self.print(|| report.to_json(), || report::text(report))?;
        self.page(|| html::run(report))?;
        if let Some(path) = &self.csv {
            let mut seconds = path.clone().into_os_string();
            seconds.push(".seconds.csv");
            write(Path::new(&seconds), &report::seconds_csv(report))?;
        }
        Ok(if report.counters.successes == 0 {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        })
    }

    /// Writes the page, if requested.
    pub(crate) fn page(&self, page: impl FnOnce() -> String) -> anyhow::Result<()> {
        self.html.as_deref().map_or(Ok(()), |path| write(path, &page()))
    }

    /// Prints the text and writes the JSON, as requested.
    pub(crate) fn print(&self, json: impl FnOnce() -> String, text: impl FnOnce() -> String) -> anyhow::Result<()> {
        match self.json.as_deref() {
            Some(path) if path.as_os_str() == "-" => show(&(json() + "\n")),
            Some(path) => {
                show(&text());
                write(path, &json())?;
            }
            None => show(&text()),
        }
        Ok(())
    }
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Writes to standard output. A closed reader (`| head`) is not an error.
pub(crate) fn show(text: &str) {
    use std::io::Write as _;
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// Writes a line to standard error, even if nobody reads it.
pub(crate) fn note(line: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// A signal this soon after the first belongs to it: `timeout` and others signal both the process and the group.
const ECHO: Duration = Duration::from_secs(1);

/// Makes Ctrl-C end the run with its report. A later second one ends the program at once.
pub(crate) fn stop_on_signals() -> anyhow::Result<Stop> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let stop = Stop::new();
    let stopped = stop.clone();
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM]).context("cannot handle signals")?;
    let watch = move || {
        let mut first = None;
        for _ in signals.forever() {
            stopped.now();
            if first.get_or_insert_with(Instant::now).elapsed() > ECHO {
                std::process::exit(130);
            }
        }
    };
    let thread = std::thread::Builder::new().name("signals".into());
    thread.spawn(watch).context("cannot handle signals")?;
    Ok(stop)
}
