//! The sending side: a handle with a batch of its own.

use crate::{
    HandOver, SendError, TryFlushError, TrySendError,
    lane::Filling,
    later::later,
    park::{linger, wait},
    shared::{CLOSED, FULL, Handed, Shared},
};
use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

/// The number of items that receivers see together, of many given at once.
const SEEN_ITEMS: usize = 64;

/// Sends into a queue. It belongs to one thread or task at a time; a clone is another sender with its own batch.
///
/// Items of one sender arrive in the order they were sent; between senders there is no order. When a sender is dropped, its gathered items
/// are handed over without waiting, even if the queue is full.
///
/// A full queue stops a sender when its own batch is full, and before it begins a new one.
//
// A sender is written with every item. Two of them in one cache line, in adjacent boxes, cost ten times as much as everything else.
#[repr(align(128))]
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
    handle: u64,
    open: Filling<T>,
    /// Items after which it hands over.
    gather_items: usize,
}

impl<T> Sender<T> {
    pub(crate) fn new(shared: Arc<Shared<T>>) -> Self {
        let (handle, open) = shared.join_senders();
        let gather_items = shared.options().gather_items();
        Self {
            shared,
            handle,
            open,
            gather_items,
        }
    }

    /// Sends an item; while the queue is full, the thread waits for room.
    ///
    /// # Errors
    /// [`SendError`]: every receiver is gone; unreceived items come back.
    // Inlined, because otherwise the item is passed through memory, which costs several times as much as the rest.
    #[inline(always)]
    pub fn send(&mut self, item: T) -> Result<(), SendError<T>> {
        // The slow paths do not get the item: otherwise it would have to be in memory on the fast ones, too.
        if self.open.is_quiet() {
            self.open.push_quietly(item);
            return Ok(());
        }
        if self.open.is_stop() {
            if let Err(mut error) = self.make_room() {
                error.unsent.push(item);
                return Err(error);
            }
            self.open.push(item, || ());
            return self.look_now();
        }
        let shared = &self.shared;
        if self.open.push(item, || shared.demands()) {
            return self.look_now();
        }
        Ok(())
    }

    /// Waits until an item can be added.
    #[cold]
    fn make_room(&mut self) -> Result<(), SendError<T>> {
        let signal = self.shared.signal();
        let has_room = match self.open.used() {
            0 => signal == 0,
            used => used < self.shared.options().batch_items,
        };
        if !has_room {
            if signal & FULL != 0 {
                linger(|| self.shared.signal() & FULL == 0);
            }
            wait(|context| self.poll_ready(context))?;
        }
        self.open.allow();
        Ok(())
    }

    #[cold]
    fn look_now(&mut self) -> Result<(), SendError<T>> {
        self.look().map_err(|unsent| SendError { unsent })
    }

    /// Sends an item if there is room.
    ///
    /// # Errors
    /// [`TrySendError::Full`]: there is no room. [`TrySendError::Closed`]: every receiver is gone.
    pub fn try_send(&mut self, item: T) -> Result<(), TrySendError<T>> {
        let signal = self.shared.signal();
        if signal & CLOSED != 0 {
            return Err(TrySendError::Closed(self.unsent_with(item)));
        }
        match self.open.used() {
            0 if signal & FULL != 0 => return Err(TrySendError::Full(item)),
            used if used >= self.shared.options().batch_items => match self.hand_over() {
                Handed::Over => {}
                Handed::Full => return Err(TrySendError::Full(item)),
                Handed::Closed => return Err(TrySendError::Closed(self.unsent_with(item))),
            },
            _ => {}
        }
        self.accept(item).map_err(TrySendError::Closed)
    }

    /// Sends items, waiting for room if needed. Receivers see them in groups of up to 64. So an iterator that waits for its next item
    /// delays those it has just returned; calling [`send`](Self::send) for each would not.
    ///
    /// # Errors
    /// [`SendError`]: every receiver is gone. Unreceived items come back; items not yet drawn from the iterator go with it.
    pub fn send_all(&mut self, items: impl IntoIterator<Item = T>) -> Result<(), SendError<T>> {
        let seen_items = match self.shared.options().hand_over {
            HandOver::Adaptive => SEEN_ITEMS,
            HandOver::Every(_) => usize::MAX,
        };
        let mut items = items.into_iter();
        while let Some(item) = items.next() {
            self.send(item)?;
            if self.open.used() > 0 {
                self.open.extend(&mut items, seen_items);
                self.look_now()?;
            }
        }
        Ok(())
    }

    /// Hands over what the sender has gathered; while the queue is full, the thread waits for room.
    ///
    /// # Errors
    /// [`SendError`]: every receiver is gone; unreceived items come back.
    pub fn flush(&mut self) -> Result<(), SendError<T>> {
        wait(|context| self.poll_flush(context))
    }

    /// Hands over what the sender has gathered, if there is room.
    ///
    /// # Errors
    /// [`TryFlushError::Full`]: there is no room. [`TryFlushError::Closed`]: every receiver is gone.
    pub fn try_flush(&mut self) -> Result<(), TryFlushError<T>> {
        match self.hand_over() {
            Handed::Over => Ok(()),
            Handed::Full => Err(TryFlushError::Full),
            Handed::Closed => Err(TryFlushError::Closed(self.unsent())),
        }
    }

    /// Sends an item; while the queue is full, the task waits for room.
    ///
    /// An item is taken completely or not at all. If the future is dropped before it is ready, the item is dropped, too. To keep it, await
    /// [`ready`](Self::ready) and then use [`try_send`](Self::try_send).
    ///
    /// # Errors
    /// [`SendError`]: every receiver is gone; unreceived items come back.
    pub async fn send_async(&mut self, item: T) -> Result<(), SendError<T>> {
        match self.ready().await {
            Ok(()) => self.accept(item).map_err(|unsent| SendError { unsent }),
            Err(mut error) => {
                error.unsent.push(item);
                Err(error)
            }
        }
    }

    /// Waits until the next [`try_send`](Self::try_send) of this sender finds room. It does so until somebody receives. Dropping the future
    /// loses nothing.
    ///
    /// # Errors
    /// [`SendError`]: every receiver is gone; unreceived items come back.
    pub async fn ready(&mut self) -> Result<(), SendError<T>> {
        later(self, Self::poll_ready, Self::stop_waiting).await
    }

    /// Hands over what the sender has gathered. The task waits while the queue is full. Dropping the future loses nothing.
    ///
    /// # Errors
    /// [`SendError`]: every receiver is gone; unreceived items come back.
    pub async fn flush_async(&mut self) -> Result<(), SendError<T>> {
        later(self, Self::poll_flush, Self::stop_waiting).await
    }

    /// Waits for room to send an item. While there is none, the task is woken when it is time to ask again.
    ///
    /// # Errors
    /// [`SendError`]: every receiver is gone; unreceived items come back.
    pub fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), SendError<T>>> {
        let handed = match self.open.used() {
            0 => self.shared.room(self.handle, context.waker()),
            used if used < self.shared.options().batch_items => Handed::Over,
            _ => self
                .shared
                .hand_over(self.handle, &mut self.open, Some(context.waker())),
        };
        self.poll(handed)
    }

    /// Hands over what the sender has gathered. If the queue is full, the task is woken when it is time to ask again.
    ///
    /// # Errors
    /// [`SendError`]: every receiver is gone; unreceived items come back.
    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<(), SendError<T>>> {
        let handed = self
            .shared
            .hand_over(self.handle, &mut self.open, Some(context.waker()));
        self.poll(handed)
    }

    fn poll(&mut self, handed: Handed) -> Poll<Result<(), SendError<T>>> {
        match handed {
            Handed::Over => Poll::Ready(Ok(())),
            Handed::Full => Poll::Pending,
            Handed::Closed => Poll::Ready(Err(SendError { unsent: self.unsent() })),
        }
    }

    /// Items this sender has gathered and no receiver has taken.
    pub fn gathered(&self) -> usize {
        self.open.len()
    }

    /// True if every receiver is gone.
    pub fn is_closed(&self) -> bool {
        self.shared.signal() & CLOSED != 0
    }

    fn stop_waiting(&self) {
        self.shared.stop_waiting_for_room(self.handle);
    }

    /// Adds an item for which there is room, and hands over if it is time. If the queue is full, that is left for later.
    fn accept(&mut self, item: T) -> Result<(), Vec<T>> {
        self.open.allow();
        self.open.push(item, || ());
        self.look()
    }

    /// Hands over if it is time.
    fn look(&mut self) -> Result<(), Vec<T>> {
        let used = self.open.used();
        let is_due = used > 0 && used.is_multiple_of(self.gather_items);
        if (is_due || self.shared.demands_after_write()) && self.hand_over() == Handed::Closed {
            return Err(self.unsent());
        }
        Ok(())
    }

    /// Hands over if there is room; otherwise keeps the items.
    pub(crate) fn hand_over(&mut self) -> Handed {
        self.shared.hand_over(self.handle, &mut self.open, None)
    }

    fn unsent(&mut self) -> Vec<T> {
        let items_max = self.shared.options().batch_items;
        let unsent = self.open.hold().take(|| Vec::with_capacity(items_max));
        unsent.unwrap_or_default()
    }

    fn unsent_with(&mut self, item: T) -> Vec<T> {
        let mut unsent = self.unsent();
        unsent.push(item);
        unsent
    }
}

impl<T> Clone for Sender<T> {
    /// Another sender into the same queue, with an empty batch of its own.
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.shared))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.shared.leave_senders(self.handle, &mut self.open);
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Sender")
            .field("gathered", &self.gathered())
            .finish_non_exhaustive()
    }
}
