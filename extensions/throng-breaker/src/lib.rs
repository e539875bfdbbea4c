//! Calls that leave the process: to a broker, to Redis, over HTTP.
//!
//! What is down should be left alone, and whoever asks should hear so at once. A [`Breaker`] counts how calls end. While enough of
//! them succeed it is *closed*, and all pass. When too many fail it *opens*: for a pause that doubles each time, calls are refused without being
//! made, with the time until another may be worth it ([`Refused::retry_after`], an HTTP server's `Retry-After`). Then it is *half-open*: a few
//! calls pass as probes; once they have succeeded it closes, at the first failure it opens again.
//!
//! ```
//! use throng_breaker::{Breaker, Settings};
//!
//! let breaker = Breaker::new("broker", Settings { calls_min: 2, ..Settings::default() });
//! for _ in 0..2 {
//!     breaker.enter()?.failed();
//! }
//! assert!(breaker.enter().is_err(), "it is left alone now");
//! # Ok::<(), throng_breaker::Refused>(())
//! ```
//!
//! The decisions are [`Circuit`]'s, a state machine without a clock of `throng-services`. [`BreakerLayer`] puts a breaker around a tower service; [`Retry`] is a policy for
//! tower's own retry layer that pauses longer each time, with jitter, and spends from a budget, so that retries never multiply the load
//! on what is in trouble.

mod breaker;
mod layer;
mod retry;

pub use breaker::{Breaker, Breakers, Call, Refused};
pub use layer::{BreakerLayer, BreakerService, Error};
pub use retry::{Pauses, Retry, RetryBudget};
pub use throng_services::circuit::{Circuit, CircuitState, Outcome, Permit, Settings};
