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
    /// The kinds that the engine was given.
    pub(super) kinds: Box<[&'static str]>,
    /// The engine's number of shards.
    pub(super) shards: u16,
    /// The time at which the journal was served instead of the one it is a copy of.
    pub(super) restored_at: Option<Timestamp>,
    /// The records of the command at hand, until they are staged.
    pub(super) records: CommitBuilder,
    /// Scratch for one payload.
    pub(super) payload: Vec<u8>,
    /// The latest time seen: a shard's clock never goes back.
    pub(super) now: Timestamp,
    /// The span of the command at hand, if its trace is recorded.
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
    /// Bytes of the filters that tell which ids exist.
    pub(super) known_bytes: usize,
    /// Bytes of what is on its way to the store: events, states, and the slots that stay in memory only for them.
    pub(super) pending_bytes: usize,
    /// The last commit that was durable when entities were passivated last.
    pub(super) durable: u64,
    /// The load that the driver has counted last, with `Shard::book`.
    pub(super) booked: Load,
    pub(super) hot: Hot,
    /// An entity was set aside, or is no more, since the last look.
    pub(super) has_set_aside: bool,
}

/// Counts and sizes of a shard, for metrics and for the memory budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Entities in memory.
    pub entities: usize,
    /// Bytes of them, of timers in memory, and of what finds ids and idempotency keys in the store.
    pub bytes: usize,
    /// Bytes of what is on its way to the store: states, idempotency keys, dead messages, notes on timers that changed.
    pub pending_bytes: usize,
    /// The number of timers that are set; at the last checkpoint, where not all are in memory.
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

    /// Hands the records of the command at hand over, all of them.
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

    /// Drops the records of the command at hand. Large buffers give their memory back: each of the many shards has its own.
    pub(super) fn discard(&mut self) {
        self.records.clear();
        scratch::empty(&mut self.payload);
    }
}
