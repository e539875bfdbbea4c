//! A command's request for a call.

use super::{
    Call, CallCommand, CallId, CallsOf, OnCallOutcome, Outside,
    command::{Begin, Request},
};
use crate::model::{Entity, Sent, Turn};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use std::{marker::PhantomData, time::Duration};

/// A call that the command asks for. It is made once the command is durable. The methods change the worker's defaults.
pub struct Calling<'t, W> {
    call: CallId,
    sent: &'t mut Vec<Sent>,
    /// The place of the message that begins the call.
    at: usize,
    of: PhantomData<fn() -> W>,
}

impl<W: Outside> Calling<'_, W> {
    fn set(&mut self, set: impl FnOnce(&mut Begin)) {
        let command = self.sent.get_mut(self.at).and_then(Sent::command_mut::<Call<W>>);
        if let Some(CallCommand::Begin(begin)) = command {
            set(begin);
        }
    }

    /// Returns the call's id, by which its outcome is recognized and the call can be cancelled.
    #[must_use]
    pub fn id(&self) -> CallId {
        self.call
    }

    /// Gives the call up after this time. Its outcome is then `Refused` if nothing was sent, else `Unknown`.
    pub fn within(mut self, time: Duration) -> Self {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let mut deadline = None;
        self.set(|begin| {
            begin.within_micros = micros;
            deadline = Some(begin.deadline());
        });
        for sent in self.sent.iter_mut().skip(self.at) {
            if let (Some(CallCommand::Join { until, .. }), Some(deadline)) = (sent.command_mut::<Call<W>>(), deadline) {
                *until = deadline;
            }
        }
        self
    }

    /// Makes no second attempt once one may have reached the provider: for providers without idempotency keys. The price: a crash during
    /// the attempt leaves the outcome unknown.
    pub fn once(mut self) -> Self {
        self.set(|begin| begin.once = true);
        self
    }

    /// Makes the call only once every earlier in-order call of this entity to the worker has its outcome.
    pub fn in_order(mut self) -> Self {
        let mut joins = None;
        self.set(|begin| {
            if begin.line.is_none() {
                let (kind, id) = &begin.caller;
                joins = Some((*begin.line.insert(CallsOf::new(kind, id).line()), begin.deadline()));
            }
        });
        if let Some((line, until)) = joins {
            let join = CallCommand::Join { call: self.call, until };
            self.sent.push(Sent::to::<Call<W>>(&line, join));
        }
        self
    }
}

impl<E: Entity> Turn<'_, E> {
    /// Calls a provider outside. The call is recorded with this command's events, made at least once, and exactly one
    /// [outcome](OnCallOutcome) comes back as a command.
    pub fn call<W: Outside>(&mut self, request: W::Request) -> Calling<'_, W>
    where
        E: OnCallOutcome<W>,
    {
        let calls = CallsOf::new(E::KIND, &self.id().to_string());
        let call = calls.fresh(self.random_bits());
        let begin = CallCommand::Begin(Begin {
            caller: calls.into_caller(),
            request: Request::of(&request),
            at: self.now(),
            within_micros: u64::try_from(W::WITHIN.as_micros()).unwrap_or(u64::MAX),
            once: false,
            line: None,
        });
        let at = self.out.sent.len();
        self.out.sent.push(Sent {
            is_call: true,
            ..Sent::to::<Call<W>>(&call, begin)
        });
        Calling {
            call,
            sent: &mut self.out.sent,
            at,
            of: PhantomData,
        }
    }

    /// Cancels a call. If nothing was sent, its outcome is `Refused`. Otherwise no further attempt is made, and the attempt under way
    /// decides the outcome.
    pub fn cancel_call<W: Outside>(&mut self, call: CallId)
    where
        E: OnCallOutcome<W>,
    {
        self.send::<Call<W>>(call, CallCommand::Cancel {});
    }

    /// Returns random bits that no other command gets. A provider that sees them cannot compute [`unguessable`](Self::unguessable) from
    /// them.
    fn random_bits(&self) -> u128 {
        let mut seed = [0; 32];
        seed[..16].copy_from_slice(&self.unguessable().to_le_bytes());
        seed[16..24].copy_from_slice(&(self.out.sent.len() as u64).to_le_bytes());
        StdRng::from_seed(seed).random()
    }
}
