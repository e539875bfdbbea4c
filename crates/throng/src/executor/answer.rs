//! The answer of an attempt, and the place it goes to.

use std::any::Any;
use throng_core::{
    model::Error,
    shard::{JsonRejection, JsonReply},
};
use throng_journal::Position;

/// The answer of another node: its JSON, or its error.
pub(crate) type Answered = Result<Vec<u8>, Error<JsonRejection>>;

/// The place that an answer goes to, and the answer once it is there.
pub(crate) enum AnswerSlot {
    /// An `Answered<E>`, or what a [`Look`](super::Look) knows.
    Typed(Typed),
    Json(JsonReply),
    Nobody,
    /// The command was forwarded as a message: another entity answers.
    Remote(tokio::sync::oneshot::Receiver<ForwardedReply>),
}

/// The slot for a typed answer, whoever gives it.
pub(crate) struct Typed {
    pub(crate) slot: Box<dyn Any + Send>,
    /// Puts what another node has answered into the slot.
    pub(crate) read: fn(&mut (dyn Any + Send), Answered),
}

/// The answer to a command that was forwarded as a message, and what it rests on.
pub(crate) struct ForwardedReply {
    pub(crate) answer: AnswerSlot,
    pub(crate) rests_on: Position,
}

impl AnswerSlot {
    /// Puts another node's answer into its place. Without effect if nobody waits here for one.
    pub(crate) fn put(&mut self, answer: Answered) {
        match self {
            Self::Typed(typed) => (typed.read)(typed.slot.as_mut(), answer),
            Self::Json(reply) => {
                *reply = match answer {
                    Ok(body) => JsonReply { body, error: None },
                    Err(error) => JsonReply {
                        body: Vec::new(),
                        error: Some(Box::new(error)),
                    },
                }
            }
            Self::Nobody | Self::Remote(_) => {}
        }
    }
}
