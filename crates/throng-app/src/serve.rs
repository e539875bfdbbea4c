//! The command `serve`: the service, until it is told to end.

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use std::{
    io::Write as _,
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};
use throng::{
    Options,
    journal::{self, Position},
    model::Keep,
};
use throng_http::StopSignal;

#[cfg(feature = "postgres")]
use crate::cluster::ClusterArguments;
use crate::{
    AccessLogArguments, App, SecurityArguments, TraceArguments,
    health::supervisor::Supervisor,
    limits::{self, LimitArguments},
    logging,
    place::{Durability, LocationArguments, OnLoss, OpenCalls},
    security::address,
    service::{Service, Settings},
};

const ENVIRONMENT: &str = "\
Environment:
  THRONG_...          as the options above say, of which --admin-token is best given so
  RUST_LOG            what is logged, for example info or throng_http=debug
  NO_COLOR            no colours in the log
  PGPASSWORD          the password of the journal on PostgreSQL";

/// The exit code of a service whose journal another engine has taken over.
const TAKEN_OVER: u8 = 3;

/// The behaviour of a service when another engine takes over its journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum WhenTakenOver {
    /// Answers 503 until the other engine ends, then takes the journal back.
    StandBy,
    /// Ends with exit code 3.
    Exit,
}

/// The arguments of `serve`.
#[derive(Debug, Args)]
#[command(after_help = ENVIRONMENT)]
pub struct ServeArguments {
    /// The address to listen on; port 0 takes any free one.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080", value_parser = address)]
    listen: SocketAddr,
    /// The part of the service that this process runs, if the service has several; its documentation names them.
    #[arg(long, value_name = "NAME")]
    role: Option<String>,
    #[command(flatten)]
    place: LocationArguments,
    /// The failures that an acknowledged command survives.
    #[arg(long, value_enum, default_value = "fsync")]
    durability: Durability,
    /// The exact number of threads that serve connections. By default one, and more while it is saturated and cores are free.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    loops: Option<u16>,
    /// The megabytes that entities in memory may take. Beyond that, the least recently used ones leave memory.
    #[arg(long, value_name = "MB", default_value_t = 512, value_parser = clap::value_parser!(u32).range(16..))]
    memory: u32,
    /// Seconds between checkpoints.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    checkpoint: u32,
    /// Go on without durable commits that are lost, named as the refused start has named them. Recorded in the journal.
    #[arg(long, value_name = "WRITER.NUMBER")]
    accept_loss: Option<Position>,
    /// The answer to a database that was rolled back and has lost acknowledged commits: stop, answering 503 until a person has accepted the
    /// loss, or continue without them. It is recorded either way: throng journal loss.
    #[arg(long, value_enum, value_name = "WHAT", default_value = "stop")]
    on_loss: OnLoss,
    /// The time for which the events of a kind are kept: forever, a time (30d, 12h), or a number of events of each entity; the state remains.
    /// Repeatable, once for each kind [default: what the kind says].
    #[arg(long, value_name = "KIND=HOW", value_parser = keep)]
    keep: Vec<(String, Keep)>,
    /// The directory to which the embedded journal copies its segments before history is removed from them; it can be read as a journal.
    #[arg(long, value_name = "DIR")]
    archive: Option<PathBuf>,
    /// The bytes that the data directory may take, such as 500M or 20G; at least 16M. From 80 % on the service warns; from 100 % on it refuses
    /// commands and answers reads. On PostgreSQL, the bytes of its history [default: what the disk has]
    #[arg(long, value_name = "BYTES", value_parser = disk_bytes)]
    disk_budget: Option<u64>,
    /// The time (30m, 12h) after which a projection that is behind no longer holds up the removal of history it has not read [default: never].
    #[arg(long, value_name = "TIME", value_parser = age)]
    left_behind_after: Option<Duration>,
    /// The behaviour when another engine takes over the journal: stand by and take back when that one ends, or exit with code 3.
    #[arg(long, value_enum, value_name = "WHAT", default_value = "stand-by")]
    when_taken_over: WhenTakenOver,
    /// Leave the read models as they are: no projection runs.
    #[arg(long)]
    no_projections: bool,
    /// Look at a copy without acting: queries, history and console work. Commands are refused; no timer fires, and no message, sink, task
    /// of the service's own or broker is served.
    #[arg(long)]
    quiet: bool,
    /// Serve a restored or copied journal as the acting one: its timers, messages and sinks go on from where the copy was made. Needed once, at the
    /// first start after the copy.
    #[arg(long, conflicts_with = "quiet")]
    as_primary: bool,
    /// Calls outside that are open: make them again, under their keys, or have them end without a known outcome. Without it, those that were open
    /// when a restored or copied journal was copied end so, and all others go on.
    #[arg(long, value_enum, value_name = "WHAT", conflicts_with = "quiet")]
    calls: Option<OpenCalls>,
    /// Go on serving for this time after SIGTERM, while /health/ready says not ready: the time that balancers may take to notice.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = limits::duration)]
    drain_grace: Duration,
    #[cfg(feature = "postgres")]
    #[command(flatten)]
    cluster: ClusterArguments,
    #[command(flatten)]
    security: SecurityArguments,
    #[command(flatten)]
    access_log: AccessLogArguments,
    #[command(flatten)]
    traces: TraceArguments,
    /// Added to every sync: a slow disk, for tests.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = limits::duration, hide = true)]
    sync_delay: Duration,
    #[command(flatten)]
    limits: LimitArguments,
}

/// Parses `20G`, where a thousand is 1,024.
fn disk_bytes(text: &str) -> Result<u64, String> {
    let units = [("k", 10), ("M", 20), ("G", 30), ("T", 40)];
    let unit = units
        .into_iter()
        .find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)));
    let (number, shift) = unit.unwrap_or((text, 0));
    let bytes = number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(1 << shift));
    bytes
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| "write for example 500M or 20G".into())
}

/// Parses `30m` or `12h`, in the format of retention times.
fn age(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(Keep::Age(age)) => Ok(age),
        _ => Err("write for example 30m or 12h".into()),
    }
}

/// Parses a kind and its retention, as `account=30d`.
pub(crate) fn keep(text: &str) -> Result<(String, Keep), String> {
    let (kind, how) = text.split_once('=').ok_or("write for example account=30d")?;
    Ok((kind.to_owned(), how.parse()?))
}

impl ServeArguments {
    /// Serves until SIGTERM or SIGINT, then finishes what is in flight.
    ///
    /// # Errors
    /// The journal cannot be opened, or the address cannot be listened on.
    pub fn run(&self, app: App) -> anyhow::Result<ExitCode> {
        logging::start("info");
        let mut stop = StopSignal::watch().context("cannot watch for signals")?;
        let app = app.in_role(self.role.as_deref())?;
        let name = app.name();
        let settings = self.settings(&app)?;
        let supervisor = Supervisor::from_environment().map(Arc::new);
        let mut waits_for = String::new();
        let service = Service::begin(app, &settings)?.open_when_serving(|why| {
            if let Some(supervisor) = supervisor.as_ref().filter(|_| waits_for != why) {
                supervisor.tell(&format!("STATUS=joining: {why}"));
                why.clone_into(&mut waits_for);
            }
            stop.has_come()
        })?;
        if !service.is_open() {
            tracing::info!("told to end before it could serve");
            service.stop();
            return Ok(ExitCode::SUCCESS);
        }
        announce(name, &settings, &service);
        if let Some(supervisor) = &supervisor {
            supervisor.tell(&format!("READY=1\nSTATUS=serving at {}", service.url()));
            supervisor
                .keep_watchdog(service.admin_address())
                .context("cannot start a thread")?;
        }
        let taken_over = match self.when_taken_over {
            WhenTakenOver::StandBy => Arc::default(),
            WhenTakenOver::Exit => ends_when_taken_over(&service)?,
        };
        stop.wait();
        if let Some(supervisor) = &supervisor {
            supervisor.tell("STOPPING=1\nSTATUS=finishing what is in flight");
        }
        service.stop();
        tracing::info!("ended");
        Ok(match taken_over.load(Ordering::Acquire) {
            true => ExitCode::from(TAKEN_OVER),
            false => ExitCode::SUCCESS,
        })
    }

    fn settings(&self, app: &App) -> anyhow::Result<Settings> {
        let defaults = app.read_defaults()?;
        #[cfg(feature = "postgres")]
        let cluster = self.cluster.settings()?;
        #[cfg(feature = "postgres")]
        if self.quiet && cluster.is_some() {
            anyhow::bail!(
                "--quiet is for one process that looks at a copy, not for a node of a cluster: leave out --cluster"
            );
        }
        Ok(Settings {
            listen: self.listen,
            place: self.place.place_or(app.name(), defaults.journal.as_deref())?,
            durability: self.durability,
            sync_delay: self.sync_delay,
            accept_loss: self.accept_loss,
            as_primary: self.as_primary,
            calls: self.calls,
            on_loss: self.on_loss,
            archive: self.archive.clone(),
            loops: self.loops.map(usize::from),
            limits: self.limits.clone(),
            security: self.security.clone().with_admin_listener(self.listen),
            access_log: self.access_log.clone(),
            traces: self.traces.clone(),
            #[cfg(feature = "postgres")]
            cluster,
            #[cfg(feature = "postgres")]
            release: self.cluster.release(),
            #[cfg(not(feature = "postgres"))]
            release: 0,
            drain_grace: self.drain_grace,
            engine: Options {
                memory_bytes_max: self.memory as usize * 1_000_000,
                checkpoint_every: Duration::from_secs(u64::from(self.checkpoint)),
                keep: self.keep.iter().cloned().collect(),
                disk_bytes_max: self.disk_budget,
                left_behind_after: self.left_behind_after,
                projections: !self.no_projections && defaults.projections.unwrap_or(true),
                quiet: self.quiet,
                ..Options::default()
            },
        })
    }
}

/// Ends this process in order when another engine takes over. The returned flag is set then, and tells that reason from a signal.
fn ends_when_taken_over(service: &Service) -> anyhow::Result<Arc<AtomicBool>> {
    let is_taken_over = Arc::new(AtomicBool::new(false));
    let (taken_over, flag) = (service.engine.taken_over(), Arc::clone(&is_taken_over));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .context("cannot start a runtime")?;
    let wait = move || {
        if runtime.block_on(taken_over) {
            flag.store(true, Ordering::Release);
            // Fails only in a process that is ending already.
            let _ = signal_hook::low_level::raise(signal_hook::consts::SIGTERM);
        }
    };
    thread::Builder::new()
        .name("throng-taken-over".into())
        .spawn(wait)
        .context("cannot start a thread")?;
    Ok(is_taken_over)
}

/// Prints the facts that a person needs at the start: the data found, its location, and the URLs.
//= promise 2: acknowledged events survive
fn announce(name: &str, settings: &Settings, service: &Service) {
    let keeps = !service.engine.registry().kinds().is_empty();
    let durability = service.engine.health().durability;
    match durability {
        _ if !keeps => {}
        journal::Durability::Fsync => tracing::info!("DURABILITY fsync: an acknowledged command survives power loss"),
        journal::Durability::Os => {
            tracing::warn!("DURABILITY os: acknowledged commands survive the end of this process, but NOT POWER LOSS");
        }
        journal::Durability::Memory => {
            tracing::warn!("DURABILITY memory: NOTHING IS WRITTEN; everything is lost when this process ends");
        }
    }
    if settings.engine.quiet {
        tracing::warn!("QUIET: queries are answered; commands are refused, and no timer, message, sink or task acts");
    }
    let place = match durability {
        _ if !keeps => "has nothing to keep".to_string(),
        journal::Durability::Memory => "in memory".to_string(),
        _ => format!("in {}", settings.place),
    };
    tracing::info!(
        "{name} {place}, ready after {:.3} s, documented at {}/docs",
        service.recovery.as_secs_f64(),
        service.url()
    );
    tracing::info!("console at {}", service.console_url());
    // The only line on standard output: scripts wait for it. Writing fails if the reader has gone away.
    let _ = writeln!(std::io::stdout(), "{}", service.url());
    let _ = std::io::stdout().flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_and_patience_are_written_with_units() {
        assert_eq!((disk_bytes("20G"), disk_bytes("512")), (Ok(20 << 30), Ok(512)));
        assert!(disk_bytes("0").is_err() && disk_bytes("G").is_err() && disk_bytes("99999999999T").is_err());
        assert_eq!(age("30m"), Ok(Duration::from_secs(1_800)));
        assert!(age("1000").is_err() && age("forever").is_err());
    }
}
