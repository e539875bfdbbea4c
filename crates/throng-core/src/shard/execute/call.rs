//! The input and the result of a call to a shard.

use super::outcome::{Answered, JsonRejection, JsonReply, Outcome, put_json};
use crate::{
    model::{Asker, Entity, Error, Moment, Sent, Timestamp},
    shard::{Delivery, Due, KeyLife, MessageContent, RequestOutcome, Taking},
    trace_context::TraceContext,
};
use std::any::Any;
use throng_journal::CommitBuilder;

/// Answers a query of a kind, given the state, the circumstances and the arguments.
pub(crate) type QueryFn<E> = fn(&E, &Moment<'_, E>, &str, &mut JsonReply);
/// Makes a command of an outcome: given the id, the note and the outcome.
pub(crate) type HearFn<E> = fn(&str, &str, &[u8]) -> Result<<E as Entity>::Command, String>;

/// The receiver of a command's records: the open commit, while the shard's lock is held.
pub trait Stage {
    /// Takes the records of one command. It must take all of them.
    fn stage(&mut self, records: &mut CommitBuilder) -> Staged;
}

/// The place of staged records in the open commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Staged {
    /// The number of the open commit.
    pub commit: u64,
    /// The difference between a body's offset within the commit and its offset within the records given.
    pub shift: u32,
}

/// A command in one of its forms.
pub enum Input<'a> {
    /// An `Option<Command>` of the entity, taken out once it is looked at.
    Typed(&'a mut (dyn Any + Send)),
    /// A command's name and its content as JSON.
    Json {
        /// The variant's name.
        name: &'a str,
        /// Its content; empty is `{}`.
        body: &'a [u8],
    },
    /// The outcome of a request.
    Outcome(&'a RequestOutcome),
}

/// The receiver of the answer.
pub enum Output<'a> {
    /// An `Option<Result<Reply, Error<Rejection>>>` of the entity.
    Typed(&'a mut (dyn Any + Send)),
    /// The answer is written as JSON.
    Json(&'a mut JsonReply),
    /// The answer is dropped; only the [`Outcome`] is kept.
    Nobody,
}

/// The cause of a call.
#[derive(Clone, Copy)]
pub enum Cause<'a> {
    /// A client asks, or an app's own code.
    Asked {
        /// Takes effect once under this key.
        key: Option<&'a str>,
        /// The time the key is kept.
        life: KeyLife,
        /// The name of the caller, if somebody has made sure of it.
        caller: Option<&'a str>,
        /// The entity that has forwarded it.
        forwarded: Option<&'a Forwarder>,
    },
    /// A message from another entity.
    Message(&'a Taking),
    /// A timer of the entity is due.
    Timer(&'a Due),
}

/// The entity that has forwarded a client's command without recording anything, or forwards it again.
#[derive(Clone, Debug)]
pub struct Forwarder {
    /// The entity that the client asked.
    pub address: throng_journal::Address,
    /// True if the forwarder becomes the parent of an entity that the command creates, as with
    /// [`CommandAnswer::create`](crate::model::CommandAnswer::create).
    pub is_parent: bool,
}

impl Call<'_> {
    pub(crate) fn asker(&self) -> Asker<'_> {
        if let Input::Outcome(outcome) = &self.input {
            let (kind, id) = &outcome.from;
            return Asker::Outcome { kind, id };
        }
        let sender = match self.cause {
            Cause::Timer(due) => return Asker::Timer(&due.name),
            Cause::Message(taking) => &taking.sender,
            Cause::Asked { caller, forwarded, .. } => match forwarded {
                None => return Asker::Client(caller),
                Some(by) => &by.address,
            },
        };
        Asker::Entity {
            kind: &sender.kind,
            id: &sender.id,
        }
    }
}

impl Delivery {
    /// Returns the input for a call with this message, and its cause.
    pub fn parts(&mut self) -> (Input<'_>, &Taking) {
        let taking = &self.taking;
        let input = match &mut self.content {
            MessageContent::Typed(command) => Input::Typed(command.as_mut()),
            MessageContent::Recorded => Input::Json {
                name: &taking.name,
                body: taking.command.get().as_bytes(),
            },
            MessageContent::Outcome(heard) => Input::Outcome(heard),
        };
        (input, taking)
    }
}

pub(crate) fn put<E: Entity>(output: &mut Output<'_>, answer: Result<E::Reply, Error<E::Rejection>>) {
    match output {
        Output::Nobody => {}
        Output::Typed(slot) => {
            let slot: &mut dyn Any = *slot;
            if let Some(slot) = slot.downcast_mut::<Answered<E>>() {
                *slot = Some(answer);
            }
        }
        Output::Json(reply) => match answer {
            Ok(value) => put_json(reply, &value),
            Err(error) => {
                reply.error = Some(Box::new(match error.engine::<JsonRejection>() {
                    Ok(error) => error,
                    Err(rejection) => Error::Rejected(rejection.into()),
                }));
            }
        },
    }
}

/// A command for an entity, with its caller and the receiver of the answer.
pub struct Call<'a> {
    /// The kind's index in the registry.
    pub kind: usize,
    /// Hash of kind and id, see [`crate::limits::hash`].
    pub hash: u64,
    /// The entity's id.
    pub id: &'a str,
    /// The time. The entity may see a later one, because a shard's clock never goes back.
    pub now: Timestamp,
    /// A number that nobody can guess.
    pub entropy: u128,
    /// The command, typed or as JSON.
    pub input: Input<'a>,
    /// The receiver of the answer.
    pub output: Output<'a>,
    /// The cause: a client, a message or a timer.
    pub cause: Cause<'a>,
    /// True if a command that this program does not understand is left to a newer one ([`Ran::NotUnderstood`]).
    pub may_wait: bool,
    /// The span of this turn, if its trace is recorded. The messages that the turn sends carry it.
    pub trace: Option<TraceContext>,
}

/// A named query with its arguments as a query string.
pub struct QueryCall<'a> {
    /// The kind's index in the registry.
    pub kind: usize,
    /// Hash of kind and id.
    pub hash: u64,
    /// The entity's id.
    pub id: &'a str,
    /// The query's name.
    pub name: &'a str,
    /// Its fields, `a=1&b=x`.
    pub arguments: &'a str,
    /// The time. The query may see a later one, because a shard's clock never goes back.
    pub now: Timestamp,
    /// The name of the caller, if somebody has made sure of it.
    pub caller: Option<&'a str>,
    /// The receiver of the answer.
    pub output: &'a mut JsonReply,
}

/// The result of a call.
pub enum Ran {
    /// The call was answered. The answer must not leave before the commit `rests_on` is durable; 0: it may leave at once.
    Done {
        /// The number of the commit it rests on.
        rests_on: u64,
        /// The answer, or the reason why there is none.
        outcome: Outcome,
    },
    /// The entity is not in memory. Load it ([`crate::shard::Shard::load_request`]), and call again. Nothing was changed.
    Load,
    /// The rows of this idempotency key are not in memory. Look it up ([`crate::shard::Shard::key_rows`]), and call again. Nothing was
    /// changed.
    LoadKey,
    /// This program does not know the command, cannot read it, or cannot load the entity, for this reason; a newer one may. Nothing was
    /// changed.
    NotUnderstood(String),
    /// An operator has quarantined the entity, for this reason, so a message waits until it is released. Nothing was changed.
    Quarantined(String),
    /// Another entity answers. The input was moved.
    Forward(Box<Forward>),
    /// Another entity answers a command that was forwarded under this idempotency key before.
    ForwardAgain(Box<ForwardAgain>),
}

impl Ran {
    pub(crate) fn done(rests_on: u64, outcome: Outcome) -> Self {
        Self::Done { rests_on, outcome }
    }
}

/// A command that another entity is to answer.
pub struct Forward {
    /// The other entity, and the command for it.
    pub to: Sent,
    /// The message as which the command was recorded, if the forwarding entity recorded other effects with it. The receiver takes it under
    /// this number, exactly once.
    pub taking: Option<Taking>,
    /// The idempotency key to ask under.
    pub key: Option<String>,
    /// The number of the commit it rests on.
    pub rests_on: u64,
}

/// A command that was forwarded to another entity before, under the same idempotency key.
pub struct ForwardAgain {
    /// The entity to ask.
    pub to: throng_journal::Address,
    /// The command's name.
    pub name: String,
    /// The command's content as JSON.
    pub body: String,
    /// The idempotency key to ask under.
    pub key: String,
    /// True if the command was forwarded to create a child.
    pub is_child: bool,
    /// The number of the commit it rests on.
    pub rests_on: u64,
}
