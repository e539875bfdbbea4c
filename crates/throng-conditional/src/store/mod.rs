//! The store: sorted rows in memory, written as layers.
//!
//! A checkpoint writes a layer, an immutable object with the changed rows. It adds the layer to the root, provided its writer is not ending. Once the
//! layers together are larger than the rows, all rows are written as a new first layer. Rows of all shards are kept in memory. The bodies of events
//! stay in the journal.

mod index;
mod rows;

use crate::{
    ConditionalJournal,
    root::{Change, Garbage, Layer, Root, Writer},
};
use index::Batch;
use rows::{Changes, Rows};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use throng_journal::{
    Address, Checkpoint, CommitNo, Covered, EntityHead, Error, Journal, Later, Loaded, Maybe, MissingEvents, Position,
    ShardSet, Store, StoredEvent,
};

/// The size of a layer, in bytes, at which the next one begins.
const LAYER_BYTES: usize = 16 << 20;
/// The bytes of layers always allowed after the first one, however small the rows are.
const LAYERS_BYTES_MIN: u64 = 1 << 20;
/// The number of layers at which all rows are written anew, whatever their size: each layer costs a request at the start.
const LAYERS_MAX: usize = 64;
/// The most reads in a row that find a layer missing.
const STALE_MAX: u32 = 50;
/// The bytes of commits per read.
const READ_BYTES: usize = 8 << 20;

/// The store beside a [`ConditionalJournal`]. Clones share their rows.
#[derive(Clone)]
pub struct ConditionalStates {
    journal: ConditionalJournal,
    shared: Arc<Shared>,
}

struct Shared {
    held: Mutex<Held>,
    /// Held while layers are read or written, so that this happens one at a time.
    turn: tokio::sync::Mutex<()>,
}

/// Written by the holder of `turn`, and by removals.
#[derive(Default)]
struct Held {
    rows: Rows,
    /// The layers applied to the rows. `None` before the first read.
    layers: Option<Vec<Layer>>,
    /// Keys of rows removed since the last checkpoint. The next one writes their removal.
    removed: Vec<Vec<u8>>,
}

impl ConditionalStates {
    pub(crate) fn new(journal: ConditionalJournal) -> Self {
        let shared = Shared {
            held: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        };
        Self {
            journal,
            shared: Arc::new(shared),
        }
    }

    /// Drops all rows, here and in the root. The next checkpoint indexes the journal anew.
    ///
    /// # Errors
    /// The root cannot be changed.
    pub async fn lose(&self) -> Result<(), Error> {
        let _turn = self.shared.turn.lock().await;
        let change = self.journal.inner.roots.change(|root| {
            if root.layers.is_empty() {
                return Ok(Change::Leave(()));
            }
            let lost = std::mem::take(&mut root.layers).into_iter();
            root.garbage.extend(lost.map(|layer| Garbage::Object(layer.key)));
            Ok(Change::Write(()))
        });
        change.await?;
        *self.held() = Held::default();
        Ok(())
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.shared.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_read(&self) -> bool {
        self.held().layers.is_some()
    }

    /// Makes sure that the layers have been read once.
    async fn ready(&self) -> Result<(), Error> {
        if self.is_read() {
            return Ok(());
        }
        let _turn = self.shared.turn.lock().await;
        self.refresh().await
    }

    /// Adds the rows written by other nodes, for lists and histories. An engine that is alone has none to add.
    async fn fresh(&self) -> Result<(), Error> {
        let root = self.journal.inner.roots.known().await?;
        if self.is_read() && root.members.nodes.is_empty() {
            return Ok(());
        }
        let _turn = self.shared.turn.lock().await;
        self.refresh().await
    }

    /// Updates the rows to the root. The caller holds `turn`.
    async fn refresh(&self) -> Result<(), Error> {
        for _ in 0..STALE_MAX {
            let root = self.journal.inner.roots.read().await?;
            let layers = self.held().layers.clone();
            let known = layers
                .filter(|known| root.layers.starts_with(known))
                .map(|known| known.len());
            let (known, from) = (known.is_some(), known.unwrap_or(0));
            let mut rows = Rows::default();
            let mut is_whole = true;
            for layer in &root.layers[from..] {
                let Some(body) = self.journal.inner.body(&layer.key).await? else {
                    is_whole = false;
                    break;
                };
                let changes = rows::decode(&body, layer)?;
                if known {
                    self.held().rows.apply(changes);
                } else {
                    rows.apply(changes);
                }
            }
            if !is_whole {
                // The layer is garbage by now, and the next root will say so; or the read was stale.
                self.held().layers = None;
                self.journal
                    .inner
                    .host()
                    .pause(std::time::Duration::from_millis(50))
                    .await;
                continue;
            }
            self.refreshed((!known).then_some(rows), &root.layers);
            return Ok(());
        }
        Err(Error::backend(
            "reading the rows of the store",
            "a layer that the root names is gone",
        ))
    }

    fn refreshed(&self, anew: Option<Rows>, layers: &[Layer]) {
        let mut held = self.held();
        if let Some(rows) = anew {
            held.rows = rows;
            let removed = held.removed.clone();
            held.rows.apply(removed.into_iter().map(|key| (key, None)).collect());
        }
        held.layers = Some(layers.to_vec());
    }

    /// Checks that a checkpoint may belong to this stream.
    fn refuse(writer: Option<&Writer>, checkpoint: &Checkpoint) -> Result<(), Error> {
        let id = checkpoint.upto.writer;
        let Some(writer) = writer else {
            return Err(Error::NoCommit(checkpoint.upto));
        };
        if writer.is_ending {
            return Err(Error::Sealed(id));
        }
        match writer.shard_set() {
            Some(own) => own.refuse_beyond(id, &checkpoint.shards),
            None => Ok(()),
        }
    }

    async fn make(&self, checkpoint: Checkpoint) -> Result<(), Error> {
        let _turn = self.shared.turn.lock().await;
        let inner = &self.journal.inner;
        self.refresh().await?;
        let root = inner.roots.known().await?;
        Self::refuse(root.writer(checkpoint.upto.writer), &checkpoint)?;
        for end in checkpoint.sealed.iter().chain([&checkpoint.upto]) {
            if !inner.reaches(*end).await? {
                return Err(Error::NoCommit(*end));
            }
        }
        let removed = self.held().removed.clone();
        let changes = self.changes(&checkpoint, &removed).await?;
        self.write(&checkpoint, changes).await?;
        self.held().removed.retain(|key| !removed.contains(key));
        // Deletions that fail now are repeated after the next checkpoint.
        _ = inner.sweep().await;
        Ok(())
    }

    /// Gathers the rows that a checkpoint changes.
    async fn changes(&self, checkpoint: &Checkpoint, removed: &[Vec<u8>]) -> Result<Changes, Error> {
        let mut batch = Batch::new(self, removed);
        let mut missing = MissingEvents::default();
        for end in checkpoint.sealed.iter().chain([&checkpoint.upto]) {
            self.index(&mut batch, &checkpoint.shards, *end, &mut missing).await?;
        }
        // A lost event is reported when it is loaded, by its number.
        let cuts = missing.check().unwrap_or_default();
        cuts.iter().for_each(|cut| batch.cut(cut));
        batch.cover(&checkpoint.shards, checkpoint.upto);
        checkpoint.states.iter().for_each(|state| batch.set_state(state));
        for (key, value) in &checkpoint.system {
            batch.set_system(key, value.clone());
        }
        checkpoint.cuts.iter().for_each(|cut| batch.cut(cut));
        Ok(batch.changes)
    }

    /// Indexes the events of these shards in a stream, from the covered position up to here.
    async fn index(
        &self,
        batch: &mut Batch<'_>,
        shards: &ShardSet,
        upto: Position,
        missing: &mut MissingEvents,
    ) -> Result<(), Error> {
        let covers: BTreeMap<_, _> = shards
            .iter()
            .filter_map(|shard| Some((shard, self.held().rows.covered(shard)?)))
            .collect();
        let covered = shards.iter().map(|shard| match covers.get(&shard) {
            Some(covered) if covered.writer == upto.writer => covered.commit,
            Some(covered) if covered.writer > upto.writer => upto.commit,
            _ => CommitNo(0),
        });
        let commit = covered.min().unwrap_or(upto.commit);
        let mut from = Position { commit, ..upto };
        while from.commit < upto.commit {
            let commits = self.journal.read(from, READ_BYTES).await?;
            if commits.is_empty() {
                return Err(Error::NoCommit(upto));
            }
            for commit in commits {
                let stamp = commit.stamp();
                if stamp.number > upto.commit {
                    return Ok(());
                }
                from.commit = stamp.number;
                for record in commit.records().flatten() {
                    let covered = covers.get(&record.shard);
                    if shards.contains(record.shard) && covered.is_none_or(|covered| *covered < from) {
                        batch.index(&record, from, stamp.at_micros, missing);
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes layers, adds them to the root, then applies them to the rows.
    async fn write(&self, checkpoint: &Checkpoint, changes: Changes) -> Result<(), Error> {
        let inner = &self.journal.inner;
        let known = self.held().layers.clone().unwrap_or_default();
        let whole_bytes = self.held().rows.bytes();
        let behind: u64 = known.iter().skip(1).map(|layer| layer.bytes).sum();
        let is_whole = behind > whole_bytes.max(LAYERS_BYTES_MIN) || known.len() >= LAYERS_MAX;
        let parts = if is_whole {
            let mut rows = self.held().rows.clone();
            rows.apply(changes.clone());
            rows::encode(rows.iter(), LAYER_BYTES)
        } else {
            rows::encode(
                changes.iter().map(|(key, value)| (&**key, value.as_deref())),
                LAYER_BYTES,
            )
        };
        let mut layers = Vec::new();
        for (body, sum) in parts {
            let key = format!("c/{:016x}-{:032x}", checkpoint.upto.writer.0, inner.host().random());
            let bytes = body.len() as u64;
            inner.put_once(&key, body).await?;
            layers.push(Layer { key, bytes, sum });
        }
        let change = inner.roots.change(|root: &mut Root| {
            if layers.first().is_some_and(|layer| root.layers.contains(layer)) {
                return Ok(Change::Leave(Some(root.layers.clone())));
            }
            Self::refuse(root.writer(checkpoint.upto.writer), checkpoint)?;
            if is_whole {
                // Another node made a checkpoint meanwhile.
                if root.layers != known {
                    return Ok(Change::Leave(None));
                }
                let replaced = std::mem::take(&mut root.layers);
                root.garbage
                    .extend(replaced.into_iter().map(|layer| Garbage::Object(layer.key)));
            }
            root.layers.extend(layers.iter().cloned());
            for end in checkpoint.sealed.iter().chain([&checkpoint.upto]) {
                if let Some(entry) = root.writer_mut(end.writer) {
                    entry.covered = entry.covered.max(end.commit.0);
                }
            }
            Ok(Change::Write(Some(root.layers.clone())))
        });
        let Some(now) = change.await? else {
            return Err(Error::backend(
                "a checkpoint",
                "another node's came between; it is tried again",
            ));
        };
        let is_read = {
            let mut held = self.held();
            held.rows.apply(changes);
            let expected = if is_whole {
                layers.len()
            } else {
                known.len() + layers.len()
            };
            held.layers = (now.len() == expected).then_some(now);
            held.layers.is_some()
        };
        if is_read { Ok(()) } else { self.refresh().await }
    }

    async fn loaded(&self, address: Address, state_version: u16) -> Result<Loaded, Error> {
        self.ready().await?;
        let state = self.held().rows.state(&address, state_version);
        let after = state.as_ref().map_or(0, |state| state.seq);
        let events = self.events(&address, after, usize::MAX, usize::MAX).await?;
        Ok(Loaded { state, events })
    }

    async fn events(
        &self,
        address: &Address,
        after: u64,
        limit: usize,
        bytes_max: usize,
    ) -> Result<Vec<StoredEvent>, Error> {
        self.ready().await?;
        let mut bytes = 0;
        let mut indexed = self.held().rows.events(address, after, limit);
        let fits = indexed.iter().take_while(|event| {
            let is_first = bytes == 0;
            bytes += event.place.len as usize;
            is_first || bytes <= bytes_max
        });
        let fits = fits.count();
        indexed.truncate(fits);
        let places: Vec<_> = indexed.iter().map(|event| event.place).collect();
        let bodies = match self.journal.read_at(&places) {
            Maybe::Ready(bodies) => bodies?,
            Maybe::Later(bodies) => bodies.await?,
        };
        let events = indexed.into_iter().zip(bodies);
        Ok(events.map(|(event, body)| event.stored(body)).collect())
    }
}

impl Store for ConditionalStates {
    fn covers<'a>(&'a self, shards: &'a ShardSet) -> Later<'a, Result<Vec<Covered>, Error>> {
        Box::pin(async move {
            {
                // A node that takes shards over asks this first, so it must see everything the others have written.
                let _turn = self.shared.turn.lock().await;
                self.refresh().await?;
            }
            let held = self.held();
            let mut covered: BTreeMap<Option<Position>, ShardSet> = BTreeMap::new();
            for shard in shards.iter() {
                covered.entry(held.rows.covered(shard)).or_default().insert(shard);
            }
            let covered = covered.into_iter().map(|(upto, shards)| Covered { shards, upto });
            Ok(covered.collect())
        })
    }

    fn advance(&self, checkpoint: Checkpoint) -> Later<'_, Result<(), Error>> {
        Box::pin(self.make(checkpoint))
    }

    fn load(&self, address: &Address, state_version: u16) -> Maybe<'_, Result<Loaded, Error>> {
        if self.is_read() {
            let held = self.held();
            let state = held.rows.state(address, state_version);
            let after = state.as_ref().map_or(0, |state| state.seq);
            if held.rows.events(address, after, 1).is_empty() {
                let events = Vec::new();
                return Maybe::Ready(Ok(Loaded { state, events }));
            }
        }
        Maybe::Later(Box::pin(self.loaded(address.clone(), state_version)))
    }

    fn history(
        &self,
        address: &Address,
        after: u64,
        limit: usize,
        bytes_max: usize,
    ) -> Later<'_, Result<Vec<StoredEvent>, Error>> {
        let address = address.clone();
        Box::pin(async move {
            self.fresh().await?;
            self.events(&address, after, limit, bytes_max).await
        })
    }

    fn entities(&self, kind: &str, after: Option<&str>, limit: usize) -> Later<'_, Result<Vec<EntityHead>, Error>> {
        let (kind, after) = (kind.to_owned(), after.map(str::to_owned));
        Box::pin(async move {
            self.fresh().await?;
            Ok(self.held().rows.entities(&kind, after.as_deref(), limit))
        })
    }

    fn system(&self, key: &[u8]) -> Maybe<'_, Result<Option<Vec<u8>>, Error>> {
        if self.is_read() {
            return Maybe::Ready(Ok(self.held().rows.system(key)));
        }
        let key = key.to_vec();
        Maybe::Later(Box::pin(async move {
            self.ready().await?;
            Ok(self.held().rows.system(&key))
        }))
    }

    fn system_scan<'a>(
        &'a self,
        prefix: &'a [u8],
        after: &'a [u8],
        rows_max: usize,
        visit: &'a mut (dyn FnMut(&[u8], &[u8]) + Send),
    ) -> Later<'a, Result<(), Error>> {
        Box::pin(async move {
            self.ready().await?;
            let held = self.held();
            for (key, value) in held.rows.system_rows(prefix, after).take(rows_max) {
                visit(key, value);
            }
            Ok(())
        })
    }

    fn remove_prefix<'a>(
        &'a self,
        prefix: &'a [u8],
        after: &'a [u8],
        rows_max: usize,
    ) -> Later<'a, Result<Option<Vec<u8>>, Error>> {
        Box::pin(async move {
            self.ready().await?;
            let mut held = self.held();
            let rows = held.rows.system_rows(prefix, after).take(rows_max);
            let keys: Vec<Vec<u8>> = rows.map(|(key, _)| key.to_vec()).collect();
            let rows: Vec<Vec<u8>> = keys.iter().map(|key| rows::system_key(key)).collect();
            held.rows.apply(rows.iter().map(|key| (key.clone(), None)).collect());
            held.removed.extend(rows);
            Ok(keys.into_iter().next_back())
        })
    }
}

impl From<ConditionalStates> for Box<dyn Store> {
    fn from(store: ConditionalStates) -> Self {
        Box::new(store)
    }
}
