//! The errors that a caller gets instead of a reply.

use std::time::Duration;

/// A refusal by the entity or by the engine. The variant tells whether it is safe to try again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error<R> {
    /// The entity refused. Nothing was done.
    #[error("{0}")]
    Rejected(R),
    /// The id has no events, and the command does not create.
    #[error("there is no {kind} {id:?}")]
    Unknown {
        /// The kind asked.
        kind: &'static str,
        /// The id asked.
        id: String,
    },
    /// The entity has [ended](super::Turn::end), and the command is not one that creates it anew: nothing was done.
    #[error("{kind} {id:?} has ended")]
    Ended {
        /// The kind asked.
        kind: &'static str,
        /// The id asked.
        id: String,
    },
    /// The command, key or id is malformed: nothing was done.
    #[error("{0}")]
    Malformed(String),
    /// A value is larger than its limit: nothing was done.
    #[error("{what} {}, at most {limit} are allowed; nothing was done", size(what, *found))]
    TooLarge {
        /// A noun: a value whose bytes are limited, or "the number of …".
        what: &'static str,
        /// Its size, or the size of the part that was read.
        found: usize,
        /// The most that is allowed.
        limit: usize,
    },
    /// Another command was accepted under this idempotency key: nothing was done.
    #[error("the idempotency key {0:?} was used for another command; use a fresh key for each command")]
    KeyReused(String),
    /// The same command was refused under this idempotency key: nothing was done, even if the entity would accept it now.
    #[error("the command was refused under the idempotency key {0:?} before; use a fresh key to ask again")]
    KeyRefused(String),
    /// Too many commands wait: nothing was done.
    #[error("overloaded; nothing was done; try again in {retry_after:?}")]
    Overloaded {
        /// The earliest time at which another attempt makes sense.
        retry_after: Duration,
    },
    /// The journal is full: nothing was done. Reads go on.
    #[error("the journal's storage is full; nothing was done; try again in {retry_after:?}")]
    StorageFull {
        /// The earliest time at which another attempt makes sense.
        retry_after: Duration,
    },
    /// The journal or store cannot be reached, or the engine is starting or stopping: nothing was done.
    #[error("unavailable; nothing was done: {reason}")]
    Unavailable {
        /// The fault, in a sentence.
        reason: String,
    },
    /// The deadline passed before the command was executed: nothing was done.
    #[error("the deadline passed before the command was looked at; nothing was done")]
    Expired,
    /// The command may have been executed or not: the outcome is not known yet.
    #[error("the command may have taken effect; ask again with the same idempotency key")]
    OutcomeUnknown,
    /// The user's code panicked: the command had no effect.
    #[error("the command crashed and had no effect: {reason}")]
    Crashed {
        /// The panic's message.
        reason: String,
    },
    /// The entity cannot be loaded (this program cannot apply its history, or its rows cannot be read), or an operator has quarantined
    /// it.
    #[error("{address} is quarantined{}: {reason}", since(*seq, *by_operator))]
    Quarantined {
        /// The entity, as `kind/id`.
        address: String,
        /// The event that cannot be applied; 0 if its rows cannot be read.
        seq: u64,
        /// The event or row that cannot be applied or read, in a sentence, or the operator's reason.
        reason: String,
        /// True if an operator quarantined it, and can release it.
        by_operator: bool,
    },
}

impl<R> Error<R> {
    /// Converts an engine's error to another rejection type. A rejection is returned as `Err`.
    pub fn engine<S>(self) -> Result<Error<S>, R> {
        Ok(match self {
            Self::Rejected(rejection) => return Err(rejection),
            Self::Unknown { kind, id } => Error::Unknown { kind, id },
            Self::Ended { kind, id } => Error::Ended { kind, id },
            Self::Malformed(why) => Error::Malformed(why),
            Self::TooLarge { what, found, limit } => Error::TooLarge { what, found, limit },
            Self::KeyReused(key) => Error::KeyReused(key),
            Self::KeyRefused(key) => Error::KeyRefused(key),
            Self::Overloaded { retry_after } => Error::Overloaded { retry_after },
            Self::StorageFull { retry_after } => Error::StorageFull { retry_after },
            Self::Unavailable { reason } => Error::Unavailable { reason },
            Self::Expired => Error::Expired,
            Self::OutcomeUnknown => Error::OutcomeUnknown,
            Self::Crashed { reason } => Error::Crashed { reason },
            Self::Quarantined {
                address,
                seq,
                reason,
                by_operator,
            } => Error::Quarantined {
                address,
                seq,
                reason,
                by_operator,
            },
        })
    }
}

fn size(what: &str, found: usize) -> String {
    match what.starts_with("the number of ") {
        true => format!("is {found}"),
        false => format!("has {found} bytes"),
    }
}

fn since(seq: u64, by_operator: bool) -> String {
    match seq {
        _ if by_operator => " by an operator or the engine".into(),
        0 => String::new(),
        seq => format!(" since event {seq}"),
    }
}
