//! What acknowledged commands survive, and the answer to a loss of them.

use clap::ValueEnum;
use throng::journal;

/// What an acknowledged command survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Durability {
    /// Power loss: every commit is synced to the disk before it is answered.
    Fsync,
    /// The end of the process, not power loss: commits are handed to the operating system.
    Os,
    /// Nothing: all is lost with the process.
    Memory,
}

/// The answer of a service that finds acknowledged commits lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OnLoss {
    /// The service answers 503, and so does every other service on the journal, until a person has accepted the loss.
    #[default]
    Stop,
    /// The engine goes on with what is left. The loss is recorded in the journal.
    Continue,
}

impl From<Durability> for journal::Durability {
    fn from(durability: Durability) -> Self {
        match durability {
            Durability::Fsync => Self::Fsync,
            Durability::Os => Self::Os,
            Durability::Memory => Self::Memory,
        }
    }
}
