//! The engine's only concurrency, small enough for a model checker.
//!
//! - [`QueuedLock`]: a shard is a lock, not a thread. A thread with a command takes the lock, which is nearly always free. If it is busy,
//!   the command goes to the inbox. The holder empties the inbox before its own work, and looks at it again after unlocking.
//! - [`Leader`]: at most one loop leads a commit. Others that arrive meanwhile go on, and one of them leads the next.
//! - [`OpenCommit`]: records get their place while the shard's lock is held, so that log order is execution order, and an answer rests on
//!   one number.
//! - [`Relay`]: tasks that wait for another thread's commit are woken together with the others of their thread, by one signal.
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
