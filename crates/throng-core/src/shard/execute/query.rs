//! Queries, answered without changing or recording anything.

use super::{
    call::{QueryCall, Ran},
    outcome::{JsonRejection, Outcome},
    read::crashed,
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

/// The query's answer or error, and the number of the commit it rests on.
type Looked<E, R> = (Result<R, Error<<E as Entity>::Rejection>>, u64);

impl<E: Entity> Entities<E> {
    pub(crate) fn ask(&mut self, common: &mut Common, call: &mut QueryCall<'_>) -> Ran {
        let query = self.queries.iter().copied().find(|(name, _)| *name == call.name);
        let (asked, arguments, output) = ((call.now, call.caller), call.arguments, &mut *call.output);
        let looked = match query {
            Some((_, query)) => self.look(common, (call.hash, call.id), asked, |state, moment| {
                query(state, moment, arguments, output);
                Ok(())
            }),
            None => {
                let why = format!("{} has no query {:?}", E::KIND, call.name);
                Some((Err(Error::Malformed(why)), 0))
            }
        };
        match looked {
            None => Ran::Load,
            Some((Ok(()), rests_on)) => Ran::done(rests_on, Outcome::Done),
            Some((Err(error), rests_on)) => {
                call.output.error = error.engine::<JsonRejection>().ok().map(Box::new);
                Ran::done(rests_on, Outcome::Failed)
            }
        }
    }

    /// Reads an entity's state, typed. `None`: it has to be loaded.
    pub fn look<R>(
        &mut self,
        common: &mut Common,
        (hash, id): (u64, &str),
        (now, caller): (Timestamp, Option<&str>),
        read: impl FnOnce(&E, &Moment<'_, E>) -> Result<R, Error<E::Rejection>>,
    ) -> Option<Looked<E, R>> {
        if let Some((error, rests_on)) = common.refused_by_operator(hash, E::KIND, id) {
            return Some((Err(error), rests_on));
        }
        let (at, is_new) = match self.look_up(common, hash, id) {
            Lookup::Found { at, is_new } => (at, is_new),
            Lookup::Load => return None,
            Lookup::Refused(error) => return Some((Err(error), 0)),
        };
        let slot = self.slot(at);
        let rests_on = slot.rests_on;
        let kind = E::KIND;
        let looked = match &slot.body {
            Body::Resident(resident) if resident.is_gone => Err(Error::Ended { kind, id: id.into() }),
            Body::Resident(resident) if resident.seq > 0 => {
                let moment = Moment {
                    id: &resident.id,
                    seq: resident.seq_since(slot.ended),
                    now,
                    from: Asker::Client(caller),
                    family: slot.family.as_deref(),
                };
                catch_unwind(AssertUnwindSafe(|| read(&resident.state, &moment)))
                    .unwrap_or_else(|panic| Err(crashed(panic_text(panic.as_ref()))))
            }
            Body::Quarantined(aside) => Err(aside.refusal(kind, id)),
            _ => Err(Error::Unknown { kind, id: id.into() }),
        };
        if is_new {
            self.remove(common, at);
        } else {
            self.used(common, at);
        }
        Some((looked, rests_on))
    }
}
