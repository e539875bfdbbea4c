//! A second engine takes over. The first one then commits nothing, makes no checkpoint, and answers nothing.

use crate::{
    counter::{Command, Counter, Hits, Load, engine, until},
    kit,
    over_nodes::Counted,
};
use std::time::Duration;
use throng::{Engine, Options};
use throng_journal::{
    Address, AppendError, Checkpoint, Commit, CommitBuilder, CommitNo, Error, Journal, Position, RecordKind, ShardId,
    ShardSet, Stamp, Store, WriterId,
};
use throng_postgres::open_postgres;
use throng_testing::{eventually, eventually_ok, soon};

fn commit(writer: WriterId, number: u64) -> Commit {
    let mut open = CommitBuilder::default();
    let address = Address::new("counter", "one");
    open.push(RecordKind::Event, ShardId(300), &address, number, "Hit", 1, b"{}");
    open.finish(Stamp::after_synced(writer, CommitNo(number), 0))
}

async fn append(journal: &dyn Journal, commit: Commit) -> Result<(), AppendError> {
    journal.append(commit).landed().await.result
}

//= promise 7: a sealed writer cannot commit
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sealed_writer_has_no_commit_no_checkpoint_and_no_lease() {
    let schema = kit::schema();
    let one = open_postgres(kit::options(&schema, "lease=1s")).unwrap();
    let other = open_postgres(kit::options(&schema, "lease=1s")).unwrap();
    let first = one.journal.open("node").await.unwrap().writer;
    append(&*one.journal, commit(first, 1)).await.unwrap();
    until("it has its lease", || one.journal.holds(first)).await;
    // Its engine may answer until its lease expires, so this one waits as long.
    let second = other.journal.open("node").await.unwrap().writer;
    assert!(!one.journal.holds(first), "its lease is over");
    until("it has its lease", || other.journal.holds(second)).await;
    let refused = append(&*one.journal, commit(first, 2)).await;
    assert!(refused.is_err(), "{refused:?}");
    let upto = Position::new(first, CommitNo(1));
    let checkpoint = Checkpoint {
        shards: ShardSet::first(256),
        upto,
        system: vec![(b"row".to_vec(), Some(b"of the first".to_vec()))],
        ..Checkpoint::default()
    };
    let refused = one.store.advance(checkpoint).await;
    assert!(
        matches!(refused, Err(Error::Sealed(writer)) if writer == first),
        "{refused:?}"
    );
    assert_eq!(
        other.store.covers(&ShardSet::first(256)).await.unwrap()[0].upto,
        None,
        "nothing of it is there"
    );
    assert_eq!(other.journal.seal(first).await.unwrap(), CommitNo(1));
    // It does not take the journal back while the other one lives.
    let again = one.journal.open("node").await;
    assert!(
        matches!(again, Err(Error::Sealed(writer)) if writer == first),
        "{again:?}"
    );
    until("it has its lease", || other.journal.holds(second)).await;
    drop(other);
    let third = one.journal.open("node").await.unwrap().writer;
    assert!(third > second);
    until("it has its lease", || one.journal.holds(third)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_does_not_take_back_from_one_that_is_about_to_begin() {
    let schema = kit::schema();
    let one = open_postgres(kit::options(&schema, "lease=1s")).unwrap();
    let other = open_postgres(kit::options(&schema, "lease=1s")).unwrap();
    let first = one.journal.open("node").await.unwrap().writer;
    append(&*one.journal, commit(first, 1)).await.unwrap();
    let session = kit::psql(&kit::SERVER).await;
    let gate = kit::psql(&kit::SERVER).await;
    gate.batch_execute(&format!("BEGIN; SELECT FROM {schema}.cluster FOR UPDATE"))
        .await
        .unwrap();
    let waiting = async |count: i64| {
        let query = format!(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'tuple' AND relation = '{schema}.cluster'::regclass"
        );
        eventually("they wait at the gate", async || {
            session.query_one(&query, &[]).await.unwrap().get::<_, i64>(0) >= count
        })
        .await;
    };
    // One engine takes over. The other one notices or loses its connections, and opens its next writer right afterwards.
    let taking_over = async { other.journal.open("node").await };
    let taking_back = async {
        waiting(1).await;
        one.journal.open("node").await
    };
    let opening_the_gate = async {
        waiting(2).await;
        gate.batch_execute("COMMIT").await.unwrap();
    };
    let all = async { tokio::join!(taking_over, taking_back, opening_the_gate) };
    let (taken_over, taken_back, ()) = soon("both have opened", all).await;
    assert!(
        matches!(taken_back, Err(Error::Sealed(writer)) if writer == first),
        "{taken_back:?}"
    );
    let second = taken_over.unwrap().writer;
    append(&*other.journal, commit(second, 1)).await.unwrap();
    until("it has its lease", || other.journal.holds(second)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_taken_over_engine_lets_its_successor_renew_the_lease() {
    const LEASE: Duration = Duration::from_secs(3600);
    let schema = kit::schema();
    let one = open_postgres(kit::options(&schema, "lease=3600s")).unwrap();
    let first = one.journal.open("node").await.unwrap().writer;
    // The lease belongs to an engine that was too busy to renew it.
    let psql = kit::psql(&kit::SERVER).await;
    let writer = first.0 + 1;
    let second = format!(
        "SET search_path TO {schema}; UPDATE writers SET sealed_at = now(), last = 0; UPDATE leases SET over = true; INSERT INTO writers \
         (writer, node, session) VALUES ({writer}, 'node', 'another'); INSERT INTO leases (writer, until) VALUES ({writer}, now() - \
         interval '1s')"
    );
    psql.batch_execute(&second).await.unwrap();
    let again = one.journal.open("node").await;
    assert!(
        matches!(again, Err(Error::Sealed(writer)) if writer == first),
        "{again:?}"
    );
    let gone = format!(
        "UPDATE leases SET until = now() - interval '{}s' WHERE writer = {writer}",
        LEASE.as_secs() + 1
    );
    psql.batch_execute(&gone).await.unwrap();
    assert!(one.journal.open("node").await.unwrap().writer > first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unfinished_checkpoint_does_not_hold_up_the_next_engine() {
    let schema = kit::schema();
    let one = open_postgres(kit::options(&schema, "lease=0")).unwrap();
    let first = one.journal.open("node").await.unwrap().writer;
    append(&*one.journal, commit(first, 1)).await.unwrap();
    // Two sessions hold locks, as if a process was stopped in the middle of an append and of a checkpoint.
    let session = kit::psql(&kit::SERVER).await;
    let name: String = session
        .query_one(&format!("SELECT session FROM {schema}.writers"), &[])
        .await
        .unwrap()
        .get(0);
    let paused = kit::psql(&kit::SERVER).await;
    paused
        .batch_execute(&format!(
            "SET application_name TO '{name}'; BEGIN; SELECT FROM {schema}.writers FOR SHARE; SELECT FROM \
             {schema}.checkpoint FOR UPDATE"
        ))
        .await
        .unwrap();
    let other = open_postgres(kit::options(&schema, "lease=0")).unwrap();
    let second = other.journal.open("node").await.unwrap().writer;
    let taken = other.journal.take(second, &[]).await.unwrap();
    assert_eq!((taken[0].writer, taken[0].last), (first, CommitNo(1)));
    let checkpoint = Checkpoint {
        shards: ShardSet::first(256),
        upto: Position::new(second, CommitNo(0)),
        sealed: vec![Position::new(first, CommitNo(1))],
        ..Checkpoint::default()
    };
    other.store.advance(checkpoint).await.unwrap();
    assert!(paused.batch_execute("COMMIT").await.is_err(), "its session was ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_was_taken_over_answers_nothing_from_memory() {
    let schema = kit::schema();
    let first = engine(kit::options(&schema, "lease=1s")).await;
    first.entity::<Counter>("one").ask(Command::Hit {}).await.unwrap();
    assert_eq!(first.entity::<Counter>("one").read(Hits).await.unwrap(), 1);
    let second = engine(kit::options(&schema, "lease=1s")).await;
    assert_eq!(second.entity::<Counter>("one").ask(Command::Hit {}).await.unwrap(), 2);
    // The first engine does not know of the takeover, and its state is stale.
    let stale = first.entity::<Counter>("one").read(Hits).await;
    assert!(stale.is_err(), "{stale:?}");
    let refused = first.entity::<Counter>("one").ask(Command::Hit {}).await;
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(second.entity::<Counter>("one").read(Hits).await.unwrap(), 2);
    first.stop().await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_with_a_silent_server_stops_answering_at_lease_end() {
    let schema = kit::schema();
    let engine = engine(kit::options(&schema, "lease=500ms")).await;
    engine.entity::<Counter>("one").ask(Command::Hit {}).await.unwrap();
    let psql = kit::psql(&kit::SERVER).await;
    psql.batch_execute(&format!("BEGIN; LOCK TABLE {schema}.leases IN ACCESS EXCLUSIVE MODE"))
        .await
        .unwrap();
    eventually("it answers no more", async || {
        engine.entity::<Counter>("one").read(Hits).await.is_err()
    })
    .await;
    psql.batch_execute("ROLLBACK").await.unwrap();
    let answered = eventually_ok("it answers again", async || {
        engine.entity::<Counter>("one").read(Hits).await
    });
    assert_eq!(answered.await, 1);
    until("it is up", || engine.health().ready).await;
    engine.stop().await;
}

/// Returns true if a lease is unexpired by the server's clock.
async fn is_unexpired(writer: WriterId, schema: &str) -> bool {
    let psql = kit::psql(&kit::SERVER).await;
    let left = format!("SELECT until > clock_timestamp() FROM {schema}.leases WHERE writer = $1");
    psql.query_one(&left, &[&writer.0.cast_signed()]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opening_waits_for_the_lease_of_a_writer_sealed_by_others() {
    let schema = kit::schema();
    let one = open_postgres(kit::options(&schema, "lease=2s")).unwrap();
    let first = one.journal.open("node").await.unwrap().writer;
    append(&*one.journal, commit(first, 1)).await.unwrap();
    // A standby was killed right after it had sealed the writer.
    let other = open_postgres(kit::options(&schema, "lease=2s")).unwrap();
    assert_eq!(other.journal.seal(first).await.unwrap(), CommitNo(1));
    assert!(is_unexpired(first, &schema).await, "its engine may answer");
    let third = open_postgres(kit::options(&schema, "lease=2s")).unwrap();
    let opened = third.journal.open("node").await.unwrap().writer;
    assert!(!is_unexpired(first, &schema).await && !one.journal.holds(first));
    until("it has its lease", || third.journal.holds(opened)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_is_gone_does_not_say_that_its_engine_is() {
    let schema = kit::schema();
    let one = open_postgres(kit::options(&schema, "lease=2s")).unwrap();
    let first = one.journal.open("node").await.unwrap().writer;
    until("it has its lease", || one.journal.holds(first)).await;
    // An operator or a server's restart ends the sessions. The process lives on, and answers from memory until its lease expires.
    let psql = kit::psql(&kit::SERVER).await;
    let pattern = format!("throng {schema} %");
    psql.query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE $1",
        &[&pattern],
    )
    .await
    .unwrap();
    let other = open_postgres(kit::options(&schema, "lease=2s")).unwrap();
    let second = other.journal.open("node").await.unwrap().writer;
    assert!(!one.journal.holds(first));
    until("it has its lease", || other.journal.holds(second)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_ends_in_order_is_followed_at_once() {
    let schema = kit::schema();
    // The test would hang if somebody waited for such a lease.
    let one = open_postgres(kit::options(&schema, "lease=3600s")).unwrap();
    let first = one.journal.open("node").await.unwrap().writer;
    drop(one);
    assert!(!is_unexpired(first, &schema).await);
    let other = open_postgres(kit::options(&schema, "lease=3600s")).unwrap();
    other.journal.open("node").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_engine_notices_a_takeover_and_takes_back_afterwards() {
    let schema = kit::schema();
    let first = engine(kit::options(&schema, "lease=1s")).await;
    first.entity::<Counter>("one").ask(Command::Hit {}).await.unwrap();
    let taken_over = first.taken_over();
    let second = engine(kit::options(&schema, "lease=1s")).await;
    assert!(taken_over.await, "without a command");
    let health = first.health();
    assert!(health.stands_by && !health.ready, "{health:?}");
    assert!(health.reason.unwrap().contains("stands by"));
    let mut text = String::new();
    first.metrics().encode(&mut text).unwrap();
    assert!(text.contains("throng_stands_by 1"), "{text}");
    second.entity::<Counter>("one").ask(Command::Hit {}).await.unwrap();
    second.stop().await;
    drop(second);
    until("it takes back", || first.health().ready).await;
    assert!(!first.health().stands_by);
    assert_eq!(
        first.entity::<Counter>("one").read(Hits).await.unwrap(),
        2,
        "with what the other did"
    );
    first.stop().await;
}

/// The holder of the pool's only connection needs no second one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_pooled_connection_is_enough_for_an_engine() {
    let schema = kit::schema();
    let options = || kit::options(&schema, "lease=0&pool=1");
    let opened = open_postgres(options()).unwrap();
    let often = Options {
        checkpoint_every: Duration::from_millis(200),
        ..Options::default()
    };
    let builder = Engine::builder()
        .with::<Counter>()
        .query::<Counter, Hits>()
        .options(often);
    let builder = builder.projection(Counted).views(opened.views);
    let engine = builder.start_shared(opened.journal, opened.store).await.unwrap();
    let load = Load::begin(&engine);
    for _ in 0..2 {
        load.more(50).await;
        engine.checkpoint().await.unwrap();
        engine.prune(false).await.unwrap();
        let history = engine.history(0, "0", 0, 2).await.unwrap();
        assert_eq!(history.events.len(), 2);
        assert!(engine.read_model::<Counted>().caught_up().await);
    }
    load.end(engine, options()).await;
}
