//! The state that the appender, the sync threads and the readers share.

use crate::{history::History, pace::Pace};
use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};
use throng_journal::{AppendError, Appended, CommitNo, Position, WriterId, commit::Buffer};

/// The reason for the doubt about an append whose stream has ended meanwhile.
const SEALED: &str = "the writer was sealed";

/// The writer that may append.
#[derive(Debug)]
pub(super) struct Live {
    pub writer: WriterId,
    pub node: String,
    /// The current segment. Everything unsynced is in it.
    pub segment: u64,
    pub written: CommitNo,
    /// The last acknowledged commit, up to which readers may read.
    pub durable: CommitNo,
    /// The last commit known to be synced. It is below `durable` only at a durability without syncs.
    pub synced: CommitNo,
    /// The reason why nothing more can be appended.
    pub over: Option<String>,
    /// Its end is decided, once and for good.
    pub ended: bool,
    pub reserved: bool,
}

impl Live {
    pub(super) fn end(&self) -> Position {
        Position::new(self.writer, self.durable)
    }
}

#[derive(Debug, Default)]
pub(super) struct LogState {
    pub history: History,
    pub live: Option<Live>,
    pub pace: Pace,
    /// Appends whose sync runs on another thread, in order.
    waiters: VecDeque<(CommitNo, Arc<Waiter>)>,
    /// The number of requested syncs that no thread has begun.
    pub wanted: usize,
    /// Syncs running on threads.
    pub syncing: usize,
    pub stop: bool,
}

/// The state, its lock, and the depth the engine reads without it.
#[derive(Debug, Default)]
pub(super) struct Shared {
    state: Mutex<LogState>,
    /// Signals a requested sync, or the end. One thread wakes for each sync.
    pub wanted: Condvar,
    /// A sync has ended.
    pub changed: Condvar,
    /// The most appends in flight, according to the pace. Only `synced` writes it, under the lock of `state`.
    depth: AtomicUsize,
}

/// Appends to answer once the lock is released.
#[must_use]
pub(super) struct Answers(Vec<(Arc<Waiter>, Result<(), AppendError>)>);

impl Answers {
    pub(super) fn send(self) {
        for (waiter, result) in self.0 {
            waiter.resolve(result);
        }
    }
}

impl Shared {
    pub(super) fn state(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wait<'a>(&self, state: MutexGuard<'a, LogState>) -> MutexGuard<'a, LogState> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wait_for_work<'a>(&self, state: MutexGuard<'a, LogState>) -> MutexGuard<'a, LogState> {
        self.wanted.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn depth(&self) -> usize {
        self.depth.load(Ordering::Relaxed).max(1)
    }

    /// Handles the end of a sync: everything written before it began is durable.
    pub(super) fn synced(&self, state: &mut LogState, upto: CommitNo, took: Duration) -> Answers {
        state.pace.observe(took);
        if self.depth.swap(state.pace.depth(), Ordering::Relaxed) != state.pace.depth() {
            let average_micros = state.pace.average().as_micros();
            tracing::debug!(depth = state.pace.depth(), average_micros, "syncs in flight");
        }
        state.synced(upto)
    }
}

impl LogState {
    pub(super) fn synced(&mut self, upto: CommitNo) -> Answers {
        if let Some(live) = &mut self.live {
            live.synced = live.synced.max(upto);
        }
        self.durable(upto)
    }

    /// Acknowledges everything up to here.
    pub(super) fn durable(&mut self, upto: CommitNo) -> Answers {
        let Some(live) = &mut self.live else {
            return Answers(Vec::new());
        };
        live.durable = live.durable.max(upto);
        if let Some(stream) = self.history.streams.get_mut(&live.writer) {
            stream.last = live.durable;
        }
        let durable = live.durable;
        let covered = self.waiters.iter().take_while(|(number, _)| *number <= durable).count();
        Answers(
            self.waiters
                .drain(..covered)
                .map(|(_, waiter)| (waiter, Ok(())))
                .collect(),
        )
    }

    /// Ends the writer: what is in flight is in doubt.
    pub(super) fn fail(&mut self, why: String) -> Answers {
        tracing::error!(%why, "the writer is over");
        let in_doubt = self
            .waiters
            .drain(..)
            .map(|(_, waiter)| (waiter, Err(AppendError::InDoubt(why.clone()))));
        let answers = Answers(in_doubt.collect());
        self.wanted = 0;
        if let Some(live) = &mut self.live {
            live.over.get_or_insert(why);
        }
        answers
    }

    /// Fails the waiting appends, because the stream's end is decided and does not include them.
    pub(super) fn fail_waiting(&mut self) -> Answers {
        self.wanted = 0;
        let waiting = self.waiters.drain(..);
        Answers(
            waiting
                .map(|(_, waiter)| (waiter, Err(AppendError::InDoubt(SEALED.into()))))
                .collect(),
        )
    }

    /// Waits for the sync of a written commit. A sync that an earlier append requested may already have covered it.
    pub(super) fn await_sync(&mut self, number: CommitNo, buffer: Buffer) -> Flight {
        let result = self.decided(number);
        let is_decided = result.is_some();
        let waiter = Arc::new(Waiter(Mutex::new(Waiting {
            result,
            buffer,
            waker: None,
        })));
        if !is_decided {
            self.waiters.push_back((number, Arc::clone(&waiter)));
            self.wanted += 1;
        }
        Flight(waiter)
    }

    /// Returns the outcome of a written commit, if known.
    fn decided(&self, number: CommitNo) -> Option<Result<(), AppendError>> {
        let live = self.live.as_ref()?;
        if live.durable >= number {
            return Some(Ok(()));
        }
        let sealed = live.ended.then(|| SEALED.to_owned());
        let why = live.over.clone().or(sealed)?;
        Some(Err(AppendError::InDoubt(why)))
    }
}

#[derive(Debug)]
struct Waiting {
    result: Option<Result<(), AppendError>>,
    buffer: Buffer,
    waker: Option<Waker>,
}

#[derive(Debug)]
struct Waiter(Mutex<Waiting>);

impl Waiter {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn resolve(&self, result: Result<(), AppendError>) {
        let waker = {
            let mut waiting = self.lock();
            waiting.result = Some(result);
            waiting.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// An append whose sync is under way.
pub(super) struct Flight(Arc<Waiter>);

impl Future for Flight {
    type Output = Appended;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Appended> {
        let mut waiting = self.0.lock();
        match waiting.result.take() {
            Some(result) => Poll::Ready(Appended {
                result,
                buffer: std::mem::take(&mut waiting.buffer),
            }),
            None => {
                waiting.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;

    /// Returns a state with two commits written and none synced.
    fn written() -> LogState {
        LogState {
            live: Some(Live {
                writer: WriterId(1),
                node: String::new(),
                segment: 1,
                written: CommitNo(2),
                durable: CommitNo(0),
                synced: CommitNo(0),
                over: None,
                ended: false,
                reserved: false,
            }),
            ..LogState::default()
        }
    }

    fn answer(flight: Flight) -> Option<Result<(), String>> {
        match pin!(flight).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(appended) => Some(appended.result.map_err(|error| error.to_string())),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_late_waiter_is_answered_after_the_sync_covered_it() {
        let mut state = written();
        let first = state.await_sync(CommitNo(1), Buffer::default());
        // The sync for the first commit began after the second was written, and ends before the second one waits.
        state.wanted = 0;
        state.synced(CommitNo(2)).send();
        let second = state.await_sync(CommitNo(2), Buffer::default());
        assert_eq!((answer(first), answer(second)), (Some(Ok(())), Some(Ok(()))));
        assert_eq!(state.wanted, 0, "there is nothing left to sync");
    }

    #[test]
    fn a_late_waiter_is_in_doubt_after_a_failed_sync_or_the_end() {
        let in_doubt = |why: &str| Some(Err(AppendError::InDoubt(why.into()).to_string()));
        let mut state = written();
        state.fail("the disk".into()).send();
        assert_eq!(
            answer(state.await_sync(CommitNo(2), Buffer::default())),
            in_doubt("the disk")
        );
        let mut state = written();
        if let Some(live) = &mut state.live {
            live.ended = true;
        }
        state.fail_waiting().send();
        assert_eq!(
            answer(state.await_sync(CommitNo(2), Buffer::default())),
            in_doubt(SEALED)
        );
    }
}
