//! Operator actions: retrying or dropping a dead message, cancelling a timer that cannot fire, quarantining or releasing an entity, and
//! dropping the messages that wait for it.

use super::{Attempt, Execution, Executor, Outgoing, Retry, ShardExecution, Target, Wait, Work};
use crate::{
    commit::{Refusal, Staging},
    executor::batch,
};
use std::sync::Arc;
use throng_core::{
    limits,
    model::Error,
    shard::{Delivery, KnownDead, OperatorDecision, Outcome, Shard},
};
use throng_journal::Address;

impl Executor {
    /// Executes an operator action. Its answer rests on the record of the action. [`Outcome::Refused`]: the state was already the wanted
    /// one.
    pub(super) fn operator_action(
        &self,
        shard: &mut Shard,
        attempt: &mut Attempt<'_>,
        staging: &mut Staging<'_>,
    ) -> ShardExecution {
        let done = match &mut attempt.work {
            Work::Drop(dead, by) => {
                if let Some(progress) = dead.prepare(shard) {
                    return progress;
                }
                let dropped = dead.delivery.take().map(|delivery| {
                    let now = self.context.host.now();
                    shard.drop_message(&delivery, now, by, staging)
                });
                match dropped {
                    Some(Err(why)) => return Execution::Refused(Error::Malformed(why)),
                    dropped => dropped.and_then(Result::ok),
                }
            }
            Work::CancelTimer(name, by) => {
                let of = self.address(&attempt.target);
                let cancelled = shard.cancel_late_timer(&of, name, by, staging);
                if cancelled.is_none() {
                    return unknown("timer that could not be fired", &format!("{name} of {of}"));
                }
                cancelled
            }
            Work::Quarantine(by) => {
                let Target { kind, hash, id } = &attempt.target;
                if !shard.may_know(*kind, *hash) {
                    return unknown(self.context.registry.kinds()[*kind].name, id);
                }
                let (of, now) = (self.address(&attempt.target), self.context.host.now());
                let Some(commit) = shard.quarantine_by_operator(&of, now, by, staging) else {
                    return Execution::Done(Outcome::Refused);
                };
                tracing::warn!("{of} is quarantined by {}: {}", by.by, by.reason);
                self.outbox.quarantine(&of, &by.reason, now);
                Some(commit)
            }
            Work::Release(by) => {
                let of = self.address(&attempt.target);
                let released = shard.release_by_operator(&of, by, staging);
                self.outbox.release(&of);
                let Target { kind, hash, id } = &attempt.target;
                // The entity may also be one that cannot be loaded.
                let is_loadable = shard.release(*kind, *hash, id);
                if released.is_none() && !is_loadable {
                    return Execution::Done(Outcome::Refused);
                }
                released
            }
            _ => None,
        };
        if let Some(commit) = done {
            attempt.rests_on(self.group_commit.writer, commit);
        }
        Execution::Done(Outcome::Done)
    }

    pub(super) fn address(&self, target: &Target<'_>) -> Address {
        Address::new(self.context.registry.kinds()[target.kind].name, &*target.id)
    }

    /// Drops waiting messages to an entity, and returns how many were neither taken nor dropped before. `None`: no operator has quarantined
    /// it.
    #[expect(clippy::vec_box, reason = "the outbox holds them in boxes")]
    pub(crate) async fn drop_waiting(
        self: &Arc<Self>,
        to: &Address,
        messages: Vec<Box<Outgoing>>,
        by: OperatorDecision<'static>,
    ) -> Result<Option<u64>, Refusal> {
        let (executor, to) = (self.clone(), to.clone());
        let shard = self.shard_of(limits::hash(&to.kind, &to.id));
        let dropped = self.visit(shard, move |shard| {
            if !shard.is_quarantined_by_operator(&to) {
                return Ok(None);
            }
            let (now, mut staging) = (executor.context.host.now(), executor.group_commit.staging());
            let mut dropped = 0;
            for outgoing in messages {
                if shard.is_taken(&outgoing.delivery.taking) {
                    continue;
                }
                let done = shard.drop_message(&outgoing.delivery, now, &by, &mut staging);
                done.map_err(Error::Malformed)?;
                dropped += 1;
                let told = shard.take_outbox();
                executor
                    .outbox
                    .push(told.into_iter().map(|delivery| executor.outgoing(delivery)));
            }
            Ok(Some(dropped))
        });
        let dropped = dropped.await?;
        batch::wake_committer(&self.context);
        self.context.signals.deliver.wake();
        dropped
    }
}

fn unknown(kind: &'static str, id: &str) -> ShardExecution {
    Execution::Refused(Error::Unknown { kind, id: id.into() })
}

impl Retry {
    /// Finds the message; `Some` if it cannot be tried now.
    pub(super) fn prepare(&mut self, shard: &mut Shard) -> Option<ShardExecution> {
        let unknown = || Some(unknown("dead message", &self.name));
        let value = match shard.known_dead(&self.row) {
            KnownDead::Dead(value) => value,
            KnownDead::NotDead => return unknown(),
            KnownDead::Stored(now) => match self.stored.take() {
                Some((seen, None)) if seen == now => return unknown(),
                Some((seen, Some(value))) if seen == now => value,
                // A checkpoint has moved it meanwhile, or it was not looked for yet.
                _ => return Some(Execution::Wait(Wait::DeadMessage(now))),
            },
        };
        match Delivery::again(&self.row, &value) {
            Ok(delivery) => {
                self.delivery = Some(delivery);
                None
            }
            Err(why) => {
                let name = &self.name;
                let why = format!("the dead message {name} cannot be read: {why}");
                Some(Execution::Refused(Error::Malformed(why)))
            }
        }
    }
}
