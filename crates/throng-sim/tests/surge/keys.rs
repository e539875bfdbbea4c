//! Idempotency keys: each takes effect once, in bounded memory, for any number of keys.

use crate::{Command, ask, level, player::Player, quiet_options, service};
use std::time::Duration;
use throng::{Options, driver::KeyLife};
use throng_sim::{Faults, Sim};

async fn ask_once(sim: &Sim, id: &str, key: String) -> u64 {
    let id = id.to_owned();
    let asked = sim.call(|engine| async move { engine.entity::<Player>(id).once(key).ask(Command::Hit).await });
    asked.await.unwrap().unwrap()
}

async fn checkpoint(sim: &Sim) -> bool {
    let made = sim.call(|engine| async move { engine.checkpoint().await });
    made.await.unwrap().is_ok()
}

#[test]
fn a_key_takes_effect_once_despite_a_late_answer_of_the_store() {
    for seed in 0..100 {
        service(seed).options(quiet_options()).run(|sim| async move {
            assert_eq!(ask_once(&sim, "player", "key".into()).await, 1);
            assert!(checkpoint(&sim).await);
            // The key's hour is over, but its row still exists.
            sim.jump(Duration::from_secs(61 * 60));
            let faults = Faults {
                later: 1.0,
                delay_micros: 1..20_000,
                ..Faults::none()
            };
            sim.set_faults(faults);
            let asks: Vec<_> = (0..3)
                .map(|_| {
                    let sim_in = sim.clone();
                    sim.spawn(async move {
                        let told = ask_once(&sim_in, "player", "key".into()).await;
                        checkpoint(&sim_in).await;
                        told
                    })
                })
                .collect();
            for ask in asks {
                assert_eq!(ask.await.unwrap(), 2, "seed {seed}");
            }
        });
    }
}

/// Makes a player do this once, under a key that is kept for a day, as a broker asks.
async fn ask_once_a_day(sim: &Sim, id: &str, command: Command) -> u64 {
    let id = id.to_owned();
    let asked = sim.call(|engine| async move {
        let mut body = Vec::new();
        let name = throng_core::tagged::to_parts(&command, &mut body).unwrap();
        let driver = engine.driver();
        let attempt = driver.command(0, id, name, body).unwrap().once("key").unwrap();
        let day = KeyLife::at_least(Duration::from_secs(24 * 3_600));
        driver.answer(attempt.key_life(day)).await
    });
    serde_json::from_slice(&asked.await.unwrap().unwrap()).unwrap()
}

#[test]
fn a_key_of_longer_life_outlives_the_hour_also_when_forwarded() {
    let pass = || Command::Pass { to: "receiver".into() };
    service(3).options(quiet_options()).run(|sim| async move {
        for id in ["passer", "receiver"] {
            ask(&sim, id, Command::Hit).await.unwrap();
        }
        assert_eq!(ask_once_a_day(&sim, "passer", pass()).await, 2);
        assert_eq!(ask_once_a_day(&sim, "receiver", Command::Hit).await, 3);
        for hours in [2, 21] {
            assert!(checkpoint(&sim).await);
            sim.jump(Duration::from_secs(hours * 3_600));
            sim.restart().await;
            assert_eq!(ask_once_a_day(&sim, "passer", pass()).await, 2);
            assert_eq!(ask_once_a_day(&sim, "receiver", Command::Hit).await, 3);
        }
        sim.jump(Duration::from_secs(6 * 3_600));
        assert_eq!(
            ask_once_a_day(&sim, "receiver", Command::Hit).await,
            4,
            "a day and a step are over"
        );
    });
}

/// Returns the bytes of entities, of keys, and of data in flight to the store.
fn memory(sim: &Sim) -> i64 {
    level(sim, "throng_entity_bytes") + level(sim, "throng_pending_bytes")
}

#[test]
fn keys_that_expire_while_the_store_fails_are_let_go() {
    let options = Options {
        // The accounting is more exact the less memory there is.
        memory_bytes_max: 8 << 20,
        ..quiet_options()
    };
    service(0).options(options).run(|sim| async move {
        ask(&sim, "player", Command::Hit).await.unwrap();
        assert!(checkpoint(&sim).await);
        let before = memory(&sim);
        sim.set_faults(Faults {
            store_error: 1.0,
            ..Faults::none()
        });
        for number in 0..200 {
            ask_once(&sim, "player", format!("key {number}")).await;
        }
        assert!(!checkpoint(&sim).await);
        assert!(memory(&sim) > before + 10_000, "keys are counted");
        sim.jump(Duration::from_secs(2 * 3_600));
        sim.set_faults(Faults::none());
        ask(&sim, "player", Command::Hit).await.unwrap();
        assert!(checkpoint(&sim).await);
        ask(&sim, "player", Command::Hit).await.unwrap();
        let after = memory(&sim);
        assert!(
            after < before + 10_000,
            "{after} bytes, {before} before: keys nobody can use again are let go"
        );
    });
}

/// Uses many keys, most of them in one bucket, and as many entities.
async fn use_many_keys(sim: &Sim, keys: u64) {
    for number in 0..keys {
        ask_once(sim, &format!("player {number}"), format!("key {number}")).await;
    }
    assert!(checkpoint(sim).await);
}

#[test]
fn expired_keys_are_not_gathered_to_be_let_go() {
    service(1).options(quiet_options()).run(|sim| async move {
        use_many_keys(&sim, 1_000).await;
        sim.jump(Duration::from_secs(2 * 3_600));
        ask(&sim, "player 1", Command::Hit).await.unwrap();
        assert!(checkpoint(&sim).await);
        assert_eq!(sim.rows_of_keys(), 0, "they are gone");
        let most = sim.counted("row removed by its name");
        assert!(most <= 100, "{most} rows of keys were read to be removed");
    });
}

#[test]
fn a_start_reads_neither_all_keys_nor_all_entities() {
    let options = Options {
        checkpoint_bytes: u64::MAX,
        ..quiet_options()
    };
    service(2).options(options).run(|sim| async move {
        use_many_keys(&sim, 1_000).await;
        let before = ["row of a key read at a start", "entity read at a start"].map(|what| sim.counted(what));
        sim.restart().await;
        let after = ["row of a key read at a start", "entity read at a start"].map(|what| sim.counted(what));
        assert!(
            after[0] - before[0] <= 100,
            "{} rows of keys were read",
            after[0] - before[0]
        );
        assert!(
            after[1] - before[1] <= 100,
            "{} entities were read",
            after[1] - before[1]
        );
        // All keys are still known.
        assert_eq!(ask_once(&sim, "player 7", "key 7".into()).await, 1);
        assert_eq!(ask(&sim, "player 8", Command::Hit).await.unwrap(), 2);
    });
}
