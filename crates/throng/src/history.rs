//! An entity's history: the events that the store has indexed, then those that are only in the log.

use crate::{
    commit::{recovering, unreadable, widen},
    engine::{Core, Engine},
    epoch::Epoch,
    executor::{OwnerOf, now_or_later},
    feed::{FeedError, PageLimit},
    remote::{RemoteEvent, Reply, Request},
};
use throng_core::{
    limits,
    model::Error,
    shard::{JsonRejection, TailEvent, base_row},
};
use throng_journal::{Address, CommitNo, Later, Position, RecordKind, StoredEvent, WriterId};

/// The most bytes of payloads on one page of history, after its first event.
const HISTORY_BYTES_MAX: usize = 4 << 20;
/// The most commits between two events of an entity for both to be read at once, and the bytes of such a read.
const NEAR: u64 = 16;
const NEAR_BYTES: usize = 1 << 20;

/// A page of an entity's history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Durable events in order, without a gap.
    pub events: Vec<StoredEvent>,
    /// True if there are more events: the page was cut at its number of events or at its bytes (4 MiB).
    pub more: bool,
    /// The last of the requested events that is no longer stored; 0 if all are.
    pub removed: u64,
}

impl History {
    /// Drops the events beyond this many bytes of payloads; the first one always stays.
    fn within(mut self, bytes_max: usize) -> Self {
        let mut bytes = 0;
        let fits = self.events.iter().take_while(|event| {
            let is_first = bytes == 0;
            bytes += event.payload.len();
            is_first || bytes <= bytes_max
        });
        let fits = fits.count();
        self.more |= fits < self.events.len();
        self.events.truncate(fits);
        self
    }

    /// True if there are no events after the requested number.
    fn is_end(&self) -> bool {
        self.events.is_empty() && !self.more && self.removed == 0
    }
}

impl Engine {
    /// Returns an entity's durable events after a sequence number, in order: at most `limit`, and 4 MiB of payloads. In a cluster, its
    /// owner is asked.
    ///
    /// # Errors
    /// [`Lost`](FeedError::Lost) for a number beyond the last event, which another history must have given. [`Engine`](FeedError::Engine)
    /// with `Unknown` for an entity without events, or with the engine's error.
    pub async fn history(&self, kind: usize, id: &str, after: u64, limit: usize) -> Result<History, FeedError> {
        self.history_within(kind, id, after, limit, usize::MAX).await
    }

    /// The same, with these bounds for events and bytes of payloads. It always returns at least one event, if there is one.
    ///
    /// # Errors
    /// The errors of [`history`](Self::history).
    pub async fn history_within(
        &self,
        kind: usize,
        id: &str,
        after: u64,
        events: usize,
        bytes: usize,
    ) -> Result<History, FeedError> {
        let history = self.history_after(kind, id, after, PageLimit { events, bytes }).await;
        let mut history = history.map_err(FeedError::Engine)?;
        if after > 0 && history.is_end() {
            let seen = self.history_at(kind, id, after).await?;
            let seen = seen.ok_or_else(|| FeedError::Lost(after.to_string()))?;
            history.removed = Some(seen.removed).filter(|removed| *removed > after).unwrap_or(0);
        }
        Ok(history)
    }

    /// Returns the event of a number above 0, or the rest of the history if it was removed; `None` if the number is beyond the last event.
    pub(crate) async fn history_at(&self, kind: usize, id: &str, seq: u64) -> Result<Option<History>, FeedError> {
        let look = async |after| match self.history_after(kind, id, after, PageLimit::of(1)).await {
            Ok(history) => Ok(Some(history).filter(|history| !history.is_end())),
            Err(Error::Unknown { .. }) => Ok(None),
            Err(error) => Err(FeedError::Engine(error)),
        };
        if let Some(found) = look(seq - 1).await? {
            return Ok(Some(found));
        }
        // The owner waits until the event is durable, because it is asked for what follows.
        look(seq).await?;
        if let Some(found) = look(seq - 1).await? {
            return Ok(Some(found));
        }
        // All of the history may be removed. If the store was rebuilt, only the beginning of the history shows how much.
        Ok(look(0).await?.filter(|history| history.removed >= seq))
    }

    /// The same without checking that there is an event of that number.
    pub(crate) async fn history_after(
        &self,
        kind: usize,
        id: &str,
        after: u64,
        limit: PageLimit,
    ) -> Result<History, Error<JsonRejection>> {
        let core = &self.core;
        if let Some(epoch) = core.epochs.owner_of(kind, id)? {
            return core.history_here(&epoch, (kind, id), after, limit).await;
        }
        let hash = core.context.target::<JsonRejection>(kind, id.into())?.hash;
        let shard = limits::shard_of(hash, core.context.registry.shards());
        let owner = OwnerOf::new(&core.context, shard);
        loop {
            if let Some(epoch) = core.epochs.owner_of(kind, id)? {
                return core.history_here(&epoch, (kind, id), after, limit).await;
            }
            let request = Request::History {
                kind: core.context.registry.kinds()[kind].name.to_owned(),
                id: id.to_owned(),
                after,
                limit: limit.events as u64,
            };
            if let Reply::History { events, more, removed } = owner.ask(request).await? {
                let events = events.into_iter().map(stored).collect();
                return Ok(History { events, more, removed }.within(limit.bytes));
            }
        }
    }
}

fn stored(event: RemoteEvent) -> StoredEvent {
    let (writer, commit) = event.position;
    StoredEvent {
        seq: event.seq,
        position: Position::new(WriterId(writer), CommitNo(commit)),
        at_micros: event.at_micros,
        name: event.name.into(),
        version: event.version,
        payload: event.payload,
    }
}

/// Converts a page of history to the reply for another node.
pub(crate) fn reply(history: History) -> Reply {
    let happened = |event: StoredEvent| RemoteEvent {
        seq: event.seq,
        position: (event.position.writer.0, event.position.commit.0),
        at_micros: event.at_micros,
        name: event.name.into(),
        version: event.version,
        payload: event.payload,
    };
    let History { events, more, removed } = history;
    Reply::History {
        events: events.into_iter().map(happened).collect(),
        more,
        removed,
    }
}

impl Core {
    /// Returns the history of an entity of this node.
    pub(crate) fn history_here<'a>(
        &'a self,
        epoch: &'a Epoch,
        (kind, id): (usize, &'a str),
        after: u64,
        limit: PageLimit,
    ) -> Later<'a, Result<History, Error<JsonRejection>>> {
        Box::pin(async move {
            let context = &self.context;
            let hash = self.context.target::<JsonRejection>(kind, id.into())?.hash;
            let name = context.registry.kinds()[kind].name;
            let address = Address::new(name, id);
            let unavailable =
                |error: throng_journal::Error| unreadable(format!("the history of {address} cannot be read"), &error);
            // The log comes first: events that a checkpoint moves meanwhile are then seen twice, never missed.
            let of = Box::<str>::from(id);
            let shard = epoch.executor.shard_of(hash);
            let tail = epoch.executor.visit(shard, move |shard| shard.tail(kind, hash, &of));
            let mut tail = tail.await.map_err(widen)?;
            let is_on_its_way =
                |event: &&TailEvent| !event.is_state && event.place.position > epoch.group_commit.durable();
            if let Some(event) = tail.iter().find(|event| event.seq == after).filter(is_on_its_way) {
                // Another node may have read the event before this one learns that it is durable.
                let until = context.until(Some(context.options.deadline));
                let durable = epoch
                    .group_commit
                    .wait_until(event.place.position.commit.0, until)
                    .await;
                durable.map_err(|_: Error<JsonRejection>| recovering())?;
            }
            tail.retain(|event| event.place.position <= epoch.group_commit.durable());
            let stated = tail.iter().rfind(|event| event.is_state).map_or(0, |state| state.seq);
            tail.retain(|event| !event.is_state);
            let PageLimit { events: limit, bytes } = limit;
            let bytes_max = bytes.min(HISTORY_BYTES_MAX);
            let stored = |after, limit, bytes_max| context.store.history(&address, after, limit, bytes_max);
            let mut events = stored(after, limit.saturating_add(1), bytes_max)
                .await
                .map_err(unavailable)?;
            let mut more = events.len() > limit;
            events.truncate(limit);
            if !more {
                let last = events.last().map_or(after, |event| event.seq);
                tail.retain(|event| event.seq > last);
                match tail.first() {
                    // Numbers have no gaps, so a gap is what the store left out for its bytes. Only before the first event may there be
                    // another reason: the events are no longer stored.
                    Some(first) => more = !events.is_empty() && first.seq != last + 1,
                    // The store may have left out some. It always returns at least one event.
                    None if !events.is_empty() => more = !stored(last, 1, 0).await.map_err(unavailable)?.is_empty(),
                    None => {}
                }
            }
            if !more {
                let bytes = events.iter().map(|event| event.payload.len()).sum();
                let fits = fitting(&tail, limit - events.len(), bytes, bytes_max);
                more = fits < tail.len();
                tail.truncate(fits);
                self.read_tail((name, id), &tail, &mut events)
                    .await
                    .map_err(unavailable)?;
            }
            let removed = match events.first() {
                Some(first) if first.seq > after + 1 => first.seq - 1,
                Some(_) => 0,
                None if more => 0,
                None => match self.recorded(&address).await.map_err(unavailable)?.max(stated) {
                    // A rebuilt store has only the state.
                    0 if after == 0 => {
                        let version = context.registry.kinds()[kind].state_version;
                        let stored = now_or_later(context.store.load(&address, version)).await;
                        stored.map_err(unavailable)?.state.map_or(0, |state| state.seq)
                    }
                    recorded => recorded,
                },
            };
            if events.is_empty() && after == 0 && !more && removed == 0 {
                return Err(Error::Unknown {
                    kind: name,
                    id: id.to_owned(),
                });
            }
            Ok(History {
                events,
                more,
                removed: if removed > after { removed } else { 0 },
            })
        })
    }

    /// Returns the last event whose resulting state is in the log, so that events up to it need not be kept.
    async fn recorded(&self, address: &Address) -> Result<u64, throng_journal::Error> {
        let row = now_or_later(self.context.store.system(&base_row(address))).await?;
        let seq = row.and_then(|row| row.first_chunk::<8>().copied());
        Ok(seq.map_or(0, u64::from_be_bytes))
    }

    /// Reads events that are only in the log; those close to each other with one read.
    async fn read_tail(
        &self,
        (kind, id): (&str, &str),
        mut tail: &[TailEvent],
        events: &mut Vec<StoredEvent>,
    ) -> Result<(), throng_journal::Error> {
        while let Some(first) = tail.first().map(|event| event.place.position) {
            let before = Position::new(first.writer, CommitNo(first.commit.0 - 1));
            let other = tail.iter().map(|event| event.place.position).find(|at| *at != first);
            let is_near = other.is_some_and(|at| at.writer == first.writer && at.commit.0 - first.commit.0 <= NEAR);
            let bytes_max = if is_near { NEAR_BYTES } else { 0 };
            let commits = self.context.journal.read(before, bytes_max).await?;
            for commit in &commits {
                let position = commit.position();
                let count = tail.iter().take_while(|event| event.place.position == position).count();
                let (here, rest) = tail.split_at(count);
                let (Some(from), Some(to)) = (here.first(), here.last()) else {
                    continue;
                };
                let own = commit.records().flatten().filter(|record| {
                    record.record == RecordKind::Event
                        && (record.kind, record.id) == (kind, id)
                        && (from.seq..=to.seq).contains(&record.seq)
                });
                events.extend(own.map(|record| StoredEvent {
                    seq: record.seq,
                    position,
                    at_micros: commit.stamp().at_micros,
                    name: record.name.into(),
                    version: record.version,
                    payload: record.body.to_vec(),
                }));
                tail = rest;
            }
            if tail.first().is_some_and(|event| event.place.position == first) {
                return Err(throng_journal::Error::NoCommit(first));
            }
        }
        Ok(())
    }
}

/// Returns how many of the events fit on a page that already has `bytes` of payloads: at most `limit`, and on an empty page at least
/// one.
fn fitting(tail: &[TailEvent], limit: usize, bytes: usize, bytes_max: usize) -> usize {
    let mut total = bytes;
    tail.iter()
        .take(limit)
        .take_while(|event| {
            let is_first = total == 0;
            total += event.place.len as usize;
            is_first || total <= bytes_max
        })
        .count()
}
