//! Entities that are set aside or cannot be brought back, and what a person does about them.

use crate::{
    dead::owned,
    door::{Target, Work},
    driver::widen,
    engine::{Core, Engine},
    handle::unknown_kind,
    ledger::recovering,
    life::Life,
};
use std::{collections::BTreeMap, sync::Arc};
use throng_core::{
    model::{Error, Timestamp},
    shard::{ByHand, JsonRejection, Outcome, Quarantined},
};
use throng_journal::Address;

/// An entity that takes no messages now, because it cannot be loaded, or some not, because only a newer release of the service understands
/// them. It is tried again by itself; its messages wait in the log and hold up no other entity's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StuckEntity {
    /// The entity that cannot be brought back.
    pub address: Address,
    /// Why it could not be loaded the last time, or what is not understood.
    pub reason: String,
    /// Since when that is so.
    pub since: Timestamp,
    /// So many messages to it have waited since.
    pub messages: u64,
}

type Answer<T> = Result<T, Error<JsonRejection>>;

impl Engine {
    /// Entities that take no messages now, because they cannot be loaded, and those with messages from here that wait for a newer release:
    /// which, and why.
    #[must_use]
    pub fn stuck(&self) -> Vec<StuckEntity> {
        let Some(life) = self.core.lives.running() else {
            return Vec::new();
        };
        life.door.outbox.stuck()
    }

    /// Entities that an operator has quarantined, and those in memory that were set aside (their events cannot be applied by this program, or
    /// what is stored of them cannot be read): at most so many of each, kind and shard.
    ///
    /// # Errors
    /// The engine is not ready.
    pub async fn quarantined(&self, limit: usize) -> Answer<Vec<Quarantined>> {
        let life = self.core.lives.current()?;
        let kinds = self.core.context.registry.kinds().len();
        let mut found = Vec::new();
        for shard in life.door.shards() {
            let look = life.door.visit(shard, move |shard| {
                let of_kind = |kind| shard.quarantined(kind, limit);
                (0..kinds).flat_map(of_kind).collect::<Vec<_>>()
            });
            found.extend(look.await.map_err(widen)?);
        }
        found.sort_by(|one, other| one.address.cmp(&other.address));
        found.truncate(limit);
        Ok(found)
    }

    /// How many messages wait for each entity that an operator has quarantined, of those sent since the start or looked at since.
    #[must_use]
    pub fn waiting_messages(&self) -> BTreeMap<Address, u64> {
        let life = self.core.lives.running();
        life.map_or_else(BTreeMap::new, |life| life.door.outbox.waiting_for_quarantined())
    }

    /// The entities that most of the messages in memory are for, and how many, at most so many: while messages between entities take all their
    /// room, and work from outside is refused for that. An operator may quarantine one.
    #[must_use]
    pub fn crowding(&self, limit: usize) -> Vec<(Address, u64)> {
        let life = self.core.lives.running();
        life.map_or_else(Vec::new, |life| life.door.outbox.crowding(limit))
    }

    /// Quarantines an entity until it is [released](Self::release): it has no turn, commands and queries are refused with the reason, and its
    /// timers and the messages to it wait, the messages in the log, where they take nobody's room. Recorded with who decided it and why, so
    /// that a start keeps it. Also while work from outside is refused. `false` if an operator has quarantined it already.
    ///
    /// # Errors
    /// `Unknown` for an entity to which nothing has ever happened, or the engine's.
    pub async fn quarantine(&self, kind: &str, id: &str, by: ByHand<'_>) -> Answer<bool> {
        let target = self.core.named(kind, id)?;
        let outcome = self.decided(target, Work::Quarantine(owned(by))).await?;
        Ok(outcome == Outcome::Done)
    }

    /// Ends a quarantine. One by an operator ends with a record of who decided that; the messages that have waited are delivered, in their
    /// order. An entity that could not be brought back is loaded again by its next command; messages to it that are dead are
    /// [tried again](Self::retry_dead) on their own. `false` if it is not quarantined.
    ///
    /// # Errors
    /// The engine is not ready, or has no such kind.
    pub async fn release(&self, kind: &str, id: &str, by: ByHand<'_>) -> Answer<bool> {
        let target = self.core.named(kind, id)?;
        let outcome = self.decided(target, Work::Release(owned(by))).await?;
        Ok(outcome == Outcome::Done)
    }

    /// Drops the messages that wait now for an entity which an operator has [quarantined](Self::quarantine): they are never taken. Recorded with
    /// who decided it and why; whoever asked for the outcome of one hears `Dropped`. How many they were. Once begun, it is carried to its end
    /// also if nobody waits for it.
    ///
    /// # Errors
    /// `Rejected` if no operator has quarantined the entity, or the engine's; what was dropped by then is gone all the same.
    pub async fn drop_messages(&self, kind: &str, id: &str, by: ByHand<'_>) -> Answer<u64> {
        self.core.context.may_change()?;
        let index = self.core.named(kind, id)?.kind;
        let address = Address::new(self.core.context.registry.kinds()[index].name, id);
        let (life, by) = (self.core.lives.current()?, owned(by));
        self.core.drop_messages_here(&life, &address, by).await
    }
}

impl Core {
    /// An entity of a kind that is known.
    fn named(&self, kind: &str, id: &str) -> Answer<Target<'static>> {
        let index = self.context.registry.find(kind).ok_or_else(|| unknown_kind(kind))?;
        self.target(index, id.to_owned().into())
    }

    async fn drop_messages_here(&self, life: &Arc<Life>, to: &Address, by: ByHand<'static>) -> Answer<u64> {
        let (tell, told) = tokio::sync::oneshot::channel();
        let (mail, of) = (life.mail.clone(), to.clone());
        // On a thread of the engine's own: it may take long, and the caller's may be a loop.
        self.context.host.spawn(Box::pin(async move {
            let _ = tell.send(mail.drop_waiting(&of, by).await);
        }));
        let dropped = told.await.unwrap_or(Err(recovering())).map_err(widen)?;
        dropped.ok_or_else(|| Error::Rejected(not_quarantined(to)))
    }
}

fn not_quarantined(address: &Address) -> JsonRejection {
    JsonRejection {
        code: "not-quarantined",
        status: 409,
        field: None,
        message: format!("no operator has quarantined {address}: its messages are delivered; quarantine it first"),
        body: Vec::new(),
    }
}
