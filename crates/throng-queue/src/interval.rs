//! A sender that is flushed by the clock.

use crate::{SendError, Sender, TrySendError};
use std::{
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

/// A sender with [`Every(n)`](crate::HandOver::Every) whose items wait at most an interval. An adaptive sender does not need it, because
/// its items do not wait.
///
/// The interval costs a lock (about 10 ns an item) and a thread that wakes once an interval. If there is a timer already, for example a task of a
/// runtime, calling [`Sender::try_flush`] from it is cheaper. It may be shared between threads.
pub struct IntervalSender<T> {
    shared: Arc<Flushed<T>>,
    flusher: Option<JoinHandle<()>>,
}

struct Flushed<T> {
    /// `None` once it is over.
    sender: Mutex<Option<Sender<T>>>,
    over: Condvar,
}

impl<T> Flushed<T> {
    fn lock(&self) -> MutexGuard<'_, Option<Sender<T>>> {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Send + 'static> IntervalSender<T> {
    /// Flushes a sender once an interval.
    pub fn new(sender: Sender<T>, interval: Duration) -> Self {
        let shared = Arc::new(Flushed {
            sender: Mutex::new(Some(sender)),
            over: Condvar::new(),
        });
        let flushed = Arc::clone(&shared);
        let flusher = thread::spawn(move || {
            let mut sender = flushed.lock();
            while let Some(open) = sender.as_mut() {
                // A full queue is tried again in the next round. A closed one is reported by the next `send`.
                if open.gathered() > 0 {
                    open.hand_over();
                }
                let waited = flushed.over.wait_timeout(sender, interval);
                sender = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        });
        Self {
            shared,
            flusher: Some(flusher),
        }
    }
}

impl<T> IntervalSender<T> {
    /// Sends like [`Sender::send`]. Other threads that share this sender wait meanwhile.
    ///
    /// # Errors
    /// [`SendError`]: every receiver is gone; unreceived items come back.
    pub fn send(&self, item: T) -> Result<(), SendError<T>> {
        self.with(|sender| sender.send(item))
    }

    /// Sends like [`Sender::try_send`].
    ///
    /// # Errors
    /// [`TrySendError::Full`]: there is no room. [`TrySendError::Closed`]: every receiver is gone.
    pub fn try_send(&self, item: T) -> Result<(), TrySendError<T>> {
        self.with(|sender| sender.try_send(item))
    }

    /// Sends like [`Sender::send_all`]. Other threads that share this sender wait until all is sent.
    ///
    /// # Errors
    /// [`SendError`]: every receiver is gone; unreceived items come back.
    pub fn send_all(&self, items: impl IntoIterator<Item = T>) -> Result<(), SendError<T>> {
        self.with(|sender| sender.send_all(items))
    }

    /// Hands over like [`Sender::flush`], without waiting for the interval.
    ///
    /// # Errors
    /// [`SendError`]: every receiver is gone; unreceived items come back.
    pub fn flush(&self) -> Result<(), SendError<T>> {
        self.with(Sender::flush)
    }

    fn with<R>(&self, run: impl FnOnce(&mut Sender<T>) -> R) -> R {
        let mut sender = self.shared.lock();
        run(sender.as_mut().expect("only dropping this handle takes the sender out"))
    }
}

impl<T> Drop for IntervalSender<T> {
    fn drop(&mut self) {
        let sender = self.shared.lock().take();
        self.shared.over.notify_one();
        drop(sender);
        if let Some(flusher) = self.flusher.take() {
            // The only user code in it is a waker, whose panic loses nothing.
            let _ = flusher.join();
        }
    }
}

impl<T> fmt::Debug for IntervalSender<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("IntervalSender").finish_non_exhaustive()
    }
}
