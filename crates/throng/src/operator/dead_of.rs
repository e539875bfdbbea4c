//! Retries or drops all dead messages of a kind or of one cause with one call.

use super::{
    OperatorResult,
    dead::{DeadFilter, Retried},
    owned,
};
use crate::{commit::recovering, delivery::all, engine::Engine};
use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};
use throng_core::{model::Error, shard::OperatorDecision};
use throng_journal::{Address, ShardId};

/// The number of messages after which the store is left to other tasks for a moment.
const PAGE: usize = 256;
/// The number of receivers whose messages are handled concurrently. Those of one receiver are handled in order.
const RECEIVERS_MAX: usize = 32;

/// The number of dead messages that were handled, by outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadDone {
    /// Retried, and taken.
    pub taken: u64,
    /// Retried, and refused by the receiver.
    pub refused: u64,
    /// Retried, and dead again.
    pub dead: u64,
    /// Dropped.
    pub dropped: u64,
    /// The reason why not all were handled. The others are unchanged.
    pub stopped: Option<String>,
}

impl DeadDone {
    fn is_nothing(&self) -> bool {
        let Self {
            taken,
            refused,
            dead,
            dropped,
            ..
        } = self;
        taken + refused + dead + dropped == 0
    }
}

impl Engine {
    /// Retries all dead messages of a filter, each once: those to one entity in order, those to several concurrently. Once begun, it is
    /// completed even if the caller stops waiting.
    ///
    /// # Errors
    /// The engine's error, if nothing was done.
    pub async fn retry_dead_of(&self, of: DeadFilter) -> OperatorResult<DeadDone> {
        self.do_dead(of, None).await
    }

    /// Drops all dead messages of a filter, each as by [`drop_dead`](Self::drop_dead). Once begun, it is completed likewise.
    ///
    /// # Errors
    /// The engine's error, if nothing was done.
    pub async fn drop_dead_of(&self, of: DeadFilter, by: OperatorDecision<'_>) -> OperatorResult<DeadDone> {
        self.do_dead(of, Some(owned(by))).await
    }

    /// Runs on a thread of the engine's: it may take long, and the caller's thread may be a loop.
    async fn do_dead(&self, of: DeadFilter, dropped_by: Option<OperatorDecision<'static>>) -> OperatorResult<DeadDone> {
        self.core.context.may_change()?;
        let (engine, (tell, told)) = (self.clone(), tokio::sync::oneshot::channel());
        self.core.context.host.spawn(Box::pin(async move {
            let _ = tell.send(engine.do_all_dead(&of, dropped_by.as_ref()).await);
        }));
        told.await.unwrap_or_else(|_| Err(recovering()))
    }

    async fn do_all_dead(
        &self,
        of: &DeadFilter,
        dropped_by: Option<&OperatorDecision<'static>>,
    ) -> OperatorResult<DeadDone> {
        let (done, mut after) = (Mutex::new(DeadDone::default()), None);
        loop {
            let page = match self.dead_messages(of.to(), after.as_deref(), PAGE).await {
                Ok(page) => page,
                Err(why) => return stopped(done, why),
            };
            let mut to_one: BTreeMap<Address, Vec<(ShardId, u64)>> = BTreeMap::new();
            for message in page.messages.into_iter().filter(|message| of.is_meant(message)) {
                to_one.entry(message.receiver).or_default().push(message.number);
            }
            let mut to_one = to_one.into_iter();
            loop {
                let failed = Mutex::new(None);
                let some = to_one.by_ref().take(RECEIVERS_MAX);
                let futures: Vec<_> = some
                    .map(|(to, numbers)| {
                        let (done, failed) = (&done, &failed);
                        Box::pin(async move {
                            if let Err(why) = self.do_dead_to(&to, &numbers, dropped_by, done).await {
                                *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
                            }
                        })
                    })
                    .collect();
                if futures.is_empty() {
                    break;
                }
                all(futures).await;
                if let Some(why) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
                    return stopped(done, why);
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(done.into_inner().unwrap_or_else(PoisonError::into_inner));
            }
        }
    }

    /// Handles the messages to one entity.
    async fn do_dead_to(
        &self,
        to: &Address,
        numbers: &[(ShardId, u64)],
        dropped_by: Option<&OperatorDecision<'static>>,
        done: &Mutex<DeadDone>,
    ) -> OperatorResult<()> {
        let is_known = self.core.context.registry.find(&to.kind).is_some();
        for number in numbers {
            let came = match dropped_by {
                Some(by) => self
                    .drop_dead(&to.kind, &to.id, *number, by.clone())
                    .await
                    .map(|()| None),
                None if is_known => self.retry_dead(&to.kind, &to.id, *number).await.map(Some),
                None => Ok(Some(Retried::Dead(String::new()))),
            };
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            match came {
                Ok(None) => done.dropped += 1,
                Ok(Some(Retried::Done)) => done.taken += 1,
                Ok(Some(Retried::Refused(_))) => done.refused += 1,
                Ok(Some(Retried::Dead(_))) => done.dead += 1,
                // Another caller was faster.
                Err(Error::Unknown { .. }) => {}
                Err(why) => return Err(why),
            }
        }
        Ok(())
    }
}

/// Returns the messages that were handled before this failure.
fn stopped(done: Mutex<DeadDone>, why: Error<throng_core::shard::JsonRejection>) -> OperatorResult<DeadDone> {
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    if done.is_nothing() {
        return Err(why);
    }
    done.stopped = Some(why.to_string());
    Ok(done)
}
