//! A bank: accounts, transfers that refund, daily interest, and the list of the richest.
//!
//! The bank is the running example of the book in `docs/`, and small enough to be read whole:
//!
//! - [`account`]: the entity, with its transfers to other accounts and its daily interest;
//! - [`richest`]: a read model in a second order, and the route that shows it;
//! - [`app`]: the service, for its program and for its tests.
//!
//! `receive`, `finish_transfer` and `pay_interest` are asked by accounts and timers only: they are not in the account's `PUBLIC`, and so no
//! client can ask them.

pub mod account;
pub mod richest;

use account::{Account, GetAccount};
use richest::Richest;
use throng_app::App;

/// Returns the service: its kinds, its read model, its route.
#[must_use]
pub fn app() -> App {
    App::new("bank")
        .version(env!("CARGO_PKG_VERSION"))
        .with::<Account>()
        .query::<Account, GetAccount>()
        .on_outcome::<Account, Account>()
        .projection(Richest)
        .routes(richest::routes)
        .describe(richest::describe())
}
