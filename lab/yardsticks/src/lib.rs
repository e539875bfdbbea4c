//! The limits of the machine **without** an engine: the two yardsticks for every statement about the speed of Throng.
//!
//! - [`echo`]: a bare epoll + `httparse` HTTP/1.1 server. It reads, parses and answers the same requests as the engine, but has no shard and no
//!   journal. *Requests a second of the engine ÷ requests a second of the echo* is the cost of the engine.
//! - [`disk`]: a bare `pwrite` + `fdatasync` loop. *Bytes a second of the journal ÷ bytes a second of the loop* is the cost of the journal.
//!
//! Only ratios taken in one run mean something. The figures of two machines, or of two days, cannot be compared.
//!
//! Each yardstick is a library, a program (`cargo run --release -p yardsticks --bin echo`, `--bin disk`) and a sub-command in [`Yardstick`]. So a
//! benchmark program can start itself again as its own yardstick ([`echo::EchoProcess`]).

pub mod disk;
pub mod echo;

use clap::Subcommand;

/// The yardsticks as sub-commands, for a program that starts itself as its own yardstick.
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
    /// The echo or the disk loop failed.
    pub fn run(&self) -> Result<(), YardstickError> {
        match self {
            Self::Echo(arguments) => Ok(arguments.run()?),
            Self::Disk(arguments) => Ok(arguments.run()?),
        }
    }
}

/// The reason why a yardstick could not be run.
#[derive(Debug, thiserror::Error)]
pub enum YardstickError {
    /// The echo stopped.
    #[error(transparent)]
    Echo(#[from] echo::EchoError),
    /// The disk loop stopped.
    #[error(transparent)]
    Disk(#[from] disk::DiskError),
}
