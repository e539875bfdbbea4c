//! Services on micro-batching queues, for state in memory.
//!
//! A [`Service`] is a plain object with `&mut self`, without locks and `async`. It is [started](Setup::start) on its own thread and takes
//! whole batches from a [`throng_queue`]. It has hooks for the beginning of a batch, for each so many messages, for an empty queue, and for
//! a quiet time. Work that costs the same for one message as for a thousand (a write, a lock, a wake-up) belongs there.
//!
//! ```
//! use std::time::Duration;
//! use throng_services::{Context, Reply, Service, service};
//!
//! #[derive(Default)]
//! struct Counter { count: u64 }
//!
//! enum Message { Add(u64), Get(Reply<u64>) }
//!
//! impl Service for Counter {
//!     type Message = Message;
//!     fn receive(&mut self, message: Message, _: &mut Context<Message>) {
//!         match message {
//!             Message::Add(n) => self.count += n,
//!             Message::Get(reply) => reply.send(self.count),
//!         }
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let running = service("counter", Counter::default).start()?;
//! let mut counter = running.address();
//! for n in 1..=100 {
//!     counter.send(Message::Add(n))?;
//! }
//! let count = counter.ask(Message::Get).wait(Duration::from_secs(5))?;
//! assert_eq!(count, 5_050);
//! running.stop();
//! # Ok(())
//! # }
//! ```
//!
//! # What is here
//!
//! - [`service()`]: one service, on its own thread or [in place](Setup::in_place); [`Address`]es send and ask.
//! - [`pool()`]: several of a kind, round robin or sharded by a key.
//! - [`Context`]: timers, periodic jobs, and requests to other services without waiting.
//! - [`coordinate`]: all, some or the first of several answers by a deadline, for threads; tasks have `futures` for it.
//! - [`bus`]: typed topics with subscribers and groups of consumers.
//! - [`stats`]: counts, levels and timings of the last two minutes, second by second; to Prometheus and StatsD.
//! - [`circuit`] and [`retry`]: a circuit breaker and a retry budget without a clock, for calls that leave the process.
//! - [`health`]: the health of parts, by reports with a time to live.
//!
//! # What it promises
//!
//! - One message at a time, in the order its sender sent them.
//! - **A panic costs its message**: it is counted, its asker gets [`AskError::Gone`], and the service continues with the next one, as it is
//!   or made anew ([`OnPanic`]).
//! - **Everything is bounded**: queues, timers, requests, subscribers' backlogs, keys of statistics.
//! - **Stopping drains**: messages sent before [`Running::stop`] are received first.
//! - Nothing spins, and an idle service costs nothing: its thread sleeps until a message or a timer.

/// Implements a `Debug` that shows only the name.
macro_rules! opaque {
    ($name:ident $(<$of:ident>)?) => {
        impl $(<$of>)? ::std::fmt::Debug for $name $(<$of>)? {
            fn fmt(&self, out: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                out.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    };
}

mod address;
pub mod bus;
pub mod circuit;
pub mod coordinate;
pub mod health;
mod in_place;
mod key;
mod park;
mod pool;
mod reply;
pub mod retry;
mod service;
pub mod stats;

pub use address::{Address, SharedAddress};
pub use key::key_of;
pub use pool::{Pool, PoolAddress, PoolSetup, pool};
pub use reply::{AskError, Pending, Reply};
pub use service::{ASKS_AND_TIMERS_MAX, Context, Counts, OnPanic, Running, Service, Setup, TimerId, TooMany, service};
pub use throng_queue::{HandOver, SendError, TrySendError};

/// The README's examples are run, too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
