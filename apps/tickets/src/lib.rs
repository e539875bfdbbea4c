//! Tickets on sale: seats are held for ten minutes, paid outside, and confirmed; whoever comes too late waits in line.
//!
//! This is the second example of the book in `docs/`, where several entities and a provider outside have to agree:
//!
//! - [`concert`]: the seats of a concert, and its waiting lists;
//! - [`customer`]: the limit of tickets over all concerts;
//! - [`order`]: leads from the hold over the payment to the confirmation, and back where that fails;
//! - [`payments`]: the provider outside;
//! - [`best_sellers`]: a read model of what was sold in each hour;
//! - [`access`] and [`routes()`]: what a customer, the box office and everybody may see and do.

pub mod access;
pub mod best_sellers;
pub mod concert;
pub mod customer;
pub mod order;
pub mod payments;
mod routes;
#[cfg(test)]
mod simulation;

pub use routes::{describe, routes};

use access::Counter;
use best_sellers::BestSellers;
use concert::{Concert, GetConcert};
use customer::{Customer, GetCustomer};
use order::{GetOrder, Order};
use payments::{Payments, Settings};
use throng_app::{App, Defaults};

/// Returns the service. Its provider is the one for demonstrations, as the variable `TICKETS_PROVIDER` sets it.
///
/// `serve --role trial` takes everybody for the box office: for a trial, and for a load generator, on a machine of one's own.
#[must_use]
pub fn app() -> App {
    with_counter(Counter::Guarded).role("trial", || Ok(with_counter(Counter::Open)))
}

fn with_counter(counter: Counter) -> App {
    App::new("tickets")
        .version(env!("CARGO_PKG_VERSION"))
        .with::<Concert>()
        .query::<Concert, GetConcert>()
        .with::<Customer>()
        .query::<Customer, GetCustomer>()
        .with::<Order>()
        .query::<Order, GetOrder>()
        .on_outcome::<Order, Customer>()
        .on_outcome::<Order, Concert>()
        .outside::<Order, Payments>(Payments::default())
        .projection(BestSellers)
        .routes(move |engine| routes(engine, counter))
        .describe(describe())
        .gateway(move |gateway| counter.guard(gateway))
        .defaults(|| Settings::of_environment().map(|_| Defaults::default()))
}
