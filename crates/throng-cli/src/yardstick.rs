//! The processes a benchmark starts: the bare rulers, and the service they are held against.

use clap::Subcommand;
use std::process::ExitCode;

use crate::bench::{self, FillArguments, ServerArguments};

#[derive(Debug, Subcommand)]
pub(crate) enum Yardstick {
    #[command(flatten)]
    Bare(yardsticks::Yardstick),
    /// Run the registration service.
    Serve(ServerArguments),
    /// Run the service of the long run.
    Tickets(Box<throng_app::cli::ServeArguments>),
    /// Fill a journal and wait to be killed.
    Fill(FillArguments),
    /// Keep a core busy.
    Spin,
}

impl Yardstick {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Bare(yardstick) => {
                yardstick.run()?;
                Ok(ExitCode::SUCCESS)
            }
            Self::Serve(arguments) => bench::serve(arguments),
            Self::Tickets(arguments) => bench::serve_tickets(arguments),
            Self::Fill(arguments) => bench::fill(arguments),
            Self::Spin => Ok(bench::spin()),
        }
    }
}
