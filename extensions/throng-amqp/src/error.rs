//! Why a broker does not do what it is asked.

/// Why a broker does not do what it is asked, and what to do.
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
        /// The finding.
        why: String,
    },
    /// The broker does not let this program in.
    #[error(
        "the broker at {place} refuses this program: {why}; look at user, password and virtual host of its address"
    )]
    Refused {
        /// Host and port.
        place: String,
        /// The broker's words.
        why: String,
    },
    /// Its certificate is not trusted.
    #[error(
        "the certificate of the broker at {place} cannot be trusted: {why}; trust its authority, or look at the name in the address"
    )]
    Untrusted {
        /// Host and port.
        place: String,
        /// The fault that was found.
        why: String,
    },
    /// The certificates to trust cannot be read.
    #[error("the certificates of {path} cannot be used: {why}")]
    Certificates {
        /// The file the certificates were to be read from.
        path: String,
        /// The fault that was found.
        why: String,
    },
    /// An exchange or a queue is there already, and is another than was asked for.
    #[error("{what} exists and is another than asked for: {why}; delete it, or ask for it as it is")]
    Mismatch {
        /// The exchange or queue.
        what: String,
        /// The broker's words.
        why: String,
    },
    /// An exchange or a queue is not there, and is not to be declared.
    #[error("the broker has no {what}, and this program is not to declare it: {why}")]
    Missing {
        /// The exchange or queue.
        what: String,
        /// The broker's words.
        why: String,
    },
    /// Everything else it says.
    #[error("{doing}: {why}")]
    Broker {
        /// The attempt.
        doing: &'static str,
        /// The broker's words.
        why: String,
    },
    /// The system gives no thread.
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

    /// Trying again comes to the same.
    #[must_use]
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::Unreachable { .. } | Self::Broker { .. })
    }
}
