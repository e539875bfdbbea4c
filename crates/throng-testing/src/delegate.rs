//! Wrappers of journals, stores and hosts that change only a few methods.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};
use throng::journal::{Append, Commit, Error, Journal, Later, MemoryJournal, Position};
use tokio::sync::watch;

/// Forwards methods of a [`Journal`], a store or a host to a field: `delegate!(Journal, inner: open take seal);`.
#[macro_export]
macro_rules! delegate {
    ($of:ident, $to:tt: $($method:ident)*) => { $($crate::delegate!(@$of $method $to);)* };

    (@Journal open $to:tt) => {
        fn open(&self, node: &str) -> $crate::Fallible<'_, $crate::journal::Opened> { self.$to.open(node) }
    };
    (@Journal open_shards $to:tt) => {
        fn open_shards<'a>(
            &'a self, node: $crate::journal::NodeId, shards: &'a $crate::journal::ShardSet,
        ) -> $crate::Fallible<'a, $crate::journal::Opened> { self.$to.open_shards(node, shards) }
    };
    (@Journal streams $to:tt) => {
        fn streams(&self, from: $crate::journal::WriterId) -> $crate::Fallible<'_, Vec<$crate::journal::Stream>> {
            self.$to.streams(from)
        }
    };
    (@Journal take $to:tt) => {
        fn take<'a>(
            &'a self, by: $crate::journal::WriterId, shards: &'a [$crate::journal::ShardId],
        ) -> $crate::Fallible<'a, Vec<$crate::journal::Taken>> { self.$to.take(by, shards) }
    };
    (@Journal append $to:tt) => {
        fn append(&self, commit: $crate::journal::Commit) -> $crate::journal::Append { self.$to.append(commit) }
    };
    (@Journal seal $to:tt) => {
        fn seal(&self, writer: $crate::journal::WriterId) -> $crate::Fallible<'_, $crate::journal::CommitNo> {
            self.$to.seal(writer)
        }
    };
    (@Journal read $to:tt) => {
        fn read(
            &self, after: $crate::journal::Position, bytes_max: usize,
        ) -> $crate::Fallible<'_, Vec<$crate::journal::Commit>> { self.$to.read(after, bytes_max) }
    };
    (@Journal read_at $to:tt) => {
        fn read_at<'a>(
            &'a self, places: &'a [$crate::journal::Place],
        ) -> $crate::journal::Maybe<'a, Result<Vec<Vec<u8>>, $crate::journal::Error>> { self.$to.read_at(places) }
    };
    (@Journal forget $to:tt) => { fn forget(&self, upto: $crate::journal::Position) { self.$to.forget(upto); } };
    (@Journal depth $to:tt) => { fn depth(&self) -> usize { self.$to.depth() } };
    (@Journal durability $to:tt) => {
        fn durability(&self) -> $crate::journal::Durability { self.$to.durability() }
    };

    (@Host now $to:tt) => { fn now(&self) -> $crate::Timestamp { self.$to.now() } };
    (@Host elapsed_micros $to:tt) => { fn elapsed_micros(&self) -> u64 { self.$to.elapsed_micros() } };
    (@Host thread_cpu_micros $to:tt) => { fn thread_cpu_micros(&self) -> Option<u64> { self.$to.thread_cpu_micros() } };
    (@Host entropy $to:tt) => { fn entropy(&self) -> u128 { self.$to.entropy() } };
    (@Host spawn $to:tt) => { fn spawn(&self, task: $crate::Task) { self.$to.spawn(task); } };
    (@Host sleep $to:tt) => { fn sleep(&self, duration: std::time::Duration) -> $crate::Task { self.$to.sleep(duration) } };
    (@Host close $to:tt) => { fn close(&self) { self.$to.close(); } };

    (@Store covers $to:tt) => {
        fn covers<'a>(
            &'a self, shards: &'a $crate::journal::ShardSet,
        ) -> $crate::Fallible<'a, Vec<$crate::journal::Covered>> { self.$to.covers(shards) }
    };
    (@Store advance $to:tt) => {
        fn advance(&self, checkpoint: $crate::journal::Checkpoint) -> $crate::Fallible<'_, ()> {
            self.$to.advance(checkpoint)
        }
    };
    (@Store load $to:tt) => {
        fn load(
            &self, address: &$crate::journal::Address, version: u16,
        ) -> $crate::journal::Maybe<'_, Result<$crate::journal::Loaded, $crate::journal::Error>> {
            self.$to.load(address, version)
        }
    };
    (@Store history $to:tt) => {
        fn history(
            &self, address: &$crate::journal::Address, after: u64, limit: usize, bytes_max: usize,
        ) -> $crate::Fallible<'_, Vec<$crate::journal::StoredEvent>> {
            self.$to.history(address, after, limit, bytes_max)
        }
    };
    (@Store entities $to:tt) => {
        fn entities(
            &self, kind: &str, after: Option<&str>, limit: usize,
        ) -> $crate::Fallible<'_, Vec<$crate::journal::EntityHead>> { self.$to.entities(kind, after, limit) }
    };
    (@Store system $to:tt) => {
        fn system(&self, key: &[u8]) -> $crate::journal::Maybe<'_, Result<Option<Vec<u8>>, $crate::journal::Error>> {
            self.$to.system(key)
        }
    };
    (@Store system_scan $to:tt) => {
        fn system_scan<'a>(
            &'a self, prefix: &'a [u8], after: &'a [u8], rows_max: usize,
            visit: &'a mut (dyn FnMut(&[u8], &[u8]) + Send),
        ) -> $crate::Fallible<'a, ()> { self.$to.system_scan(prefix, after, rows_max, visit) }
    };
    (@Store remove_prefix $to:tt) => {
        fn remove_prefix<'a>(
            &'a self, prefix: &'a [u8], after: &'a [u8], rows_max: usize,
        ) -> $crate::Fallible<'a, Option<Vec<u8>>> { self.$to.remove_prefix(prefix, after, rows_max) }
    };
}

/// The asynchronous result of a journal or a store.
pub type Fallible<'a, T> = Later<'a, Result<T, Error>>;

/// A journal whose appends wait while it is held. It counts the commits that are read.
#[derive(Debug)]
pub struct HeldJournal {
    inner: MemoryJournal,
    held: watch::Receiver<bool>,
    /// The number of commits read so far. Each reader adds to it.
    pub read: Arc<AtomicUsize>,
}

impl HeldJournal {
    /// Wraps a journal. Appends wait while the last value sent is `true`.
    #[must_use]
    pub fn new(inner: MemoryJournal, is_held: bool) -> (Self, watch::Sender<bool>) {
        let (hold, held) = watch::channel(is_held);
        let read = Arc::default();
        (Self { inner, held, read }, hold)
    }
}

impl Journal for HeldJournal {
    delegate!(Journal, inner: open take seal read_at forget depth durability);

    fn append(&self, commit: Commit) -> Append {
        let (inner, mut held) = (self.inner.clone(), self.held.clone());
        if !*held.borrow() {
            return inner.append(commit);
        }
        Append::Later(Box::pin(async move {
            held.wait_for(|held| !held).await.expect("the test holds the sender");
            inner.append(commit).landed().await
        }))
    }

    fn read(&self, after: Position, bytes_max: usize) -> Fallible<'_, Vec<Commit>> {
        let read = self.inner.read(after, bytes_max);
        Box::pin(async move {
            let read = read.await?;
            self.read.fetch_add(read.len(), SeqCst);
            Ok(read)
        })
    }
}
