//! Answers, typed or as JSON.

use crate::model::{Entity, Error, Rejection};
use serde::{Deserialize, Serialize};

/// The outcome of a command, without its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Accepted, with or without an event.
    Done,
    /// The entity refused.
    Refused,
    /// The engine refused.
    Failed,
}

/// A rejection as JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct JsonRejection {
    /// The rejection's stable code.
    pub code: &'static str,
    /// The HTTP status that the rejection sets.
    pub status: u16,
    /// The field at fault.
    pub field: Option<&'static str>,
    /// The rejection in a sentence.
    pub message: String,
    /// The rejection itself as JSON.
    pub body: Vec<u8>,
}

/// An answer as JSON.
#[derive(Debug, Default)]
pub struct JsonReply {
    /// The reply as JSON; empty if there is an error.
    pub body: Vec<u8>,
    /// The error. Boxed, because most answers have none and every answer is moved several times.
    pub error: Option<Box<Error<JsonRejection>>>,
}

impl<E: Rejection> From<E> for JsonRejection {
    fn from(rejection: E) -> Self {
        Self {
            code: rejection.code(),
            status: rejection.status(),
            field: rejection.field(),
            message: rejection.to_string(),
            body: serde_json::to_vec(&rejection).unwrap_or_default(),
        }
    }
}

/// The slot into which a typed asker's answer is put.
pub(crate) type Answered<E> = Option<Result<<E as Entity>::Reply, Error<<E as Entity>::Rejection>>>;

pub(crate) fn put_json<T: Serialize>(reply: &mut JsonReply, value: &T) {
    reply.body.clear();
    if let Err(why) = serde_json::to_writer(&mut reply.body, value) {
        reply.error = Some(Box::new(Error::Crashed {
            reason: format!("the reply cannot be written as JSON: {why}"),
        }));
    }
}
