//! Private servers for tests and measurements: each in a temporary directory, on a free port of the loopback, gone with
//! whoever started it.
//!
//! ```no_run
//! let server = servers::Postgres::start(servers::PostgresOptions::default())?;
//! println!("psql {}", server.url("postgres"));
//! # Ok::<(), servers::Error>(())
//! ```
//!
//! A server is watched over by a small shell that reads from a pipe. However the process that started it ends, also by
//! `kill -9`, the pipe closes, the shell ends the server and removes its directory. A server that cannot be had is an
//! [`Error`] with one sentence that says what to do, never a skipped test.

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
