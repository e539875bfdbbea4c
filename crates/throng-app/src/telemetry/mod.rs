//! The flags that say what is told of requests: the access log, and traces.

mod access_log;
mod traces;

pub use access_log::AccessLogArguments;
pub use traces::TraceArguments;
