//! An entity that cannot be loaded delays only itself, reports the reason, and is retried on request.

use crate::{
    Command, ask, eventually, hits, level,
    player::{Children, KIND, Player},
    quiet_options, service,
};
use std::time::Duration;
use throng::{Options, Retried};
use throng_sim::Sim;

fn options() -> Options {
    Options {
        outbox_max: 8,
        ..quiet_options()
    }
}

/// Restarts with everything in the store and no entity in memory. The row of this one is damaged.
async fn restart_with_a_damaged_row(sim: &Sim, id: &str) {
    let made = sim.call(|engine| async move { engine.checkpoint().await });
    made.await.unwrap().unwrap();
    sim.kill();
    sim.damage_row(KIND, id);
    sim.restart().await;
}

fn throw(to: &str) -> Command {
    Command::Throw {
        to: vec![to.into()],
        pad: 0,
        work_micros: 0,
    }
}

#[test]
fn messages_for_an_unloadable_entity_hold_up_no_other() {
    for (seed, loops) in [(0, 0), (1, 2)] {
        service(seed).loops(loops).options(options()).run(|sim| async move {
            for id in ["sender", "bad", "good"] {
                ask(&sim, id, Command::Hit).await.unwrap();
            }
            restart_with_a_damaged_row(&sim, "bad").await;
            for round in 0..40 {
                let sent = ask(&sim, "sender", throw("bad")).await;
                assert!(sent.is_ok(), "round {round}: who sends is told {sent:?}");
                let other = ask(&sim, "good", throw("sender")).await;
                assert!(other.is_ok(), "round {round}: an unrelated one is told {other:?}");
            }
            eventually(&sim, "messages to others arrive", async || {
                hits(&sim, "sender").await == 1 + 40 + 40
            })
            .await;
            sim.sleep(Duration::from_secs(5)).await;
            ask(&sim, "good", Command::Hit).await.unwrap();
            assert_eq!(level(&sim, "throng_outbox"), 0, "nothing waits in memory for it");
        });
    }
}

#[test]
fn messages_for_an_unloadable_entity_are_dead_and_retriable() {
    service(2).options(options()).run(|sim| async move {
        for id in ["sender", "bad"] {
            ask(&sim, id, Command::Hit).await.unwrap();
        }
        restart_with_a_damaged_row(&sim, "bad").await;
        for _ in 0..5 {
            ask(&sim, "sender", throw("bad")).await.unwrap();
        }
        let dead = async || {
            let found =
                sim.call(|engine| async move { engine.dead_messages(Some((KIND, Some("bad"))), None, 100).await });
            found.await.unwrap().unwrap().messages
        };
        eventually(&sim, "five messages are dead", async || dead().await.len() == 5).await;
        for message in dead().await {
            assert!(message.reason.contains("cannot be read"), "{message:?}");
        }
        // The same holds after a restart, as long as the row is unchanged.
        sim.restart().await;
        let messages = dead().await;
        assert_eq!(messages.len(), 5);
        sim.mend_row(KIND, "bad");
        for message in messages {
            let retried = sim.call(move |engine| async move { engine.retry_dead(KIND, "bad", message.number).await });
            assert_eq!(retried.await.unwrap().unwrap(), Retried::Done);
        }
        assert_eq!(hits(&sim, "bad").await, 6);
    });
}

#[test]
fn an_operator_releases_an_entity_with_a_readable_row() {
    service(3).options(options()).run(|sim| async move {
        ask(&sim, "bad", Command::Hit).await.unwrap();
        restart_with_a_damaged_row(&sim, "bad").await;
        let refused = ask(&sim, "bad", Command::Hit).await.unwrap_err().to_string();
        assert!(refused.contains("cannot be read"), "{refused}");
        sim.mend_row(KIND, "bad");
        // An operator decides this. Until then, reading it again would be useless.
        let by = throng::OperatorDecision::new("ann", "its row was mended");
        let released = sim.call(|engine| async move { engine.release(KIND, "bad", by).await });
        assert!(released.await.unwrap().unwrap());
        assert_eq!(ask(&sim, "bad", Command::Hit).await.unwrap(), 2);
    });
}

#[test]
fn a_timer_of_an_unloadable_entity_holds_up_no_other_timer() {
    service(4).options(options()).run(|sim| async move {
        for id in ["bad", "good"] {
            let plan = Command::Plan {
                timers: 3,
                after_micros: 1_000_000,
                pad: 0,
            };
            ask(&sim, id, plan).await.unwrap();
        }
        restart_with_a_damaged_row(&sim, "bad").await;
        eventually(&sim, "the timers of the good one fire", async || {
            hits(&sim, "good").await == 1 + 3
        })
        .await;
    });
}

#[test]
fn a_family_that_cannot_be_loaded_fails_no_checkpoint() {
    service(5).options(options()).run(|sim| async move {
        for id in ["bad", "good"] {
            ask(&sim, id, Command::Hit).await.unwrap();
        }
        let made = sim.call(|engine| async move { engine.checkpoint().await });
        made.await.unwrap().unwrap();
        // The child is only in the log, and its parent is not in memory after the restart.
        ask(&sim, "bad", Command::Child { id: "child".into() }).await.unwrap();
        eventually(&sim, "the child is there", async || hits(&sim, "child").await == 1).await;
        sim.kill();
        sim.damage_row(KIND, "bad");
        sim.restart().await;
        ask(&sim, "good", Command::Hit).await.unwrap();
        let made = sim.call(|engine| async move { engine.checkpoint().await });
        let made = made.await.unwrap();
        assert!(made.is_ok(), "{made:?}");
        // The child that could not be stored is still known, even after another restart.
        sim.mend_row(KIND, "bad");
        sim.restart().await;
        let read = sim.call(|engine| async move { engine.entity::<Player>("bad").read(Children {}).await });
        assert_eq!(read.await.unwrap().unwrap(), ["child"]);
        assert_eq!(hits(&sim, "good").await, 2);
    });
}
