//! Why a gateway cannot start.

use std::{io, net::SocketAddr, path::PathBuf};

/// Why a gateway cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Another program listens there.
    #[error("{address} is in use by another program: stop it, choose another port, or 0 for any free one")]
    PortTaken {
        /// The requested address.
        address: SocketAddr,
    },
    /// Another program listens at the address for administration.
    #[error(
        "{address}, for administration and metrics, is in use by another program: choose another address with --admin-listen \
         (Gateway::admin), or stop that program"
    )]
    AdminPortTaken {
        /// The requested address.
        address: SocketAddr,
    },
    /// The port is not for everybody.
    #[error("not allowed to listen on {address}: ports below 1024 are the administrator's; choose a higher one")]
    NotAllowed {
        /// The requested address.
        address: SocketAddr,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; is it an address of this machine?")]
    Listen {
        /// The requested address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// A text is no address.
    #[error("{text:?} is not an address to listen on; give one such as 127.0.0.1:8080, with port 0 for any free one")]
    Address {
        /// The text that cannot be read.
        text: String,
    },
    /// A name in `PUBLIC` or `REPLIES` is no command of its kind.
    #[error("{command:?} is in {list} of the kind {kind:?}, and is none of its commands; they are: {known}")]
    NoSuchCommand {
        /// The name of the kind.
        kind: &'static str,
        /// The name in the list that is none of a command.
        command: &'static str,
        /// The list it stands in.
        list: &'static str,
        /// The commands of the kind's schema.
        known: String,
    },
    /// A file of tokens, keys or certificates cannot be used.
    #[error("{0}")]
    File(#[from] FileError),
    /// A kind should have no routes, but there is none of this name.
    #[error("the kind {kind:?} is to have no routes, and the engine has no such kind")]
    NoSuchKind {
        /// The name that was given.
        kind: String,
    },
    /// The number of loops is out of range.
    #[error("cannot run {loops} loops: choose 1 to {most}")]
    Loops {
        /// The requested number.
        loops: usize,
        /// The most loops.
        most: usize,
    },
    /// The system allows too few open files.
    #[error(
        "the system allows {allowed} open files, and the service needs {least} at least: raise its limit (ulimit -n {least})"
    )]
    TooFewFiles {
        /// The open files allowed.
        allowed: u64,
        /// The least that a service starts with.
        least: usize,
    },
    /// The access log's file cannot be opened.
    #[error("the access log cannot be written to {path}: {source}")]
    AccessLog {
        /// The file, or `-`.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The system gives no thread or no event queue.
    #[error("a loop of the gateway could not be started: {0}")]
    Loop(io::Error),
}

/// The reason why a file of tokens, keys or certificates, or a URL of keys, cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {why}")]
pub struct FileError {
    path: String,
    why: String,
}

impl FileError {
    pub(crate) fn new(path: &str, why: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            why: why.into(),
        }
    }
}
