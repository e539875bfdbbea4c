//! One life of the engine: from a recovery to the end of its writer.

use crate::{deliver::Outbox, load::Loads, watch::AtWork};
use std::{
    collections::VecDeque,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering},
    },
};
use throng_core::{
    model::Published,
    shard::{Shard, Stage, Staged},
};
use throng_journal::{Appended, CommitBuilder, CommitNo, Later, Position, ShardId, WriterId};
use throng_turn::{Leader, OpenCommit, Turnstile};

/// What one writer's life holds. When the writer ends, all of it is forgotten, and the next life begins from the journal.
pub(crate) struct Life {
    pub(crate) writer: WriterId,
    /// The sealed streams before this one, in order, with their last commits.
    pub(crate) sealed: Vec<Position>,
    pub(crate) shards: Box<[Turnstile<Shard>]>,
    /// What each shard is at, for the watchdog.
    pub(crate) at_work: Box<[AtWork]>,
    pub(crate) open: OpenCommit<CommitBuilder>,
    pub(crate) lead: Leader,
    /// Appends under way that did not resolve at once.
    pub(crate) flights: Mutex<Vec<Flight>>,
    pub(crate) loads: Loads,
    /// Bytes put into the open commit.
    pub(crate) staged_bytes: AtomicUsize,
    /// Bytes appended since the last checkpoint.
    pub(crate) appended_bytes: AtomicU64,
    /// The moving average of a commit, microseconds.
    pub(crate) commit_micros: AtomicU64,
    /// What the last checkpoint covers.
    pub(crate) covers: Mutex<Option<Position>>,
    /// Messages on their way, delivered by one at a time, in order.
    outbox: Mutex<Outbox>,
    pub(crate) is_outbox_full: AtomicBool,
    /// What was published and rests on what is not durable yet.
    published: Mutex<VecDeque<(u64, Published)>>,
    pub(crate) pump_lead: Leader,
    /// When the next timer is due, microseconds of the time of day.
    pub(crate) next_due: AtomicI64,
    pub(crate) books: Books,
    /// An append failed: nothing more is taken.
    pub(crate) over: AtomicBool,
}

/// What the shards hold in memory, all together.
#[derive(Default)]
pub(crate) struct Books {
    pub(crate) entities: AtomicI64,
    pub(crate) bytes: AtomicI64,
    pub(crate) pending_bytes: AtomicI64,
}

pub(crate) struct Flight {
    pub(crate) number: u64,
    pub(crate) begun_micros: u64,
    pub(crate) append: Later<'static, Appended>,
}

impl Life {
    pub(crate) fn new(writer: WriterId, sealed: Vec<Position>, shards: Vec<Shard>, inbox_max: usize) -> Self {
        Self {
            writer,
            sealed,
            at_work: shards.iter().map(|_| AtWork::default()).collect(),
            shards: shards
                .into_iter()
                .map(|shard| Turnstile::new(shard, inbox_max))
                .collect(),
            open: OpenCommit::default(),
            lead: Leader::new(),
            flights: Mutex::default(),
            loads: Loads::default(),
            staged_bytes: AtomicUsize::new(0),
            appended_bytes: AtomicU64::new(0),
            commit_micros: AtomicU64::new(0),
            covers: Mutex::default(),
            outbox: Mutex::default(),
            is_outbox_full: AtomicBool::new(false),
            published: Mutex::default(),
            pump_lead: Leader::new(),
            next_due: AtomicI64::new(i64::MAX),
            books: Books::default(),
            over: AtomicBool::new(false),
        }
    }

    pub(crate) fn shard(&self, shard: ShardId) -> &Turnstile<Shard> {
        &self.shards[usize::from(shard.0)]
    }

    pub(crate) fn shard_of(&self, hash: u64) -> &Turnstile<Shard> {
        self.shard(throng_core::limits::shard_of(hash, self.shards.len() as u16))
    }

    /// What is durable.
    pub(crate) fn durable(&self) -> Position {
        Position {
            writer: self.writer,
            commit: CommitNo(self.open.durable()),
        }
    }

    pub(crate) fn covers(&self) -> Option<Position> {
        *self.covers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn published(&self) -> MutexGuard<'_, VecDeque<(u64, Published)>> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// A hand that puts records into the open commit.
    pub(crate) fn staging(&self) -> Staging<'_> {
        Staging {
            life: self,
            first: false,
        }
    }
}

/// Puts records into the open commit, and remembers whether somebody has to be woken to lead it.
pub(crate) struct Staging<'a> {
    life: &'a Life,
    pub(crate) first: bool,
}

impl Stage for Staging<'_> {
    fn stage(&mut self, records: &mut CommitBuilder) -> Staged {
        let bytes = records.bytes();
        let place = self.life.open.stage(|open| open.append(records));
        self.life.staged_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.first |= place.first;
        Staged {
            commit: place.number,
            shift: place.put,
        }
    }
}
