//! The sale on several nodes, whose shards move during payments.

use super::{
    BETWEEN_LOOKS, Books, CONCERTS, CUSTOMERS, LOOKS_MAX, Ledger, announce, books, go_on, id_of, place, world,
};
use crate::{
    concert::{Concert, GetConcert},
    customer::{Customer, GetCustomer},
    order::{GetOrder, Order, OrderCommand},
};
use std::time::Duration;
use throng_app::{Engine, model::Error};
use throng_sim::{Failure, Faults, Nodes, Run, Sim, Timing, for_each_seed_with};

const NODES: usize = 3;
const PAUSE: Duration = Duration::from_millis(100);
const STEPS: u64 = 15;

async fn start_all(sim: &Sim, nodes: &Nodes) {
    for node in 0..NODES {
        while !nodes.is_started(node) && nodes.start(node).await.is_err() {
            sim.sleep(PAUSE).await;
        }
    }
}

/// Restarts all nodes, and waits until they serve.
async fn recover(sim: &Sim, nodes: &Nodes) {
    nodes.mend();
    start_all(sim, nodes).await;
    for node in 0..NODES {
        nodes.drain(node, false).await;
    }
}

/// Asks one node or another until the answer is known. If none serves, recovers them.
async fn ask<T, R, F>(sim: &Sim, nodes: &Nodes, mut attempt: impl FnMut(Engine) -> F) -> Result<T, Error<R>>
where
    T: Send + 'static,
    R: Send + 'static,
    F: Future<Output = Result<T, Error<R>>> + Send + 'static,
{
    let mut tries = 0;
    loop {
        let up = nodes.up();
        let node = sim.below(up.len().max(1) as u64) as usize;
        if let Some(node) = up.get(node)
            && let Ok(answer @ (Ok(_) | Err(Error::Rejected(_) | Error::KeyRefused(_) | Error::Unknown { .. }))) =
                nodes.call(*node, &mut attempt).await
        {
            return answer;
        }
        sim.sleep(PAUSE).await;
        tries += 1;
        if tries % 100 == 0 {
            recover(sim, nodes).await;
        }
    }
}

async fn send(sim: &Sim, nodes: &Nodes, order: &str, key: &str, command: OrderCommand) {
    let asked = ask(sim, nodes, |engine| {
        engine.entity::<Order>(order).once(key).ask(command.clone())
    });
    drop(asked.await);
}

async fn disturb(sim: &Sim, nodes: &Nodes) {
    sim.sleep(Duration::from_millis(sim.below(5_000))).await;
    let (one, other) = (sim.below(NODES as u64) as usize, sim.below(NODES as u64) as usize);
    match sim.below(7) {
        0 => nodes.kill(one),
        1 => nodes.pause(one, Duration::from_millis(sim.below(20_000))),
        2 => nodes.drain(one, sim.chance(0.5)).await,
        3 if one != other => nodes.cut(one, other),
        4 => nodes.mend(),
        _ => start_all(sim, nodes).await,
    }
}

async fn look(sim: &Sim, nodes: &Nodes, placed: u64) -> Books {
    let mut books = Books::default();
    for concert in CONCERTS {
        let found = ask(sim, nodes, |engine| {
            engine.entity::<Concert>(concert).read(GetConcert {})
        })
        .await;
        books.concerts.insert(concert.into(), found.unwrap());
    }
    for customer in CUSTOMERS {
        let found = ask(sim, nodes, |engine| {
            engine.entity::<Customer>(customer).read(GetCustomer {})
        })
        .await;
        books.customers.insert(customer.into(), found.unwrap_or_default());
    }
    for number in 0..placed {
        let order = id_of(None, number);
        let found = ask(sim, nodes, |engine| {
            engine.entity::<Order>(order.clone()).read(GetOrder {})
        })
        .await;
        books.orders.insert(order, found.unwrap());
    }
    books
}

fn sell(seed: u64, keep_trace: bool) -> Result<Run, Box<Failure>> {
    let ledger = Ledger::default();
    let mut faults = Faults::random(seed);
    // A call as long as a lease would be a cut connection, which is a separate fault.
    faults.stall_micros = 50_000..300_000;
    let world = world(seed, &ledger).faults(faults).keep_trace(keep_trace);
    let sold = world.try_run(|sim| async move {
        let nodes = sim.nodes(Timing::of(Duration::from_secs(2)));
        start_all(&sim, &nodes).await;
        for concert in CONCERTS {
            let command = |engine: Engine| engine.entity::<Concert>(concert).once("announce").ask(announce());
            ask(&sim, &nodes, command).await.unwrap();
        }
        let mut placed = 0;
        for step in 0..STEPS {
            let (order, command) = match placed == 0 || sim.chance(0.5) {
                true => {
                    placed += 1;
                    (id_of(None, placed - 1), place(&sim))
                }
                false => (id_of(None, placed - 1 - sim.below(placed.min(4))), go_on(&sim)),
            };
            send(&sim, &nodes, &order, &format!("step {step}"), command).await;
            disturb(&sim, &nodes).await;
        }
        nodes.calm();
        recover(&sim, &nodes).await;
        let (mut looks, mut last) = (0, None);
        let mut books = loop {
            // The parts are read one after another. They belong to one moment only once they no longer change.
            let books = look(&sim, &nodes, placed).await;
            let is_still = last.as_ref() == Some(&books);
            if books.has_settled() && is_still || looks >= LOOKS_MAX {
                break books;
            }
            for order in books.held() {
                looks += 1;
                send(&sim, &nodes, order, &format!("look {looks}"), go_on(&sim)).await;
            }
            sim.sleep(BETWEEN_LOOKS).await;
            (looks, last) = (looks + 1, Some(books));
        };
        books.money.clone_from(&ledger.lock().unwrap());
        books.check(&sim);
        let history = nodes.end();
        for concert in CONCERTS {
            books::check_line(&sim, &history, concert);
        }
    });
    sold.map(|((), run)| run)
}

#[test]
fn seats_and_money_agree_on_nodes_that_fail() {
    for_each_seed_with(
        ("tickets", "seats_and_money_agree_on_nodes_that_fail"),
        2,
        &["confirmed", "node killed", "node paused"],
        sell,
    );
}
