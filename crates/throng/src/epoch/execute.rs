//! Attempts, tried by the epoch that runs and carried through all that they wait for.

use super::{Epoch, Epochs, Executed};
use crate::{
    commit::{Refusal, widen},
    executor::{Attempt, Carried, Execution, HOLD, ShardExecution},
};
use std::sync::Arc;
use throng_core::{limits, model::Error, shard::JsonRejection};

/// An attempt that has to wait, and for what.
pub struct Waiting<'a> {
    attempt: Attempt<'a>,
    /// The epoch that tried it, and what it waits for there. `None` while no epoch runs.
    tried: Option<(Arc<Epoch>, ShardExecution)>,
}

impl Waiting<'_> {
    /// The same, with nothing borrowed.
    #[must_use]
    pub fn into_owned(self) -> Waiting<'static> {
        Waiting {
            attempt: self.attempt.into_owned(),
            tried: self.tried,
        }
    }
}

impl Epochs {
    /// Tries an attempt here and now, without waiting for anything.
    pub(crate) fn try_now<'a>(
        &self,
        mut attempt: Attempt<'a>,
    ) -> Execution<Executed, Waiting<'a>, Error<JsonRejection>> {
        let epoch = match self.current() {
            Ok(epoch) => epoch,
            Err(_) if self.is_short() => return Execution::Wait(Waiting { attempt, tried: None }),
            Err(error) => return Execution::Refused(error),
        };
        match epoch.try_now(&mut attempt) {
            Execution::Done(outcome) => {
                self.context.count(&attempt, outcome);
                Execution::Done(Executed::of(epoch, attempt, outcome))
            }
            Execution::Refused(refusal) => Execution::Refused(widen(refusal)),
            execution @ Execution::Wait(_) => Execution::Wait(Waiting {
                attempt,
                tried: Some((epoch, execution)),
            }),
        }
    }

    /// The epoch that answers for an entity, if this node owns it.
    pub(crate) fn owner_of(&self, kind: usize, id: &str) -> Result<Option<Arc<Epoch>>, Error<JsonRejection>> {
        let hash = self.context.target::<JsonRejection>(kind, id.into())?.hash;
        let shard = limits::shard_of(hash, self.context.registry.shards());
        let epoch = match self.current() {
            // The next one answers, here or elsewhere.
            Err(_) if self.is_short() => return Ok(None),
            epoch => epoch?,
        };
        Ok(epoch.group_commit.shards.contains(shard).then_some(epoch))
    }

    /// Goes on with an attempt that has to wait.
    pub(crate) async fn execute(&self, waiting: Waiting<'static>) -> Result<Executed, Refusal> {
        let Waiting { mut attempt, mut tried } = waiting;
        let hold = self.context.until(Some(HOLD));
        loop {
            let (epoch, execution) = match tried.take() {
                Some(tried) => tried,
                None => {
                    let epoch = self.next(attempt.until).await?;
                    attempt.has_waited(self.context.host.elapsed_micros());
                    let execution = epoch.try_now(&mut attempt);
                    (epoch, execution)
                }
            };
            let carried;
            (attempt, carried) = epoch.carry(attempt, execution).await?;
            match carried {
                Carried::Done(outcome) => {
                    self.context.count(&attempt, outcome);
                    return Ok(Executed::of(epoch, attempt, outcome));
                }
                Carried::Answered(outcome) => {
                    self.context.count(&attempt, outcome);
                    return Ok(Executed::remote(attempt, outcome));
                }
                Carried::Again if self.context.host.elapsed_micros() >= hold.min(attempt.until) => {
                    return Err(Error::Unavailable {
                        reason: "the node that owns the entity cannot be reached".into(),
                    });
                }
                // Never of what comes from outside.
                Carried::NotUnderstood(why) | Carried::Quarantined(why) => return Err(Error::Malformed(why)),
                Carried::Again => {}
            }
        }
    }

    /// Has an attempt done that nothing is borrowed by.
    pub(crate) async fn run(&self, attempt: Attempt<'static>) -> Result<Executed, Refusal> {
        self.execute(Waiting { attempt, tried: None }).await
    }
}
