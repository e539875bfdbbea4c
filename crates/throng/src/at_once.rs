//! Running a command that needs to wait for nothing: its entity is in memory and free, and there is room. Most are such, and
//! then neither a task nor a copy of the request is needed.

use crate::{
    engine::{Inner, Status},
    json::PlainCommand,
    life::Life,
    run::{Executed, Reply, Told},
    share,
};
use std::{convert::Infallible, future::Future, pin::Pin, sync::Arc};
use throng_core::{
    limits,
    model::Error,
    shard::{Call, Cause, Input, JsonReply, Ran, Shard},
};

/// A command that was executed.
pub(crate) enum Now {
    /// Its answer is here.
    Here(Executed),
    /// It was forwarded as a message: its answer comes, and rests on what is durable then.
    Elsewhere(Pin<Box<dyn Future<Output = Result<Reply, Error<Infallible>>> + Send>>),
}

impl Inner {
    /// Runs a command; `None` if it would have to wait or cannot be taken, and then nothing was done that running it again does
    /// once more.
    pub(crate) fn execute_now(self: &Arc<Self>, command: &PlainCommand<'_>) -> Option<Now> {
        let kind = self.registry.kinds().get(command.kind)?;
        let is_key = |key: &str| (1..=limits::NAME_BYTES_MAX).contains(&key.len());
        if !limits::is_id(command.id) || !command.key.is_none_or(is_key) || self.is_stopping() {
            return None;
        }
        let hash = limits::hash(kind.name, command.id);
        if share::may_be_hot(hash) {
            return None;
        }
        let life = match &*self.status() {
            Status::Running(life) if self.journal.holds(life.writer) => life.clone(),
            _ => return None,
        };
        if !self.has_room(&life) {
            return None;
        }
        let begun = self.host.elapsed_micros();
        let until = begun.saturating_add(u64::try_from(command.deadline.as_micros()).unwrap_or(u64::MAX));
        let mut reply = Reply::Json(JsonReply::default());
        let run = |shard: &mut Shard| self.run_now(&life, shard, (command, hash, begun), &mut reply);
        let (ran, sent, answer) = life.shard_of(hash).try_enter(run)??;
        let Ran::Done { rests_on, outcome } = ran else {
            // It has to be loaded, or asked elsewhere. Nothing was recorded but, under a key, where it was forwarded to: it is
            // found when it is run again.
            return None;
        };
        self.count(outcome);
        if sent {
            self.pump(&life, self.options.deliveries_per_turn);
        }
        Some(match answer {
            None => Now::Here(Executed {
                reply,
                life,
                rests_on,
                until,
            }),
            Some(answer) => {
                let inner = self.clone();
                Now::Elsewhere(Box::pin(async move {
                    inner.answered(&life, (rests_on, until), answer).await
                }))
            }
        })
    }

    fn run_now(
        self: &Arc<Self>,
        life: &Life,
        shard: &mut Shard,
        (command, hash, begun): (&PlainCommand<'_>, u64, u64),
        reply: &mut Reply,
    ) -> Option<(Ran, bool, Option<Told>)> {
        if life.is_over() {
            return None;
        }
        let mut staging = life.staging();
        let mut call = Call {
            kind: command.kind,
            hash,
            id: command.id,
            now: self.host.now(),
            entropy: self.host.entropy(),
            input: Input::Json {
                name: command.name,
                body: command.body,
            },
            output: reply.output(),
            cause: Cause::Asked {
                key: command.key,
                caller: None,
                parent: None,
            },
        };
        let mut ran = self.watched(life, shard, &mut call, begun, &mut staging);
        let first = staging.first;
        let (sent, answer) = self.send_on(life, shard, &mut ran, reply);
        self.after(life, shard, first);
        Some((ran, sent, answer))
    }
}
