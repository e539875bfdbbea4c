//! The directory of a cluster's nodes: the tables `cluster`, `nodes` and `owners`.
//!
//! Every change is one transaction. An end is final: of a node that is dead or has left, of a writer that is sealed. So a look at one of
//! them, with its row locked against that change, holds for the rest of the transaction.

mod changes;
mod floor;
mod pins;
mod view;

pub(crate) use changes::{Change, close, end_all, living, owns, refuse_open, sessions};
pub(crate) use floor::of as floor_of;

use crate::{
    columns::{numbers, shard},
    database::Database,
    locks::{LOCK_CLUSTER, PATIENCE, TRIES, end_sessions, has_met_another},
    losses::refuse_recorded,
    options::PostgresOptions,
    rollback::{Contradiction, timeline},
    typed,
};
use changes::{CHANNEL_CHARS, IS_GONE, LIVING, Sql, end, tell};
use deadpool_postgres::Object;
use futures_util::future::{try_join, try_join5};
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use throng_journal::{Directory, Error, Floor, Join, Later, NodeId, NodeState, ShardSet, View};
use tokio::{sync::watch, time::timeout};
use tokio_postgres::{AsyncMessage, error::SqlState};
use view::view;

/// The time after which a change counts as hanging. It waits for locks for a few seconds at most.
const CHANGE_MAX: Duration = Duration::from_secs(30);
/// The time between two attempts to listen for changes.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

/// The directory on PostgreSQL, beside the journal in the same schema.
pub struct PostgresDirectory {
    database: Arc<Database>,
    changes: Arc<watch::Sender<()>>,
    /// True once a task listens for changes. Set once, by the first caller that waits for one.
    listens: AtomicBool,
}

impl std::fmt::Debug for PostgresDirectory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresDirectory")
            .field("at", &self.database.options.place())
            .finish_non_exhaustive()
    }
}

fn word(state: NodeState) -> &'static str {
    match state {
        NodeState::Serving => "serving",
        NodeState::Draining => "draining",
        NodeState::Left => "left",
        NodeState::Dead => "dead",
    }
}

impl PostgresDirectory {
    /// Opens the directory of running nodes for inspection. Nothing is created: there must be tables of this program's version.
    ///
    /// # Errors
    /// [`Error::Backend`]: there are no tables or older ones, or the server cannot be reached, or refuses. [`Error::OtherVersion`]: the
    /// tables are newer than this program.
    pub fn look(options: PostgresOptions) -> Result<Self, Error> {
        Database::look(options).map(Self::new)
    }

    pub(crate) fn new(database: Arc<Database>) -> Self {
        Self {
            database,
            changes: Arc::new(watch::Sender::new(())),
            listens: AtomicBool::new(false),
        }
    }

    /// Runs a change on the directory's own threads, and repeats it if it conflicted with another one.
    fn run<T, R>(
        &self,
        doing: &'static str,
        change: impl Fn(Arc<Database>, Object) -> R + Send + 'static,
    ) -> Later<'static, Result<T, Error>>
    where
        T: Send + 'static,
        R: Future<Output = Result<Change<T>, tokio_postgres::Error>> + Send + 'static,
    {
        let database = Arc::clone(&self.database);
        self.database.threads.run(async move {
            let mut tries = 0;
            loop {
                let client = database.client(doing).await?;
                tries += 1;
                let Ok(changed) = timeout(CHANGE_MAX, change(Arc::clone(&database), client)).await else {
                    // Its connection hangs, and would be given to the next.
                    database.dialer.cut();
                    return Err(database.silent(doing, CHANGE_MAX));
                };
                match changed {
                    Ok(done) => return done,
                    Err(error) if has_met_another(&error) && tries < TRIES => {}
                    Err(error) => return Err(database.failed(doing)(error)),
                }
            }
        })
    }
}

impl Directory for PostgresDirectory {
    fn join(&self, join: Join) -> Later<'_, Result<NodeId, Error>> {
        self.run("joining the cluster", move |database, mut client| {
            let join = join.clone();
            async move {
                if let Err(refused) = refuse_recorded(&database, &mut client).await {
                    return Ok(Err(refused));
                }
                let joined = match joined(&database, &mut client, &join).await {
                    // A session of an engine outside the cluster holds a lock, and does not proceed.
                    Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                        for row in client.query(ALONE, &[]).await? {
                            if !row.get::<_, bool>(1) {
                                end_sessions(&client, row.get(2)).await?;
                            }
                        }
                        joined(&database, &mut client, &join).await
                    }
                    joined => joined,
                };
                if let Ok(Ok(node)) = &joined {
                    database.acknowledged.begin_anew(Some(*node));
                }
                joined
            }
        })
    }

    fn beat(&self, node: NodeId, state: NodeState) -> Later<'_, Result<View, Error>> {
        if let Err(refused) = state.said_by_a_beat(node) {
            return Box::pin(std::future::ready(Err(refused)));
        }
        self.run(
            "telling the cluster that this node lives",
            move |database, mut client| async move {
                if let Some(refused) = database.acknowledged.rolled_back() {
                    return Ok(Err(refused));
                }
                match beaten(&database, &mut client, (node, state)).await? {
                    Ok(beaten) => Ok(beaten),
                    Err(lacks) => Ok(Err(database.rolled_back(&mut client, lacks).await)),
                }
            },
        )
    }

    fn reach<'a>(&'a self, node: NodeId, reaches: &'a BTreeSet<NodeId>) -> Later<'a, Result<(), Error>> {
        let reaches: Vec<i64> = reaches.iter().map(|node| node.0.cast_signed()).collect();
        self.run("saying which nodes are reached", move |database, mut client| {
            let reaches = reaches.clone();
            async move {
                let transaction = client.transaction().await?;
                let statement = "UPDATE nodes SET reaches = $3 WHERE node = $1 AND session = $2";
                let number = node.0.cast_signed();
                transaction
                    .execute(statement, &[&number, &database.session, &reaches])
                    .await?;
                tell(&transaction).await?;
                transaction.commit().await?;
                Ok(Ok(()))
            }
        })
    }

    fn cut_off(&self, by: NodeId, node: NodeId) -> Later<'_, Result<bool, Error>> {
        self.run(
            "having a node drain that is not reached",
            move |database, mut client| async move {
                let transaction = client.transaction().await?;
                transaction.batch_execute(PATIENCE).await?;
                if living(&transaction, (by, &database.session)).await?.is_none() {
                    return Ok(Err(Error::Gone(by)));
                }
                // One at a time, so that each sees what the one before has done.
                transaction.execute(LOCK_CLUSTER, &[]).await?;
                let gives_way = view(&transaction).await?.gives_way() == Some(node);
                if gives_way {
                    let statement = "UPDATE nodes SET cut_off = true WHERE node = $1 AND state = 'serving'";
                    transaction.execute(statement, &[&node.0.cast_signed()]).await?;
                    tell(&transaction).await?;
                    transaction.commit().await?;
                }
                Ok(Ok(gives_way))
            },
        )
    }

    fn view(&self) -> Later<'_, Result<View, Error>> {
        self.run("looking at the cluster", |_, mut client| async move {
            let transaction = client.transaction().await?;
            Ok(Ok(view(&transaction).await?))
        })
    }

    fn newer_gone(&self, than: NodeId) -> Later<'_, Result<Option<(String, Duration)>, Error>> {
        self.run("looking for a newer node that is gone", move |_, client| async move {
            let row = client.query_opt(&newer_gone(), &[&than.0.cast_signed()]).await?;
            let gone = row.map(|row| (row.get(0), Duration::from_micros(row.get::<_, i64>(1).unsigned_abs())));
            Ok(Ok(gone))
        })
    }

    fn server(&self) -> Later<'_, Result<Option<String>, Error>> {
        self.run("looking which server this is", |_, client| async move {
            let timeline = timeline(&client).await;
            let is_known = !timeline.is_empty();
            Ok(Ok(is_known.then(|| format!("the server of timeline {timeline}"))))
        })
    }

    fn declare_dead(&self, by: NodeId, dead: NodeId, beat: u64) -> Later<'_, Result<bool, Error>> {
        self.run("declaring a node dead", move |database, mut client| async move {
            let by = (by, &*database.session);
            match declared(&mut client, by, dead, beat).await {
                // One of its statements holds a lock, and its session does not proceed.
                Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                    let still_silent = format!("SELECT session FROM nodes WHERE node = $1 AND beat = $2 AND {LIVING}");
                    let session = client
                        .query_opt(&still_silent, &[&dead.0.cast_signed(), &beat.cast_signed()])
                        .await?;
                    if let Some(session) = session {
                        end_sessions(&client, session.get(0)).await?;
                    }
                    declared(&mut client, by, dead, beat).await
                }
                declared => declared,
            }
        })
    }

    fn take<'a>(&'a self, by: NodeId, shards: &'a ShardSet) -> Later<'a, Result<ShardSet, Error>> {
        let wanted = numbers(shards);
        self.run("taking shards", move |database, mut client| {
            let wanted = wanted.clone();
            async move {
                let transaction = client.transaction().await?;
                transaction.batch_execute(PATIENCE).await?;
                if living(&transaction, (by, &database.session)).await?.is_none() {
                    return Ok(Err(Error::Gone(by)));
                }
                transaction
                    .execute(
                        "SELECT FROM owners WHERE shard = ANY($1) ORDER BY shard FOR UPDATE",
                        &[&wanted],
                    )
                    .await?;
                let statement = format!(
                    "UPDATE owners SET node = $1 WHERE shard = ANY($2) AND NOT EXISTS (SELECT FROM nodes n WHERE n.node = owners.node \
                     AND n.{LIVING}) RETURNING shard"
                );
                let rows = transaction
                    .query(&statement, &[&by.0.cast_signed(), &wanted])
                    .await?;
                if !rows.is_empty() {
                    tell(&transaction).await?;
                }
                transaction.commit().await?;
                Ok(Ok(rows.iter().map(|row| shard(row, 0)).collect()))
            }
        })
    }

    fn give<'a>(&'a self, from: NodeId, to: NodeId, shards: &'a ShardSet) -> Later<'a, Result<(), Error>> {
        let shards = shards.clone();
        self.run("giving shards to another node", move |database, mut client| {
            let shards = shards.clone();
            async move {
                let (receiver, wanted) = (to.0.cast_signed(), numbers(&shards));
                let transaction = client.transaction().await?;
                // Sent together, in this order, because requests wait for this.
                let receivers = [typed::number(&receiver)];
                let (_, giver, serves, owned, open) = try_join5(
                    transaction.batch_execute(PATIENCE),
                    living(&transaction, (from, &database.session)),
                    transaction.query_typed_opt(
                        "SELECT FROM nodes WHERE node = $1 AND state = 'serving' AND NOT cut_off FOR SHARE",
                        &receivers,
                    ),
                    owns(&transaction, from, &shards),
                    refuse_open(&transaction, &shards),
                )
                .await?;
                if giver.is_none() {
                    return Ok(Err(Error::Gone(from)));
                }
                if serves.is_none() {
                    let why = format!("node {to} does not serve, and can be given nothing");
                    return Ok(Err(Error::Refused(why)));
                }
                if let Err(refused) = owned.and(open) {
                    return Ok(Err(refused));
                }
                let given = [typed::number(&receiver), typed::shards(&wanted)];
                try_join(
                    transaction.execute_typed("UPDATE owners SET node = $1 WHERE shard = ANY($2)", &given),
                    tell(&transaction),
                )
                .await?;
                transaction.commit().await?;
                Ok(Ok(()))
            }
        })
    }

    fn leave(&self, node: NodeId) -> Later<'_, Result<(), Error>> {
        self.run("leaving the cluster", move |_, mut client| async move {
            let transaction = client.transaction().await?;
            transaction.batch_execute(PATIENCE).await?;
            end(&transaction, node.0.cast_signed(), "left").await?;
            transaction.commit().await?;
            Ok(Ok(()))
        })
    }

    fn ask_drain<'a>(&'a self, name: &'a str, drain: bool) -> Later<'a, Result<bool, Error>> {
        let name = name.to_owned();
        self.run("asking a node to give away its shards", move |_, mut client| {
            let name = name.clone();
            async move {
                let transaction = client.transaction().await?;
                let statement = format!("UPDATE nodes SET wants_drain = $2 WHERE name = $1 AND {LIVING}");
                let asked = transaction.execute(&statement, &[&name, &drain]).await?;
                if asked > 0 {
                    tell(&transaction).await?;
                }
                transaction.commit().await?;
                Ok(Ok(asked > 0))
            }
        })
    }

    fn wants_drain(&self, node: NodeId) -> Later<'_, Result<bool, Error>> {
        self.run(
            "looking whether shards are to be given away",
            move |_, client| async move {
                let number = node.0.cast_signed();
                let row = client
                    .query_typed_opt(
                        "SELECT wants_drain FROM nodes WHERE node = $1",
                        &[typed::number(&number)],
                    )
                    .await?;
                Ok(Ok(row.is_some_and(|row| row.get(0))))
            },
        )
    }

    fn pin<'a>(&'a self, shards: &'a ShardSet, to: Option<&'a str>) -> Later<'a, Result<(), Error>> {
        let (shards, to) = (shards.clone(), to.map(str::to_owned));
        self.run("pinning shards", move |_, mut client| {
            let (shards, to) = (shards.clone(), to.clone());
            async move {
                let transaction = client.transaction().await?;
                let pinned = pins::pin(&transaction, &shards, to.as_deref()).await?;
                if pinned.is_ok() {
                    tell(&transaction).await?;
                    transaction.commit().await?;
                }
                Ok(pinned)
            }
        })
    }

    fn finalize(&self) -> Later<'_, Result<(Floor, Floor), Error>> {
        self.run("finalizing the cluster", |_, mut client| async move {
            let transaction = client.transaction().await?;
            let raised = floor::raise(&transaction).await?;
            if raised.is_ok() {
                tell(&transaction).await?;
                transaction.commit().await?;
            }
            Ok(raised)
        })
    }

    fn changed(&self, at_most: Duration) -> Later<'_, ()> {
        if !self.listens.swap(true, Ordering::AcqRel) {
            let (database, changes) = (Arc::downgrade(&self.database), Arc::downgrade(&self.changes));
            self.database.threads.spawn(async move {
                while let (Some(database), Some(changes)) = (database.upgrade(), changes.upgrade()) {
                    if let Err(error) = listen(&database, &changes).await {
                        tracing::debug!("changes of the cluster are seen later: {error}");
                    }
                    drop((database, changes));
                    tokio::time::sleep(LISTEN_AGAIN).await;
                }
            });
        }
        let mut changes = self.changes.subscribe();
        let changed = self.database.threads.run(async move {
            // An error means that the time is over.
            let _ = tokio::time::timeout(at_most, changes.changed()).await;
            Ok(())
        });
        Box::pin(async move { drop(changed.await) })
    }
}

/// Listens until the connection ends.
async fn listen(database: &Database, changes: &watch::Sender<()>) -> Result<(), Error> {
    let doing = "listening for changes of the cluster";
    let (client, mut connection) = database.listener(doing).await?;
    let schema: String = database.options.schema.chars().take(CHANNEL_CHARS).collect();
    let ask = async {
        let asked = client.batch_execute(&format!("LISTEN throng_{schema}")).await;
        asked.map_err(database.failed(doing))?;
        // Earlier changes were not signalled to this listener.
        changes.send_replace(());
        Ok(())
    };
    let mut messages = std::pin::pin!(std::future::poll_fn(move |context| {
        loop {
            match std::task::ready!(connection.poll_message(context)) {
                Some(Ok(AsyncMessage::Notification(_))) => changes.send_replace(()),
                Some(Ok(_)) => {}
                Some(Err(error)) => return std::task::Poll::Ready(Err(error)),
                None => return std::task::Poll::Ready(Ok(())),
            }
        }
    }));
    let limit = database.dialer.limit();
    tokio::select! {
        asked = timeout(limit, ask) => asked.map_err(|_| database.silent(doing, limit))??,
        ended = &mut messages => return ended.map_err(database.failed(doing)),
    }
    tokio::select! {
        ended = messages => ended.map_err(database.failed(doing)),
        () = database.dialer.is_cut() => Ok(()),
    }
}

/// Selects the streams of engines outside the cluster, whether they live (by their connections and leases), and their sessions.
const ALONE: &str = "SELECT w.node, coalesce(l.until > clock_timestamp() AND NOT l.over, false) AND EXISTS (SELECT FROM pg_stat_activity \
    a WHERE a.application_name = w.session), w.session FROM writers w LEFT JOIN leases l USING (writer) WHERE w.node_id IS NULL AND \
    w.sealed_at IS NULL ORDER BY writer";

/// Returns the query for nodes of a newer release that are gone. Such a node was there until the last lease of its streams ended, which it
/// gave back if it ended in order.
fn newer_gone() -> String {
    format!(
        "SELECT n.name, greatest(extract(epoch FROM clock_timestamp() - max(l.until)) * 1000000, 0)::bigint FROM nodes n JOIN writers w ON \
         w.node_id = n.node JOIN leases l USING (writer) WHERE NOT n.{LIVING} AND n.app > (SELECT app FROM nodes WHERE node = $1) GROUP BY \
         n.node, n.name ORDER BY max(l.until) DESC LIMIT 1"
    )
}

/// Inserts a node with an unused number. A database that was rolled back does not know the last ones, so some numbers are skipped at
/// random.
const INSERT_NODE: &str = "WITH s AS (SELECT pg_get_serial_sequence('nodes', 'node')::regclass AS numbers) INSERT INTO nodes (node, name, \
    peer, http, program, app, session, features, lease_micros, kinds, state, wants_drain) OVERRIDING SYSTEM VALUE SELECT setval(numbers, \
    nextval(numbers) + floor(random() * 1000)::bigint), $1, $2, $3, $4, $5, $6, $7, $8, $9, 'draining', coalesce((SELECT wants_drain FROM \
    nodes WHERE name = $1 ORDER BY node DESC LIMIT 1), false) FROM s RETURNING node";

/// Notes that a node lives, and compares the server's state with its earlier answers.
async fn beaten(
    database: &Database,
    client: &mut Object,
    (node, state): (NodeId, NodeState),
) -> Sql<Result<Change<View>, Contradiction>> {
    let acknowledged = &database.acknowledged;
    let sent = acknowledged.known_of_living();
    let transaction = client.transaction().await?;
    let (number, word) = (node.0.cast_signed(), word(state));
    let statement = format!(
        "UPDATE nodes n SET beat = beat + 1, state = $2, cut_off = cut_off AND $2 = 'serving' FROM (SELECT state AS before FROM nodes WHERE node = $1) b WHERE node = $1 AND \
         session = $3 AND {LIVING} RETURNING b.before, n.beat"
    );
    let own = [
        typed::number(&number),
        typed::text(&word),
        typed::text(&database.session),
    ];
    let Some(row) = transaction.query_typed_opt(&statement, &own).await? else {
        let own = [own[0].clone(), own[2].clone()];
        let known = transaction
            .query_typed_opt("SELECT FROM nodes WHERE node = $1 AND session = $2", &own)
            .await?;
        return Ok(match acknowledged.refuse_node(node, known.is_some()) {
            None => Ok(Err(Error::Gone(node))),
            Some(lacks) => Err(lacks),
        });
    };
    let beat = row.get::<_, i64>(1).cast_unsigned();
    if row.get::<_, &str>(0) != word {
        tell(&transaction).await?;
    }
    let (view, compared) = (view(&transaction).await?, database.compare(&*transaction, &sent).await?);
    if let Some(lacks) = compared.err().or_else(|| acknowledged.refuse_beat(node, beat)) {
        return Ok(Err(lacks));
    }
    transaction.commit().await?;
    acknowledged.saw(node, (beat, view.version));
    Ok(Ok(Ok(view)))
}

async fn joined(database: &Database, client: &mut Object, join: &Join) -> Sql<Change<NodeId>> {
    let transaction = client.transaction().await?;
    transaction.batch_execute(PATIENCE).await?;
    // From here on no engine outside the cluster can begin.
    let row = transaction
        .query_one("SELECT shards, features, app FROM cluster FOR UPDATE", &[])
        .await?;
    if let Err(refused) = floor::of(&row, 1).refuse(join) {
        return Ok(Err(refused));
    }
    let own = i32::from(join.shards);
    if let Some(shards) = row.get::<_, Option<i32>>(0).filter(|shards| *shards != own) {
        return Ok(Err(Error::Refused(format!(
            "the cluster has {shards} shards, this service has {own}"
        ))));
    }
    let alone = transaction.query(ALONE, &[]).await?;
    if let Some(row) = alone.iter().find(|row| row.get(1)) {
        return Ok(Err(Error::Refused(format!(
            "the engine {:?} serves this journal alone: stop it before nodes of a cluster do",
            row.get::<_, &str>(0)
        ))));
    }
    let rows = transaction
        .query(
            "UPDATE writers SET sealed_at = now() WHERE node_id IS NULL AND sealed_at IS NULL RETURNING writer",
            &[],
        )
        .await?;
    let writers: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    close(&transaction, &writers).await?;
    // Not locked: a living one may wait for the row of the cluster. A node that this process itself has become, without learning of it
    // because the answer was lost, does not count.
    let statement = format!("SELECT node, {IS_GONE} OR session = $2 FROM nodes n WHERE name = $1 AND {LIVING}");
    for row in transaction.query(&statement, &[&join.name, &database.session]).await? {
        if !row.get::<_, bool>(1) {
            return Ok(Err(Error::Refused(format!(
                "a node of the name {:?} lives: stop it, or give this one another name",
                join.name
            ))));
        }
        end(&transaction, row.get(0), "dead").await?;
    }
    if let Err(refused) = view(&transaction).await?.refuse(join) {
        return Ok(Err(refused));
    }
    // Only the first node adds them: everywhere else their rows are locked before that of the cluster.
    if row.get::<_, Option<i32>>(0).is_none() {
        transaction.execute("UPDATE cluster SET shards = $1", &[&own]).await?;
        transaction
            .execute("INSERT INTO owners (shard) SELECT generate_series(0, $1 - 1)", &[&own])
            .await?;
    }
    let row = transaction
        .query_one(
            INSERT_NODE,
            &[
                &join.name,
                &join.peer,
                &join.http,
                &join.program,
                &join.app.cast_signed(),
                &database.session,
                &join.features.cast_signed(),
                &(join.lease.as_micros() as i64),
                &join.kinds,
            ],
        )
        .await?;
    tell(&transaction).await?;
    transaction.commit().await?;
    Ok(Ok(NodeId(row.get::<_, i64>(0).cast_unsigned())))
}

async fn declared(
    client: &mut Object,
    by: (NodeId, &str),
    dead: NodeId,
    beat: u64,
) -> Result<Change<bool>, tokio_postgres::Error> {
    let transaction = client.transaction().await?;
    transaction.batch_execute(PATIENCE).await?;
    if living(&transaction, by).await?.is_none() {
        return Ok(Err(Error::Gone(by.0)));
    }
    let number = dead.0.cast_signed();
    let is_silent = transaction
        .query_opt(
            "SELECT FROM nodes WHERE node = $1 AND beat = $2 FOR UPDATE",
            &[&number, &beat.cast_signed()],
        )
        .await?
        .is_some();
    if !is_silent || !end(&transaction, number, "dead").await? {
        return Ok(Ok(false));
    }
    transaction.commit().await?;
    Ok(Ok(true))
}
