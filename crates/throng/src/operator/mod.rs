//! Decisions of operators about an entity: its owner executes them, whichever node is asked, also while work from outside is refused.

mod calls;
mod dead;
mod dead_of;
mod stuck;
pub(crate) mod unresolved;

pub use dead::{DeadContent, DeadContents, DeadFilter, DeadPage, Retried};
pub use dead_of::DeadDone;

use crate::{
    commit::{recovering, widen},
    engine::{Core, Engine},
    epoch::Epoch,
    executor::{OwnerOf, Work},
    remote::{OperatorAction, OperatorActionKind, RemoteError, Reply, Request, unknown_kind},
};
use std::{sync::Arc, time::Duration};
use throng_core::{
    model::Error,
    shard::{JsonRejection, OperatorDecision, Outcome},
};
use throng_journal::{Address, ShardSet, features::QUARANTINES};

/// Another node is waited for so long: it may have to drop many messages.
const PATIENCE: Duration = Duration::from_mins(1);

type Answer<T> = Result<T, Error<JsonRejection>>;

/// The feature that all nodes need for an entity to be quarantined, and its name.
const QUARANTINING: (u32, &str) = (QUARANTINES, "quarantine an entity");

impl Engine {
    /// Quarantines an entity until it is [released](Self::release): it has no turn, commands and queries are refused with the reason, and its
    /// timers and the messages to it wait, the messages in the log, where they take nobody's room. Recorded with who decided it and why, so
    /// that a start keeps it. Also while work from outside is refused. `false` if an operator has quarantined it already.
    ///
    /// # Errors
    /// `Unknown` for an entity to which nothing has ever happened, or the engine's.
    pub async fn quarantine(&self, kind: &str, id: &str, by: OperatorDecision<'_>) -> Answer<bool> {
        let done = self.operate(OperatorActionKind::Quarantine, (kind, id), by).await?;
        Ok(done > 0)
    }

    /// Ends a quarantine. One by an operator ends with a record of who decided that; the messages that have waited are delivered, in their
    /// order. An entity that could not be brought back is loaded again by its next command; messages to it that are dead are
    /// [tried again](Self::retry_dead) on their own. `false` if it is not quarantined.
    ///
    /// # Errors
    /// The engine is not ready, or has no such kind.
    pub async fn release(&self, kind: &str, id: &str, by: OperatorDecision<'_>) -> Answer<bool> {
        let done = self.operate(OperatorActionKind::Release, (kind, id), by).await?;
        Ok(done > 0)
    }

    /// Drops the messages that wait now for an entity which an operator has [quarantined](Self::quarantine): they are never taken. Recorded with
    /// who decided it and why; whoever asked for the outcome of one hears `Dropped`. How many they were. Once begun, it is carried to its end
    /// also if nobody waits for it.
    ///
    /// # Errors
    /// `Rejected` if no operator has quarantined the entity, or the engine's; what was dropped by then is gone all the same.
    pub async fn drop_messages(&self, kind: &str, id: &str, by: OperatorDecision<'_>) -> Answer<u64> {
        self.operate(OperatorActionKind::DropMessages, (kind, id), by).await
    }

    async fn operate(
        &self,
        what: OperatorActionKind,
        (kind, id): (&str, &str),
        by: OperatorDecision<'_>,
    ) -> Answer<u64> {
        let core = &self.core;
        core.context.may_change()?;
        let index = core.context.kind(kind)?;
        let owner = OwnerOf::new(&core.context, core.context.registry.shard_of(kind, id)).within(PATIENCE);
        let refused = core.context.refuse_older_nodes(QUARANTINING);
        refused.map_err(|reason| Error::Unavailable { reason })?;
        let action = OperatorAction {
            what,
            kind: kind.to_owned(),
            id: id.to_owned(),
            by: by.by.into_owned(),
            reason: by.reason.into_owned(),
        };
        loop {
            if let Some(epoch) = core.epochs.owner_of(index, id)? {
                return self.operate_here(&epoch, &action).await;
            }
            if let Reply::Operated(done) = owner.ask(Request::Operate(action.clone())).await? {
                return Ok(done);
            }
        }
    }

    /// Does it to an entity of this node.
    async fn operate_here(&self, epoch: &Arc<Epoch>, action: &OperatorAction) -> Answer<u64> {
        let core = &self.core;
        let by = owned(action.by());
        let work = match action.what {
            OperatorActionKind::Quarantine => Work::Quarantine(by),
            OperatorActionKind::Release => Work::Release(by),
            OperatorActionKind::DropMessages => return core.drop_messages_of(epoch, action).await,
        };
        let target = core
            .context
            .target(core.context.kind(&action.kind)?, action.id.clone().into())?;
        let outcome = self.decided(target, work).await?;
        Ok(u64::from(outcome == Outcome::Done))
    }

    /// Does what another node was asked for.
    pub(crate) async fn answer_operate(&self, action: &OperatorAction) -> Reply {
        let Some(kind) = self.core.context.registry.find(&action.kind) else {
            return unknown_kind(&action.kind);
        };
        let done = match self.core.epochs.owner_of(kind, &action.id) {
            Ok(Some(epoch)) if !epoch.group_commit.is_closing() => self.operate_here(&epoch, action).await,
            Ok(_) => return Reply::NotHere,
            Err(error) => Err(error),
        };
        match done {
            Ok(done) => Reply::Operated(done),
            Err(error) => Reply::Refused(error.into()),
        }
    }
}

impl Core {
    /// Drops what waits for an entity of this node, here and at the nodes it was sent from.
    async fn drop_messages_of(&self, epoch: &Arc<Epoch>, action: &OperatorAction) -> Answer<u64> {
        let (tell, told) = tokio::sync::oneshot::channel();
        let (deliverer, to, by) = (epoch.deliverer.clone(), action.address(), owned(action.by()));
        // On a thread of the engine's own: it may take long, and the caller's may be a loop.
        self.context.host.spawn(Box::pin(async move {
            let _ = tell.send(deliverer.drop_waiting(&to, by).await);
        }));
        let dropped = told.await.unwrap_or(Err(recovering())).map_err(widen)?;
        let mut all = dropped.ok_or_else(|| Error::Rejected(not_quarantined(&action.address())))?;
        let shards = ShardSet::first(self.context.registry.shards());
        let mut left = shards.without(&epoch.group_commit.shards);
        loop {
            let next = left.iter().next();
            let Some(shard) = next else { return Ok(all) };
            let owner = OwnerOf::new(&self.context, shard).within(PATIENCE);
            if let Reply::Dropped { shards, messages } = owner.ask(Request::DropSent(action.clone())).await? {
                left = left.without(&ShardSet::from_bytes(&shards));
                all += messages;
            }
        }
    }

    /// Drops what this node's shards have sent to an entity of another one, for that one.
    pub(crate) async fn answer_drop_sent(&self, action: &OperatorAction) -> Reply {
        let epoch = self.epochs.current::<JsonRejection>();
        let Some(epoch) = epoch.ok().filter(|epoch| !epoch.group_commit.is_closing()) else {
            return Reply::NotHere;
        };
        match epoch.deliverer.drop_sent(&action.address(), &action.by()).await {
            Some(messages) => Reply::Dropped {
                shards: epoch.group_commit.shards.bytes().to_vec(),
                messages,
            },
            None => {
                let why = format!("not all messages to {} could be dropped; ask again", action.address());
                Reply::Refused(RemoteError::Unavailable(why))
            }
        }
    }
}

impl OperatorAction {
    pub(crate) fn address(&self) -> Address {
        Address::new(&*self.kind, &*self.id)
    }

    pub(crate) fn by(&self) -> OperatorDecision<'_> {
        OperatorDecision::new(self.by.as_str(), self.reason.as_str())
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

fn owned(by: OperatorDecision<'_>) -> OperatorDecision<'static> {
    OperatorDecision::new(by.by.into_owned(), by.reason.into_owned())
}
