//! Private servers for tests and measurements. Each has a temporary directory and a free port of the loopback, and ends with the process that started
//! it.
//!
//! ```no_run
//! let server = servers::Postgres::start(servers::PostgresOptions::default())?;
//! println!("psql {}", server.url("postgres"));
//! # Ok::<(), servers::Error>(())
//! ```
//!
//! A small shell watches each server and reads from a pipe. The pipe closes however the process that started it ends, also by `kill -9`. Then the
//! shell ends the server and removes its directory. A server that is not available is an [`Error`] with one sentence that says what to do, never a
//! skipped test.

mod error;
mod keeper;
mod ports;
mod postgres;
mod programs;
mod rabbitmq;
mod redis;
mod seaweed;
mod standby;
mod start;
mod umadb;

pub use error::Error;
pub use ports::free_port;
pub use postgres::{Postgres, PostgresOptions, Stop};
pub use rabbitmq::{RabbitMq, RabbitMqOptions};
pub use redis::Redis;
pub use seaweed::Seaweed;
pub use umadb::Umadb;
