//! The parts of a shard that all its kinds share.

use super::{
    Delivery, Stage, Staged,
    checkpoint::erasures::Erasures,
    dedup::Keys,
    messages::{Numbers, dead::DeadMessages},
    resident::{hot::Hot, unloadable::Unloadables},
    timers::Timers,
};
use crate::{
    limits,
    model::{Published, Timestamp},
    trace_context::TraceContext,
};
use throng_journal::{CommitBuilder, ShardId, WriterId, scratch};

/// The state that all kinds of a shard share.
#[derive(Default)]
pub struct Common {
    pub(super) id: ShardId,
    pub(super) writer: WriterId,
    /// The engine's kinds.
    pub(super) kinds: Box<[&'static str]>,
    /// The engine's number of shards.
    pub(super) shards: u16,
    /// The time since when this journal is served in place of the one it is a copy of.
    pub(super) restored_at: Option<Timestamp>,
    /// The records of the current command, until they are staged.
    pub(super) records: CommitBuilder,
    /// A buffer for one payload.
    pub(super) payload: Vec<u8>,
    /// The latest time seen: a shard's clock never goes back.
    pub(super) now: Timestamp,
    /// The span of the current command, if its trace is recorded.
    pub(super) trace: Option<TraceContext>,
    pub(super) messages: Numbers,
    pub(super) keys: Keys,
    pub(super) timers: Timers,
    pub(super) dead: DeadMessages,
    pub(super) unloadables: Unloadables,
    pub(super) erasures: Erasures,
    /// Messages the last command sent, for the driver to deliver.
    pub(super) outbox: Vec<Delivery>,
    /// The values that the last command published, each with the number of the commit it rests on.
    pub(super) published: Vec<(u64, Published)>,
    /// Bytes of all resident entities of this shard.
    pub(super) resident_bytes: usize,
    pub(super) resident: usize,
    /// Bytes of the filters of known ids.
    pub(super) known_bytes: usize,
    /// Bytes on their way to the store: events, states, and the slots that stay in memory only for them.
    pub(super) pending_bytes: usize,
    /// The last durable commit when entities were last passivated.
    pub(super) durable: u64,
    /// The load that the driver has counted last, with `Shard::book`.
    pub(super) booked: Load,
    pub(super) hot: Hot,
    /// True if an entity was quarantined, or no longer is, since the last look.
    pub(super) has_set_aside: bool,
}

/// Counts and sizes of a shard, for metrics and for the memory budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Entities in memory.
    pub entities: usize,
    /// Bytes of these, of timers in memory, and of the indexes for ids and idempotency keys in the store.
    pub bytes: usize,
    /// Bytes on their way to the store: states, idempotency keys, dead messages, notes on changed timers.
    pub pending_bytes: usize,
    /// The number of pending timers; if not all are in memory, the number at the last checkpoint.
    pub timers: usize,
}

/// The change of a [`Load`], which may be negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Entities in memory.
    pub entities: i64,
    /// Bytes, as in [`Load::bytes`].
    pub bytes: i64,
    /// Bytes of states on their way to the store.
    pub pending_bytes: i64,
}

impl Common {
    /// The shard of an entity.
    pub(super) fn shard_of(&self, kind: &str, id: &str) -> ShardId {
        limits::shard_of(limits::hash(kind, id), self.shards)
    }

    /// Stages all records of the current command.
    pub(super) fn stage(&mut self, stage: &mut dyn Stage) -> Staged {
        let bytes = self.records.bytes();
        assert!(
            bytes <= limits::STAGED_BYTES_MAX,
            "a call stages {bytes} bytes, of {} at most",
            limits::STAGED_BYTES_MAX
        );
        let staged = stage.stage(&mut self.records);
        self.discard();
        self.timers.staged(staged.commit);
        staged
    }

    /// Drops the records of the current command. Large buffers are freed, because each of the many shards has its own.
    pub(super) fn discard(&mut self) {
        self.records.clear();
        scratch::empty(&mut self.payload);
    }
}
