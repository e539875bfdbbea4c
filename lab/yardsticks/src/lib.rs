//! The limits of the machine **without** an engine: the two rulers every speed claim of Throng is held against.
//!
//! - [`echo`]: a bare epoll + `httparse` HTTP/1.1 server. It reads, parses and answers the same requests as the
//!   engine, but has no shard and no journal. *Requests a second of the engine ÷ requests a second of the echo* says what
//!   the engine costs.
//! - [`disk`]: a bare `pwrite` + `fdatasync` loop. *Bytes a second of the journal ÷ bytes a second of the loop* says
//!   what the journal costs.
//!
//! Only ratios taken in one run mean something; the figures of two machines, or of two days, do not compare.
//!
//! Both rulers come as a library, as a program of their own (`cargo run --release -p yardsticks --bin echo`, `--bin
//! disk`), and as the sub-commands in [`Yardstick`], so that a benchmark program can start itself anew as its own ruler
//! ([`echo::EchoProcess`]).

pub mod disk;
pub mod echo;

use clap::Subcommand;

/// The yardsticks as sub-commands, for a program that wants to be its own yardstick.
#[derive(Debug, Subcommand)]
pub enum Yardstick {
    /// Answer HTTP requests without an engine.
    Echo(echo::EchoArguments),
    /// Write and sync blocks without a journal.
    Disk(disk::DiskArguments),
}

impl Yardstick {
    /// Runs the yardstick until it is done.
    ///
    /// # Errors
    /// Whatever stopped the echo or the disk loop.
    pub fn run(&self) -> Result<(), YardstickError> {
        match self {
            Self::Echo(arguments) => Ok(arguments.run()?),
            Self::Disk(arguments) => Ok(arguments.run()?),
        }
    }
}

/// Why a yardstick could not be run.
#[derive(Debug, thiserror::Error)]
pub enum YardstickError {
    /// The echo stopped.
    #[error(transparent)]
    Echo(#[from] echo::EchoError),
    /// The disk loop stopped.
    #[error(transparent)]
    Disk(#[from] disk::DiskError),
}
