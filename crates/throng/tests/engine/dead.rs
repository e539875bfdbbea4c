//! Messages that could not be taken are listed, and a person can have them retried.

use crate::kinds::*;
use throng::{
    DeadDone, DeadFilter, DeadMessage, Engine, OperatorDecision, Options, Retried, UnresolvedWork,
    journal::{Commit, CommitNo, Journal, Position, RecordKind, WriterId},
    model::Error,
};

async fn pay(engine: &Engine, to: &str) {
    let (to, amount) = (to.to_owned(), 1);
    ask(engine, "a", Command::Pay { to, amount }).await.unwrap();
}

async fn all(engine: &Engine) -> Vec<DeadMessage> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = engine.dead_messages(None, after.as_deref(), 2).await.unwrap();
        assert!(page.messages.len() <= 2);
        all.extend(page.messages);
        after = page.next;
        if after.is_none() {
            return all;
        }
    }
}

#[tokio::test]
async fn a_dead_message_is_listed_and_taken_when_it_is_tried_again() {
    let world = World::new();
    let mut engine = world.engine().await;
    open(&engine, "a", 10).await;
    for to in ["b", "c", "b", "d"] {
        pay(&engine, to).await;
    }
    eventually(async || all(&engine).await.len() == 4).await;
    for round in 0..3 {
        match round {
            0 => {}
            // Reads from the store, and from the log after it.
            1 => engine.checkpoint().await.unwrap(),
            _ => {
                engine.stop().await;
                engine = world.engine().await;
            }
        }
        let found = all(&engine).await;
        assert_eq!(found.len(), 4, "round {round}");
        assert!(
            found
                .iter()
                .all(|dead| &*dead.sender.id == "a" && dead.name == "Deposit")
        );
        assert!(
            found
                .iter()
                .all(|dead| dead.reason.starts_with("there is no account") && dead.at.micros > 0)
        );
        let receivers: Vec<_> = found.iter().map(|dead| &*dead.receiver.id).collect();
        assert_eq!(receivers, ["b", "b", "c", "d"]);
        let of_b = engine
            .dead_messages(Some(("account", Some("b"))), None, 9)
            .await
            .unwrap();
        assert_eq!((of_b.messages.len(), of_b.next), (2, None));
    }
    let first = all(&engine).await.remove(0);
    let again = engine.retry_dead("account", "b", first.number).await.unwrap();
    assert!(matches!(again, Retried::Dead(reason) if reason.starts_with("there is no account")));
    open(&engine, "b", 0).await;
    assert_eq!(engine.retry_dead("account", "b", first.number).await, Ok(Retried::Done));
    let over = engine.retry_dead("account", "b", first.number).await.unwrap_err();
    assert!(matches!(over, Error::Unknown { .. }), "{over}");
    assert_eq!(balance(&engine, "b").await, 1);
    let (came, next) = engine.retry_all_dead("account", "b", None).await.unwrap();
    assert_eq!((came.len(), &came[0].1, next), (1, &Retried::Done, None));
    assert_eq!(balance(&engine, "b").await, 2);
    // A message that was taken stays taken after a crash, with a checkpoint and without.
    let again = world.engine().await;
    assert_eq!(all(&again).await.len(), 2);
    again.checkpoint().await.unwrap();
    let again = world.engine().await;
    assert_eq!((all(&again).await.len(), balance(&again, "b").await), (2, 2));
    assert!(again.retry_dead("account", "b", first.number).await.is_err());
}

#[tokio::test]
async fn a_dead_request_that_is_tried_again_is_heard() {
    let engine = World::new().engine().await;
    open(&engine, "a", 10).await;
    open(&engine, "b", i64::MAX).await;
    let collect = Command::collect("b", -1);
    ask(&engine, "a", collect).await.unwrap();
    eventually(async || all(&engine).await.len() == 1).await;
    assert!(all(&engine).await[0].reason.contains("overflow"), "it crashed");
    let withdraw = Command::Withdraw { amount: i64::MAX };
    ask(&engine, "b", withdraw).await.unwrap();
    let (came, _) = engine.retry_all_dead("account", "b", None).await.unwrap();
    assert_eq!(came[0].1, Retried::Done);
    eventually(async || text(&engine, "a").await == "b/b: 1 left").await;
    assert_eq!(all(&engine).await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_retries_of_a_dead_message_at_once_take_it_once() {
    let options = Options {
        checkpoint_every: std::time::Duration::from_millis(1),
        ..Options::default()
    };
    let engine = World::new().engine_with(options).await;
    open(&engine, "a", 100).await;
    for _ in 0..50 {
        pay(&engine, "b").await;
    }
    eventually(async || all(&engine).await.len() == 50).await;
    open(&engine, "b", 0).await;
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let engine = engine.clone();
            tokio::spawn(async move { engine.retry_all_dead("account", "b", None).await.unwrap().0.len() })
        })
        .collect();
    let mut taken = 0;
    for task in tasks {
        taken += task.await.unwrap();
    }
    assert_eq!((taken, balance(&engine, "b").await), (50, 50));
}

#[tokio::test]
async fn a_page_begins_only_where_another_ended() {
    let engine = World::new().engine().await;
    for after in ["x", "6", "6b", "é"] {
        let told = engine.dead_messages(None, Some(after), 1).await.unwrap_err();
        assert!(matches!(told, Error::Malformed(_)), "{told}");
    }
}

/// Returns the commits of the world's first writer.
async fn commits(world: &World) -> Vec<Commit> {
    let beginning = Position::new(WriterId(1), CommitNo(0));
    world.journal.read(beginning, 1 << 20).await.unwrap()
}

fn ann() -> OperatorDecision<'static> {
    OperatorDecision::new("ann", "b will never open")
}

#[tokio::test]
async fn a_dropped_message_is_never_taken_and_its_drop_is_recorded() {
    let world = World::new();
    let engine = world.engine().await;
    open(&engine, "a", 10).await;
    pay(&engine, "b").await;
    pay(&engine, "b").await;
    eventually(async || all(&engine).await.len() == 2).await;
    let found = all(&engine).await;
    // Drops one message from memory, the other from the store.
    engine.drop_dead("account", "b", found[0].number, ann()).await.unwrap();
    assert_eq!(all(&engine).await, found[1..]);
    engine.checkpoint().await.unwrap();
    engine.drop_dead("account", "b", found[1].number, ann()).await.unwrap();
    assert_eq!(all(&engine).await, []);
    for dead in &found {
        let told = engine.drop_dead("account", "b", dead.number, ann()).await.unwrap_err();
        assert!(matches!(told, Error::Unknown { .. }), "{told}");
        let told = engine.retry_dead("account", "b", dead.number).await.unwrap_err();
        assert!(matches!(told, Error::Unknown { .. }), "{told}");
    }
    open(&engine, "b", 0).await;
    for restart in [false, true] {
        let again = world.engine().await;
        assert_eq!((all(&again).await, balance(&again, "b").await), (vec![], 0));
        if restart {
            again.checkpoint().await.unwrap();
        }
    }
    let mut dropped = Vec::new();
    for commit in commits(&world).await {
        for record in commit.records().flatten().filter(|record| record.name == "dropped") {
            assert_eq!((record.record, record.id), (RecordKind::Taken, "b"));
            dropped.push(serde_json::from_slice::<OperatorDecision<'_>>(record.body).unwrap() == ann());
        }
    }
    assert_eq!(dropped, [true, true]);
}

#[tokio::test]
async fn whoever_asked_hears_that_the_request_was_dropped() {
    let world = World::new();
    let engine = world.engine().await;
    open(&engine, "a", 10).await;
    open(&engine, "b", i64::MAX).await;
    let collect = Command::collect("b", -1);
    ask(&engine, "a", collect).await.unwrap();
    eventually(async || all(&engine).await.len() == 1).await;
    let number = all(&engine).await[0].number;
    engine.drop_dead("account", "b", number, ann()).await.unwrap();
    eventually(async || text(&engine, "a").await == "b/b: the request was dropped: b will never open").await;
    assert_eq!((all(&engine).await, balance(&engine, "b").await), (vec![], i64::MAX));
    // An operator's action is not a command. Only the death, which came from applying the event, is not decided again.
    let program = World::builder();
    let mut checker = program.checker().what_if();
    for commit in &commits(&world).await {
        checker.commit(commit).await;
    }
    let report = checker.finish();
    let what_if = report.what_if.unwrap();
    let was: Vec<&str> = what_if.changed.iter().map(|changed| &*changed.was).collect();
    assert_eq!((what_if.decided, was), (2, vec!["dead"]));
}

const NOBODY: &str = "there is no account \"…\"";

/// Returns the counts of dead messages and of entities quarantined by an operator.
fn counted(engine: &Engine) -> (u64, u64) {
    let unresolved = engine.health().unresolved;
    let of = |work| {
        let of_work = unresolved.iter().filter(|counted| counted.work == work);
        of_work.map(|counted| counted.count).sum()
    };
    (
        of(UnresolvedWork::DeadMessage),
        of(UnresolvedWork::QuarantinedByOperator),
    )
}

fn metrics(engine: &Engine) -> String {
    let mut text = String::new();
    engine.metrics().encode(&mut text).unwrap();
    text
}

#[tokio::test]
async fn restart_keeps_the_gauges_of_unresolved_work() {
    let world = World::new();
    let mut engine = world.engine().await;
    open(&engine, "a", 10).await;
    for to in ["b", "c", "b"] {
        pay(&engine, to).await;
    }
    engine.quarantine("account", "a", ann()).await.unwrap();
    for round in 0..3 {
        if round > 0 {
            // After a crash without a checkpoint, and after a clean stop.
            let before = std::mem::replace(&mut engine, world.engine().await);
            before.stop().await;
        }
        eventually(async || counted(&engine) == (3, 1)).await;
        let text = metrics(&engine);
        let dead = "throng_dead_messages{kind=\"account\",reason=\"there is no account \\\"…\\\"\"} 3";
        let quarantined = "throng_quarantined_entities{kind=\"account\",by=\"operator\"} 1";
        assert!(
            text.contains(dead) && text.contains(quarantined),
            "round {round}: {text}"
        );
        if round == 1 {
            engine.checkpoint().await.unwrap();
            engine.stop().await;
            engine = world.engine().await;
        }
    }
    let unresolved = &engine.health().unresolved[0];
    assert_eq!((&*unresolved.kind, &*unresolved.reason), ("account", NOBODY));
    engine.drop_dead_of(of_kind(None), ann()).await.unwrap();
    engine.release("account", "a", ann()).await.unwrap();
    eventually(async || counted(&engine) == (0, 0)).await;
    assert!(!metrics(&engine).contains("throng_dead_messages{"));
    engine.stop().await;
}

fn of_kind(cause: Option<&str>) -> DeadFilter {
    DeadFilter {
        kind: Some("account".into()),
        cause: cause.map(str::to_owned),
        ..DeadFilter::default()
    }
}

#[tokio::test]
async fn all_dead_messages_of_one_cause_are_done_by_one_call() {
    let engine = World::new().engine().await;
    open(&engine, "a", 10_000).await;
    open(&engine, "full", i64::MAX).await;
    pay(&engine, "full").await;
    // More messages than one batch lists and handles.
    let receivers: Vec<String> = (0..100).map(|at| format!("r{at}")).collect();
    for to in receivers.iter().chain(&receivers).chain(&receivers) {
        pay(&engine, to).await;
    }
    eventually(async || counted(&engine).0 == 301).await;
    let contents = engine.dead_contents(&of_kind(Some(NOBODY)), None, 2).await.unwrap();
    assert_eq!(
        contents
            .messages
            .iter()
            .map(|dead| dead.command.get())
            .collect::<Vec<_>>(),
        [r#"{"amount":1}"#; 2]
    );
    for to in &receivers[..99] {
        open(&engine, to, 0).await;
    }
    let of_cause = DeadFilter {
        kind: None,
        ..of_kind(Some(NOBODY))
    };
    let retried = engine.retry_dead_of(of_cause.clone()).await.unwrap();
    let expected = DeadDone {
        taken: 297,
        dead: 3,
        ..DeadDone::default()
    };
    assert_eq!(retried, expected);
    assert_eq!(balance(&engine, "r98").await, 3);
    let dropped = engine.drop_dead_of(of_cause, ann()).await.unwrap();
    assert_eq!((dropped.dropped, dropped.stopped), (3, None));
    let left = all(&engine).await;
    assert_eq!(
        (left.len(), &*left[0].receiver.id),
        (1, "full"),
        "it died of something else"
    );
    eventually(async || counted(&engine).0 == 1).await;
    engine.stop().await;
}
