//! `throng serve`: an app as a service.

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use std::{
    io::Write as _,
    net::SocketAddr,
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
    journal::{Durability, Position},
};

use crate::{
    apps::{self, App},
    logging,
    place::PlaceArguments,
    service::{self, Service, Settings},
    signals::End,
    units,
};

/// The environment variable with the token that lets its holder administrate from anywhere.
const ADMIN_TOKEN: &str = "THRONG_ADMIN_TOKEN";

/// The exit code of a service whose journal another engine has taken over.
const TAKEN_OVER: u8 = 3;

/// What a service does whose journal another engine takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum WhenTakenOver {
    /// It answers 503 until the other one ends, and then takes back.
    StandBy,
    /// It ends.
    Exit,
}

/// How to run an app.
#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// The app: registration, shows, primes.
    #[arg(long, value_name = "NAME", default_value = "registration", value_parser = apps::find)]
    app: &'static App,
    /// Where to listen; port 0 takes any free one.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    #[command(flatten)]
    place: PlaceArguments,
    /// What an acknowledged command survives.
    #[arg(long, value_enum, default_value = "fsync")]
    durability: service::Durability,
    /// Threads that serve connections, exactly; unless said, one, and more while it is saturated and cores are free.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    loops: Option<u16>,
    /// Megabytes the entities in memory may take; least recently used ones are put away beyond it.
    #[arg(long, value_name = "MB", default_value_t = 512, value_parser = clap::value_parser!(u32).range(16..))]
    memory: u32,
    /// Seconds between checkpoints.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    checkpoint: u32,
    /// Go on without durable commits that are lost, named as the refused start has named them. Recorded in the journal.
    #[arg(long, value_name = "WRITER.NUMBER")]
    accept_loss: Option<Position>,
    /// What to do when another engine takes over the journal: stand by and take back when that one ends, or exit with code 3.
    #[arg(long, value_enum, value_name = "WHAT", default_value = "stand-by")]
    when_taken_over: WhenTakenOver,
    /// Leave the read models as they are: no projection runs.
    #[arg(long)]
    no_projections: bool,
    /// Added to every sync: a slow disk, for tests.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = units::duration, hide = true)]
    sync_delay: Duration,
}

/// Serves until SIGTERM or SIGINT, then finishes what is in flight.
pub(crate) fn run(arguments: &ServeArguments) -> anyhow::Result<ExitCode> {
    logging::start("info");
    let end = End::watch()?;
    let environment = (arguments.app.environment)()?;
    let settings = Settings {
        app: arguments.app,
        listen: arguments.listen,
        place: arguments
            .place
            .place_or(arguments.app.name, environment.journal.as_deref())?,
        durability: arguments.durability,
        sync_delay: arguments.sync_delay,
        accept_loss: arguments.accept_loss,
        loops: arguments.loops.map(usize::from),
        admin_token: std::env::var(ADMIN_TOKEN).ok().filter(|token| !token.is_empty()),
        engine: Options {
            memory_bytes_max: arguments.memory as usize * 1_000_000,
            checkpoint_every: Duration::from_secs(u64::from(arguments.checkpoint)),
            projections: !arguments.no_projections && environment.projections.unwrap_or(true),
            ..Options::default()
        },
    };
    let service = Service::start(&settings)?;
    announce(&settings, &service);
    let taken_over = match arguments.when_taken_over {
        WhenTakenOver::StandBy => Arc::default(),
        WhenTakenOver::Exit => ends_when_taken_over(&service)?,
    };
    end.wait();
    tracing::info!("ending: what is in flight is finished first");
    service.stop();
    tracing::info!("ended");
    Ok(match taken_over.load(Ordering::Acquire) {
        true => ExitCode::from(TAKEN_OVER),
        false => ExitCode::SUCCESS,
    })
}

/// Has this process end as if it were told to when another engine takes over; the flag says that this is why.
fn ends_when_taken_over(service: &Service) -> anyhow::Result<Arc<AtomicBool>> {
    let is_taken_over = Arc::new(AtomicBool::new(false));
    let (taken_over, flag) = (service.engine.taken_over(), Arc::clone(&is_taken_over));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .context("cannot start a runtime")?;
    let wait = move || {
        if runtime.block_on(taken_over) {
            flag.store(true, Ordering::Release);
            // Only a process that ends already does not take it.
            let _ = signal_hook::low_level::raise(signal_hook::consts::SIGTERM);
        }
    };
    thread::Builder::new()
        .name("throng-taken-over".into())
        .spawn(wait)
        .context("cannot start a thread")?;
    Ok(is_taken_over)
}

fn announce(settings: &Settings, service: &Service) {
    match service.engine.health().durability {
        Durability::Fsync => tracing::info!("DURABILITY fsync: an acknowledged command survives power loss"),
        Durability::Os => {
            tracing::warn!("DURABILITY os: acknowledged commands survive the end of this process, but NOT POWER LOSS");
        }
        Durability::Memory => {
            tracing::warn!("DURABILITY memory: NOTHING IS WRITTEN; everything is lost when this process ends");
        }
    }
    let place = match service.engine.health().durability {
        Durability::Memory => "memory".to_string(),
        _ => settings.place.to_string(),
    };
    tracing::info!(
        "{} in {place}, ready after {:.3} s, documented at {}/docs",
        settings.app.name,
        service.recovery.as_secs_f64(),
        service.url()
    );
    // The one line on standard output: what a script waits for. It may have gone away.
    let _ = writeln!(std::io::stdout(), "{}", service.url());
    let _ = std::io::stdout().flush();
}
