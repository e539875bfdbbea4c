//! Accounts that are opened, and take deposits and withdrawals.

pub mod account;

use account::{Account, GetAccount};
use throng_app::App;

/// Returns the service: its kinds with their queries.
#[must_use]
pub fn app() -> App {
    App::new("{{name}}")
        .version(env!("CARGO_PKG_VERSION"))
        .with::<Account>()
        .query::<Account, GetAccount>()
}
