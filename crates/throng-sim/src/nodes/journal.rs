//! A node's journal: the shared database over a simulated connection.

use super::database::{Database, DatabaseLink, Lease, LeaseRow};
use crate::{
    faults::Lie,
    world::{OUTSIDE, RunsOn},
};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use throng_journal::{
    Append, AppendError, Appended, Commit, CommitNo, Durability, Error, Journal, Later, Maybe, NodeId, Opened, Place,
    Position, Prune, PruneHow, Pruned, Record, RecordKind, ShardId, ShardSet, Stream, Taken, WriterId, commit::Buffer,
};

/// The number of renewals of a lease within its length.
const RENEWALS: u32 = 5;
/// The share of removals of history that are delayed, and their longest delay.
const LATE: f64 = 0.2;
const LATE_MICROS: u64 = 4_000_000;
/// The interval at which other engines' leases are read.
const LOOK: Duration = Duration::from_millis(50);

#[derive(Clone)]
pub(super) struct FarJournal(pub(super) DatabaseLink);

impl FarJournal {
    fn share(&self) -> f64 {
        self.0.database.faults().journal_error
    }

    /// Waits until no other engine answers reads of these shards from memory: its stream was sealed, and its lease has expired or its
    /// process is known to be dead.
    async fn outlive_leases(&self, own: WriterId, shards: &ShardSet) -> Result<(), Error> {
        let database = &self.0.database;
        let lie = self.0.lie();
        if lie == Some(Lie::TakesOverAtOnce) {
            return Ok(());
        }
        loop {
            let streams = database.journal.streams(WriterId(0)).await?;
            let now = database.world.elapsed_micros();
            let waits = {
                let rows = database.rows();
                let answers = |stream: &&Stream| {
                    let row = rows.leases.get(&stream.writer);
                    row.is_some_and(|row: &LeaseRow| {
                        let process = &row.line.process;
                        let is_own = process.group == self.0.process.group;
                        let is_gone = process.is_dead.load(Ordering::Relaxed)
                            || lie == Some(Lie::TrustsFreeLock) && process.is_disconnected.load(Ordering::Relaxed);
                        !is_own && !is_gone && !row.is_over && row.until_micros > now
                    })
                };
                let before = streams.iter().filter(|stream| stream.writer < own);
                let with = before.filter(|stream| stream.shards.as_ref().is_none_or(|of| of.overlaps(shards)));
                with.filter(answers).count() > 0
            };
            if !waits {
                return Ok(());
            }
            database.world.count("waited for a lease");
            database.world.sleep(LOOK).await;
        }
    }

    /// Starts a new lease in the database, during which the writer's engine may answer reads. Returns `false` if its stream was sealed.
    fn renew(&self, writer: WriterId) -> Later<'static, Result<bool, Error>> {
        let line = self.0.clone();
        let (asked, day) = (line.database.world.elapsed_micros(), line.now_day());
        let database = line.database.clone();
        let row_line = line.clone();
        let renewed = self.0.call("renewing a lease", 0.0, async move {
            let streams = database.journal.streams(writer).await?;
            let is_open = streams
                .iter()
                .any(|stream| stream.writer == writer && !stream.is_sealed);
            if is_open {
                let until_micros = database.world.elapsed_micros() + micros(database.lease);
                let row = LeaseRow {
                    line: row_line,
                    until_micros,
                    is_over: false,
                };
                database.rows().leases.insert(writer, row);
            }
            Ok(is_open)
        });
        Box::pin(async move {
            let is_open = renewed.await?;
            let mut lease = line.lease();
            if is_open && lease.writer == writer {
                lease.until_micros = asked + micros(line.database.lease);
                lease.until_day = day + micros(line.database.lease).cast_signed();
            }
            Ok(is_open)
        })
    }

    /// Renews the lease until it has ended or a newer one has begun.
    async fn keep(self, writer: WriterId) {
        loop {
            let every = self.0.database.lease / RENEWALS;
            self.0.database.world.sleep(every).await;
            if self.0.lease().writer != writer {
                return;
            }
            if let Ok(false) = self.renew(writer).await {
                return;
            }
        }
    }

    fn end_lease(&self, writer: WriterId) {
        let mut lease = self.0.lease();
        if lease.writer == writer {
            lease.writer = WriterId(0);
        }
    }
}

impl Database {
    /// Judges a removal as a node would that breaks a promise.
    async fn lying(&self, prune: Prune, lie: Lie) -> Result<Prune, Error> {
        let streams = self.journal.streams(prune.after.writer).await?;
        let shards = streams.into_iter().next().and_then(|stream| stream.shards);
        let shards: Vec<ShardId> = shards.unwrap_or_default().iter().collect();
        let judge = prune.judge.clone();
        let lying = move |record: &Record<'_>, stamp| {
            // The judgement as if the commit were of another shard of its stream.
            let as_of_others = || {
                let record = |shard: &ShardId| Record {
                    shard: *shard,
                    ..*record
                };
                shards.iter().any(|shard| judge(&record(shard), stamp))
            };
            judge(record, stamp)
                || match lie {
                    Lie::RemovesTooMuch => record.record == RecordKind::Event,
                    Lie::DropsStates => record.record == RecordKind::State,
                    Lie::RemovesMessages => record.record == RecordKind::Sent,
                    Lie::RemovesOthers => as_of_others(),
                    _ => false,
                }
        };
        Ok(Prune {
            judge: Arc::new(lying),
            ..prune
        })
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl Journal for FarJournal {
    fn open(&self, node: &str) -> Later<'_, Result<Opened, Error>> {
        let (journal, node) = (self.0.database.journal.clone(), node.to_owned());
        let work = async move { journal.open(&node).await };
        self.0.call("opening the journal", self.share(), work)
    }

    fn open_shards<'a>(&'a self, node: NodeId, shards: &'a ShardSet) -> Later<'a, Result<Opened, Error>> {
        let (journal, own) = (self.0.database.journal.clone(), shards.clone());
        let opened = self.0.call("opening a stream", self.share(), async move {
            journal.open_shards(node, &own).await
        });
        Box::pin(async move {
            // Its earlier streams end with it, and with them the permission to answer from them.
            let last = self.0.lease().writer;
            self.end_lease(last);
            let opened = opened.await?;
            let writer = opened.writer;
            self.outlive_leases(writer, shards).await?;
            *self.0.lease() = Lease {
                writer,
                ..Lease::default()
            };
            if !self.renew(writer).await? {
                return Err(Error::Sealed(writer));
            }
            let world = &self.0.database.world;
            let kept = Box::pin(self.clone().keep(writer));
            world.spawn(self.0.process.group, RunsOn::World, kept);
            world.note(format_args!(
                "node {node} opens writer {writer} with the shards {shards}"
            ));
            world.count("stream opened");
            Ok(opened)
        })
    }

    fn take<'a>(&'a self, by: WriterId, shards: &'a [ShardId]) -> Later<'a, Result<Vec<Taken>, Error>> {
        let (journal, shards) = (self.0.database.journal.clone(), shards.to_vec());
        let work = async move { journal.take(by, &shards).await };
        self.0.call("looking at the streams before", self.share(), work)
    }

    fn streams(&self, from: WriterId) -> Later<'_, Result<Vec<Stream>, Error>> {
        let journal = self.0.database.journal.clone();
        let lies = self.0.lie() == Some(Lie::EndsStreamsEarly);
        let work = async move {
            let mut streams = journal.streams(from).await?;
            streams.iter_mut().for_each(|stream| stream.is_sealed |= lies);
            Ok(streams)
        };
        self.0.call("looking at the streams", self.share(), work)
    }

    fn append(&self, mut commit: Commit) -> Append {
        let line = self.0.clone();
        let world = line.database.world.clone();
        let faults = line.database.faults();
        let wait = |rng: &mut fastrand::Rng| faults.wait(rng).unwrap_or(Duration::from_micros(50));
        let (there, back) = (world.dice(wait), world.dice(wait));
        let fails = world.chance(faults.in_doubt).then(|| world.chance(0.5));
        let ignores_seals = faults.lie == Some(Lie::IgnoresSeals);
        let (tell, told) = tokio::sync::oneshot::channel();
        let sent = async move {
            let world = &line.database.world;
            world.sleep(there).await;
            let in_doubt = |why: &str| Appended {
                result: Err(AppendError::InDoubt(why.into())),
                buffer: Buffer::default(),
            };
            if !line.is_through() || fails == Some(false) {
                drop(tell.send(in_doubt("the database does not answer")));
                return;
            }
            commit.seal(&[]);
            let mut appended = line.database.journal.append(commit.clone()).landed().await;
            if appended.result.is_ok() {
                line.database.rows().landed.push(commit);
            }
            if matches!(appended.result, Err(AppendError::Sealed)) {
                world.count("append to a sealed stream");
                if ignores_seals {
                    appended.result = Ok(());
                }
            }
            world.sleep(back).await;
            if fails.is_some() || !line.is_through() {
                world.count("append in doubt");
                appended = in_doubt("the connection broke");
            }
            drop(tell.send(appended));
        };
        world.spawn(OUTSIDE, RunsOn::World, Box::pin(sent));
        Append::Later(Box::pin(async move {
            told.await.unwrap_or_else(|_| Appended {
                result: Err(AppendError::InDoubt("the world has ended".into())),
                buffer: Buffer::default(),
            })
        }))
    }

    fn seal(&self, writer: WriterId) -> Later<'_, Result<CommitNo, Error>> {
        // Answering stops before the database is told.
        self.end_lease(writer);
        let database = self.0.database.clone();
        self.0.call("ending a stream", self.share(), async move {
            let last = database.journal.seal(writer).await?;
            if let Some(row) = database.rows().leases.get_mut(&writer) {
                row.is_over = true;
            }
            Ok(last)
        })
    }

    fn read(&self, after: Position, bytes_max: usize) -> Later<'_, Result<Vec<Commit>, Error>> {
        let journal = self.0.database.journal.clone();
        let work = async move { journal.read(after, bytes_max).await };
        self.0.call("reading commits", self.share(), work)
    }

    fn read_at<'a>(&'a self, places: &'a [Place]) -> Maybe<'a, Result<Vec<Vec<u8>>, Error>> {
        let (journal, places) = (self.0.database.journal.clone(), places.to_vec());
        Maybe::Later(self.0.call("reading records", self.share(), async move {
            match journal.read_at(&places) {
                Maybe::Ready(read) => read,
                Maybe::Later(read) => read.await,
            }
        }))
    }

    fn prune(&self, prune: Prune) -> Later<'_, Result<Pruned, Error>> {
        let (database, own) = (self.0.database.clone(), self.0.lease().writer);
        let (world, faults) = (database.world.clone(), database.faults());
        let late = prune.how == PruneHow::Remove && faults.journal_error > 0.0 && world.chance(LATE);
        let late = late.then(|| Duration::from_micros(world.dice(|rng| rng.u64(..LATE_MICROS))));
        let work = async move {
            if let Some(late) = late {
                world.sleep(late).await;
            }
            let prune = match faults.lie {
                Some(lie) => database.lying(prune, lie).await?,
                None => prune,
            };
            let streams = database.journal.streams(own).await?;
            let is_of = |stream: &&Stream| stream.writer == own;
            if streams.iter().find(is_of).is_some_and(|stream| stream.is_sealed) {
                world.count("history removed by whoever has lost its shards");
            }
            let pruned = database.journal.prune(prune).await?;
            database.world.count("history removed");
            database.world.add("record removed", pruned.records);
            Ok(pruned)
        };
        self.0.call("removing history", self.share(), work)
    }

    fn forget(&self, _upto: Position) {}

    fn depth(&self) -> usize {
        1
    }

    fn durability(&self) -> Durability {
        Durability::Fsync
    }

    fn holds(&self, writer: WriterId) -> bool {
        let lease = self.0.lease();
        let is_on = match self.0.lie() {
            Some(Lie::LeaseByTimeOfDay) => self.0.now_day() < lease.until_day,
            _ => self.0.database.world.elapsed_micros() < lease.until_micros,
        };
        lease.writer == writer && is_on
    }
}

impl From<FarJournal> for Box<dyn Journal> {
    fn from(journal: FarJournal) -> Self {
        Box::new(journal)
    }
}
