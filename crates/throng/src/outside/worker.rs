//! The makers of calls, and the way a pool is driven.

use std::{future::Future, pin::Pin, sync::Arc};
use throng_core::model::{Attempt, CallCommand, CallError, CallId, CallReject, CallReply, Error, Outside};
use throng_journal::{Later, ShardSet};

/// An attempt that is being made.
pub type Answering<'a, W> =
    Pin<Box<dyn Future<Output = Result<<W as Outside>::Answer, CallError<<W as Outside>::Failure>>> + Send + 'a>>;

/// Makes the calls of a worker: the [worker](Outside) itself, or in a simulation what stands for the provider.
pub trait MakesCalls<W: Outside>: Send + Sync + 'static {
    /// Makes one attempt.
    fn make<'a>(&'a self, request: W::Request, attempt: &'a Attempt) -> Answering<'a, W>;
}

impl<W: Outside> MakesCalls<W> for W {
    fn make<'a>(&'a self, request: W::Request, attempt: &'a Attempt) -> Answering<'a, W> {
        Box::pin(self.call(request, attempt))
    }
}

/// Gives a call of one worker a command; `None`: the engine has ended.
pub(crate) type Ask =
    Box<dyn Fn(CallId, CallCommand) -> Later<'static, Option<Result<CallReply, Error<CallReject>>>> + Send + Sync>;

/// The shards that an engine owns at this moment.
pub(crate) enum Owned {
    Shards(ShardSet),
    /// None is served just now.
    Down,
    /// The engine has ended.
    Ended,
}

/// The way from a pool to its engine.
pub(crate) struct Link {
    pub(crate) ask: Ask,
    pub(crate) owned: Box<dyn Fn() -> Owned + Send + Sync>,
}

/// A pool, whichever worker it has.
pub(crate) trait AnyPool: Send + Sync {
    /// Begins to make attempts.
    fn begin(self: Arc<Self>, link: Link);
    /// Begins no further attempt.
    fn close(&self);
    /// Attempts under way.
    fn under_way(&self) -> usize;
}
