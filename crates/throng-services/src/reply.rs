//! An answer on its way: the side that owes it, and the side that waits for it.

use std::{
    pin::{Pin, pin},
    task::{Context, Poll},
    time::{Duration, Instant},
};
use throng_queue::TrySendError;
use tokio::sync::oneshot;

use crate::park;

/// The reason why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// The service's queue had no room; the message was not sent.
    #[error("the service's queue is full; nothing was sent; try again later, or send less")]
    Full,
    /// The service has ended, or panicked at this message, or dropped it without an answer.
    #[error("the service gave no answer: it has stopped, or crashed at this message, or dropped it")]
    Gone,
    /// No answer in time. The message may be, or have been, worked on.
    #[error("the service has not answered in time; the message may still be worked on")]
    TimedOut,
}

impl AskError {
    pub(crate) fn of<M>(error: &TrySendError<M>) -> Self {
        match error {
            TrySendError::Full(_) => Self::Full,
            TrySendError::Closed(_) => Self::Gone,
        }
    }
}

/// An answer owed to an asker. If this is dropped without one, the asker gets [`AskError::Gone`].
pub struct Reply<T>(To<T>);

type Hears<T> = Box<dyn FnOnce(Option<T>) + Send>;

enum To<T> {
    Cell(Option<oneshot::Sender<T>>),
    /// A service, which handles its own messages meanwhile.
    Service(Option<Hears<T>>),
}

impl<T> Reply<T> {
    pub(crate) fn pair() -> (Self, Pending<T>) {
        let (sender, receiver) = oneshot::channel();
        (Self(To::Cell(Some(sender))), Pending(receiver))
    }

    pub(crate) fn heard_by(hears: impl FnOnce(Option<T>) + Send + 'static) -> Self {
        Self(To::Service(Some(Box::new(hears))))
    }

    /// Sends the answer. If the asker no longer waits, it is dropped.
    pub fn send(mut self, answer: T) {
        match &mut self.0 {
            To::Cell(cell) => {
                if let Some(cell) = cell.take() {
                    drop(cell.send(answer));
                }
            }
            To::Service(hears) => {
                if let Some(hears) = hears.take() {
                    hears(Some(answer));
                }
            }
        }
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        if let To::Service(hears) = &mut self.0
            && let Some(hears) = hears.take()
        {
            hears(None);
        }
    }
}

opaque!(Reply<T>);

/// A future answer: a future for tasks of any runtime, [`wait`](Self::wait) for threads.
///
/// Without a limit it waits for as long as the service takes.
#[derive(Debug)]
pub struct Pending<T>(oneshot::Receiver<T>);

impl<T> Pending<T> {
    /// Waits on this thread, at most this long.
    ///
    /// # Errors
    /// [`AskError::Gone`]: there is no answer. [`AskError::TimedOut`]: there is none in time.
    pub fn wait(self, limit: Duration) -> Result<T, AskError> {
        let until = Instant::now().checked_add(limit);
        let waker = park::waker();
        let mut answer = pin!(self);
        loop {
            if let Poll::Ready(answer) = answer.as_mut().poll(&mut Context::from_waker(&waker)) {
                return answer;
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Err(AskError::TimedOut);
            }
            park::park_until(until);
        }
    }

    /// Waits in a task of tokio's, at most this long.
    ///
    /// # Errors
    /// [`AskError::Gone`]: there is no answer. [`AskError::TimedOut`]: there is none in time.
    ///
    /// # Panics
    /// Outside a tokio runtime with its timer enabled. Other runtimes have their own time-outs.
    pub async fn within(self, limit: Duration) -> Result<T, AskError> {
        tokio::time::timeout(limit, self)
            .await
            .unwrap_or(Err(AskError::TimedOut))
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T, AskError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map_err(|_| AskError::Gone)
    }
}
