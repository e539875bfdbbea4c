//! The bounds of a worker: concurrent attempts, attempts per second over all nodes, retries, and the breaker.

use crate::{
    nodes::{NODES, ask, start_all},
    shop::Charge,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{marker::PhantomData, time::Duration};
use throng::model::*;
use throng_sim::{CallFaults, Fake, Nodes, Run, Sim, Simulation, Timing, for_each_seed_with};
use throng_testing::fixtures::Never;

const SECOND: Duration = Duration::from_secs(1);
const WITHIN: Duration = Duration::from_secs(3_000);
/// All requests are lost.
const OUTAGE: CallFaults = CallFaults {
    delay: Duration::from_millis(500),
    not_sent: 0.0,
    lost: 1.0,
    duplicated: 0.0,
    answer_lost: 0.0,
    slow: 0.0,
};

/// A worker with these bounds. A [`Fake`] replaces it.
struct Bounded<const CONCURRENCY: usize, const A_SECOND: u32, const RETRIES: u32, const BREAKER: u32>;

impl<const CONCURRENCY: usize, const A_SECOND: u32, const RETRIES: u32, const BREAKER: u32> Outside
    for Bounded<CONCURRENCY, A_SECOND, RETRIES, BREAKER>
{
    const NAME: &'static str = "bounded";
    const CONCURRENCY: usize = CONCURRENCY;
    const RATE: Option<(u32, Duration)> = match A_SECOND {
        0 => None,
        attempts => Some((attempts, SECOND)),
    };
    const RETRIES: (u32, u32) = (20, RETRIES);
    const BREAKER: u32 = BREAKER;
    const TIMEOUT: Duration = Duration::from_secs(10);
    const PAUSE: (Duration, Duration) = (SECOND, Duration::from_secs(10));
    type Request = Charge;
    type Answer = u64;
    type Failure = String;

    async fn call(&self, _: Charge, _: &Attempt) -> Result<u64, CallError<String>> {
        Err(CallError::NotSent("the real provider is not asked".into()))
    }
}

/// A worker with the usual request and answer.
trait Provider: Outside<Request = Charge, Answer = u64, Failure = String> {}
impl<W: Outside<Request = Charge, Answer = u64, Failure = String>> Provider for W {}

/// An entity that makes many calls to a worker, and counts their outcomes.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
struct Buyer<W> {
    answered: u64,
    unanswered: u64,
    #[serde(skip)]
    of: PhantomData<fn() -> W>,
}

impl<W> Default for Buyer<W> {
    fn default() -> Self {
        Self {
            answered: 0,
            unanswered: 0,
            of: PhantomData,
        }
    }
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
enum BuyerCommand {
    Buy { count: u64 },
    Hear { is_answered: bool },
}

#[derive(Serialize, Deserialize, JsonSchema)]
enum BuyerEvent {
    Heard { is_answered: bool },
}
impl Event for BuyerEvent {}

impl<W: Provider> Entity for Buyer<W> {
    const KIND: &'static str = "buyer";
    type Id = String;
    type Command = BuyerCommand;
    type Event = BuyerEvent;
    /// The numbers of answered calls, and of calls with another outcome.
    type Reply = (u64, u64);
    type Rejection = Never;

    fn decide(&self, command: BuyerCommand, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
        match command {
            BuyerCommand::Buy { count } => {
                for cents in 0..count {
                    turn.call::<W>(Charge { cents }).within(WITHIN);
                }
            }
            BuyerCommand::Hear { is_answered } => turn.emit(BuyerEvent::Heard { is_answered }),
        }
        Ok(CommandAnswer::after(|buyer: &Self| (buyer.answered, buyer.unanswered)))
    }

    fn evolve(&mut self, event: &BuyerEvent) {
        match event {
            BuyerEvent::Heard { is_answered: true } => self.answered += 1,
            BuyerEvent::Heard { is_answered: false } => self.unanswered += 1,
        }
    }
}

impl<W: Provider> OnCallOutcome<W> for Buyer<W> {
    fn on_call_outcome(_: CallId, outcome: CallOutcome<u64, String>) -> BuyerCommand {
        let is_answered = matches!(outcome, CallOutcome::Answered(_));
        BuyerCommand::Hear { is_answered }
    }

    fn on_late_answer(_: CallId, _: Result<u64, String>) -> BuyerCommand {
        BuyerCommand::Hear { is_answered: false }
    }
}

/// The service on three nodes.
struct Shop<W: Provider> {
    sim: Sim,
    nodes: Nodes,
    provider: Fake<W>,
}

impl<W: Provider> Shop<W> {
    /// Lets a buyer make this many calls. Returns the numbers of outcomes it has received.
    async fn buy(&self, buyer: u64, count: u64) -> (u64, u64) {
        let buy = |engine: throng::Engine| {
            let buyer = engine.entity::<Buyer<W>>(buyer.to_string());
            let buyer = if count > 0 { buyer.once("buy") } else { buyer };
            buyer.ask(BuyerCommand::Buy { count })
        };
        ask(&self.sim, &self.nodes, buy).await
    }

    /// Waits until all calls of these buyers are answered.
    async fn all_answered(&self, buyers: u64, count: u64) {
        for buyer in 0..buyers {
            let mut heard = self.buy(buyer, 0).await;
            while heard.0 + heard.1 < count {
                self.sim.sleep(SECOND).await;
                heard = self.buy(buyer, 0).await;
            }
            if heard != (count, 0) {
                self.sim
                    .wrong(format!("the buyer {buyer} has heard {heard:?} of {count}"));
            }
        }
        self.sim.count("all answered");
    }

    fn is_at_most(&self, what: &str, found: usize, most: usize) {
        self.sim.note(format_args!("{what}: {found} of {most}"));
        if found > most {
            self.sim.wrong(format!("{what}: {found}, more than {most}"));
        }
    }
}

/// Runs a test for several seeds, on settled nodes.
fn on_nodes<W: Provider>(name: &str, seeds: u64, test: impl AsyncFn(Shop<W>)) {
    let run = |seed, keep_trace| -> Result<Run, _> {
        let provider = Fake::<W>::answers(|charge| Ok(charge.cents));
        let world = Simulation::new(seed)
            .with::<Buyer<W>>()
            .outside::<Buyer<W>, W>(&provider)
            .keep_trace(keep_trace);
        let run = async |sim: Sim| {
            let nodes = sim.nodes(Timing::of(Duration::from_secs(2)));
            start_all(&sim, &nodes).await;
            if !nodes.settle(Duration::from_secs(60)).await {
                sim.wrong("the nodes do not settle".to_owned());
            }
            test(Shop {
                sim,
                nodes: nodes.clone(),
                provider: provider.clone(),
            })
            .await;
            nodes.end();
        };
        world.try_run(run).map(|((), run)| run)
    };
    for_each_seed_with(("throng-sim", name), seeds, &["all answered"], run);
}

async fn attempts_at_once<W: Provider>(shop: Shop<W>) {
    for buyer in 0..6 {
        shop.buy(buyer, 4).await;
    }
    shop.all_answered(6, 4).await;
    shop.is_at_most("attempts at once", shop.provider.most_at_once(), W::CONCURRENCY);
    if shop.provider.most_at_once() < W::CONCURRENCY {
        shop.sim.wrong("a permit was never used".to_owned());
    }
}

#[test]
fn attempts_at_once_are_bounded_over_all_nodes() {
    on_nodes::<Bounded<4, 0, 1, 0>>("attempts_at_once_are_bounded_over_all_nodes", 3, attempts_at_once);
}

#[test]
fn one_permit_serves_the_calls_of_all_nodes() {
    on_nodes::<Bounded<1, 0, 1, 0>>("one_permit_serves_the_calls_of_all_nodes", 3, attempts_at_once);
}

#[test]
fn rate_is_bounded_over_all_nodes() {
    on_nodes::<Bounded<8, 4, 1, 0>>("rate_is_bounded_over_all_nodes", 3, async |shop| {
        for buyer in 0..6 {
            shop.buy(buyer, 10).await;
        }
        shop.all_answered(6, 10).await;
        let stretch = 5;
        let found = shop.provider.most_within(SECOND * stretch);
        shop.is_at_most("attempts in five seconds", found, 4 * stretch as usize + NODES);
    });
}

#[test]
fn outage_costs_few_attempts() {
    on_nodes::<Bounded<6, 0, 1_000, 5>>("outage_costs_few_attempts", 3, async |shop| {
        shop.provider.set_faults(OUTAGE);
        for buyer in 0..6 {
            shop.buy(buyer, 10).await;
        }
        shop.sim.sleep(SECOND * 60).await;
        // Each node has its own breaker: five failures, the calls then in flight, and probes after 1, 2, 4, 8, 10 s and so on.
        let most = NODES * (5 + 10) + 6;
        shop.is_at_most("requests in an outage", shop.provider.requests(), most);
        shop.provider.set_faults(CallFaults::none());
        shop.all_answered(6, 10).await;
    });
}

#[test]
fn retries_are_bounded_where_the_breaker_is_off() {
    on_nodes::<Bounded<8, 0, 1, 0>>("retries_are_bounded_where_the_breaker_is_off", 3, async |shop| {
        shop.provider.set_faults(OUTAGE);
        for buyer in 0..6 {
            shop.buy(buyer, 10).await;
        }
        shop.sim.sleep(SECOND * 60).await;
        // Retries are limited to a fifth of the first attempts. In addition a node may make ten retries at once, and one per second. Some are offered
        // as first attempts, and paid for later.
        let seconds = shop.sim.elapsed().as_secs() as usize + 1;
        let most = 60 + 12 + NODES * (10 + seconds) + 10;
        shop.is_at_most("requests in an outage", shop.provider.requests(), most);
        shop.provider.set_faults(CallFaults::none());
        shop.all_answered(6, 10).await;
    });
}
