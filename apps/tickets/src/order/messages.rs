//! The messages of an order: commands, events and rejections.

use crate::{
    concert::Offer,
    payments::{Declined, Receipt},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng_app::model::{CallId, CallOutcome, Event, Rejection, TextId, Timestamp};

use super::Stage;

/// A command of an order. None is public: clients use the service's routes.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OrderCommand {
    /// Asks for seats.
    Place {
        /// The name of the customer. Only the customer may pay and cancel.
        customer: TextId,
        /// The concert's id.
        concert: TextId,
        /// The zone's name.
        zone: String,
        /// The number of seats.
        tickets: u32,
        /// True if the order waits when too few seats are free.
        waits: bool,
    },
    /// Pays for the held seats.
    Pay {
        /// The provider's token for the means of payment.
        token: String,
    },
    /// Gives the seats back, even paid ones, or leaves the waiting list.
    Cancel {},
    /// Delivers the customer's answer about the limit. Only the engine sends this.
    HearCustomer {
        /// The reason for a refusal.
        refused: Option<String>,
    },
    /// Delivers the concert's answer. Only the engine sends this.
    HearConcert {
        /// The reply, or the reason for a refusal.
        outcome: HoldOutcome,
    },
    /// Takes seats that became free. Only the concert sends this.
    TakeOffer(Offer),
    /// Ends the hold. Only the timer sends this.
    Expire {},
    /// Delivers the outcome of a charge or a reversal. Only the engine sends this.
    HearPayment {
        /// The charge or reversal that has ended.
        call: CallId,
        /// The provider's answer, or the reason why there is none.
        outcome: CallOutcome<Receipt, Declined>,
    },
    /// Delivers an answer that arrived after the outcome. Only the engine sends this.
    HearLatePayment {
        /// The charge or reversal whose outcome was delivered before.
        call: CallId,
        /// True if the provider did it.
        is_done: bool,
    },
}

/// The concert's reply to an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HoldOutcome {
    /// The seats are held.
    Held(Offer),
    /// The order is on the waiting list.
    Waiting {
        /// The place, from 1.
        place: u32,
    },
    /// The order gets no seats.
    Refused {
        /// The reason, in words for the customer.
        why: String,
    },
}

/// An event of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OrderEvent {
    /// The order was placed.
    Placed {
        /// The customer's name.
        customer: String,
        /// The concert's id.
        concert: String,
        /// The zone's name.
        zone: String,
        /// The number of seats.
        tickets: u32,
        /// True if the order waits when too few seats are free.
        waits: bool,
    },
    /// The tickets are within the customer's limit.
    Allowed {},
    /// The order is on the waiting list.
    WaitListed {
        /// The place, from 1.
        place: u32,
    },
    /// Seats are held for the order.
    Held {
        /// The numbers of the seats.
        seats: Vec<u32>,
        /// The price of all of them, in cents.
        cents: u64,
        /// The end of the hold.
        until: Timestamp,
    },
    /// The provider was asked for a payment.
    PaymentAsked {
        /// The number of the payment within the order, from 1.
        number: u32,
        /// The idempotency key at the provider.
        call: CallId,
    },
    /// The payment failed. The seats are still held.
    PaymentFailed {
        /// The number of the payment.
        number: u32,
        /// The provider's words, or the reason why it was not asked.
        why: String,
    },
    /// The order is paid, and the seats are sold.
    Confirmed {
        /// The number of the payment.
        number: u32,
        /// The concert's id.
        concert: String,
        /// The number of seats.
        tickets: u32,
        /// The price of all of them, in cents.
        cents: u64,
    },
    /// The order has ended without seats.
    Closed {
        /// The kind of the ending.
        ending: Ending,
        /// The reason for a refusal, in words.
        why: Option<String>,
    },
    /// The provider was asked to reverse a payment.
    ReversalAsked {
        /// The number of the payment.
        number: u32,
        /// The idempotency key at the provider.
        call: CallId,
    },
    /// The provider has reversed the payment, so that nothing of it remains charged.
    Reversed {
        /// The number of the payment.
        number: u32,
    },
    /// The provider refuses to reverse the payment. The box office has to handle it.
    ReversalRefused {
        /// The number of the payment.
        number: u32,
        /// The provider's words.
        why: String,
    },
}

impl Event for OrderEvent {}

/// The reason why an order has ended without seats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The customer's limit or the concert refused it.
    Refused,
    /// No payment came in time.
    Expired,
    /// The customer or the box office cancelled it.
    Cancelled,
}

/// A refusal of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum OrderRejection {
    /// The id was used for another order.
    #[error("the order was placed before")]
    AlreadyPlaced,
    /// The number of tickets is 0, or more than a customer may have.
    #[error("an order has 1 to {most} tickets")]
    Tickets {
        /// The most tickets of one order.
        most: u32,
    },
    /// The caller is not the order's customer.
    #[error("the order is another customer's")]
    NotYours,
    /// The order cannot be paid now.
    #[error("the order is {stage:?} and cannot be paid")]
    NotPayable {
        /// The stage of the order.
        stage: Stage,
    },
    /// Too many payments of this order have failed.
    #[error("{payments} payments of this order have failed")]
    TooManyPayments {
        /// The number of payments so far.
        payments: u32,
    },
    /// The order has ended.
    #[error("the order is {stage:?} and cannot be cancelled")]
    HasEnded {
        /// The stage of the order.
        stage: Stage,
    },
}

impl Rejection for OrderRejection {
    fn code(&self) -> &'static str {
        match self {
            Self::AlreadyPlaced => "already-placed",
            Self::Tickets { .. } => "tickets",
            Self::NotYours => "not-yours",
            Self::NotPayable { .. } => "not-payable",
            Self::TooManyPayments { .. } => "too-many-payments",
            Self::HasEnded { .. } => "has-ended",
        }
    }

    fn status(&self) -> u16 {
        match self {
            Self::NotYours => 403,
            Self::Tickets { .. } => 422,
            _ => 409,
        }
    }
}
