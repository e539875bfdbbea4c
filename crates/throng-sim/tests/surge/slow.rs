//! A slow entity delays only its own callers.

use crate::{Command, ask, ask_on, hits, player::Player, quiet_options, service};
use std::time::Duration;
use throng_sim::Sim;

const SLOW: Duration = Duration::from_millis(300);

fn work() -> Command {
    Command::Catch {
        pad: 0,
        work_micros: u64::try_from(SLOW.as_micros()).unwrap(),
    }
}

/// Makes loop 0 work on a slow entity from now on.
async fn begin_slow_work(sim: &Sim) -> tokio::sync::oneshot::Receiver<()> {
    let slow = sim.clone();
    let done = sim.spawn(async move { ask_on(&slow, 0, "slow", work()).await.0.map(drop).unwrap() });
    sim.sleep(Duration::from_millis(1)).await;
    done
}

/// Runs a test with a single shard. A shard is a lock, so all entities share the slow one's.
fn world_of_one_shard(seed: u64, test: impl AsyncFnOnce(Sim)) {
    let simulation = service(seed).loops(2).shards(1).options(quiet_options());
    simulation.run(|sim| async move {
        for id in ["slow", "same shard"] {
            ask(&sim, id, Command::Hit).await.unwrap();
        }
        test(sim.clone()).await;
        assert_eq!(sim.counted("a loop waited for a lock"), 0, "no loop waits for a shard");
    });
}

#[test]
fn a_slow_entity_does_not_hold_up_the_clients_of_another_loop() {
    service(0)
        .loops(2)
        .shards(64)
        .options(quiet_options())
        .run(|sim| async move {
            for number in 0..20 {
                ask(&sim, &number.to_string(), Command::Hit).await.unwrap();
            }
            let done = begin_slow_work(&sim).await;
            for number in 0..20 {
                let (answer, took) = ask_on(&sim, 1, &number.to_string(), Command::Hit).await;
                answer.unwrap();
                assert!(took < Duration::from_millis(10), "it waited {took:?}");
            }
            done.await.unwrap();
        });
}

#[test]
fn a_loop_goes_on_while_a_command_waits_for_a_slow_shard() {
    world_of_one_shard(1, async |sim| {
        let done = begin_slow_work(&sim).await;
        let waits = sim.clone();
        let waits = sim.spawn(async move { ask_on(&waits, 1, "same shard", Command::Hit).await });
        done.await.unwrap();
        let (answer, took) = waits.await.unwrap();
        assert_eq!(answer.unwrap(), 2);
        assert!(took < SLOW * 2, "it waited {took:?}");
    });
}

#[test]
fn a_loop_goes_on_while_a_query_waits_for_a_slow_entitys_shard() {
    world_of_one_shard(2, async |sim| {
        let done = begin_slow_work(&sim).await;
        let read = sim.call_on(1, |engine| async move {
            engine.entity::<Player>("same shard").read(crate::Hits {}).await
        });
        assert_eq!(read.await.unwrap().unwrap(), 1);
        done.await.unwrap();
    });
}

#[test]
fn a_loop_goes_on_while_reads_wait_for_a_slow_shard() {
    world_of_one_shard(3, async |sim| {
        let done = begin_slow_work(&sim).await;
        let listed = sim.call_on(1, |engine| async move { engine.entities(0, None, 10).await });
        assert_eq!(listed.await.unwrap().unwrap().len(), 2);
        let read = sim.call_on(1, |engine| async move { engine.history(0, "same shard", 0, 10).await });
        assert_eq!(read.await.unwrap().unwrap().events.len(), 1);
        let dead = sim.call_on(1, |engine| async move { engine.dead_messages(None, None, 10).await });
        assert!(dead.await.unwrap().unwrap().messages.is_empty());
        done.await.unwrap();
    });
}

#[test]
fn messages_to_a_slow_entity_do_not_hold_up_messages_to_others() {
    for seed in 4..8 {
        service(seed)
            .loops(2)
            .shards(64)
            .options(quiet_options())
            .run(|sim| async move {
                let throw = |to: &str, work_micros| Command::Throw {
                    to: vec![to.to_owned()],
                    pad: 0,
                    work_micros,
                };
                for _ in 0..4 {
                    let micros = u64::try_from(SLOW.as_micros()).unwrap();
                    ask_on(&sim, 0, "sender", throw("slow", micros)).await.0.unwrap();
                }
                let begun = sim.elapsed();
                for number in 0..10 {
                    let to = format!("quick {number}");
                    ask_on(&sim, 1, "other sender", throw(&to, 0)).await.0.unwrap();
                }
                for number in 0..10 {
                    let to = format!("quick {number}");
                    while hits(&sim, &to).await == 0 {
                        sim.sleep(Duration::from_millis(1)).await;
                    }
                }
                let took = sim.elapsed() - begun;
                assert!(took < SLOW * 2, "seed {seed}: messages to others waited {took:?}");
            });
    }
}
