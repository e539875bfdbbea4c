//! What has happened to an entity: what the store has indexed, then what stands only in the log.

use crate::{
    door::{OwnerOf, now_or_later},
    driver::{
        peers::{Happened, Reply, Request},
        widen,
    },
    engine::{Core, Engine},
    ledger::unreadable,
    life::Life,
};
use std::sync::Arc;
use throng_core::{
    limits,
    model::Error,
    shard::{JsonRejection, TailEvent, base_row},
};
use throng_journal::{Address, CommitNo, Later, Position, RecordKind, StoredEvent, WriterId};

/// Most bytes of payloads one page of history holds, after its first event.
const HISTORY_BYTES_MAX: usize = 4 << 20;
/// Commits between two events of an entity up to which both are read at once, so many bytes at a time.
const NEAR: u64 = 16;
const NEAR_BYTES: usize = 1 << 20;

/// A page of an entity's history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Durable events in order, without a gap.
    pub events: Vec<StoredEvent>,
    /// There are more after them: the page was cut by its number of events or by its bytes (4 MiB).
    pub more: bool,
    /// Events up to this one, of those asked for, are not kept any more; 0 where all are.
    pub removed: u64,
}

impl Engine {
    /// An entity's durable events after a sequence number, in order, at most `limit` and 4 MiB of payloads. In a cluster, its owner is asked.
    ///
    /// # Errors
    /// `Unknown` for an entity without events, or the engine's.
    pub async fn history(
        &self,
        kind: usize,
        id: &str,
        after: u64,
        limit: usize,
    ) -> Result<History, Error<JsonRejection>> {
        let core = &self.core;
        if let Some(life) = core.owner_of(kind, id)? {
            return core.history_here(&life, (kind, id), after, limit).await;
        }
        let hash = core.target::<JsonRejection>(kind, id.into())?.hash;
        let shard = limits::shard_of(hash, core.context.registry.shards());
        let owner = OwnerOf::new(core, shard);
        loop {
            if let Some(life) = core.owner_of(kind, id)? {
                return core.history_here(&life, (kind, id), after, limit).await;
            }
            let request = Request::History {
                kind: core.context.registry.kinds()[kind].name.to_owned(),
                id: id.to_owned(),
                after,
                limit: limit as u64,
            };
            if let Reply::History { events, more, removed } = owner.ask(request).await? {
                let events = events.into_iter().map(stored).collect();
                return Ok(History { events, more, removed });
            }
        }
    }
}

fn stored(event: Happened) -> StoredEvent {
    let (writer, commit) = event.position;
    StoredEvent {
        seq: event.seq,
        position: Position {
            writer: WriterId(writer),
            commit: CommitNo(commit),
        },
        at_micros: event.at_micros,
        name: event.name.into(),
        version: event.version,
        payload: event.payload,
    }
}

/// As another node is told.
pub(crate) fn reply(history: History) -> Reply {
    let happened = |event: StoredEvent| Happened {
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
    /// The life that answers for an entity, if this node owns it.
    pub(crate) fn owner_of(&self, kind: usize, id: &str) -> Result<Option<Arc<Life>>, Error<JsonRejection>> {
        let hash = self.target::<JsonRejection>(kind, id.into())?.hash;
        let shard = limits::shard_of(hash, self.context.registry.shards());
        let life = match self.lives.current() {
            // The next one answers, here or elsewhere.
            Err(_) if self.lives.is_short() => return Ok(None),
            life => life?,
        };
        Ok(life.ledger.shards.contains(shard).then_some(life))
    }

    /// What has happened to an entity of this node.
    pub(crate) fn history_here<'a>(
        &'a self,
        life: &'a Life,
        (kind, id): (usize, &'a str),
        after: u64,
        limit: usize,
    ) -> Later<'a, Result<History, Error<JsonRejection>>> {
        Box::pin(async move {
            let context = &self.context;
            let hash = self.target::<JsonRejection>(kind, id.into())?.hash;
            let name = context.registry.kinds()[kind].name;
            let address = Address::new(name, id);
            let unavailable =
                |error: throng_journal::Error| unreadable(format!("the history of {address} cannot be read"), &error);
            // The tail first: what a checkpoint moves meanwhile is then seen twice, never missed.
            let of = Box::<str>::from(id);
            let shard = life.door.shard_of(hash);
            let tail = life.door.visit(shard, move |shard| shard.tail(kind, hash, &of));
            let mut tail = tail.await.map_err(widen)?;
            tail.retain(|event| event.place.position <= life.ledger.durable());
            let stored = |after, limit, bytes_max| context.store.history(&address, after, limit, bytes_max);
            let mut events = stored(after, limit.saturating_add(1), HISTORY_BYTES_MAX)
                .await
                .map_err(unavailable)?;
            let mut more = events.len() > limit;
            events.truncate(limit);
            if !more {
                let last = events.last().map_or(after, |event| event.seq);
                tail.retain(|event| event.seq > last);
                match tail.first() {
                    // Numbers have no gaps: between the two is what the store left out for its bytes. Before the first there may be one:
                    // what is not kept any more.
                    Some(first) => more = !events.is_empty() && first.seq != last + 1,
                    // Also what the store left out; one event it always gives.
                    None if !events.is_empty() => more = !stored(last, 1, 0).await.map_err(unavailable)?.is_empty(),
                    None => {}
                }
            }
            if !more {
                let bytes = events.iter().map(|event| event.payload.len()).sum();
                let fits = fitting(&tail, limit - events.len(), bytes);
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
                None => self.recorded(&address).await.map_err(unavailable)?,
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

    /// Up to which event the log says what an entity is, so that its events need not be kept.
    async fn recorded(&self, address: &Address) -> Result<u64, throng_journal::Error> {
        let row = now_or_later(self.context.store.system(&base_row(address))).await?;
        let seq = row.and_then(|row| row.first_chunk::<8>().copied());
        Ok(seq.map_or(0, u64::from_be_bytes))
    }

    /// Reads events that stand only in the log: those that stand close together at once.
    async fn read_tail(
        &self,
        (kind, id): (&str, &str),
        mut tail: &[TailEvent],
        events: &mut Vec<StoredEvent>,
    ) -> Result<(), throng_journal::Error> {
        while let Some(first) = tail.first().map(|event| event.place.position) {
            let before = Position {
                commit: CommitNo(first.commit.0 - 1),
                ..first
            };
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

/// How many of them fit into a page that has this many bytes and no events more than `limit`; the first of a page always.
fn fitting(tail: &[TailEvent], limit: usize, bytes: usize) -> usize {
    let mut total = bytes;
    tail.iter()
        .take(limit)
        .take_while(|event| {
            let is_first = total == 0;
            total += event.place.len as usize;
            is_first || total <= HISTORY_BYTES_MAX
        })
        .count()
}
