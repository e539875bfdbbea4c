//! Waiting in a task: futures that any runtime can drive.

use crate::{Batch, Closed, Receiver, SendError, Sender};
use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

/// The future of [`Sender::send_async`] and [`Sender::ready`].
#[derive(Debug)]
#[must_use = "nothing is sent before it is awaited"]
pub struct Send<'a, T> {
    sender: &'a mut Sender<T>,
    item: Option<T>,
    waiting: bool,
}

impl<'a, T> Send<'a, T> {
    pub(crate) fn new(sender: &'a mut Sender<T>, item: Option<T>) -> Self {
        Self {
            sender,
            item,
            waiting: false,
        }
    }
}

/// The item is moved, never looked at in place.
impl<T> Unpin for Send<'_, T> {}

impl<T> Future for Send<'_, T> {
    type Output = Result<(), SendError<T>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let ready = this.sender.poll_ready(context);
        this.waiting = ready.is_pending();
        ready.map(|ready| match (ready, this.item.take()) {
            (Ok(()), Some(item)) => this.sender.accept(item).map_err(|unsent| SendError { unsent }),
            (Err(mut error), item) => {
                error.unsent.extend(item);
                Err(error)
            }
            (Ok(()), None) => Ok(()),
        })
    }
}

impl<T> Drop for Send<'_, T> {
    fn drop(&mut self) {
        if self.waiting {
            self.sender.stop_waiting();
        }
    }
}

/// The future of [`Sender::flush_async`].
#[derive(Debug)]
#[must_use = "nothing is flushed before it is awaited"]
pub struct Flush<'a, T> {
    sender: &'a mut Sender<T>,
    waiting: bool,
}

impl<'a, T> Flush<'a, T> {
    pub(crate) fn new(sender: &'a mut Sender<T>) -> Self {
        Self { sender, waiting: false }
    }
}

impl<T> Future for Flush<'_, T> {
    type Output = Result<(), SendError<T>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let flushed = this.sender.poll_flush(context);
        this.waiting = flushed.is_pending();
        flushed
    }
}

impl<T> Drop for Flush<'_, T> {
    fn drop(&mut self) {
        if self.waiting {
            self.sender.stop_waiting();
        }
    }
}

/// The future of [`Receiver::receive_async`].
#[derive(Debug)]
#[must_use = "nothing is received before it is awaited"]
pub struct Receive<'a, T> {
    receiver: &'a mut Receiver<T>,
    waiting: bool,
}

impl<'a, T> Receive<'a, T> {
    pub(crate) fn new(receiver: &'a mut Receiver<T>) -> Self {
        Self {
            receiver,
            waiting: false,
        }
    }
}

impl<T> Future for Receive<'_, T> {
    type Output = Result<Batch<T>, Closed>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let received = this.receiver.poll_receive(context);
        this.waiting = received.is_pending();
        received
    }
}

impl<T> Drop for Receive<'_, T> {
    fn drop(&mut self) {
        if self.waiting {
            self.receiver.stop_waiting();
        }
    }
}
