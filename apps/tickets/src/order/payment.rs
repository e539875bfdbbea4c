//! The payments of an order: charges at the provider, and their reversals.
//!
//! | outcome of a charge | what the order does |
//! |---|---|
//! | done, and the seats are still held | the seats are sold |
//! | done, and the order has ended | reverses the payment |
//! | failed, or nothing was sent | the seats stay held, and may be paid again |
//! | not known | reverses the payment, and allows another one |
//!
//! A reversal names the payment. The provider returns the money, or refuses the payment if it arrives later. So a reversal may be repeated until its
//! outcome is known.

use super::{HOLD, Order, OrderEvent, OrderRejection, Stage};
use crate::{
    concert::{Concert, ConcertCommand},
    order::OrderCommand,
    payments::{Declined, PaymentRequest, Payments, Receipt},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use throng_app::model::{CallId, CallOutcome, OnCallOutcome, Turn};

/// The longest time of a payment. It may end after the hold; then it is reversed.
const PAYMENT_WITHIN: Duration = Duration::from_secs(30);
/// The time after which a reversal without an outcome is requested again.
const REVERSAL_WITHIN: Duration = Duration::from_hours(24);
const PAYMENTS_MAX: usize = 5;

/// A payment of an order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Payment {
    call: CallId,
    status: PaymentStatus,
    /// The call of its latest reversal.
    reversal: Option<CallId>,
}

/// The status of a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PaymentStatus {
    /// The provider is being asked for the money.
    Asked,
    /// The money was charged.
    Taken,
    /// No money was charged.
    Failed,
    /// The provider is being asked to reverse it.
    Reversing,
    /// Nothing of it remains charged.
    Reversed,
    /// The provider refuses to reverse it.
    ReversalRefused,
}

/// A payment in the view of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PaymentView {
    /// The name of the payment at the provider.
    pub payment: String,
    /// The known state of the payment at the provider.
    pub status: PaymentStatus,
}

/// Returns the name of a payment at the provider: the order's id, and the number of the payment within the order.
fn name_of(order: &str, number: u32) -> String {
    format!("{order}/{number}")
}

impl Order {
    pub(super) fn payment_views(&self, order: &str) -> Vec<PaymentView> {
        let view = |(number, payment): (u32, &Payment)| PaymentView {
            payment: name_of(order, number),
            status: payment.status,
        };
        (1..).zip(&self.payments).map(view).collect()
    }

    pub(super) fn pay(&self, token: String, turn: &mut Turn<'_, Self>) -> Result<(), OrderRejection> {
        if self.stage != Stage::Held || turn.now() >= self.until {
            return Err(OrderRejection::NotPayable { stage: self.stage });
        }
        let number = self.payments.len() as u32 + 1;
        if self.payments.len() >= PAYMENTS_MAX {
            return Err(OrderRejection::TooManyPayments { payments: number - 1 });
        }
        let charge = PaymentRequest::Charge {
            payment: name_of(turn.id(), number),
            cents: self.cents,
            token,
        };
        let call = turn.call::<Payments>(charge).within(PAYMENT_WITHIN).id();
        turn.emit(OrderEvent::PaymentAsked { number, call });
        Ok(())
    }

    /// Undoes the payment of an order that has ended. A payment in progress makes no further attempt, and a charged one is reversed.
    pub(super) fn undo_payment(&self, turn: &mut Turn<'_, Self>) {
        for (number, payment) in (1..).zip(&self.payments) {
            match payment.status {
                PaymentStatus::Asked => turn.cancel_call::<Payments>(payment.call),
                PaymentStatus::Taken => Self::reverse(number, turn),
                _ => {}
            }
        }
    }

    fn reverse(number: u32, turn: &mut Turn<'_, Self>) {
        let reverse = PaymentRequest::Reverse {
            payment: name_of(turn.id(), number),
        };
        let call = turn.call::<Payments>(reverse).within(REVERSAL_WITHIN).id();
        turn.emit(OrderEvent::ReversalAsked { number, call });
    }

    pub(super) fn hear_payment(
        &self,
        call: CallId,
        outcome: CallOutcome<Receipt, Declined>,
        turn: &mut Turn<'_, Self>,
    ) {
        for (number, payment) in (1..).zip(&self.payments) {
            match payment.status {
                PaymentStatus::Asked if payment.call == call => return self.hear_charge(number, outcome, turn),
                PaymentStatus::Reversing if payment.reversal == Some(call) => {
                    return Self::hear_reversal(number, outcome, turn);
                }
                _ => {}
            }
        }
    }

    fn hear_charge(&self, number: u32, outcome: CallOutcome<Receipt, Declined>, turn: &mut Turn<'_, Self>) {
        #[cfg(test)]
        {
            use crate::simulation::{CHARGES_TWICE, KEEPS_MONEY, TRUSTS_UNKNOWN};
            let is_unknown = matches!(outcome, CallOutcome::Unknown(_)) && self.stage == Stage::Paying;
            if KEEPS_MONEY.is_in(self.has_ended(), turn.id()) {
                return;
            }
            if TRUSTS_UNKNOWN.is_in(is_unknown, turn.id()) {
                return self.confirm(number, turn);
            }
            if CHARGES_TWICE.is_in(is_unknown, turn.id()) {
                let why = "there is no answer".to_owned();
                return turn.emit(OrderEvent::PaymentFailed { number, why });
            }
        }
        match outcome {
            CallOutcome::Answered(_) if self.stage == Stage::Paying => self.confirm(number, turn),
            CallOutcome::Answered(_) => Self::reverse(number, turn),
            CallOutcome::Failed(Declined { why }) | CallOutcome::Refused(why) => {
                turn.emit(OrderEvent::PaymentFailed { number, why });
            }
            CallOutcome::Unknown(why) => {
                turn.emit(OrderEvent::PaymentFailed { number, why });
                Self::reverse(number, turn);
            }
        }
    }

    fn confirm(&self, number: u32, turn: &mut Turn<'_, Self>) {
        turn.emit(OrderEvent::Confirmed {
            number,
            concert: self.concert.clone(),
            tickets: self.tickets,
            cents: self.cents,
        });
        turn.cancel(HOLD);
        let order = turn.id().clone();
        turn.send::<Concert>(self.concert.clone(), ConcertCommand::Sell { order });
    }

    fn hear_reversal(number: u32, outcome: CallOutcome<Receipt, Declined>, turn: &mut Turn<'_, Self>) {
        match outcome {
            CallOutcome::Answered(_) => turn.emit(OrderEvent::Reversed { number }),
            CallOutcome::Failed(Declined { why }) => turn.emit(OrderEvent::ReversalRefused { number, why }),
            CallOutcome::Refused(_) | CallOutcome::Unknown(_) => Self::reverse(number, turn),
        }
    }

    /// Reverses a charge that counted as failed, but was made by another attempt with an unknown outcome.
    pub(super) fn hear_late_payment(&self, call: CallId, is_done: bool, turn: &mut Turn<'_, Self>) {
        for (number, payment) in (1..).zip(&self.payments) {
            if payment.call == call && payment.status == PaymentStatus::Failed && is_done {
                Self::reverse(number, turn);
            }
        }
    }

    pub(super) fn evolve_payment(&mut self, event: &OrderEvent) {
        let (number, status) = match event {
            OrderEvent::PaymentAsked { call, .. } => {
                return self.payments.push(Payment {
                    call: *call,
                    status: PaymentStatus::Asked,
                    reversal: None,
                });
            }
            OrderEvent::PaymentFailed { number, .. } => (*number, PaymentStatus::Failed),
            OrderEvent::Confirmed { number, .. } => (*number, PaymentStatus::Taken),
            OrderEvent::ReversalAsked { number, .. } => (*number, PaymentStatus::Reversing),
            OrderEvent::Reversed { number } => (*number, PaymentStatus::Reversed),
            OrderEvent::ReversalRefused { number, .. } => (*number, PaymentStatus::ReversalRefused),
            _ => return,
        };
        if let Some(payment) = self.payments.get_mut(number as usize - 1) {
            payment.status = status;
            if let OrderEvent::ReversalAsked { call, .. } = event {
                payment.reversal = Some(*call);
            }
        }
    }
}

impl OnCallOutcome<Payments> for Order {
    fn on_call_outcome(call: CallId, outcome: CallOutcome<Receipt, Declined>) -> OrderCommand {
        OrderCommand::HearPayment { call, outcome }
    }

    fn on_late_answer(call: CallId, answer: Result<Receipt, Declined>) -> OrderCommand {
        let is_done = answer.is_ok();
        OrderCommand::HearLatePayment { call, is_done }
    }
}
