//! Entities that end.

use crate::kinds::*;
use throng::{Engine, model};

async fn close(engine: &Engine, id: &str) {
    open(engine, id, 5).await;
    ask(engine, id, Command::Deposit { amount: 2 }).await.unwrap();
    assert_eq!(ask(engine, id, Command::Close).await.unwrap().balance, 7);
}

fn has_ended<T: std::fmt::Debug>(answer: &Result<T, model::Error<Short>>) -> bool {
    matches!(answer, Err(model::Error::Ended { kind: "account", .. }))
}

async fn event_names(engine: &Engine, id: &str) -> Vec<String> {
    let history = engine.history(0, id, 0, 100).await.unwrap();
    assert!(history.events.iter().zip(1..).all(|(event, seq)| event.seq == seq));
    history.events.iter().map(|event| event.name.to_string()).collect()
}

/// Runs a check of a closed account in each state: stored or not, restarted or not, with a rebuilt store or not.
async fn in_each_way(check: impl AsyncFn(&Engine)) {
    for (checkpoint, restart, rebuild) in [
        (false, false, false),
        (true, false, false),
        (false, true, false),
        (true, true, false),
        (true, true, true),
    ] {
        let mut world = World::new();
        let mut engine = world.engine().await;
        close(&engine, "a").await;
        if checkpoint {
            engine.checkpoint().await.unwrap();
        }
        if restart {
            engine.stop().await;
            if rebuild {
                world.store = throng::journal::MemoryStore::new(world.journal.clone());
            }
            engine = world.engine().await;
        }
        check(&engine).await;
        engine.stop().await;
    }
}

#[tokio::test]
async fn an_ended_entity_takes_no_command_and_shows_its_last_state() {
    in_each_way(async |engine| {
        for command in [
            Command::Deposit { amount: 1 },
            Command::Open { balance: 1 },
            Command::Close,
        ] {
            let answer = ask(engine, "a", command).await;
            assert!(has_ended(&answer), "{answer:?}");
        }
        assert_eq!(
            (balance(engine, "a").await, text(engine, "a").await),
            (7, "closed".into())
        );
        assert_eq!(event_names(engine, "a").await, ["Opened", "Deposited", "Closed"]);
    })
    .await;
}

#[tokio::test]
async fn command_that_recreates_begins_with_nothing() {
    in_each_way(async |engine| {
        let reopened = ask(engine, "a", Command::Reopen).await.unwrap();
        assert_eq!((reopened.balance, &*reopened.text), (1, ""));
        assert!(
            ask(engine, "a", Command::Reopen).await.is_err(),
            "it is not new any more"
        );
        assert_eq!(
            ask(engine, "a", Command::Deposit { amount: 3 }).await.unwrap().balance,
            4
        );
        let all = ["Opened", "Deposited", "Closed", "Opened", "Deposited"];
        assert_eq!(event_names(engine, "a").await, all, "numbered on");
        engine.checkpoint().await.unwrap();
        assert_eq!(ask(engine, "a", Command::Close).await.unwrap().text, "closed");
        assert!(has_ended(&ask(engine, "a", Command::Deposit { amount: 1 }).await));
    })
    .await;
}

#[tokio::test]
async fn a_recreated_entity_comes_back_as_its_newest_self() {
    for checkpoint in [false, true] {
        let mut world = World::new();
        let engine = world.engine().await;
        close(&engine, "a").await;
        engine.checkpoint().await.unwrap();
        ask(&engine, "a", Command::Reopen).await.unwrap();
        if checkpoint {
            engine.checkpoint().await.unwrap();
        }
        engine.stop().await;
        let engine = world.engine().await;
        assert_eq!(
            (balance(&engine, "a").await, text(&engine, "a").await),
            (1, String::new())
        );
        engine.stop().await;
        world.store = throng::journal::MemoryStore::new(world.journal.clone());
        let engine = world.engine().await;
        assert_eq!(
            (balance(&engine, "a").await, text(&engine, "a").await),
            (1, String::new())
        );
        engine.stop().await;
    }
}

#[tokio::test]
async fn the_late_twin_of_the_last_command_gets_its_answer() {
    in_each_way(async |engine| {
        open(engine, "b", 1).await;
        let close = || engine.entity::<Account>("b").once("k").ask(Command::Close);
        let first = close().await.unwrap();
        assert_eq!(close().await.unwrap(), first);
    })
    .await;
}

#[tokio::test]
async fn messages_to_an_ended_entity_are_refused_and_requests_told() {
    in_each_way(async |engine| {
        open(engine, "b", 9).await;
        let pay = Command::pay("a", 1);
        ask(engine, "b", pay).await.unwrap();
        let collect = Command::collect("a", 1);
        ask(engine, "b", collect).await.unwrap();
        eventually(async || text(engine, "b").await == "a/a: the entity has ended").await;
        assert_eq!(balance(engine, "a").await, 7);
        let dead = engine.dead_messages(None, None, 10).await.unwrap();
        assert!(dead.messages.is_empty());
    })
    .await;
}

#[tokio::test]
async fn its_timers_end_with_it() {
    let world = World::new();
    let engine = world.engine().await;
    for id in ["a", "b"] {
        open(&engine, id, 1).await;
        let remind = Command::remind(50, Some(50));
        ask(&engine, id, remind).await.unwrap();
    }
    ask(&engine, "a", Command::Close).await.unwrap();
    engine.stop().await;
    let engine = world.engine().await;
    let ticks = async |id: &str| engine.entity::<Account>(id).read(Ticks {}).await.unwrap();
    let before = ticks("a").await;
    eventually(async || ticks("b").await >= 3).await;
    assert_eq!(ticks("a").await, before);
    let dead = engine.dead_messages(None, None, 10).await.unwrap();
    assert!(dead.messages.is_empty());
    engine.stop().await;
}

#[tokio::test]
async fn child_created_anew_has_its_new_parent() {
    let family = async |engine: &Engine, id: &str| ask(engine, id, Command::Family).await.unwrap().text;
    for is_erased in [false, true] {
        let mut world = World::new();
        let engine = world.engine().await;
        for id in ["old", "new"] {
            open(&engine, id, 0).await;
        }
        ask(&engine, "old", Command::Child { id: "a".into() }).await.unwrap();
        eventually(async || engine.entity::<Account>("a").read(View {}).await.is_ok()).await;
        assert_eq!(family(&engine, "a").await, "account/old>");
        match is_erased {
            true => _ = engine.erase("account", "a").await.unwrap(),
            false => _ = ask(&engine, "a", Command::Close).await.unwrap(),
        }
        ask(&engine, "new", Command::Foster { id: "a".into() }).await.unwrap();
        eventually(async || ask(&engine, "a", Command::Family).await.is_ok()).await;
        assert_eq!(family(&engine, "a").await, "account/new>", "erased: {is_erased}");
        engine.stop().await;
        // Reads from the store, then from the journal alone.
        for _ in 0..2 {
            let engine = world.engine().await;
            assert_eq!(family(&engine, "a").await, "account/new>", "erased: {is_erased}");
            engine.stop().await;
            world.store = throng::journal::MemoryStore::new(world.journal.clone());
        }
    }
}
