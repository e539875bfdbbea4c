//! Several nodes serve one service.
//!
//! Each node of a cluster owns some of the service's shards, and writes one stream, which may hold records of exactly these. The owners are
//! stored only in the journal's database: a [`Directory`](throng_journal::Directory) of conditional changes. There is no leader. Each node
//! looks at the same rows, draws the same conclusions, and changes only its own shards, or shards without a living owner.
//!
//! - [`membership`]: what a node does about what it sees. A state machine without I/O.
//! - [`frame`]: the format on the wire, and how two nodes prove to each other that they know the secret.
//! - [`Links`]: the connections to the other nodes, through which an engine sends them requests.
//! - [`node_loop`]: carries out the decisions, on clocks and tasks that it is given; the simulator has its own.
//! - [`Node`]: a loop with threads, a port and connections.
//!
//! # A shard moves
//!
//! The shard's owner ends its stream in order (an engine's [`release`](throng::driver::Driver::release): everything begun is durable and
//! answered), changes the owner in the directory, and opens its next stream without the shard. The new owner ends its stream in order, too,
//! and opens one with the shard. Requests wait meanwhile.
//!
//! # A node dies
//!
//! A node is declared dead when its port refuses connections and its database sessions are gone, or when it was silent for 1.25 times the
//! lease while the watching node was not. Declaring it dead seals its streams in the same transaction: from then on nothing it does counts.
//! The next owner of its shards waits until its lease for reads has expired, or its process is known to be gone.

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
