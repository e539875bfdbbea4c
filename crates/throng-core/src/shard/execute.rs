//! A command's way through its entity.

use super::{
    Asks, Call, Cause, Common, Delivery, ForwardAgain, Outcome, Output, Ran, Shard, Stage, Taking,
    accept::{close_cause, write_heard, write_taken},
    call::QueryCall,
    entities::Entities,
    keys::{Found, Kept, KeptAnswer},
    outcome::put,
    read::{crashed, fingerprint, key_of, read_command, recorded, too_many, unwritable},
    registry::Registry,
    slot::{Body, Here, panic_text},
};
use crate::{
    limits,
    model::{Answer, Entity, Error, Event, Moment, Rejection, Sent, Timestamp, Turn},
    tagged,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use throng_journal::{Address, RecordKind};

impl Shard {
    /// Runs a command. The caller holds the shard's lock, so that what `stage` takes stands in the order of execution.
    pub fn execute(&mut self, call: &mut Call<'_>, stage: &mut dyn Stage) -> Ran {
        self.common.tick(&mut call.now);
        self.tables[call.kind].execute(&mut self.common, &self.registry, call, stage)
    }

    /// Answers a named query.
    pub fn query(&mut self, call: &mut QueryCall<'_>) -> Ran {
        self.common.tick(&mut call.now);
        self.tables[call.kind].query(&mut self.common, &self.registry, call)
    }

    /// Was this message taken already?
    #[must_use]
    pub fn is_taken(&self, taking: &Taking) -> bool {
        self.common.messages.is_taken(taking.from, taking.number)
    }

    /// Takes a message nobody can execute (its kind is unknown, its content unreadable): dead, with the reason.
    pub fn bury(&mut self, delivery: &Delivery, mut now: Timestamp, reason: &str, stage: &mut dyn Stage) -> u64 {
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

/// Name, version and length of an event.
pub(super) type Shape = (&'static str, u16, u32);

/// A command that was accepted, before it is staged.
pub(super) struct Accepted<E: Entity> {
    pub(super) reply: Reply<E>,
    /// Name, version and length of each event.
    pub(super) events: Vec<Shape>,
}

pub(super) enum Reply<E: Entity> {
    Value(E::Reply),
    Forward(Sent),
}

impl<E: Entity> Entities<E> {
    pub(super) fn run(
        &mut self,
        common: &mut Common,
        registry: &Registry,
        call: &mut Call<'_>,
        stage: &mut dyn Stage,
    ) -> Ran {
        let (at, was_new) = match self.seat(common, call.hash, call.id) {
            Ok(seat) => seat,
            Err(None) => return Ran::Load,
            Err(Some(error)) => return self.refuse(common, registry, call, error, stage),
        };
        let ran = self.run_at(common, registry, call, at, stage);
        let slot = self.slot(at);
        match &slot.body {
            Body::Here(here) if was_new && here.seq == 0 && slot.family.is_none() => self.remove(common, at),
            Body::Here(_) | Body::Quarantined { .. } => self.used(common, at),
            // Its code panicked half-way: the slot stays only for what the store does not have yet.
            Body::Away(_) if slot.trace.as_ref().is_none_or(|trace| trace.is_empty()) => self.remove(common, at),
            Body::Away(_) => {}
        }
        ran
    }

    /// The entity's slot, and whether it was made just now. `Err(None)`: it has to be loaded.
    #[allow(clippy::type_complexity, reason = "the error is the asker's")]
    fn seat(&mut self, common: &mut Common, hash: u64, id: &str) -> Result<(u32, bool), Option<Error<E::Rejection>>> {
        if let Some(at) = self.find(hash, id) {
            let away = matches!(self.slot(at).body, Body::Away(_));
            return if away && !self.revive(common, at) {
                Err(None)
            } else {
                Ok((at, false))
            };
        }
        if self.may_know(hash) {
            return Err(None);
        }
        let typed = id.parse().map_err(|why: <E::Id as std::str::FromStr>::Err| {
            Some(Error::Malformed(format!("{id:?} is not an id of a {}: {why}", E::KIND)))
        })?;
        let here = Here {
            id: typed,
            state: E::default(),
            seq: 0,
            stored_seq: 0,
        };
        Ok((self.insert(hash, id, Body::Here(here)), true))
    }

    fn run_at(
        &mut self,
        common: &mut Common,
        registry: &Registry,
        call: &mut Call<'_>,
        at: u32,
        stage: &mut dyn Stage,
    ) -> Ran {
        let slot = self.slot(at);
        if let Body::Quarantined { seq, reason } = &slot.body {
            let address = format!("{}/{}", E::KIND, slot.text);
            let error = Error::Quarantined {
                address,
                seq: *seq,
                reason: reason.to_string(),
            };
            return self.refuse(common, registry, call, error, stage);
        }
        let Body::Here(here) = &slot.body else { return Ran::Load };
        let (seq, key) = (here.seq, key_of(call));
        if let Some((key, _)) = &key
            && matches!(common.keys.find(*key, call.now), Found::Look)
        {
            return Ran::LoadKey;
        }
        let command = match read_command::<E>(&mut call.input, &registry.kinds()[call.kind]) {
            Ok(command) => command,
            Err(error) => return self.refuse(common, registry, call, error, stage),
        };
        let mut print = 0;
        if let Some((key, name)) = &key {
            print = match fingerprint::<E>(&command) {
                Ok(print) => print,
                Err(error) => return self.refuse(common, registry, call, error, stage),
            };
            if let Found::Kept(kept) = common.keys.find(*key, call.now) {
                return self.answer_again(common, call, (kept, print, name), at, stage);
            }
        }
        if seq == 0 && !E::creates(&command) {
            let error = Error::Unknown {
                kind: E::KIND,
                id: call.id.to_owned(),
            };
            return self.refuse(common, registry, call, error, stage);
        }
        match self.guarded(common, call, at, command) {
            Err(error) => self.refuse(common, registry, call, error, stage),
            Ok(accepted) => {
                let key = key.map(|(key, name)| (key, name, print));
                self.accept(common, registry, call, (at, accepted, key), stage)
            }
        }
    }

    /// decide → encode and check sizes → evolve → reply, under one guard.
    fn guarded(
        &mut self,
        common: &mut Common,
        call: &Call<'_>,
        at: u32,
        command: E::Command,
    ) -> Result<Accepted<E>, Error<E::Rejection>> {
        let mut events = std::mem::take(&mut self.shapes);
        events.clear();
        let (slot, effects) = self.slot_and_effects(at);
        let Body::Here(here) = &mut slot.body else {
            return Err(Error::OutcomeUnknown);
        };
        effects.entropy = call.entropy;
        let mut evolving = false;
        let run = || -> Result<Accepted<E>, Error<E::Rejection>> {
            let caller = if let Cause::Asked { caller, .. } = call.cause {
                caller
            } else {
                None
            };
            let family = slot.family.as_deref();
            let moment = Moment {
                id: &here.id,
                seq: here.seq,
                now: call.now,
                caller,
                family,
            };
            let answer = here
                .state
                .decide(command, &mut Turn::new(moment, effects))
                .map_err(Error::Rejected)?;
            too_many(
                "number of events of one command",
                effects.events.len(),
                limits::EVENTS_MAX,
            )?;
            too_many(
                "number of values published by one command",
                effects.published.len(),
                limits::EVENTS_MAX,
            )?;
            for (seq, event) in (here.seq + 1..).zip(&effects.events) {
                common.payload.clear();
                let name = tagged::to_parts(event, &mut common.payload).map_err(|why| unwritable("event", why))?;
                let version = E::Event::version(name);
                too_many("the event's name", name.len(), limits::NAME_BYTES_MAX)?;
                let length = recorded(common.records.bytes(), common.payload.len())?;
                events.push((name, version, length));
                let (address, shape) = ((E::KIND, &*slot.text), (name, version));
                common
                    .records
                    .push_parts(RecordKind::Event, common.id, address, seq, shape, &common.payload);
            }
            evolving = true;
            for event in &effects.events {
                here.state.evolve(event);
            }
            let reply = match answer {
                Answer::Now(reply) => Reply::Value(reply),
                Answer::After(read) => Reply::Value(read(&here.state)),
                Answer::Forward(to) => Reply::Forward(to),
            };
            Ok(Accepted { reply, events })
        };
        let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
            let reason = panic_text(panic.as_ref());
            tracing::error!("{}/{} panicked: {reason}", E::KIND, call.id);
            Err(Error::Crashed { reason })
        });
        if result.is_err() {
            common.records.clear();
            let changed = evolving && !self.effects.events.is_empty();
            self.effects.clear();
            if changed {
                // The state is half-way; its events bring it back.
                self.drop_state(common, at);
            }
        }
        result
    }

    /// Answers "no", the entity's or the engine's; a message or a timer is over all the same, with the reason.
    pub(super) fn refuse(
        &mut self,
        common: &mut Common,
        registry: &Registry,
        call: &mut Call<'_>,
        error: Error<E::Rejection>,
        stage: &mut dyn Stage,
    ) -> Ran {
        let outcome = if matches!(error, Error::Rejected(_)) {
            Outcome::Refused
        } else {
            Outcome::Failed
        };
        let at = self.find(call.hash, call.id);
        let mut rests_on = at.map_or(0, |at| self.slot(at).rests_on);
        // A timer of an entity that cannot be applied waits for the program that can.
        let is_waiting = matches!((call.cause, &error), (Cause::Timer(_), Error::Quarantined { .. }));
        if !is_waiting && !matches!(call.cause, Cause::Asked { .. }) {
            let own = Address::new(E::KIND, call.id);
            let (mut word, mut reason) = ("refused", error.to_string());
            let mut heard = None;
            if let (Cause::Message(Taking { asks: Some(asks), .. }), Error::Rejected(rejection)) = (call.cause, &error)
            {
                match report_refusal(common, registry, &own, asks, rejection) {
                    Ok(delivery) => heard = Some(delivery),
                    Err(why) => (word, reason) = ("dead", format!("its refusal cannot be reported: {why}")),
                }
            }
            if outcome == Outcome::Failed {
                word = "dead";
            }
            if word == "dead" {
                tracing::warn!("a message or timer of {own} is dead: {reason}");
            }
            close_cause(common, call, &own, word, &reason);
            if !common.records.is_empty() {
                rests_on = common.stage(stage).commit;
                common.outbox.extend(heard.map(|delivery| Delivery {
                    commit: rests_on,
                    ..delivery
                }));
                if let Some(at) = at.filter(|at| self.find(call.hash, call.id) == Some(*at)) {
                    self.slot(at).rests_on = rests_on;
                }
            }
        }
        put::<E>(&mut call.output, Err(error));
        Ran::Done { rests_on, outcome }
    }

    /// The answer an accepted command got the first time.
    fn answer_again(
        &mut self,
        common: &mut Common,
        call: &mut Call<'_>,
        (kept, print, key): (Kept, u64, &str),
        at: u32,
        stage: &mut dyn Stage,
    ) -> Ran {
        if !matches!(call.cause, Cause::Asked { .. }) {
            close_cause(common, call, &Address::new(E::KIND, call.id), "done", "");
            self.slot(at).rests_on = common.stage(stage).commit;
        }
        let rests_on = self.slot(at).rests_on.max(kept.rests_on);
        if kept.print != print {
            put::<E>(&mut call.output, Err(Error::KeyReused(key.to_owned())));
            return Ran::Done {
                rests_on,
                outcome: Outcome::Failed,
            };
        }
        let is_child = matches!(kept.answer, KeptAnswer::Create(..));
        match kept.answer {
            KeptAnswer::Reply(json) => {
                match &mut call.output {
                    Output::Json(reply) => reply.body = json.into_bytes(),
                    output => {
                        let reply = serde_json::from_str(&json);
                        put::<E>(
                            output,
                            reply.map_err(|why| crashed(format!("the kept reply cannot be read: {why}"))),
                        );
                    }
                }
                Ran::Done {
                    rests_on,
                    outcome: Outcome::Done,
                }
            }
            KeptAnswer::Forward(kind, id, name, body) | KeptAnswer::Create(kind, id, name, body) => {
                let key = format!("{}/{}/{key}", E::KIND, call.id);
                Ran::ForwardAgain(Box::new(ForwardAgain {
                    to: Address::new(kind, id),
                    name,
                    body,
                    key,
                    parent: is_child.then(|| Address::new(E::KIND, call.id)),
                    rests_on,
                }))
            }
        }
    }

    pub(super) fn ask(&mut self, common: &mut Common, registry: &Registry, call: &mut QueryCall<'_>) -> Ran {
        let done = |reply: &mut super::JsonReply, error, rests_on| {
            reply.error = Some(Box::new(error));
            Ran::Done {
                rests_on,
                outcome: Outcome::Failed,
            }
        };
        let Some(query) = registry.kinds()[call.kind]
            .query(call.name)
            .and_then(|query| query.run::<E>())
        else {
            return done(
                call.output,
                Error::Malformed(format!("{} has no query {:?}", E::KIND, call.name)),
                0,
            );
        };
        let (at, was_new) = match self.seat(common, call.hash, call.id) {
            Ok(seat) => seat,
            Err(None) => return Ran::Load,
            Err(Some(error)) => {
                call.output.error = error.engine::<super::JsonRejection>().ok().map(Box::new);
                return Ran::Done {
                    rests_on: 0,
                    outcome: Outcome::Failed,
                };
            }
        };
        let slot = self.slot(at);
        let rests_on = slot.rests_on;
        let ran = match &slot.body {
            Body::Here(here) if here.seq > 0 => {
                let family = slot.family.as_deref();
                let moment = Moment {
                    id: &here.id,
                    seq: here.seq,
                    now: call.now,
                    caller: call.caller,
                    family,
                };
                let guarded = || query(&here.state, &moment, call.arguments, call.output);
                match catch_unwind(AssertUnwindSafe(guarded)) {
                    Ok(()) => Ran::Done {
                        rests_on,
                        outcome: Outcome::Done,
                    },
                    Err(panic) => done(
                        call.output,
                        Error::Crashed {
                            reason: panic_text(panic.as_ref()),
                        },
                        rests_on,
                    ),
                }
            }
            Body::Quarantined { seq, reason } => {
                let address = format!("{}/{}", E::KIND, slot.text);
                done(
                    call.output,
                    Error::Quarantined {
                        address,
                        seq: *seq,
                        reason: reason.to_string(),
                    },
                    rests_on,
                )
            }
            _ => done(
                call.output,
                Error::Unknown {
                    kind: E::KIND,
                    id: call.id.to_owned(),
                },
                rests_on,
            ),
        };
        if was_new {
            self.remove(common, at);
        } else {
            self.used(common, at);
        }
        ran
    }

    /// Looks at an entity's state, typed. `Err(None)`: it has to be loaded.
    ///
    /// # Errors
    /// The entity's "no", or the engine's.
    #[allow(clippy::type_complexity, reason = "the error is the asker's")]
    pub fn look<Q: crate::model::Query<E>>(
        &mut self,
        common: &mut Common,
        (hash, id): (u64, &str),
        (now, caller): (Timestamp, Option<&str>),
        query: &mut Option<Q>,
    ) -> Result<(Q::Answer, u64), Option<(Error<E::Rejection>, u64)>> {
        let (at, was_new) = self
            .seat(common, hash, id)
            .map_err(|error| error.map(|error| (error, 0)))?;
        let slot = self.slot(at);
        let rests_on = slot.rests_on;
        let looked = match &slot.body {
            Body::Here(here) if here.seq > 0 => {
                let family = slot.family.as_deref();
                let moment = Moment {
                    id: &here.id,
                    seq: here.seq,
                    now,
                    caller,
                    family,
                };
                let guarded = || query.take().map(|query| query.answer(&here.state, &moment));
                match catch_unwind(AssertUnwindSafe(guarded)) {
                    Ok(Some(answer)) => answer.map_err(Error::Rejected),
                    Ok(None) => Err(Error::Malformed("the query was taken already".into())),
                    Err(panic) => Err(Error::Crashed {
                        reason: panic_text(panic.as_ref()),
                    }),
                }
            }
            Body::Quarantined { seq, reason } => {
                let address = format!("{}/{}", E::KIND, slot.text);
                Err(Error::Quarantined {
                    address,
                    seq: *seq,
                    reason: reason.to_string(),
                })
            }
            _ => Err(Error::Unknown {
                kind: E::KIND,
                id: id.to_owned(),
            }),
        };
        if was_new {
            self.remove(common, at);
        } else {
            self.used(common, at);
        }
        looked
            .map(|answer| (answer, rests_on))
            .map_err(|error| Some((error, rests_on)))
    }
}

/// The refusal of a request, on its way to who asked. Where that cannot be recorded, nothing of it is.
fn report_refusal<R: Rejection>(
    common: &mut Common,
    registry: &Registry,
    own: &Address,
    asks: &Asks,
    rejection: &R,
) -> Result<Delivery, Error<R>> {
    let outcome = serde_json::to_string(&Err::<(), _>(rejection)).map_err(|why| unwritable("rejection", why));
    let written = outcome.and_then(|outcome| write_heard(common, registry, own, asks, outcome));
    match &written {
        Ok(_) => common.messages.keep(),
        Err(_) => common.messages.give_back(),
    }
    written
}
