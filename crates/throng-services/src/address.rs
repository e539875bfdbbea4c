//! Addresses, through which a service is reached.

use std::sync::{Arc, Mutex, PoisonError};
use throng_queue::{HandOver, SendError, Sender, TrySendError};

use crate::{
    in_place::Local,
    reply::{AskError, Pending, Reply},
};

/// Sends messages and requests to a service. It belongs to one thread or task at a time; a clone is another sender, with its own batch.
/// Many handlers can share one as a [`SharedAddress`].
///
/// Messages of one address arrive in the order they were sent. A full queue makes it wait, or returns an error.
pub struct Address<M> {
    to: To<M>,
}

enum To<M> {
    /// A queue; true if gathered messages have to be flushed explicitly.
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

    /// Sends a message. The thread waits while the queue is full. A service in place receives it before this returns, unless another thread
    /// is running it.
    ///
    /// # Errors
    /// [`SendError`]: the service has ended; unreceived messages come back.
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
    /// [`TrySendError::Full`]: there is no room. [`TrySendError::Closed`]: the service has ended.
    #[inline]
    pub fn try_send(&mut self, message: M) -> Result<(), TrySendError<M>> {
        match &mut self.to {
            To::Queue(sender, _) => sender.try_send(message),
            To::Here(local) => local.try_send(message),
        }
    }

    /// Sends a message. The task waits while the queue is full.
    ///
    /// # Errors
    /// [`SendError`]: the service has ended; unreceived messages come back.
    pub async fn send_async(&mut self, message: M) -> Result<(), SendError<M>> {
        match &mut self.to {
            To::Queue(sender, _) => sender.send_async(message).await,
            To::Here(local) => local.send(message),
        }
    }

    /// Sends messages, waiting for room where needed.
    ///
    /// # Errors
    /// [`SendError`]: the service has ended; unreceived messages come back.
    pub fn send_all(&mut self, messages: impl IntoIterator<Item = M>) -> Result<(), SendError<M>> {
        match &mut self.to {
            To::Queue(sender, _) => sender.send_all(messages),
            To::Here(local) => messages.into_iter().try_for_each(|message| local.send(message)),
        }
    }

    /// Hands over what this address has gathered. Only needed with [`HandOver::Every`].
    ///
    /// # Errors
    /// [`SendError`]: the service has ended; unreceived messages come back.
    pub fn flush(&mut self) -> Result<(), SendError<M>> {
        match &mut self.to {
            To::Queue(sender, _) => sender.flush(),
            To::Here(_) => Ok(()),
        }
    }

    /// Sends a request, made from a [`Reply`]. The thread waits for room. If the service has ended, the [`Pending`] reports it.
    pub fn ask<T: Send + 'static>(&mut self, make: impl FnOnce(Reply<T>) -> M) -> Pending<T> {
        let (reply, pending) = Reply::pair();
        self.tell(make(reply));
        pending
    }

    /// Sends a message that should be received at once, waiting for room. If it cannot be sent, it is dropped with its reply.
    pub(crate) fn tell(&mut self, message: M) {
        if self.send(message).is_ok() && matches!(self.to, To::Queue(_, true)) {
            drop(self.flush());
        }
    }

    /// Sends a request if there is room: for tasks, which must not block their thread.
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
            // Without room now, it is handed over with the next one.
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

/// An [`Address`] behind a lock, for many handlers; clones share it. The lock is never held while waiting for room: a full queue is an
/// error.
pub struct SharedAddress<M>(Arc<Mutex<Address<M>>>);

impl<M: Send + 'static> SharedAddress<M> {
    /// Sends a message if there is room.
    ///
    /// # Errors
    /// [`TrySendError::Full`]: there is no room. [`TrySendError::Closed`]: the service has ended.
    pub fn try_send(&self, message: M) -> Result<(), TrySendError<M>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).try_send(message)
    }

    /// Sends a request if there is room.
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
