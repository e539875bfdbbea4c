//! Addresses, through which a service is reached.

use std::sync::{Arc, Mutex, PoisonError};
use throng_queue::{HandOver, SendError, Sender, TrySendError};

use crate::{
    in_place::Local,
    reply::{AskError, Pending, Reply},
};

/// Sends to a service, and asks it. Belongs to one thread or task at a time; a clone is another sender, with a batch of its
/// own. Many handlers at once share one as a [`SharedAddress`].
///
/// What one address sends arrives in the order it was sent. A full queue makes it wait, or says so.
pub struct Address<M> {
    to: To<M>,
}

enum To<M> {
    /// A queue; whether what is gathered has to be handed over by hand.
    Queue(Sender<M>, bool),
    Here(Arc<dyn Local<M>>),
}

impl<M: Send + 'static> Address<M> {
    pub(crate) fn of_queue(sender: Sender<M>, hand_over: HandOver) -> Self {
        Self {
            to: To::Queue(sender, hand_over != HandOver::Adaptive),
        }
    }

    pub(crate) fn of_local(local: Arc<dyn Local<M>>) -> Self {
        Self { to: To::Here(local) }
    }

    /// Sends a message; while the queue is full, the thread waits for room. A service in place receives it before this
    /// returns, unless it is at work.
    ///
    /// # Errors
    /// [`SendError`]: the service is over; unreceived messages come back.
    #[inline]
    pub fn send(&mut self, message: M) -> Result<(), SendError<M>> {
        match &mut self.to {
            To::Queue(sender, _) => sender.send(message),
            To::Here(local) => local.send(message),
        }
    }

    /// Sends a message if there is room.
    ///
    /// # Errors
    /// [`TrySendError::Full`]: there is no room. [`TrySendError::Closed`]: the service is over.
    #[inline]
    pub fn try_send(&mut self, message: M) -> Result<(), TrySendError<M>> {
        match &mut self.to {
            To::Queue(sender, _) => sender.try_send(message),
            To::Here(local) => local.try_send(message),
        }
    }

    /// Sends a message; while the queue is full, the task waits for room.
    ///
    /// # Errors
    /// [`SendError`]: the service is over; unreceived messages come back.
    pub async fn send_async(&mut self, message: M) -> Result<(), SendError<M>> {
        match &mut self.to {
            To::Queue(sender, _) => sender.send_async(message).await,
            To::Here(local) => local.send(message),
        }
    }

    /// Sends messages, waiting for room where needed.
    ///
    /// # Errors
    /// [`SendError`]: the service is over; unreceived messages come back.
    pub fn send_all(&mut self, messages: impl IntoIterator<Item = M>) -> Result<(), SendError<M>> {
        match &mut self.to {
            To::Queue(sender, _) => sender.send_all(messages),
            To::Here(local) => messages.into_iter().try_for_each(|message| local.send(message)),
        }
    }

    /// Hands over what this address has gathered: only needed where the queue was told to gather
    /// ([`HandOver::Every`]).
    ///
    /// # Errors
    /// [`SendError`]: the service is over; unreceived messages come back.
    pub fn flush(&mut self) -> Result<(), SendError<M>> {
        match &mut self.to {
            To::Queue(sender, _) => sender.flush(),
            To::Here(_) => Ok(()),
        }
    }

    /// Asks: sends the message made of a [`Reply`], waiting for room on this thread. That the service is over is told by the
    /// [`Pending`].
    pub fn ask<T: Send + 'static>(&mut self, make: impl FnOnce(Reply<T>) -> M) -> Pending<T> {
        let (reply, pending) = Reply::pair();
        self.tell(make(reply));
        pending
    }

    /// Sends a message that shall be seen at once, waiting for room. One that cannot be sent is dropped, with its reply.
    pub(crate) fn tell(&mut self, message: M) {
        if self.send(message).is_ok() && matches!(self.to, To::Queue(_, true)) {
            drop(self.flush());
        }
    }

    /// Asks if there is room: for tasks, which must not make their thread wait.
    ///
    /// # Errors
    /// [`AskError::Full`], or [`AskError::Gone`].
    pub fn try_ask<T: Send + 'static>(&mut self, make: impl FnOnce(Reply<T>) -> M) -> Result<Pending<T>, AskError> {
        let (reply, pending) = Reply::pair();
        self.try_tell(make(reply)).map_err(|error| AskError::of(&error))?;
        Ok(pending)
    }

    /// Sends a message that shall be seen at once.
    pub(crate) fn try_tell(&mut self, message: M) -> Result<(), TrySendError<M>> {
        self.try_send(message)?;
        if let To::Queue(sender, true) = &mut self.to {
            // Without room now, it goes with the next one that is sent.
            drop(sender.try_flush());
        }
        Ok(())
    }

    /// Makes an address that many can use at once.
    #[must_use]
    pub fn share(self) -> SharedAddress<M> {
        SharedAddress(Arc::new(Mutex::new(self)))
    }
}

impl<M> Clone for Address<M> {
    fn clone(&self) -> Self {
        let to = match &self.to {
            To::Queue(sender, by_hand) => To::Queue(sender.clone(), *by_hand),
            To::Here(local) => To::Here(Arc::clone(local)),
        };
        Self { to }
    }
}

opaque!(Address<M>);

/// An [`Address`] behind a lock, for many handlers at once; a clone is the same one. Nobody waits for room with the lock held:
/// a full queue is said so.
pub struct SharedAddress<M>(Arc<Mutex<Address<M>>>);

impl<M: Send + 'static> SharedAddress<M> {
    /// Sends a message if there is room.
    ///
    /// # Errors
    /// [`TrySendError::Full`]: there is no room. [`TrySendError::Closed`]: the service is over.
    pub fn try_send(&self, message: M) -> Result<(), TrySendError<M>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).try_send(message)
    }

    /// Asks if there is room.
    ///
    /// # Errors
    /// [`AskError::Full`], or [`AskError::Gone`].
    pub fn try_ask<T: Send + 'static>(&self, make: impl FnOnce(Reply<T>) -> M) -> Result<Pending<T>, AskError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).try_ask(make)
    }

    /// Returns an address for the caller alone, with a batch of its own.
    #[must_use]
    pub fn address(&self) -> Address<M> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl<M> Clone for SharedAddress<M> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

opaque!(SharedAddress<M>);
