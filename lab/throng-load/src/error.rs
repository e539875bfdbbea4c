//! The kinds of errors that are counted during a run, and the errors that prevent a run.

use serde::{Deserialize, Serialize};

/// The reason why a request counts as failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorKind {
    /// The target's name has no address.
    Dns,
    /// No process listens at the address.
    Refused,
    /// The address cannot be reached, or no socket could be opened.
    Unreachable,
    /// There was no connection within the connect timeout.
    ConnectTimeout,
    /// The TLS handshake or a record failed.
    Tls,
    /// The connection was reset.
    Reset,
    /// The connection was closed before the first byte of the answer.
    Closed,
    /// The connection was closed during the answer.
    ClosedMidway,
    /// The answer is not HTTP/1.
    Garbage,
    /// The answer's head is longer than 64 KiB.
    TooLarge,
    /// The answer has several lengths that differ.
    Lengths,
    /// More bytes arrived than the answer has, and no request asked for them.
    Surplus,
    /// The target speaks only HTTP/1, but the run asks for HTTP/2.
    NoHttp2,
    /// The target closed the connection (GOAWAY) before it took the request (HTTP/2).
    GoAway,
    /// The target refused the request's stream (HTTP/2).
    RefusedStream,
    /// The target reset the request's stream (HTTP/2).
    StreamReset,
    /// Frames break the protocol (HTTP/2), or the request cannot be expressed in it.
    Protocol,
    /// There was no complete answer within the request timeout.
    Timeout,
    /// The request was still unanswered at the end of the run.
    Unanswered,
    /// The answer is a redirect (3xx other than 304), which is not followed.
    Redirect,
    /// The status is from 400 to 499.
    ClientError,
    /// The status is from 500 to 599.
    ServerError,
    /// The status is another one that is no success.
    OtherStatus,
    /// The answer failed a check.
    Check,
}

impl ErrorKind {
    /// Every kind, in the order of its index.
    pub const ALL: [ErrorKind; 24] = [
        ErrorKind::Dns,
        ErrorKind::Refused,
        ErrorKind::Unreachable,
        ErrorKind::ConnectTimeout,
        ErrorKind::Tls,
        ErrorKind::Reset,
        ErrorKind::Closed,
        ErrorKind::ClosedMidway,
        ErrorKind::Garbage,
        ErrorKind::TooLarge,
        ErrorKind::Lengths,
        ErrorKind::Surplus,
        ErrorKind::NoHttp2,
        ErrorKind::GoAway,
        ErrorKind::RefusedStream,
        ErrorKind::StreamReset,
        ErrorKind::Protocol,
        ErrorKind::Timeout,
        ErrorKind::Unanswered,
        ErrorKind::Redirect,
        ErrorKind::ClientError,
        ErrorKind::ServerError,
        ErrorKind::OtherStatus,
        ErrorKind::Check,
    ];

    /// Returns a name of a few words, the same in every report.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::Dns => "name without address (DNS)",
            ErrorKind::Refused => "connection refused",
            ErrorKind::Unreachable => "unreachable",
            ErrorKind::ConnectTimeout => "connect timeout",
            ErrorKind::Tls => "TLS failure",
            ErrorKind::Reset => "connection reset",
            ErrorKind::Closed => "closed before the answer",
            ErrorKind::ClosedMidway => "closed within the answer",
            ErrorKind::Garbage => "answer is not HTTP",
            ErrorKind::TooLarge => "answer head too large",
            ErrorKind::Lengths => "answer's lengths differ",
            ErrorKind::Surplus => "bytes after the answer",
            ErrorKind::NoHttp2 => "target speaks no HTTP/2",
            ErrorKind::GoAway => "given up by GOAWAY",
            ErrorKind::RefusedStream => "stream refused",
            ErrorKind::StreamReset => "stream reset",
            ErrorKind::Protocol => "HTTP/2 protocol error",
            ErrorKind::Timeout => "timeout",
            ErrorKind::Unanswered => "unanswered at the end",
            ErrorKind::Redirect => "redirect not followed",
            ErrorKind::ClientError => "status 4xx",
            ErrorKind::ServerError => "status 5xx",
            ErrorKind::OtherStatus => "other status",
            ErrorKind::Check => "check failed",
        }
    }

    /// Returns the kind of a failed status; `None` for 2xx and 304.
    pub fn of_status(status: u16) -> Option<ErrorKind> {
        match status {
            200..=299 | 304 => None,
            300..=399 => Some(ErrorKind::Redirect),
            400..=499 => Some(ErrorKind::ClientError),
            500..=599 => Some(ErrorKind::ServerError),
            _ => Some(ErrorKind::OtherStatus),
        }
    }

    /// Returns true if there was no connection at all.
    pub(crate) fn is_connect(self) -> bool {
        matches!(
            self,
            ErrorKind::Dns | ErrorKind::Refused | ErrorKind::Unreachable | ErrorKind::ConnectTimeout
        )
    }
}

/// An error that prevents a run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URL cannot be used.
    #[error("cannot use the URL `{url}`: {reason}")]
    Url {
        /// The URL as given.
        url: String,
        /// The fault.
        reason: String,
    },
    /// The host's name has no address.
    #[error("cannot find the address of `{host}`: {cause} (DNS); check the name, or give an IP address")]
    Dns {
        /// The name that was looked up.
        host: String,
        /// The error of the resolver.
        cause: std::io::Error,
    },
    /// The target is not on this machine or a private network.
    #[error(
        "`{host}` ({address}) is neither loopback nor a private address: loading it may be an attack; pass --i-own-this-target if it is yours"
    )]
    NotOurs {
        /// The host's name as given.
        host: String,
        /// The public address found.
        address: std::net::IpAddr,
    },
    /// The process may not open enough file descriptors for the connections.
    #[error(
        "{wanted} connections need about {needed} file descriptors, but the limit is {limit}; raise it with `ulimit -n {needed}` or use fewer connections"
    )]
    FileDescriptors {
        /// The requested connections.
        wanted: usize,
        /// The needed descriptors, including those for files and timers.
        needed: u64,
        /// The hard limit of this process.
        limit: u64,
    },
    /// An option has no sensible meaning.
    #[error("{0}")]
    Option(String),
    /// A plan or trace cannot be read.
    #[error("{file}: {reason}")]
    Plan {
        /// The file's path as given.
        file: String,
        /// The fault, its place, and what was expected.
        reason: String,
    },
    /// A file or socket operation failed.
    #[error("cannot {action}: {cause}")]
    Io {
        /// The operation that failed, as it completes "cannot …".
        action: String,
        /// The error of the system.
        cause: std::io::Error,
    },
}

/// The result of preparing or running a load.
pub type Result<T, E = Error> = std::result::Result<T, E>;

pub(crate) trait Doing<T> {
    /// Adds the operation to an error.
    fn doing(self, action: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<std::io::Error>> Doing<T> for std::result::Result<T, E> {
    fn doing(self, action: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Error::Io {
            action: action(),
            cause: error.into(),
        })
    }
}
