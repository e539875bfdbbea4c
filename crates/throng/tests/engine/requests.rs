//! A request is answered in any case, and mistakes in requests are found early.

use crate::kinds::*;
use throng::{
    Engine, StartError,
    journal::{MemoryJournal, MemoryStore},
    model::Error,
};

fn collect(from: &str, amount: i64) -> Command {
    Command::collect(from, amount)
}

#[tokio::test]
async fn a_request_to_an_entity_that_is_not_there_is_answered() {
    let world = World::new();
    let engine = world.engine().await;
    open(&engine, "a", 10).await;
    ask(&engine, "a", collect("nobody", 5)).await.unwrap();
    eventually(async || text(&engine, "a").await == "nobody/nobody: there is no such entity").await;
    let dead = engine.dead_messages(None, None, 9).await.unwrap();
    assert_eq!(dead.messages, [], "whoever asked knows");
    engine.stop().await;
    let again = world.engine().await;
    assert_eq!(text(&again, "a").await, "nobody/nobody: there is no such entity");
}

#[tokio::test]
async fn an_engine_without_handler_for_an_outcome_does_not_start() {
    let journal = MemoryJournal::new();
    let store = MemoryStore::new(journal.clone());
    let started = Engine::builder().with::<Account>().start(journal, store).await;
    let why = started.err().unwrap();
    assert!(
        matches!(
            why,
            StartError::Unheard {
                asker: "account",
                asked: "account"
            }
        ),
        "{why}"
    );
}

#[tokio::test]
async fn an_id_that_is_none_is_the_askers_fault() {
    let engine = World::new().engine().await;
    open(&engine, "a", 10).await;
    for id in ["", &"x".repeat(257)] {
        let why = ask(&engine, "a", collect(id, 5)).await.unwrap_err();
        assert!(
            matches!(&why, Error::Malformed(why) if why.contains("1 to 256 bytes")),
            "{why}"
        );
        let pay = Command::pay(id, 5);
        assert!(matches!(ask(&engine, "a", pay).await, Err(Error::Malformed(_))));
    }
    assert_eq!(balance(&engine, "a").await, 10, "nothing was done");
}
