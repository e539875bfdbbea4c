//! The behaviour that users of the engine rely on.

use crate::kinds::*;
use std::{sync::atomic::Ordering::SeqCst, time::Duration};
use throng::{Options, model::*};

//= promise 3: answers rest on durable events
#[tokio::test]
async fn answers_come_after_the_events_and_rejections_change_nothing() {
    let engine = World::new().engine().await;
    open(&engine, "a", 5).await;
    assert_eq!(
        ask(&engine, "a", Command::Withdraw { amount: 6 }).await,
        Err(Error::Rejected(Short { balance: 5 }))
    );
    assert_eq!(
        ask(&engine, "a", Command::Withdraw { amount: 2 })
            .await
            .unwrap()
            .balance,
        3
    );
    assert!(matches!(
        ask(&engine, "b", Command::Deposit { amount: 1 }).await,
        Err(Error::Unknown { .. })
    ));
    engine.stop().await;
    assert!(matches!(
        ask(&engine, "a", Command::Tick).await,
        Err(Error::Unavailable { .. })
    ));
}

#[tokio::test]
async fn acknowledged_changes_survive_a_restart_or_a_crash() {
    for graceful in [true, false] {
        let world = World::new();
        let engine = world.engine().await;
        for n in 0..50 {
            open(&engine, &format!("a{n}"), n).await;
        }
        engine.checkpoint().await.unwrap();
        for n in 0..50 {
            ask(&engine, &format!("a{n}"), Command::Deposit { amount: 1 })
                .await
                .unwrap();
        }
        if graceful {
            engine.stop().await;
        }
        let again = world.engine().await;
        for n in 0..50 {
            assert_eq!(balance(&again, &format!("a{n}")).await, n + 1);
        }
        let history = again.history(0, "a7", 0, 10).await.unwrap();
        assert_eq!(
            history
                .events
                .iter()
                .map(|event| (event.seq, &*event.name))
                .collect::<Vec<_>>(),
            [(1, "Opened"), (2, "Deposited")]
        );
        assert_eq!(again.entities(0, Some("a48"), 10).await.unwrap().len(), 6);
    }
}

#[tokio::test]
async fn history_and_listing_reach_over_the_checkpoint() {
    let engine = World::new().engine().await;
    open(&engine, "a", 0).await;
    for round in 0..3 {
        for _ in 0..3 {
            ask(&engine, "a", Command::Deposit { amount: 1 }).await.unwrap();
        }
        open(&engine, &format!("b{round}"), 0).await;
        if round < 2 {
            engine.checkpoint().await.unwrap();
        }
    }
    let seqs = |history: throng::History| history.events.iter().map(|event| event.seq).collect::<Vec<_>>();
    assert_eq!(
        seqs(engine.history(0, "a", 0, 100).await.unwrap()),
        (1..=10).collect::<Vec<_>>()
    );
    assert_eq!(seqs(engine.history(0, "a", 4, 4).await.unwrap()), [5, 6, 7, 8]);
    assert!(engine.history(0, "nobody", 0, 4).await.is_err());
    let ids: Vec<_> = engine
        .entities(0, None, 100)
        .await
        .unwrap()
        .into_iter()
        .map(|head| (head.id, head.seq))
        .collect();
    assert_eq!(
        ids,
        [("a".into(), 10), ("b0".into(), 1), ("b1".into(), 1), ("b2".into(), 1)]
    );
}

#[tokio::test]
async fn many_commits_after_the_checkpoint_are_read_at_once() {
    let world = World::new();
    let engine = world.engine().await;
    open(&engine, "a", 0).await;
    open(&engine, "b", 0).await;
    engine.checkpoint().await.unwrap();
    for n in 0..60 {
        ask(&engine, "a", Command::Deposit { amount: 1 }).await.unwrap();
        // First far apart, then adjacent.
        for _ in 0..(if n < 3 { 40 } else { 0 }) {
            ask(&engine, "b", Command::Deposit { amount: 1 }).await.unwrap();
        }
    }
    let counting = Counting::new(&world);
    let again = world.start_on(counting.clone(), World::builder()).await;
    assert_eq!(balance(&again, "a").await, 60);
    assert_eq!(counting.reads_at.load(SeqCst), 1, "one look for 60 commits");
    let reads = counting.reads.load(SeqCst);
    let history = again.history(0, "a", 0, 100).await.unwrap();
    let seqs: Vec<u64> = history.events.iter().map(|event| event.seq).collect();
    assert_eq!(seqs, (1..=61).collect::<Vec<_>>());
    let more = counting.reads.load(SeqCst) - reads;
    assert_eq!(more, 4, "three that stand alone, and the rest");
}

//= promise 6: taken exactly once
#[tokio::test]
async fn messages_arrive_once_and_outcomes_are_heard() {
    let engine = World::new().engine().await;
    open(&engine, "a", 10).await;
    open(&engine, "b", 1).await;
    ask(&engine, "a", Command::pay("b", 4)).await.unwrap();
    eventually(async || balance(&engine, "b").await == 5).await;
    ask(&engine, "a", Command::collect("b", 5)).await.unwrap();
    eventually(async || text(&engine, "a").await == "b/b: 0 left").await;
    ask(&engine, "a", Command::collect("b", 7)).await.unwrap();
    eventually(async || text(&engine, "a").await.ends_with("b/b: no, 0")).await;
    assert_eq!((balance(&engine, "a").await, balance(&engine, "b").await), (6, 0));
}

#[tokio::test]
async fn a_message_to_nobody_is_dead_and_stops_no_other() {
    let engine = World::new().engine().await;
    open(&engine, "a", 10).await;
    open(&engine, "b", 0).await;
    ask(&engine, "a", Command::pay("nobody", 1)).await.unwrap();
    ask(&engine, "a", Command::pay("b", 1)).await.unwrap();
    eventually(async || balance(&engine, "b").await == 1).await;
}

//= promise 9: everything is bounded
#[tokio::test]
async fn more_messages_than_memory_holds_wait_in_the_log() {
    let options = Options {
        outbox_max: 3,
        deliveries_per_turn: 1,
        ..Options::default()
    };
    let engine = World::new().engine_with(options).await;
    open(&engine, "a", 1_000).await;
    open(&engine, "b", 0).await;
    for _ in 0..200 {
        loop {
            match ask(&engine, "a", Command::pay("b", 1)).await {
                Err(Error::Overloaded { .. }) => tokio::task::yield_now().await,
                answer => break drop(answer.unwrap()),
            }
        }
    }
    eventually(async || balance(&engine, "b").await == 200).await;
    assert_eq!(balance(&engine, "a").await, 800);
}

#[tokio::test]
async fn forwarding_answers_the_asker_recorded_or_not() {
    let engine = World::new().engine().await;
    open(&engine, "b", 3).await;
    for note in [false, true] {
        let forward = |amount| Command::Ask {
            other: "b".into(),
            command: Command::Withdraw { amount }.into(),
            note,
        };
        assert_eq!(
            ask(&engine, "a", forward(1)).await.unwrap().balance,
            if note { 1 } else { 2 }
        );
        assert_eq!(
            ask(&engine, "a", forward(9)).await,
            Err(Error::Rejected(Short {
                balance: if note { 1 } else { 2 }
            }))
        );
    }
    assert_eq!(text(&engine, "a").await, "asked b,asked b");
}

//= promise 4: a key takes effect once
#[tokio::test]
async fn a_key_takes_effect_once_through_forwarding_and_restart() {
    for note in [false, true] {
        let world = World::new();
        let engine = world.engine().await;
        open(&engine, "b", 10).await;
        let forward = |amount| Command::Ask {
            other: "b".into(),
            command: Command::Withdraw { amount }.into(),
            note,
        };
        let once = async |engine: &throng::Engine, amount| {
            engine
                .entity::<Account>("a")
                .once("k")
                .ask(forward(amount))
                .await
                .map(|balance| balance.balance)
        };
        assert_eq!(once(&engine, 4).await, Ok(6));
        assert_eq!(once(&engine, 4).await, Ok(6));
        engine.checkpoint().await.unwrap();
        assert_eq!(once(&engine, 4).await, Ok(6), "from the store");
        let again = world.engine().await;
        assert_eq!(once(&again, 4).await, Ok(6), "after a restart");
        assert!(matches!(once(&again, 5).await, Err(Error::KeyReused(_))));
        assert_eq!(balance(&again, "b").await, 6);
        if note {
            assert_eq!(text(&again, "a").await, "asked b");
        }
    }
}

//= promise 4: a key takes effect once
#[tokio::test]
async fn a_late_copy_of_a_refused_command_is_not_accepted() {
    let world = World::new();
    let engine = world.engine().await;
    open(&engine, "a", 1).await;
    let withdraw = async |engine: &throng::Engine, key: &str, amount| {
        let handle = engine.entity::<Account>("a").once(key);
        handle
            .ask(Command::Withdraw { amount })
            .await
            .map(|balance| balance.balance)
    };
    for _ in 0..2 {
        let refused = withdraw(&engine, "k", 5).await;
        assert!(
            matches!(refused, Err(Error::Rejected(_))),
            "as long as it is: {refused:?}"
        );
    }
    ask(&engine, "a", Command::Deposit { amount: 9 }).await.unwrap();
    let late = withdraw(&engine, "k", 5).await;
    assert_eq!(late, Err(Error::KeyRefused("k".into())));
    assert_eq!(balance(&engine, "a").await, 10);
    let engine = world.engine().await;
    let refused = Err(Error::KeyRefused("k".into()));
    assert_eq!(withdraw(&engine, "k", 5).await, refused, "after a restart");
    assert!(matches!(withdraw(&engine, "k", 11).await, Err(Error::Rejected(_))));
    engine.checkpoint().await.unwrap();
    assert_eq!(withdraw(&engine, "k", 5).await, refused, "from the store");
    let engine = world.engine().await;
    assert_eq!(
        withdraw(&engine, "k", 5).await,
        refused,
        "after a checkpoint and a restart"
    );
    ask(&engine, "a", Command::Deposit { amount: 1 }).await.unwrap();
    assert_eq!(withdraw(&engine, "k", 11).await, refused, "each that was refused");
    assert_eq!(
        withdraw(&engine, "k", 4).await,
        Ok(7),
        "another command is not its copy"
    );
    let late = withdraw(&engine, "k", 5).await;
    assert!(
        matches!(late, Err(Error::KeyReused(_))),
        "the key is the other command's now: {late:?}"
    );
    assert_eq!(withdraw(&engine, "fresh", 5).await, Ok(2));
}

#[tokio::test]
async fn timers_fire_repeat_and_survive_a_restart() {
    let world = World::new();
    let engine = world.engine().await;
    open(&engine, "a", 0).await;
    ask(&engine, "a", Command::remind(1, Some(1))).await.unwrap();
    let ticks = async |engine: &throng::Engine| engine.entity::<Account>("a").read(Ticks {}).await.unwrap();
    eventually(async || ticks(&engine).await >= 3).await;
    engine.stop().await;
    let again = world.engine().await;
    let before = ticks(&again).await;
    eventually(async || ticks(&again).await > before).await;
    ask(&again, "a", Command::Cancel).await.unwrap();
    let after = ticks(&again).await;
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    assert_eq!(ticks(&again).await, after);
}

#[tokio::test]
async fn timer_that_is_always_due_holds_nobody_up() {
    let world = World::new();
    // Checking this many shards takes longer than the timer waits.
    let engine = world.start(World::builder().shards(4_096)).await.unwrap();
    open(&engine, "a", 0).await;
    let remind = Command::remind(1, Some(1));
    ask(&engine, "a", remind).await.unwrap();
    eventually(async || engine.statistics().timers_fired > 3).await;
    for n in 0..50 {
        open(&engine, &format!("b{n}"), 0).await;
        ask(&engine, "a", Command::Deposit { amount: 1 }).await.unwrap();
    }
}

#[tokio::test]
async fn parents_know_their_children_and_children_their_parent() {
    let world = World::new();
    let engine = world.engine().await;
    open(&engine, "p", 0).await;
    for id in ["c1", "c2"] {
        ask(&engine, "p", Command::Child { id: id.into() }).await.unwrap();
    }
    let family = async |engine: &throng::Engine, id: &str| ask(engine, id, Command::Family).await.map(|b| b.text);
    eventually(async || family(&engine, "c2").await.is_ok()).await;
    engine.stop().await;
    let again = world.engine().await;
    assert_eq!(family(&again, "p").await.unwrap(), ">c1+c2");
    assert_eq!(family(&again, "c1").await.unwrap(), "account/p>");
}

//= promise 8: a panic costs one command
#[tokio::test]
async fn a_panic_costs_its_command_and_nothing_else() {
    let engine = World::new().engine().await;
    open(&engine, "a", 5).await;
    for command in [Command::PanicDeciding, Command::PanicEvolving, Command::PanicEvolving] {
        assert!(matches!(ask(&engine, "a", command).await, Err(Error::Crashed { .. })));
        assert_eq!(balance(&engine, "a").await, 5);
    }
    assert_eq!(
        ask(&engine, "a", Command::Deposit { amount: 1 }).await.unwrap().balance,
        6
    );
}

//= promise 9: everything is bounded
#[tokio::test]
async fn memory_stays_within_its_budget_and_nothing_is_forgotten() {
    let options = Options {
        memory_bytes_max: 256 << 10,
        checkpoint_every: Duration::from_millis(20),
        ..Options::default()
    };
    let world = World::new();
    let engine = world.engine_with(options).await;
    for round in 0..3 {
        for n in 0..400 {
            let id = format!("a{n}");
            let command = if round == 0 {
                Command::Open { balance: n }
            } else {
                Command::Deposit { amount: 1 }
            };
            loop {
                match ask(&engine, &id, command.clone()).await {
                    Err(Error::Overloaded { .. }) => engine.checkpoint().await.unwrap(),
                    answer => break drop(answer.unwrap()),
                }
            }
        }
    }
    assert!(
        engine.health().entities < 1_200,
        "{} in memory",
        engine.health().entities
    );
    for n in 0..400 {
        assert_eq!(balance(&engine, &format!("a{n}")).await, n + 2);
    }
}

#[tokio::test]
async fn one_large_entity_of_each_shard_is_put_away() {
    let options = Options {
        memory_bytes_max: 2 << 20,
        ..Options::default()
    };
    let engine = World::new().engine_with(options).await;
    for n in 0..40 {
        let id = format!("a{n}");
        for command in [Command::Open { balance: n }, Command::Grow { bytes: 100_000 }] {
            while matches!(ask(&engine, &id, command.clone()).await, Err(Error::Overloaded { .. })) {
                engine.checkpoint().await.unwrap();
            }
        }
    }
    eventually(async || {
        engine.checkpoint().await.unwrap();
        engine.statistics().entity_bytes < 2 << 20
    })
    .await;
    for n in 0..40 {
        assert_eq!(balance(&engine, &format!("a{n}")).await, n);
    }
}

#[tokio::test]
async fn memory_of_a_gateway_is_not_for_entities() {
    let options = Options {
        memory_bytes_max: 256 << 10,
        ..Options::default()
    };
    let world = World::new();
    let engine = world.engine_with(options).await;
    let used = async |ids: std::ops::Range<i64>| {
        for n in ids {
            let command = Command::Open { balance: n };
            if matches!(
                ask(&engine, &format!("a{n}"), command).await,
                Err(Error::Overloaded { .. })
            ) {
                engine.checkpoint().await.unwrap();
            }
        }
        engine.checkpoint().await.unwrap();
        engine.health().entities
    };
    let whole = used(0..5_000).await;
    let share = engine.driver().budget().share("bodies", usize::MAX);
    let _held = share.take(usize::MAX / 2).unwrap();
    let half = used(5_000..10_000).await;
    assert!(half * 4 < whole * 3, "{half} of {whole}");
    assert!(half * 4 > whole, "{half} of {whole}: it leaves them half");
}

#[tokio::test]
async fn ids_and_keys_have_limits_at_the_edge() {
    let engine = World::new().engine().await;
    open(&engine, &"x".repeat(256), 1).await;
    assert!(matches!(
        ask(&engine, &"x".repeat(257), Command::Tick).await,
        Err(Error::TooLarge { found: 257, .. })
    ));
    assert!(matches!(
        ask(&engine, "", Command::Tick).await,
        Err(Error::Malformed(_))
    ));
    let keyed = |key: String| {
        engine
            .entity::<Account>("a")
            .once(key)
            .ask(Command::Open { balance: 1 })
    };
    assert!(keyed("k".repeat(255)).await.is_ok());
    assert!(matches!(keyed("k".repeat(256)).await, Err(Error::Malformed(_))));
}

#[tokio::test]
async fn json_and_rust_callers_meet_the_same_entity() {
    let engine = World::new().engine().await;
    open(&engine, "a", 1).await;
    let driver = engine.driver();
    let ask = async |name: &'static str, body: &'static str| {
        let kind = engine.kind("account").unwrap();
        driver.answer(driver.command(kind, "a", name, body.as_bytes())?).await
    };
    let deposited = ask("Deposit", r#"{"amount":2}"#).await;
    assert_eq!(deposited.unwrap(), br#"{"balance":3,"text":""}"#);
    let error = ask("Withdraw", r#"{"amount":9}"#).await;
    let Err(Error::Rejected(rejection)) = error else {
        panic!("{error:?}")
    };
    assert_eq!(
        (rejection.code, rejection.status, rejection.body.as_slice()),
        ("short", 409, &br#"{"balance":3}"#[..])
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn callers_on_many_threads_lose_nothing() {
    let engine = World::new().engine().await;
    open(&engine, "a", 0).await;
    let tasks: Vec<_> = (0..16)
        .map(|_| {
            let engine = engine.clone();
            tokio::spawn(async move {
                for _ in 0..100 {
                    ask(&engine, "a", Command::Deposit { amount: 1 }).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(balance(&engine, "a").await, 1_600);
    engine.stop().await;
}
