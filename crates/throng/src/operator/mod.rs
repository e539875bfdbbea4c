//! Operator actions on an entity. The entity's owner executes them, whichever node is asked, also while work from outside is refused.

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

/// The longest wait for another node: it may have to drop many messages.
const PATIENCE: Duration = Duration::from_mins(1);

type OperatorResult<T> = Result<T, Error<JsonRejection>>;

/// The feature that all nodes must know before an entity may be quarantined, and its name.
const QUARANTINING: (u32, &str) = (QUARANTINES, "quarantine an entity");

impl Engine {
    /// Quarantines an entity until it is [released](Self::release). It executes nothing: commands and queries are refused with the reason,
    /// and timers and messages wait; the messages do so in the log, where they take no memory. The operator and the reason are recorded, so
    /// the quarantine survives a restart. Works also while work from outside is refused. Returns false if an operator has quarantined it
    /// already.
    ///
    /// # Errors
    /// `Unknown` for an entity without history; otherwise the engine's error.
    pub async fn quarantine(&self, kind: &str, id: &str, by: OperatorDecision<'_>) -> OperatorResult<bool> {
        let done = self.operate(OperatorActionKind::Quarantine, (kind, id), by).await?;
        Ok(done > 0)
    }

    /// Ends a quarantine. The end of an operator's quarantine is recorded with the operator, and the waiting messages are delivered in
    /// order. An entity that could not be loaded is loaded again by its next command; dead messages to it have to be
    /// [retried](Self::retry_dead). Returns false if it is not quarantined.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the engine is not ready. [`Error::Unknown`]: there is no such kind.
    pub async fn release(&self, kind: &str, id: &str, by: OperatorDecision<'_>) -> OperatorResult<bool> {
        let done = self.operate(OperatorActionKind::Release, (kind, id), by).await?;
        Ok(done > 0)
    }

    /// Drops the messages that wait now for an entity which an operator has [quarantined](Self::quarantine), and returns their number. They
    /// are never taken; an asker gets the outcome `Dropped`. The operator and the reason are recorded. Once begun, it is completed even if
    /// the caller stops waiting.
    ///
    /// # Errors
    /// `Rejected` if no operator has quarantined the entity; otherwise the engine's error. Messages dropped by then stay dropped.
    pub async fn drop_messages(&self, kind: &str, id: &str, by: OperatorDecision<'_>) -> OperatorResult<u64> {
        self.operate(OperatorActionKind::DropMessages, (kind, id), by).await
    }

    async fn operate(
        &self,
        what: OperatorActionKind,
        (kind, id): (&str, &str),
        by: OperatorDecision<'_>,
    ) -> OperatorResult<u64> {
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
    async fn operate_here(&self, epoch: &Arc<Epoch>, action: &OperatorAction) -> OperatorResult<u64> {
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

    /// Executes an operator action for another node.
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
    /// Drops the waiting messages to an entity of this node, here and on the nodes that sent them.
    async fn drop_messages_of(&self, epoch: &Arc<Epoch>, action: &OperatorAction) -> OperatorResult<u64> {
        let (tell, told) = tokio::sync::oneshot::channel();
        let (deliverer, to, by) = (epoch.deliverer.clone(), action.address(), owned(action.by()));
        // Runs on a thread of the engine's: it may take long, and the caller's thread may be a loop.
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

    /// Drops the messages that this node's shards have sent to an entity of another node, at that node's request.
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
