//! The sender of a command.

/// The sender of a command or query, as [`Turn::from`](super::Turn::from) returns it.
///
/// A command that is executed again (after a crash, from the list of dead messages, or in a simulation) sees the same asker.
/// The log records the sender of a message and the timer that fired. A client's command keeps its caller until it is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker<'a> {
    /// A client, or the service's own code. Holds the name of the caller, if it was authenticated (by the gateway, with a token
    /// or a certificate).
    Client(Option<&'a str>),
    /// Another entity, which sent a message or forwarded a command.
    Entity {
        /// The sender's kind.
        kind: &'a str,
        /// The sender's id within its kind.
        id: &'a str,
    },
    /// A timer of the entity itself, by its name.
    Timer(&'a str),
    /// The engine, which brings the outcome of a request that this entity has made.
    Outcome {
        /// The kind of the entity that was asked.
        kind: &'a str,
        /// The id.
        id: &'a str,
    },
}

impl<'a> Asker<'a> {
    /// The authenticated name of the caller, if a client asks.
    #[must_use]
    pub fn caller(self) -> Option<&'a str> {
        match self {
            Self::Client(caller) => caller,
            _ => None,
        }
    }

    /// A client asks, or the service's own code.
    #[must_use]
    pub fn is_client(self) -> bool {
        matches!(self, Self::Client(_))
    }
}
