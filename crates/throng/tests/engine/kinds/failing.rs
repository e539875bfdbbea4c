//! A journal whose writer can be made to fail, and to have no successor for a while. It can also refuse to remove history, and records where erasures
//! began.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    mpsc,
};
use throng::journal::{
    Append, AppendError, Appended, Commit, CommitNo, Error, Journal, MemoryJournal, Opened, Position, Prune, PruneHow,
    Pruned, WriterId, commit,
};
use throng_testing::{Fallible, delegate};
use tokio::sync::watch;

/// Clones share their switches.
#[derive(Clone)]
pub struct Failing {
    journal: MemoryJournal,
    fails: Arc<AtomicBool>,
    is_full: Arc<AtomicBool>,
    finished: Arc<AtomicU64>,
    disk_bytes: Arc<AtomicU64>,
    erasures: Arc<Mutex<Vec<Position>>>,
    keeps_from: Arc<AtomicU64>,
    /// The next seal waits for this channel.
    seals_after: Arc<Mutex<Option<mpsc::Receiver<()>>>>,
    /// True if a new writer can be opened.
    opens: watch::Sender<bool>,
}

impl Failing {
    pub fn new(journal: &MemoryJournal) -> Self {
        Self {
            journal: journal.clone(),
            fails: Arc::default(),
            is_full: Arc::default(),
            disk_bytes: Arc::default(),
            finished: Arc::new(AtomicU64::new(u64::MAX)),
            erasures: Arc::default(),
            keeps_from: Arc::new(AtomicU64::new(u64::MAX)),
            seals_after: Arc::default(),
            opens: watch::Sender::new(true),
        }
    }

    /// Fails the next append. No other writer can be opened until [`recovers`](Self::recovers).
    pub fn fails(&self) {
        self.opens.send_replace(false);
        self.fails.store(true, SeqCst);
    }

    /// Sets if the storage is full.
    pub fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, SeqCst);
    }

    /// Sets the disk usage in bytes.
    pub fn set_disk_bytes(&self, bytes: u64) {
        self.disk_bytes.store(bytes, SeqCst);
    }

    /// Sets the last commit that may be removed: a writer still needs the later ones.
    pub fn set_finished(&self, upto: u64) {
        self.finished.store(upto, SeqCst);
    }

    /// Forbids removals from this stream on.
    pub fn keep_from(&self, writer: WriterId) {
        self.keeps_from.store(writer.0, SeqCst);
    }

    /// Returns the positions after which erasures began to look.
    pub fn erasures(&self) -> Vec<Position> {
        self.erasures.lock().unwrap().clone()
    }

    /// Makes the next seal wait until the returned sender is dropped.
    pub fn hold_seal(&self) -> mpsc::Sender<()> {
        let (sender, receiver) = mpsc::channel();
        *self.seals_after.lock().unwrap() = Some(receiver);
        sender
    }

    /// Returns true if a thread has begun the held seal.
    pub fn is_sealing(&self) -> bool {
        self.seals_after.lock().unwrap().is_none()
    }

    /// Returns true if an engine holds this journal.
    pub fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.fails) > 1
    }

    /// Returns true if an engine waits for another writer.
    pub fn is_waited_for(&self) -> bool {
        self.opens.receiver_count() > 0
    }

    /// Allows new writers again.
    pub fn recovers(&self) {
        self.opens.send_replace(true);
    }
}

impl Journal for Failing {
    delegate!(Journal, journal: open_shards streams take read read_at forget depth durability);

    fn open(&self, node: &str) -> Fallible<'_, Opened> {
        let (mut opens, node) = (self.opens.subscribe(), node.to_owned());
        Box::pin(async move {
            opens.wait_for(|opens| *opens).await.unwrap();
            self.journal.open(&node).await
        })
    }

    fn seal(&self, writer: WriterId) -> Fallible<'_, CommitNo> {
        let held = self.seals_after.lock().unwrap().take();
        if let Some(held) = held {
            assert!(held.recv().is_err(), "it is dropped");
        }
        self.journal.seal(writer)
    }

    fn append(&self, commit: Commit) -> Append {
        if self.fails.swap(false, SeqCst) {
            return Append::Done(Appended {
                result: Err(AppendError::InDoubt("the disk is gone".into())),
                buffer: commit::Buffer::default(),
            });
        }
        self.journal.append(commit)
    }

    fn prune(&self, prune: Prune) -> Fallible<'_, Pruned> {
        if prune.how == PruneHow::Erase {
            self.erasures.lock().unwrap().push(prune.after);
        }
        if prune.after.writer.0 >= self.keeps_from.load(SeqCst) {
            let failed = Error::backend("removing history", "the database is away");
            return Box::pin(std::future::ready(Err(failed)));
        }
        let upto = prune.upto.min(CommitNo(self.finished.load(SeqCst)));
        self.journal.prune(Prune { upto, ..prune })
    }

    fn disk_bytes(&self) -> Option<u64> {
        Some(self.disk_bytes.load(SeqCst))
    }

    fn has_room(&self) -> bool {
        !self.is_full.load(SeqCst)
    }
}
