//! Appends: one connection, one statement a commit, in order.

use super::lease::boot_micros;
use crate::{
    columns::shards,
    database::{Database, Threads},
};
use futures_util::{StreamExt as _, stream::FuturesOrdered};
use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Poll,
    time::{Duration, Instant},
};
use throng_journal::{Append, AppendError, Appended, Commit, Error, WriterId, commit::Buffer};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_postgres::{Client, Statement, error::SqlState, types::ToSql};

/// Appends that may wait: more than any depth.
const WAITING_MAX: usize = 64;

/// The interval and total time of repeated attempts for a commit that the server has no room for.
const ROOM_LOOK: Duration = Duration::from_millis(250);
const ROOM_WAIT: Duration = Duration::from_secs(5);

/// The time after which a single unanswered statement counts as hanging.
const STATEMENT_MAX: Duration = Duration::from_secs(30);

/// Lands if the writer is this engine's and not sealed (`FOR SHARE`: a seal waits for this, and this sees a seal) and the preceding commit
/// is there.
//= promise 7: a sealed writer cannot commit
const APPEND: &str = "WITH open AS (SELECT FROM writers WHERE writer = $1 AND session = $5 AND sealed_at IS NULL FOR SHARE) \
    INSERT INTO commits (writer, number, shards, body) SELECT $1, $2::bigint, $3, $4 FROM open \
    WHERE $2::bigint = 1 OR EXISTS (SELECT FROM commits WHERE writer = $1 AND number = $2::bigint - 1)";

/// The task that owns the connection.
pub(super) struct Appender {
    jobs: mpsc::Sender<Job>,
    /// True while a commit waits until the server has room for it. An append that finds no room sets it; the end of an append clears it.
    is_full: Arc<AtomicBool>,
}

enum Job {
    Append {
        commit: Commit,
        tell: oneshot::Sender<Appended>,
    },
    /// Connect ahead of the first append.
    Connect { tell: oneshot::Sender<Result<(), Error>> },
}

/// A connection with the statement prepared.
struct Connected {
    client: Client,
    append: Statement,
}

type Flight = Pin<Box<dyn Future<Output = Landing> + Send>>;

struct Landing {
    commit: Commit,
    tell: oneshot::Sender<Appended>,
    result: Result<(), AppendError>,
}

impl Appender {
    /// Starts the task. `heard` is the time of the server's last answer to a write on another connection, by the clock of [`boot_micros`].
    pub(super) fn start(threads: &Threads, database: Arc<Database>, heard: Arc<AtomicU64>) -> Self {
        let (jobs, waiting) = mpsc::channel(WAITING_MAX);
        let is_full = Arc::new(AtomicBool::new(false));
        threads.spawn(work((database, heard), waiting, Arc::clone(&is_full)));
        Self { jobs, is_full }
    }

    pub(super) fn has_room(&self) -> bool {
        !self.is_full.load(Ordering::Acquire)
    }

    /// Makes sure that the next append finds a connection.
    pub(super) async fn connect(&self) -> Result<(), Error> {
        let (tell, told) = oneshot::channel();
        let gone = || Error::backend("connecting for appends", "the journal is being closed");
        self.jobs.send(Job::Connect { tell }).await.map_err(|_| gone())?;
        told.await.unwrap_or_else(|_| Err(gone()))
    }

    pub(super) fn append(&self, commit: Commit) -> Append {
        let (tell, told) = oneshot::channel();
        match self.jobs.try_send(Job::Append { commit, tell }) {
            Ok(()) => Append::Later(Box::pin(async {
                told.await.unwrap_or_else(|_| in_doubt("the journal was closed".into()))
            })),
            Err(_) => Append::Done(in_doubt("more appends are in flight than the journal's depth".into())),
        }
    }
}

fn in_doubt(why: String) -> Appended {
    Appended {
        result: Err(AppendError::InDoubt(why)),
        buffer: Buffer::default(),
    }
}

async fn work(
    (database, heard): (Arc<Database>, Arc<AtomicU64>),
    mut jobs: mpsc::Receiver<Job>,
    is_full: Arc<AtomicBool>,
) {
    let mut connected: Option<Arc<Connected>> = None;
    let mut flights: FuturesOrdered<Flight> = FuturesOrdered::new();
    loop {
        let job = tokio::select! {
            biased;
            Some(landing) = flights.next(), if !flights.is_empty() => {
                if landing.result.is_err() {
                    // The next writer gets a fresh connection.
                    connected = None;
                }
                land(landing);
                continue;
            }
            job = jobs.recv() => job,
        };
        let Some(job) = job else { break };
        if connected.as_ref().is_none_or(|connected| connected.client.is_closed()) {
            connected = match Connected::new(&database).await {
                Ok(new) => Some(Arc::new(new)),
                Err(error) => {
                    refuse(job, error);
                    continue;
                }
            };
        }
        let Some(connected) = &connected else { continue };
        match job {
            Job::Connect { tell } => {
                // The asker may have gone.
                let _ = tell.send(Ok(()));
            }
            Job::Append { commit, tell } => {
                let appending = Appending {
                    database: Arc::clone(&database),
                    heard: Arc::clone(&heard),
                    connected: Arc::clone(connected),
                    is_full: Arc::clone(&is_full),
                };
                let mut flight: Flight = Box::pin(appending.fly(commit, tell));
                // The first poll sends it, so they are sent in order.
                match poll_fn(|context| Poll::Ready(flight.as_mut().poll(context))).await {
                    Poll::Ready(landing) => land(landing),
                    Poll::Pending => flights.push_back(flight),
                }
            }
        }
    }
    while let Some(landing) = flights.next().await {
        land(landing);
    }
}

fn refuse(job: Job, error: Error) {
    match job {
        Job::Connect { tell } => drop(tell.send(Err(error))),
        Job::Append { tell, .. } => drop(tell.send(in_doubt(error.to_string()))),
    }
}

fn land(landing: Landing) {
    // An engine that no longer waits reads what has landed after the seal.
    let _ = landing.tell.send(Appended {
        result: landing.result,
        buffer: landing.commit.into_buffer(),
    });
}

impl Connected {
    async fn new(database: &Database) -> Result<Self, Error> {
        let doing = "connecting for appends";
        let client = database.connect(doing, database.options.durability).await?;
        let append = client.prepare(APPEND).await.map_err(database.failed(doing))?;
        Ok(Self { client, append })
    }
}

/// The parts that an append needs.
struct Appending {
    database: Arc<Database>,
    heard: Arc<AtomicU64>,
    connected: Arc<Connected>,
    is_full: Arc<AtomicBool>,
}

/// The outcome of one attempt.
enum Tried {
    Done(Result<(), AppendError>),
    /// The commit has not landed: the server has no room for it, or its predecessor is waiting for room.
    NoRoom(Error),
}

impl Appending {
    async fn fly(self, mut commit: Commit, tell: oneshot::Sender<Appended>) -> Landing {
        commit.seal(&[]);
        self.database.acknowledged.sent(&commit);
        let result = self.append(&commit).await;
        if result.is_ok() {
            self.database.acknowledged.landed(&commit);
        }
        Landing { commit, tell, result }
    }

    /// Appends a commit. A server without room rolls the statement back, so the same commit may be tried again. Meanwhile new commands are
    /// refused by [`has_room`](Appender::has_room), and reads go on. After a while the writer ends as after any other failure.
    async fn append(&self, commit: &Commit) -> Result<(), AppendError> {
        let begun = Instant::now();
        let result = loop {
            match self.try_once(commit).await {
                Tried::NoRoom(error) if begun.elapsed() < ROOM_WAIT => {
                    if !self.is_full.swap(true, Ordering::AcqRel) {
                        tracing::warn!("no commands are taken until the database has room: {error}");
                    }
                    tokio::time::sleep(ROOM_LOOK).await;
                }
                Tried::NoRoom(error) => break Err(AppendError::InDoubt(error.to_string())),
                Tried::Done(result) => break result,
            }
        };
        // The next append shows whether there is room.
        if self.is_full.swap(false, Ordering::AcqRel) && result.is_ok() {
            tracing::info!("the database has room again");
        }
        result
    }

    /// Waits for a statement. If the server answers no writes at all, it waits with all others until the connections are cut; `None`: only
    /// this one is not answered.
    async fn in_time<T>(&self, statement: impl Future<Output = T>) -> Option<T> {
        let mut statement = std::pin::pin!(statement);
        loop {
            let begun = boot_micros();
            match timeout(STATEMENT_MAX, &mut statement).await {
                Ok(done) => return Some(done),
                Err(_) if self.heard.load(Ordering::Acquire) > begun => return None,
                Err(_) => {}
            }
        }
    }

    async fn try_once(&self, commit: &Commit) -> Tried {
        let stamp = commit.stamp();
        let (writer, number) = (stamp.writer.0.cast_signed(), stamp.number.0.cast_signed());
        let Connected { client, append } = &*self.connected;
        let failed = self.database.failed("appending a commit");
        let was_full = self.is_full.load(Ordering::Acquire);
        let (dialer, session) = (&self.database.dialer, &self.database.session);
        let unreplicated = dialer.unreplicated();
        let (shards, bytes) = (shards(commit), commit.bytes());
        let row: [&(dyn ToSql + Sync); 5] = [&writer, &number, &shards, &bytes, session];
        let Some(landed) = self.in_time(client.execute(append, &row)).await else {
            let why = "the server answers others, and has not answered this in half a minute";
            return Tried::Done(Err(AppendError::InDoubt(why.into())));
        };
        match landed {
            Ok(1) if dialer.unreplicated() != unreplicated => {
                let why = "the server reports it as done, and did not wait until it was on a synchronous standby";
                return Tried::Done(Err(AppendError::InDoubt(why.into())));
            }
            Ok(1) => return Tried::Done(Ok(())),
            Ok(_) => {}
            Err(error) if error.code() == Some(&SqlState::DISK_FULL) => return Tried::NoRoom(failed(error)),
            Err(error) => return Tried::Done(Err(AppendError::InDoubt(failed(error).to_string()))),
        }
        let why = format!("commit {number} of writer {writer} does not follow its last one");
        Tried::Done(Err(match is_sealed(&self.database, client, stamp.writer).await {
            Ok(true) => AppendError::Sealed,
            Ok(false) if was_full || self.is_full.load(Ordering::Acquire) => {
                let doing = "appending a commit".into();
                return Tried::NoRoom(Error::Backend { doing, why });
            }
            Ok(false) => AppendError::InDoubt(why),
            Err(error) => AppendError::InDoubt(error.to_string()),
        }))
    }
}

/// True if a writer is sealed, or was never opened.
async fn is_sealed(database: &Database, client: &Client, writer: WriterId) -> Result<bool, Error> {
    let row = client
        .query_opt(
            "SELECT sealed_at IS NULL FROM writers WHERE writer = $1",
            &[&writer.0.cast_signed()],
        )
        .await
        .map_err(database.failed("looking at a writer"))?;
    Ok(!row.is_some_and(|row| row.get(0)))
}
