//! Asking for a call, as part of a command.

use super::{
    Call, CallCommand, CallId, CallsOf, OnCallOutcome, Outside,
    command::{Begin, Request},
};
use crate::model::{Entity, Sent, Turn};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use std::{marker::PhantomData, time::Duration};

/// A call that the command asks for: it is made once the command is durable. The methods change the worker's defaults.
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

    /// The call's id, to recognize its outcome or to cancel it.
    #[must_use]
    pub fn id(&self) -> CallId {
        self.call
    }

    /// Gives the call up after this time: its outcome is then that nothing was sent, or that it is not known.
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

    /// Makes no second attempt once one may have reached the provider: for providers that know no keys. After a crash at that moment the
    /// outcome is not known.
    pub fn once(mut self) -> Self {
        self.set(|begin| begin.once = true);
        self
    }

    /// Makes the call once all calls in order have their outcomes that this entity has asked of the worker before.
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

    /// Cancels a call. Nothing was sent: its outcome is that. Else no further attempt is made, and the outcome is what the one under way
    /// comes to.
    pub fn cancel_call<W: Outside>(&mut self, call: CallId)
    where
        E: OnCallOutcome<W>,
    {
        self.send::<Call<W>>(call, CallCommand::Cancel {});
    }

    /// Random bits that neither the provider can trace to [`unguessable`](Self::unguessable), nor a later command repeats.
    fn random_bits(&self) -> u128 {
        let mut seed = [0; 32];
        seed[..16].copy_from_slice(&self.unguessable().to_le_bytes());
        seed[16..24].copy_from_slice(&(self.out.sent.len() as u64).to_le_bytes());
        StdRng::from_seed(seed).random()
    }
}
