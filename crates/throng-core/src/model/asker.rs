//! The sender of a command.

/// The sender of a command or query, as [`Turn::from`](super::Turn::from) returns it.
///
/// It is the same for a command that is executed again, after a crash, from the list of dead messages, or in a simulation: who sent a
/// message and which timer fired stands in the log, and a client's command that was not executed yet keeps its caller until it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker<'a> {
    /// A client, or the service's own code: with the name of the caller, if somebody has made sure of it (the gateway, of a token or a
    /// certificate).
    Client(Option<&'a str>),
    /// Another entity, with a message, or by forwarding what it was asked itself.
    Entity {
        /// The sender's kind.
        kind: &'a str,
        /// The sender's id within its kind.
        id: &'a str,
    },
    /// A timer of the entity itself, by its name.
    Timer(&'a str),
    /// The engine, with what came of a request of the entity's own.
    Outcome {
        /// The kind of the entity that was asked.
        kind: &'a str,
        /// The id.
        id: &'a str,
    },
}

impl<'a> Asker<'a> {
    /// The name of the caller, where a client asks and somebody has made sure of it.
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
