//! The order's messages: commands, events and rejections.

use crate::{
    concert::Offer,
    payments::{Declined, Receipt},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng_app::model::{CallId, CallOutcome, Event, Rejection, TextId, Timestamp};

use super::Stage;

/// A command of an order. None is public: clients have the routes of the service.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OrderCommand {
    /// Asks for seats.
    Place {
        /// The name of the customer, who alone may pay and cancel.
        customer: TextId,
        /// The concert's id.
        concert: TextId,
        /// The zone's name.
        zone: String,
        /// The number of seats.
        tickets: u32,
        /// Waits where too few are free.
        waits: bool,
    },
    /// Pays for the held seats.
    Pay {
        /// The provider's token for the means of payment.
        token: String,
    },
    /// Gives the seats back, also paid ones; or leaves the waiting list.
    Cancel {},
    /// Hears whether the customer may have more tickets. Only the engine sends this.
    HearCustomer {
        /// The reason of a refusal.
        refused: Option<String>,
    },
    /// Hears from the concert. Only the engine sends this.
    HearConcert {
        /// The reply, or the reason of a refusal.
        outcome: HoldOutcome,
    },
    /// Takes seats that became free. Only the concert sends this.
    TakeOffer(Offer),
    /// Ends the hold. Only the timer sends this.
    Expire {},
    /// Hears the outcome of a charge or a reversal. Only the engine sends this.
    HearPayment {
        /// The charge or reversal that is over.
        call: CallId,
        /// The provider's answer, or that there is none.
        outcome: CallOutcome<Receipt, Declined>,
    },
    /// Hears an answer that came after the outcome. Only the engine sends this.
    HearLatePayment {
        /// The charge or reversal whose outcome was told before.
        call: CallId,
        /// The provider did it.
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
        /// Its place, from 1.
        place: u32,
    },
    /// There are no seats for it.
    Refused {
        /// Words for the customer.
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
        /// Waits where too few are free.
        waits: bool,
    },
    /// The tickets are within the customer's limit.
    Allowed {},
    /// The order is on the waiting list.
    WaitListed {
        /// Its place, from 1.
        place: u32,
    },
    /// Seats are held for the order.
    Held {
        /// The numbers of the seats.
        seats: Vec<u32>,
        /// The price of all of them.
        cents: u64,
        /// The end of the hold.
        until: Timestamp,
    },
    /// The provider was asked for the money.
    PaymentAsked {
        /// The number of the payment within the order, from 1.
        number: u32,
        /// The idempotency key at the provider.
        call: CallId,
    },
    /// The money did not come. The seats are still held.
    PaymentFailed {
        /// The number of the payment.
        number: u32,
        /// The provider's words, or why it was not asked.
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
        /// The price of all of them.
        cents: u64,
    },
    /// The order has ended without seats.
    Closed {
        /// The way in which it ended.
        ending: Ending,
        /// The reason of a refusal, in words.
        why: Option<String>,
    },
    /// The provider was asked to reverse a payment.
    ReversalAsked {
        /// The number of the payment.
        number: u32,
        /// The idempotency key at the provider.
        call: CallId,
    },
    /// The provider has reversed the payment: nothing of it remains charged.
    Reversed {
        /// The number of the payment.
        number: u32,
    },
    /// The provider will not reverse the payment: the box office has to look at it.
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
        /// The most there can be.
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
        /// Payments asked for so far.
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
