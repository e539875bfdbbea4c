//! The errors: kinds that are counted during a run, and errors that prevent one.

use serde::{Deserialize, Serialize};

/// Why a request is counted as failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorKind {
    /// The target's name has no address.
    Dns,
    /// No process listens at the address.
    Refused,
    /// The address cannot be reached, or no socket could be opened.
    Unreachable,
    /// No connection within the connect timeout.
    ConnectTimeout,
    /// The TLS handshake or a record failed.
    Tls,
    /// The connection was reset.
    Reset,
    /// The connection was closed before any byte of the answer.
    Closed,
    /// The connection was closed within the answer.
    ClosedMidway,
    /// The answer is not HTTP/1.
    Garbage,
    /// The answer's head is above 64 KiB.
    TooLarge,
    /// The answer's length is told in ways that differ.
    Lengths,
    /// More bytes came than the answer has, which no request asked for.
    Surplus,
    /// The target speaks HTTP/1 only, where HTTP/2 was asked for.
    NoHttp2,
    /// The target gave the connection up (GOAWAY) before it took the request (HTTP/2).
    GoAway,
    /// The target refused the request its stream (HTTP/2).
    RefusedStream,
    /// The target reset the request's stream (HTTP/2).
    StreamReset,
    /// Frames that break the protocol (HTTP/2), or a request that has no form in it.
    Protocol,
    /// No whole answer within the request timeout.
    Timeout,
    /// Still unanswered when the run was over.
    Unanswered,
    /// A redirect (3xx other than 304): not followed.
    Redirect,
    /// Answered with a status from 400 to 499.
    ClientError,
    /// Answered with a status from 500 to 599.
    ServerError,
    /// Another status that is no success.
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

    /// A name of a few words, the same in every report.
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

    /// The kind under which a status fails; `None` for 2xx and 304.
    pub fn of_status(status: u16) -> Option<ErrorKind> {
        match status {
            200..=299 | 304 => None,
            300..=399 => Some(ErrorKind::Redirect),
            400..=499 => Some(ErrorKind::ClientError),
            500..=599 => Some(ErrorKind::ServerError),
            _ => Some(ErrorKind::OtherStatus),
        }
    }

    /// True if no connection could be had at all.
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
        /// The URL, as it was given.
        url: String,
        /// The fault.
        reason: String,
    },
    /// The host's name has no address.
    #[error("cannot find the address of `{host}`: {cause} (DNS); check the name, or give an IP address")]
    Dns {
        /// The name looked up.
        host: String,
        /// The error of the resolver.
        cause: std::io::Error,
    },
    /// The target is not on this machine or a private network.
    #[error(
        "`{host}` ({address}) is neither loopback nor a private address: loading it may be an attack; pass --i-own-this-target if it is yours"
    )]
    NotOurs {
        /// The host's name, as it was given.
        host: String,
        /// The public address found.
        address: std::net::IpAddr,
    },
    /// More connections than file descriptors.
    #[error(
        "{wanted} connections need about {needed} file descriptors, but the limit is {limit}; raise it with `ulimit -n {needed}` or use fewer connections"
    )]
    FileDescriptors {
        /// Connections asked for.
        wanted: usize,
        /// Descriptors needed, with those for files and timers.
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
        /// The file's path, as it was given.
        file: String,
        /// The finding, its place, and the expectation.
        reason: String,
    },
    /// A file or socket operation failed.
    #[error("cannot {action}: {cause}")]
    Io {
        /// The attempt.
        action: String,
        /// The error of the system.
        cause: std::io::Error,
    },
}

/// The result of preparing or doing a run.
pub type Result<T, E = Error> = std::result::Result<T, E>;

pub(crate) trait Doing<T> {
    /// Names what was tried.
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
