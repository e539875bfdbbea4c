//! The settings of a request: its caller, its idempotency key, its deadline.

use super::{AnswerSlot, Attempt, ClientCommand, Target, Work};
use crate::{
    context::{Context, micros},
    spans::TraceContext,
};
use std::borrow::Cow;
use throng_core::{
    limits,
    model::Error,
    shard::{JsonRejection, KeyLife, Outcome},
};
use throng_journal::Address;

impl<'a> Attempt<'a> {
    /// Has the command take effect once under this key (1 to 255 bytes). A repetition within an hour gets the same answer.
    ///
    /// # Errors
    /// `Malformed`: the key is empty or too long.
    pub fn once(mut self, key: impl Into<Cow<'a, str>>) -> Result<Self, Error<JsonRejection>> {
        let key = key.into();
        check_key(&key)?;
        if let Work::Command(command) = &mut self.work {
            command.key = Some(key);
        }
        Ok(self)
    }

    /// Sets the time for which the key of [`once`](Self::once) is kept, instead of an hour.
    /// It should be as long as the same command may be repeated.
    #[must_use]
    pub fn key_life(mut self, life: KeyLife) -> Self {
        self.key_life = life;
        self
    }

    /// Limits the wait for its answer, counted from the creation of the attempt.
    #[must_use]
    pub fn within(mut self, deadline: std::time::Duration) -> Self {
        self.until = self.made().saturating_add(micros(deadline));
        self
    }

    /// Makes its turn a part of this span, whose trace is recorded. The messages and the commit of the turn refer to the span.
    #[must_use]
    pub fn traced(mut self, span: TraceContext) -> Self {
        self.trace = Some(Box::new(span));
        self
    }

    /// Names the caller, as the entity sees it in [`Asker::Client`](throng_core::model::Asker).
    #[must_use]
    pub fn caller(mut self, by: impl Into<Cow<'a, str>>) -> Self {
        if let Work::Command(ClientCommand { caller, .. }) | Work::Query { caller, .. } = &mut self.work {
            *caller = Some(by.into());
        }
        self
    }
}

pub(crate) fn check_key<R>(key: &str) -> Result<(), Error<R>> {
    if (1..=limits::NAME_BYTES_MAX).contains(&key.len()) {
        return Ok(());
    }
    Err(Error::Malformed(format!(
        "an idempotency key has 1 to {} bytes",
        limits::NAME_BYTES_MAX
    )))
}

impl Context {
    /// An entity, or an actor, of a kind.
    pub(crate) fn target<'a, R>(&self, kind: usize, id: Cow<'a, str>) -> Result<Target<'a>, Error<R>> {
        let registry = &self.registry;
        let name = registry.kinds().get(kind).map(|kind| kind.name);
        let limit = Address::ID_BYTES_MAX;
        match id.len() {
            _ if limits::is_id(&id) => Ok(Target {
                kind,
                hash: name.map_or(0, |name| limits::hash(name, &id)),
                id,
            }),
            0 => Err(Error::Malformed("the id is empty; an id has 1 to 256 bytes".into())),
            found => Err(Error::TooLarge {
                what: "the id",
                found,
                limit,
            }),
        }
    }

    /// Work on an entity, to be tried.
    pub(crate) fn attempt<'a>(&self, target: Target<'a>, work: Work<'a>, answer: AnswerSlot) -> Attempt<'a> {
        let now = self.host.elapsed_micros();
        let until = now.saturating_add(micros(self.options.deadline));
        Attempt::new(target, work, answer, (now, until))
    }

    /// Counts an executed attempt.
    pub(crate) fn count(&self, attempt: &Attempt<'_>, outcome: Outcome) {
        let metrics = &self.metrics;
        match (&attempt.work, outcome) {
            (Work::Look(look), _) if look.is_inspection => 0,
            (Work::Query { .. } | Work::Look(_), _) => metrics.queries.inc(),
            (Work::Drop(..) | Work::CancelTimer(..) | Work::Quarantine(_) | Work::Release(_), _) => 0,
            (Work::Retry(_), outcome) => {
                metrics.messages.inc();
                if outcome == Outcome::Failed {
                    metrics.dead.inc()
                } else {
                    0
                }
            }
            (_, Outcome::Done) => metrics.done.inc(),
            (_, Outcome::Refused) => metrics.refused.inc(),
            (_, Outcome::Failed) => metrics.failed.inc(),
        };
    }
}
