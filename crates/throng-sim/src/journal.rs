//! A simulated journal with faults.

use crate::{
    faults::{Faults, Lie},
    medium::{Medium, Pending, Stream},
    threads::busy_for,
    world::World,
};
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};
use throng_journal::{
    Append, AppendError, Appended, Commit, CommitNo, Durability, Error, Inventory, Journal, Later, Maybe, Opened,
    Place, Position, Prune, Pruned, ShardId, Taken, WriterEntry, WriterId, commit::Buffer,
};

/// A process's journal on the medium.
#[derive(Clone)]
pub(crate) struct SimJournal {
    pub(crate) world: Arc<World>,
    pub(crate) medium: Medium,
    pub(crate) faults: Arc<Mutex<Faults>>,
    pub(crate) state: Arc<JournalKnowledge>,
    /// The number of the process.
    pub(crate) process: u32,
}

/// A process's knowledge of its journal.
#[derive(Default)]
pub(crate) struct JournalKnowledge {
    /// True if the process is dead, so that its remaining calls do nothing. Set once, by the kill or the power loss.
    pub(crate) dead: AtomicBool,
    /// The most appends in flight. An append changes it by chance; 0 counts as 1.
    depth: AtomicUsize,
    /// The newest writer that this process has opened; 0: none. Each opening stores it.
    own: AtomicU64,
    /// The last position covered by a checkpoint. Single records up to here are not read any more.
    forgotten: Mutex<Option<Position>>,
}

/// The outcome of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Lands,
    /// The append fails, and a seal decides whether it becomes durable.
    InDoubt,
}

pub(crate) fn io(doing: &str) -> Error {
    Error::Io {
        doing: doing.to_owned(),
        source: std::io::Error::other("a simulated fault"),
    }
}

impl SimJournal {
    pub(crate) fn faults(&self) -> Faults {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits according to the faults, then runs the call, or fails before or after it.
    fn slowly<'a, T: Send + 'a>(
        &'a self,
        (doing, counted): (&'static str, &'static str),
        work: impl FnOnce(&Self) -> Result<T, Error> + Send + 'a,
    ) -> Later<'a, Result<T, Error>> {
        let faults = self.faults();
        let wait = self.world.dice(|rng| faults.wait(rng));
        let fails = self.world.chance(faults.journal_error);
        let late = fails && self.world.chance(0.5);
        Box::pin(async move {
            if let Some(wait) = wait {
                self.world.sleep(wait).await;
            }
            if fails {
                self.world.count(counted);
                self.world.note(format_args!(
                    "{doing} fails{}",
                    if late { " after it was done" } else { "" }
                ));
            }
            if self.state.dead.load(Ordering::Relaxed) || (fails && !late) {
                return Err(io(doing));
            }
            let done = work(self)?;
            if late { Err(io(doing)) } else { Ok(done) }
        })
    }

    fn body(&self, place: Place) -> Result<Vec<u8>, Error> {
        let forgotten = *self.state.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
        if forgotten.is_some_and(|forgotten| place.position <= forgotten) {
            self.world.count("read of a forgotten place");
            return Err(Error::NoCommit(place.position));
        }
        let before = Position::new(
            place.position.writer,
            CommitNo(place.position.commit.0.saturating_sub(1)),
        );
        let commits = self.medium.lock().after(before, 0);
        let (from, len) = (place.offset as usize, place.len as usize);
        let body = commits.first().and_then(|commit| commit.bytes().get(from..from + len));
        body.map(<[u8]>::to_vec).ok_or(Error::NoCommit(place.position))
    }

    fn seal_one(&self, writer: WriterId) -> CommitNo {
        let mut medium = self.medium.lock();
        let was_sealed = medium.streams.get(&writer).is_none_or(|stream| stream.sealed);
        let (landed, lost) = self.world.dice(|rng| medium.seal(writer, rng));
        let last = medium
            .streams
            .get(&writer)
            .map_or(0, |stream| stream.commits.len() as u64);
        drop(medium);
        if !was_sealed {
            self.world.count("writer sealed");
            self.world.add("commit in doubt, landed", landed as u64);
            self.world.add("commit in doubt, lost", lost as u64);
            self.world.note(format_args!(
                "writer {writer} is sealed at {last}: {landed} landed, {lost} lost"
            ));
        }
        CommitNo(last)
    }

    /// Answers an append in flight.
    fn resolve(&self, writer: WriterId, number: u64, fate: Fate) -> Result<(), AppendError> {
        let mut medium = self.medium.lock();
        let lie = medium.lie;
        let Some(stream) = medium.streams.get_mut(&writer) else {
            return Err(AppendError::Sealed);
        };
        if stream.sealed {
            let landed = number <= stream.commits.len() as u64;
            drop(medium);
            self.world.count("append resolved after a seal");
            let tells = self.world.chance(0.5);
            return match (landed, tells) {
                _ if lie == Some(Lie::IgnoresSeals) => Ok(()),
                (true, true) => Ok(()),
                (false, true) => Err(AppendError::Sealed),
                (_, false) => Err(AppendError::InDoubt("the connection broke".into())),
            };
        }
        let at = (number as usize).checked_sub(stream.commits.len() + 1);
        if let Some(pending) = at.and_then(|at| stream.pending.get_mut(at)) {
            pending.resolved = true;
        }
        if fate == Fate::Lands {
            if at.is_some_and(|at| at > 0) {
                self.world.count("append resolved before its predecessor");
            }
            medium.land(writer, number);
            return Ok(());
        }
        stream.failed = true;
        drop(medium);
        self.world.count("append in doubt");
        self.world.note(format_args!("append {writer}.{number} is in doubt"));
        Err(AppendError::InDoubt("a simulated fault".into()))
    }

    fn check_append(&self, stream: &Stream, writer: WriterId, number: u64) -> Option<String> {
        if number != stream.last() + 1 {
            return Some(format!(
                "promise 5: commit {writer}.{number} was appended after {}",
                stream.last()
            ));
        }
        if stream.failed {
            return Some(format!("commit {writer}.{number} was appended after one that failed"));
        }
        let unresolved = stream.pending.iter().filter(|pending| !pending.resolved).count();
        let depth = self.state.depth.load(Ordering::Relaxed).max(1);
        if unresolved >= depth {
            return Some(format!(
                "commit {writer}.{number} was appended with {unresolved} in flight, depth {depth}"
            ));
        }
        None
    }
}

impl Journal for SimJournal {
    fn open(&self, node: &str) -> Later<'_, Result<Opened, Error>> {
        let node = node.to_owned();
        self.slowly(("opening the journal", "open failed"), move |journal| {
            let own = journal.state.own.load(Ordering::Relaxed);
            let earlier: Vec<WriterId> = {
                let medium = journal.medium.lock();
                // A process that was taken over from must not take its streams back.
                if own != 0 && medium.owner != journal.process {
                    return Err(Error::Sealed(WriterId(own)));
                }
                let same = medium.streams.iter().filter(|(_, stream)| stream.node == node);
                same.map(|(writer, _)| *writer).collect()
            };
            for writer in earlier {
                journal.seal_one(writer);
            }
            let mut medium = journal.medium.lock();
            medium.owner = journal.process;
            let writer = WriterId(medium.streams.last_key_value().map_or(1, |(last, _)| last.0 + 1));
            medium.streams.insert(
                writer,
                Stream {
                    node,
                    ..Stream::default()
                },
            );
            journal.state.own.store(writer.0, Ordering::Relaxed);
            journal.world.note(format_args!("writer {writer} is opened"));
            journal.world.count("writer opened");
            Ok(Opened { writer })
        })
    }

    fn take<'a>(&'a self, by: WriterId, _shards: &'a [ShardId]) -> Later<'a, Result<Vec<Taken>, Error>> {
        self.slowly(("taking shards over", "take failed"), move |journal| {
            let medium = journal.medium.lock();
            if medium.streams.get(&by).is_none_or(|stream| stream.sealed) {
                return Err(Error::Sealed(by));
            }
            let earlier = medium.streams.range(..by).filter(|(_, stream)| stream.sealed);
            Ok(earlier
                .map(|(writer, stream)| Taken {
                    writer: *writer,
                    last: CommitNo(stream.commits.len() as u64),
                    shards: None,
                })
                .collect())
        })
    }

    fn inventory(&self, limit: usize) -> Later<'_, Result<Inventory, Error>> {
        self.slowly(("listing the writers", "inventory failed"), move |journal| {
            let medium = journal.medium.lock();
            let newest = medium.streams.iter().rev().take(limit);
            let writers = newest.map(|(writer, stream)| WriterEntry {
                writer: *writer,
                node: stream.node.clone(),
                last: CommitNo(stream.commits.len() as u64),
                is_open: !stream.sealed,
                begun_micros: stream.commits.first().map(|commit| commit.stamp().at_micros),
                ended_micros: None,
                segments: None,
            });
            Ok(Inventory {
                writers: writers.collect(),
                writers_total: medium.streams.len() as u64,
                ..Inventory::default()
            })
        })
    }

    fn append(&self, mut commit: Commit) -> Append {
        let done = |result| {
            Append::Done(Appended {
                result,
                buffer: Buffer::default(),
            })
        };
        if self.state.dead.load(Ordering::Relaxed) {
            return done(Err(AppendError::InDoubt("the process is dead".into())));
        }
        commit.seal(&[]);
        let (writer, number) = (commit.stamp().writer, commit.stamp().number.0);
        let faults = self.faults();
        let mut medium = self.medium.lock();
        let lie = medium.lie;
        let Some(stream) = medium.streams.get_mut(&writer) else {
            medium.violation(format!(
                "commit {writer}.{number} was appended to a stream nobody opened"
            ));
            return done(Err(AppendError::Sealed));
        };
        if stream.sealed {
            drop(medium);
            self.world.count("append to a sealed stream");
            let sealed = lie != Some(Lie::IgnoresSeals);
            return done(if sealed { Err(AppendError::Sealed) } else { Ok(()) });
        }
        if let Some(violation) = self.check_append(stream, writer, number) {
            medium.violation(violation);
            return done(Err(AppendError::InDoubt("it does not follow".into())));
        }
        let was_idle = stream.pending.is_empty();
        let in_flight = stream.pending.len() + 1;
        self.world.note(format_args!(
            "append {writer}.{number}: {} records",
            commit.record_count()
        ));
        stream.pending.push_back(Pending {
            commit,
            resolved: false,
        });
        drop(medium);
        if in_flight > 1 {
            self.world.count("appends in flight together");
        }
        if self.world.chance(faults.depth_change) {
            let depth = self.world.dice(|rng| *rng.choice(&[1, 2, 4]).unwrap_or(&1));
            self.state.depth.store(depth, Ordering::Relaxed);
            self.world.count("depth changed");
        }
        let fate = if self.world.chance(faults.in_doubt) {
            Fate::InDoubt
        } else {
            Fate::Lands
        };
        match self.world.dice(|rng| faults.wait(rng)) {
            None if was_idle => {
                self.world.count("append at once");
                if faults.sync_micros.end > 1 {
                    let micros = self.world.dice(|rng| rng.u64(faults.sync_micros.clone()));
                    busy_for(Duration::from_micros(micros));
                }
                if self.state.dead.load(Ordering::Relaxed) {
                    return done(Err(AppendError::InDoubt("the process is dead".into())));
                }
                done(self.resolve(writer, number, fate))
            }
            wait => {
                self.world.count("append later");
                let journal = self.clone();
                let sleep = self.world.sleep(wait.unwrap_or_default());
                Append::Later(Box::pin(async move {
                    sleep.await;
                    Appended {
                        result: journal.resolve(writer, number, fate),
                        buffer: Buffer::default(),
                    }
                }))
            }
        }
    }

    fn seal(&self, writer: WriterId) -> Later<'_, Result<CommitNo, Error>> {
        self.slowly(("sealing the writer", "seal failed"), move |journal| {
            if !journal.medium.lock().streams.contains_key(&writer) {
                let commit = CommitNo(0);
                return Err(Error::NoCommit(Position { writer, commit }));
            }
            Ok(journal.seal_one(writer))
        })
    }

    fn read(&self, after: Position, bytes_max: usize) -> Later<'_, Result<Vec<Commit>, Error>> {
        self.slowly(("reading commits", "read failed"), move |journal| {
            let medium = journal.medium.lock();
            let commits = medium.after(after, bytes_max);
            let damaged = commits.iter().find(|commit| Some(commit.position()) == medium.damaged);
            match damaged.map(Commit::position) {
                Some(position) => Err(Error::Damaged {
                    position,
                    place: "the simulated medium".into(),
                    why: "checksum 00000000 where ffffffff was expected".into(),
                }),
                None => Ok(commits),
            }
        })
    }

    fn read_at<'a>(&'a self, places: &'a [Place]) -> Maybe<'a, Result<Vec<Vec<u8>>, Error>> {
        let faults = self.faults();
        let read = move || places.iter().map(|place| self.body(*place)).collect();
        if self.world.chance(faults.journal_error) {
            self.world.count("record read failed");
            return Maybe::Ready(Err(io("reading a record")));
        }
        match self.world.dice(|rng| faults.wait(rng)) {
            None => Maybe::Ready(read()),
            Some(wait) => Maybe::Later(Box::pin(async move {
                self.world.sleep(wait).await;
                read()
            })),
        }
    }

    fn sync(&self) -> Later<'_, Result<(), Error>> {
        self.slowly(("syncing the journal", "sync failed"), |journal| {
            let mut medium = journal.medium.lock();
            if medium.durability != Durability::Memory {
                for stream in medium.streams.values_mut() {
                    stream.synced = stream.commits.len();
                }
            }
            Ok(())
        })
    }

    fn prune(&self, prune: Prune) -> Later<'_, Result<Pruned, Error>> {
        self.slowly(("removing history", "prune failed"), move |journal| {
            let stop = || journal.world.chance(journal.faults().journal_error / 100.0);
            let looked_at = Arc::new(AtomicU64::new(0));
            let (judge, looked_in) = (Arc::clone(&prune.judge), Arc::clone(&looked_at));
            let prune = Prune {
                judge: Arc::new(move |record, stamp| {
                    looked_in.fetch_add(1, Ordering::Relaxed);
                    judge(record, stamp)
                }),
                ..prune
            };
            let pruned = journal.medium.lock().prune(&prune, stop);
            journal.world.add("record looked at", looked_at.load(Ordering::Relaxed));
            journal.world.count("history removed");
            journal.world.add("record removed", pruned.records);
            Ok(pruned)
        })
    }

    fn forget(&self, upto: Position) {
        let mut forgotten = self.state.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
        *forgotten = (*forgotten).max(Some(upto));
    }

    fn depth(&self) -> usize {
        self.state.depth.load(Ordering::Relaxed).max(1)
    }

    fn durability(&self) -> Durability {
        self.medium.lock().durability
    }
}

impl From<SimJournal> for Box<dyn Journal> {
    fn from(journal: SimJournal) -> Self {
        Box::new(journal)
    }
}
