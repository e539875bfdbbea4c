//! A customer: limits the tickets of all orders together.
//!
//! An order asks its customer before it asks the concert. So two simultaneous orders for two concerts cannot both take the last ticket of the limit.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use throng_app::model::{CommandAnswer, Entity, Event, Moment, Query, Rejection, Turn, View};

/// The most tickets of one customer, over all concerts.
pub const TICKETS_MAX: u32 = 8;

/// A customer's state.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Customer {
    /// The tickets of each order, by its id.
    orders: BTreeMap<String, u32>,
}

/// A command of a customer. Only orders send them.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CustomerCommand {
    /// Counts the tickets of an order.
    Reserve {
        /// The order's id.
        order: String,
        /// The number of tickets.
        tickets: u32,
    },
    /// Stops counting the order.
    Release {
        /// The order's id.
        order: String,
    },
}

/// An event of a customer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CustomerEvent {
    /// The tickets of an order count from now on.
    Reserved {
        /// The order's id.
        order: String,
        /// The number of tickets.
        tickets: u32,
    },
    /// The order no longer counts.
    Released {
        /// The order's id.
        order: String,
    },
}

impl Event for CustomerEvent {}

/// A refusal of a customer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum CustomerRejection {
    /// The tickets of all orders would exceed the limit.
    #[error("a customer has at most {TICKETS_MAX} tickets, this one has {tickets}")]
    LimitReached {
        /// The tickets of the existing orders.
        tickets: u32,
    },
}

impl Rejection for CustomerRejection {
    fn code(&self) -> &'static str {
        "limit-reached"
    }
}

impl Customer {
    fn tickets(&self) -> u32 {
        self.orders.values().sum()
    }
}

impl Entity for Customer {
    const KIND: &'static str = "customer";
    type Id = String;
    type Command = CustomerCommand;
    type Event = CustomerEvent;
    type Reply = ();
    type Rejection = CustomerRejection;

    fn decide(
        &self,
        command: CustomerCommand,
        turn: &mut Turn<'_, Self>,
    ) -> Result<CommandAnswer<Self>, CustomerRejection> {
        match command {
            CustomerCommand::Reserve { order, tickets } => {
                let has = self.tickets();
                if has.saturating_add(tickets) > TICKETS_MAX {
                    return Err(CustomerRejection::LimitReached { tickets: has });
                }
                turn.emit(CustomerEvent::Reserved { order, tickets });
            }
            CustomerCommand::Release { order } => {
                if self.orders.contains_key(&order) {
                    turn.emit(CustomerEvent::Released { order });
                }
            }
        }
        Ok(CommandAnswer::Now(()))
    }

    fn evolve(&mut self, event: &CustomerEvent) {
        match event {
            CustomerEvent::Reserved { order, tickets } => drop(self.orders.insert(order.clone(), *tickets)),
            CustomerEvent::Released { order } => drop(self.orders.remove(order)),
        }
    }

    fn heap_bytes(&self) -> usize {
        self.orders.len() * 64
    }
}

/// The query for the orders that count.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct GetCustomer {}

/// A customer's orders.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CustomerView {
    /// The tickets of all orders.
    pub tickets: u32,
    /// The most tickets that the customer may have over all orders.
    pub limit: u32,
    /// The orders that wait, hold seats or are confirmed, with their tickets.
    pub orders: BTreeMap<String, u32>,
}

impl Query<Customer> for GetCustomer {
    const NAME: &'static str = View::NAME;
    type Answer = CustomerView;

    fn answer(self, customer: &Customer, _: &Moment<'_, Customer>) -> Result<CustomerView, CustomerRejection> {
        Ok(CustomerView {
            tickets: customer.tickets(),
            limit: TICKETS_MAX,
            orders: customer.orders.clone(),
        })
    }
}
