//! The options of an engine, with their defaults.

use std::{collections::BTreeMap, time::Duration};
use throng_core::model::{Keep, Timestamp};

/// Limits and intervals of an engine. Every one has a default that suits a node of a few cores.
#[derive(Clone, Debug)]
pub struct Options {
    /// The node's name in the journal; one engine a name at a time.
    pub node: String,
    /// Bytes all entities in memory may take, with what is on its way to the store. Least recently used ones are
    /// passivated beyond it.
    pub memory_bytes_max: usize,
    /// A checkpoint at least this often.
    pub checkpoint_every: Duration,
    /// A checkpoint after this many bytes of commits.
    pub checkpoint_bytes: u64,
    /// Bytes of the open commit beyond which work from outside waits for the next one.
    /// At most 16 MiB count, whatever is set.
    pub commit_bytes_max: usize,
    /// Work of one entity in a turn of a gateway's loop beyond which its commands wait behind those of others: a quarter of
    /// the turn.
    pub entity_turn: Duration,
    /// The time that a caller waits if it does not say.
    pub deadline: Duration,
    /// Estimated wait beyond which work from outside is refused.
    pub wait_max: Duration,
    /// Commands waiting for one shard's lock.
    pub inbox_max: usize,
    /// Messages between entities kept in memory, in an eighth of its bytes; more wait in the log.
    pub outbox_max: usize,
    /// Messages delivered in the turn that sent them.
    pub deliveries_per_turn: usize,
    /// The time that a graceful stop waits for what is in flight.
    pub drain: Duration,
    /// The time for which the events of a kind are kept, where that is not what the kind says.
    pub keep: BTreeMap<String, Keep>,
    /// The time between two removals of what is not kept any longer; a sixteenth of the shortest time that is kept, if nothing is said.
    /// [`Duration::MAX`]: only when [asked](crate::Engine::prune).
    pub prune_every: Option<Duration>,
    /// A projection that has been behind for so long does not hold up the removal of what it has not read. Without, all do.
    pub left_behind_after: Option<Duration>,
    /// Bytes the journal may take of the disk, with its store and read models where they are files. From 80 % on that is told; from
    /// 100 % on commands are refused and reads go on, as on a full disk. Without, the disk is the bound.
    pub disk_bytes_max: Option<u64>,
    /// Runs the projections and sinks; without, their read models stay as they are.
    pub projections: bool,
    /// Answers queries only, as a copy of a service should that must not act. Commands, erasures and passes of retention are refused;
    /// no timer fires, no message is delivered, no sink runs, no call is made.
    pub quiet: bool,
    /// The time at which the journal was served instead of the one that it is a copy of. Calls begun before are not made any more: their
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
