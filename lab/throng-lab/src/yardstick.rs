//! The processes that a benchmark starts: the bare yardsticks, and the service that is compared with them.

use clap::Subcommand;
use std::process::ExitCode;

use crate::{
    fill::{self, FillArguments},
    inside::timers,
    serve::{self, ServerArguments},
    surge,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Yardstick {
    #[command(flatten)]
    Bare(yardsticks::Yardstick),
    /// Run the registration service.
    Serve(ServerArguments),
    /// Fill a journal and wait to be killed.
    Fill(FillArguments),
    /// Make accounts whose timers wait, or use them.
    Timers(timers::ServiceArguments),
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
            Self::Serve(arguments) => serve::run(arguments),
            Self::Fill(arguments) => fill::run(arguments),
            Self::Timers(arguments) => timers::serve(arguments),
            Self::Spin => Ok(surge::spin()),
        }
    }
}
