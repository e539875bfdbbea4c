//! Why a server cannot be had.

use std::io;

/// Why a server cannot be had, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server's programs are not on this machine.
    #[error("there is no {program} here (looked in {looked}); install it: {install}")]
    Missing {
        /// The program looked for.
        program: &'static str,
        /// The places that were looked at.
        looked: String,
        /// The command that installs it.
        install: &'static str,
    },
    /// A file or a process.
    #[error("{doing} failed: {source}")]
    Io {
        /// The attempt.
        doing: String,
        /// The error of the system.
        source: io::Error,
    },
    /// A program of the server ended with an error.
    #[error("{program} failed: {said}")]
    Failed {
        /// The program's name.
        program: &'static str,
        /// The text of the program.
        said: String,
    },
    /// The server was started and takes no connections.
    #[error("{program} does not answer after {seconds} s; its log ends: {said}")]
    Silent {
        /// The program's name.
        program: &'static str,
        /// The length of the wait.
        seconds: u64,
        /// The end of its log.
        said: String,
    },
}

impl Error {
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }
}
