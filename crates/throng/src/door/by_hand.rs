//! What a person decides of work that is left over: a dead message is tried again or dropped, a timer that cannot be fired is
//! cancelled.

use super::{Attempt, Door, Progress, Retry, Target, Wait, Work};
use crate::ledger::Staging;
use throng_core::{
    model::Error,
    shard::{Delivery, KnownDead, Outcome, Shard},
};
use throng_journal::Address;

impl Door {
    /// Drops a dead message, or cancels a timer. Its answer rests on the record that says so.
    pub(super) fn by_hand(&self, shard: &mut Shard, attempt: &mut Attempt<'_>, staging: &mut Staging<'_>) -> Progress {
        let done = match &mut attempt.work {
            Work::Drop(dead, by) => {
                if let Some(progress) = dead.prepare(shard) {
                    return progress;
                }
                let dropped = dead.delivery.take().map(|delivery| {
                    let now = self.context.host.now();
                    shard.drop_dead(&delivery, now, by, staging)
                });
                match dropped {
                    Some(Err(why)) => return Progress::Refused(Error::Malformed(why)),
                    dropped => dropped.and_then(Result::ok),
                }
            }
            Work::CancelTimer(name, by) => {
                let Target { kind, id, .. } = &attempt.target;
                let of = Address::new(self.context.registry.kinds()[*kind].name, &**id);
                let cancelled = shard.cancel_late_timer(&of, name, by, staging);
                if cancelled.is_none() {
                    return unknown("timer that could not be fired", &format!("{name} of {of}"));
                }
                cancelled
            }
            _ => None,
        };
        if let Some(commit) = done {
            attempt.rests_on(self.ledger.writer, commit);
        }
        Progress::Done(Outcome::Done)
    }
}

fn unknown(kind: &'static str, id: &str) -> Progress {
    Progress::Refused(Error::Unknown { kind, id: id.into() })
}

impl Retry {
    /// Finds the message; `Some`: it cannot be tried now.
    pub(super) fn prepare(&mut self, shard: &mut Shard) -> Option<Progress> {
        let unknown = || Some(unknown("dead message", &self.name));
        let value = match shard.known_dead(&self.row) {
            KnownDead::Dead(value) => value,
            KnownDead::NotDead => return unknown(),
            KnownDead::Stored(now) => match self.stored.take() {
                Some((seen, None)) if seen == now => return unknown(),
                Some((seen, Some(value))) if seen == now => value,
                // A checkpoint moved it meanwhile, or it was not looked for yet.
                _ => return Some(Progress::Wait(Wait::DeadMessage(now))),
            },
        };
        match Delivery::again(&self.row, &value) {
            Ok(delivery) => {
                self.delivery = Some(delivery);
                None
            }
            Err(why) => {
                let name = &self.name;
                let why = format!("the dead message {name} cannot be read: {why}");
                Some(Progress::Refused(Error::Malformed(why)))
            }
        }
    }
}
