//! The programming model, and the shard as a sans-I/O state machine.
//!
//! [`model`] has the traits that a service implements; [`shard`] runs the service. Commands, loads, clock and entropy go in; records,
//! answers and messages come out. So one seed replays one history. Neither knows sockets, files or threads.

pub mod credit;
pub mod layout;
pub mod limits;
pub mod model;
pub mod shard;
pub mod subject;
pub mod tagged;
pub mod trace_context;
