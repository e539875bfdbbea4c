//! An order. It asks the customer, holds seats at the concert, is paid at the provider, and is confirmed.
//!
//! The order is in charge. Only the order decides when a hold ends. The timer and the outcome of the payment are both commands of the order, one
//! after the other, so a payment is either in time or not. Its last step, the sale of held seats, cannot be refused.
//!
//! | stage | after | goes on with |
//! |---|---|---|
//! | `asked` | `placed` | the customer's limit, then the concert |
//! | `waiting` | `wait_listed` | an offer of the concert, or a cancellation |
//! | `held` | `held`, `payment_failed` | a payment, the timer, or a cancellation |
//! | `paying` | `payment_asked` | the outcome of the payment, the timer, or a cancellation |
//! | `confirmed` | `confirmed` | a cancellation |
//! | `refused`, `expired`, `cancelled` | `closed` | nothing, except a reversal in progress |

mod messages;
mod payment;
mod queries;
#[cfg(test)]
mod tests;

pub use messages::{Ending, HoldOutcome, OrderCommand, OrderEvent, OrderRejection};
pub use payment::{PaymentStatus, PaymentView};
pub(crate) use queries::text_of;
pub use queries::{GetOrder, OrderView};

use crate::{
    concert::{Concert, ConcertCommand, ConcertRejection, ConcertReply, Offer},
    customer::{Customer, CustomerCommand, CustomerRejection, TICKETS_MAX},
};
use payment::Payment;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use throng_app::model::{Asker, CommandAnswer, Entity, OnOutcome, RequestError, Timestamp, Turn};

/// The timer that ends a hold.
const HOLD: &str = "hold";

/// The stage of an order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The customer or the concert is being asked.
    #[default]
    Asked,
    /// The order is on the waiting list.
    Waiting,
    /// Seats are held and wait for a payment.
    Held,
    /// The provider is being asked for the payment.
    Paying,
    /// The order is paid, and the seats are the customer's.
    Confirmed,
    /// The customer's limit or the concert refused it.
    Refused,
    /// The hold ended before the payment.
    Expired,
    /// The order was cancelled.
    Cancelled,
}

/// An order's state.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Order {
    customer: String,
    concert: String,
    zone: String,
    tickets: u32,
    waits: bool,
    stage: Stage,
    seats: Vec<u32>,
    cents: u64,
    until: Timestamp,
    why: Option<String>,
    payments: Vec<Payment>,
}

impl Order {
    fn has_ended(&self) -> bool {
        matches!(self.stage, Stage::Refused | Stage::Expired | Stage::Cancelled)
    }

    /// Checks that a client with a name is the customer. The box office asks without a name.
    fn check_owner(&self, from: Asker<'_>) -> Result<(), OrderRejection> {
        match from.caller() {
            Some(name) if name != self.customer => Err(OrderRejection::NotYours),
            _ => Ok(()),
        }
    }

    fn hold(&self, offer: Offer, turn: &mut Turn<'_, Self>) {
        let until = turn.now().after(Duration::from_secs(offer.hold_secs.into()));
        turn.emit(OrderEvent::Held {
            seats: offer.seats,
            cents: offer.cents,
            until,
        });
        turn.remind(HOLD, until, None, OrderCommand::Expire {});
    }

    /// Gives back the customer's tickets and the concert's seats. Both receive this after the order's earlier messages.
    fn close(&self, ending: Ending, why: Option<String>, turn: &mut Turn<'_, Self>) {
        turn.emit(OrderEvent::Closed { ending, why });
        turn.cancel(HOLD);
        self.release_seats(turn);
        let order = turn.id().clone();
        turn.send::<Customer>(self.customer.clone(), CustomerCommand::Release { order });
        self.undo_payment(turn);
    }

    fn release_seats(&self, turn: &mut Turn<'_, Self>) {
        let order = turn.id().clone();
        turn.send::<Concert>(self.concert.clone(), ConcertCommand::Release { order });
    }
}

impl Entity for Order {
    const KIND: &'static str = "order";
    type Id = String;
    type Command = OrderCommand;
    type Event = OrderEvent;
    type Reply = Stage;
    type Rejection = OrderRejection;
    const REQUESTS: &'static [&'static str] = &[Customer::KIND, Concert::KIND];

    fn creates(command: &OrderCommand) -> bool {
        matches!(command, OrderCommand::Place { .. })
    }

    fn decide(&self, command: OrderCommand, turn: &mut Turn<'_, Self>) -> Result<CommandAnswer<Self>, OrderRejection> {
        let order = turn.id().clone();
        match command {
            OrderCommand::Place { .. } if !turn.is_new() => return Err(OrderRejection::AlreadyPlaced),
            OrderCommand::Place { tickets, .. } if !(1..=TICKETS_MAX).contains(&tickets) => {
                return Err(OrderRejection::Tickets { most: TICKETS_MAX });
            }
            OrderCommand::Place {
                customer,
                concert,
                zone,
                tickets,
                waits,
            } => {
                turn.emit(OrderEvent::Placed {
                    customer: customer.to_string(),
                    concert: concert.to_string(),
                    zone,
                    tickets,
                    waits,
                });
                turn.request::<Customer>(customer, CustomerCommand::Reserve { order, tickets }, ());
            }
            OrderCommand::HearCustomer { refused } if self.stage == Stage::Asked => match refused {
                Some(_) => turn.emit(OrderEvent::Closed {
                    ending: Ending::Refused,
                    why: refused,
                }),
                None => {
                    turn.emit(OrderEvent::Allowed {});
                    let hold = ConcertCommand::Hold {
                        order,
                        zone: self.zone.clone(),
                        tickets: self.tickets,
                        waits: self.waits,
                    };
                    turn.request::<Concert>(self.concert.clone(), hold, ());
                }
            },
            OrderCommand::HearConcert { outcome } if self.stage == Stage::Asked => match outcome {
                HoldOutcome::Held(offer) => self.hold(offer, turn),
                HoldOutcome::Waiting { place } => turn.emit(OrderEvent::WaitListed { place }),
                HoldOutcome::Refused { why } => self.close(Ending::Refused, Some(why), turn),
            },
            OrderCommand::TakeOffer(offer) if matches!(self.stage, Stage::Asked | Stage::Waiting) => {
                self.hold(offer, turn);
            }
            // The order has ended meanwhile, and its release is on its way.
            OrderCommand::HearCustomer { .. } | OrderCommand::HearConcert { .. } | OrderCommand::TakeOffer(_) => {}
            OrderCommand::Pay { token } => {
                self.check_owner(turn.from())?;
                self.pay(token, turn)?;
            }
            OrderCommand::Cancel {} => {
                self.check_owner(turn.from())?;
                if self.has_ended() {
                    return Err(OrderRejection::HasEnded { stage: self.stage });
                }
                self.close(Ending::Cancelled, None, turn);
            }
            #[cfg(test)]
            OrderCommand::Expire {}
                if crate::simulation::FORGETS_PAYMENT.is_in(self.stage == Stage::Paying, &order) =>
            {
                self.release_seats(turn);
            }
            OrderCommand::Expire {} if matches!(self.stage, Stage::Held | Stage::Paying) => {
                self.close(Ending::Expired, None, turn);
            }
            OrderCommand::Expire {} => {}
            OrderCommand::HearPayment { call, outcome } => self.hear_payment(call, outcome, turn),
            OrderCommand::HearLatePayment { call, is_done } => self.hear_late_payment(call, is_done, turn),
        }
        Ok(CommandAnswer::after(|order: &Self| order.stage))
    }

    fn evolve(&mut self, event: &OrderEvent) {
        match event {
            OrderEvent::Placed {
                customer,
                concert,
                zone,
                tickets,
                waits,
            } => {
                (self.customer, self.concert, self.zone) = (customer.clone(), concert.clone(), zone.clone());
                (self.tickets, self.waits) = (*tickets, *waits);
            }
            OrderEvent::Allowed {} => {}
            OrderEvent::WaitListed { .. } => self.stage = Stage::Waiting,
            OrderEvent::Held { seats, cents, until } => {
                (self.seats, self.cents, self.until) = (seats.clone(), *cents, *until);
                self.stage = Stage::Held;
            }
            OrderEvent::Confirmed { .. } => {
                self.stage = Stage::Confirmed;
                self.evolve_payment(event);
            }
            OrderEvent::PaymentAsked { .. } => {
                self.stage = Stage::Paying;
                self.evolve_payment(event);
            }
            OrderEvent::PaymentFailed { .. } => {
                if self.stage == Stage::Paying {
                    self.stage = Stage::Held;
                }
                self.evolve_payment(event);
            }
            OrderEvent::Closed { ending, why } => {
                self.stage = match ending {
                    Ending::Refused => Stage::Refused,
                    Ending::Expired => Stage::Expired,
                    Ending::Cancelled => Stage::Cancelled,
                };
                self.why.clone_from(why);
            }
            OrderEvent::ReversalAsked { .. } | OrderEvent::Reversed { .. } | OrderEvent::ReversalRefused { .. } => {
                self.evolve_payment(event);
            }
        }
    }

    fn heap_bytes(&self) -> usize {
        let texts = self.customer.len() + self.concert.len() + self.zone.len();
        texts + self.seats.len() * 4 + self.payments.len() * size_of::<Payment>()
    }
}

impl OnOutcome<Customer> for Order {
    type Note = ();

    fn on_outcome(_: String, (): (), outcome: Result<(), RequestError<CustomerRejection>>) -> OrderCommand {
        OrderCommand::HearCustomer {
            refused: outcome.err().map(|why| why.to_string()),
        }
    }
}

impl OnOutcome<Concert> for Order {
    type Note = ();

    fn on_outcome(
        concert: String,
        (): (),
        outcome: Result<ConcertReply, RequestError<ConcertRejection>>,
    ) -> OrderCommand {
        let refused = |why: String| HoldOutcome::Refused { why };
        let outcome = match outcome {
            Ok(ConcertReply::Held(offer)) => HoldOutcome::Held(offer),
            Ok(ConcertReply::Waiting { place }) => HoldOutcome::Waiting { place },
            Ok(ConcertReply::Done) => refused("the concert has no seats for it".into()),
            Err(RequestError::Unknown) => refused(format!("there is no concert {concert:?}")),
            Err(why) => refused(why.to_string()),
        };
        OrderCommand::HearConcert { outcome }
    }
}
