//! The leading loop leads for one commit, and for one pass over the messages.

use crate::{Command, ask, ask_on, quiet_options, service};
use std::time::Duration;
use throng::Options;
use throng_sim::{Faults, Sim};

const CLIENTS: usize = 8;
const RUN: Duration = Duration::from_millis(60);

/// The answers to the clients of one loop.
#[derive(Clone, Copy, Debug, Default)]
struct Served {
    answered: u64,
    worst: Duration,
}

/// Runs a client that asks again as soon as it is answered.
async fn client(sim: Sim, own: usize, number: usize) -> Served {
    let mut served = Served::default();
    let until = sim.elapsed() + RUN;
    while sim.elapsed() < until {
        let (answer, took) = ask_on(&sim, own, &format!("{own}-{number}"), Command::Hit).await;
        answer.unwrap();
        served.answered += 1;
        served.worst = served.worst.max(took);
    }
    served
}

/// Runs loops with their clients, on a journal whose sync takes a fast disk's time on the leader's thread. Returns the answers of each loop.
fn served(seed: u64, loops: usize) -> Vec<Served> {
    let faults = Faults {
        sync_micros: 100..101,
        ..Faults::none()
    };
    let simulation = service(seed).loops(loops).options(quiet_options()).faults(faults);
    simulation.run(|sim| async move {
        let mut clients = Vec::new();
        for own in 0..loops {
            for number in 0..CLIENTS {
                clients.push((own, sim.spawn(client(sim.clone(), own, number))));
            }
        }
        let mut served = vec![Served::default(); loops];
        for (own, client) in clients {
            let seen = client.await.unwrap();
            served[own].answered += seen.answered;
            served[own].worst = served[own].worst.max(seen.worst);
        }
        served
    })
}

#[test]
fn two_loops_with_syncs_of_their_own_threads_are_served_alike() {
    for seed in 0..6 {
        let one = served(seed, 1)[0];
        let two = served(seed, 2);
        let of = |what: fn(&Served) -> u64| two.iter().map(what);
        let (least, most) = (of(|own| own.answered).min(), of(|own| own.answered).max());
        assert!(least.unwrap() * 10 >= most.unwrap() * 8, "seed {seed}: {two:?}");
        assert!(
            of(|own| own.answered).sum::<u64>() > one.answered,
            "seed {seed}: {one:?}, {two:?}"
        );
        // A command waits for the other loop's commit first, then for its own.
        let worst = two.iter().map(|own| own.worst).max().unwrap();
        assert!(worst < one.worst * 3, "seed {seed}: {one:?}, {two:?}");
    }
}

#[test]
fn clients_answered_together_are_together_in_the_next_commit() {
    let faults = Faults {
        later: 1.0,
        delay_micros: 1_000..1_001,
        ..Faults::none()
    };
    let simulation = service(0).loops(1).options(quiet_options()).faults(faults);
    let answered = simulation.run(|sim| async move {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| sim.spawn(client(sim.clone(), 0, number)))
            .collect();
        let mut answered = 0;
        for client in clients {
            answered += client.await.unwrap().answered;
        }
        answered
    });
    let commits = RUN.as_millis() as u64;
    // If commands that arrive during a commit were committed right afterwards, each of two groups would wait for the other's commit.
    assert!(
        answered > CLIENTS as u64 * commits * 3 / 4,
        "{answered} answers in {commits} commits"
    );
}

#[test]
fn a_loop_does_not_deliver_the_messages_of_all_others() {
    let options = Options {
        deliveries_per_turn: 1,
        ..quiet_options()
    };
    service(1).loops(2).shards(64).options(options).run(|sim| async move {
        let throw = |to: String| Command::Throw {
            to: vec![to],
            pad: 0,
            work_micros: 1_000,
        };
        ask(&sim, "a client of loop 0", Command::Hit).await.unwrap();
        // Loop 0 delivers this message in place, which takes a millisecond. Meanwhile loop 1 sends 20 more.
        let (first, others) = (sim.clone(), sim.clone());
        let first = sim.spawn(async move { ask_on(&first, 0, "0", throw("sink 0".into())).await });
        sim.sleep(Duration::from_micros(100)).await;
        let others = sim.spawn(async move {
            for number in 1..=20 {
                let to = format!("sink {number}");
                ask_on(&others, 1, &number.to_string(), throw(to)).await.0.unwrap();
            }
        });
        let (answer, took) = ask_on(&sim, 0, "a client of loop 0", Command::Hit).await;
        answer.unwrap();
        assert!(took < Duration::from_millis(5), "a client of loop 0 waited {took:?}");
        first.await.unwrap().0.unwrap();
        others.await.unwrap();
    });
}

#[test]
fn a_busy_loop_does_not_hold_up_a_commit_with_records_of_others() {
    service(2)
        .loops(2)
        .shards(64)
        .options(quiet_options())
        .run(|sim| async move {
            for id in ["first", "slow", "other"] {
                ask(&sim, id, Command::Hit).await.unwrap();
            }
            // One batch of loop 0 has a command that opens a commit, followed by one that works for long.
            let (first, slow) = (sim.clone(), sim.clone());
            let first = sim.spawn(async move { ask_on(&first, 0, "first", Command::Hit).await });
            let work = Command::Catch {
                pad: 0,
                work_micros: 300_000,
            };
            let slow = sim.spawn(async move { ask_on(&slow, 0, "slow", work).await });
            sim.sleep(Duration::from_millis(1)).await;
            let (answer, took) = ask_on(&sim, 1, "other", Command::Hit).await;
            answer.unwrap();
            assert!(
                took < Duration::from_millis(50),
                "a client of the idle loop waited {took:?}"
            );
            first.await.unwrap().0.unwrap();
            slow.await.unwrap().0.unwrap();
        });
}
