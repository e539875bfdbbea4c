//! An executed attempt, and its answer.

use super::Epoch;
use crate::{
    commit::{Refusal, widen},
    executor::{AnswerSlot, Answered, Attempt, ForwardedReply},
};
use std::{
    sync::Arc,
    task::{Context, Poll, Waker},
};
use throng_core::{
    model::Error,
    shard::{JsonRejection, JsonReply, Outcome},
};
use throng_journal::{Later, Position};

/// An attempt that was executed. Its answer may leave once what it rests on is durable.
pub struct Executed(Answering);

enum Answering {
    Entity(Entity),
    /// Another node has answered; it rests on nothing here.
    Peer(AnswerSlot, Outcome),
    /// An actor answers, or an entity that was asked by another one.
    Later(Later<'static, Answered>),
}

/// An entity answers, or another one it was forwarded to.
struct Entity {
    epoch: Arc<Epoch>,
    answer: AnswerSlot,
    rests_on: u64,
    until: u64,
    outcome: Outcome,
    /// The task that is woken when the answer may leave.
    woken: Option<Waker>,
}

impl Executed {
    pub(crate) fn of(epoch: Arc<Epoch>, attempt: Attempt<'_>, outcome: Outcome) -> Self {
        Self(Answering::Entity(Entity {
            epoch,
            answer: attempt.answer,
            rests_on: attempt.rests_on.map_or(0, |at| at.commit.0),
            until: attempt.until,
            outcome,
            woken: None,
        }))
    }

    pub(crate) fn remote(attempt: Attempt<'_>, outcome: Outcome) -> Self {
        Self(Answering::Peer(attempt.answer, outcome))
    }

    #[cfg(feature = "services")]
    pub(crate) fn of_actor(answer: Later<'static, Answered>) -> Self {
        Self(Answering::Later(answer))
    }

    /// Returns the commit that the answer rests on: it may leave once that is durable. `None` for an actor's, and for another node's.
    #[must_use]
    pub fn rests_on(&self) -> Option<Position> {
        match &self.0 {
            Answering::Entity(entity) => Some(entity.epoch.group_commit.position(entity.rests_on)),
            Answering::Peer(..) | Answering::Later(_) => None,
        }
    }

    /// The answer, if it may leave now; given once, like [`answer`](Self::answer)'s. For who looks after many at once, and has
    /// itself [woken](Self::wake_at) for the one it waits for.
    pub fn answer_now(&mut self) -> Option<Result<Vec<u8>, Error<JsonRejection>>> {
        let entity = match &mut self.0 {
            Answering::Entity(entity) => entity,
            Answering::Peer(answer, _) => return Some(json(std::mem::replace(answer, AnswerSlot::Nobody))),
            Answering::Later(_) => return None,
        };
        if matches!(entity.answer, AnswerSlot::Remote(_)) {
            return None;
        }
        let durable = entity.epoch.group_commit.durable_now(entity.rests_on, entity.until)?;
        Some(durable.and_then(|()| json(entity.take())))
    }

    /// Has this waker told when [`answer_now`](Self::answer_now) may say more, or its deadline has passed. `false`: it may
    /// already, or its answer comes from elsewhere and can only be waited for.
    #[must_use]
    pub fn wake_at(&self, waker: &Waker) -> bool {
        match &self.0 {
            Answering::Entity(entity) if !self.is_remote() => {
                entity.epoch.group_commit.wake_at(entity.rests_on, entity.until, waker)
            }
            _ => false,
        }
    }

    /// The answer once it may leave; given once, like [`answer`](Self::answer)'s. Leaves one waker behind, however often it is polled.
    pub fn poll_answer(&mut self, context: &mut Context<'_>) -> Poll<Result<Vec<u8>, Error<JsonRejection>>> {
        loop {
            if let Some(answer) = self.answer_now() {
                return Poll::Ready(answer);
            }
            if let Answering::Entity(entity) = &mut self.0
                && matches!(entity.answer, AnswerSlot::Remote(_))
            {
                let mut entity = entity.take_all();
                self.0 = Answering::Later(Box::pin(async move { json(entity.settled().await.map_err(widen)?) }));
            }
            let entity = match &mut self.0 {
                Answering::Entity(entity) => entity,
                Answering::Later(answer) => return answer.as_mut().poll(context),
                Answering::Peer(..) => return Poll::Ready(Err(Error::OutcomeUnknown)),
            };
            let waker = context.waker();
            if entity.woken.as_ref().is_some_and(|woken| woken.will_wake(waker)) {
                return Poll::Pending;
            }
            if entity.epoch.group_commit.wake_at(entity.rests_on, entity.until, waker) {
                entity.woken = Some(waker.clone());
                return Poll::Pending;
            }
        }
    }

    /// Its answer comes from another entity or an actor: it can only be waited for.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        match &self.0 {
            Answering::Entity(entity) => matches!(entity.answer, AnswerSlot::Remote(_)),
            Answering::Peer(..) => false,
            Answering::Later(_) => true,
        }
    }

    /// Returns whether it was executed and its answer is a refusal.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        let answer = match &self.0 {
            Answering::Entity(Entity { answer, .. }) | Answering::Peer(answer, _) => answer,
            Answering::Later(_) => return false,
        };
        matches!(answer, AnswerSlot::Json(reply) if reply.error.is_some())
    }

    /// Bytes of the answer, as far as they are known already.
    #[must_use]
    pub fn answer_bytes(&self) -> usize {
        match &self.0 {
            Answering::Entity(Entity { answer, .. }) | Answering::Peer(answer, _) => match answer {
                AnswerSlot::Json(reply) => reply.body.len(),
                _ => 0,
            },
            Answering::Later(_) => 0,
        }
    }

    /// The answer as JSON, once it may leave; it is given once. By reference, so that what waits stays where it is.
    ///
    /// # Errors
    /// The entity's "no", or the engine's.
    pub async fn answer(&mut self) -> Result<Vec<u8>, Error<JsonRejection>> {
        match &mut self.0 {
            Answering::Entity(entity) => json(entity.settled().await.map_err(widen)?),
            Answering::Peer(answer, _) => json(std::mem::replace(answer, AnswerSlot::Nobody)),
            Answering::Later(answer) => answer.await,
        }
    }

    /// Returns its outcome.
    pub(crate) fn outcome(&self) -> Outcome {
        match &self.0 {
            Answering::Entity(entity) => entity.outcome,
            Answering::Peer(_, outcome) => *outcome,
            Answering::Later(_) => Outcome::Done,
        }
    }

    /// The answer as it was asked for, once it may leave.
    pub(crate) async fn settled(self) -> Result<AnswerSlot, Refusal> {
        match self.0 {
            Answering::Entity(mut entity) => entity.settled().await,
            Answering::Peer(answer, _) => Ok(answer),
            Answering::Later(_) => Err(Error::OutcomeUnknown),
        }
    }
}

impl Entity {
    /// The whole of it, of which nothing stays here.
    fn take_all(&mut self) -> Self {
        Self {
            epoch: self.epoch.clone(),
            answer: self.take(),
            woken: None,
            ..*self
        }
    }

    fn take(&mut self) -> AnswerSlot {
        std::mem::replace(&mut self.answer, AnswerSlot::Nobody)
    }

    async fn settled(&mut self) -> Result<AnswerSlot, Refusal> {
        let group_commit = &self.epoch.group_commit;
        let AnswerSlot::Remote(told) = &mut self.answer else {
            group_commit.wait_until(self.rests_on, self.until).await?;
            return Ok(self.take());
        };
        let told = group_commit.in_time(self.until, told).await;
        let Ok(Some(Ok(ForwardedReply { answer, rests_on }))) = told else {
            return Err(Error::OutcomeUnknown);
        };
        // The answer may be lost where the message it answers is not: that will be taken again.
        let rests_on = self.rests_on.max(rests_on.commit.0);
        let durable: Result<(), Refusal> = group_commit.wait_until(rests_on, self.until).await;
        durable.map_err(|_| Error::OutcomeUnknown)?;
        Ok(answer)
    }
}

fn json(answer: AnswerSlot) -> Answered {
    match answer {
        AnswerSlot::Json(JsonReply { error: Some(error), .. }) => Err(*error),
        AnswerSlot::Json(reply) => Ok(reply.body),
        _ => Err(Error::OutcomeUnknown),
    }
}
