//! The epoch recorded in a fixture, the answers of an engine that opens it, and the work that follows.

use super::service::{Account, Balances, Clock, Command, DAY, Former, Never, Short, VisitCommand, Visits};
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, sync::Arc};
use throng::{
    Engine, OperatorDecision, Retried,
    inspect::Inspect,
    journal::{RecordKind, Store, ViewRange},
    model::{Entity, Error},
};
use throng_testing::eventually;

async fn caught_up(engine: &Engine) {
    eventually("the read model has all", async || {
        engine.read_model::<Balances>().caught_up().await
    })
    .await;
}

async fn ask(engine: &Engine, id: &str, command: Command) -> Result<i64, Error<Short>> {
    engine.entity::<Account>(id).ask(command).await
}

async fn done(engine: &Engine, id: &str, command: Command) -> i64 {
    ask(engine, id, command).await.unwrap()
}

async fn once(engine: &Engine, key: &str, command: Command) -> Result<i64, Error<Short>> {
    engine.entity::<Account>("ann").once(key).ask(command).await
}

async fn enter<E>(engine: &Engine, id: &str, text: String)
where
    E: Entity<Id = String, Command = VisitCommand, Reply = u64, Rejection = Never>,
{
    let entity = engine.entity::<E>(id);
    entity.ask(VisitCommand::Enter { text }).await.unwrap();
}

fn pay(to: &str, amount: i64) -> Command {
    Command::Pay { to: to.into(), amount }
}

fn remind(name: &str, after_days: u32, every_days: Option<u32>) -> Command {
    Command::Remind {
        name: name.into(),
        after_days,
        every_days,
    }
}

fn decision() -> OperatorDecision<'static> {
    OperatorDecision::new("an operator", "for the fixture")
}

async fn dead(engine: &Engine) -> usize {
    engine.dead_messages(None, None, 100).await.unwrap().messages.len()
}

/// A first epoch, whose last commit is lost.
pub(crate) async fn begin(engine: &Engine) {
    done(engine, "hal", Command::Open { balance: 1 }).await;
    done(engine, "lost", Command::Open { balance: 1 }).await;
    engine.checkpoint().await.unwrap();
}

/// Does everything up to the last checkpoint but one, and makes that checkpoint.
pub(crate) async fn live(engine: &Engine) {
    for (id, balance) in [
        ("ann", 100),
        ("bob", 50),
        ("cleo", 0),
        ("dora", 1),
        ("eve", 9),
        ("fred", 3),
    ] {
        done(engine, id, Command::Open { balance }).await;
    }
    once(engine, "accepted", Command::Deposit { amount: 5 }).await.unwrap();
    let refused = once(engine, "refused", Command::Withdraw { amount: 1_000 }).await;
    assert!(matches!(refused, Err(Error::Rejected(_))), "{refused:?}");

    done(engine, "ann", pay("bob", 7)).await;
    done(engine, "ann", pay("nobody", 1)).await;
    for amount in [3, 10_000] {
        let from = "bob".into();
        done(engine, "ann", Command::Collect { from, amount }).await;
    }
    done(engine, "ann", Command::Child { id: "ann's".into() }).await;

    done(engine, "ann", remind("once", 10, None)).await;
    done(engine, "bob", remind("daily", 20, Some(1))).await;
    done(engine, "bob", remind("cancelled", 20, None)).await;
    done(
        engine,
        "bob",
        Command::Cancel {
            name: "cancelled".into(),
        },
    )
    .await;
    done(engine, "cleo", remind("at once", 0, None)).await;

    done(engine, "dora", Command::Close).await;
    done(engine, "eve", pay("bob", 2)).await;
    eventually("the messages are taken", async || {
        let states = states(engine).await;
        let outcomes = states["account/ann"]["heard"].as_array().map(Vec::len);
        let (bob, ticks) = (&states["account/bob"]["balance"], &states["account/cleo"]["ticks"]);
        dead(engine).await == 1 && outcomes == Some(2) && *bob == 56 && *ticks == 1
    })
    .await;
    engine.erase("account", "eve").await.unwrap();
    engine.quarantine("account", "fred", decision()).await.unwrap();
    done(engine, "ann", pay("fred", 2)).await;

    enter::<Former>(engine, "old", "a text".into()).await;
    let account = "fred".into();
    let hall = engine.entity::<Visits>("hall");
    hall.ask(VisitCommand::Tip { account }).await.unwrap();
    for number in 2..=6 {
        enter::<Visits>(engine, "hall", format!("visit {number}")).await;
    }
    caught_up(engine).await;
    engine.checkpoint().await.unwrap();
    engine.prune(false).await.unwrap();
    enter::<Former>(engine, "gone", "behind the checkpoint".into()).await;
    let gone = engine.entity::<Former>("gone");
    gone.ask(VisitCommand::Leave).await.unwrap();
}

/// Runs the next epoch: a checkpoint by a program that lacks a kind, and records after it.
pub(crate) async fn live_on(engine: &Engine) {
    enter::<Visits>(engine, "hall", "visit 7".into()).await;
    engine.checkpoint().await.unwrap();
    engine.prune(false).await.unwrap();
    once(engine, "behind", Command::Deposit { amount: 1 }).await.unwrap();
    done(engine, "ann", pay("nobody", 4)).await;
    done(engine, "gus", Command::Open { balance: 8 }).await;
    done(engine, "gus", remind("behind", 30, None)).await;
    eventually("the second message is dead", async || dead(engine).await == 2).await;
    caught_up(engine).await;
}

/// The addresses of all entities.
async fn addresses(engine: &Engine) -> Vec<(usize, &'static str, String)> {
    let mut all = Vec::new();
    for (index, kind) in engine.registry().kinds().iter().enumerate() {
        let found = engine.entities(index, None, 1_000).await.unwrap();
        all.extend(found.into_iter().map(|head| (index, kind.name, head.id.to_string())));
    }
    all
}

/// The state of each entity that has one.
pub(crate) async fn states(engine: &Engine) -> Value {
    let mut states = Map::new();
    for (index, kind, id) in addresses(engine).await {
        let wanted = Inspect {
            state: true,
            children: None,
        };
        let found = engine.inspect(index, &id, wanted).await.unwrap();
        if let Some(state) = found.state {
            states.insert(format!("{kind}/{id}"), serde_json::from_str(&state).unwrap());
        }
    }
    Value::Object(states)
}

/// Returns everything visible to an operator.
pub(crate) async fn observe(engine: &Engine) -> Value {
    let mut entities = Map::new();
    for (index, kind, id) in addresses(engine).await {
        let found = engine.inspect(index, &id, Inspect::default()).await.unwrap();
        let quarantine = found.quarantine.map(|of| json!({"by": of.by, "reason": of.reason}));
        let history = engine.history(index, &id, 0, 1_000).await.unwrap_or_default();
        let events: Vec<Value> = history
            .events
            .iter()
            .map(|event| {
                let payload: Value = serde_json::from_slice(&event.payload).unwrap();
                json!([
                    event.seq,
                    event.position.to_string(),
                    event.at_micros,
                    event.name,
                    event.version,
                    payload
                ])
            })
            .collect();
        let timers = engine.timers_of(index, &id, 100).await.unwrap();
        let timers: Vec<Value> = timers
            .iter()
            .map(|timer| {
                let due = &timer.due;
                let body = String::from_utf8_lossy(&due.body);
                json!([due.name, due.at.micros, due.every_micros, due.command, body])
            })
            .collect();
        let seen = json!({
            "seq": found.seq, "ended": found.ended, "quarantine": quarantine, "parent": found.parent, "children": found.children,
            "removed": history.removed, "events": events, "timers": timers,
        });
        entities.insert(format!("{kind}/{id}"), seen);
    }
    let dead = engine.dead_messages(None, None, 100).await.unwrap().messages;
    let dead: Vec<Value> = dead
        .iter()
        .map(|dead| {
            let (from, number) = dead.number;
            let (sender, receiver) = (dead.sender.to_string(), dead.receiver.to_string());
            json!([from.0, number, sender, receiver, dead.name, dead.reason, dead.at.micros])
        })
        .collect();
    caught_up(engine).await;
    let rows = engine
        .read_model::<Balances>()
        .scan(ViewRange::default())
        .await
        .unwrap();
    let balances: Map<String, Value> = rows
        .iter()
        .map(|(key, value)| {
            let key = String::from_utf8(key.clone()).unwrap();
            (key, serde_json::from_slice(value).unwrap())
        })
        .collect();
    json!({"entities": entities, "states": states(engine).await, "dead": dead, "balances": balances})
}

/// Goes on working: keys, a command, dead messages, a waiting message, a checkpoint.
pub(crate) async fn work_on(engine: &Engine) {
    // Keys from before and after the checkpoint are both remembered.
    let answers = [("accepted", 5), ("behind", 1)];
    let before = states(engine).await["account/ann"]["balance"].clone();
    for (key, amount) in answers {
        once(engine, key, Command::Deposit { amount }).await.unwrap();
        let other = once(engine, key, Command::Deposit { amount: amount + 1 }).await;
        assert!(matches!(other, Err(Error::KeyReused(_))), "{key}: {other:?}");
    }
    let refused = once(engine, "refused", Command::Withdraw { amount: 1_000 }).await;
    assert!(
        matches!(refused, Err(Error::KeyRefused(_) | Error::Rejected(_))),
        "{refused:?}"
    );
    assert_eq!(
        states(engine).await["account/ann"]["balance"],
        before,
        "a key took effect twice"
    );

    for id in ["dora", "eve"] {
        let ended = ask(engine, id, Command::Deposit { amount: 1 }).await;
        assert!(matches!(ended, Err(Error::Ended { .. })), "{id}: {ended:?}");
    }
    done(engine, "nobody", Command::Open { balance: 0 }).await;
    let (tried, _) = engine.retry_all_dead("account", "nobody", None).await.unwrap();
    assert!(
        tried.len() == 2 && tried.iter().all(|(_, came)| *came == Retried::Done),
        "{tried:?}"
    );
    engine.release("account", "fred", decision()).await.unwrap();
    eventually("the messages that have waited are taken", async || {
        states(engine).await["account/fred"]["balance"] == 6
    })
    .await;
    enter::<Visits>(engine, "hall", "visit 8".into()).await;
    engine.checkpoint().await.unwrap();
}

/// Fires the timer that was set for the tenth day, after a restart.
pub(crate) async fn fire(engine: &Engine, clock: &Arc<Clock>) {
    clock.add(DAY * 11);
    eventually("the timer fires", async || {
        states(engine).await["account/ann"]["ticks"] == 1
    })
    .await;
    assert_eq!(dead(engine).await, 0);
}

/// Counts the system rows by their first letters.
pub(crate) async fn rows(store: &dyn Store) -> Value {
    let mut found: BTreeMap<char, u64> = BTreeMap::new();
    let mut count = |key: &[u8], _: &[u8]| *found.entry(char::from(key[0])).or_default() += 1;
    store.system_scan(b"", b"", usize::MAX, &mut count).await.unwrap();
    json!(found)
}

/// Counts the records of each kind.
pub(crate) fn kinds(records: impl Iterator<Item = RecordKind>) -> Value {
    let mut found: BTreeMap<&str, u64> = BTreeMap::new();
    records.for_each(|kind| *found.entry(kind.word()).or_default() += 1);
    json!(found)
}
