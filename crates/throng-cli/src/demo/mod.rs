//! `throng demo`: a registration day, end to end.

pub mod answers;
pub mod directory;
pub mod pace;
mod report;
pub mod rosters;
pub mod steps;

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::Args;
use registration::{
    reference::{Expected, Rosters},
    trace::{DEFAULT_SEED, Trace},
};
use std::{
    fs,
    io::Write as _,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};
use throng::Options;
use throng_app::{
    AccessLogArguments, Durability, JournalLocation, LimitArguments, OnLoss, SecurityArguments, Service, Settings,
    TraceArguments, cli,
};
use throng_http::StopSignal;
use throng_load::report::html;

use crate::{
    client::Client,
    units::{self, count},
};
use directory::Directory;
use pace::Pace;
use report::{Ending, Summary};

/// Comment on a schema that marks it as a demo's, which may be replaced.
#[cfg(feature = "postgres")]
const MARK: &str = "a throng demo: the next one replaces it";

/// Arguments of the demo.
#[derive(Debug, Args)]
pub struct DemoArguments {
    /// Concurrent clients, each with a connection of its own.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=20_000))]
    pub clients: u16,
    /// Let requests for one section overtake each other; the rosters are then checked against the answers given.
    #[arg(long)]
    unordered: bool,
    /// Replay at this multiple of the recorded speed, or `midnight`: the busiest hour in a minute, without the other days [default: all of it, as
    /// fast as possible].
    #[arg(long, value_name = "SPEED|midnight", value_parser = pace::pace)]
    pub pace: Option<Pace>,
    /// The sections of the trace, one line `section<tab>seats` each [default: the built-in trace].
    #[arg(long, value_name = "FILE", requires = "requests")]
    capacities: Option<PathBuf>,
    /// The requests of the trace, one line `student,section,YYYY-MM-DD,HH:MM:SS,operation` each.
    #[arg(long, value_name = "FILE", requires = "capacities")]
    requests: Option<PathBuf>,
    /// The seed of the built-in trace.
    #[arg(long, default_value_t = DEFAULT_SEED, conflicts_with = "capacities")]
    seed: u64,
    /// The directory below which the demo makes its journal, `demo`. The journal of an earlier demo is replaced.
    #[arg(long, value_name = "DIR", default_value = "data")]
    pub data: PathBuf,
    /// The PostgreSQL database for the journal instead, in a schema of its own. The journal of an earlier demo is replaced.
    #[arg(long, value_name = "postgres://…", conflicts_with = "data")]
    pub journal: Option<String>,
    /// The loopback port of the service; 0 takes any free one.
    #[arg(long, default_value_t = 0)]
    pub port: u16,
    /// End when done; otherwise the service goes on.
    #[arg(long)]
    exit: bool,
    /// Print one JSON object instead of the report.
    #[arg(long)]
    json: bool,
    /// Write the final rosters to this file, as sorted lines `section,student`.
    #[arg(long, value_name = "FILE")]
    rosters: Option<PathBuf>,
    /// Write the replay's latencies as one self-contained page to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Losses that an acknowledged request survives: fsync (power loss) or os (the end of the process).
    #[arg(long, value_enum, default_value = "fsync")]
    durability: Durability,
    /// Threads that serve connections.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    loops: u16,
    /// Added to every sync: a slow disk, for tests.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = units::duration, hide = true)]
    sync_delay: Duration,
}

impl DemoArguments {
    /// Writes the rosters to the file of `--rosters`, if there is one.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_rosters(&self, found: &Rosters) -> anyhow::Result<()> {
        let Some(path) = &self.rosters else { return Ok(()) };
        let text: String = found.lines().into_iter().map(|line| line + "\n").collect();
        fs::write(path, text).with_context(|| format!("cannot write the rosters to {}", path.display()))
    }

    /// Prints a line of the report: on standard error if standard output is for JSON.
    pub fn say(&self, text: &str) {
        if self.json {
            eprintln!("{text}");
        } else {
            // A reader that went away (`| head`) is no error of ours.
            let _ = writeln!(std::io::stdout(), "{text}");
        }
    }

    /// Waits to be stopped, unless the demo ends by itself.
    ///
    /// # Errors
    /// No signal handler can be installed.
    pub fn stay(&self, places: &str) -> anyhow::Result<()> {
        if !self.exit {
            let stop = StopSignal::watch().context("cannot watch for signals")?;
            self.say(places);
            stop.wait();
        }
        Ok(())
    }

    /// Returns the trace to replay, and its name.
    ///
    /// # Errors
    /// A file of the trace cannot be read.
    pub fn trace(&self) -> anyhow::Result<(Arc<Trace>, String)> {
        let (trace, name) = self.whole_trace()?;
        let Some(pace) = self.pace else {
            return Ok((Arc::new(trace), name));
        };
        let (trace, words) = pace.cut(trace)?;
        let name = words.map_or_else(|| name.clone(), |words| format!("{name}; {words}"));
        Ok((Arc::new(trace), name))
    }

    /// Returns the speed of the replay as a multiple of the recorded one; 0 is as fast as possible.
    #[must_use]
    pub fn speed(&self) -> f64 {
        self.pace.map_or(0.0, Pace::speed)
    }

    fn whole_trace(&self) -> anyhow::Result<(Trace, String)> {
        let (Some(capacities), Some(requests)) = (&self.capacities, &self.requests) else {
            let trace = Trace::registration_day(self.seed);
            return Ok((trace, format!("A registration day, generated from seed {}", self.seed)));
        };
        let reading = Trace::read(capacities, requests)?;
        for duplicate in &reading.duplicates {
            eprintln!("note: {}, {duplicate}", capacities.display());
        }
        Ok((reading.trace, format!("The registration of {}", requests.display())))
    }

    /// Returns an empty location for the journal: the directory, or the database of `--journal`.
    ///
    /// # Errors
    /// `--journal` cannot be parsed, or the database cannot be emptied.
    pub fn place(&self, directory: Option<&Directory>) -> anyhow::Result<JournalLocation> {
        if let Some(directory) = directory {
            return Ok(JournalLocation::Directory(directory.journal()));
        }
        let place = self.journal.as_deref().unwrap_or_default();
        match place
            .parse::<JournalLocation>()
            .map_err(|why| anyhow!("--journal cannot be read: {why}"))?
        {
            #[cfg(feature = "postgres")]
            JournalLocation::Postgres(options) => {
                throng_postgres::begin_anew(&options, MARK)?;
                Ok(JournalLocation::Postgres(options))
            }
            _ => bail!("--journal takes postgres://…; for the embedded journal there is --data DIR"),
        }
    }

    /// Returns the settings of the service on this journal.
    #[must_use]
    pub fn settings(&self, place: JournalLocation) -> Settings {
        Settings {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)),
            place,
            durability: self.durability,
            sync_delay: self.sync_delay,
            accept_loss: None,
            as_primary: false,
            calls: None,
            on_loss: OnLoss::Stop,
            archive: None,
            loops: Some(usize::from(self.loops)),
            limits: LimitArguments::default(),
            security: SecurityArguments::default(),
            access_log: AccessLogArguments::default(),
            traces: TraceArguments::default(),
            #[cfg(feature = "postgres")]
            cluster: None,
            release: 0,
            drain_grace: Duration::ZERO,
            engine: Options::default(),
        }
    }
}

/// Runs the demo. The exit code tells whether every roster is right.
///
/// # Errors
/// The trace cannot be read, or the service cannot be started.
pub fn run(arguments: &DemoArguments) -> anyhow::Result<ExitCode> {
    cli::start_logging("error");
    ensure!(
        arguments.durability != Durability::Memory,
        "the demo starts again from its journal, and --durability memory keeps none; choose fsync or os"
    );
    let say = |text: &str| arguments.say(text);
    let (trace, name) = arguments.trace()?;
    let expected = Expected::of(&trace);
    let directory = match arguments.journal {
        None => Some(Directory::fresh(&arguments.data.join("demo"))?),
        Some(_) => None,
    };
    let settings = arguments.settings(arguments.place(directory.as_ref())?);
    let clients = usize::from(arguments.clients);
    say(&format!("\n{name}\n"));

    let service = Service::start(registration::app(), &settings)?;
    say(&format!("  console    {}", service.console_url()));
    let client = Client::new(service.address, clients)?;
    let opened = steps::open(&client, &trace)?;
    say(&format!(
        "  opened     {} sections in {:.2} s",
        count(trace.sections.len() as u64),
        opened.as_secs_f64()
    ));
    let before = (
        service.engine.metrics().commits(),
        service.engine.metrics().commit_bytes(),
    );
    let replay = steps::replay(
        &client,
        &trace,
        (!arguments.unordered).then_some(&expected),
        arguments.speed(),
    )?;
    let commits = service.engine.metrics().commits() - before.0;
    let journal_bytes = service.engine.metrics().commit_bytes();
    say(&format!(
        "  replayed   {} requests in {:.2} s",
        count(trace.requests.len() as u64),
        replay.report.elapsed().as_secs_f64()
    ));
    let address = service.address;
    service.stop();

    let service = Service::start(
        registration::app(),
        &Settings {
            listen: address,
            ..settings
        },
    )?;
    say(&format!(
        "  restarted  from the journal in {:.3} s",
        service.recovery.as_secs_f64()
    ));
    let found = rosters::read(&client, &trace)?;
    let (wanted, contradiction) = if arguments.unordered {
        replay.rosters(&trace)
    } else {
        (expected.rosters, None)
    };
    let differences = wanted.differences(&found);
    let ending = Ending {
        clients,
        durability: arguments.durability,
        commits,
        journal_bytes,
        recovery: service.recovery,
        enrolled: found.enrolled(),
        differences,
        contradiction,
        overfull: rosters::overfull(&trace, &found),
    };
    let summary = Summary::of(&trace, &replay, &ending);
    arguments.write_rosters(&found)?;
    if let Some(path) = &arguments.html {
        let page = html::run(&replay.report.clone().titled(name));
        fs::write(path, page).with_context(|| format!("cannot write the page to {}", path.display()))?;
    }
    let shown = if arguments.json {
        serde_json::to_string(&summary).context("cannot write the report as JSON")? + "\n"
    } else {
        report::text(&summary, &replay, &ending)
    };
    let _ = std::io::stdout().write_all(shown.as_bytes());
    let _ = std::io::stdout().flush();
    if arguments.json {
        report::faults(&replay, &ending)
            .iter()
            .for_each(|fault| eprintln!("  ! {fault}"));
    }
    arguments.stay(&report::places(&service.console_url(), &service.url(), &trace))?;
    service.stop();
    Ok(if summary.differences == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
