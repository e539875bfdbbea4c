//! The options of an engine, with their defaults.

use std::{collections::BTreeMap, time::Duration};
use throng_core::model::{Keep, Timestamp};

/// Limits and intervals of an engine. Every one has a default that suits a node of a few cores.
#[derive(Clone, Debug)]
pub struct Options {
    /// The node's name in the journal. Only one engine of a name may run at a time.
    pub node: String,
    /// Bytes that all entities in memory may take, together with data on its way to the store. Beyond it, least recently used
    /// entities are passivated.
    pub memory_bytes_max: usize,
    /// A checkpoint at least this often.
    pub checkpoint_every: Duration,
    /// A checkpoint after this many bytes of commits.
    pub checkpoint_bytes: u64,
    /// Bytes of the open commit beyond which work from outside waits for the next one.
    /// Values above 16 MiB count as 16 MiB.
    pub commit_bytes_max: usize,
    /// The time that one entity may use in a batch of a gateway's loop before its commands wait behind those of others. It is a quarter of
    /// the batch.
    pub entity_turn: Duration,
    /// The longest wait of a caller that sets no deadline.
    pub deadline: Duration,
    /// Estimated wait beyond which work from outside is refused.
    pub wait_max: Duration,
    /// The most commands that wait for one shard's lock.
    pub inbox_max: usize,
    /// The most messages between entities in memory, within an eighth of the memory. More of them wait in the log.
    pub outbox_max: usize,
    /// The most messages delivered in the batch that sent them.
    pub deliveries_per_turn: usize,
    /// The longest wait of a graceful stop for what is in flight.
    pub drain: Duration,
    /// The retention of a kind's events, if it differs from the kind's own.
    pub keep: BTreeMap<String, Keep>,
    /// The interval of retention passes; `None`: a sixteenth of the shortest retention. [`Duration::MAX`]: only on
    /// [request](crate::Engine::prune).
    pub prune_every: Option<Duration>,
    /// The time after which a projection that is behind no longer keeps unread history from being removed. `None`: it always does.
    pub left_behind_after: Option<Duration>,
    /// Bytes of disk that the journal may take, with its store and read models if these are files. From 80 % on this is reported; from 100
    /// % on commands are refused and reads go on, as on a full disk. `None`: the disk is the bound.
    pub disk_bytes_max: Option<u64>,
    /// Runs the projections and sinks; without, their read models stay as they are.
    pub projections: bool,
    /// Only answers queries, for a copy of a service that must not act. Commands, erasures and retention passes are refused;
    /// no timer fires, no message is delivered, no sink runs, no call is made.
    pub quiet: bool,
    /// The time at which this journal, a copy, was first served in place of its original. Calls begun before it are not made again: their
    /// outcome is `Unknown`.
    pub restored_at: Option<Timestamp>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            node: "node".into(),
            memory_bytes_max: 512 << 20,
            checkpoint_every: Duration::from_secs(10),
            checkpoint_bytes: 64 << 20,
            commit_bytes_max: 8 << 20,
            entity_turn: Duration::from_micros(1_250),
            deadline: Duration::from_secs(5),
            wait_max: Duration::from_millis(500),
            inbox_max: 65_536,
            outbox_max: 65_536,
            deliveries_per_turn: 1_024,
            drain: Duration::from_secs(10),
            keep: BTreeMap::new(),
            prune_every: None,
            left_behind_after: None,
            disk_bytes_max: None,
            projections: true,
            quiet: false,
            restored_at: None,
        }
    }
}
