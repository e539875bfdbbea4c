//! Several nodes on one server: the effects of locks, leases and sessions.

use crate::{counter::until, kit};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use throng_journal::{
    Address, AppendError, Checkpoint, CommitBuilder, CommitNo, Directory, Error, FEATURES, Join, Journal, NodeId,
    NodeState, Pace, Position, Prune, PruneHow, RecordKind, ShardId, ShardSet, Stamp, Store, Stretch, WriterId,
};
use throng_postgres::{Opened, open_postgres, tools};
use throng_testing::{eventually, soon};

pub(crate) const SHARDS: u16 = 16;

pub(crate) fn shards(of: &[u16]) -> ShardSet {
    of.iter().copied().map(ShardId).collect()
}

/// A process of a cluster, as the database sees it.
pub(crate) struct Node {
    pub(crate) opened: Opened,
    pub(crate) id: NodeId,
    pub(crate) writer: WriterId,
    pub(crate) number: u64,
    pub(crate) shards: ShardSet,
}

pub(crate) async fn open(schema: &str, more: &str) -> Opened {
    let options = kit::options(schema, more);
    tokio::task::spawn_blocking(|| open_postgres(options))
        .await
        .unwrap()
        .unwrap()
}

pub(crate) async fn try_join(opened: &Opened, name: &str) -> Result<NodeId, Error> {
    try_join_as(opened, name, 1).await
}

async fn try_join_as(opened: &Opened, name: &str, app: u64) -> Result<NodeId, Error> {
    let join = Join {
        name: name.into(),
        peer: "127.0.0.1:1".into(),
        http: "http://127.0.0.1:2".into(),
        program: "test".into(),
        app,
        features: FEATURES,
        shards: SHARDS,
        ..Join::default()
    };
    opened.directory.join(join).await
}

impl Node {
    pub(crate) async fn join(schema: &str, more: &str, name: &str) -> Self {
        let opened = open(schema, more).await;
        let id = try_join(&opened, name).await.unwrap();
        opened.directory.beat(id, NodeState::Serving).await.unwrap();
        Self {
            opened,
            id,
            writer: WriterId(0),
            number: 0,
            shards: ShardSet::default(),
        }
    }

    pub(crate) async fn serving(schema: &str, more: &str, name: &str, of: &[u16]) -> Self {
        let mut node = Self::join(schema, more, name).await;
        node.take(of).await;
        node.open(of).await.unwrap();
        node
    }

    pub(crate) async fn take(&self, of: &[u16]) -> ShardSet {
        self.opened.directory.take(self.id, &shards(of)).await.unwrap()
    }

    pub(crate) async fn open(&mut self, of: &[u16]) -> Result<(), Error> {
        let opened = self.opened.journal.open_shards(self.id, &shards(of)).await?;
        (self.writer, self.number, self.shards) = (opened.writer, 0, shards(of));
        Ok(())
    }

    /// Appends an event of each of these entities, each of the shard of its number.
    pub(crate) async fn append(&mut self, of: &[(u16, u64)]) -> Result<(), AppendError> {
        append(&self.opened, self.writer, self.number + 1, of).await?;
        self.number += 1;
        Ok(())
    }

    pub(crate) async fn upto_here(&self) -> Checkpoint {
        upto_here(&self.opened, self.position(), &self.shards).await
    }

    pub(crate) fn position(&self) -> Position {
        Position::new(self.writer, CommitNo(self.number))
    }

    pub(crate) async fn checkpoint(&self) {
        self.opened.store.advance(self.upto_here().await).await.unwrap();
    }

    async fn beats(&self) -> u64 {
        self.opened.directory.view().await.unwrap().node(self.id).unwrap().beat
    }

    async fn declare_dead(&self, dead: &Self) -> bool {
        let directory = &self.opened.directory;
        directory
            .declare_dead(self.id, dead.id, dead.beats().await)
            .await
            .unwrap()
    }
}

pub(crate) async fn append(
    opened: &Opened,
    writer: WriterId,
    number: u64,
    of: &[(u16, u64)],
) -> Result<(), AppendError> {
    let mut open = CommitBuilder::default();
    for (shard, seq) in of {
        let address = Address::new("counter", format!("c{shard}"));
        open.push(RecordKind::Event, ShardId(*shard), &address, *seq, "Hit", 1, b"{}");
    }
    let commit = open.finish(Stamp::after_synced(writer, CommitNo(number), 0));
    opened.journal.append(commit).landed().await.result
}

pub(crate) async fn upto_here(opened: &Opened, upto: Position, shards: &ShardSet) -> Checkpoint {
    let all: Vec<ShardId> = shards.iter().collect();
    let before = opened.journal.take(upto.writer, &all).await.unwrap();
    let sealed = before.iter().map(|taken| Position::new(taken.writer, taken.last));
    Checkpoint {
        upto,
        shards: shards.clone(),
        sealed: sealed.collect(),
        ..Checkpoint::default()
    }
}

/// Ends all sessions of an engine, as an operator could.
async fn end_sessions(schema: &str, name: &str) {
    let psql = kit::psql(&kit::SERVER).await;
    let ended = format!(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = (SELECT session FROM {schema}.nodes WHERE \
         name = $1 ORDER BY node DESC LIMIT 1)"
    );
    assert!(!psql.query(&ended, &[&name]).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_of_a_moved_stream_may_meet_a_row_for_many_commits() {
    let schema = kit::schema();
    let mut one = Node::serving(&schema, "", "one", &[0, 1]).await;
    for seq in 1..=6 {
        one.append(&[(0, seq)]).await.unwrap();
    }
    let seen = Stretch {
        after: Position::new(one.position().writer, CommitNo(1)),
        upto: CommitNo(3),
    };
    one.checkpoint().await;
    let prune = Prune {
        after: Position::new(one.position().writer, CommitNo(0)),
        upto: CommitNo(5),
        judge: Arc::new(|_, _| true),
        replaced_by: one.position(),
        how: PruneHow::Remove,
    };
    assert_eq!(one.opened.journal.prune(prune).await.unwrap().commits, 5);
    let other = open(&schema, "").await;
    let read = seen.read(&*other.journal, 1 << 20).await.unwrap();
    let read: Vec<_> = read
        .iter()
        .map(|commit| (commit.first().0, commit.stamp().number.0))
        .collect();
    assert_eq!(read, [(1, 5)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checkpoints_of_two_nodes_do_not_wait_for_each_other() {
    let schema = kit::schema();
    let mut a = Node::serving(&schema, "", "a", &[0, 1]).await;
    let mut b = Node::serving(&schema, "", "b", &[2, 3]).await;
    // In the second round there are rows of both to be locked.
    for seq in 1..=2 {
        a.append(&[(0, seq), (1, seq)]).await.unwrap();
        b.append(&[(2, seq), (3, seq)]).await.unwrap();
        let is_urgent = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&is_urgent);
        let slow = Checkpoint {
            pace: Pace::within(Duration::from_secs(600), move || asked.load(Ordering::Relaxed)),
            ..a.upto_here().await
        };
        let (store, psql) = (Arc::clone(&a.opened.store), kit::psql(&kit::SERVER).await);
        let slow = tokio::spawn(async move { store.advance(slow).await });
        let is_held = "SELECT count(*) FROM pg_stat_activity WHERE application_name = (SELECT session FROM SCHEMA.nodes WHERE name = 'a') \
                       AND state = 'idle in transaction'";
        let is_held = is_held.replace("SCHEMA", &schema);
        eventually("the slow one is at work", async || {
            psql.query_one(&is_held, &[]).await.unwrap().get::<_, i64>(0) > 0
        })
        .await;
        soon("it does not wait for the other one", b.checkpoint()).await;
        assert!(!slow.is_finished(), "the other one is held open");
        is_urgent.store(true, Ordering::Relaxed);
        slow.await.unwrap().unwrap();
        let covers = a.opened.store.covers(&shards(&[0, 1, 2, 3])).await.unwrap();
        assert_eq!(
            covers.iter().map(|covered| covered.upto).collect::<Vec<_>>(),
            [Some(a.position()), Some(b.position())]
        );
    }
}

/// Changes the recorded lease of a writer as if its process had ended.
async fn kill(schema: &str, writer: WriterId) {
    // The lease names a process with the same id that started earlier: the id belongs to another process by now.
    let psql = kit::psql(&kit::SERVER).await;
    let killed = format!(
        "UPDATE {schema}.leases SET process = split_part(process, ' ', 1) || ' 1 ' || substring(process FROM '^\\S+ \\S+ (.*)$') WHERE \
         writer = $1"
    );
    assert_eq!(psql.execute(&killed, &[&writer.0.cast_signed()]).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_leases_of_silent_processes_are_waited_for() {
    let schema = kit::schema();
    let mut taker = Node::serving(&schema, "lease=4s", "taker", &[9]).await;
    // The test would hang if somebody waited for such a lease.
    let killed = Node::serving(&schema, "lease=3600s", "killed", &[0]).await;
    let silent = Node::serving(&schema, "lease=4s", "silent", &[1]).await;
    kill(&schema, killed.writer).await;
    assert!(taker.declare_dead(&killed).await);
    assert_eq!(taker.take(&[0]).await, shards(&[0]));
    let opened = soon("it does not wait for a process that has ended", taker.open(&[0, 9]));
    opened.await.unwrap();
    until("it has its lease", || silent.opened.journal.holds(silent.writer)).await;
    assert!(taker.declare_dead(&silent).await);
    assert_eq!(taker.take(&[1]).await, shards(&[1]));
    taker.open(&[0, 1, 9]).await.unwrap();
    assert!(!silent.opened.journal.holds(silent.writer), "it answers from memory");
    until("it has its lease", || taker.opened.journal.holds(taker.writer)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn giver_and_receiver_of_a_shard_both_go_on_at_once() {
    let schema = kit::schema();
    // The test would hang if somebody waited for such a lease.
    let mut a = Node::serving(&schema, "lease=3600s", "a", &[0, 1]).await;
    let mut b = Node::serving(&schema, "lease=3600s", "b", &[2]).await;
    a.append(&[(0, 1), (1, 1)]).await.unwrap();
    a.open(&[0]).await.unwrap();
    a.opened.directory.give(a.id, b.id, &shards(&[1])).await.unwrap();
    let psql = kit::psql(&kit::SERVER).await;
    let sessions = format!(
        "SELECT array_agg(pid ORDER BY pid) FROM pg_stat_activity WHERE application_name = (SELECT session FROM {schema}.nodes WHERE \
         name = 'a')"
    );
    let before: Vec<i32> = psql.query_one(&sessions, &[]).await.unwrap().get(0);
    let opened = soon("it does not wait for a lease that is over", b.open(&[1, 2]));
    opened.await.unwrap();
    a.append(&[(0, 2)]).await.unwrap();
    let after: Vec<i32> = psql.query_one(&sessions, &[]).await.unwrap().get(0);
    assert_eq!(after, before, "the sessions of the one that gave were ended");
    assert!(a.opened.journal.holds(a.writer) && b.opened.journal.holds(b.writer));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_joins_only_once_an_engine_alone_has_ended() {
    let schema = kit::schema();
    let alone = open(&schema, "lease=2s").await;
    let writer = alone.journal.open("alone").await.unwrap().writer;
    let other = open(&schema, "lease=2s").await;
    let refused = try_join(&other, "a").await;
    assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    append(&alone, writer, 1, &[(0, 1)]).await.unwrap();
    drop(alone);
    try_join(&other, "a").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_joins_after_a_lone_engine_stopped_mid_checkpoint() {
    let schema = kit::schema();
    let first = Node::join(&schema, "lease=1s", "first").await;
    let psql = kit::psql(&kit::SERVER).await;
    // The process was stopped: its lease has expired, and one of its sessions holds its writer's row.
    psql.batch_execute(&format!(
        "SET search_path TO {schema}; INSERT INTO writers (writer, node, session) VALUES (7, 'alone', 'stopped'); INSERT INTO leases \
         (writer, until) VALUES (7, clock_timestamp() - interval '1 s')"
    ))
    .await
    .unwrap();
    let stopped = kit::psql(&kit::SERVER).await;
    let hold = format!("SET application_name TO 'stopped'; BEGIN; SELECT FROM {schema}.writers FOR SHARE");
    stopped.batch_execute(&hold).await.unwrap();
    let node = Node::join(&schema, "lease=1s", "second").await;
    assert!(node.id > first.id);
    assert!(stopped.batch_execute("COMMIT").await.is_err(), "its session was ended");
    let sealed = format!("SELECT last FROM {schema}.writers WHERE writer = 7 AND sealed_at IS NOT NULL");
    assert_eq!(
        psql.query_one(&sealed, &[]).await.unwrap().get::<_, Option<i64>>(0),
        Some(0)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_sessions_lives_until_it_is_declared_dead() {
    let schema = kit::schema();
    let mut a = Node::serving(&schema, "lease=2s", "a", &[0]).await;
    let b = Node::join(&schema, "lease=2s", "b").await;
    let newer = open(&schema, "lease=2s").await;
    let refused = try_join(&newer, "a").await;
    assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    end_sessions(&schema, "a").await;
    let view = b.opened.directory.view().await.unwrap();
    assert_eq!(view.node(a.id).map(|node| node.state), Some(NodeState::Serving));
    assert_eq!(b.take(&[0]).await, ShardSet::default(), "it lives");
    // The node reconnects by itself, and its open streams stay open.
    let mut beaten = a.opened.directory.beat(a.id, NodeState::Serving).await;
    while beaten.is_err() {
        beaten = a.opened.directory.beat(a.id, NodeState::Serving).await;
    }
    let mut appended = a.append(&[(0, 1)]).await;
    while appended.is_err() {
        appended = a.append(&[(0, 1)]).await;
    }
    // A process that joins under its name declares it dead.
    drop(a.opened);
    let again = Node::join(&schema, "lease=2s", "a").await;
    assert!(again.id > a.id);
    assert_eq!(b.take(&[0]).await, shards(&[0]));
}

/// The answer to the first attempt was lost. The process joins again, and no other node is there to declare its first node dead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_joins_again_that_did_not_hear_that_it_had_joined() {
    let schema = kit::schema();
    let opened = open(&schema, "").await;
    let first = try_join(&opened, "a").await.unwrap();
    let second = try_join(&opened, "a").await.unwrap();
    assert!(second > first);
    let view = opened.directory.view().await.unwrap();
    let living: Vec<NodeId> = view.nodes.iter().map(|node| node.id).collect();
    assert_eq!(living, [second]);
    let other = open(&schema, "").await;
    assert!(matches!(try_join(&other, "a").await, Err(Error::Refused(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_starting_node_hears_how_long_a_newer_node_is_gone() {
    let schema = kit::schema();
    let newer = open(&schema, "lease=1s").await;
    let node = try_join_as(&newer, "newer", 2).await.unwrap();
    let other = open(&schema, "lease=1s").await;
    let [old, same] = [
        try_join_as(&other, "old", 1).await.unwrap(),
        try_join_as(&open(&schema, "lease=1s").await, "same", 2).await.unwrap(),
    ];
    let gone = async |than| other.directory.newer_gone(than).await.unwrap();
    newer.journal.open_shards(node, &shards(&[])).await.unwrap();
    assert_eq!(gone(old).await, None, "it lives");
    newer.directory.leave(node).await.unwrap();
    assert_eq!(gone(same).await, None, "it is of the same release");
    let (name, lately) = gone(old).await.unwrap();
    assert_eq!(name, "newer");
    let psql = kit::psql(&kit::SERVER).await;
    psql.batch_execute(&format!("UPDATE {schema}.leases SET until = until - interval '1 hour'"))
        .await
        .unwrap();
    let (_, later) = gone(old).await.unwrap();
    assert!(later >= Duration::from_mins(59), "{lately:?}, {later:?}");
    assert!(lately < Duration::from_mins(30), "{lately:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_may_have_a_name_as_long_as_the_server_takes() {
    let schema = format!("test_{}", "x".repeat(58));
    assert_eq!(schema.len(), 63);
    let a = Node::join(&schema, "", "a").await;
    let b = Node::join(&schema, "", "b").await;
    for shard in 0..4 {
        let changed = a.opened.directory.changed(Duration::from_hours(1));
        b.take(&[shard]).await;
        soon("the change is told", changed).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_commits_that_a_node_has_covered_are_noticed() {
    let schema = kit::schema();
    let mut a = Node::serving(&schema, "lease=1s", "a", &[0]).await;
    let mut b = Node::serving(&schema, "lease=1s", "b", &[1]).await;
    a.append(&[(0, 1)]).await.unwrap();
    b.append(&[(1, 1)]).await.unwrap();
    b.append(&[(1, 2)]).await.unwrap();
    a.checkpoint().await;
    b.checkpoint().await;
    let (covered, lost) = (b.position(), b.writer);
    for node in [a, b] {
        node.opened.journal.seal(node.writer).await.unwrap();
        node.opened.directory.leave(node.id).await.unwrap();
    }
    // Simulates a standby that was behind.
    let psql = kit::psql(&kit::SERVER).await;
    psql.batch_execute(&format!(
        "SET search_path TO {schema}; DELETE FROM commits WHERE writer = {lost}; DELETE FROM leases WHERE writer = {lost}; DELETE FROM \
         writers WHERE writer = {lost}"
    ))
    .await
    .unwrap();
    let mut c = Node::join(&schema, "lease=1s", "c").await;
    c.take(&[0, 1]).await;
    for of in [&[0, 1][..], &[0]] {
        let refused = c.open(of).await;
        assert!(
            matches!(&refused, Err(Error::Lost { loss, .. }) if loss.covered == covered),
            "{refused:?}"
        );
    }
    let alone = open(&schema, "lease=1s").await;
    c.opened.directory.leave(c.id).await.unwrap();
    let refused = alone.journal.open("alone").await.map(drop);
    assert!(
        matches!(&refused, Err(Error::Lost { loss, .. }) if loss.covered == covered),
        "{refused:?}"
    );
    // After the loss is accepted, everything begins anew. No number known to a table is given out again.
    let mut options = kit::options(&schema, "lease=1s");
    options.accept_loss = Some(covered);
    let accepting = tokio::task::spawn_blocking(|| open_postgres(options))
        .await
        .unwrap()
        .unwrap();
    let writer = accepting.journal.open("alone").await.unwrap().writer;
    assert!(writer > lost);
    assert_eq!(accepting.store.covers(&shards(&[0, 1])).await.unwrap()[0].upto, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tools_count_the_commits_each_node_has_covered() {
    let schema = kit::schema();
    let mut a = Node::serving(&schema, "lease=1s", "a", &[0, 1]).await;
    let mut b = Node::serving(&schema, "lease=1s", "b", &[2]).await;
    a.append(&[(0, 1), (1, 1)]).await.unwrap();
    b.append(&[(2, 1)]).await.unwrap();
    a.checkpoint().await;
    a.append(&[(0, 2)]).await.unwrap();
    let options = kit::options(&schema, "");
    let verify = async |options| {
        tokio::task::spawn_blocking(move || tools::verify(&options))
            .await
            .unwrap()
            .unwrap()
    };
    let found = verify(options.clone()).await;
    assert!(found.is_sound(), "{found}");
    let asked = options.clone();
    let inspect = move || tools::inspect(&asked, &tools::InspectOptions::default());
    let seen = tokio::task::spawn_blocking(inspect).await.unwrap().unwrap();
    let covers = format!("{}.1 (shards 0-1)", a.writer);
    assert_eq!(seen.covers.as_deref(), Some(&*covers));
    b.checkpoint().await;
    a.checkpoint().await;
    let found = verify(options.clone()).await;
    assert!(found.is_sound(), "{found}");
    // An event that is not indexed is still found.
    let psql = kit::psql(&kit::SERVER).await;
    psql.batch_execute(&format!("UPDATE {schema}.entities SET seq = 1 WHERE id = 'c0'"))
        .await
        .unwrap();
    assert!(!verify(options).await.is_sound());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_fill_the_table_events_once_it_is_switched_on() {
    let schema = kit::schema();
    let seqs = async |expected: &[(&str, i64)]| {
        let psql = kit::psql(&kit::SERVER).await;
        let rows = psql
            .query(&format!("SELECT id, seq FROM {schema}.events ORDER BY id, seq"), &[])
            .await
            .unwrap();
        let found: Vec<(String, i64)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        let found: Vec<(&str, i64)> = found.iter().map(|(id, seq)| (&**id, *seq)).collect();
        assert_eq!(found, expected);
    };
    // Two epochs ran without the table, the second in a cluster.
    for seq in 1..=2 {
        let mut a = Node::serving(&schema, "lease=1s&events=off", "a", &[0]).await;
        let mut b = Node::serving(&schema, "lease=1s&events=off", "b", &[1]).await;
        a.append(&[(0, seq)]).await.unwrap();
        b.append(&[(1, seq)]).await.unwrap();
        for node in [a, b] {
            node.checkpoint().await;
            node.opened.journal.seal(node.writer).await.unwrap();
            node.opened.directory.leave(node.id).await.unwrap();
        }
    }
    seqs(&[]).await;
    let mut a = Node::serving(&schema, "lease=1s", "a", &[0]).await;
    a.append(&[(0, 3)]).await.unwrap();
    // An engine knows the covered position: nothing of the earlier streams is left to index.
    let checkpoint = Checkpoint {
        sealed: Vec::new(),
        ..a.upto_here().await
    };
    a.opened.store.advance(checkpoint).await.unwrap();
    seqs(&[("c0", 1), ("c0", 2), ("c0", 3)]).await;
    a.opened.journal.seal(a.writer).await.unwrap();
    a.opened.directory.leave(a.id).await.unwrap();
    // A single engine runs without the table, then with it.
    for (more, is_filled) in [("lease=1s&events=off", false), ("lease=1s", true)] {
        let alone = open(&schema, more).await;
        let writer = alone.journal.open("alone").await.unwrap().writer;
        let seq = if is_filled { 5 } else { 4 };
        append(&alone, writer, 1, &[(0, seq)]).await.unwrap();
        let upto = Position::new(writer, CommitNo(1));
        let checkpoint = upto_here(&alone, upto, &ShardSet::first(SHARDS)).await;
        let sealed = checkpoint.sealed.last().copied().into_iter().collect();
        alone.store.advance(Checkpoint { sealed, ..checkpoint }).await.unwrap();
    }
    seqs(&[
        ("c0", 1),
        ("c0", 2),
        ("c0", 3),
        ("c0", 4),
        ("c0", 5),
        ("c1", 1),
        ("c1", 2),
    ])
    .await;
}

/// Returns the statements that restore the tables of the previous program.
fn as_before(schema: &str) -> String {
    format!(
        "DROP TABLE {schema}.losses, {schema}.lost_commits, {schema}.sizes, {schema}.pins; ALTER TABLE {schema}.nodes DROP COLUMN features; ALTER TABLE {schema}.cluster DROP COLUMN features, DROP \
         COLUMN app; DELETE FROM {schema}.migrations WHERE version >= 4"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_yields_to_a_node_that_locks_in_the_other_order() {
    let schema = kit::schema();
    drop(open(&schema, "").await);
    let psql = kit::psql(&kit::SERVER).await;
    psql.batch_execute(&as_before(&schema)).await.unwrap();
    // The lock that a joining node of any program takes.
    let begin = format!("BEGIN; SELECT FROM {schema}.cluster FOR UPDATE");
    psql.batch_execute(&begin).await.unwrap();
    let opening = tokio::spawn({
        let schema = schema.clone();
        async move { open(&schema, "").await }
    });
    let waits = format!("SELECT FROM pg_locks WHERE relation = '{schema}.cluster'::regclass AND NOT granted");
    let looks = kit::psql(&kit::SERVER).await;
    eventually("it waits for the lock", async || {
        !looks.query(&waits, &[]).await.unwrap().is_empty()
    })
    .await;
    let end = format!("SELECT FROM {schema}.nodes; COMMIT");
    psql.batch_execute(&end).await.unwrap();
    drop(opening.await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_node_works_on_new_tables_and_is_known_as_older() {
    let schema = kit::schema();
    let old = Node::serving(&schema, "", "old", &[0, 1]).await;
    // The next program migrates the tables while that node runs.
    kit::psql(&kit::SERVER)
        .await
        .batch_execute(&as_before(&schema))
        .await
        .unwrap();
    let new = Node::join(&schema, "", "new").await;
    let directory = &new.opened.directory;
    let view = old.opened.directory.beat(old.id, NodeState::Serving).await.unwrap();
    let features = |id| view.node(id).unwrap().said.features;
    assert_eq!((features(old.id), features(new.id)), (0, FEATURES));
    assert_eq!(view.shards_of(Some(old.id)), shards(&[0, 1]));
    let refused = directory.pin(&shards(&[0]), Some("new")).await.unwrap_err();
    assert!(
        refused.to_string().contains("the node \"old\" runs an older program"),
        "{refused}"
    );
    assert_eq!(directory.finalize().await.unwrap().1.features, 0);
    directory.leave(old.id).await.unwrap();
    directory.pin(&shards(&[0]), Some("new")).await.unwrap();
    assert_eq!(directory.finalize().await.unwrap().1.features, FEATURES);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lone_engine_of_an_old_release_is_refused_once_finalized() {
    let schema = kit::schema();
    let a = Node::join(&schema, "lease=0", "a").await;
    let (_, floor) = a.opened.directory.finalize().await.unwrap();
    assert_eq!(floor.app, 1);
    a.opened.directory.leave(a.id).await.unwrap();
    drop(a);
    let alone = async |release| {
        let mut options = kit::options(&schema, "lease=0");
        options.release = release;
        let opened = tokio::task::spawn_blocking(|| open_postgres(options).unwrap())
            .await
            .unwrap();
        opened.journal.open("alone").await.map(drop)
    };
    let refused = alone(0).await.unwrap_err().to_string();
    assert!(
        refused.contains("this is release 0") && refused.contains("--app-number"),
        "{refused}"
    );
    eventually("one of this release begins", async || alone(1).await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_node_may_answer_while_its_lease_lasts() {
    let schema = kit::schema();
    let a = Node::serving(&schema, "lease=3600s", "a", &[0]).await;
    let dead = Node::serving(&schema, "lease=3600s", "dead", &[1]).await;
    let may_answer = async || {
        a.opened
            .directory
            .view()
            .await
            .unwrap()
            .node(dead.id)
            .unwrap()
            .may_answer
    };
    assert!(!may_answer().await, "it lives");
    // A process of another machine, whose state is unknown.
    let psql = kit::psql(&kit::SERVER).await;
    let elsewhere = format!("UPDATE {schema}.leases SET process = '1 1 pid:[1] elsewhere host' WHERE writer = $1");
    psql.execute(&elsewhere, &[&dead.writer.0.cast_signed()]).await.unwrap();
    assert!(a.declare_dead(&dead).await);
    assert!(may_answer().await);
    psql.batch_execute(&format!("UPDATE {schema}.leases SET until = clock_timestamp()"))
        .await
        .unwrap();
    assert!(!may_answer().await, "its lease is over");
}
