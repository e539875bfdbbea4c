//! The programming model and the shard as a sans-I/O state machine.
