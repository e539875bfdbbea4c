//! Answering queries in place: nothing is changed, nothing recorded.

use super::{
    call::{QueryCall, Ran},
    outcome::{JsonRejection, JsonReply, Outcome},
};
use crate::{
    model::{Asker, Entity, Error, Moment, Timestamp},
    shard::{
        Common,
        resident::{
            Entities, Lookup,
            slot::{Body, panic_text},
        },
    },
};
use std::panic::{AssertUnwindSafe, catch_unwind};

impl<E: Entity> Entities<E> {
    pub(crate) fn ask(&mut self, common: &mut Common, call: &mut QueryCall<'_>) -> Ran {
        let done = |reply: &mut JsonReply, error, rests_on| {
            reply.error = Some(Box::new(error));
            Ran::Done {
                rests_on,
                outcome: Outcome::Failed,
            }
        };
        let Some((_, query)) = self.queries.iter().copied().find(|(name, _)| *name == call.name) else {
            return done(
                call.output,
                Error::Malformed(format!("{} has no query {:?}", E::KIND, call.name)),
                0,
            );
        };
        if let Some((error, rests_on)) = common.refused_by_operator(call.hash, E::KIND, call.id) {
            return done(call.output, error, rests_on);
        }
        let (at, is_new) = match self.look_up(common, call.hash, call.id) {
            Lookup::Found { at, is_new } => (at, is_new),
            Lookup::Load => return Ran::Load,
            Lookup::Refused(error) => {
                call.output.error = error.engine::<JsonRejection>().ok().map(Box::new);
                return Ran::Done {
                    rests_on: 0,
                    outcome: Outcome::Failed,
                };
            }
        };
        let slot = self.slot(at);
        let rests_on = slot.rests_on;
        let ran = match &slot.body {
            Body::Resident(resident) if resident.seq > 0 && !resident.is_gone => {
                let family = slot.family.as_deref();
                let moment = Moment {
                    id: &resident.id,
                    seq: resident.seq_since(slot.ended),
                    now: call.now,
                    from: Asker::Client(call.caller),
                    family,
                };
                let guarded = || query(&resident.state, &moment, call.arguments, call.output);
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
            Body::Quarantined(aside) => {
                let address = format!("{}/{}", E::KIND, slot.text);
                done(
                    call.output,
                    Error::Quarantined {
                        address,
                        seq: aside.seq,
                        reason: aside.reason.clone(),
                        by_operator: false,
                    },
                    rests_on,
                )
            }
            body => done(call.output, nobody::<E, _>(body, call.id), rests_on),
        };
        if is_new {
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
        if let Some(refused) = common.refused_by_operator(hash, E::KIND, id) {
            return Err(Some(refused));
        }
        let (at, is_new) = match self.look_up(common, hash, id) {
            Lookup::Found { at, is_new } => (at, is_new),
            Lookup::Load => return Err(None),
            Lookup::Refused(error) => return Err(Some((error, 0))),
        };
        let slot = self.slot(at);
        let rests_on = slot.rests_on;
        let looked = match &slot.body {
            Body::Resident(resident) if resident.seq > 0 && !resident.is_gone => {
                let family = slot.family.as_deref();
                let moment = Moment {
                    id: &resident.id,
                    seq: resident.seq_since(slot.ended),
                    now,
                    from: Asker::Client(caller),
                    family,
                };
                let guarded = || query.take().map(|query| query.answer(&resident.state, &moment));
                match catch_unwind(AssertUnwindSafe(guarded)) {
                    Ok(Some(answer)) => answer.map_err(Error::Rejected),
                    Ok(None) => Err(Error::Malformed("the query was taken already".into())),
                    Err(panic) => Err(Error::Crashed {
                        reason: panic_text(panic.as_ref()),
                    }),
                }
            }
            Body::Quarantined(aside) => {
                let address = format!("{}/{}", E::KIND, slot.text);
                Err(Error::Quarantined {
                    address,
                    seq: aside.seq,
                    reason: aside.reason.clone(),
                    by_operator: false,
                })
            }
            body => Err(nobody::<E, _>(body, id)),
        };
        if is_new {
            self.remove(common, at);
        } else {
            self.used(common, at);
        }
        looked
            .map(|answer| (answer, rests_on))
            .map_err(|error| Some((error, rests_on)))
    }
}

/// Why there is nothing to look at.
fn nobody<E: Entity, R>(body: &Body<E>, id: &str) -> Error<R> {
    let (kind, id) = (E::KIND, id.to_owned());
    match body {
        Body::Resident(resident) if resident.is_gone => Error::Ended { kind, id },
        _ => Error::Unknown { kind, id },
    }
}
