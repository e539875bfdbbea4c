//! A bounded queue that hands work over in batches, whose size grows with the backlog.
//!
//! Passing one item between threads costs a few dozen nanoseconds at best, and several microseconds if a thread has to be woken. The item
//! itself is often less work than that. Passing a thousand at once costs the same, but a sender that waits until it has a thousand delays
//! the first one. This queue does neither: **items sent while the receiver is busy are its next batch**, and an item sent while it waits
//! wakes it at once. So a batch is one item at a quiet moment and a full buffer in a surge, without a timer and without anything to tune.
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
//! - **Bounded**: [`Options`] set how many items there can be and in how much memory. A full queue makes senders wait, or returns an error
//!   ([`Sender::try_send`]).
//! - **Nothing lost, duplicated or reordered**: every item is received once, those of one sender in the order they were sent.
//! - **Nothing left behind**: with [`HandOver::Adaptive`] no item waits for a flush. With [`HandOver::Every`] a sender gathers the set
//!   number of items, and hands the rest over on [`Sender::flush`] and when it is dropped.
//! - **Threads and tasks on both sides**: every waiting operation blocks a thread, or is a future that any runtime can drive. Nothing
//!   spins; a busy thread yields its core a few times before it sleeps. A dropped future loses nothing that was taken.
//! - **Closing is visible**: when the last receiver is gone, senders get back what was not received. When the last sender is gone, the
//!   receiver gets the rest, and then [`Closed`].
//! - **No allocation in a steady state**: buffers are reused.
//!
//! # How many receivers?
//!
//! Usually one: it takes everything there is with one lock. Several (clones of a [`Receiver`]) share the work, each taking its part.

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

/// Returns the first sender and the first receiver of a new queue.
///
/// [`Options`] describes its memory and when items are handed over.
#[must_use]
pub fn bounded<T>(options: Options) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(shared::Shared::new(options));
    (Sender::new(Arc::clone(&shared)), Receiver::new(shared))
}
