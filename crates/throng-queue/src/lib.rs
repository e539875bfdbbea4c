//! A bounded queue that hands work over in batches which grow with the backlog by themselves.
//!
//! Passing one item from one thread to another costs a few dozen nanoseconds at best and several microseconds where a thread
//! has to be woken; the item itself is often worth less than that. Passing a thousand at once costs the same. But a sender
//! that waits until it has a thousand makes the first one late. This queue does neither: **what is sent while the receiver
//! is busy is its next batch**, and what is sent while it waits wakes it at once. So a batch is one item at a quiet moment and a
//! full buffer in a surge, with nothing to tune and no timer.
//!
//! ```
//! use std::thread;
//! use throng_queue::{Options, bounded};
//!
//! let (mut sender, mut receiver) = bounded(Options::default());
//! let senders: Vec<_> = (0..4)
//!     .map(|_| {
//!         let mut sender = sender.clone(); // a clone has a batch of its own
//!         thread::spawn(move || sender.send_all(1..=10_000))
//!     })
//!     .collect();
//! sender.send(0).unwrap();
//! drop(sender); // what a sender still holds is handed over
//!
//! let mut sum = 0;
//! for batch in receiver.batches() {
//!     sum += batch.iter().sum::<u64>();
//! }
//! for sender in senders {
//!     sender.join().unwrap().unwrap();
//! }
//! assert_eq!(sum, 4 * 50_005_000);
//! ```
//!
//! # What it promises
//!
//! - **Bounded**: [`Options`] say how many items there can be and in how much memory. A full queue makes senders wait, or
//!   tells them ([`Sender::try_send`]).
//! - **Nothing lost, duplicated or reordered**: every item is received once, those of one sender in the order they were sent.
//! - **Nothing forgotten**: with [`HandOver::Adaptive`] no item waits for a flush. With [`HandOver::Every`] a sender gathers
//!   what it was told to, and hands the rest over on [`Sender::flush`] and at its end.
//! - **Threads and tasks on both sides**: every operation that waits blocks a thread, or is a future that any runtime can drive.
//!   Nobody spins; a thread in full flow yields its core a few times before it sleeps. A future that is dropped loses nothing that was
//!   taken.
//! - **Closing is seen**: when the last receiver is gone, senders get back what was not received; when the last sender is gone, the
//!   receiver gets what is left, and then [`Closed`].
//! - **No allocation in the steady state**: buffers go round.
//!
//! # How many receivers?
//!
//! One, as a rule: it takes everything there is with one lock. Several share the work (a clone of a [`Receiver`]
//! is another one), each taking its part of what is there.

mod barrier;
mod batch;
mod error;
mod interval;
mod lane;
mod later;
mod options;
mod park;
mod receiver;
mod sender;
mod shared;
mod sync;
mod waiters;

pub use batch::{Batch, Items};
pub use error::{Closed, ReceiveTimeoutError, SendError, TryFlushError, TryReceiveError, TrySendError};
pub use interval::IntervalSender;
pub use options::{HandOver, Options};
pub use receiver::{Backlog, Batches, Receiver};
pub use sender::Sender;

use std::sync::Arc;

/// A queue: its first sender and its first receiver.
///
/// Memory and manner are described at [`Options`].
#[must_use]
pub fn bounded<T>(options: Options) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(shared::Shared::new(options));
    (Sender::new(Arc::clone(&shared)), Receiver::new(shared))
}
