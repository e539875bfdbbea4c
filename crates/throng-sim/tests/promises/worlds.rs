//! The simulation itself: the same seed gives the same history, and everything it can do really happens.

use crate::{
    account::{Account, Command, Look},
    run::{self, CALM, Scenario},
};
use std::{collections::BTreeMap, time::Duration};
use throng::StartError;
use throng_journal::{CommitNo, Error, Position, WriterId};
use throng_sim::{Faults, Simulation};

const EVERYTHING: Scenario = Scenario {
    faults: true,
    crashes: true,
    upgrades: true,
    rivals: true,
    ..CALM
};

#[test]
fn the_same_seed_gives_the_same_history_twice() {
    for seed in 0..30 {
        let hash = || match run::seed(seed, EVERYTHING, false) {
            Ok(run) => (run.trace_hash, run.steps, run.counts),
            Err(failure) => (failure.run.trace_hash, failure.run.steps, failure.run.counts),
        };
        assert_eq!(hash(), hash(), "seed {seed}");
    }
}

/// The events that must happen at least once in the seeds of this test.
const EXPECTED: [&str; 60] = [
    "append at once",
    "append later",
    "append in doubt",
    "append resolved before its predecessor",
    "append resolved after a seal",
    "append to a sealed stream",
    "appends in flight together",
    "depth changed",
    "commit in doubt, landed",
    "commit in doubt, lost",
    "commit lost with the power",
    "writer opened",
    "writer sealed",
    "open failed",
    "take failed",
    "seal failed",
    "read failed",
    "record read failed",
    "sync failed",
    "checkpoint",
    "checkpoint failed",
    "load at once",
    "load later",
    "load failed",
    "history failed",
    "row read at once",
    "row read later",
    "row read failed",
    "store read failed",
    "store lost",
    "engine started",
    "start failed",
    "killed",
    "killed while it starts",
    "power lost",
    "stopped gracefully",
    "taken over by a rival",
    "upgraded",
    "time of day jumped",
    "done",
    "refused",
    "unknown entity",
    "overloaded",
    "unavailable",
    "expired",
    "outcome unknown",
    "crashed",
    "quarantined",
    "client lost its process",
    "asked again with the key",
    "same answer again",
    "other command under a used key refused",
    "dead message listed",
    "dead message retried: done",
    "dead message retried: refused",
    "dead message retried: dead again",
    "all dead messages of one retried",
    "dead message dropped",
    "retry of a message that is not dead",
    "commands deferred",
];

#[test]
fn everything_that_can_happen_happens() {
    let power = Scenario {
        faults: true,
        crashes: true,
        power_loss: true,
        ..CALM
    };
    let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
    let (mut steps, mut elapsed, mut runs) = (0, Duration::ZERO, 0);
    // Enough seeds that an event with a frequency of one in 150 worlds is not missed by chance.
    for seed in 20_000..20_500 {
        for scenario in [EVERYTHING, power] {
            let run = match run::seed(seed, scenario, false) {
                Ok(run) => run,
                Err(failure) => panic!("seed {seed}:\n{failure}"),
            };
            for (what, count) in run.counts {
                *counts.entry(what).or_default() += count;
            }
            steps += run.steps;
            elapsed += run.elapsed;
            runs += 1;
        }
    }
    println!("{runs} worlds, {} of virtual time, {steps} polls", humane(elapsed));
    for (what, count) in &counts {
        println!("{count:>10}  {what}");
    }
    let never: Vec<&str> = EXPECTED.into_iter().filter(|what| !counts.contains_key(what)).collect();
    assert!(never.is_empty(), "never happened: {never:?}");
}

fn humane(elapsed: Duration) -> String {
    format!("{} min", elapsed.as_secs() / 60)
}

//= promise 10: damage is found
#[test]
fn damage_in_the_journal_is_named_when_the_engine_starts() {
    Simulation::new(1)
        .with::<Account<1>>()
        .on_outcome::<Account<1>, Account<1>>()
        .try_run(|sim| async move {
            sim.restart().await;
            for op in 0..5 {
                let added = sim.call(move |engine| async move {
                    engine
                        .entity::<Account<1>>(1u64)
                        .ask(Command::Add {
                            op,
                            amount: 1,
                            parts: 1,
                        })
                        .await
                });
                added.await.unwrap().unwrap();
            }
            sim.kill();
            sim.damage(Position::new(WriterId(1), CommitNo(3)));
            let refused = sim.start().await.unwrap().unwrap_err();
            assert!(matches!(refused, StartError::Journal(Error::Damaged { .. })));
            assert_eq!(
                refused.to_string(),
                "damage at 1.3 (the simulated medium): checksum 00000000 where ffffffff was expected; \
                 run `throng journal verify` on it, then restore a backup"
            );
        })
        .unwrap();
}

//= promise 7: a sealed writer cannot commit
#[test]
fn a_process_that_was_taken_over_from_acknowledges_nothing_more() {
    let builder = || {
        Simulation::new(2)
            .with::<Account<1>>()
            .on_outcome::<Account<1>, Account<1>>()
    };
    builder().run(|sim| async move {
        let add = |op, back| {
            sim.call_at(back, move |engine| async move {
                engine
                    .entity::<Account<1>>(1u64)
                    .ask(Command::Add {
                        op,
                        amount: 1,
                        parts: 1,
                    })
                    .await
            })
        };
        assert_eq!(add(1, 0).await.unwrap().unwrap().count, 1);
        sim.start().await.unwrap().unwrap();
        let told = add(2, 1).await.unwrap().unwrap_err().to_string();
        assert!(told.starts_with("unavailable; nothing was done"), "{told}");
        assert_eq!(add(3, 0).await.unwrap().unwrap().count, 2);
        assert!(add(4, 1).await.unwrap().is_err());
        assert_eq!(sim.history().events("account", "1").len(), 2);
    });
}

//= promise 4: a key takes effect once
#[test]
fn a_key_is_kept_for_an_hour_over_restarts_and_checkpoints() {
    for seed in 0..20 {
        let faults = Faults {
            later: 0.5,
            delay_micros: 1..5_000,
            ..Faults::none()
        };
        let builder = Simulation::new(seed)
            .with::<Account<1>>()
            .on_outcome::<Account<1>, Account<1>>();
        builder.faults(faults).run(|sim| async move {
            let add = |op| {
                sim.call(move |engine| async move {
                    let account = engine.entity::<Account<1>>(1u64).once("the key");
                    account
                        .ask(Command::Add {
                            op,
                            amount: 1,
                            parts: 1,
                        })
                        .await
                })
            };
            let first = add(1).await.unwrap().unwrap();
            for _ in 0..59 {
                sim.jump(Duration::from_secs(60));
                if sim.chance(0.2) {
                    sim.restart().await;
                }
                if sim.chance(0.2) {
                    let made = sim.call(|engine| async move { engine.checkpoint().await });
                    made.await.unwrap().unwrap();
                }
                assert_eq!(add(1).await.unwrap().unwrap(), first);
                assert!(matches!(add(2).await.unwrap(), Err(throng::model::Error::KeyReused(_))));
            }
            sim.jump(Duration::from_secs(120));
            assert_eq!(add(2).await.unwrap().unwrap().count, 2);
        });
    }
}

#[test]
fn a_read_that_meets_a_checkpoint_is_answered() {
    let mut forgotten = 0;
    for seed in 0..60 {
        let faults = Faults {
            later: 0.7,
            delay_micros: 1..3_000,
            ..Faults::none()
        };
        // No entity stays in memory, and the log is moved to the store continuously.
        let options = throng::Options {
            memory_bytes_max: 2_500,
            checkpoint_every: Duration::from_micros(500),
            ..throng::Options::default()
        };
        let builder = Simulation::new(seed).with::<Account<1>>().query::<Account<1>, Look>();
        let builder = builder
            .on_outcome::<Account<1>, Account<1>>()
            .options(options)
            .faults(faults);
        let work = |sim: throng_sim::Sim| async move {
            for round in 0..10 {
                // Entities read back from the log have no state in the store yet.
                sim.restart().await;
                sim.sleep(Duration::from_micros(sim.below(4_000))).await;
                let looks: Vec<_> = (0..6u64)
                    .map(|id| {
                        let sim_in = sim.clone();
                        sim.spawn(async move {
                            let look = |engine: throng::Engine| async move {
                                engine.entity::<Account<1>>(id).read(Look {}).await
                            };
                            (id, sim_in.call(look).await.unwrap())
                        })
                    })
                    .collect();
                for look in looks {
                    match look.await.unwrap() {
                        (_, Ok(_) | Err(throng::model::Error::Unknown { .. })) => {}
                        (id, Err(error)) => panic!("who reads account {id} is told: {error}"),
                    }
                }
                for id in 0..6 {
                    let (op, amount, parts) = (round * 6 + id, 1, 1);
                    let add = Command::Add { op, amount, parts };
                    let add =
                        move |engine: throng::Engine| async move { engine.entity::<Account<1>>(id).ask(add).await };
                    sim.call(add).await.unwrap().ok();
                }
            }
        };
        let (_, run) = builder
            .try_run(work)
            .unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
        forgotten += run.counts.get("read of a forgotten place").copied().unwrap_or_default();
    }
    assert!(forgotten > 0, "it never came to it");
}

#[test]
fn an_idle_engine_writes_nothing() {
    let builder = Simulation::new(4)
        .with::<Account<1>>()
        .on_outcome::<Account<1>, Account<1>>();
    let builder = builder.within(Duration::from_secs(4 * 3_600));
    let work = |sim: throng_sim::Sim| async move {
        sim.restart().await;
        let written = || {
            let (mut text, engine) = (String::new(), sim.engine().unwrap());
            engine.metrics().encode(&mut text).unwrap();
            let checkpoints = run::level(&text, "throng_checkpoints_total").unwrap();
            (checkpoints, sim.history().commits.len())
        };
        let commands = [
            Command::Open { op: 1, amount: 9 },
            // Sends messages, one of them to a missing account.
            Command::Transfer {
                op: 2,
                to: vec![2, 3],
                amount: 1,
            },
            Command::Ask {
                op: 3,
                to: 9,
                amount: 1,
                mode: crate::account::Mode::Accept,
            },
            Command::Plan {
                op: 4,
                name: "a".into(),
                after_micros: 10_000_000_000,
                every_micros: None,
                times: 1,
            },
        ];
        for (key, command) in commands.into_iter().enumerate() {
            let asked = sim.call(move |engine| async move {
                let account = engine.entity::<Account<1>>(1u64).once(format!("key {key}"));
                account.ask(command).await
            });
            asked.await.unwrap().unwrap();
        }
        for round in 0..2 {
            sim.sleep(Duration::from_secs(60)).await;
            let before = written();
            assert!(before.0 > 0 || round > 0);
            sim.sleep(Duration::from_secs(20 * 60)).await;
            assert_eq!(written(), before, "round {round}");
            // The same holds after all of that was read back.
            sim.restart().await;
        }
        // The hour of the keys is over, so their rows are removed, once.
        sim.sleep(Duration::from_secs(40 * 60)).await;
        let before = written();
        sim.sleep(Duration::from_secs(20 * 60)).await;
        assert_eq!(written(), before);
    };
    let (_, run) = builder.try_run(work).unwrap();
    assert_eq!(
        run.counts["row removed"], 2,
        "that of the four keys, and what finds them"
    );
}

#[test]
fn a_panic_of_the_test_itself_keeps_its_message() {
    let outcome = Simulation::new(3)
        .faults(Faults::none())
        .try_run(|_| async { panic!("planned panic: a test") });
    let Err::<((), _), _>(failure) = outcome else {
        panic!("it ran");
    };
    assert_eq!(failure.wrong, ["panicked: planned panic: a test"]);
}
