//! The queries of an order.

use super::{Order, OrderRejection, PaymentView, Stage};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng_app::model::{Moment, Query, Timestamp, View};

/// The query for the order. A client with a name sees only its own orders.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct GetOrder {}

/// The view of an order for its customer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OrderView {
    /// The customer's name.
    pub customer: String,
    /// The concert's id.
    pub concert: String,
    /// The zone's name.
    pub zone: String,
    /// The number of seats.
    pub tickets: u32,
    /// The stage of the order.
    pub stage: Stage,
    /// The reason for a refusal.
    pub why: Option<String>,
    /// The numbers of the seats; empty unless they are held or bought.
    pub seats: Vec<u32>,
    /// The price of all seats, in cents.
    pub cents: u64,
    /// The end of the hold, if seats are held.
    pub pay_until: Option<String>,
    /// The payments, oldest first.
    pub payments: Vec<PaymentView>,
}

impl Query<Order> for GetOrder {
    const NAME: &'static str = View::NAME;
    type Answer = OrderView;

    fn answer(self, order: &Order, moment: &Moment<'_, Order>) -> Result<OrderView, OrderRejection> {
        order.check_owner(moment.from)?;
        let is_held = matches!(order.stage, Stage::Held | Stage::Paying);
        let seats = match is_held || order.stage == Stage::Confirmed {
            true => order.seats.clone(),
            false => Vec::new(),
        };
        Ok(OrderView {
            customer: order.customer.clone(),
            concert: order.concert.clone(),
            zone: order.zone.clone(),
            tickets: order.tickets,
            stage: order.stage,
            why: order.why.clone(),
            seats,
            cents: order.cents,
            pay_until: is_held.then(|| text_of(order.until)),
            payments: order.payment_views(moment.id),
        })
    }
}

/// Formats a time by RFC 3339.
pub(crate) fn text_of(time: Timestamp) -> String {
    jiff::Timestamp::from_microsecond(time.micros).map_or_else(|why| why.to_string(), |time| time.to_string())
}
