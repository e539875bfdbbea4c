//! An order that is charged externally, and gets its seat once the outcome is known.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use throng::model::*;
use throng_testing::fixtures::Never;

/// A bug planted in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) enum Bug {
    /// The order keeps money that arrives after it has given up.
    NoLateRefund,
    /// The order treats an unknown outcome as success: a seat without money.
    SeatUnpaid,
    /// A cancelled order ignores that it was charged: money without a seat.
    PaidUnseated,
}

/// The way in which an order calls, and the planted bug.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Plan {
    pub(crate) once: bool,
    pub(crate) within_secs: u64,
    pub(crate) bug: Option<Bug>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            once: false,
            within_secs: 90,
            bug: None,
        }
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Order {
    pub(crate) call: Option<CallId>,
    pub(crate) heard: Vec<String>,
    pub(crate) late: u32,
    pub(crate) has_seat: bool,
    pub(crate) refunds: u32,
    pub(crate) is_given_up: bool,
    pub(crate) queued: Vec<CallId>,
    pub(crate) plan: Plan,
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) enum OrderCommand {
    Place {
        cents: u64,
        plan: Plan,
    },
    /// Makes this many calls, in order or concurrently.
    Queue {
        count: u64,
        in_order: bool,
    },
    GiveUp {},
    Hear {
        call: CallId,
        outcome: String,
    },
    HearLate {
        call: CallId,
        is_charged: bool,
    },
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) enum OrderEvent {
    Placed { call: CallId, plan: Plan },
    Queued { call: CallId },
    Heard { outcome: String },
    HeardLate {},
    Seated {},
    Refunded {},
    GivenUp {},
}
impl Event for OrderEvent {}

impl Entity for Order {
    const KIND: &'static str = "order";
    type Id = String;
    type Command = OrderCommand;
    type Event = OrderEvent;
    type Reply = ();
    type Rejection = Never;

    fn decide(&self, command: OrderCommand, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, Never> {
        match command {
            OrderCommand::Place { cents, plan } => {
                let within = Duration::from_secs(plan.within_secs);
                let calling = turn.call::<Payments>(Charge { cents }).within(within);
                let calling = if plan.once { calling.once() } else { calling };
                let call = calling.id();
                turn.emit(OrderEvent::Placed { call, plan });
            }
            OrderCommand::Queue { count, in_order } => {
                for cents in 0..count {
                    let calling = turn.call::<Payments>(Charge { cents });
                    let calling = if in_order { calling.in_order() } else { calling };
                    let call = calling.id();
                    turn.emit(OrderEvent::Queued { call });
                }
            }
            OrderCommand::GiveUp {} => {
                if let Some(call) = self.call {
                    turn.emit(OrderEvent::GivenUp {});
                    turn.cancel_call::<Payments>(call);
                }
            }
            OrderCommand::Hear { call, outcome } if Some(call) == self.call || self.queued.contains(&call) => {
                let is_paid = match self.plan.bug {
                    Some(Bug::SeatUnpaid) => outcome == "answered" || outcome == "unknown",
                    _ => outcome == "answered",
                };
                turn.emit(OrderEvent::Heard { outcome });
                match (is_paid, self.is_given_up) {
                    (true, false) => turn.emit(OrderEvent::Seated {}),
                    (true, true) if self.plan.bug != Some(Bug::PaidUnseated) => turn.emit(OrderEvent::Refunded {}),
                    _ => {}
                }
            }
            OrderCommand::HearLate { call, is_charged } if Some(call) == self.call => {
                turn.emit(OrderEvent::HeardLate {});
                if is_charged && self.plan.bug != Some(Bug::NoLateRefund) {
                    turn.emit(OrderEvent::Refunded {});
                }
            }
            OrderCommand::Hear { .. } | OrderCommand::HearLate { .. } => panic!("the outcome of another call"),
        }
        Ok(CommandAnswer::Now(()))
    }

    fn evolve(&mut self, event: &OrderEvent) {
        match event {
            OrderEvent::Placed { call, plan } => (self.call, self.plan) = (Some(*call), *plan),
            OrderEvent::Queued { call } => self.queued.push(*call),
            OrderEvent::Heard { outcome } => self.heard.push(outcome.clone()),
            OrderEvent::HeardLate {} => self.late += 1,
            OrderEvent::Seated {} => self.has_seat = true,
            OrderEvent::Refunded {} => self.refunds += 1,
            OrderEvent::GivenUp {} => self.is_given_up = true,
        }
    }
}

impl OnCallOutcome<Payments> for Order {
    fn on_call_outcome(call: CallId, outcome: CallOutcome<u64, String>) -> OrderCommand {
        let outcome = match outcome {
            CallOutcome::Answered(_) => "answered",
            CallOutcome::Failed(_) => "failed",
            CallOutcome::Refused(_) => "refused",
            CallOutcome::Unknown(_) => "unknown",
        };
        let outcome = outcome.to_owned();
        OrderCommand::Hear { call, outcome }
    }

    fn on_late_answer(call: CallId, answer: Result<u64, String>) -> OrderCommand {
        let is_charged = answer.is_ok();
        OrderCommand::HearLate { call, is_charged }
    }
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct View {}

impl Query<Order> for View {
    const NAME: &'static str = "view";
    type Answer = Order;

    fn answer(self, order: &Order, _: &Moment<'_, Order>) -> Result<Order, Never> {
        Ok(order.clone())
    }
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct Charge {
    pub(crate) cents: u64,
}

/// The worker for the provider. A [`Fake`](throng_sim::Fake) replaces it.
pub(crate) struct Payments;

impl Outside for Payments {
    const NAME: &'static str = "payments";
    const CONCURRENCY: usize = 2;
    const TIMEOUT: Duration = Duration::from_secs(10);
    const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
    type Request = Charge;
    type Answer = u64;
    type Failure = String;

    async fn call(&self, _: Charge, _: &Attempt) -> Result<u64, CallError<String>> {
        Err(CallError::NotSent("the real provider is not asked".into()))
    }
}
