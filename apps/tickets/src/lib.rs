//! Tickets on sale. Seats are held for ten minutes, paid at an external provider, and confirmed. Later customers wait in line.
//!
//! This is the second example of the book in `docs/`. Several entities and an external provider have to agree:
//!
//! - [`concert`]: the seats of a concert, and its waiting lists;
//! - [`customer`]: the limit of tickets over all concerts;
//! - [`order`]: leads from the hold over the payment to the confirmation, and undoes the steps if that fails;
//! - [`payments`]: the external provider;
//! - [`best_sellers`]: a read model of the sales of each hour;
//! - [`access`] and [`routes()`]: the rights and routes of customers, the box office and everyone else.

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

/// Returns the service. Its provider is for demonstrations, with the settings of the variable `TICKETS_PROVIDER`.
///
/// `serve --role trial` treats every caller as the box office. Use it only on your own machine, for trials and load generators.
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
