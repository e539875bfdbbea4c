//! The whole service in simulated worlds: the journal fails and stalls, the process dies, and a seed determines all of it.
//! `THRONG_SIM_SEEDS=1000 cargo test` runs more worlds, `THRONG_SIM_SEED=7 cargo test` a single one.

use throng_sim::{Faults, Simulation, for_each_seed};

use {{crate}}::account::{Account, Balance, Command, GetAccount};

const TEST: &str = "every_deposit_counts_once_whatever_fails";

#[test]
fn every_deposit_counts_once_whatever_fails() {
    for_each_seed("{{name}}", TEST, 20, |seed, keep_trace| {
        let world = Simulation::new(seed)
            .setup(|_| {{crate}}::app().into_builder())
            .faults(Faults::random(seed))
            .keep_trace(keep_trace);
        let outcome = world.try_run(|sim| async move {
            let opened = sim.ask_until_known::<Account>("ann", "open", Command::Open {});
            opened.await.unwrap();
            for number in 0..10 {
                let key = format!("deposit {number}");
                let deposited =
                    sim.ask_until_known::<Account>("ann", &key, Command::Deposit { cents: 10 });
                deposited.await.unwrap();
                if sim.chance(0.3) {
                    sim.kill();
                }
            }
            let found = sim.read_until_known::<Account, _>("ann", || GetAccount {});
            assert_eq!(found.await.unwrap(), Balance { cents: 100 });
        });
        outcome.map(drop).map_err(|failure| failure.to_string())
    });
}
