//! The first n primes over HTTP. It shows the cost of a stateless service on the gateway.
//!
//! `GET /primes/{n}` answers with a JSON array of strings: `["2","3","5"]` for n = 3, `[]` for n = 0. The largest n is [`MOST`]. Anything else gets
//! 400 with the reason. Nothing is stored or cached between requests. As in the original comparison of two servers, each request computes its list,
//! because the computation is the load.
//!
//! - [`first`]: the computation, and its algorithm;
//! - [`routes()`]: the route. Long computations leave the event loop.

mod compute;
mod routes;
mod workers;

pub use compute::{MOST, first, json};
pub use routes::routes;

use throng_app::App;

/// Returns the builder unchanged, since this service has no entity.
#[must_use]
pub fn kinds(engine: throng::Builder) -> throng::Builder {
    engine
}

/// Returns the service with its kinds, routes and documentation.
#[must_use]
pub fn app() -> App {
    App::new("primes")
        .version(env!("CARGO_PKG_VERSION"))
        .engine(kinds)
        .routes(routes)
}
