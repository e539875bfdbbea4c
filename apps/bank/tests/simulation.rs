//! The bank in simulated worlds: no failure and no crash loses a cent, or makes one besides interest.
#![allow(clippy::unwrap_used, reason = "a test may")]

use bank::{
    account::{Account, Balance, Command, GetAccount, INTEREST_EVERY},
    richest::{self, Page},
};
use std::time::Duration;
use throng_app::model::Error;
use throng_sim::{Faults, Sim, Simulation, for_each_seed};

const ACCOUNTS: [&str; 4] = ["ann", "bob", "cid", "dan"];
const OPENED_WITH: u64 = 1_000_000;

fn world(seed: u64, keep_trace: bool) -> Simulation {
    Simulation::new(seed)
        .setup(|_| bank::app().into_builder())
        .faults(Faults::random(seed))
        .within(INTEREST_EVERY * 10)
        .keep_trace(keep_trace)
}

async fn ask(sim: &Sim, id: &str, key: &str, command: Command) -> Balance {
    sim.ask_until_known::<Account>(id, key, command).await.unwrap()
}

async fn balance(sim: &Sim, id: &str) -> Balance {
    sim.read_until_known::<Account, _>(id, || GetAccount {}).await.unwrap()
}

async fn open(sim: &Sim) {
    for id in ACCOUNTS {
        ask(sim, id, "open", Command::Open {}).await;
        ask(sim, id, "deposit", Command::Deposit { cents: OPENED_WITH }).await;
    }
}

/// Waits until no transfer is on its way, and sums all balances.
async fn settled(sim: &Sim) -> u64 {
    for id in ACCOUNTS {
        while !balance(sim, id).await.on_the_way.is_empty() {
            sim.sleep(Duration::from_millis(100)).await;
        }
    }
    // Only now: what was on its way to one of them may have come since it was looked at.
    let mut sum = 0;
    for id in ACCOUNTS {
        sum += balance(sim, id).await.cents;
    }
    sum
}

#[test]
fn no_cent_is_lost_between_accounts_whoever_dies() {
    let test = "no_cent_is_lost_between_accounts_whoever_dies";
    for_each_seed("bank", test, 20, |seed, keep_trace| {
        let outcome = world(seed, keep_trace).try_run(|sim| async move {
            open(&sim).await;
            for number in 0..30 {
                let from = ACCOUNTS[sim.below(4) as usize];
                // Now and then to an account that is not there.
                let to = ["ann", "bob", "cid", "dan", "nobody"][sim.below(5) as usize];
                let transfer = Command::Transfer {
                    to: to.parse().unwrap(),
                    cents: 1 + sim.below(OPENED_WITH),
                };
                let asked = sim
                    .ask_until_known::<Account>(from, &format!("transfer {number}"), transfer)
                    .await;
                assert!(matches!(asked, Ok(_) | Err(Error::Rejected(_))), "{asked:?}");
                if sim.chance(0.2) {
                    sim.kill();
                }
            }
            assert_eq!(settled(&sim).await, 4 * OPENED_WITH);
            let nobody = sim.read_until_known::<Account, _>("nobody", || GetAccount {}).await;
            assert!(matches!(nobody, Err(Error::Unknown { .. })));
        });
        outcome.map(drop).map_err(|failure| failure.to_string())
    });
}

#[test]
fn interest_is_paid_also_for_days_the_bank_was_down() {
    let test = "interest_is_paid_also_for_days_the_bank_was_down";
    for_each_seed("bank", test, 10, |seed, keep_trace| {
        let outcome = world(seed, keep_trace).try_run(|sim| async move {
            open(&sim).await;
            sim.sleep(INTEREST_EVERY + INTEREST_EVERY / 2).await;
            sim.kill();
            sim.sleep(3 * INTEREST_EVERY).await;
            let interest = OPENED_WITH / 10_000;
            while balance(&sim, "ann").await.cents < OPENED_WITH + 4 * interest {
                sim.sleep(Duration::from_secs(1)).await;
            }
            assert_eq!(balance(&sim, "ann").await.cents, OPENED_WITH + 4 * interest);
        });
        outcome.map(drop).map_err(|failure| failure.to_string())
    });
}

#[test]
fn the_richest_list_matches_the_balances_after_all_faults() {
    let test = "the_richest_list_matches_the_balances_after_all_faults";
    for_each_seed("bank", test, 10, |seed, keep_trace| {
        let outcome = world(seed, keep_trace).try_run(|sim| async move {
            open(&sim).await;
            for (number, id) in ACCOUNTS.into_iter().enumerate() {
                let transfer = Command::Transfer {
                    to: ["ann", "nobody"][number % 2].parse().unwrap(),
                    cents: 1 + number as u64,
                };
                drop(sim.ask_until_known::<Account>(id, "transfer", transfer).await);
                if sim.chance(0.3) {
                    sim.kill();
                }
            }
            settled(&sim).await;
            let mut expected = Vec::new();
            for id in ACCOUNTS {
                expected.push((std::cmp::Reverse(balance(&sim, id).await.cents), id.to_owned()));
            }
            expected.sort();
            sim.set_faults(Faults::none());
            let page = sim.call(|engine| async move {
                assert!(engine.read_model::<richest::Richest>().caught_up().await);
                richest::page(&engine, Page::default()).await.unwrap()
            });
            let found = page.await.unwrap().accounts.into_iter();
            let found: Vec<_> = found.map(|row| (std::cmp::Reverse(row.cents), row.account)).collect();
            assert_eq!(found, expected);
        });
        outcome.map(drop).map_err(|failure| failure.to_string())
    });
}
