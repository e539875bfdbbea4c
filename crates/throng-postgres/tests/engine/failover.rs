//! Failover: a standby replaces its primary. The real servers lose what they really lose.

use crate::{
    counter::{Command, Counter, Hits, engine_with, until},
    kit,
};
use rustix::process::{Pid, Signal, kill_process};
use servers::{Postgres, PostgresOptions as ServerOptions, Stop};
use std::{collections::BTreeSet, time::Duration};
use throng::{Engine, Options};
use throng_journal::{Address, Append, AppendError, CommitBuilder, CommitNo, Journal as _, RecordKind, ShardId, Stamp};
use throng_postgres::{OnLoss, PostgresOptions, open_postgres};
use throng_testing::eventually_ok;

struct Pair {
    primary: Postgres,
    standby: Postgres,
}

impl Pair {
    /// Starts a pair of servers. Commits wait for the standby, or do not.
    fn start(is_synchronous: bool) -> Self {
        let primary = Postgres::start(ServerOptions::default()).unwrap();
        let standby = primary.standby("standby").unwrap();
        if is_synchronous {
            primary
                .sql("ALTER SYSTEM SET synchronous_standby_names TO 'standby'")
                .unwrap();
            primary.sql("SELECT pg_reload_conf()").unwrap();
            primary
                .until("SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'")
                .unwrap();
        }
        Self { primary, standby }
    }

    fn options(&self, more: &str) -> PostgresOptions {
        let (first, second) = (self.primary.port(), self.standby.port());
        let url = kit::url(&self.primary, "throng", more);
        let both = format!("127.0.0.1:{first},127.0.0.1:{second}");
        url.replace(&format!("127.0.0.1:{first}"), &both).parse().unwrap()
    }
}

async fn begin(options: PostgresOptions) -> Engine {
    let seldom = Options {
        checkpoint_every: Duration::from_secs(3_600),
        ..Options::default()
    };
    engine_with(options, seldom).await
}

async fn hit(engine: &Engine, key: &str) -> u64 {
    let asked = eventually_ok("it serves again", async || {
        let handle = engine.entity::<Counter>("one").once(key).within(Duration::from_secs(1));
        handle.ask(Command::Hit {}).await
    });
    asked.await
}

fn signal(server: &Postgres, signal: Signal) {
    for id in server.processes() {
        let _ = Pid::from_raw(id.cast_signed()).map(|id| kill_process(id, signal));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_primary_is_left_for_the_standby_that_was_promoted() {
    let mut pair = Pair::start(true);
    let engine = begin(pair.options("lease=1s&connect_timeout=1")).await;
    for key in ["a", "b"] {
        hit(&engine, key).await;
    }
    // The stopped primary keeps its connections, accepts new ones, and answers none.
    signal(&pair.primary, Signal::STOP);
    pair.standby.promote().unwrap();
    assert_eq!(hit(&engine, "c").await, 3);
    assert_eq!(engine.health().troubles, Vec::<String>::new());
    signal(&pair.primary, Signal::CONT);
    pair.primary.stop(Stop::Immediate);
    assert_eq!(hit(&engine, "d").await, 4);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standby_without_the_last_commits_is_noticed_idle_and_at_work() {
    for is_idle in [true, false] {
        let mut pair = Pair::start(false);
        let mut options = pair.options("lease=1s");
        options.on_loss = OnLoss::Continue;
        let engine = begin(options).await;
        hit(&engine, "a").await;
        let is_there = || {
            pair.standby
                .sql("SELECT count(*) FROM throng.commits")
                .is_ok_and(|count| count.trim() == "1")
        };
        until("the standby has it", is_there).await;
        pair.standby.hold_back().unwrap();
        for key in ["b", "c"] {
            hit(&engine, key).await;
        }
        pair.primary.stop(Stop::Immediate);
        pair.standby.promote().unwrap();
        if is_idle {
            let loses = || !engine.health().troubles.is_empty() && engine.health().ready;
            until("it has noticed", loses).await;
            assert_eq!(engine.entity::<Counter>("one").read(Hits).await.unwrap(), 1);
        }
        assert_eq!(hit(&engine, "d").await, 2);
        let told = engine.health().troubles.join(" ");
        assert!(
            told.contains(".3 was acknowledged") && told.contains("2 commits are missing"),
            "{told}"
        );
        let timeline = pair.standby.sql("SELECT timeline FROM throng.losses").unwrap();
        assert_eq!(timeline.trim(), "00000002");
        engine.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_with_a_cancelled_wait_for_a_standby_is_in_doubt() {
    let server = Postgres::start(ServerOptions::default()).unwrap();
    let opened = open_postgres(kit::url(&server, "throng", "lease=0").parse().unwrap()).unwrap();
    let writer = opened.journal.open("node").await.unwrap().writer;
    let waits_for = |names: &str| {
        server
            .sql(&format!("ALTER SYSTEM SET synchronous_standby_names TO '{names}'"))
            .unwrap();
        server.sql("SELECT pg_reload_conf()").unwrap();
    };
    waits_for("nobody");
    // The server applies the setting with a delay. From then on the beats of this writer wait, too.
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    until("commits wait for a standby", || {
        server.sql(waiting).unwrap().trim() != "0"
    })
    .await;
    let mut open = CommitBuilder::default();
    open.push(
        RecordKind::Event,
        ShardId(0),
        &Address::new("counter", "one"),
        1,
        "Hit",
        1,
        b"{}",
    );
    let commit = open.finish(Stamp::new(writer, CommitNo(1), 0));
    let Append::Later(append) = opened.journal.append(commit) else {
        panic!("it goes over the network")
    };
    let append = tokio::spawn(append);
    let cancel = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE '%INSERT INTO commits%'";
    until("the commit waits and is cancelled", || {
        server.sql(cancel).unwrap().trim() != "0"
    })
    .await;
    let appended = append.await.unwrap().result;
    assert!(matches!(appended, Err(AppendError::InDoubt(_))), "{appended:?}");
    let seal = tokio::spawn({
        let journal = opened.journal.clone();
        async move { journal.seal(writer).await }
    });
    waits_for("");
    assert_eq!(seal.await.unwrap().unwrap(), CommitNo(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engine_goes_on_once_a_synchronous_standby_is_back() {
    let mut pair = Pair::start(true);
    let engine = begin(pair.options("lease=1s")).await;
    hit(&engine, "a").await;
    pair.standby.stop(Stop::Fast);
    // Its commits and renewals wait, so it answers nothing once the lease has expired.
    until("nothing is answered", || !engine.health().ready).await;
    let own = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'throng %'";
    let sessions = || -> BTreeSet<String> {
        let found = pair.primary.sql(own).unwrap();
        found.lines().map(str::to_owned).collect()
    };
    // The engine checks for the server on new connections, and each of these ends.
    let first = sessions();
    let mut seen = first.clone();
    while seen.len() < first.len() + 3 {
        let now = sessions();
        assert!(now.len() <= first.len() + 1, "sessions that hang pile up: {now:?}");
        seen.extend(now);
        tokio::task::yield_now().await;
    }
    pair.standby.resume().unwrap();
    assert_eq!(hit(&engine, "b").await, 2);
    engine.stop().await;
}
