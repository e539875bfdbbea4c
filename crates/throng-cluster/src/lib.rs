//! Several nodes, one service.
//!
//! Each node of a cluster owns some of the service's shards, and writes one stream, which may hold records of exactly these. Who owns what
//! stands in the journal's database, and nowhere else: a [`Directory`](throng_journal::Directory) of conditional changes. There is no leader:
//! each node looks at the same rows, comes to the same conclusions, and changes only what is its own, or what is nobody's any more.
//!
//! - [`membership`]: what a node does about what it sees. A state machine without I/O.
//! - [`frame`]: what goes over the wire, and how two nodes prove to each other that they know the secret.
//! - [`Links`]: the connections to the other nodes; an engine asks them through it.
//! - [`node_loop`]: what a node does with both, on clocks and tasks that it is handed: the simulator brings its own.
//! - [`Node`]: a loop with threads, a port and connections.
//!
//! # A shard moves
//!
//! Its owner ends its stream in order (an engine's [`release`](throng::driver::Driver::release): all that was begun is durable and answered),
//! changes the owner in the directory, and opens its next stream without the shard; the new owner ends its stream in order, too, and opens
//! one with it. Whoever asks meanwhile waits.
//!
//! # A node dies
//!
//! It is declared dead when its port refuses connections and its sessions at the database are gone, or when it was silent for 1.25 times
//! the lease while the one that watches was not. Declaring it dead seals its streams in the same transaction: from then on nothing it does
//! counts. Whoever takes its shards waits until its lease for reads is over, or its process is known to be gone.

pub mod frame;
mod joining;
mod link;
pub mod membership;
mod node;
pub mod node_loop;
mod server;
mod wire;

pub use link::Links;
pub use membership::Timing;
pub use node::{Node, NodeError, NodeOptions};
pub use node_loop::{Done, Host, Status};
pub use wire::Trust;
