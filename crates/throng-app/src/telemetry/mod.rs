//! The flags of the access log and of traces.

mod access_log;
mod traces;

pub use access_log::AccessLogArguments;
pub use traces::TraceArguments;
