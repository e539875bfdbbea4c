//! A node's store: the shared database over a simulated connection.

use super::database::DatabaseLink;
use crate::faults::Lie;
use throng_journal::{
    Address, Checkpoint, Covered, EntityHead, Error, Later, Loaded, Maybe, ShardSet, Store, StoredEvent,
};

pub(super) struct FarStore(pub(super) DatabaseLink);

impl FarStore {
    fn share(&self) -> f64 {
        self.0.database.faults().store_error
    }
}

fn now<'a, T: Send + 'a>(maybe: Maybe<'a, T>) -> Later<'a, T> {
    match maybe {
        Maybe::Ready(value) => Box::pin(std::future::ready(value)),
        Maybe::Later(later) => later,
    }
}

impl Store for FarStore {
    fn covers<'a>(&'a self, shards: &'a ShardSet) -> Later<'a, Result<Vec<Covered>, Error>> {
        let (store, shards) = (self.0.database.store.clone(), shards.clone());
        let work = async move { store.covers(&shards).await };
        self.0.call("asking what is covered", self.share(), work)
    }

    fn advance(&self, checkpoint: Checkpoint) -> Later<'_, Result<(), Error>> {
        let store = self.0.database.store.clone();
        let work = async move { store.advance(checkpoint).await };
        self.0.call("making a checkpoint", self.share(), work)
    }

    fn load(&self, address: &Address, state_version: u16) -> Maybe<'_, Result<Loaded, Error>> {
        let (store, address) = (self.0.database.store.clone(), address.clone());
        let lie = self.0.lie();
        let work = async move {
            let loaded = now(store.load(&address, state_version)).await?;
            Lie::judge(lie, &address, loaded)
        };
        Maybe::Later(self.0.call("loading an entity", self.share(), work))
    }

    fn history(
        &self,
        address: &Address,
        after: u64,
        limit: usize,
        bytes_max: usize,
    ) -> Later<'_, Result<Vec<StoredEvent>, Error>> {
        let (store, address) = (self.0.database.store.clone(), address.clone());
        let work = async move { store.history(&address, after, limit, bytes_max).await };
        self.0.call("reading an entity's history", self.share(), work)
    }

    fn entities(&self, kind: &str, after: Option<&str>, limit: usize) -> Later<'_, Result<Vec<EntityHead>, Error>> {
        let (store, kind, after) = (self.0.database.store.clone(), kind.to_owned(), after.map(str::to_owned));
        let work = async move { store.entities(&kind, after.as_deref(), limit).await };
        self.0.call("listing entities", self.share(), work)
    }

    fn system(&self, key: &[u8]) -> Maybe<'_, Result<Option<Vec<u8>>, Error>> {
        let (store, key) = (self.0.database.store.clone(), key.to_vec());
        let work = async move { now(store.system(&key)).await };
        Maybe::Later(self.0.call("reading a row", self.share(), work))
    }

    fn system_rows<'a>(&'a self, keys: &'a [Vec<u8>]) -> Later<'a, Result<Vec<Option<Vec<u8>>>, Error>> {
        let (store, keys) = (self.0.database.store.clone(), keys.to_vec());
        let work = async move { store.system_rows(&keys).await };
        self.0.call("reading rows", self.share(), work)
    }

    fn system_scan<'a>(
        &'a self,
        prefix: &'a [u8],
        after: &'a [u8],
        rows_max: usize,
        visit: &'a mut (dyn FnMut(&[u8], &[u8]) + Send),
    ) -> Later<'a, Result<(), Error>> {
        let (store, prefix, after) = (self.0.database.store.clone(), prefix.to_vec(), after.to_vec());
        let read = self.0.call("reading rows", self.share(), async move {
            let mut rows = Vec::new();
            let mut keep = |key: &[u8], value: &[u8]| rows.push((key.to_vec(), value.to_vec()));
            store.system_scan(&prefix, &after, rows_max, &mut keep).await?;
            Ok(rows)
        });
        Box::pin(async move {
            read.await?.iter().for_each(|(key, value)| visit(key, value));
            Ok(())
        })
    }

    fn remove_prefix<'a>(
        &'a self,
        prefix: &'a [u8],
        after: &'a [u8],
        rows_max: usize,
    ) -> Later<'a, Result<Option<Vec<u8>>, Error>> {
        let (store, prefix, after) = (self.0.database.store.clone(), prefix.to_vec(), after.to_vec());
        let work = async move { store.remove_prefix(&prefix, &after, rows_max).await };
        self.0.call("removing rows", self.share(), work)
    }
}

impl From<FarStore> for Box<dyn Store> {
    fn from(store: FarStore) -> Self {
        Box::new(store)
    }
}
