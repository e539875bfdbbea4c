//! The errors of a broker.

/// Why a broker did not do what was asked. The text says what to do.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The address is malformed.
    #[error("{0:?} is no broker's address: write amqp://user:password@host:port/virtual-host, or amqps:// for TLS")]
    Address(String),
    /// The broker cannot be reached.
    #[error("the broker at {place} cannot be reached: {why}")]
    Unreachable {
        /// Host and port.
        place: String,
        /// The error of the connection, or of its TLS.
        why: String,
    },
    /// The broker refuses this program's login.
    #[error(
        "the broker at {place} refuses this program: {why}; look at user, password and virtual host of its address"
    )]
    Refused {
        /// Host and port.
        place: String,
        /// The broker's text.
        why: String,
    },
    /// The broker's certificate is not trusted.
    #[error(
        "the certificate of the broker at {place} cannot be trusted: {why}; trust its authority, or look at the name in the address"
    )]
    Untrusted {
        /// Host and port.
        place: String,
        /// The error of the connection, or of its TLS.
        why: String,
    },
    /// The certificates to trust cannot be read.
    #[error("the certificates of {path} cannot be used: {why}")]
    Certificates {
        /// The path of the file.
        path: String,
        /// The error of the file or of its content.
        why: String,
    },
    /// The exchange or queue exists with other settings.
    #[error("{what} exists and is another than asked for: {why}; delete it, or ask for it as it is")]
    Mismatch {
        /// The exchange or queue.
        what: String,
        /// The broker's text.
        why: String,
    },
    /// The exchange or queue does not exist and must not be declared.
    #[error("the broker has no {what}, and this program is not to declare it: {why}")]
    Missing {
        /// The exchange or queue.
        what: String,
        /// The broker's text.
        why: String,
    },
    /// Any other error of the broker.
    #[error("{doing}: {why}")]
    Broker {
        /// The action that failed.
        doing: &'static str,
        /// The broker's text.
        why: String,
    },
    /// The operating system refuses a thread.
    #[error("a thread cannot be started: {0}")]
    Thread(String),
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::Thread(error.to_string())
    }
}

impl Error {
    pub(crate) fn broker(doing: &'static str) -> impl FnOnce(lapin::Error) -> Self {
        move |error| Self::Broker {
            doing,
            why: error.to_string(),
        }
    }

    /// Tells whether a retry would fail the same way.
    #[must_use]
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::Unreachable { .. } | Self::Broker { .. })
    }
}
