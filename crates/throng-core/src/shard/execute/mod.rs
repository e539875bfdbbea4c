//! A command's way through its entity.

mod accept;
pub(super) mod call;
pub(super) mod observer;
pub(super) mod outcome;
mod query;
pub(super) mod read;
pub(super) mod records;

use super::{
    Common, Delivery, Shard, Taking,
    dedup::{
        KeyLookup,
        key::{CommandKey, KeptAnswer, KeptOutcome},
    },
    messages::RecordedOutcome,
    resident::{
        Entities, Lookup,
        slot::{Body, EventShape, panic_text},
    },
};
use crate::{
    limits,
    model::{CommandAnswer, Entity, Error, Event, Moment, Timestamp, Turn, wrong_reply},
    tagged,
};
use accept::{Accepted, Reply};
use call::{Call, Cause, ForwardAgain, Output, QueryCall, Ran, Stage, put};
use observer::{DecidedCommand, outcome};
use outcome::Outcome;
use read::{Origin, body_length, crashed, encode_command, fingerprint, key_of, read_command, too_many, unwritable};
use records::{close_cause, report_refusal, write_dead_tick, write_key, write_taken};
use std::panic::{AssertUnwindSafe, catch_unwind};
use throng_journal::{Address, RecordKind};

impl Shard {
    /// Executes a command. The caller holds the shard's lock, so that the order of staged records is the order of execution.
    pub fn execute(&mut self, call: &mut Call<'_>, stage: &mut dyn Stage) -> Ran {
        self.common.tick(&mut call.now);
        self.common.trace = call.trace;
        let ran = self.tables[call.kind].execute(&mut self.common, call, stage);
        self.common.trace = None;
        ran
    }

    /// Answers a named query.
    pub fn query(&mut self, call: &mut QueryCall<'_>) -> Ran {
        self.common.tick(&mut call.now);
        self.tables[call.kind].query(&mut self.common, call)
    }

    /// True if this message was taken already.
    #[must_use]
    //= promise 6: taken exactly once
    pub fn is_taken(&self, taking: &Taking) -> bool {
        self.common.messages.counts().has_taken(taking.from, taking.number)
    }

    /// Takes a message that cannot be executed (unknown kind, or unreadable content): it is dead, with the reason.
    pub fn record_dead(&mut self, delivery: &Delivery, mut now: Timestamp, reason: &str, stage: &mut dyn Stage) -> u64 {
        self.common.tick(&mut now);
        let Delivery { to, taking, .. } = delivery;
        write_taken(&mut self.common, to, taking, "dead", reason);
        self.common.stage(stage).commit
    }
}

impl Common {
    pub(super) fn tick(&mut self, now: &mut Timestamp) {
        self.now = self.now.max(*now);
        *now = self.now;
    }
}

impl<E: Entity> Entities<E> {
    pub(super) fn run(&mut self, common: &mut Common, call: &mut Call<'_>, stage: &mut dyn Stage) -> Ran {
        if let Some((error, rests_on)) = common.refused_by_operator(call.hash, E::KIND, call.id) {
            return Self::set_aside_by_operator(call, error, rests_on);
        }
        let (at, is_new) = match self.look_up(common, call.hash, call.id) {
            Lookup::Found { at, is_new } => (at, is_new),
            Lookup::Load => return Ran::Load,
            // A client's id that is none is its own fault.
            Lookup::Refused(error) if matches!(call.cause, Cause::Asked { .. }) => {
                return self.refuse(common, call, error, stage);
            }
            Lookup::Refused(error) => return self.not_understood(common, call, error, stage),
        };
        let ran = self.run_at(common, call, at, stage);
        let slot = self.slot(at);
        match &slot.body {
            Body::Resident(resident) if is_new && resident.seq == 0 && slot.family.is_none() => self.remove(common, at),
            Body::Resident(_) | Body::Quarantined(_) => self.used(common, at),
            // Its code panicked. The slot stays only for what the store does not have yet.
            Body::Passivated(_) if slot.trace.as_ref().is_none_or(|trace| trace.is_empty()) => self.remove(common, at),
            Body::Passivated(_) => {}
        }
        ran
    }

    fn run_at(&mut self, common: &mut Common, call: &mut Call<'_>, at: u32, stage: &mut dyn Stage) -> Ran {
        let slot = self.slot(at);
        if let Body::Quarantined(aside) = &mut slot.body {
            aside.refused += u64::from(!call.may_wait);
            let error = aside.refusal(E::KIND, &slot.text);
            return self.not_understood(common, call, error, stage);
        }
        let Body::Resident(resident) = &slot.body else {
            return Ran::Load;
        };
        let (seq, mut key, mut refusals) = (resident.seq, key_of(call), None);
        let has_ended = seq > 0 && seq == slot.ended;
        if let Some(key) = &key
            && matches!(common.keys.find(key.number, call.now), KeyLookup::Look)
        {
            return Ran::LoadKey;
        }
        let (origin, caller) = match call.cause {
            Cause::Asked {
                caller,
                forwarded: None,
                ..
            } => (Origin::Outside, caller),
            // Its key is derived from the forwarder's, which is the caller's own.
            Cause::Asked { .. } => (Origin::Outside, None),
            Cause::Message(_) | Cause::Timer(_) => (Origin::Recorded, None),
        };
        let command = match read_command::<E>(&mut call.input, &self.hears, origin) {
            Ok(command) => command,
            Err(error) => return self.not_understood(common, call, error, stage),
        };
        if let Some(key) = &mut key {
            key.fingerprint = match fingerprint::<E>(&command, caller) {
                Ok(fingerprint) => fingerprint,
                Err(error) => return self.refuse(common, call, error, stage),
            };
            match common.keys.find(key.number, call.now) {
                KeyLookup::Kept(kept) if kept.is_refusal() => refusals = Some(kept),
                KeyLookup::Kept(kept) => return self.answer_again(common, call, at, kept, key, stage),
                _ => {}
            }
        }
        let key = key;
        if has_ended && !E::recreates(&command) {
            let error = Error::Ended {
                kind: E::KIND,
                id: call.id.to_owned(),
            };
            return self.refuse(common, call, error, stage);
        }
        if (seq == 0 || has_ended) && !E::creates(&command) {
            let error = Error::Unknown {
                kind: E::KIND,
                id: call.id.to_owned(),
            };
            return self.refuse(common, call, error, stage);
        }
        let kept = match call.cause {
            Cause::Asked { .. } if E::KEEPS_COMMANDS => match encode_command::<E>(&command) {
                Ok(written) => Some(written),
                Err(error) => return self.refuse(common, call, error, stage),
            },
            _ => None,
        };
        // An entity that is created anew starts without its former state.
        let last_state = has_ended.then(|| self.replace_state(at, E::default())).flatten();
        let has_refused = |key: &&CommandKey| refusals.as_ref().is_some_and(|kept| kept.has_refused(key.fingerprint));
        let refused_under = key.as_ref().filter(has_refused);
        let mut decided = self.guarded(common, call, at, command, refused_under);
        let mut refusal = None;
        if let (Err(Error::Rejected(_)), Some(key), None) = (&decided, &key, refused_under) {
            let kept = KeptOutcome::refused(key, refusals.as_ref(), call.now);
            match write_key(common, &Address::new(E::KIND, call.id), key, &kept) {
                Ok(()) => refusal = Some((key.number, kept)),
                Err(why) => decided = Err(why),
            }
        }
        let accepted = decided.and_then(|reply| {
            let accepted = Accepted { at, reply, key, kept };
            self.accept(common, call, accepted, stage)
        });
        if let Some(last) = last_state
            && matches!(&self.slot(at).body, Body::Resident(resident) if resident.seq == seq)
        {
            self.replace_state(at, last);
        }
        let error = match accepted {
            Ok(ran) => return ran,
            Err(error) => error,
        };
        let mut ran = self.refuse(common, call, error, stage);
        if let Ran::Done { rests_on, .. } = &mut ran {
            // A repetition is certain to be refused only once this refusal is durable.
            *rests_on = refusals.map_or(0, |kept| kept.rests_on).max(*rests_on);
            if let Some((key, kept)) = refusal {
                let rests_on = *rests_on;
                common.keys.insert(key, KeptOutcome { rests_on, ..kept });
            }
        }
        ran
    }

    /// Handles a call to an entity that an operator has quarantined: a message waits, other askers get the reason.
    fn set_aside_by_operator(call: &mut Call<'_>, error: Error<E::Rejection>, rests_on: u64) -> Ran {
        if let Cause::Message(Taking { died: None, .. }) = call.cause {
            return Ran::Quarantined(error.to_string());
        }
        put::<E>(&mut call.output, Err(error));
        Ran::done(rests_on, Outcome::Failed)
    }

    fn replace_state(&mut self, at: u32, state: E) -> Option<E> {
        match &mut self.slot(at).body {
            Body::Resident(resident) => Some(std::mem::replace(&mut resident.state, state)),
            _ => None,
        }
    }

    /// Runs decide, encoding with size checks, evolve, and the reply under one guard against panics.
    //= promise 8: a panic costs one command
    fn guarded(
        &mut self,
        common: &mut Common,
        call: &Call<'_>,
        at: u32,
        command: E::Command,
        refused_under: Option<&CommandKey>,
    ) -> Result<Reply<E>, Error<E::Rejection>> {
        let observed = self.observer.as_ref().and_then(|_| encode_command::<E>(&command).ok());
        let mut events = std::mem::take(&mut self.shapes);
        events.clear();
        let (slot, effects) = self.slot_and_effects(at);
        let Body::Resident(resident) = &mut slot.body else {
            return Err(Error::OutcomeUnknown);
        };
        effects.entropy = call.entropy;
        effects.restored_at = common.restored_at;
        effects.trace = common.trace;
        effects.missed_ticks = match call.cause {
            Cause::Timer(due) => due.missed_ticks(call.now),
            _ => 0,
        };
        let mut evolving = false;
        let run = || -> Result<Reply<E>, Error<E::Rejection>> {
            let family = slot.family.as_deref();
            let moment = Moment {
                id: &resident.id,
                seq: resident.seq - slot.ended,
                now: call.now,
                from: call.asker(),
                family,
            };
            let answer = resident
                .state
                .decide(command, &mut Turn::new(moment, effects))
                .map_err(Error::Rejected)?;
            // The client was refused, and may have given up since: this is a delayed copy.
            if let Some(key) = refused_under {
                return Err(Error::KeyRefused(key.name.clone()));
            }
            too_many(
                "the number of events of one command",
                effects.events.len(),
                limits::EVENTS_MAX,
            )?;
            too_many(
                "the number of values published by one command",
                effects.published.len(),
                limits::EVENTS_MAX,
            )?;
            for (seq, event) in (resident.seq + 1..).zip(&effects.events) {
                common.payload.clear();
                let name = tagged::to_parts(event, &mut common.payload).map_err(|why| unwritable("event", why))?;
                let version = E::Event::version(name);
                too_many("the event's name", name.len(), limits::NAME_BYTES_MAX)?;
                let length = body_length(common.records.bytes(), common.payload.len())?;
                events.push(EventShape { name, version, length });
                let (address, shape) = ((E::KIND, &*slot.text), (name, version));
                common
                    .records
                    .push_parts(RecordKind::Event, common.id, address, seq, shape, &common.payload);
            }
            evolving = true;
            for event in &effects.events {
                resident.state.evolve(event);
            }
            let reply = match answer {
                CommandAnswer::Now(reply) => reply,
                CommandAnswer::After(read) => read(&resident.state),
                CommandAnswer::Forward(to) => return Ok(Reply::Forward(to)),
            };
            let wrong = observed
                .as_ref()
                .and_then(|(name, _)| wrong_reply((E::KIND, E::REPLIES), name, &reply));
            wrong.map_or(Ok(Reply::Value(reply)), |why| Err(crashed(why)))
        };
        let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
            let reason = panic_text(panic.as_ref());
            tracing::error!("{}/{} panicked: {reason}", E::KIND, call.id);
            Err(Error::Crashed { reason })
        });
        if let (Some(observe), Some((name, _))) = (&self.observer, observed) {
            let names: Vec<_> = events
                .iter()
                .filter(|_| result.is_ok())
                .map(|event| event.name)
                .collect();
            observe(&DecidedCommand {
                kind: E::KIND,
                name,
                outcome: outcome(&result),
                events: &names,
            });
        }
        self.shapes = events;
        if result.is_err() {
            common.discard();
            let changed = evolving && !self.effects.events.is_empty();
            self.effects.clear();
            if changed {
                // The state is half-way; its events bring it back.
                self.drop_state(common, at);
            }
        }
        result
    }

    /// Leaves a command that this program cannot execute to a newer one if it may wait; otherwise refuses it.
    fn not_understood(
        &mut self,
        common: &mut Common,
        call: &mut Call<'_>,
        error: Error<E::Rejection>,
        stage: &mut dyn Stage,
    ) -> Ran {
        // A timer of a quarantined entity waits whether there is a newer program or not.
        let is_left = match (&error, call.cause) {
            (Error::Quarantined { .. }, Cause::Timer(_)) => false,
            (Error::Malformed(_) | Error::Quarantined { .. }, _) => call.may_wait,
            _ => false,
        };
        if is_left {
            return Ran::NotUnderstood(error.to_string());
        }
        self.refuse(common, call, error, stage)
    }

    /// Refuses a call, for the entity or for the engine. A message or a timer is done nevertheless, with the reason.
    fn refuse(
        &mut self,
        common: &mut Common,
        call: &mut Call<'_>,
        error: Error<E::Rejection>,
        stage: &mut dyn Stage,
    ) -> Ran {
        // An entity that asked for the outcome gets it, and the message is done. Otherwise a message that cannot be taken is dead.
        let asks = match call.cause {
            Cause::Message(Taking { asks: Some(asks), .. }) => Some(asks),
            _ => None,
        };
        let told = asks.and_then(|_| told_outcome(&error));
        let outcome = match (&error, &told) {
            // A message to an entity that has ended is refused and not dead: no operator could mend that.
            (Error::Rejected(_) | Error::Ended { .. }, _) | (_, Some(_)) => Outcome::Refused,
            _ => Outcome::Failed,
        };
        let at = self.find(call.hash, call.id);
        let mut rests_on = at.map_or(0, |at| self.slot(at).rests_on);
        let mut report = None;
        // A timer of an entity whose events cannot be applied waits for a program that can.
        let is_waiting = matches!((call.cause, &error), (Cause::Timer(_), Error::Quarantined { .. }));
        if !is_waiting && !matches!(call.cause, Cause::Asked { .. }) {
            let own = Address::new(E::KIND, call.id);
            let (mut word, mut reason) = ("refused", error.to_string());
            if let (Some(asks), Some(told)) = (asks, told) {
                match report_refusal::<_, E::Rejection>(common, &own, asks, &told) {
                    Ok(delivery) => report = Some(delivery),
                    Err(why) => (word, reason) = ("dead", format!("its refusal cannot be reported: {why}")),
                }
            }
            if outcome == Outcome::Failed {
                word = "dead";
            }
            if word == "dead" {
                match call.cause {
                    Cause::Timer(due) => {
                        tracing::warn!("a tick of the timer {:?} of {own} is dead: {reason}", due.name);
                        write_dead_tick(common, due, &reason);
                    }
                    _ => tracing::warn!("a message to {own} is dead: {reason}"),
                }
            }
            close_cause(common, call, &own, word, &reason);
        }
        if !common.records.is_empty() {
            rests_on = common.stage(stage).commit;
            common.outbox.extend(report.map(|delivery| Delivery {
                commit: rests_on,
                ..delivery
            }));
            if let Some(at) = at.filter(|at| self.find(call.hash, call.id) == Some(*at)) {
                self.slot(at).rests_on = rests_on;
            }
        }
        put::<E>(&mut call.output, Err(error));
        Ran::Done { rests_on, outcome }
    }

    /// Returns the answer that an accepted command got the first time.
    //= promise 4: a key takes effect once
    fn answer_again(
        &mut self,
        common: &mut Common,
        call: &mut Call<'_>,
        at: u32,
        kept: KeptOutcome,
        key: &CommandKey,
        stage: &mut dyn Stage,
    ) -> Ran {
        if !matches!(call.cause, Cause::Asked { .. }) {
            close_cause(common, call, &Address::new(E::KIND, call.id), "done", "");
            self.slot(at).rests_on = common.stage(stage).commit;
        }
        let rests_on = self.slot(at).rests_on.max(kept.rests_on);
        if kept.print != key.fingerprint {
            put::<E>(&mut call.output, Err(Error::KeyReused(key.name.clone())));
            return Ran::done(rests_on, Outcome::Failed);
        }
        let is_child = matches!(kept.answer, KeptAnswer::Create(..));
        match kept.answer {
            KeptAnswer::Reply(json) => {
                match &mut call.output {
                    Output::Json(reply) => reply.body = json.into_string().into_bytes(),
                    output => {
                        let reply = serde_json::from_slice(json.as_bytes());
                        put::<E>(
                            output,
                            reply.map_err(|why| crashed(format!("the kept reply cannot be read: {why}"))),
                        );
                    }
                }
                Ran::done(rests_on, Outcome::Done)
            }
            KeptAnswer::Refused(_) => {
                put::<E>(&mut call.output, Err(Error::KeyRefused(key.name.clone())));
                Ran::done(rests_on, Outcome::Failed)
            }
            KeptAnswer::Forward(forwarded) | KeptAnswer::Create(forwarded) => {
                let (kind, id, name, body) = *forwarded;
                let key = key.derived(E::KIND, call.id);
                Ran::ForwardAgain(Box::new(ForwardAgain {
                    to: Address::new(kind, id),
                    name,
                    body,
                    key,
                    is_child,
                    rests_on,
                }))
            }
        }
    }
}

/// Returns the outcome for the entity that asked. `None` for a fault of this program, which another one may mend.
fn told_outcome<R>(error: &Error<R>) -> Option<RecordedOutcome<(), &R>> {
    match error {
        Error::Rejected(rejection) => Some(RecordedOutcome::Err(rejection)),
        Error::Unknown { .. } => Some(RecordedOutcome::Unknown),
        Error::Ended { .. } => Some(RecordedOutcome::Ended),
        Error::Quarantined { reason, .. } => Some(RecordedOutcome::Quarantined(reason.clone())),
        _ => None,
    }
}
