//! Filters over the entities of a kind, by its [indexed fields](throng_core::model::Entity::INDEXED).
//!
//! The store has a row of the fields for each entity, as of one of its events. Where that is the entity's last event, the row counts. All
//! other entities are asked: those that have changed since the last checkpoint, and those of a journal that was written without these
//! fields. The checkpoint after that writes their rows.

mod condition;

pub use condition::{Filter, FilterError};

use crate::{
    commit::{recovering, unreadable, widen},
    engine::Engine,
    epoch::Epoch,
    executor::{OwnerOf, Target, batch},
    remote::{Reply, Request},
};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use throng_core::{
    limits,
    model::Error,
    shard::{Indexed, JsonRejection, index_row, read_indexed},
};
use throng_journal::{Address, EntityHead, ShardId, ShardSet, features::INDEXES};

/// Entities, and rows, that are read at once. They are read while others of the loop wait.
const STEP: usize = 500;
/// Entities that one page examines at most.
pub const EXAMINED_MAX: usize = 100_000;
/// Entities that one page asks at most, because their row does not count.
pub const ASKED_MAX: usize = 2_000;
/// Entities that are asked at once: their rows fit into a frame between nodes.
const ASKED_AT_ONCE: usize = 240;
const _: () = {
    let row = limits::INDEXED_FIELDS_MAX * (limits::INDEXED_BYTES_MAX * 6 + 3) + 17;
    let longest = if row > limits::INDEXED_ROW_BYTES_MAX {
        row
    } else {
        limits::INDEXED_ROW_BYTES_MAX
    };
    assert!(ASKED_AT_ONCE * (longest + limits::ID_BYTES_MAX + 16) <= 6 << 20);
};

/// A part of the entities that a filter matches.
#[derive(Clone, Copy, Debug, Default)]
pub struct MatchRange<'a> {
    /// The beginning of all ids of the part.
    pub prefix: &'a str,
    /// The id after which the part begins.
    pub after: Option<&'a str>,
    /// The most entities of one page.
    pub limit: usize,
}

/// An entity that a filter matches.
#[derive(Clone, Debug, PartialEq)]
pub struct Match {
    /// Its id, and the number of its last event.
    pub head: EntityHead,
    /// The values of the kind's indexed fields, in their order; an object stands for a list that is too long.
    pub fields: Vec<Value>,
}

/// A page of entities that a filter matches.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matches {
    /// The entities, in the order of their ids.
    pub found: Vec<Match>,
    /// The id after which to go on; `None`: there are no others. A page may end before it has found all it may.
    pub next: Option<Box<str>>,
    /// The number of entities that were examined.
    pub examined: usize,
    /// The number of those of which it is not known: they are quarantined, at a node with another program, or have a list that is too long.
    pub unknown: usize,
}

type Answered<T> = Result<T, Error<JsonRejection>>;
/// The rows of entities; `None` for one whose fields are not known. Entities that are not there are missing.
type FieldRows = HashMap<Box<str>, Option<Vec<u8>>>;

impl Engine {
    /// The entities of a kind that a filter matches, in the order of their ids; in a cluster, those of all nodes. Each is matched as it was
    /// after a durable event, not all at the same moment.
    ///
    /// # Errors
    /// The kind names no fields. Or the engine is not ready, its store cannot be read, or another node cannot be reached or is older.
    pub async fn matches(&self, kind: usize, filter: &Filter, range: MatchRange<'_>) -> Answered<Matches> {
        let context = &self.core.context;
        context
            .refuse_older_nodes((INDEXES, "filter entities"))
            .map_err(|reason| Error::Unavailable { reason })?;
        let of = &context.registry.kinds()[kind];
        if of.indexed.is_empty() {
            return Err(Error::Malformed(format!(
                "the kind {} names no fields to filter by",
                of.name
            )));
        }
        let print = of.index_print;
        let mut page = Matches::default();
        let mut at: Option<Box<str>> = range.after.map(Into::into);
        let mut asked = 0;
        loop {
            let heads = self.entities(kind, at.as_deref(), STEP).await?;
            let is_last = heads.len() < STEP;
            let rows = self.rows_after(kind, at.as_deref(), print).await?;
            let is_right = |head: &EntityHead| rows.get(&head.id).is_some_and(|(seq, _)| *seq == head.seq);
            let is_meant = |head: &&EntityHead| head.id.starts_with(range.prefix);
            let to_ask = heads.iter().filter(is_meant).filter(|head| !is_right(head));
            let left = ASKED_MAX - asked;
            let mut to_ask: Vec<Box<str>> = to_ask.take(left + 1).map(|head| head.id.clone()).collect();
            // The first one that is not asked any more ends the page.
            let end = to_ask.get(left).cloned();
            to_ask.truncate(left);
            asked += to_ask.len();
            let mut answers = FieldRows::new();
            for some in to_ask.chunks(ASKED_AT_ONCE) {
                answers.extend(self.ask_fields(kind, some).await?);
            }
            for head in heads {
                if end.as_ref().is_some_and(|end| head.id >= *end) {
                    page.next = at;
                    return Ok(page);
                }
                at = Some(head.id.clone());
                if !head.id.starts_with(range.prefix) {
                    match &*head.id > range.prefix {
                        true => return Ok(page),
                        false => continue,
                    }
                }
                page.examined += 1;
                let fields = match rows.get(&head.id).filter(|(seq, _)| *seq == head.seq) {
                    Some((_, fields)) => Some(fields.clone()),
                    None => match answers.get(&head.id) {
                        Some(row) => row.as_ref().and_then(|row| Some(read_indexed(row, print)?.1)),
                        None => continue,
                    },
                };
                match fields.and_then(|fields| Some((filter.matches(&fields)?, fields))) {
                    Some((true, fields)) => page.found.push(Match { head, fields }),
                    Some((false, _)) => {}
                    None => page.unknown += 1,
                }
                if page.found.len() >= range.limit || page.examined >= EXAMINED_MAX {
                    page.next = at;
                    return Ok(page);
                }
            }
            if is_last {
                return Ok(page);
            }
        }
    }

    /// The rows of the store after an id, with the event each is of.
    async fn rows_after(
        &self,
        kind: usize,
        after: Option<&str>,
        print: u64,
    ) -> Answered<HashMap<Box<str>, (u64, Vec<Value>)>> {
        let name = self.core.context.registry.kinds()[kind].name;
        let prefix = index_row(&Address::new(name, ""));
        let after = after.map_or_else(Vec::new, |id| index_row(&Address::new(name, id)));
        let mut rows = HashMap::new();
        let mut visit = |row: &[u8], value: &[u8]| {
            if let (Ok(id), Some(read)) = (std::str::from_utf8(&row[prefix.len()..]), read_indexed(value, print)) {
                rows.insert(id.into(), read);
            }
        };
        let read = self.core.context.store.system_scan(&prefix, &after, STEP, &mut visit);
        read.await
            .map_err(|error| unreadable(format!("the indexed fields of {name} cannot be read"), &error))?;
        Ok(rows)
    }

    /// Asks entities for their fields, each at the node that owns it.
    async fn ask_fields(&self, kind: usize, ids: &[Box<str>]) -> Answered<FieldRows> {
        let core = &self.core;
        let registry = &core.context.registry;
        let name = registry.kinds()[kind].name;
        let mut left: BTreeMap<ShardId, Vec<Box<str>>> = BTreeMap::new();
        for id in ids {
            left.entry(registry.shard_of(name, id)).or_default().push(id.clone());
        }
        let mut found = FieldRows::new();
        while let Some(shard) = left.keys().next().copied() {
            let owner = OwnerOf::new(&core.context, shard);
            let (of, rows) = loop {
                match core.epochs.current() {
                    Ok(epoch) if epoch.group_commit.shards.contains(shard) => {
                        break (
                            epoch.group_commit.shards.clone(),
                            fields_here(&epoch, kind, left.values().flatten().cloned().collect()).await?,
                        );
                    }
                    Err(error) if !core.epochs.is_short() => return Err(error),
                    _ => {}
                }
                let ids = left.values().flatten().map(|id| id.to_string());
                let request = Request::Fields {
                    kind: name.to_owned(),
                    ids: ids.collect(),
                };
                if let Reply::Fields { shards, rows } = owner.ask(request).await? {
                    let of = ShardSet::from_bytes(&shards);
                    if of.contains(shard) {
                        let rows = rows.into_iter();
                        break (
                            of,
                            rows.map(|(id, row)| (id.into(), row.map(serde_bytes::ByteBuf::into_vec)))
                                .collect(),
                        );
                    }
                }
            };
            left.retain(|shard, _| !of.contains(*shard));
            found.extend(rows);
        }
        Ok(found)
    }
}

/// Reads the fields of those of these entities whose shards this node owns; they are brought back for that if need be.
pub(crate) async fn fields_here(epoch: &Epoch, kind: usize, ids: Vec<Box<str>>) -> Answered<FieldRows> {
    let executor = &epoch.executor;
    let name = executor.context.registry.kinds()[kind].name;
    let mut by_shard: BTreeMap<ShardId, Vec<(u64, Box<str>)>> = BTreeMap::new();
    for id in ids {
        let hash = limits::hash(name, &id);
        by_shard.entry(executor.shard_of(hash)).or_default().push((hash, id));
    }
    let mut found = FieldRows::new();
    for (shard, mut left) in by_shard {
        if !epoch.group_commit.shards.contains(shard) {
            continue;
        }
        while !left.is_empty() {
            let look = executor.visit(shard, move |shard| {
                let looked = left
                    .into_iter()
                    .map(|(hash, id)| (shard.indexed(kind, hash, &id), hash, id));
                looked.collect::<Vec<_>>()
            });
            left = Vec::new();
            for (indexed, hash, id) in look.await.map_err(widen)? {
                match indexed {
                    Indexed::Row(row) => _ = found.insert(id, Some(row)),
                    Indexed::Unknown => _ = found.insert(id, None),
                    Indexed::Gone => {}
                    Indexed::Load => {
                        let target = Target {
                            kind,
                            hash,
                            id: id.to_string().into(),
                        };
                        executor.load(&target).await.map_err(widen)?;
                        left.push((hash, id));
                    }
                }
            }
        }
    }
    // Nothing is told that a crash could take back.
    let last = epoch.group_commit.last();
    batch::wake_committer(&executor.context);
    if epoch.group_commit.wait(last).await.is_err() {
        return Err(recovering());
    }
    Ok(found)
}
