//! The sending side: a handle with a batch of its own.

use crate::{
    SendError, TryFlushError, TrySendError,
    later::{Flush, Send},
    open::Open,
    park::{linger, wait},
    shared::{CLOSED, FULL, Handed, Shared, WAITING},
};
use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

/// Sends into a queue. Belongs to one thread or task at a time; a clone is another sender with a batch of its own.
///
/// What one sender sends arrives in the order it was sent; between senders there is no order. What a sender still holds is
/// handed over when it is dropped, without waiting, even if the queue is full.
///
/// A full queue stops a sender when its own batch is full, and before it begins a new one.
//
// It is written with every item: two of them in one cache line, in boxes side by side, cost ten times what the rest does.
#[repr(align(128))]
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
    handle: u64,
    open: Open<T>,
    /// Items after which it hands over.
    gather_items: usize,
    /// Of a batch, the items but the first.
    rest_items: usize,
}

impl<T> Sender<T> {
    pub(crate) fn new(shared: Arc<Shared<T>>) -> Self {
        let (handle, open) = shared.join_senders();
        let gather_items = shared.options().gather_items();
        let rest_items = shared.options().batch_items - 1;
        Self {
            shared,
            handle,
            open,
            gather_items,
            rest_items,
        }
    }

    /// Sends an item; while the queue is full, the thread waits for room.
    ///
    /// # Errors
    /// Every receiver is gone; what was not received comes back.
    // Not inlined, it costs an item's way through memory: several times as much as the rest of it.
    #[inline(always)]
    pub fn send(&mut self, item: T) -> Result<(), SendError<T>> {
        // No slow way takes the item along: it would have to be in memory for that, also on the fast one.
        if self.open.used().wrapping_sub(1) >= self.rest_items
            && let Err(mut error) = self.make_room()
        {
            error.unsent.push(item);
            return Err(error);
        }
        let used = self.open.push(item);
        match &self.open {
            _ if used >= self.gather_items => self.look_now(),
            Open::Visible(_) if self.shared.signal_after_write() & (WAITING | CLOSED) != 0 => self.look_now(),
            _ => Ok(()),
        }
    }

    /// Waits until an item can be added.
    #[cold]
    fn make_room(&mut self) -> Result<(), SendError<T>> {
        let signal = self.shared.signal();
        if self.open.used() == 0 && signal & (FULL | CLOSED) == 0 {
            return Ok(());
        }
        if signal & FULL != 0 {
            linger(|| self.shared.signal() & FULL == 0);
        }
        wait(|context| self.poll_ready(context))
    }

    #[cold]
    fn look_now(&mut self) -> Result<(), SendError<T>> {
        let full = self.open.used() >= self.shared.options().batch_items;
        self.look().map_err(|unsent| SendError { unsent })?;
        if full && self.open.used() == 0 {
            self.open.fetch();
        }
        Ok(())
    }

    /// Sends an item if there is room.
    ///
    /// # Errors
    /// There is no room, or every receiver is gone.
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

    /// Sends items, waiting for room where needed.
    ///
    /// # Errors
    /// Every receiver is gone; what was not received comes back, what was not yet drawn from the iterator goes with it.
    pub fn send_all(&mut self, items: impl IntoIterator<Item = T>) -> Result<(), SendError<T>> {
        let mut items = items.into_iter();
        loop {
            let used = self.open.used();
            let room = self.gather_items.saturating_sub(used + 1);
            match &mut self.open {
                _ if used == 0 => {}
                Open::Private(open) => open.extend(items.by_ref().take(room)),
                // Each item is seen at once, whatever the iterator waits for before the next.
                Open::Visible(filling) => {
                    for item in items.by_ref().take(room) {
                        filling.push(item);
                        if self.shared.signal_after_write() & (WAITING | CLOSED) != 0 {
                            break;
                        }
                    }
                    self.look_now()?;
                }
            }
            match items.next() {
                Some(item) => self.send(item)?,
                None => return Ok(()),
            }
        }
    }

    /// Hands over what the sender has gathered; while the queue is full, the thread waits for room.
    ///
    /// # Errors
    /// Every receiver is gone; what was not received comes back.
    pub fn flush(&mut self) -> Result<(), SendError<T>> {
        wait(|context| self.poll_flush(context))
    }

    /// Hands over what the sender has gathered, if there is room.
    ///
    /// # Errors
    /// There is no room, or every receiver is gone.
    pub fn try_flush(&mut self) -> Result<(), TryFlushError<T>> {
        match self.hand_over() {
            Handed::Over => Ok(()),
            Handed::Full => Err(TryFlushError::Full),
            Handed::Closed => Err(TryFlushError::Closed(self.unsent())),
        }
    }

    /// Sends an item; while the queue is full, the task waits for room.
    ///
    /// An item is taken as a whole or not at all. If the future is dropped before it is ready, the item goes with it; to
    /// keep it, await [`ready`](Self::ready) and then use [`try_send`](Self::try_send).
    ///
    /// # Errors
    /// Every receiver is gone; what was not received comes back.
    pub fn send_async(&mut self, item: T) -> Send<'_, T> {
        Send::new(self, Some(item))
    }

    /// Waits until an item can be sent without waiting: until somebody receives, this sender's next
    /// [`try_send`](Self::try_send) finds room. Loses nothing when dropped.
    ///
    /// # Errors
    /// Every receiver is gone; what was not received comes back.
    pub fn ready(&mut self) -> Send<'_, T> {
        Send::new(self, None)
    }

    /// Hands over what the sender has gathered; while the queue is full, the task waits for room. Loses nothing when
    /// dropped.
    ///
    /// # Errors
    /// Every receiver is gone; what was not received comes back.
    pub fn flush_async(&mut self) -> Flush<'_, T> {
        Flush::new(self)
    }

    /// Whether an item can be sent without waiting; if not, the task is woken when it is time to ask again.
    ///
    /// # Errors
    /// Every receiver is gone; what was not received comes back.
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

    /// Hands over what the sender has gathered; if the queue is full, the task is woken when it is time to ask again.
    ///
    /// # Errors
    /// Every receiver is gone; what was not received comes back.
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

    /// Whether every receiver is gone.
    pub fn is_closed(&self) -> bool {
        self.shared.signal() & CLOSED != 0
    }

    pub(crate) fn stop_waiting(&self) {
        self.shared.stop_waiting_for_room(self.handle);
    }

    /// Adds an item there is room for, and hands over if it is time; a full queue leaves that for later.
    pub(crate) fn accept(&mut self, item: T) -> Result<(), Vec<T>> {
        self.open.push(item);
        self.look()
    }

    /// Hands over if it is time.
    fn look(&mut self) -> Result<(), Vec<T>> {
        let waiting = match &self.open {
            Open::Private(_) => 0,
            Open::Visible(_) => self.shared.signal_after_write() & (WAITING | CLOSED),
        };
        if (self.open.used().is_multiple_of(self.gather_items) || waiting != 0) && self.hand_over() == Handed::Closed {
            return Err(self.unsent());
        }
        Ok(())
    }

    /// Hands over if it can; keeps what it has if not.
    pub(crate) fn hand_over(&mut self) -> Handed {
        self.shared.hand_over(self.handle, &mut self.open, None)
    }

    fn unsent(&mut self) -> Vec<T> {
        self.shared.unsent(&mut self.open)
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
