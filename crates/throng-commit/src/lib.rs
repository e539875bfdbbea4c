//! The engine's only concurrency, small enough for a model checker.
//!
//! - [`QueuedLock`]: a shard is a lock, not a thread. Whoever holds a command takes the nearly always free lock; when it
//!   is busy the command goes to the inbox, which the holder drains first and looks at again after unlocking.
//! - [`Leader`]: at most one loop leads a commit; who comes meanwhile goes on, and leads the next.
//! - [`OpenCommit`]: records get their place while the shard's lock is held, so that log order is execution order, and
//!   one number says everything an answer rests on.
//! - [`Relay`]: who waits for a commit that another thread makes is woken with the others of its own thread, by one signal.
//!
//! The simulator drives the engine on one thread and cannot see races between these; `tests/loom.rs` can (feature `loom`).

mod leader;
mod open_commit;
mod queued_lock;
mod relay;
mod sync;

pub use leader::{Candidate, Leader, Term};
pub use open_commit::{Durable, InCommit, Lost, OpenCommit};
pub use queued_lock::{Entered, Job, QueuedLock};
pub use relay::{End, Relay};
pub use sync::instead_of_blocking;
