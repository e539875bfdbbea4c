//! History that ends.
#![allow(clippy::unwrap_used, reason = "tests")]

mod kinds;

use kinds::*;
use std::{collections::BTreeMap, time::Duration};
use throng::{
    Engine, Options,
    journal::{CommitNo, Journal, MemoryStore, Position, RecordKind, WriterId},
    model::{self, Keep},
};

fn keeping(keep: Keep) -> Options {
    Options {
        keep: BTreeMap::from([("account".to_owned(), keep)]),
        // A test says itself when.
        prune_every: Some(Duration::from_hours(1)),
        ..Options::default()
    }
}

/// Everything that is durable is over.
const NOTHING: Keep = Keep::Age(Duration::ZERO);

async fn seqs(engine: &Engine, id: &str) -> Vec<u64> {
    let history = engine.history(0, id, 0, 1_000).await.unwrap();
    history.events.iter().map(|event| event.seq).collect()
}

/// The records that are left of an entity, by kind.
async fn left(world: &World, id: &str) -> Vec<(RecordKind, u64)> {
    let mut found = Vec::new();
    for writer in 1..20 {
        let start = Position {
            writer: WriterId(writer),
            commit: CommitNo(0),
        };
        for commit in world.journal.read(start, usize::MAX).await.unwrap() {
            let own = commit.records().flatten().filter(|record| record.id == id);
            found.extend(own.map(|record| (record.record, record.seq)));
        }
    }
    found
}

async fn fill(engine: &Engine, ids: &[&str], deposits: usize) {
    for id in ids {
        open(engine, id, 0).await;
        for _ in 0..deposits {
            ask(engine, id, Command::Deposit { amount: 1 }).await.unwrap();
        }
    }
    // Something after it, so that all of it is covered.
    open(engine, "last", 0).await;
    ask(engine, "last", Command::Deposit { amount: 1 }).await.unwrap();
}

/// On the same journal, with the store it has or with a new one.
async fn again(world: &mut World, engine: Engine, keep: Keep, is_store_lost: bool) -> Engine {
    engine.stop().await;
    if is_store_lost {
        world.store = MemoryStore::new(world.journal.clone());
    }
    world.engine_with(keeping(keep)).await
}

#[tokio::test]
async fn what_is_over_goes_and_the_state_remains_whatever_is_lost_then() {
    for is_store_lost in [false, true] {
        let mut world = World::new();
        let mut engine = world.engine_with(keeping(NOTHING)).await;
        fill(&engine, &["a", "b"], 20).await;
        let dry = engine.prune(true).await.unwrap();
        assert_eq!(seqs(&engine, "a").await.len(), 21, "a dry run changes nothing");
        let pruned = engine.prune(false).await.unwrap();
        assert!(pruned.records >= 40 && pruned.bytes > 0, "{pruned}");
        assert!(dry.records <= pruned.records && dry.is_dry && dry.records > 0, "{dry}");
        assert!(seqs(&engine, "a").await.is_empty());
        assert_eq!(balance(&engine, "a").await, 20);
        for round in 0..3 {
            engine = again(&mut world, engine, NOTHING, is_store_lost).await;
            assert_eq!(balance(&engine, "b").await, 20 + round);
            ask(&engine, "b", Command::Deposit { amount: 1 }).await.unwrap();
            assert_eq!(
                *seqs(&engine, "b").await.last().unwrap(),
                22 + u64::try_from(round).unwrap()
            );
            engine.prune(false).await.unwrap();
        }
        let events = left(&world, "b")
            .await
            .into_iter()
            .filter(|(kind, _)| *kind == RecordKind::Event);
        assert!(events.count() <= 2, "what was written last may still stand there");
        engine.stop().await;
    }
}

#[tokio::test]
async fn the_last_events_of_each_entity_are_kept() {
    for is_store_lost in [false, true] {
        let mut world = World::new();
        let engine = world.engine_with(keeping(Keep::Events(5))).await;
        fill(&engine, &["a", "b"], 20).await;
        open(&engine, "short", 3).await;
        engine.prune(false).await.unwrap();
        assert_eq!(seqs(&engine, "a").await, [17, 18, 19, 20, 21]);
        assert_eq!(seqs(&engine, "short").await, [1]);
        let engine = again(&mut world, engine, Keep::Events(5), is_store_lost).await;
        assert_eq!(seqs(&engine, "a").await, [17, 18, 19, 20, 21]);
        assert_eq!((balance(&engine, "a").await, balance(&engine, "short").await), (20, 3));
        ask(&engine, "a", Command::Deposit { amount: 1 }).await.unwrap();
        assert_eq!(balance(&engine, "a").await, 21);
        fill(&engine, &[], 0).await;
        engine.prune(false).await.unwrap();
        assert_eq!(seqs(&engine, "a").await, [18, 19, 20, 21, 22]);
        engine.stop().await;
    }
}

#[tokio::test]
async fn a_kind_that_keeps_all_keeps_all() {
    let world = World::new();
    let engine = world.engine_with(keeping(Keep::Forever)).await;
    fill(&engine, &["a"], 20).await;
    assert_eq!(engine.prune(false).await.unwrap().records, 0);
    assert_eq!(seqs(&engine, "a").await.len(), 21);
    engine.stop().await;
}

#[tokio::test]
async fn of_one_that_has_ended_nothing_is_left_but_that_it_has() {
    for is_store_lost in [false, true] {
        let mut world = World::new();
        let engine = world.engine_with(keeping(NOTHING)).await;
        fill(&engine, &["a"], 3).await;
        ask(&engine, "a", Command::Close).await.unwrap();
        fill(&engine, &["b"], 1).await;
        let pruned = engine.prune(false).await.unwrap();
        assert_eq!(pruned.gone, 1, "{pruned}");
        let mut engine = engine;
        for _ in 0..2 {
            let late = ask(&engine, "a", Command::Deposit { amount: 1 }).await;
            assert!(matches!(late, Err(model::Error::Ended { .. })), "{late:?}");
            let looked = engine.entity::<Account>("a").read(View {}).await;
            assert!(matches!(looked, Err(model::Error::Ended { .. })), "{looked:?}");
            let listed = engine.entities(0, None, 10).await.unwrap();
            assert!(listed.iter().all(|head| &*head.id != "a"), "{listed:?}");
            let rest = left(&world, "a").await;
            assert_eq!(rest, [(RecordKind::Ended, 5)]);
            engine = again(&mut world, engine, NOTHING, is_store_lost).await;
        }
        let reopened = ask(&engine, "a", Command::Reopen).await.unwrap();
        assert_eq!((reopened.balance, &*reopened.text), (1, ""));
        engine = again(&mut world, engine, NOTHING, is_store_lost).await;
        assert_eq!((balance(&engine, "a").await, seqs(&engine, "a").await), (1, vec![6]));
        engine.stop().await;
    }
}

#[tokio::test]
async fn timers_messages_and_keys_outlive_the_records_they_came_from() {
    for is_store_lost in [false, true] {
        let mut world = World::new();
        let engine = world.engine_with(keeping(NOTHING)).await;
        fill(&engine, &["a", "b"], 3).await;
        let remind = |in_ms| Command::Remind {
            in_ms,
            every_ms: Some(50),
            count: 0,
        };
        // One that was set anew, one that was cancelled, and one that nobody knows any more.
        ask(&engine, "a", remind(3_600_000)).await.unwrap();
        ask(&engine, "a", remind(600)).await.unwrap();
        ask(&engine, "b", remind(600)).await.unwrap();
        ask(&engine, "b", Command::Cancel).await.unwrap();
        let pay = |to: &str| Command::Pay {
            to: to.into(),
            amount: 1,
        };
        ask(&engine, "a", pay("b")).await.unwrap();
        ask(&engine, "a", pay("nobody")).await.unwrap();
        let keyed = async |engine: &Engine| {
            let deposit = Command::Deposit { amount: 5 };
            engine
                .entity::<Account>("b")
                .once("key")
                .ask(deposit)
                .await
                .unwrap()
                .balance
        };
        assert_eq!(keyed(&engine).await, 9);
        let dead = async |engine: &Engine| engine.dead_messages(None, None, 10).await.unwrap().messages.len();
        eventually(async || dead(&engine).await == 1).await;
        let mut engine = engine;
        for _ in 0..3 {
            engine.prune(false).await.unwrap();
            engine = again(&mut world, engine, NOTHING, is_store_lost).await;
            assert_eq!((balance(&engine, "b").await, dead(&engine).await), (9, 1));
            assert_eq!(keyed(&engine).await, 9, "answered, not done again");
        }
        let ticks = async |id: &str| engine.entity::<Account>(id).read(Ticks {}).await.unwrap();
        eventually(async || ticks("a").await > 0).await;
        assert_eq!(ticks("b").await, 0);
        ask(&engine, "a", pay("b")).await.unwrap();
        eventually(async || balance(&engine, "b").await == 10).await;
        engine.stop().await;
    }
}

#[tokio::test]
async fn an_erased_entity_leaves_nothing_but_that_it_was_erased() {
    for is_store_lost in [false, true] {
        let mut world = World::new();
        let engine = world.engine_with(keeping(Keep::Forever)).await;
        fill(&engine, &["a", "b"], 3).await;
        let secret = "a secret that only a knew".to_owned();
        ask(&engine, "a", Command::Heard { text: secret.clone() })
            .await
            .unwrap();
        let pay = Command::Pay {
            to: "b".into(),
            amount: 1,
        };
        ask(&engine, "a", pay).await.unwrap();
        let erased = engine.erase("account", "a").await.unwrap();
        assert!(erased.records >= 6, "{erased}");
        let unknown = engine.erase("account", "nobody").await;
        assert!(matches!(unknown, Err(model::Error::Unknown { .. })), "{unknown:?}");
        for round in 0..2 {
            assert_eq!(left(&world, "a").await, [(RecordKind::Ended, 6)], "round {round}");
            for writer in 1..9 {
                let start = Position {
                    writer: WriterId(writer),
                    commit: CommitNo(0),
                };
                for commit in world.journal.read(start, usize::MAX).await.unwrap() {
                    let text = String::from_utf8_lossy(commit.bytes()).into_owned();
                    assert!(!text.contains(&secret), "commit {} knows it", commit.position());
                }
            }
        }
        let engine = again(&mut world, engine, Keep::Forever, is_store_lost).await;
        let late = ask(&engine, "a", Command::Deposit { amount: 1 }).await;
        assert!(matches!(late, Err(model::Error::Ended { .. })), "{late:?}");
        assert_eq!(balance(&engine, "b").await, 4);
        assert_eq!(seqs(&engine, "b").await.len(), 5, "nobody else loses anything");
        engine.stop().await;
    }
}
