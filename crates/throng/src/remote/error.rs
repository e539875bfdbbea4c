//! Errors on their way between nodes.

use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
    time::Duration,
};
use throng_core::{
    model::Error,
    shard::{JsonRejection, Registry},
};

/// An [`Error`] on its way between nodes, variant by variant. A rejection is reduced to [`JsonRejection`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each stands for what has its name in Error")]
pub enum RemoteError {
    Rejected {
        code: String,
        status: u16,
        field: Option<String>,
        message: String,
        #[serde(with = "serde_bytes")]
        body: Vec<u8>,
    },
    /// [`Error::Unknown`]: kind and id.
    Unknown(String, String),
    /// [`Error::Ended`]: kind and id.
    Ended(String, String),
    Malformed(String),
    /// [`Error::TooLarge`]: the value, its size, and the limit.
    TooLarge(String, u64, u64),
    KeyReused(String),
    KeyRefused(String),
    Overloaded(Duration),
    StorageFull(Duration),
    Unavailable(String),
    Expired,
    OutcomeUnknown,
    Crashed(String),
    /// [`Error::Quarantined`]: address, event and reason. The event is `BY_OPERATOR` if an operator has quarantined it.
    Quarantined(String, u64, String),
}

/// A number that no event has, in place of one. Nodes of older programs take it for an event's.
const BY_OPERATOR: u64 = u64::MAX;

impl From<Error<JsonRejection>> for RemoteError {
    fn from(error: Error<JsonRejection>) -> Self {
        match error {
            Error::Rejected(rejection) => Self::Rejected {
                code: rejection.code.to_owned(),
                status: rejection.status,
                field: rejection.field.map(str::to_owned),
                message: rejection.message,
                body: rejection.body,
            },
            Error::Unknown { kind, id } => Self::Unknown(kind.to_owned(), id),
            Error::Ended { kind, id } => Self::Ended(kind.to_owned(), id),
            Error::Malformed(why) => Self::Malformed(why),
            Error::TooLarge { what, found, limit } => Self::TooLarge(what.to_owned(), found as u64, limit as u64),
            Error::KeyReused(key) => Self::KeyReused(key),
            Error::KeyRefused(key) => Self::KeyRefused(key),
            Error::Overloaded { retry_after } => Self::Overloaded(retry_after),
            Error::StorageFull { retry_after } => Self::StorageFull(retry_after),
            Error::Unavailable { reason } => Self::Unavailable(reason),
            Error::Expired => Self::Expired,
            Error::OutcomeUnknown => Self::OutcomeUnknown,
            Error::Crashed { reason } => Self::Crashed(reason),
            Error::Quarantined {
                address,
                seq,
                reason,
                by_operator,
            } => Self::Quarantined(address, if by_operator { BY_OPERATOR } else { seq }, reason),
        }
    }
}

impl RemoteError {
    /// Converts it to the error of this engine's users.
    pub(crate) fn into_error(self, registry: &Registry) -> Error<JsonRejection> {
        let known = |kind: String| {
            let index = registry.find(&kind);
            index.map_or_else(|| word(kind), |index| registry.kinds()[index].name)
        };
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        match self {
            Self::Rejected {
                code,
                status,
                field,
                message,
                body,
            } => Error::Rejected(JsonRejection {
                code: word(code),
                status,
                field: field.map(word),
                message,
                body,
            }),
            Self::Unknown(kind, id) => Error::Unknown { kind: known(kind), id },
            Self::Ended(kind, id) => Error::Ended { kind: known(kind), id },
            Self::Malformed(why) => Error::Malformed(why),
            Self::TooLarge(what, found, limit) => Error::TooLarge {
                what: word(what),
                found: size(found),
                limit: size(limit),
            },
            Self::KeyReused(key) => Error::KeyReused(key),
            Self::KeyRefused(key) => Error::KeyRefused(key),
            Self::Overloaded(retry_after) => Error::Overloaded { retry_after },
            Self::StorageFull(retry_after) => Error::StorageFull { retry_after },
            Self::Unavailable(reason) => Error::Unavailable { reason },
            Self::Expired => Error::Expired,
            Self::OutcomeUnknown => Error::OutcomeUnknown,
            Self::Crashed(reason) => Error::Crashed { reason },
            Self::Quarantined(address, seq, reason) => Error::Quarantined {
                address,
                seq: if seq == BY_OPERATOR { 0 } else { seq },
                reason,
                by_operator: seq == BY_OPERATOR,
            },
        }
    }
}

/// The most words of other nodes' programs that are kept.
const WORDS_MAX: usize = 4_096;

/// Returns a word of another node's program as a static text: codes and fields of rejections are few and always the same, so they are
/// kept for ever.
fn word(word: String) -> &'static str {
    static WORDS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut words = WORDS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = words.get(&*word) {
        return known;
    }
    if words.len() >= WORDS_MAX {
        return "unknown";
    }
    let kept: &'static str = Box::leak(word.into_boxed_str());
    words.insert(kept);
    kept
}
