//! A service in a process of its own, so that its CPU time can be told from the client's.

use clap::Args;
use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr},
    process::ExitCode,
    time::Duration,
};
use throng::Options;
use throng_app::{
    AccessLogArguments, Durability, LimitArguments, OnLoss, SecurityArguments, Service, Settings, TraceArguments, cli,
};

use super::inside;
use crate::{
    apps::{self, Served},
    units,
};

/// The options of a service: those of the bare echo, and the place of its journal.
#[derive(Debug, Args)]
pub(crate) struct ServerArguments {
    #[arg(long, default_value_t = 0)]
    port: u16,
    #[arg(long, default_value_t = 1)]
    loops: usize,
    /// End when standard input is closed: the parent has gone.
    #[arg(long)]
    until_input_closes: bool,
    #[arg(long, default_value = "registration", value_parser = apps::find)]
    app: Served,
    /// The part of the app that this process is, if the app has several.
    #[arg(long)]
    role: Option<String>,
    #[command(flatten)]
    place: cli::LocationArguments,
    #[arg(long)]
    no_projections: bool,
    #[arg(long, value_enum, default_value = "fsync")]
    durability: Durability,
    #[arg(long, default_value = "0s", value_parser = units::duration)]
    sync_delay: Duration,
    /// Bytes of a commit beyond which work from outside waits for the next one.
    #[arg(long)]
    commit_bytes_max: Option<usize>,
    /// Keep this many messages going back and forth between entities.
    #[arg(long, default_value_t = 0)]
    storm: u32,
}

/// Prints the address as the first line on standard output, then serves.
pub(crate) fn run(arguments: &ServerArguments) -> anyhow::Result<ExitCode> {
    throng_app::cli::start_logging("error");
    let usual = Options::default();
    let settings = Settings {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, arguments.port)),
        place: arguments.place.place(arguments.app.name)?,
        durability: arguments.durability,
        sync_delay: arguments.sync_delay,
        accept_loss: None,
        as_primary: false,
        calls: None,
        on_loss: OnLoss::Stop,
        archive: None,
        loops: Some(arguments.loops),
        limits: LimitArguments::default(),
        security: SecurityArguments::default(),
        access_log: AccessLogArguments::default(),
        traces: TraceArguments::default(),
        cluster: None,
        release: 0,
        drain_grace: Duration::ZERO,
        engine: Options {
            projections: !arguments.no_projections,
            commit_bytes_max: arguments.commit_bytes_max.unwrap_or(usual.commit_bytes_max),
            ..usual
        },
    };
    let mut app = (arguments.app.app)().in_role(arguments.role.as_deref())?;
    if arguments.storm > 0 {
        app = app.engine(inside::with_players);
    }
    let service = Service::start(app, &settings)?;
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(inside::begin(&service.engine, arguments.storm))?;
    let mut output = std::io::stdout();
    writeln!(output, "{}", service.address)?;
    output.flush()?;
    if arguments.until_input_closes {
        let mut buffer = [0; 64];
        // The end of input and an error both mean that the other end is gone.
        while matches!(std::io::stdin().read(&mut buffer), Ok(1..)) {}
    } else {
        throng_http::StopSignal::watch()?.wait();
    }
    service.stop();
    Ok(ExitCode::SUCCESS)
}
