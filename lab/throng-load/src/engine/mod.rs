//! The engine: workers that drive connections, and the coordinator that follows them.

mod connection;
mod coordinator;
mod http2;
mod options;
mod parser;
mod poll;
mod resolver;
mod tls;
mod worker;

pub use coordinator::{Progress, Run, run, run_watched};
pub use options::{Options, Stop, file_descriptors_for};
pub(crate) use parser::{Fed, Parser};
pub use tls::{TlsOptions, over_tls};
