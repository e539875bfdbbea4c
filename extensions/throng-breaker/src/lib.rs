//! A circuit breaker and retries for calls that leave the process: to a broker, to Redis, over HTTP.
//!
//! A server that is down should get no calls, and its callers should fail at once. A [`Breaker`] counts how calls end. While enough of them
//! succeed it is *closed*, and all calls pass. When too many fail it *opens*: for a pause that doubles each time, it refuses calls and
//! tells when to try again ([`Refused::retry_after`], an HTTP server's `Retry-After`). Then it is *half-open*: a few calls pass as probes.
//! If they succeed it closes; at the first failure it opens again.
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
//! The decisions are made by [`Circuit`] of `throng-services`, a state machine without a clock. [`BreakerLayer`] puts a breaker around a
//! tower service. [`Retry`] is a policy for tower's retry layer, with growing pauses, jitter and a budget that bounds the load added by
//! retries.

mod breaker;
mod layer;
mod retry;

pub use breaker::{Breaker, Breakers, Call, Refused};
pub use layer::{BreakerLayer, BreakerService, Error};
pub use retry::{Pauses, Retry, RetryBudget};
pub use throng_services::circuit::{Circuit, CircuitState, Outcome, Permit, Settings};
