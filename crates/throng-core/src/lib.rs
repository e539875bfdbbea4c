//! The programming model, and the shard as a sans-I/O state machine.
//!
//! [`model`] is what a service is written with; [`shard`] runs it: batches, loads, clock and entropy go in, records,
//! answers and messages come out, so that one seed replays one history. Neither knows a socket, a file or a thread.

pub mod credit;
pub mod layout;
pub mod limits;
pub mod model;
pub mod shard;
pub mod subject;
pub mod tagged;
pub mod trace_context;
