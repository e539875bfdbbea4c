//! The first n primes over HTTP: what a stateless service costs on the gateway.
//!
//! `GET /primes/{n}` answers a JSON array of strings: `["2","3","5"]` for n = 3, `[]` for n = 0. There are answers up to
//! n = [`MOST`]; anything else is told why with 400. Nothing is kept between requests, and nothing is cached: the list is
//! computed for every request, as in the original comparison of two servers, because the computation is the load.
//!
//! - [`first`]: the computation, and its algorithm;
//! - [`routes()`]: the route; what takes long leaves the loop.

mod compute;
mod routes;
mod workers;

pub use compute::{MOST, first, json};
pub use routes::routes;

use throng_app::App;

/// Gives an engine nothing: there is no entity in this service.
#[must_use]
pub fn kinds(engine: throng::Builder) -> throng::Builder {
    engine
}

/// The service: its kinds, its routes, its documentation.
#[must_use]
pub fn app() -> App {
    App::new("primes")
        .version(env!("CARGO_PKG_VERSION"))
        .engine(kinds)
        .routes(routes)
}
