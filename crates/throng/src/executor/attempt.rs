//! An execution as a value: what is asked of which entity, by whatever brought it, and where the answer goes.

use super::{
    Execution,
    answer::AnswerSlot,
    outbox::{Outgoing, Waiter},
    share,
};
use crate::{
    commit::{Origin, Refusal},
    spans::TraceContext,
};
use std::{any::Any, borrow::Cow};
use throng_core::{
    limits,
    model::Timestamp,
    shard::{
        Call, Cause, Delivery, Due, Forward, ForwardAgain, Forwarder, Input, KeyLife, MessageContent, OperatorDecision,
        Outcome, Output, QueryCall, Ran, Registry, Shard,
    },
};
use throng_journal::{Address, CommitNo, Position, WriterId};

/// A piece of work for one entity, tried again and again until it is done or refused.
/// Its progress (it was admitted, it was forwarded) stays with it, so that nothing is done twice.
pub struct Attempt<'a> {
    pub(crate) target: Target<'a>,
    pub(crate) work: Work<'a>,
    pub(crate) answer: AnswerSlot,
    /// When its answer is waited for no longer, by the host's clock.
    pub(crate) until: u64,
    /// The host's clock at the last look.
    pub(super) now: u64,
    /// The commit that its answer rests on so far. While there is one, no other writer may execute the attempt.
    pub(crate) rests_on: Option<Position>,
    /// The budget has let it in.
    pub(super) is_admitted: bool,
    /// True once it has waited for its entity's share of the batch.
    pub(super) has_share: bool,
    /// Messages were sent by it that nobody has begun to deliver.
    pub(crate) has_sent: bool,
    /// The time for which the idempotency key of its command is kept.
    pub(crate) key_life: KeyLife,
    /// No newer release lived after it came: what this program does not understand of it, nobody does.
    pub(crate) is_final: bool,
    /// The span of its request, if that trace is recorded.
    pub(crate) trace: Option<Box<TraceContext>>,
}

/// The entity that is asked.
#[derive(Clone, Debug)]
pub(crate) struct Target<'a> {
    /// The kind's index in the registry.
    pub(crate) kind: usize,
    /// The hash of kind and id.
    pub(crate) hash: u64,
    pub(crate) id: Cow<'a, str>,
}

/// The work that is asked for, and its origin.
pub(crate) enum Work<'a> {
    /// A command from outside.
    Command(ClientCommand<'a>),
    /// A query from outside.
    Query {
        name: Cow<'a, str>,
        /// Its fields, `a=1&b=x`.
        arguments: Cow<'a, str>,
        caller: Option<Cow<'a, str>>,
    },
    /// A look at an entity's typed state, from outside.
    Look(Look),
    /// A message from another entity.
    Message(Box<Outgoing>),
    /// A message nobody can take, with the reason.
    DeadLetter(Box<Outgoing>, String),
    /// A dead message that is tried again.
    Retry(Box<Retry>),
    /// A dead message that a person drops.
    Drop(Box<Retry>, OperatorDecision<'static>),
    /// A timer that is due.
    Timer(Box<Due>),
    /// A timer that is due and whose kind the engine was not given.
    ClearTimer(Box<Due>),
    /// A timer that could not be fired, by its name, and that a person cancels.
    CancelTimer(Box<str>, OperatorDecision<'static>),
    /// An entity that an operator quarantines.
    Quarantine(OperatorDecision<'static>),
    /// An entity whose quarantine an operator ends.
    Release(OperatorDecision<'static>),
}

/// Looks, and puts what it found into the answer.
type LookFn = dyn FnMut(&mut Shard, Timestamp, &Target<'_>, &mut AnswerSlot) -> Ran + Send;

/// A look at an entity's typed state.
pub(crate) struct Look {
    pub(crate) look: Box<LookFn>,
    /// The query that asks another node for the same; `None` where nobody else can be asked.
    pub(crate) remote: Option<Asking>,
    /// An administrator looks: that is no load.
    pub(crate) is_inspection: bool,
}

/// A typed query, for another node.
#[derive(Clone)]
pub(crate) struct Asking {
    pub(crate) name: &'static str,
    /// Its fields as JSON.
    pub(crate) arguments: String,
    pub(crate) caller: Option<String>,
}

/// A command from outside.
pub(crate) struct ClientCommand<'a> {
    pub(crate) input: Payload<'a>,
    /// The idempotency key, under which the command takes effect once.
    pub(crate) key: Option<Cow<'a, str>>,
    pub(crate) caller: Option<Cow<'a, str>>,
    /// The entity that has forwarded it.
    pub(crate) forwarded: Option<Box<Forwarder>>,
}

/// A command's content.
pub(crate) enum Payload<'a> {
    /// The entity's `Option<Command>`.
    Typed(Box<dyn Any + Send>),
    Json {
        name: Cow<'a, str>,
        body: Cow<'a, [u8]>,
    },
}

/// A dead message that is looked for, to be tried again or dropped.
pub(crate) struct Retry {
    /// The message's name, as operators write it.
    pub(crate) name: String,
    /// Its row in the store.
    pub(crate) row: Vec<u8>,
    /// The content of that row in the store, with the version of the shard's knowledge at the time of reading.
    pub(crate) stored: Option<(u64, Option<Vec<u8>>)>,
    /// The message, as it is delivered now.
    pub(crate) delivery: Option<Delivery>,
}

/// The outcome of trying an attempt under its shard's lock. The answer is the attempt's, and so is what it rests on.
pub(crate) type ShardExecution = Execution<Outcome, Wait, Refusal>;

/// The reason why an attempt has to wait.
pub(crate) enum Wait {
    /// The open commit is full: until the one of this number is durable.
    Commit(u64),
    /// Somebody holds the shard's lock.
    Lock,
    /// The lock of another entity's shard, where it goes on; or its own, where it is tried again as [final](Attempt::is_final).
    Next,
    /// Its entity is not in memory.
    Load,
    /// Memory does not tell whether its idempotency key was used.
    Key,
    /// Its dead message stands in the store. What is read there counts while the shard knows this version.
    DeadMessage(u64),
    /// Its entity has had its share of this turn, and others wait.
    Share(share::Ticket),
    /// Another node owns its entity's shard.
    Remote,
    /// This program does not understand it, for this reason: until it is known whether a newer release lives.
    Upgrade(String),
    /// An operator has quarantined its entity, for this reason: until that is released.
    Release(String),
    /// The stream ends in order: the next epoch does it. Of this one nothing is in doubt.
    NextEpoch,
}

/// The outcome of carrying an attempt through its waits.
pub(crate) enum Carried {
    /// Executed here; its answer rests on this epoch's commits.
    Done(Outcome),
    /// Another node has executed it, and its answer rests on nothing here.
    Answered(Outcome),
    /// The stream has ended in order, or its shard's owner is not known now: it is to be tried again, by the epoch of then.
    Again,
    /// Nothing was done: this program does not understand it, for this reason. A newer one may, as long as it is not
    /// [final](Attempt::is_final).
    NotUnderstood(String),
    /// Nothing was done: an operator has quarantined its entity, for this reason.
    Quarantined(String),
}

impl<'a> Attempt<'a> {
    pub(crate) fn new(target: Target<'a>, work: Work<'a>, answer: AnswerSlot, (now, until): (u64, u64)) -> Self {
        // Work that only looks takes no room in a commit, and is answered while the journal stalls.
        let is_admitted = matches!(work, Work::Query { .. } | Work::Look(_));
        Self {
            target,
            work,
            answer,
            until,
            now,
            rests_on: None,
            is_admitted,
            has_share: false,
            has_sent: false,
            key_life: KeyLife::default(),
            is_final: false,
            trace: None,
        }
    }

    /// The same, with nothing borrowed.
    #[must_use]
    pub fn into_owned(self) -> Attempt<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        Attempt {
            target: Target {
                kind: self.target.kind,
                hash: self.target.hash,
                id: owned(self.target.id),
            },
            work: match self.work {
                Work::Command(command) => Work::Command(ClientCommand {
                    input: match command.input {
                        Payload::Typed(command) => Payload::Typed(command),
                        Payload::Json { name, body } => Payload::Json {
                            name: owned(name),
                            body: Cow::Owned(body.into_owned()),
                        },
                    },
                    key: command.key.map(owned),
                    caller: command.caller.map(owned),
                    forwarded: command.forwarded,
                }),
                Work::Query {
                    name,
                    arguments,
                    caller,
                } => Work::Query {
                    name: owned(name),
                    arguments: owned(arguments),
                    caller: caller.map(owned),
                },
                Work::Look(look) => Work::Look(look),
                Work::Message(message) => Work::Message(message),
                Work::DeadLetter(message, reason) => Work::DeadLetter(message, reason),
                Work::Retry(retry) => Work::Retry(retry),
                Work::Drop(dead, by) => Work::Drop(dead, by),
                Work::Timer(due) => Work::Timer(due),
                Work::ClearTimer(due) => Work::ClearTimer(due),
                Work::CancelTimer(name, by) => Work::CancelTimer(name, by),
                Work::Quarantine(by) => Work::Quarantine(by),
                Work::Release(by) => Work::Release(by),
            },
            answer: self.answer,
            until: self.until,
            now: self.now,
            rests_on: self.rests_on,
            is_admitted: self.is_admitted,
            has_share: self.has_share,
            has_sent: self.has_sent,
            key_life: self.key_life,
            is_final: self.is_final,
            trace: self.trace,
        }
    }

    /// The host's clock when it was made, or at the last look.
    pub(crate) fn made(&self) -> u64 {
        self.now
    }

    /// Sets its clock to now: the time it has waited is not its own work.
    pub(crate) fn has_waited(&mut self, now: u64) {
        self.now = now;
    }

    /// Somebody asked, it is not the engine's own work.
    pub(super) fn is_from_outside(&self) -> bool {
        self.origin() != Origin::Inside
    }

    pub(super) fn origin(&self) -> Origin {
        match self.work {
            Work::Command(_) | Work::Query { .. } | Work::Look(_) => Origin::Outside,
            Work::Retry(_) | Work::Drop(..) | Work::CancelTimer(..) | Work::Quarantine(_) | Work::Release(_) => {
                Origin::Operator
            }
            Work::Message(_) | Work::DeadLetter(..) | Work::Timer(_) | Work::ClearTimer(_) => Origin::Inside,
        }
    }

    pub(super) fn only_reads(&self) -> bool {
        matches!(self.work, Work::Query { .. } | Work::Look(_))
    }

    /// Tells whether an administrator looks at the entity, which nobody counts.
    pub(super) fn is_inspection(&self) -> bool {
        matches!(&self.work, Work::Look(look) if look.is_inspection)
    }

    /// The idempotency key it takes effect under.
    pub(crate) fn key(&self) -> Option<&str> {
        match &self.work {
            Work::Command(command) => command.key.as_deref(),
            Work::Message(message) => message.delivery.taking.key.as_deref(),
            Work::Retry(retry) => retry.delivery.as_ref()?.taking.key.as_deref(),
            _ => None,
        }
    }

    /// Returns the sender and the receiver of a message; `None` for other work.
    pub(crate) fn pair(&self) -> Option<(Address, Address)> {
        match &self.work {
            Work::Message(message) | Work::DeadLetter(message, _) => {
                let delivery = &message.delivery;
                Some((delivery.taking.sender.clone(), delivery.to.clone()))
            }
            _ => None,
        }
    }

    /// Its answer rests on this commit, too.
    pub(super) fn rests_on(&mut self, writer: WriterId, commit: u64) {
        let before = self.rests_on.map_or(0, |at| at.commit.0);
        self.rests_on = Some(Position::new(writer, CommitNo(commit.max(before))));
    }

    /// Has it done by the shard, whose lock is held.
    pub(super) fn run(
        &mut self,
        shard: &mut Shard,
        moment: Moment,
        run: impl FnOnce(&mut Shard, &mut Call<'_>) -> Ran,
    ) -> Ran {
        let Target { kind, hash, id } = &self.target;
        let (input, cause) = match &mut self.work {
            Work::Query {
                name,
                arguments,
                caller,
            } => {
                let AnswerSlot::Json(output) = &mut self.answer else {
                    return NOTHING;
                };
                return shard.query(&mut QueryCall {
                    kind: *kind,
                    hash: *hash,
                    id,
                    name,
                    arguments,
                    now: moment.now,
                    caller: caller.as_deref(),
                    output,
                });
            }
            Work::Look(look) => return (look.look)(shard, moment.now, &self.target, &mut self.answer),
            Work::Command(command) => {
                let input = match &mut command.input {
                    Payload::Typed(command) => Input::Typed(command.as_mut()),
                    Payload::Json { name, body } => Input::Json { name, body },
                };
                let cause = Cause::Asked {
                    key: command.key.as_deref(),
                    life: self.key_life,
                    caller: command.caller.as_deref(),
                    forwarded: command.forwarded.as_deref(),
                };
                (input, cause)
            }
            Work::Message(message) => {
                let (input, taking) = message.delivery.parts();
                (input, Cause::Message(taking))
            }
            // Work that needs no entity was done before.
            Work::DeadLetter(..)
            | Work::ClearTimer(_)
            | Work::Drop(..)
            | Work::CancelTimer(..)
            | Work::Quarantine(_)
            | Work::Release(_) => return NOTHING,
            Work::Retry(retry) => {
                let Some(delivery) = &mut retry.delivery else {
                    return NOTHING;
                };
                let (input, taking) = delivery.parts();
                (input, Cause::Message(taking))
            }
            Work::Timer(due) => {
                let due = &**due;
                let input = Input::Json {
                    name: &due.command,
                    body: &due.body,
                };
                (input, Cause::Timer(due))
            }
        };
        let now = match &cause {
            Cause::Timer(due) => moment.now.max(due.at),
            _ => moment.now,
        };
        let mut call = Call {
            kind: *kind,
            hash: *hash,
            id,
            now,
            entropy: moment.entropy,
            input,
            output: match &mut self.answer {
                AnswerSlot::Typed(answer) => Output::Typed(answer.slot.as_mut()),
                AnswerSlot::Json(reply) => Output::Json(reply),
                AnswerSlot::Nobody | AnswerSlot::Remote(_) => Output::Nobody,
            },
            cause,
            may_wait: moment.may_wait,
            trace: None,
        };
        run(shard, &mut call)
    }

    /// Redirects it to the entity that its command was forwarded to.
    pub(super) fn forward(&mut self, registry: &Registry, forward: Forward) -> Result<(), String> {
        let Forward { to, key, .. } = forward;
        let (kind, id) = (to.kind.clone(), to.id.clone());
        let MessageContent::Typed(command) = MessageContent::typed(to) else {
            return Err(format!("what was forwarded to {kind}/{id} is no command"));
        };
        self.retarget(registry, (&kind, id), key, false, Payload::Typed(command))
    }

    /// Redirects it to the entity that its command was forwarded to before, under the same key.
    pub(super) fn forward_again(&mut self, registry: &Registry, again: ForwardAgain) -> Result<(), String> {
        let ForwardAgain {
            to,
            name,
            body,
            key,
            is_child,
            ..
        } = again;
        let payload = Payload::Json {
            name: name.into(),
            body: body.into_bytes().into(),
        };
        self.retarget(registry, (&to.kind, to.id.into()), Some(key), is_child, payload)
    }

    fn retarget(
        &mut self,
        registry: &Registry,
        (kind, id): (&str, String),
        key: Option<String>,
        is_child: bool,
        input: Payload<'static>,
    ) -> Result<(), String> {
        let index = registry.find(kind);
        let index = index.ok_or_else(|| format!("the engine was not given the kind {kind:?}"))?;
        let caller = match &mut self.work {
            Work::Command(command) => command.caller.take(),
            Work::Message(message) => {
                self.key_life = message.delivery.taking.life;
                None
            }
            Work::Retry(retry) => {
                self.key_life = retry
                    .delivery
                    .as_ref()
                    .map_or(self.key_life, |delivery| delivery.taking.life);
                None
            }
            _ => None,
        };
        let forwarder = Forwarder {
            address: Address::new(registry.kinds()[self.target.kind].name, &*self.target.id),
            is_parent: is_child,
        };
        self.target = Target {
            kind: index,
            hash: limits::hash(kind, &id),
            id: id.into(),
        };
        self.work = Work::Command(ClientCommand {
            input,
            key: key.map(Cow::Owned),
            caller,
            forwarded: Some(Box::new(forwarder)),
        });
        Ok(())
    }

    /// Another entity answers: whoever waits for the answer hears it from there.
    pub(super) fn hand_over_waiter(&mut self) -> Option<Waiter> {
        let answer = std::mem::replace(&mut self.answer, AnswerSlot::Nobody);
        match &mut self.work {
            Work::Message(message) => {
                let tell = message.waiter.take()?.tell;
                Some(Waiter { answer, tell })
            }
            Work::Command(_) => {
                let (tell, told) = tokio::sync::oneshot::channel();
                self.answer = AnswerSlot::Remote(told);
                Some(Waiter { answer, tell })
            }
            _ => None,
        }
    }
}

/// The time of day, a number nobody can guess, and whether what is not understood is left for a newer program.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    pub(super) now: Timestamp,
    pub(super) entropy: u128,
    pub(super) may_wait: bool,
}

/// There was nothing to do.
pub(crate) const NOTHING: Ran = Ran::Done {
    rests_on: 0,
    outcome: Outcome::Done,
};
