//! The durable medium of simulated journals and stores. It outlives the processes.

use crate::faults::Lie;
use fastrand::Rng;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use throng_journal::{
    Address, Commit, CommitBuilder, CommitNo, Durability, Position, Prune, PruneHow, Pruned, RecordKind, Stamp,
    StoredEvent, StoredState, WriterId,
};

/// Shared by all that write on it.
#[derive(Clone)]
pub(crate) struct Medium {
    inner: Arc<Mutex<Inner>>,
}

pub(crate) struct Inner {
    pub(crate) durability: Durability,
    pub(crate) streams: BTreeMap<WriterId, Stream>,
    pub(crate) rows: Rows,
    /// The number of durable events by entity.
    pub(crate) landed: BTreeMap<Address, u64>,
    /// Acts of the engine that no journal or store allows.
    pub(crate) violations: Vec<String>,
    /// Commits lost by a power loss, below durability `fsync`.
    pub(crate) lost: Vec<Commit>,
    pub(crate) lie: Option<Lie>,
    /// The process that last opened a writer. Only its checkpoints count.
    pub(crate) owner: u32,
    /// The commit that cannot be read.
    pub(crate) damaged: Option<Position>,
    /// True if history was removed.
    pub(crate) is_pruned: bool,
    /// Entities whose rows cannot be read.
    pub(crate) unreadable: BTreeSet<Address>,
}

#[derive(Default)]
pub(crate) struct Stream {
    pub(crate) node: String,
    pub(crate) commits: Vec<Commit>,
    /// The number of commits that survive a power loss.
    pub(crate) synced: usize,
    pub(crate) sealed: bool,
    /// Appends in flight, in order. At the latest a seal decides whether they become durable.
    pub(crate) pending: VecDeque<Pending>,
    /// True if an append failed, so that none may follow it.
    pub(crate) failed: bool,
}

pub(crate) struct Pending {
    pub(crate) commit: Commit,
    /// True if the engine has its answer.
    pub(crate) resolved: bool,
}

#[derive(Default)]
pub(crate) struct Rows {
    pub(crate) covers: Option<Position>,
    pub(crate) states: BTreeMap<Address, StoredState>,
    pub(crate) events: BTreeMap<Address, Vec<StoredEvent>>,
    /// The number of each entity's last event.
    pub(crate) last: BTreeMap<Address, u64>,
    pub(crate) system: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Stream {
    /// Returns the number of the last commit appended, durable or not.
    pub(crate) fn last(&self) -> u64 {
        (self.commits.len() + self.pending.len()) as u64
    }
}

impl Medium {
    pub(crate) fn new(durability: Durability, lie: Option<Lie>) -> Self {
        Self {
            inner: Arc::new(Mutex::new(Inner {
                durability,
                streams: BTreeMap::new(),
                rows: Rows::default(),
                landed: BTreeMap::new(),
                violations: Vec::new(),
                lost: Vec::new(),
                lie,
                owner: 0,
                damaged: None,
                is_pruned: false,
                unreadable: BTreeSet::new(),
            })),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Makes pending commits of a stream durable, up to this number.
    pub(crate) fn land(&mut self, writer: WriterId, upto: u64) {
        let Some(stream) = self.streams.get_mut(&writer) else {
            return;
        };
        while (stream.commits.len() as u64) < upto {
            let Some(pending) = stream.pending.pop_front() else {
                break;
            };
            let commit = match self.lie {
                Some(Lie::DropsTaken) => rewritten(&pending.commit, pending.commit.stamp(), |kind, _| {
                    kind == RecordKind::Taken
                }),
                Some(Lie::DropsStates) => rewritten(&pending.commit, pending.commit.stamp(), |kind, _| {
                    kind == RecordKind::State
                }),
                Some(Lie::TearsCommit) => {
                    let events = events_of(&pending.commit).count();
                    rewritten(&pending.commit, pending.commit.stamp(), |kind, event| {
                        kind == RecordKind::Event && events > 1 && event + 1 == events
                    })
                }
                _ => pending.commit,
            };
            for record in events_of(&commit) {
                *self.landed.entry(Address::new(record.kind, record.id)).or_default() += 1;
            }
            stream.commits.push(commit);
        }
        if self.durability == Durability::Fsync {
            stream.synced = stream.commits.len();
        }
    }

    /// Decides which pending commits become durable, and allows no more after them. Returns how many became durable and how many were lost.
    pub(crate) fn seal(&mut self, writer: WriterId, rng: &mut Rng) -> (usize, usize) {
        let Some(stream) = self.streams.get_mut(&writer) else {
            return (0, 0);
        };
        let (begun, pending) = (stream.commits.len(), stream.pending.len());
        let lands = if stream.sealed { 0 } else { rng.usize(..=pending) };
        self.land(writer, (begun + lands) as u64);
        let (lie, durability) = (self.lie, self.durability);
        let Some(stream) = self.streams.get_mut(&writer) else {
            return (0, 0);
        };
        stream.pending.clear();
        if !stream.sealed && pending > 0 && lie == Some(Lie::LandsTwice) {
            twice(stream);
        }
        stream.sealed = true;
        // The end of a sealed stream is durable at every durability, since its new owner builds on it.
        if durability != Durability::Memory {
            stream.synced = stream.commits.len();
        }
        (lands, pending - lands)
    }

    /// Ends a process. With `power_loss` everything that was not synced may be lost.
    pub(crate) fn crash(&mut self, power_loss: bool, rng: &mut Rng) -> usize {
        let mut lost = Vec::new();
        if power_loss && self.durability != Durability::Fsync {
            for stream in self.streams.values_mut() {
                let keep = rng.usize(stream.synced..=stream.commits.len());
                lost.extend(stream.commits.split_off(keep));
                stream.pending.clear();
            }
        }
        if self.lie == Some(Lie::LosesAcknowledged)
            && let Some(stream) = self.streams.values_mut().next_back()
        {
            lost.extend(stream.commits.pop());
            stream.pending.clear();
        }
        for record in lost.iter().flat_map(events_of) {
            *self.landed.entry(Address::new(record.kind, record.id)).or_default() -= 1;
        }
        let count = lost.len();
        if self.lie.is_none() {
            self.lost.append(&mut lost);
        }
        count
    }

    /// Returns all commits in the order of history.
    pub(crate) fn history(&self) -> Vec<Commit> {
        let streams = self.streams.values();
        streams.flat_map(|stream| stream.commits.iter().cloned()).collect()
    }

    pub(crate) fn reaches(&self, position: Position) -> bool {
        let stream = self.streams.get(&position.writer);
        stream.is_some_and(|stream| stream.commits.len() as u64 >= position.commit.0)
    }

    /// Removes old history from a stream. `stop` tells after which commit a crash or fault interrupts it.
    pub(crate) fn prune(&mut self, prune: &Prune, stop: impl Fn() -> bool) -> Pruned {
        let covers = self.rows.covers.unwrap_or_default();
        let upto = Position::new(prune.after.writer, prune.upto);
        if upto > covers {
            self.violation(format!("history up to {upto} was pruned, the store covers {covers}"));
            return Pruned::default();
        }
        let Some(stream) = self.streams.get_mut(&prune.after.writer) else {
            return Pruned::default();
        };
        let pruned = match self.lie {
            Some(Lie::RemovesTooMuch) => {
                let too_much = Prune {
                    judge: Arc::new(|record, _| record.record == RecordKind::Event),
                    ..prune.clone()
                };
                too_much.in_memory(stream.commits.iter_mut(), stop)
            }
            _ => prune.in_memory(stream.commits.iter_mut(), stop),
        };
        self.is_pruned |= pruned.records > 0 && prune.how != PruneHow::Dry;
        pruned
    }

    pub(crate) fn violation(&mut self, what: String) {
        self.violations.push(what);
    }

    /// Returns the commits after a position in its stream.
    pub(crate) fn after(&self, after: Position, bytes_max: usize) -> Vec<Commit> {
        let Some(stream) = self.streams.get(&after.writer) else {
            return Vec::new();
        };
        let from = usize::try_from(after.commit.0).unwrap_or(usize::MAX);
        let mut bytes = 0;
        let commits = stream.commits.iter().skip(from);
        let some = commits.take_while(|commit| {
            let is_first = bytes == 0;
            bytes += commit.bytes().len();
            is_first || bytes <= bytes_max
        });
        some.cloned().collect()
    }
}

fn events_of(commit: &Commit) -> impl Iterator<Item = throng_journal::Record<'_>> {
    let records = commit.records().flatten();
    records.filter(|record| record.record == RecordKind::Event)
}

/// Returns a commit without some of its records. `drop` gets each record's kind and the number of events before it.
fn rewritten(commit: &Commit, stamp: Stamp, drop: impl Fn(RecordKind, usize) -> bool) -> Commit {
    let (mut builder, mut events) = (CommitBuilder::default(), 0);
    for record in commit.records().flatten() {
        if !drop(record.record, events) {
            let (address, shape) = ((record.kind, record.id), (record.name, record.version));
            builder.push_parts(record.record, record.shard, address, record.seq, shape, record.body);
        }
        events += usize::from(record.record == RecordKind::Event);
    }
    let mut commit = builder.finish(stamp);
    commit.seal(&[]);
    commit
}

fn twice(stream: &mut Stream) {
    if let Some(last) = stream.commits.last() {
        let stamp = last.stamp();
        let number = CommitNo(stamp.number.0 + 1);
        let again = rewritten(last, Stamp { number, ..stamp }, |_, _| false);
        stream.commits.push(again);
    }
}
