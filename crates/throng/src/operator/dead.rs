//! Dead messages, which could not be taken. An operator looks at them here, and retries or drops them.

use super::{OperatorResult, owned};
use crate::{
    commit::{unreadable, widen},
    context::Context,
    engine::Engine,
    epoch::Epoch,
    executor::{AnswerSlot, Retry, Target, Work, batch},
    hex::{hex, read_hex},
};
use serde_json::value::RawValue;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use throng_core::{
    limits,
    model::Error,
    shard::{DeadMessage, JsonReply, OperatorDecision, Outcome, dead_command, dead_row, dead_rows},
};
use throng_journal::{Address, ShardId};

/// A filter of dead messages: by the receiver's kind, by the receiver, or by the cause.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadFilter {
    /// The receivers' kind.
    pub kind: Option<String>,
    /// The receiver's id within the kind.
    pub id: Option<String>,
    /// The [cause](DeadMessage::cause) they died of, or the whole reason.
    pub cause: Option<String>,
}

impl DeadFilter {
    pub(super) fn to(&self) -> Option<(&str, Option<&str>)> {
        self.kind.as_deref().map(|kind| (kind, self.id.as_deref()))
    }

    /// True if the filter accepts a message.
    #[must_use]
    pub fn is_meant(&self, message: &DeadMessage) -> bool {
        let cause = self.cause.as_deref();
        cause.is_none_or(|cause| message.reason == cause || message.cause() == cause)
    }
}

/// A page of dead messages, in the order of their receivers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadPage {
    /// The messages, at most as many as were asked for, in the order of their numbers.
    pub messages: Vec<DeadMessage>,
    /// The place where the next page begins, to be given as `after`; `None` if this page is not full.
    pub next: Option<String>,
}

/// A dead message with its content.
#[derive(Clone, Debug)]
pub struct DeadContent {
    /// The other information about it.
    pub message: DeadMessage,
    /// The command for its receiver, as JSON.
    pub command: Box<RawValue>,
}

/// Dead messages with their content, in the order of their receivers.
#[derive(Clone, Debug, Default)]
pub struct DeadContents {
    /// The messages, at most as many as were asked for.
    pub messages: Vec<DeadContent>,
    /// The `after` of the next page.
    pub next: Option<String>,
}

/// The outcome of a retried dead message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Retried {
    /// The receiver took it.
    Done,
    /// The receiver refused it, for this reason. The message was taken, and the retry is over.
    Refused(String),
    /// The message is dead again, for this reason.
    Dead(String),
}

/// The error's text when the store's rows of dead messages cannot be read.
const UNREADABLE: &str = "the dead messages cannot be read";
/// The most messages of a page, and the most retried in one go.
pub(super) const PAGE_MAX: usize = 1_000;

impl Engine {
    /// Returns a page of dead messages after `after`, at most `limit` (never more than 1,000): all, or those to a kind or to one entity.
    /// A page reads as many rows of the store, besides those of messages that are no longer dead since the last checkpoint.
    ///
    /// # Errors
    /// `Malformed` for an `after` that no page returned; otherwise the engine's error.
    pub async fn dead_messages(
        &self,
        to: Option<(&str, Option<&str>)>,
        after: Option<&str>,
        limit: usize,
    ) -> OperatorResult<DeadPage> {
        let (messages, next) = self.dead_page(to, after, limit, DeadMessage::read).await?;
        Ok(DeadPage { messages, next })
    }

    /// The same with the messages' content, of those with one [cause](DeadMessage::cause) or any. A page may hold fewer messages than
    /// requested.
    ///
    /// # Errors
    /// The same as for [`dead_messages`](Self::dead_messages).
    pub async fn dead_contents(
        &self,
        of: &DeadFilter,
        after: Option<&str>,
        limit: usize,
    ) -> OperatorResult<DeadContents> {
        let read = |row: &[u8], value: &[u8]| {
            let message = DeadMessage::read(row, value).filter(|message| of.is_meant(message))?;
            let command = dead_command(value)?.to_owned();
            Some(DeadContent { message, command })
        };
        let (messages, next) = self.dead_page(of.to(), after, limit, read).await?;
        Ok(DeadContents { messages, next })
    }

    async fn dead_page<T: Send>(
        &self,
        to: Option<(&str, Option<&str>)>,
        after: Option<&str>,
        limit: usize,
        read: impl Fn(&[u8], &[u8]) -> Option<T> + Send + Sync,
    ) -> OperatorResult<(Vec<T>, Option<String>)> {
        let context = &self.core.context;
        let begin = dead_rows(to);
        let after = after.map_or(Ok(Vec::new()), |after| {
            let malformed = || Error::Malformed(format!("{after:?} is not where a page of dead messages ended"));
            read_hex(after)
                .filter(|row| row.starts_with(&begin))
                .ok_or_else(malformed)
        })?;
        let epoch = self.core.epochs.current()?;
        let rows = DeadRows {
            begin: &begin,
            after: &after,
            limit: limit.clamp(1, PAGE_MAX),
        };
        let (found, next) = rows.read(context, &epoch, read).await?;
        let last = epoch.group_commit.last();
        batch::wake_committer(context);
        epoch.group_commit.wait_until(last, context.until(None)).await?;
        Ok((found, next.map(|row| hex(&row))))
    }

    /// Retries a dead message once. It is named by its receiver and its number ([`DeadMessage::number`]) there. Taking it
    /// records the outcome together with its effects, so that two concurrent retries take effect once.
    ///
    /// # Errors
    /// `Unknown` if it is not, or no longer, dead; otherwise the engine's error.
    pub async fn retry_dead(&self, kind: &str, id: &str, number: (ShardId, u64)) -> OperatorResult<Retried> {
        let (core, to) = (&self.core, Address::new(kind, id));
        let index = core.context.kind(kind)?;
        let target = core.context.target(index, id.to_owned().into())?;
        let reply = AnswerSlot::Json(JsonReply::default());
        let attempt = core
            .context
            .attempt(target, Work::Retry(Box::new(Retry::of(&to, number))), reply);
        let executed = core.epochs.run(attempt).await.map_err(widen)?;
        let (outcome, answer) = (executed.outcome(), executed.settled().await.map_err(widen)?);
        let AnswerSlot::Json(JsonReply { error, .. }) = answer else {
            return Err(Error::OutcomeUnknown);
        };
        let reason = error.map(|error| error.to_string()).unwrap_or_default();
        Ok(match outcome {
            Outcome::Done => Retried::Done,
            Outcome::Refused => Retried::Refused(reason),
            Outcome::Failed => Retried::Dead(reason),
        })
    }

    /// Drops a dead message, named by its receiver and its number there: it is never taken. The operator and the reason are recorded.
    /// An asker gets the outcome `Dropped`. The receiver's kind need not be known.
    ///
    /// # Errors
    /// `Unknown` if it is not, or no longer, dead; otherwise the engine's error.
    pub async fn drop_dead(
        &self,
        kind: &str,
        id: &str,
        number: (ShardId, u64),
        by: OperatorDecision<'_>,
    ) -> OperatorResult<()> {
        let to = Address::new(kind, id);
        let target = Target {
            kind: self.core.context.registry.find(kind).unwrap_or_default(),
            hash: limits::hash(kind, id),
            id: id.to_owned().into(),
        };
        let work = Work::Drop(Box::new(Retry::of(&to, number)), owned(by));
        self.decided(target, work).await.map(drop)
    }

    /// Cancels a timer of an entity that could not be fired ([`late_timers`](Self::late_timers)). The operator and the reason are recorded.
    /// The entity may set it again.
    ///
    /// # Errors
    /// `Unknown` if there is no such timer, or it is not late; otherwise the engine's error.
    pub async fn cancel_late_timer(
        &self,
        kind: &str,
        id: &str,
        name: &str,
        by: OperatorDecision<'_>,
    ) -> OperatorResult<()> {
        let core = &self.core;
        let index = core.context.kind(kind)?;
        let target = core.context.target(index, id.to_owned().into())?;
        let work = Work::CancelTimer(name.into(), owned(by));
        self.decided(target, work).await.map(drop)
    }

    /// Executes an operator action, durably.
    pub(crate) async fn decided(&self, target: Target<'static>, work: Work<'static>) -> OperatorResult<Outcome> {
        let attempt = self.core.context.attempt(target, work, AnswerSlot::Nobody);
        let executed = self.core.epochs.run(attempt).await.map_err(widen)?;
        let outcome = executed.outcome();
        executed.settled().await.map_err(widen)?;
        Ok(outcome)
    }

    /// Retries the dead messages to an entity, each once, in the order of [`dead_messages`]: at most 1,000 after `after`. Returns the
    /// outcome of each, and the `after` of the next page.
    ///
    /// # Errors
    /// The error of the first message that could not be retried; all before it were.
    ///
    /// [`dead_messages`]: Self::dead_messages
    pub async fn retry_all_dead(
        &self,
        kind: &str,
        id: &str,
        after: Option<&str>,
    ) -> OperatorResult<(Vec<(DeadMessage, Retried)>, Option<String>)> {
        let page = self.dead_messages(Some((kind, Some(id))), after, PAGE_MAX).await?;
        let mut came = Vec::with_capacity(page.messages.len());
        for message in page.messages {
            match self.retry_dead(kind, id, message.number).await {
                Ok(retried) => came.push((message, retried)),
                // Another caller was faster.
                Err(Error::Unknown { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok((came, page.next))
    }
}

/// A page of rows of dead messages: the prefix, the last row before, and the most rows.
pub(super) struct DeadRows<'a> {
    pub(super) begin: &'a [u8],
    pub(super) after: &'a [u8],
    pub(super) limit: usize,
}

impl DeadRows<'_> {
    /// Reads a page from the shards and the store. Returns the result of `read` for each row, and the last row if there may be more.
    pub(super) async fn read<T: Send>(
        &self,
        context: &Context,
        epoch: &Arc<Epoch>,
        read: impl Fn(&[u8], &[u8]) -> Option<T> + Send + Sync,
    ) -> OperatorResult<(Vec<T>, Option<Vec<u8>>)> {
        let mut found = BTreeMap::new();
        let mut gone = BTreeSet::new();
        // The shards come first: messages that a checkpoint moves meanwhile are then seen twice, never missed.
        for shard in epoch.executor.shards() {
            let (begin, after, limit) = (self.begin.to_vec(), self.after.to_vec(), self.limit);
            let fresh = epoch
                .executor
                .visit(shard, move |shard| shard.fresh_dead(&begin, &after, limit));
            for (row, value) in fresh.await.map_err(widen)? {
                match value {
                    Some(value) => drop(found.insert(row.clone(), read(&row, &value))),
                    None => drop(gone.insert(row)),
                }
            }
        }
        let mut visit = |row: &[u8], value: &[u8]| {
            if !gone.contains(row) {
                found.entry(row.to_vec()).or_insert_with(|| read(row, value));
            }
        };
        let rows_max = self.limit + gone.len();
        let scanned = context.store.system_scan(self.begin, self.after, rows_max, &mut visit);
        scanned.await.map_err(|why| unreadable(UNREADABLE.into(), &why))?;
        let is_full = found.len() >= self.limit;
        let last = found.keys().nth(self.limit - 1).filter(|_| is_full).cloned();
        Ok((found.into_values().take(self.limit).flatten().collect(), last))
    }
}

impl Retry {
    fn of(to: &Address, number: (ShardId, u64)) -> Self {
        Self {
            name: format!("{}-{} to {to}", number.0, number.1),
            row: dead_row(to, number),
            stored: None,
            delivery: None,
        }
    }
}
