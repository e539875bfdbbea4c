//! Other nodes of a cluster: the requests to them, and the replies to theirs.
//!
//! The engine knows which shards it owns, what may be asked again, and in which order. [`Peers`] gets a request to the node that owns a
//! shard: it knows owners, connections and frames, but nothing of entities.

pub use crate::remote::{
    Ask, Asked, OperatorAction, OperatorActionKind, PeerMessage, Peers, RemoteError, RemoteEvent, Reply, Request,
    TakenAs,
};

use super::Driver;
use crate::{
    Engine,
    commit::widen,
    epoch::{Epoch, Member},
    executor::{AnswerSlot, command_of},
    feed::PageLimit,
    filter, history, listing,
    remote::unknown_kind,
    spans::TraceContext,
};
use std::time::Duration;
use throng_core::{
    limits,
    shard::{JsonRejection, JsonReply},
};
use throng_journal::{NodeId, ShardSet};

/// The most events of one reply, by number and by bytes.
const EVENTS_MAX: usize = 10_000;
const EVENT_BYTES_MAX: usize = 6 << 20;

impl Driver {
    fn engine(&self) -> Engine {
        Engine {
            core: self.core.clone(),
        }
    }

    /// Serves exactly these shards from now on, as this node of a cluster: ends the current stream in order, and opens the next one.
    ///
    /// [`throng_journal::Error`]: the shards are not the node's, the node was declared dead, or the journal or store cannot be reached.
    /// Then nothing is served, and the caller should try again.
    pub async fn serve(&self, node: NodeId, shards: ShardSet) -> Result<(), throng_journal::Error> {
        self.core.epochs.serve(Member { node, shards }).await
    }

    /// Ends the stream in order, and serves nothing until [`serve`](Self::serve) is called. Requests that arrive meanwhile wait for at most
    /// two seconds.
    ///
    /// # Errors
    /// [`throng_journal::Error`]: the journal or store cannot be reached, or another node sealed the stream.
    pub async fn release(&self) -> Result<(), throng_journal::Error> {
        self.core.epochs.release().await
    }

    /// Answers another node's request, within a time.
    pub async fn answer_peer(&self, request: Request, within: Duration) -> Reply {
        match request {
            Request::Ask(ask) => self.answer_ask(ask, None, within).await,
            Request::AskTraced(ask, span) => self.answer_ask(ask, span.parse().ok(), within).await,
            Request::Take(messages) => match self.core.epochs.running() {
                Some(epoch) => epoch.deliverer.take(messages).await,
                None => Reply::NotHere,
            },
            Request::History { kind, id, after, limit } => self.answer_history(&kind, &id, (after, limit)).await,
            Request::Erase { kind, id } => self.core.retention.answer_erase(&kind, &id).await,
            Request::Record { kind, id } => self.core.retention.answer_record(&kind, &id).await,
            Request::Prune { is_dry } => self.core.retention.answer_prune(is_dry).await,
            Request::Operate(action) => self.engine().answer_operate(&action).await,
            Request::DropSent(action) => self.core.answer_drop_sent(&action).await,
            Request::DropMessages { messages, by, reason } => match self.core.epochs.running() {
                Some(epoch) => epoch.deliverer.drop_messages(messages, (by, reason)).await,
                None => Reply::NotHere,
            },
            Request::Fields { kind, ids } => self.answer_fields(&kind, ids).await,
            Request::List { kind, after, limit } => self.answer_list(&kind, after.as_deref(), limit).await,
        }
    }

    async fn answer_history(&self, kind: &str, id: &str, (after, limit): (u64, u64)) -> Reply {
        let Some(kind) = self.core.context.registry.find(kind) else {
            return unknown_kind(kind);
        };
        let epoch = match self.core.epochs.owner_of(kind, id) {
            Ok(Some(epoch)) => epoch,
            Ok(None) => return Reply::NotHere,
            Err(error) => return Reply::Refused(error.into()),
        };
        let limit = PageLimit::of(usize::try_from(limit).unwrap_or(usize::MAX).min(EVENTS_MAX));
        match self.core.history_here(&epoch, (kind, id), after, limit).await {
            Ok(history) => match history.events.iter().map(|event| event.payload.len()).sum::<usize>() {
                0..=EVENT_BYTES_MAX => history::reply(history),
                bytes => Reply::Refused(RemoteError::Unavailable(format!(
                    "event {} of it has {bytes} bytes, and nodes send each other at most {EVENT_BYTES_MAX}: ask the node that owns it",
                    after + 1
                ))),
            },
            Err(error) => Reply::Refused(error.into()),
        }
    }

    async fn answer_list(&self, kind: &str, after: Option<&str>, limit: u64) -> Reply {
        let Some(kind) = self.core.context.registry.find(kind) else {
            return unknown_kind(kind);
        };
        let epoch = self.core.epochs.current::<JsonRejection>();
        let Some(epoch) = epoch.ok().filter(|epoch| !epoch.group_commit.is_closing()) else {
            return Reply::NotHere;
        };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        match listing::fresh(&epoch, kind, after, limit).await {
            Ok(found) => Reply::Listed {
                shards: epoch.group_commit.shards.bytes().to_vec(),
                heads: found.into_iter().map(|(id, seq)| (id.into(), seq)).collect(),
            },
            Err(error) => Reply::Refused(error.into()),
        }
    }

    async fn answer_fields(&self, kind: &str, ids: Vec<String>) -> Reply {
        let Some(kind) = self.core.context.registry.find(kind) else {
            return unknown_kind(kind);
        };
        let epoch = self.core.epochs.current::<JsonRejection>();
        let Some(epoch) = epoch.ok().filter(|epoch| !epoch.group_commit.is_closing()) else {
            return Reply::NotHere;
        };
        let ids = ids.into_iter().map(Into::into).collect();
        match filter::fields_here(&epoch, kind, ids).await {
            Ok(found) => Reply::Fields {
                shards: epoch.group_commit.shards.bytes().to_vec(),
                rows: found
                    .into_iter()
                    .map(|(id, row)| (id.into(), row.map(Into::into)))
                    .collect(),
            },
            Err(error) => Reply::Refused(error.into()),
        }
    }

    async fn answer_ask(&self, ask: Ask, span: Option<TraceContext>, within: Duration) -> Reply {
        let registry = &self.core.context.registry;
        let Some(kind) = registry.find(&ask.kind) else {
            return unknown_kind(&ask.kind);
        };
        let shard = limits::shard_of(limits::hash(&ask.kind, &ask.id), registry.shards());
        let is_here = |epoch: &Epoch| epoch.group_commit.shards.contains(shard) && !epoch.group_commit.is_closing();
        if !self.core.epochs.running().is_some_and(|epoch| is_here(&epoch)) {
            return Reply::NotHere;
        }
        let (work, key_life) = command_of(ask.what, ask.caller);
        let target = match self.core.context.target::<JsonRejection>(kind, ask.id.into()) {
            Ok(target) => target,
            Err(error) => return Reply::Refused(error.into()),
        };
        let answer = AnswerSlot::Json(JsonReply::default());
        let attempt = self
            .core
            .context
            .attempt(target, work, answer)
            .key_life(key_life)
            .within(within);
        let attempt = match span.filter(|_| self.tracer().is_some()) {
            Some(span) => attempt.traced(span),
            None => attempt,
        };
        let answered = match self.core.epochs.run(attempt).await {
            Ok(mut executed) => executed.answer().await,
            Err(refusal) => Err(widen::<JsonRejection>(refusal)),
        };
        match answered {
            Ok(body) => Reply::Done(body),
            Err(error) => Reply::Refused(error.into()),
        }
    }
}
