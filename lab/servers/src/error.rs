//! The reasons why a server is not available.

use std::io;

/// The reason why a server is not available, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server's programs are not on this machine.
    #[error("there is no {program} here (looked in {looked}); install it: {install}")]
    Missing {
        /// The program that was looked for.
        program: &'static str,
        /// The places that were searched.
        looked: String,
        /// The command that installs it.
        install: &'static str,
    },
    /// An operation on a file or a process failed.
    #[error("{doing} failed: {source}")]
    Io {
        /// The operation that failed, such as "starting redis-server".
        doing: String,
        /// The error of the system.
        source: io::Error,
    },
    /// A program of the server ended with an error.
    #[error("{program} failed: {said}")]
    Failed {
        /// The program's name.
        program: &'static str,
        /// The output of the program.
        said: String,
    },
    /// The server was started, but takes no connections.
    #[error("{program} does not answer after {seconds} s; its log ends: {said}")]
    Silent {
        /// The program's name.
        program: &'static str,
        /// The duration of the wait.
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
