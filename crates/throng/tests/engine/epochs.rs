//! A journal that fails, and a stop that meets the recovery from it.

use crate::kinds::{Account, Command, Ticks, World, ask, balance, eventually, failing::Failing, open};
use std::{
    future::Future,
    pin::pin,
    task::{Context, Waker},
    time::Duration,
};
use throng::{
    Engine,
    model::{Error, Keep},
};

async fn engine(world: &World, journal: &Failing) -> Engine {
    world.start_on(journal.clone(), World::builder()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_stopped_during_recovery_begins_no_other_epoch() {
    let world = World::new();
    let journal = Failing::new(&world.journal);
    let engine = engine(&world, &journal).await;
    open(&engine, "a", 1).await;

    journal.fails();
    let lost = ask(&engine, "a", Command::Deposit { amount: 1 }).await;
    assert!(matches!(lost, Err(Error::Unavailable { .. })), "{lost:?}");
    eventually(async || journal.is_waited_for()).await;
    let refused = ask(&engine, "a", Command::Deposit { amount: 1 }).await.unwrap_err();
    let health = engine.health();
    for told in [refused.to_string(), health.reason.unwrap()] {
        assert!(
            told.contains("the journal failed") && !told.contains("disk"),
            "for clients: {told}"
        );
    }
    assert!(health.detail.unwrap().contains("the disk is gone"), "for operators");
    let mut stopping = pin!(engine.stop());
    let polled = stopping.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending(), "it waits for the recovery");
    journal.recovers();
    stopping.await;
    let health = engine.health();
    assert!(!health.ready && health.position.is_none(), "{health:?}");
    let refused = ask(&engine, "a", Command::Deposit { amount: 1 }).await;
    assert!(matches!(refused, Err(Error::Unavailable { .. })), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_engine_does_not_take_the_journal_back() {
    let world = World::new();
    let journal = Failing::new(&world.journal);
    let first = engine(&world, &journal).await;
    open(&first, "a", 1).await;

    let seal = journal.hold_seal();
    journal.fails();
    journal.recovers();
    let mut asking = Box::pin(ask(&first, "a", Command::Deposit { amount: 1 }));
    assert!(
        asking
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
    );
    eventually(async || journal.is_sealing()).await;
    drop(asking);
    drop(first);
    let second = world.engine().await;
    drop(seal);
    eventually(async || !journal.is_in_use()).await;
    open(&second, "b", 1).await;
    assert_eq!(balance(&second, "a").await, 1);
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_runs_on_after_its_journal_failed_once() {
    let world = World::new();
    let journal = Failing::new(&world.journal);
    let engine = engine(&world, &journal).await;
    open(&engine, "a", 1).await;
    journal.fails();
    assert!(ask(&engine, "a", Command::Deposit { amount: 1 }).await.is_err());
    journal.recovers();
    eventually(async || engine.health().ready).await;
    let balance = ask(&engine, "a", Command::Deposit { amount: 10 })
        .await
        .unwrap()
        .balance;
    assert_eq!(balance, 11, "what was refused took no effect");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_journal_refuses_commands_and_answers_reads() {
    let world = World::new();
    let journal = Failing::new(&world.journal);
    let engine = engine(&world, &journal).await;
    open(&engine, "a", 1).await;
    let remind = Command::remind(1, None);
    journal.set_full(true);
    for command in [remind.clone(), Command::Deposit { amount: 1 }] {
        let refused = ask(&engine, "a", command).await;
        assert!(matches!(refused, Err(Error::StorageFull { .. })), "{refused:?}");
    }
    assert_eq!(balance(&engine, "a").await, 1, "reads go on");
    let health = engine.health();
    assert!(health.ready && health.storage_full, "{health:?}");
    journal.set_full(false);
    ask(&engine, "a", remind).await.unwrap();
    journal.set_full(true);
    journal.set_full(false);
    let ticks = async || engine.entity::<Account>("a").read(Ticks {}).await.unwrap();
    eventually(async || ticks().await == 1).await;
    assert!(!engine.health().storage_full);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_journal_over_its_budget_refuses_commands_until_within() {
    let world = World::new();
    let journal = Failing::new(&world.journal);
    let options = throng::Options {
        disk_bytes_max: Some(1_000),
        keep: [("account".to_owned(), Keep::Age(Duration::ZERO))].into(),
        prune_every: Some(Duration::MAX),
        ..throng::Options::default()
    };
    let engine = world.start_on(journal.clone(), World::builder().options(options)).await;
    open(&engine, "a", 1).await;
    let says = |words: &str| engine.health().troubles.iter().any(|trouble| trouble.contains(words));
    assert!(!says("disk budget"));
    journal.set_disk_bytes(850);
    eventually(async || says("85 % of its disk budget")).await;
    assert_eq!(
        ask(&engine, "a", Command::Deposit { amount: 1 }).await.unwrap().balance,
        2
    );
    journal.set_disk_bytes(1_000);
    eventually(async || says("commands are refused")).await;
    let refused = ask(&engine, "a", Command::Deposit { amount: 1 }).await;
    assert!(matches!(refused, Err(Error::StorageFull { .. })), "{refused:?}");
    assert_eq!(balance(&engine, "a").await, 2, "reads go on");
    assert!(engine.health().storage_full);
    let mut text = String::new();
    engine.metrics().encode(&mut text).unwrap();
    assert!(text.contains("throng_disk_bytes 1000") && text.contains("throng_disk_budget_bytes 1000"));
    let pass = tokio::time::timeout(Duration::from_secs(60), engine.prune(false));
    let report = pass.await.expect("a pass waits for the room that it makes").unwrap();
    assert!(report.upto.is_some(), "{report}");
    journal.set_disk_bytes(700);
    eventually(async || !says("disk budget")).await;
    assert_eq!(
        ask(&engine, "a", Command::Deposit { amount: 1 }).await.unwrap().balance,
        3
    );
    engine.stop().await;
}
