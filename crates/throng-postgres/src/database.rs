//! Connections, and the threads they run on.

use crate::{
    dial::{Connected, Dialer, PoolConnect, no_connection},
    error::failed,
    migrations,
    options::PostgresOptions,
    rollback::Acknowledged,
};
use deadpool_postgres::{Hook, HookError, Manager, ManagerConfig, Object, Pool, RecyclingMethod};
use std::{
    convert::Infallible,
    fmt,
    future::{Future, pending},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use throng_journal::{Durability, Error, Later};
use tokio::{
    runtime::Runtime,
    sync::{Semaphore, mpsc as asks, oneshot},
    time::timeout,
};
use tokio_postgres::{Client, SimpleQueryMessage};

/// The longest wait of a read for a free connection.
const CONNECTION_WAIT: Duration = Duration::from_secs(10);
/// The most waits for a free connection at once. Most of them are loads of entities: this many take a few megabytes, and finish within the
/// time they may wait.
const WAITING_MAX: usize = 10_000;
const STORE_THREADS: usize = 2;
/// Forces every statement to follow an index, whatever the statistics of recently filled tables say: a plan that reads the whole table for
/// each page takes quadratic time.
const PLANS: &str = "SET enable_seqscan TO off; SET enable_bitmapscan TO off; SET enable_hashjoin TO off; SET \
    enable_mergejoin TO off; SET enable_sort TO off; SET jit TO off";

/// Has long values, of which `places` has most, compressed by LZ4 if the server can: as small as by its own method, at a quarter of the
/// time.
const COMPRESSION: &str = "SELECT set_config('default_toast_compression', 'lz4', false) FROM pg_settings WHERE name = \
    'default_toast_compression' AND 'lz4' = ANY(enumvals)";

tokio::task_local! {
    /// Closed once the asker of this task has gone away.
    static ASKER: asks::Sender<Infallible>;
}

/// Ends when nothing waits for this task any more; never, if nothing ever did.
async fn asker_gone() {
    match ASKER.try_with(asks::Sender::clone) {
        Ok(asker) => asker.closed().await,
        Err(_) => pending().await,
    }
}

/// A runtime on its own threads, so that no loop of a gateway waits for the database.
pub(crate) struct Threads(Option<Runtime>);

impl Threads {
    pub(crate) fn start(name: &str, count: usize) -> Result<Self, Error> {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(count)
            .max_blocking_threads(2)
            .thread_name(name)
            .enable_all()
            .build()
            .map(|runtime| Self(Some(runtime)))
            .map_err(Error::io("starting threads for PostgreSQL"))
    }

    /// Runs a future on these threads. The asker may be on any executor, and may go away. Then the future ends if it waits for a
    /// connection. If it has one, it runs to its end, so that it leaves the connection in order.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        future: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Later<'static, Result<T, Error>> {
        let (asker, asked) = asks::channel(1);
        let (tell, told) = oneshot::channel();
        self.spawn(ASKER.scope(asker, async move {
            // The asker may have gone.
            let _ = tell.send(future.await);
        }));
        Box::pin(async move {
            let done = told.await.unwrap_or_else(|_| Err(gone()));
            drop(asked);
            done
        })
    }

    /// Runs a future on these threads and blocks until it is done.
    pub(crate) fn block<T: Send + 'static>(
        &self,
        future: impl Future<Output = Result<T, Error>> + Send + 'static,
        patience: Duration,
    ) -> Result<T, Error> {
        let (tell, told) = mpsc::sync_channel(1);
        self.spawn(async move {
            // The asker may have gone.
            let _ = tell.send(future.await);
        });
        told.recv_timeout(patience).unwrap_or_else(|_| Err(gone()))
    }

    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.0 {
            // Boxed, so that the runtime's part is compiled once, not for each of some fifty futures.
            let future: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(future);
            runtime.spawn(future);
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

fn gone() -> Error {
    Error::backend("asking PostgreSQL", "it took too long, or the journal is being closed")
}

/// A schema of a database, and the connections to it.
pub(crate) struct Database {
    pub(crate) options: PostgresOptions,
    pub(crate) dialer: Arc<Dialer>,
    /// The `application_name` of all connections of this engine.
    pub(crate) session: String,
    pool: Pool,
    /// A permit for each caller that may wait for a connection.
    waiting: Semaphore,
    /// The commits this server is known to hold.
    pub(crate) acknowledged: Acknowledged,
    pub(crate) threads: Threads,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Database({})", self.options.place())
    }
}

impl Database {
    /// Runs a request on the database's own threads.
    pub(crate) fn run<T, R>(self: &Arc<Self>, ask: impl FnOnce(Arc<Self>) -> R) -> Later<'static, Result<T, Error>>
    where
        T: Send + 'static,
        R: Future<Output = Result<T, Error>> + Send + 'static,
    {
        self.threads.run(ask(Arc::clone(self)))
    }

    /// Connects, and brings the tables to this program's version.
    pub(crate) fn open(options: PostgresOptions) -> Result<Arc<Self>, Error> {
        Self::begin(options, true)
    }

    /// Connects for inspection. There must be tables of this program's version.
    pub(crate) fn look(options: PostgresOptions) -> Result<Arc<Self>, Error> {
        Self::begin(options, false)
    }

    fn begin(mut options: PostgresOptions, may_write: bool) -> Result<Arc<Self>, Error> {
        let session = session(&options);
        options.config.application_name(&session);
        let dialer = Arc::new(Dialer::new(&options)?);
        let threads = Threads::start("throng-store", STORE_THREADS)?;
        let pool = pool(&options, &dialer)?;
        let database = Arc::new(Self {
            options,
            dialer,
            session,
            pool,
            waiting: Semaphore::new(WAITING_MAX),
            acknowledged: Acknowledged::default(),
            threads,
        });
        let task = Arc::clone(&database);
        // Connecting and waiting for locks have bounds of their own.
        database.threads.block(
            async move {
                let mut client = task.connect("connecting", Durability::Fsync).await?;
                task.refuse_pooler(&client).await?;
                task.check(&client).await?;
                if may_write {
                    return migrations::migrate(&mut client, &task.options).await;
                }
                migrations::require(&client, &task.options).await
            },
            Duration::from_secs(300),
        )?;
        Ok(database)
    }

    /// Returns a new connection outside the pool. It runs on the caller's runtime.
    pub(crate) async fn connect(&self, doing: &str, durability: Durability) -> Result<Client, Error> {
        let (client, connection) = self.dialer.dial(doing).await?;
        self.dialer.drive(connection);
        let limit = self.dialer.limit();
        let set_up = set_up(&self.options, durability);
        let made = timeout(limit, client.batch_execute(&set_up)).await;
        made.map_err(|_| self.silent(doing, limit))?
            .map_err(failed(doing, &self.options))?;
        Ok(client)
    }

    /// The server has not answered for so long.
    pub(crate) fn silent(&self, doing: &str, limit: Duration) -> Error {
        Error::backend(
            format!("{doing} ({})", self.options.place()),
            format!("no answer within {limit:?}"),
        )
    }

    /// Returns a connection that the listener has to poll.
    pub(crate) async fn listener(&self, doing: &str) -> Result<Connected, Error> {
        self.dialer.dial(doing).await
    }

    /// Returns a connection of the pool, as long as the asker waits for it.
    pub(crate) async fn client(&self, doing: &str) -> Result<Object, Error> {
        let refused = |why: String| Error::backend(format!("{doing} ({})", self.options.place()), why);
        let Ok(_waits) = self.waiting.try_acquire() else {
            return Err(refused(format!(
                "{WAITING_MAX} others wait for a connection already; the server is slow, or the option pool is too small"
            )));
        };
        tokio::select! {
            biased;
            () = asker_gone() => Err(refused("nobody waits for it any more".into())),
            client = self.pool.get() => client.map_err(no_connection(doing, (&self.options, &self.dialer))),
        }
    }

    pub(crate) fn failed(&self, doing: &str) -> impl FnOnce(tokio_postgres::Error) -> Error {
        failed(doing, &self.options)
    }

    /// Refuses a pooler that gives each transaction any free session: locks, settings and prepared statements belong to a session.
    async fn refuse_pooler(&self, client: &Client) -> Result<(), Error> {
        let (doing, limit) = ("connecting", self.dialer.limit());
        let other = self.connect(doing, Durability::Fsync).await?;
        let asking = async {
            // A pooler may give out the session that was free for the longest or for the shortest time.
            let (before, again) = (session_of(client).await?, session_of(client).await?);
            // It ends at once, and is none of this engine's.
            other
                .batch_execute("SET application_name TO 'throng start'; BEGIN")
                .await?;
            let of_other = session_of(&other).await?;
            let after = session_of(client).await?;
            other.batch_execute("ROLLBACK").await?;
            Ok::<_, tokio_postgres::Error>(before == again && before == after && before != of_other)
        };
        let asked = timeout(limit, asking).await.map_err(|_| self.silent(doing, limit))?;
        match asked.map_err(self.failed(doing))? {
            true => Ok(()),
            false => Err(Error::Backend {
                doing: format!("{doing} ({})", self.options.place()),
                why: "a pooler between this program and the server gives each transaction another session (pgbouncer with \
                      pool_mode=transaction or statement): name the server itself in the URL, or have it pool sessions"
                    .into(),
            }),
        }
    }

    async fn check(&self, client: &Client) -> Result<(), Error> {
        let row = client
            .query_one(
                "SELECT current_setting('server_version_num')::int, current_setting('server_version'), \
                 current_setting('fsync')::bool, current_setting('server_encoding'), (SELECT count(*) FROM pg_stat_replication WHERE \
                 coalesce(state, 'streaming') IN ('streaming', 'catchup')), current_setting('synchronous_standby_names')",
                &[],
            )
            .await
            .map_err(self.failed("connecting"))?;
        let (number, version, encoding): (i32, &str, &str) = (row.get(0), row.get(1), row.get(3));
        let refused = |why: String| Error::backend(format!("connecting ({})", self.options.place()), why);
        if number < 150_000 {
            return Err(refused(format!(
                "the server is PostgreSQL {version}; 15 or later is needed"
            )));
        }
        if encoding != "UTF8" {
            return Err(refused(format!(
                "the database's encoding is {encoding}; create it with ENCODING 'UTF8'"
            )));
        }
        if !row.get::<_, bool>(2) {
            tracing::warn!("the server's setting fsync is off: acknowledged commands do NOT survive power loss there");
        }
        let (standbys, names): (i64, &str) = (row.get(4), row.get(5));
        if standbys > 0 && names.is_empty() && self.options.durability == Durability::Fsync {
            tracing::warn!(
                "{standbys} standbys follow the server, and no commit waits for them (synchronous_standby_names is empty): where one is \
                 promoted, the last acknowledged commands are LOST"
            );
        }
        Ok(())
    }
}

/// Returns the server's process behind a connection. Asked as text, since a prepared statement could be in another session.
async fn session_of(client: &Client) -> Result<Option<String>, tokio_postgres::Error> {
    let answered = client.simple_query("SELECT pg_backend_pid()").await?;
    let process = answered.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    });
    Ok(process)
}

/// Drops a schema with this mark, and creates it again.
pub(crate) fn begin_anew(options: PostgresOptions, mark: String) -> Result<(), Error> {
    let threads = Threads::start("throng-store", 1)?;
    let dialer = Arc::new(Dialer::new(&options)?);
    let doing = "beginning a schema anew";
    let work = async move {
        let failed = || failed(doing, &options);
        let (client, connection) = dialer.dial(doing).await?;
        dialer.drive(connection);
        let row = client
            .query_opt(
                "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = $1",
                &[&options.schema],
            )
            .await
            .map_err(failed())?;
        if row.is_some_and(|row| row.get::<_, Option<String>>(0) != Some(mark.clone())) {
            return Err(Error::backend(
                format!("{doing} ({})", options.place()),
                "there is a schema of this name that is not of an earlier one; choose another with schema=NAME in the URL",
            ));
        }
        let schema = &options.schema;
        let mark = mark.replace('\'', "''");
        client
            .batch_execute(&format!(
                "BEGIN; DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}; COMMENT ON SCHEMA {schema} IS \
                 '{mark}'; COMMIT"
            ))
            .await
            .map_err(failed())
    };
    threads.block(work, Duration::from_secs(60))
}

/// Returns a unique name among the sessions of a server, so that an engine that takes over can end those of an earlier one.
fn session(options: &PostgresOptions) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_micros() as u64;
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let schema: String = options.schema.chars().take(24).collect();
    format!("throng {schema} {}.{now:x}.{count}", std::process::id())
}

fn set_up(options: &PostgresOptions, durability: Durability) -> String {
    let synchronous = match durability {
        Durability::Fsync => {
            "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') IN ('off', 'local')"
        }
        Durability::Os | Durability::Memory => "SET synchronous_commit TO off",
    };
    format!(
        "SET search_path TO {}, pg_catalog; SET default_transaction_isolation TO 'read committed'; \
         SET idle_in_transaction_session_timeout TO '60s'; {PLANS}; {COMPRESSION}; {synchronous}",
        options.schema
    )
}

fn pool(options: &PostgresOptions, dialer: &Arc<Dialer>) -> Result<Pool, Error> {
    let manager = Manager::from_connect(
        options.config.clone(),
        PoolConnect(Arc::clone(dialer)),
        ManagerConfig {
            recycling_method: RecyclingMethod::Fast,
        },
    );
    let (set_up, limit): (Arc<str>, _) = (set_up(options, Durability::Fsync).into(), dialer.limit());
    Pool::builder(manager)
        .max_size(options.pool)
        .runtime(deadpool_postgres::Runtime::Tokio1)
        .wait_timeout(Some(CONNECTION_WAIT))
        .post_create(Hook::async_fn(move |client, _| {
            let set_up = Arc::clone(&set_up);
            Box::pin(async move {
                let made = timeout(limit, client.batch_execute(&set_up)).await;
                let silent = || {
                    format!(
                        "no answer within {limit:?}; where the server is only slow, raise connect_timeout in the URL"
                    )
                };
                made.map_err(|_| HookError::message(silent()))?
                    .map_err(HookError::Backend)
            })
        }))
        .build()
        .map_err(|error| Error::backend("setting up connections", error))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may")]
mod tests {
    use super::*;
    use servers::{Postgres, PostgresOptions as ServerOptions};
    use std::sync::atomic::AtomicBool;
    use tokio::sync::oneshot;

    const DOING: &str = "testing";

    /// Returns a database with only one connection.
    fn narrow(server: &Postgres) -> Arc<Database> {
        let url = format!("{}?pool=1", server.url("postgres"));
        Database::open(url.parse().unwrap()).unwrap()
    }

    fn wait<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let waiting = async { tokio::time::timeout(Duration::from_mins(1), future).await };
        runtime.block_on(waiting).expect("it comes to an end")
    }

    /// Reads on the one connection. Sets `has_it` once it holds the connection.
    fn read(database: &Arc<Database>, has_it: &Arc<AtomicBool>) -> Later<'static, Result<(), Error>> {
        let (task, has_it) = (Arc::clone(database), Arc::clone(has_it));
        database.threads.run(async move {
            let client = task.client(DOING).await?;
            has_it.store(true, Ordering::SeqCst);
            client.batch_execute("SELECT 1").await.map_err(task.failed(DOING))
        })
    }

    async fn until_waiting(database: &Database, count: usize) {
        while database.waiting.available_permits() != WAITING_MAX - count {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn a_dropped_read_waits_for_no_connection() {
        let server = Postgres::start(ServerOptions::default()).unwrap();
        let database = narrow(&server);
        let (took, mut taken) = oneshot::channel();
        let (go_on, wait_for) = oneshot::channel::<()>();
        let finished = Arc::new(AtomicBool::new(false));
        let holding = {
            let (task, finished) = (Arc::clone(&database), Arc::clone(&finished));
            database.threads.run(async move {
                let client = task.client(DOING).await?;
                took.send(()).unwrap();
                wait_for.await.unwrap();
                client.batch_execute("SELECT 1").await.map_err(task.failed(DOING))?;
                finished.store(true, Ordering::SeqCst);
                Ok(())
            })
        };
        wait(async {
            (&mut taken).await.unwrap();
            let (of_nobody, of_somebody) = (Arc::default(), Arc::default());
            let forsaken = read(&database, &of_nobody);
            until_waiting(&database, 1).await;
            let waited_for = read(&database, &of_somebody);
            until_waiting(&database, 2).await;
            // The caller that holds the connection is dropped, too.
            drop((forsaken, holding));
            go_on.send(()).unwrap();
            waited_for.await.unwrap();
            let seen = [&finished, &of_nobody, &of_somebody].map(|flag| flag.load(Ordering::SeqCst));
            assert_eq!(seen, [true, false, true]);
        });
    }

    #[test]
    fn commits_wait_for_disk_and_standbys_whatever_the_user_set() {
        let server = Postgres::start(ServerOptions::default()).unwrap();
        for (set, expected) in [("off", "on"), ("local", "on"), ("remote_apply", "remote_apply")] {
            let url = format!("{}?options=-c%20synchronous_commit%3D{set}", server.url("postgres"));
            let database = Database::open(url.parse().unwrap()).unwrap();
            let task = Arc::clone(&database);
            let shown = database.threads.run(async move {
                let client = task.client(DOING).await?;
                let row = client.query_one("SHOW synchronous_commit", &[]).await;
                Ok(row.map_err(task.failed(DOING))?.get::<_, String>(0))
            });
            assert_eq!(wait(shown).unwrap(), expected, "{set}");
        }
    }

    #[test]
    fn so_many_wait_for_a_connection_and_no_more() {
        let server = Postgres::start(ServerOptions::default()).unwrap();
        let database = narrow(&server);
        wait(async {
            let held = {
                let task = Arc::clone(&database);
                database.threads.run(async move { task.client(DOING).await })
            };
            let held = held.await.unwrap();
            let has_it = Arc::default();
            let waiting: Vec<_> = (0..WAITING_MAX).map(|_| read(&database, &has_it)).collect();
            until_waiting(&database, WAITING_MAX).await;
            let refused = read(&database, &has_it).await.unwrap_err().to_string();
            assert!(
                refused.contains("10000 others wait for a connection already"),
                "{refused}"
            );
            drop(waiting);
            until_waiting(&database, 0).await;
            drop(held);
            read(&database, &has_it).await.unwrap();
        });
    }
}
