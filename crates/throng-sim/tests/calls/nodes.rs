//! The shop on several nodes. Shards move while calls are in flight.

use crate::{
    ORDERS, QUEUED, is_true, provider,
    shop::{Order, OrderCommand, Payments, Plan, View},
};
use std::time::Duration;
use throng::{
    Engine,
    model::{Call, CallId, CallsOf, Entity, Error},
};
use throng_sim::{CallFaults, Failure, Fake, Faults, Nodes, Run, Sim, Simulation, Timing, for_each_seed_with};

pub(crate) const NODES: usize = 3;
const LEASE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(100);
const WITHIN_SECS: u64 = 40;
/// The deadline of a call, and its longest attempt.
const SETTLED: Duration = Duration::from_secs(WITHIN_SECS + 30);

pub(crate) async fn start_all(sim: &Sim, nodes: &Nodes) {
    for node in 0..NODES {
        while !nodes.is_started(node) && nodes.start(node).await.is_err() {
            sim.sleep(PAUSE).await;
        }
    }
}

/// Makes all nodes run and serve.
async fn recover(sim: &Sim, nodes: &Nodes) {
    nodes.mend();
    start_all(sim, nodes).await;
    for node in 0..NODES {
        nodes.drain(node, false).await;
    }
}

/// Asks any node until the answer is known. If none serves, they recover first.
pub(crate) async fn ask<T, R, F>(sim: &Sim, nodes: &Nodes, mut attempt: impl FnMut(Engine) -> F) -> T
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
            && let Ok(Ok(answer)) = nodes.call(*node, &mut attempt).await
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

async fn step(sim: &Sim, nodes: &Nodes) {
    sim.sleep(Duration::from_millis(sim.below(2_000))).await;
    let (one, other) = (sim.below(NODES as u64) as usize, sim.below(NODES as u64) as usize);
    match sim.below(7) {
        0 | 1 => nodes.kill(one),
        2 => nodes.pause(one, Duration::from_millis(sim.below(20_000))),
        3 => nodes.drain(one, sim.chance(0.5)).await,
        4 if one != other => nodes.cut(one, other),
        5 => nodes.mend(),
        _ => start_all(sim, nodes).await,
    }
}

/// Places and charges orders while nodes come and go. Each order gets one outcome, and it is true.
fn sell(seed: u64, plan: Plan, provider: Fake<Payments>, keep_trace: bool) -> Result<Run, Box<Failure>> {
    let mut faults = Faults::random(seed);
    // A call that takes as long as a lease is a broken connection, which is another fault.
    faults.stall_micros = 50_000..300_000;
    let world = Simulation::new(seed)
        .with::<Order>()
        .query::<Order, View>()
        .outside::<Order, Payments>(&provider)
        .faults(faults)
        .keep_trace(keep_trace);
    let run = async |sim: Sim| {
        let nodes = sim.nodes(Timing::of(LEASE));
        start_all(&sim, &nodes).await;
        for number in 0..ORDERS {
            let place = || OrderCommand::Place { cents: 100, plan };
            let order = |engine: &Engine| engine.entity::<Order>(number.to_string());
            ask(&sim, &nodes, |engine| order(&engine).once("place").ask(place())).await;
            step(&sim, &nodes).await;
            step(&sim, &nodes).await;
        }
        nodes.calm();
        recover(&sim, &nodes).await;
        sim.sleep(SETTLED).await;
        for number in 0..ORDERS {
            let order = |engine: &Engine| engine.entity::<Order>(number.to_string());
            let order = ask(&sim, &nodes, |engine| order(&engine).read(View {})).await;
            is_true(&sim, &provider, number, &order);
        }
        nodes.end();
    };
    world.try_run(run).map(|((), run)| run)
}

#[test]
fn calls_on_nodes_that_fail_have_one_true_outcome() {
    let plan = Plan {
        within_secs: WITHIN_SECS,
        ..Plan::default()
    };
    for_each_seed_with(
        ("throng-sim", "calls_on_nodes_that_fail_have_one_true_outcome"),
        4,
        &["answered", "made again", "node killed", "node paused"],
        |seed, trace| sell(seed, plan, provider(CallFaults::some()), trace),
    );
}

#[test]
fn call_made_once_on_nodes_that_fail_is_sent_once() {
    let plan = Plan {
        once: true,
        within_secs: WITHIN_SECS,
        ..Plan::default()
    };
    let faults = CallFaults {
        duplicated: 0.0,
        ..CallFaults::some()
    };
    for_each_seed_with(
        ("throng-sim", "call_made_once_on_nodes_that_fail_is_sent_once"),
        4,
        &["answered", "unknown", "node killed", "node paused"],
        |seed, trace| sell(seed, plan, provider(faults.clone()).without_keys(), trace),
    );
}

/// Lets orders wait for an unavailable provider, while nodes come and go.
fn wait(seed: u64, keep_trace: bool) -> Result<Run, Box<Failure>> {
    let provider = provider(CallFaults {
        lost: 1.0,
        ..CallFaults::none()
    });
    let mut faults = Faults::random(seed);
    faults.stall_micros = 50_000..300_000;
    let world = Simulation::new(seed)
        .with::<Order>()
        .query::<Order, View>()
        .outside::<Order, Payments>(&provider)
        .faults(faults)
        .keep_trace(keep_trace);
    let run = async |sim: Sim| {
        let nodes = sim.nodes(Timing::of(LEASE));
        start_all(&sim, &nodes).await;
        let plan = Plan {
            within_secs: 100_000,
            ..Plan::default()
        };
        for number in 0..ORDERS {
            let place = || OrderCommand::Place { cents: 100, plan };
            let order = |engine: &Engine| engine.entity::<Order>(number.to_string());
            ask(&sim, &nodes, |engine| order(&engine).once("place").ask(place())).await;
            step(&sim, &nodes).await;
            step(&sim, &nodes).await;
        }
        nodes.calm();
        let mut open = 0.0;
        for _ in 0..200 {
            recover(&sim, &nodes).await;
            open = open_calls(&nodes).await;
            if open == ORDERS as f64 {
                break;
            }
            sim.sleep(PAUSE).await;
        }
        if open == ORDERS as f64 {
            sim.count("counted");
        } else {
            sim.wrong(format!("{open} calls are open, and {ORDERS} were made"));
        }
        nodes.end();
    };
    world.try_run(run).map(|((), run)| run)
}

/// Returns the sum over all nodes' metrics.
async fn open_calls(nodes: &Nodes) -> f64 {
    let mut open = 0.0;
    for node in nodes.up() {
        let shown = nodes.call(node, |engine: Engine| async move {
            engine.stats().last_level("calls.payments.open").unwrap_or_default()
        });
        open += shown.await.unwrap_or_default();
    }
    open
}

#[test]
fn open_calls_are_counted_on_nodes_that_fail() {
    for_each_seed_with(
        ("throng-sim", "open_calls_are_counted_on_nodes_that_fail"),
        6,
        &["counted", "node killed", "node paused"],
        wait,
    );
}

#[test]
fn erasure_reaches_calls_on_other_nodes() {
    let provider = provider(CallFaults::none());
    let world = Simulation::new(1)
        .with::<Order>()
        .query::<Order, View>()
        .outside::<Order, Payments>(&provider);
    world.run(|sim| async move {
        let nodes = sim.nodes(Timing::of(LEASE));
        start_all(&sim, &nodes).await;
        let queue = || OrderCommand::Queue {
            count: QUEUED,
            in_order: true,
        };
        let mut calls = Vec::new();
        for id in ["kept", "gone"] {
            let order = |engine: &Engine| engine.entity::<Order>(id);
            ask(&sim, &nodes, |engine| order(&engine).once("queue").ask(queue())).await;
            let found = loop {
                let found = ask(&sim, &nodes, |engine| order(&engine).read(View {})).await;
                if found.heard == ["answered"; QUEUED as usize] {
                    break found;
                }
                sim.sleep(PAUSE).await;
            };
            let line = CallsOf::new(Order::KIND, id).line();
            calls.push(found.queued.into_iter().chain([line]).collect::<Vec<_>>());
        }
        let erase = |engine: Engine| async move { engine.erase(Order::KIND, "gone").await };
        ask(&sim, &nodes, erase).await;
        let left = nodes.left().await;
        let has_events = |call: &CallId| !left.events(Call::<Payments>::KIND, &call.to_string()).is_empty();
        assert!(calls[0].iter().all(has_events) && !calls[1].iter().any(has_events));
        nodes.end();
    });
}
