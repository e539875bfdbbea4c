//! The receiving side: whole batches.

use crate::{
    Batch, Closed, ReceiveTimeoutError, TryReceiveError,
    later::later,
    park::{linger, wait, wait_until},
    shared::{RESERVED_BATCHES_MAX, Shared, Taken},
};
use std::{
    collections::VecDeque,
    fmt,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

/// The number of items received at once from which on a receiver gives senders a moment to send more before it looks into their open
/// batches and sleeps.
const FLOW_ITEMS: usize = 64;

/// Receives from a queue, a batch at a time. It belongs to one thread or task at a time; a clone shares the work.
///
/// A receiver takes all there is at once (with several receivers, its share) and returns it batch by batch. Batches that it has not
/// returned when it is dropped go to the other receivers. With the last receiver the queue closes, and its content is dropped.
///
/// Each batch goes to one receiver. The items of one sender come in the order they were sent; with several receivers that holds for what
/// each of them gets.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    handle: u64,
    stash: VecDeque<Vec<T>>,
    /// The number of items that the last look brought; more are likely to come if it is large.
    taken_items: usize,
    /// Room to work in.
    woken: Vec<Waker>,
}

impl<T> Receiver<T> {
    pub(crate) fn new(shared: Arc<Shared<T>>) -> Self {
        let handle = shared.join_receivers();
        let reserved = shared.options().batches.min(RESERVED_BATCHES_MAX);
        Self {
            shared,
            handle,
            stash: VecDeque::with_capacity(reserved + 1),
            taken_items: 0,
            woken: Vec::new(),
        }
    }

    /// Returns the next batch, never empty. The thread waits while there is none.
    ///
    /// # Errors
    /// [`Closed`]: every sender is gone and everything they sent has been received.
    pub fn receive(&mut self) -> Result<Batch<T>, Closed> {
        if self.stash.is_empty() && self.taken_items >= FLOW_ITEMS {
            linger(|| self.shared.is_filled());
        }
        match self.next(None)? {
            Some(batch) => Ok(batch),
            None => wait(|context| self.poll_receive(context)),
        }
    }

    /// Returns the next batch, if there is one.
    ///
    /// # Errors
    /// [`TryReceiveError::Empty`]: there is none now. [`TryReceiveError::Closed`]: there will never be one again.
    pub fn try_receive(&mut self) -> Result<Batch<T>, TryReceiveError> {
        match self.next(None) {
            Ok(Some(batch)) => Ok(batch),
            Ok(None) => Err(TryReceiveError::Empty),
            Err(Closed) => Err(TryReceiveError::Closed),
        }
    }

    /// Returns the next batch. The thread waits while there is none, but at most this long.
    ///
    /// # Errors
    /// [`ReceiveTimeoutError::TimedOut`]: no item came in that time. [`ReceiveTimeoutError::Closed`]: there will never be one again.
    pub fn receive_timeout(&mut self, limit: Duration) -> Result<Batch<T>, ReceiveTimeoutError> {
        let Some(until) = Instant::now().checked_add(limit) else {
            return self.receive().map_err(|Closed| ReceiveTimeoutError::Closed);
        };
        match wait_until(until, |context| self.poll_receive(context)) {
            Some(received) => received.map_err(|Closed| ReceiveTimeoutError::Closed),
            None => {
                self.stop_waiting();
                Err(ReceiveTimeoutError::TimedOut)
            }
        }
    }

    /// Returns the next batch. The task waits while there is none. Dropping the future loses nothing.
    ///
    /// # Errors
    /// [`Closed`]: every sender is gone and everything they sent has been received.
    pub async fn receive_async(&mut self) -> Result<Batch<T>, Closed> {
        later(self, Self::poll_receive, Self::stop_waiting).await
    }

    /// Returns the next batch. If there is none, the task is woken when it is time to ask again.
    ///
    /// # Errors
    /// [`Closed`]: every sender is gone and everything they sent has been received.
    pub fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<Result<Batch<T>, Closed>> {
        match self.next(Some(context.waker())) {
            Ok(Some(batch)) => Poll::Ready(Ok(batch)),
            Ok(None) => Poll::Pending,
            Err(closed) => Poll::Ready(Err(closed)),
        }
    }

    /// Iterates over batches until every sender is gone and everything has been received. The thread waits between them.
    pub fn batches(&mut self) -> Batches<'_, T> {
        Batches(self)
    }

    /// Returns the number of batches and items that were sent and not taken. Items that senders still gather are not counted.
    pub fn backlog(&self) -> Backlog {
        let (batches, items) = self.shared.waiting();
        Backlog { batches, items }
    }

    fn stop_waiting(&self) {
        self.shared.stop_waiting_for_items(self.handle);
    }

    fn next(&mut self, wait: Option<&Waker>) -> Result<Option<Batch<T>>, Closed> {
        if self.stash.is_empty() {
            match self.shared.take(self.handle, &mut self.stash, wait, &mut self.woken) {
                Taken::Some => self.taken_items = self.stash.iter().map(Vec::len).sum(),
                Taken::Nothing => return Ok(None),
                Taken::Closed => return Err(Closed),
            }
        }
        let items = self.stash.pop_front();
        Ok(items.map(|items| Batch::new(items, Arc::clone(&self.shared))))
    }
}

/// The batches and items that wait in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backlog {
    /// Batches, full or not.
    pub batches: usize,
    /// Items in them.
    pub items: usize,
}

/// The iterator of [`Receiver::batches`].
#[derive(Debug)]
pub struct Batches<'a, T>(&'a mut Receiver<T>);

impl<T> Iterator for Batches<'_, T> {
    type Item = Batch<T>;

    fn next(&mut self) -> Option<Batch<T>> {
        self.0.receive().ok()
    }
}

impl<T> Clone for Receiver<T> {
    /// Another receiver of the same queue, to share the work.
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.shared))
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.leave_receivers(self.handle, &mut self.stash);
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Receiver")
            .field("backlog", &self.backlog())
            .finish_non_exhaustive()
    }
}
