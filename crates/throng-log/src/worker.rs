//! A thread of the store's or the views' own: a checkpoint takes too long for a loop.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{SyncSender, sync_channel},
    },
    task::{Context, Poll, Waker},
    thread::JoinHandle,
};

type Job = Box<dyn FnOnce() + Send>;

/// Jobs that may wait.
const JOBS_MAX: usize = 64;

pub(crate) struct Worker {
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    pub(crate) fn start(name: &str) -> io::Result<Self> {
        let (jobs, waiting) = sync_channel::<Job>(JOBS_MAX);
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
            for job in waiting {
                job();
            }
        })?;
        Ok(Self {
            jobs: Some(jobs),
            thread: Some(thread),
        })
    }

    /// Runs a job on the thread; `Err` if it cannot take one, or ended without an answer.
    pub(crate) fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> JobAnswer<T> {
        let slot = Arc::new(Mutex::new(Slot {
            state: State::Waiting,
            waker: None,
        }));
        let reply = Reply(Arc::clone(&slot));
        let job: Job = Box::new(move || reply.send(State::Done(job())));
        if let Some(jobs) = &self.jobs {
            // A job that is not taken is dropped, and its reply says so.
            let _ = jobs.try_send(job);
        }
        JobAnswer(slot)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported already; the answer said so.
            let _ = thread.join();
        }
    }
}

enum State<T> {
    Waiting,
    Done(T),
    Lost,
}

struct Slot<T> {
    state: State<T>,
    waker: Option<Waker>,
}

fn lock<T>(slot: &Mutex<Slot<T>>) -> MutexGuard<'_, Slot<T>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Reply<T>(Arc<Mutex<Slot<T>>>);

impl<T> Reply<T> {
    fn send(&self, state: State<T>) {
        let waker = {
            let mut slot = lock(&self.0);
            if !matches!(slot.state, State::Waiting) {
                return;
            }
            slot.state = state;
            slot.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        self.send(State::Lost);
    }
}

/// A job's answer.
pub(crate) struct JobAnswer<T>(Arc<Mutex<Slot<T>>>);

impl<T> Future for JobAnswer<T> {
    type Output = Result<T, &'static str>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut slot = lock(&self.0);
        match std::mem::replace(&mut slot.state, State::Waiting) {
            State::Waiting => {
                slot.waker = Some(context.waker().clone());
                Poll::Pending
            }
            State::Done(answer) => Poll::Ready(Ok(answer)),
            State::Lost => Poll::Ready(Err("its thread is busy or gone")),
        }
    }
}
