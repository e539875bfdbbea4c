//! More work between entities than can be done. Commits go on, memory stays bounded, and external requests are answered.

use crate::{Command, ask, eventually, hits, largest_commit, level, quiet_options, service};
use std::time::Duration;
use throng::Options;
use throng_sim::{Faults, Sim};

/// The largest commit, apart from what the commands of a few threads add before they notice its size.
const COMMIT_BYTES_MAX: usize = 16 << 10;
const COMMAND_BYTES_MAX: usize = 8 << 10;

fn options() -> Options {
    Options {
        commit_bytes_max: COMMIT_BYTES_MAX,
        memory_bytes_max: 4 << 20,
        outbox_max: 256,
        ..quiet_options()
    }
}

fn check_commits(sim: &Sim) {
    let largest = largest_commit(sim);
    assert!(
        largest <= COMMIT_BYTES_MAX + 2 * COMMAND_BYTES_MAX,
        "a commit of {largest} bytes, where {COMMIT_BYTES_MAX} are allowed"
    );
}

/// Repeatedly asks other entities during the storm.
async fn check_others(sim: &Sim, rounds: u32) {
    for round in 0..rounds {
        let begun = sim.elapsed();
        let answer = ask(sim, "unrelated", Command::Hit).await;
        let took = sim.elapsed() - begun;
        assert!(answer.is_ok(), "round {round}: {answer:?} after {took:?}");
        assert!(took < Duration::from_secs(1), "round {round}: answered after {took:?}");
        sim.sleep(Duration::from_millis(10)).await;
        let memory = level(sim, "throng_entity_bytes") + level(sim, "throng_pending_bytes");
        assert!(memory <= 8 << 20, "{memory} bytes in memory");
        let outbox = level(sim, "throng_outbox");
        assert!(outbox <= 512, "{outbox} messages in memory");
    }
}

fn syncs_of(micros: u64) -> Faults {
    Faults {
        sync_micros: micros..micros + 1,
        ..Faults::none()
    }
}

#[test]
fn two_entities_that_send_endlessly_stop_no_commit() {
    for (seed, loops) in [(0, 0), (1, 1), (2, 2)] {
        let simulation = service(seed).loops(loops).options(options()).faults(syncs_of(100));
        simulation.run(|sim| async move {
            ask(&sim, "ping", Command::Ball { to: "pong".into() }).await.unwrap();
            check_others(&sim, 50).await;
            check_commits(&sim);
            let before = hits(&sim, "ping").await;
            sim.sleep(Duration::from_millis(100)).await;
            assert!(hits(&sim, "ping").await > before, "the exchange goes on, too");
        });
    }
}

#[test]
fn many_exchanges_without_end_stop_no_commit() {
    for (seed, loops) in [(3, 0), (4, 2)] {
        let simulation = service(seed).loops(loops).options(options()).faults(syncs_of(100));
        simulation.run(|sim| async move {
            for pair in 0..20 {
                let to = format!("pong {pair}");
                ask(&sim, &format!("ping {pair}"), Command::Ball { to }).await.unwrap();
            }
            check_others(&sim, 30).await;
            check_commits(&sim);
        });
    }
}

#[test]
fn a_backlog_of_messages_is_spread_over_commits() {
    for (seed, loops) in [(5, 0), (6, 2)] {
        let simulation = service(seed).loops(loops).options(options()).faults(syncs_of(2_000));
        simulation.run(|sim| async move {
            // Small messages that cause large events.
            let senders: Vec<_> = (0..20)
                .map(|sender| {
                    let command = Command::Throw {
                        to: (0..10).map(|receiver| format!("{sender}-{receiver}")).collect(),
                        pad: 1_000,
                        work_micros: 0,
                    };
                    let sim_in = sim.clone();
                    sim.spawn(async move { ask(&sim_in, &format!("sender {sender}"), command).await })
                })
                .collect();
            for sender in senders {
                sender.await.unwrap().unwrap();
            }
            check_others(&sim, 5).await;
            eventually(&sim, "the backlog is delivered", async || {
                level(&sim, "throng_outbox") == 0
            })
            .await;
            for sender in 0..20 {
                for receiver in 0..10 {
                    assert_eq!(hits(&sim, &format!("{sender}-{receiver}")).await, 1);
                }
            }
            check_commits(&sim);
        });
    }
}

#[test]
fn timers_due_at_the_same_moment_are_spread_over_commits() {
    for (seed, loops) in [(7, 0), (8, 2)] {
        let simulation = service(seed).loops(loops).options(options()).faults(syncs_of(2_000));
        simulation.run(|sim| async move {
            let command = Command::Plan {
                timers: 60,
                after_micros: 500_000,
                pad: 1_000,
            };
            ask(&sim, "planner", command).await.unwrap();
            sim.sleep(Duration::from_millis(400)).await;
            check_others(&sim, 20).await;
            eventually(&sim, "all have fired", async || hits(&sim, "planner").await == 61).await;
            check_commits(&sim);
        });
    }
}

#[test]
fn a_storm_on_a_hanging_journal_waits_in_bounded_memory() {
    let faults = Faults {
        later: 1.0,
        delay_micros: 100..101,
        stall: 1.0,
        stall_micros: 3_000_000..3_000_001,
        ..Faults::none()
    };
    service(9)
        .options(options())
        .faults(syncs_of(1_000))
        .run(|sim| async move {
            for pair in 0..20 {
                let to = format!("pong {pair}");
                ask(&sim, &format!("ping {pair}"), Command::Ball { to }).await.unwrap();
            }
            sim.set_faults(faults);
            sim.sleep(Duration::from_secs(10)).await;
            let memory = level(&sim, "throng_entity_bytes") + level(&sim, "throng_pending_bytes");
            assert!(memory <= 8 << 20, "{memory} bytes in memory");
            sim.set_faults(syncs_of(1_000));
            sim.sleep(Duration::from_secs(4)).await;
            check_others(&sim, 10).await;
            check_commits(&sim);
        });
}
