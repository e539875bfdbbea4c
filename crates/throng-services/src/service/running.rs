//! A service that runs, and the loop of its thread.

use std::{
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    task::{Context as TaskContext, Poll, Waker},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use throng_queue::Receiver;

use super::{Runner, Service, runner::Counted};
use crate::{address::Address, in_place::Local, park};

/// The counts of a service so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The messages received, including those that panicked, but not those of timers and answers.
    pub received: u64,
    /// The batches in which they came.
    pub batches: u64,
    /// Panics of handlers, hooks and timers.
    pub panics: u64,
    /// The number of times the factory made the service again after a panic.
    pub restarts: u64,
}

/// A running service. Dropping this stops it without waiting.
pub struct Running<M: Send + 'static> {
    name: String,
    address: Address<M>,
    counts: Arc<Counted>,
    body: Body<M>,
}

enum Body<M> {
    Thread(Arc<Signal>, Option<JoinHandle<()>>),
    Here(Arc<dyn Local<M>>),
}

struct Signal {
    /// Set by [`stop`](Self::stop), before it wakes the service's thread.
    is_stopping: AtomicBool,
    waker: Waker,
}

impl Signal {
    fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.waker.wake_by_ref();
    }
}

impl<M: Send + 'static> Running<M> {
    pub(super) fn in_place(name: String, counts: Arc<Counted>, place: Arc<dyn Local<M>>) -> Self {
        Self {
            name,
            address: Address::of_local(Arc::clone(&place)),
            counts,
            body: Body::Here(place),
        }
    }

    /// Returns the name it was set up with. Its thread and its statistics carry the same name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns an address that sends to this service.
    #[must_use]
    pub fn address(&self) -> Address<M> {
        self.address.clone()
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            received: self.counts.received.load(Ordering::Relaxed),
            batches: self.counts.batches.load(Ordering::Relaxed),
            panics: self.counts.panics.load(Ordering::Relaxed),
            restarts: self.counts.restarts.load(Ordering::Relaxed),
        }
    }

    /// Runs what is due in a service [in place](super::Setup::in_place): timers and answers to asks. A service with a thread does this
    /// itself.
    pub fn turn(&self) {
        if let Body::Here(place) = &self.body {
            place.turn();
        }
    }

    /// Stops the service: it receives what was handed over before, then [`Service::stopped`] is called. Returns once that is done and the
    /// thread has ended. A message sent meanwhile may or may not be received; its asker is told if not.
    pub fn stop(mut self) -> Counts {
        self.signal();
        if let Body::Thread(_, thread) = &mut self.body
            && let Some(thread) = thread.take()
        {
            // The loop catches the service's panics. A panic of the loop itself was reported when it happened.
            drop(thread.join());
        }
        self.counts()
    }

    /// Waits until the service has ended by itself ([`Context::stop`](super::Context::stop)).
    pub fn join(mut self) -> Counts {
        if let Body::Thread(_, thread) = &mut self.body
            && let Some(thread) = thread.take()
        {
            drop(thread.join());
        }
        self.counts()
    }

    fn signal(&self) {
        match &self.body {
            Body::Thread(signal, _) => signal.stop(),
            Body::Here(place) => place.stop(),
        }
    }
}

impl<M: Send + 'static> Drop for Running<M> {
    fn drop(&mut self) {
        self.signal();
    }
}

impl<M: Send + 'static> fmt::Debug for Running<M> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Running")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

pub(super) fn start<S: Service>(
    name: String,
    runner: Runner<S>,
    receiver: Receiver<S::Message>,
    address: Address<S::Message>,
    idle_after: Duration,
) -> io::Result<Running<S::Message>> {
    let counts = runner.counts();
    let (up, is_up) = mpsc::channel();
    let work = move || {
        let signal = Arc::new(Signal {
            is_stopping: AtomicBool::new(false),
            waker: park::waker(),
        });
        drop(up.send(Arc::clone(&signal)));
        run(runner, receiver, &signal, idle_after);
    };
    let thread = thread::Builder::new().name(name.clone()).spawn(work)?;
    let signal = is_up
        .recv()
        .map_err(|_| io::Error::other("the service's thread ended at once"))?;
    Ok(Running {
        name,
        address,
        counts,
        body: Body::Thread(signal, Some(thread)),
    })
}

/// The time since the last message, and whether [`Service::idle`] was called for it.
#[derive(Clone, Copy)]
enum Quiet {
    Not,
    Since(Instant),
    Idle,
}

fn run<S: Service>(mut runner: Runner<S>, mut receiver: Receiver<S::Message>, signal: &Signal, idle_after: Duration) {
    let waker = signal.waker.clone();
    runner.wake_by(move || waker.wake_by_ref());
    runner.start(Instant::now());
    let mut quiet = Quiet::Not;
    while runner.is_alive() {
        // Read before the queue: what was handed over before the signal is then found in the queue.
        let is_stopping = signal.is_stopping.load(Ordering::Acquire) || runner.is_stopping();
        if runner.turn(Instant::now()) {
            quiet = Quiet::Not;
        }
        match receiver.poll_receive(&mut TaskContext::from_waker(&signal.waker)) {
            Poll::Ready(Ok(batch)) => {
                let (items, waiting) = (batch.len(), receiver.backlog().items);
                runner.batch(batch.into_iter(), items, waiting, Instant::now());
                quiet = Quiet::Not;
                continue;
            }
            Poll::Ready(Err(_)) => break,
            Poll::Pending => {}
        }
        let now = Instant::now();
        let idle_at = match quiet {
            Quiet::Since(since) => since.checked_add(idle_after),
            Quiet::Not | Quiet::Idle => None,
        };
        match quiet {
            Quiet::Not => {
                runner.empty(now);
                quiet = Quiet::Since(now);
                // The service may have set timers, or may have panicked.
                continue;
            }
            _ if is_stopping => break,
            _ if idle_at.is_some_and(|idle_at| now >= idle_at) => {
                runner.idle(now);
                quiet = Quiet::Idle;
                continue;
            }
            _ => {}
        }
        park::park_until(runner.next_timer_at().into_iter().chain(idle_at).min());
    }
    runner.stop();
}
