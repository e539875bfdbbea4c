//! Real journals and stores in virtual time: they answer at once, whatever real time they take.

use std::sync::Arc;
use throng::journal::{
    Address, Append, AppendError, Checkpoint, Commit, CommitNo, Compacted, Covered, Durability, EntityHead, Error,
    Inventory, Journal, Later, Loaded, Loss, Maybe, Opened, Place, Position, Prune, Pruned, ShardId, ShardSet, Store,
    StoredEvent, Taken, WriterId,
};
use throng_journal::conformance::block_on;

pub(crate) struct AtOnce<T>(pub(crate) Arc<T>);

fn later<'a, T: Send + 'a>(later: Later<'a, T>) -> Later<'a, T> {
    Box::pin(async move { block_on(later) })
}

fn maybe<T: Send>(maybe: Maybe<'_, T>) -> Maybe<'_, T> {
    match maybe {
        Maybe::Later(later) => Maybe::Ready(block_on(later)),
        ready @ Maybe::Ready(_) => ready,
    }
}

impl<T: Journal> Journal for AtOnce<T> {
    fn open(&self, node: &str) -> Later<'_, Result<Opened, Error>> {
        later(self.0.open(node))
    }

    fn take<'a>(&'a self, by: WriterId, shards: &'a [ShardId]) -> Later<'a, Result<Vec<Taken>, Error>> {
        later(self.0.take(by, shards))
    }

    fn append(&self, commit: Commit) -> Append {
        match self.0.append(commit) {
            Append::Later(later) => Append::Done(block_on(later)),
            done @ Append::Done(_) => done,
        }
    }

    fn seal(&self, writer: WriterId) -> Later<'_, Result<CommitNo, Error>> {
        later(self.0.seal(writer))
    }

    fn read(&self, after: Position, bytes_max: usize) -> Later<'_, Result<Vec<Commit>, Error>> {
        later(self.0.read(after, bytes_max))
    }

    fn read_at<'a>(&'a self, places: &'a [Place]) -> Maybe<'a, Result<Vec<Vec<u8>>, Error>> {
        maybe(self.0.read_at(places))
    }

    fn sync(&self) -> Later<'_, Result<(), Error>> {
        later(Journal::sync(&*self.0))
    }

    fn forget(&self, upto: Position) {
        self.0.forget(upto);
    }

    fn prune(&self, prune: Prune) -> Later<'_, Result<Pruned, Error>> {
        later(self.0.prune(prune))
    }

    fn end_segment(&self) -> Later<'_, Result<(), Error>> {
        later(self.0.end_segment())
    }

    fn depth(&self) -> usize {
        self.0.depth()
    }

    fn durability(&self) -> Durability {
        self.0.durability()
    }

    fn holds(&self, writer: WriterId) -> bool {
        self.0.holds(writer)
    }

    fn ended(&self, writer: WriterId) -> Option<AppendError> {
        self.0.ended(writer)
    }

    fn losses(&self) -> Vec<Loss> {
        self.0.losses()
    }

    fn has_room(&self) -> bool {
        self.0.has_room()
    }

    fn inventory(&self, limit: usize) -> Later<'_, Result<Inventory, Error>> {
        later(self.0.inventory(limit))
    }

    fn bytes(&self) -> Option<u64> {
        self.0.bytes()
    }
}

impl<T: Store> Store for AtOnce<T> {
    fn covers<'a>(&'a self, shards: &'a ShardSet) -> Later<'a, Result<Vec<Covered>, Error>> {
        later(self.0.covers(shards))
    }

    fn advance(&self, checkpoint: Checkpoint) -> Later<'_, Result<(), Error>> {
        later(self.0.advance(checkpoint))
    }

    fn load(&self, address: &Address, state_version: u16) -> Maybe<'_, Result<Loaded, Error>> {
        maybe(self.0.load(address, state_version))
    }

    fn history(
        &self,
        address: &Address,
        after: u64,
        limit: usize,
        bytes_max: usize,
    ) -> Later<'_, Result<Vec<StoredEvent>, Error>> {
        later(self.0.history(address, after, limit, bytes_max))
    }

    fn entities(&self, kind: &str, after: Option<&str>, limit: usize) -> Later<'_, Result<Vec<EntityHead>, Error>> {
        later(self.0.entities(kind, after, limit))
    }

    fn system(&self, key: &[u8]) -> Maybe<'_, Result<Option<Vec<u8>>, Error>> {
        maybe(self.0.system(key))
    }

    fn system_scan<'a>(
        &'a self,
        prefix: &'a [u8],
        after: &'a [u8],
        rows_max: usize,
        visit: &'a mut (dyn FnMut(&[u8], &[u8]) + Send),
    ) -> Later<'a, Result<(), Error>> {
        later(self.0.system_scan(prefix, after, rows_max, visit))
    }

    fn remove_prefix<'a>(
        &'a self,
        prefix: &'a [u8],
        after: &'a [u8],
        rows_max: usize,
    ) -> Later<'a, Result<Option<Vec<u8>>, Error>> {
        later(self.0.remove_prefix(prefix, after, rows_max))
    }

    fn compact(&self) -> Later<'_, Result<Option<Compacted>, Error>> {
        later(self.0.compact())
    }
}
