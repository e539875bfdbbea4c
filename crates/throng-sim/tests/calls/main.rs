//! A shop whose orders are charged by an external provider, in simulated worlds.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod bounds;
mod nodes;
mod shop;

use shop::{Bug, Charge, Order, OrderCommand, Payments, Plan, View};
use std::{collections::BTreeSet, time::Duration};
use throng::{
    Options,
    model::{Call, Entity},
};
use throng_sim::{CallFaults, Failure, Fake, Faults, Run, Sim, Simulation, for_each_seed, for_each_seed_with};

const ORDERS: u64 = 4;
/// The deadline of a call, its longest attempt, and a margin.
const SETTLED: Duration = Duration::from_secs(300);

fn provider(faults: CallFaults) -> Fake<Payments> {
    let decide = |charge: &Charge| match charge.cents {
        13 => Err("not 13".to_owned()),
        cents => Ok(cents),
    };
    Fake::answers(decide).faults(faults)
}

/// Places, charges and kills orders. In any case each order gets one outcome, and it is true.
fn sell(seed: u64, plan: Plan, provider: Fake<Payments>, keep_trace: bool) -> Result<Run, Box<Failure>> {
    let world = Simulation::new(seed)
        .with::<Order>()
        .query::<Order, View>()
        .outside::<Order, Payments>(&provider)
        .faults(Faults::random(seed))
        .keep_trace(keep_trace);
    let sold = world.try_run(|sim| async move {
        for number in 0..ORDERS {
            let cents = if number == 3 { 13 } else { 100 + number };
            let place = OrderCommand::Place { cents, plan };
            let id = number.to_string();
            sim.ask_until_known::<Order>(id.clone(), "place", place).await.unwrap();
            sim.sleep(Duration::from_millis(sim.below(3_000))).await;
            if sim.chance(0.3) {
                sim.count("killed");
                sim.kill();
            }
            if sim.chance(0.1) {
                sim.ask_until_known::<Order>(id, "cancel", OrderCommand::GiveUp {})
                    .await
                    .unwrap();
                sim.count("given up");
            }
        }
        sim.set_faults(Faults::none());
        for number in 0..ORDERS {
            // Starts the service if it was killed.
            sim.read_until_known::<Order, _>(number.to_string(), || View {})
                .await
                .unwrap();
        }
        sim.sleep(SETTLED).await;
        for number in 0..ORDERS {
            let order = sim
                .read_until_known::<Order, _>(number.to_string(), || View {})
                .await
                .unwrap();
            is_true(&sim, &provider, number, &order);
        }
    });
    sold.map(|((), run)| run)
}

/// Checks that an order has received one outcome, and that it matches the provider.
fn is_true(sim: &Sim, provider: &Fake<Payments>, number: u64, order: &Order) {
    let effects = order.call.map_or(0, |call| provider.effects_of(call));
    let requests = order.call.map_or(0, |call| provider.requests_of(call));
    let wrong = |what: &str| {
        sim.wrong(format!(
            "order {number}: {what}: {order:?}, {requests} requests, {effects} effects"
        ));
    };
    match &order.heard[..] {
        [outcome] => match (outcome.as_str(), requests, effects) {
            ("answered", 1.., 1) => sim.count("answered"),
            ("failed", 1.., 0) => sim.count("failed"),
            ("refused", 0, 0) => sim.count("refused"),
            ("unknown", _, 0 | 1) => sim.count("unknown"),
            _ => wrong("the outcome is not true"),
        },
        _ => wrong("there is not one outcome"),
    }
    if requests > 1 {
        sim.count("made again");
    }
    if order.late > 0 {
        sim.count("late");
    }
    if order.late > 1 {
        wrong("a late answer was told twice");
    }
    if order.plan.once && requests > 1 {
        wrong("a call made once was sent twice");
    }
    let is_told = order.heard == ["answered"] || order.late > 0;
    let (taken, seats) = (effects, usize::from(order.has_seat));
    match seats + order.refunds as usize {
        kept if is_told && kept < taken && order.late > 0 => wrong("money that came late was not given back"),
        kept if is_told && kept < taken => wrong("money without a seat"),
        kept if kept > taken && seats > 0 => wrong("a seat without money"),
        kept if kept > taken => wrong("money was given back that nobody has paid"),
        _ => {}
    }
    if order.is_given_up && order.refunds > 0 {
        sim.count("given back");
    }
}

#[test]
fn each_call_has_one_outcome_that_is_true() {
    let happens = [
        "answered",
        "failed",
        "unknown",
        "killed",
        "call not sent",
        "call lost",
        "answer of a call lost",
    ];
    for_each_seed_with(
        ("throng-sim", "each_call_has_one_outcome_that_is_true"),
        20,
        &happens,
        |seed, trace| sell(seed, Plan::default(), provider(CallFaults::some()), trace),
    );
}

#[test]
fn call_made_once_has_one_effect_without_keys() {
    let once = Plan {
        once: true,
        ..Plan::default()
    };
    let faults = CallFaults {
        duplicated: 0.0,
        ..CallFaults::some()
    };
    for_each_seed_with(
        ("throng-sim", "call_made_once_has_one_effect_without_keys"),
        20,
        &["answered", "unknown", "killed"],
        |seed, trace| sell(seed, once, provider(faults.clone()).without_keys(), trace),
    );
}

#[test]
fn late_answers_are_told_once() {
    let hasty = Plan {
        within_secs: 3,
        ..Plan::default()
    };
    let faults = CallFaults {
        slow: 0.6,
        ..CallFaults::none()
    };
    for_each_seed_with(
        ("throng-sim", "late_answers_are_told_once"),
        20,
        &["unknown", "late"],
        |seed, trace| sell(seed, hasty, provider(faults.clone()), trace),
    );
}

#[test]
fn refused_call_was_never_sent() {
    let hasty = Plan {
        within_secs: 3,
        ..Plan::default()
    };
    let faults = CallFaults {
        not_sent: 0.7,
        ..CallFaults::some()
    };
    for_each_seed_with(
        ("throng-sim", "refused_call_was_never_sent"),
        20,
        &["refused", "unknown", "answered", "killed"],
        |seed, trace| sell(seed, hasty, provider(faults.clone()), trace),
    );
}

const QUEUED: u64 = 5;

/// Lets an entity make some calls. Returns whether they took effect in order.
fn makes_in_order(seed: u64, in_order: bool, keep_trace: bool) -> Result<(bool, Run), Box<Failure>> {
    let provider = provider(CallFaults::some());
    let world = Simulation::new(seed)
        .with::<Order>()
        .query::<Order, View>()
        .outside::<Order, Payments>(&provider)
        .faults(Faults::random(seed))
        .keep_trace(keep_trace);
    world.try_run(|sim| async move {
        let queue = OrderCommand::Queue {
            count: QUEUED,
            in_order,
        };
        sim.ask_until_known::<Order>("0", "queue", queue).await.unwrap();
        for _ in 0..2 {
            sim.sleep(Duration::from_millis(sim.below(4_000))).await;
            sim.kill();
            sim.read_until_known::<Order, _>("0", || View {}).await.unwrap();
        }
        sim.set_faults(Faults::none());
        let order = loop {
            sim.sleep(Duration::from_secs(10)).await;
            let order = sim.read_until_known::<Order, _>("0", || View {}).await.unwrap();
            if order.heard.len() >= QUEUED as usize {
                break order;
            }
        };
        if order.heard != ["answered"; QUEUED as usize] {
            sim.wrong(format!("not all was answered: {order:?}"));
        }
        provider.effects() == order.queued
    })
}

#[test]
fn calls_in_order_have_their_effects_in_order() {
    for_each_seed(
        "throng-sim",
        "calls_in_order_have_their_effects_in_order",
        10,
        |seed, trace| {
            let (is_in_order, run) = makes_in_order(seed, true, trace).map_err(|failure| failure.to_string())?;
            run.trace.iter().for_each(|line| println!("{line}"));
            is_in_order.then_some(()).ok_or(format!("seed {seed}: out of order"))
        },
    );
    let overtakes = |seed| !makes_in_order(seed, false, false).unwrap().0;
    assert!((0..100).any(overtakes), "the order must come from `in_order`");
}

/// Asserts that one of 100 seeds fails with this text.
fn is_found(plan: Plan, faults: &CallFaults, knows_keys: bool, told: &str) {
    let finds = |seed: &u64| {
        let provider = provider(faults.clone());
        let provider = if knows_keys { provider } else { provider.without_keys() };
        let failure = sell(*seed, plan, provider, false).err();
        failure.is_some_and(|failure| failure.to_string().contains(told))
    };
    let seed = (0..100).find(finds);
    assert!(seed.is_some(), "no seed has found: {told}");
    println!("found by seed {seed:?}: {told}");
}

#[test]
fn planted_double_charge_is_found() {
    // The provider ignores keys, and calls may be made twice.
    is_found(Plan::default(), &CallFaults::some(), false, "the outcome is not true");
}

#[test]
fn planted_missing_refund_after_the_deadline_is_found() {
    let plan = Plan {
        within_secs: 3,
        bug: Some(Bug::NoLateRefund),
        ..Plan::default()
    };
    let faults = CallFaults {
        slow: 0.6,
        ..CallFaults::none()
    };
    is_found(plan, &faults, true, "money that came late was not given back");
}

#[test]
fn planted_seat_without_money_is_found() {
    let plan = Plan {
        within_secs: 3,
        bug: Some(Bug::SeatUnpaid),
        ..Plan::default()
    };
    is_found(plan, &CallFaults::some(), true, "a seat without money");
}

#[test]
fn planted_money_without_seat_is_found() {
    let plan = Plan {
        bug: Some(Bug::PaidUnseated),
        ..Plan::default()
    };
    is_found(plan, &CallFaults::some(), true, "money without a seat");
}

#[test]
fn same_seed_gives_the_same_run() {
    for_each_seed("throng-sim", "same_seed_gives_the_same_run", 3, |seed, trace| {
        let run = || sell(seed, Plan::default(), provider(CallFaults::some()), trace);
        let (one, other) = (
            run().map_err(|why| why.to_string())?,
            run().map_err(|why| why.to_string())?,
        );
        match one.trace_hash == other.trace_hash {
            true => Ok(()),
            false => Err(format!("seed {seed} of {} gave two runs", Order::KIND)),
        }
    });
}

#[test]
fn call_takes_three_commits() {
    let provider = provider(CallFaults::none());
    let world = Simulation::new(1)
        .with::<Order>()
        .query::<Order, View>()
        .outside::<Order, Payments>(&provider);
    let commits = world.run(|sim| async move {
        let plan = Plan::default();
        sim.restart().await;
        let before = sim.history().commits.len();
        let place = OrderCommand::Place { cents: 7, plan };
        sim.ask_until_known::<Order>("0", "place", place).await.unwrap();
        sim.sleep(SETTLED).await;
        let order = sim.read_until_known::<Order, _>("0", || View {}).await.unwrap();
        let history = sim.history();
        assert_eq!(history.commits.len() - before, 3);
        let mut events = history.events(Order::KIND, "0");
        events.extend(history.events(Call::<Payments>::KIND, &order.call.unwrap().to_string()));
        assert_eq!(events.len(), 6, "placed, begun, attempt begun, settled, heard, seated");
        events.into_iter().map(|event| event.position).collect::<BTreeSet<_>>()
    });
    assert_eq!(commits.len(), 3, "the command, the attempt, the outcome: {commits:?}");
}

/// Copies a journal with open calls in order, and serves the copy with other options. Returns the outcomes received there, those of a service with
/// the usual options, and the number of repeated requests.
fn serve_copy(options: impl Fn(&Sim) -> Options) -> (Vec<String>, Vec<String>, usize) {
    let provider = provider(CallFaults::none());
    let app = |options: Options, provider: Fake<Payments>| {
        move |builder: throng::Builder| {
            let builder = builder.options(options.clone()).with::<Order>();
            builder
                .query::<Order, View>()
                .outside::<Order, Payments>(provider.clone())
        }
    };
    let world = Simulation::new(1).setup(app(Options::default(), provider.clone()));
    world.run(|sim| async move {
        let queue = OrderCommand::Queue {
            count: QUEUED,
            in_order: true,
        };
        sim.ask_until_known::<Order>("0", "queue", queue).await.unwrap();
        let order = sim.read_until_known::<Order, _>("0", || View {}).await.unwrap();
        let requests = || {
            order
                .queued
                .iter()
                .map(|call| provider.requests_of(*call))
                .sum::<usize>()
        };
        let before = requests();
        sim.kill();
        let mut heard = Vec::new();
        for options in [options(&sim), Options::default()] {
            sim.upgrade(app(options, provider.clone()));
            sim.restart().await;
            sim.sleep(SETTLED).await;
            let order = sim.read_until_known::<Order, _>("0", || View {}).await.unwrap();
            heard.push(order.heard);
        }
        (heard[0].clone(), heard[1].clone(), requests() - before)
    })
}

#[test]
fn open_calls_of_a_restored_journal_are_unknown_and_not_made() {
    let restored = |sim: &Sim| Options {
        restored_at: Some(sim.now()),
        ..Options::default()
    };
    let (heard, later, requests) = serve_copy(restored);
    assert_eq!(heard, ["unknown"; QUEUED as usize]);
    assert_eq!((later, requests), (heard, 0));
}

#[test]
fn quiet_service_makes_no_calls() {
    let quiet = |_: &Sim| Options {
        quiet: true,
        ..Options::default()
    };
    let (heard, later, _) = serve_copy(quiet);
    assert_eq!((heard.len(), later.len()), (0, QUEUED as usize), "{later:?}");
}
