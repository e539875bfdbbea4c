//! Attempts that another node executes, because it owns the entity's shard.

use super::{Attempt, Carried, ClientCommand, Executor, Payload, Work};
use crate::{
    commit::{Refusal, recovering},
    context::Context,
    remote::{Ask, Asked, Reply, Request},
};
use std::{sync::Arc, time::Duration};
use throng_core::{
    model::Error,
    shard::{JsonRejection, Outcome},
};
use throng_journal::{Later, ShardId, ShardSet, features::TRACES};

/// The longest wait of a request for the next epoch, and for the owner of a shard to be known.
pub(crate) const HOLD: Duration = Duration::from_secs(2);
/// The interval between two attempts to find a shard's owner.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Asks the owner of a shard, repeatedly until there is an answer. For requests that may be repeated.
pub(crate) struct OwnerOf<'a> {
    context: &'a Context,
    shard: ShardId,
    hold: u64,
    until: u64,
}

impl<'a> OwnerOf<'a> {
    pub(crate) fn new(context: &'a Context, shard: ShardId) -> Self {
        Self {
            context,
            shard,
            hold: context.until(Some(HOLD)),
            until: context.until(Some(context.options.deadline)),
        }
    }

    /// Bounds the wait for an answer to `at_most`, instead of the usual deadline.
    pub(crate) fn within(mut self, at_most: Duration) -> Self {
        self.until = self.context.until(Some(at_most));
        self
    }

    /// Asks once. A reply without an answer is to be repeated, to the owner at that time, unless this returns an error.
    pub(crate) fn ask(&self, request: Request) -> Later<'_, Result<Reply, Error<JsonRejection>>> {
        Box::pin(async move {
            let host = &self.context.host;
            let left = Duration::from_micros(self.until.saturating_sub(host.elapsed_micros()));
            let reply = match &self.context.peers {
                Some(peers) => peers.ask(self.shard, request, left).await,
                None => Reply::NotHere,
            };
            match reply {
                Reply::Refused(error) => return Err(error.into_error(&self.context.registry)),
                Reply::History { .. } | Reply::Erased { .. } | Reply::Operated(_) => {}
                // A node that no longer owns the shard answers for others.
                Reply::Listed { ref shards, .. }
                | Reply::Recorded { ref shards }
                | Reply::Pruned { ref shards, .. }
                | Reply::Dropped { ref shards, .. }
                | Reply::Fields { ref shards, .. }
                    if ShardSet::from_bytes(shards).contains(self.shard) => {}
                _ if host.elapsed_micros() >= self.hold.min(self.until) => {
                    return Err(Error::Unavailable {
                        reason: "the node that owns a part of it cannot be reached".into(),
                    });
                }
                _ => host.sleep(LOOK_AGAIN).await,
            }
            Ok(reply)
        })
    }
}

impl Executor {
    /// Has the owner of its shard execute the attempt.
    ///
    /// # Errors
    /// The refusal, or `OutcomeUnknown` if it may have been executed.
    pub(super) fn ask_owner<'a>(
        self: &'a Arc<Self>,
        mut attempt: Attempt<'static>,
    ) -> Later<'a, Result<(Attempt<'static>, Carried), Refusal>> {
        Box::pin(async move {
            let Some(peers) = self.context.peers.clone() else {
                return Err(recovering());
            };
            // Its effects on this node become durable before another node continues it.
            if let Some(at) = attempt.rests_on.take() {
                self.group_commit.wait_until(at.commit.0, attempt.until).await?;
            }
            let ask = self.ask(&mut attempt)?;
            let host = &self.context.host;
            let left = Duration::from_micros(attempt.until.saturating_sub(host.elapsed_micros()));
            if left.is_zero() {
                return Err(Error::Expired);
            }
            // A query, or a command with a key, may be repeated.
            let may_repeat = match &ask.what {
                Asked::Query { .. } => true,
                Asked::Command { key, .. } => key.is_some(),
            };
            let shard = self.shard_of(attempt.target.hash);
            let span = attempt
                .trace
                .as_deref()
                .filter(|_| peers.without_feature(TRACES).is_none());
            let request = match span {
                Some(span) => Request::AskTraced(ask, span.to_string()),
                None => Request::Ask(ask),
            };
            let answer = match peers.ask(shard, request, left).await {
                Reply::Done(body) => Ok(body),
                Reply::Refused(error) => Err(error.into_error(&self.context.registry)),
                Reply::NotHere
                | Reply::Taken(_)
                | Reply::History { .. }
                | Reply::Listed { .. }
                | Reply::Erased { .. }
                | Reply::Recorded { .. }
                | Reply::Pruned { .. }
                | Reply::Operated(_)
                | Reply::Dropped { .. }
                | Reply::Fields { .. } => {
                    host.sleep(LOOK_AGAIN).await;
                    return Ok((attempt, Carried::Again));
                }
                Reply::Unknown if may_repeat && host.elapsed_micros() < attempt.until => {
                    host.sleep(LOOK_AGAIN).await;
                    return Ok((attempt, Carried::Again));
                }
                Reply::Unknown => return Err(Error::OutcomeUnknown),
            };
            let outcome = match &answer {
                Ok(_) => Outcome::Done,
                Err(Error::Rejected(_)) => Outcome::Refused,
                Err(_) => Outcome::Failed,
            };
            attempt.answer.put(answer);
            Ok((attempt, Carried::Answered(outcome)))
        })
    }

    /// Returns the request that has another node execute the attempt.
    fn ask(&self, attempt: &mut Attempt<'static>) -> Result<Ask, Refusal> {
        let kind = &self.context.registry.kinds()[attempt.target.kind];
        let caller;
        let what = match &mut attempt.work {
            Work::Command(command) => {
                caller = command.caller.as_deref().map(str::to_owned);
                let (name, body) = match &command.input {
                    Payload::Json { name, body } => (name.to_string(), body.to_vec()),
                    Payload::Typed(typed) => {
                        let mut body = Vec::new();
                        let name = kind.encode_command(typed.as_ref(), &mut body);
                        let name = name
                            .map_err(|why| Error::Malformed(format!("the command cannot be written as JSON: {why}")))?;
                        (name.to_owned(), body)
                    }
                };
                Asked::Command {
                    name,
                    body,
                    key: command.key.as_deref().map(str::to_owned),
                    life: attempt.key_life,
                    forwarded: command.forwarded.as_ref().map(|by| {
                        let (kind, id) = (by.address.kind.to_string(), by.address.id.to_string());
                        (kind, id, by.is_parent)
                    }),
                }
            }
            Work::Query {
                name,
                arguments,
                caller: by,
            } => {
                caller = by.as_deref().map(str::to_owned);
                Asked::Query {
                    name: name.to_string(),
                    arguments: arguments.to_string(),
                }
            }
            Work::Look(look) => {
                let Some(asking) = look.remote.clone() else {
                    return Err(Error::Malformed(
                        "this can only be looked at by the node that owns the entity".into(),
                    ));
                };
                caller = asking.caller;
                Asked::Query {
                    name: asking.name.to_owned(),
                    arguments: asking.arguments,
                }
            }
            _ => return Err(recovering()),
        };
        Ok(Ask {
            kind: kind.name.to_owned(),
            id: attempt.target.id.to_string(),
            what,
            caller,
        })
    }
}

/// Returns the work of an attempt that another node asks for.
pub(crate) fn command_of(ask: Asked, caller: Option<String>) -> (Work<'static>, throng_core::shard::KeyLife) {
    match ask {
        Asked::Command {
            name,
            body,
            key,
            life,
            forwarded,
        } => {
            let forwarded = forwarded.map(|(kind, id, is_parent)| {
                Box::new(throng_core::shard::Forwarder {
                    address: throng_journal::Address::new(kind, id),
                    is_parent,
                })
            });
            let input = Payload::Json {
                name: name.into(),
                body: body.into(),
            };
            let command = ClientCommand {
                input,
                key: key.map(Into::into),
                caller: caller.map(Into::into),
                forwarded,
            };
            (Work::Command(command), life)
        }
        Asked::Query { name, arguments } => {
            let work = Work::Query {
                name: name.into(),
                arguments: arguments.into(),
                caller: caller.map(Into::into),
            };
            (work, throng_core::shard::KeyLife::default())
        }
    }
}
